//! Holds the costs of the library in a process that has nothing to be served: what is loaded with it, written for it
//! and touched by it. Builds and scripts consist of such processes. Times are the bench's (`bywash bench run start`).

#![allow(clippy::unwrap_used)] // helpers of the tests

use bywash_preloaded::{library, output};
use std::ops::Range;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

/// True if the library under test is optimised; one that is not is larger.
const IS_OPTIMISED: bool = !cfg!(debug_assertions);

fn readelf(options: &str) -> String {
    output(Command::new("readelf").args([options, "-W"]).arg(library()).env("LC_ALL", "C"))
}

fn number(hex: &str) -> u64 {
    u64::from_str_radix(hex.trim_start_matches("0x"), 16).unwrap()
}

/// Offsets of the relocations whose kind begins with one of `kinds`.
fn relocations(kinds: &[&str]) -> Vec<u64> {
    let listed = readelf("-r");
    let words = listed.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let found = words.filter(|words| words.len() > 2 && kinds.iter().any(|kind| words[2].starts_with(kind)));
    found.map(|words| number(words[0])).collect()
}

/// Addresses of a section.
fn section(name: &str) -> Range<u64> {
    let listed = readelf("-S");
    let line = listed.lines().find(|line| line.contains(&format!("] {name} "))).unwrap();
    let words: Vec<&str> = line.split(']').next_back().unwrap().split_whitespace().collect();
    let (start, bytes) = (number(words[2]), number(words[4]));
    start..start + bytes
}

#[test]
fn no_other_library_than_the_c_library_is_loaded_with_it() {
    let listed = readelf("-d");
    let needed: Vec<&str> = listed
        .lines()
        .filter(|line| line.contains("(NEEDED)"))
        .filter_map(|line| line.split(['[', ']']).nth(1))
        .collect();
    assert!(needed.contains(&"libc.so.6"), "{listed}");
    let others: Vec<_> =
        needed.iter().filter(|name| !["libc.so.6", "ld-linux-x86-64.so.2"].contains(name)).collect();
    assert!(others.is_empty(), "every process has to load {others:?}");
}

#[test]
fn the_loader_has_little_to_write() {
    let (relative, symbols) =
        (relocations(&["R_X86_64_RELATIVE"]), relocations(&["R_X86_64_GLOB", "R_X86_64_JUMP"]));
    let most = if IS_OPTIMISED { 250 } else { 3_200 };
    assert!((1..=most).contains(&relative.len()), "{} addresses, {most} at most", relative.len());
    assert!((1..=40).contains(&symbols.len()), "{} symbols are looked up", symbols.len());
    // Else pages are written that no process would need: the names of functions that it does not call, for one.
    let data = section(".data");
    let in_data = relative.iter().filter(|at| data.contains(at)).count();
    assert!(in_data < 20, "{in_data} addresses in the data of {data:x?}");
}

/// Sizes in memory of the library's segments.
fn segments() -> Vec<u64> {
    let listed = readelf("-l");
    let loaded = listed.lines().filter_map(|line| line.trim_start().strip_prefix("LOAD "));
    loaded.map(|line| number(line.split_whitespace().nth(4).unwrap())).collect()
}

#[test]
fn it_takes_little_of_the_address_space() {
    let bytes: u64 = segments().iter().sum();
    let most = if IS_OPTIMISED { 416 << 10 } else { 2 << 20 };
    assert!((1..most).contains(&bytes), "{bytes} bytes, {most} at most");
}

/// Every process maps each segment, every fork copies it and every exit removes it.
#[test]
fn it_is_a_segment_that_is_read_and_one_that_is_written() {
    assert_eq!(segments().len(), 2, "{}", readelf("-l"));
}

/// Page faults of a program and its children: the median of some runs.
fn page_faults(program: &[&str], preloaded: Option<&str>) -> i64 {
    let mut all: Vec<i64> = (0..15).map(|_| page_faults_of_one(program, preloaded)).collect();
    all.sort_unstable();
    all[all.len() / 2]
}

// wait4 waits, and tells what the process used.
#[allow(clippy::zombie_processes)]
fn page_faults_of_one(program: &[&str], preloaded: Option<&str>) -> i64 {
    let mut command = Command::new(program[0]);
    command.args(&program[1..]).env_clear().envs(preloaded.map(|library| ("LD_PRELOAD", library)));
    let child = command.stdin(Stdio::null()).spawn().unwrap();
    let (mut ended, mut usage) = (0, std::mem::MaybeUninit::<libc::rusage>::zeroed());
    // SAFETY: a child of this test that nobody else waits for; all zeroes is a valid rusage.
    let usage = unsafe {
        assert_eq!(libc::wait4(child.id() as i32, &raw mut ended, 0, usage.as_mut_ptr()), child.id() as i32);
        usage.assume_init()
    };
    assert!(std::process::ExitStatus::from_raw(ended).success());
    usage.ru_minflt + usage.ru_majflt
}

#[test]
fn a_process_that_opens_no_file_touches_few_of_its_pages() {
    let library = library();
    let (without, with) = (page_faults(&["/bin/true"], None), page_faults(&["/bin/true"], library.to_str()));
    let most = if IS_OPTIMISED { 8 } else { 32 };
    assert!(with > without, "it was not loaded: {with} page faults with it, {without} without");
    assert!(with - without <= most, "{with} page faults with it, {without} without; {most} more at most");
}

#[test]
fn a_forked_child_touches_few_of_its_pages() {
    const CHILDREN: i64 = 50;
    let library = library();
    // Children close the script's file, and end.
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("script");
    std::fs::write(&script, "i=0; while [ $i -lt $1 ]; do ( : ); i=$((i+1)); done").unwrap();
    // What the shell itself costs goes away.
    let of_children = |preloaded: Option<&str>| {
        let faults = |children: i64| {
            let count = children.to_string();
            page_faults(&["/bin/sh", script.to_str().unwrap(), &count], preloaded)
        };
        (faults(CHILDREN) - faults(0)) as f64 / CHILDREN as f64
    };
    let (without, with) = (of_children(None), of_children(library.to_str()));
    // To look up one function of the C library in each of them touches some more than a dozen; to set tables up anew
    // as many.
    let most = if IS_OPTIMISED { 5.0 } else { 18.0 };
    assert!(
        with - without < most,
        "{with} page faults a child with it, {without} without; {most} more at most"
    );
}
