//! A process pays next to nothing for the library until it reads a file at an offset: counted in system calls, not in
//! time.

#![allow(clippy::unwrap_used)] // the functions below are part of the tests that call them

use bywash_behaviour::compile::Names;
use bywash_behaviour::{library, program};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// System calls of `program`, by name (strace(1)), with `library` preloaded or nothing.
fn calls(library: Option<&Path>, program: &[&str]) -> BTreeMap<String, u64> {
    let preload =
        format!("--env=LD_PRELOAD={}", library.map_or_else(String::new, |path| path.display().to_string()));
    let mut command = Command::new("strace");
    // So that files are served after few reads, whatever that gains.
    command.env("BYWASH_ADVANCE", "1000000");
    command.args([
        "--summary-only",
        "--follow-forks",
        "--summary-columns=calls,name",
        &preload,
        "--output=/dev/stdout",
    ]);
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

/// Returns the system calls that the library adds, by name.
fn added(program: &[&str]) -> BTreeMap<String, u64> {
    let before = calls(None, program);
    let mut added = calls(Some(&library()), program);
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
fn files_that_are_read_from_start_to_end_cost_no_call() {
    let total = |program: &[&str]| added(program).values().sum::<u64>();
    let none = total(&["/bin/true"]);
    assert_eq!(total(&["/bin/cat", "/etc/passwd"]), none);
    assert_eq!(total(&["/bin/cat", "/etc/passwd", "/etc/group", "/etc/hostname", "/etc/passwd"]), none);
    // A shell opens and duplicates, and so do its children. (It sets signal handlers too, which costs some calls.)
    let script = "read line < /etc/passwd; exec 5< /etc/group 6<&5; ( exec 7< /etc/passwd; : <&6 )";
    let of_shell = added(&["/bin/sh", "-c", script]);
    assert_eq!(of_shell.get("mmap"), added(&["/bin/true"]).get("mmap"), "{of_shell:?}");
    assert_eq!(of_shell.get("madvise"), None, "{of_shell:?}");
}

#[test]
fn reads_at_offsets_are_served_from_a_file_that_was_opened_before_anything_was_set_up() {
    let into = Path::new(env!("CARGO_TARGET_TMPDIR")).join("starting");
    std::fs::create_dir_all(&into).unwrap();
    let program = program("program", Names::Plain, &into).unwrap();
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let words = [
        program.to_str().unwrap(),
        "processes/rearranged_before_the_first_read_at_an_offset",
        folder.path().to_str().unwrap(),
    ];
    let reads = |library: Option<&Path>| calls(library, &words).get("pread64").copied().unwrap_or(0);
    let (by_kernel, left) = (reads(None), reads(Some(&library())));
    assert!(left < by_kernel / 2, "{left} of {by_kernel} reads were the kernel's");
}

#[test]
fn a_program_is_looked_at_by_few_calls_before_it_is_executed() {
    let added = added(&["/bin/sh", "-c", "/bin/true; exit 0"]);
    let count = |name| added.get(name).copied().unwrap_or(0);
    // Its beginning, the list of the libraries that it needs, and the name of the first one.
    assert!((1..=3).contains(&count("pread64")), "{added:?}");
    assert_eq!(count("getpid"), 0, "{added:?}");
}

#[test]
fn no_library_is_loaded_with_it_but_the_c_library() {
    let output = Command::new("readelf").arg("-dW").arg(library()).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let needed: Vec<&str> = text
        .lines()
        .filter(|line| line.contains("(NEEDED)"))
        .filter_map(|line| line.split_once('[')?.1.strip_suffix(']'))
        .collect();
    assert!(needed.contains(&"libc.so.6"), "{needed:?}");
    assert!(needed.iter().all(|name| ["libc.so.6", "ld-linux-x86-64.so.2"].contains(name)), "{needed:?}");
}

/// A library whose constructor starts a thread that reads a file, at offsets and at its own position, from before the
/// preloaded library's constructor until after it.
const EARLY_READER: &str = r#"
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>
static atomic_int rounds, ends;
static pthread_t reader;
static void *read_all(void *name) {
  int fd = open(name, O_RDONLY);
  for (; !ends; rounds++)
    for (unsigned char at = 0, there[2]; at < 250; at += 2)
      if (pread(fd, there, 1, at) != 1 || there[0] != at || lseek(fd, at + 1, SEEK_SET) != at + 1
          || read(fd, there + 1, 1) != 1 || there[1] != at + 1)
        abort();
  return NULL;
}
__attribute__((constructor)) static void begin(int count, char **words) {
  if (count != 2 || pthread_create(&reader, NULL, read_all, words[1])) abort();
  while (rounds < 3) usleep(100);
}
void end_reader(void) {
  for (int before = rounds; rounds < before + 50;) usleep(100);
  ends = 1;
  pthread_join(reader, NULL);
}
"#;

#[test]
fn a_thread_that_an_earlier_constructor_has_started_reads_as_before() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = |name: &str| folder.path().join(name);
    let build = |source: &str, name: &str, options: &[&str]| {
        std::fs::write(path(&format!("{name}.c")), source).unwrap();
        let mut command = Command::new("cc");
        command.current_dir(folder.path()).args(["-O2", "-pthread", "-o", name, &format!("{name}.c")]);
        assert!(command.args(options).status().unwrap().success(), "{name}");
    };
    build(EARLY_READER, "libearly.so", &["-shared", "-fPIC"]);
    build(
        "void end_reader(void); int main(void) { end_reader(); }",
        "main",
        &["-L.", "-learly", "-Wl,-rpath,."],
    );
    std::fs::write(path("file"), (0..=255).collect::<Vec<u8>>()).unwrap();
    let library = library();
    for settings in [["BYWASH_POSITIONS", "user"], ["BYWASH_WRITES", "1"]] {
        for _ in 0..20 {
            let mut command = Command::new(path("main"));
            command.current_dir(folder.path()).arg("file").env("LD_PRELOAD", &library);
            let status =
                command.env(settings[0], settings[1]).env("BYWASH_ADVANCE", "1000000").status().unwrap();
            assert!(status.success(), "{settings:?}: {status}");
        }
    }
}
