//! A process pays next to nothing for the library until it opens a file: counted in system calls, not in time.

#![allow(clippy::unwrap_used)] // the functions below are part of the tests that call them

use bywash_behaviour::library;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// System calls of `program`, by name (strace(1)), with `library` preloaded or nothing.
fn calls(library: Option<&Path>, program: &[&str]) -> BTreeMap<String, u64> {
    let preload =
        format!("--env=LD_PRELOAD={}", library.map_or_else(String::new, |path| path.display().to_string()));
    let mut command = Command::new("strace");
    command.args(["--summary-only", "--summary-columns=calls,name", &preload, "--output=/dev/stdout"]);
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("BYWASH_")) {
        command.env_remove(name);
    }
    let output =
        command.args(program).stdin(std::process::Stdio::null()).output().unwrap_or_else(|error| {
            panic!("strace: {error}; it is in Debian's strace (scripts/packages test)")
        });
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let counts = text.lines().filter_map(|line| {
        let (count, name) = line.trim().split_once(' ')?;
        Some((name.trim().to_owned(), count.parse().ok()?))
    });
    counts.filter(|(name, _)| name != "total").collect()
}

/// What the library adds, by name.
fn added(program: &[&str]) -> BTreeMap<String, u64> {
    let before = calls(None, program);
    let mut added = calls(Some(&library().unwrap()), program);
    for (name, count) in &mut added {
        *count = count.saturating_sub(before.get(name).copied().unwrap_or(0));
    }
    added.retain(|_, count| *count > 0);
    added
}

#[test]
fn a_process_without_files_makes_one_call_more_than_to_load_the_library() {
    let added = added(&["/bin/true"]);
    // Opening, reading the header, looking at it, mapping four segments, closing, protecting: the dynamic
    // loader's. And one membarrier(2).
    let allowed = [
        ("openat", 1),
        ("read", 1),
        ("fstat", 1),
        ("newfstatat", 1),
        ("mmap", 7),
        ("close", 1),
        ("mprotect", 1),
        ("membarrier", 1),
    ];
    for (name, count) in &added {
        let most = allowed.iter().find(|(allowed, _)| allowed == name).map_or(0, |(_, most)| *most);
        assert!(*count <= most, "{name} {count} times: {added:?}");
    }
    assert!(added.values().sum::<u64>() <= 13, "{added:?}");
    assert_eq!(added.get("membarrier"), Some(&1), "the library was not there: {added:?}");
}

#[test]
fn the_first_file_costs_some_calls_and_the_next_ones_none() {
    let one = added(&["/bin/cat", "/etc/passwd"]);
    let several = added(&["/bin/cat", "/etc/passwd", "/etc/group", "/etc/hostname", "/etc/passwd"]);
    assert!(one.values().sum::<u64>() <= 50, "{one:?}");
    assert!(!one.contains_key("rt_sigaction"), "{one:?}");
    let total = |calls: &BTreeMap<String, u64>| calls.values().sum::<u64>();
    assert!(total(&several) <= total(&one) + 2, "{one:?} {several:?}");
}

#[test]
fn no_library_is_loaded_with_it_but_the_c_library() {
    let output = Command::new("readelf").arg("-dW").arg(library().unwrap()).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let needed: Vec<&str> = text
        .lines()
        .filter(|line| line.contains("(NEEDED)"))
        .filter_map(|line| line.split_once('[')?.1.strip_suffix(']'))
        .collect();
    assert!(needed.contains(&"libc.so.6"), "{needed:?}");
    assert!(needed.iter().all(|name| ["libc.so.6", "ld-linux-x86-64.so.2"].contains(name)), "{needed:?}");
}
