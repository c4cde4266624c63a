//! Compares the library's exported functions with the C library: the library must export every other name of
//! a function that it replaces, and every function that sets a signal mask.

#![allow(clippy::unwrap_used)] // helpers of the tests

use bywash_preloaded::{library, output};
use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

/// Version of names that a program cannot be linked with, or that only the C library itself calls.
const PRIVATE: &str = "GLIBC_PRIVATE";

/// Functions of the C library that change no thread's mask although a set of signals, a jump buffer or a
/// context is part of their declaration, each with the reason.
const HARMLESS: [(&str, &str); 33] = [
    ("sigemptyset", "changes a set in memory"),
    ("sigfillset", "changes a set in memory"),
    ("sigaddset", "changes a set in memory"),
    ("sigdelset", "changes a set in memory"),
    ("sigismember", "looks at a set"),
    ("sigisemptyset", "looks at a set"),
    ("sigandset", "changes a set in memory"),
    ("sigorset", "changes a set in memory"),
    ("sigpending", "asks what waits, which is blocked indeed"),
    ("signalfd", "what it reads is blocked indeed once it was sent"),
    ("_setjmp", "saves no mask"),
    ("makecontext", "changes a context in memory"),
    ("pthread_attr_getsigmask_np", "looks at attributes"),
    ("pthread_attr_setsigmask_np", "pthread_create looks at the thread's mask"),
    ("posix_spawnattr_getsigmask", "looks at attributes"),
    ("posix_spawnattr_setsigmask", "the mask of a child that is executed"),
    ("posix_spawnattr_getsigdefault", "looks at attributes"),
    ("posix_spawnattr_setsigdefault", "dispositions of a child that is executed"),
    ("sigreturn", "not to be called by programs"),
    ("__sigsetjmp_cancel", "saves no mask"),
    ("__pthread_register_cancel", "no mask"),
    ("__pthread_unregister_cancel", "no mask"),
    ("__pthread_unwind_next", "ends the thread"),
    ("pthread_kill", "sends"),
    ("pthread_sigqueue", "sends"),
    ("sigqueue", "sends"),
    ("kill", "sends"),
    ("killpg", "sends"),
    ("raise", "sends"),
    ("gsignal", "sends"),
    ("sigaltstack", "a stack"),
    ("sigstack", "a stack"),
    ("psiginfo", "prints"),
];

/// Returns the address and the name with its version of each function that a library exports.
fn functions(library: &str) -> Vec<(String, String)> {
    output(Command::new("nm").args(["-D", "--defined-only", library]))
        .lines()
        .filter_map(|line| {
            let [address, kind, name] = line.split_whitespace().collect::<Vec<_>>().try_into().ok()?;
            "TWti".contains(kind).then(|| (address.to_string(), name.to_string()))
        })
        .collect()
}

fn plain(name: &str) -> String {
    name.split('@').next().unwrap_or(name).to_string()
}

fn exported() -> BTreeSet<String> {
    functions(library().to_str().unwrap()).iter().map(|(_, name)| plain(name)).collect()
}

/// Returns the path of the C library that this test runs with.
fn c_library() -> String {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let line = maps.lines().find(|line| line.ends_with("/libc.so.6")).unwrap();
    line[line.find('/').unwrap()..].to_string()
}

#[test]
fn every_other_name_of_a_function_is_the_librarys_too() {
    let ours = exported();
    let mut names: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (address, name) in functions(&c_library()) {
        // A single @ marks an old version, which no program is linked with any more. The exception is llseek,
        // which is still called.
        if !name.contains(PRIVATE) {
            names.entry(address).or_default().insert(plain(&name));
        }
    }
    let known = names.values().filter(|names| names.iter().any(|name| ours.contains(name)));
    let missing: Vec<String> =
        known.clone().flatten().filter(|name| !ours.contains(*name)).cloned().collect();
    assert!(known.count() > 100, "the C library's functions were not found");
    assert!(missing.is_empty(), "enter these names in aliases.rs: {missing:?}");
}

/// Checks every declaration in the C library's headers that contains one of these types.
#[test]
fn every_function_that_sets_a_mask_is_the_librarys() {
    const HEADERS: &str = "#include <signal.h>\n#include <poll.h>\n#include <sys/select.h>\n\
        #include <sys/epoll.h>\n#include <sys/signalfd.h>\n#include <ucontext.h>\n#include <setjmp.h>\n\
        #include <spawn.h>\n#include <pthread.h>\n#include <threads.h>\n#include <sys/wait.h>\n";
    const TYPES: [&str; 8] = [
        "sigset_t",
        "ucontext_t",
        "jmp_buf",
        "__jmp_buf_tag",
        "struct sigaction",
        "__sighandler_t",
        "sighandler_t",
        "thrd_start_t",
    ];
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("headers.c");
    std::fs::write(&source, HEADERS).unwrap();
    let text = output(Command::new("cc").args(["-E", "-P", "-D_GNU_SOURCE"]).arg(&source));
    let ours = exported();
    let mut found = BTreeSet::new();
    for declaration in text.split(';').filter(|text| text.contains("extern")) {
        let words = declaration.split_whitespace().collect::<Vec<_>>().join(" ");
        // BSD's functions take the mask as an int.
        let sets = words.contains("int __mask") || words.contains("sigmask");
        if !sets && !TYPES.iter().any(|kind| words.contains(kind)) {
            continue;
        }
        let Some((before, _)) = words.split_once('(') else { continue };
        let name = before.trim_end().rsplit([' ', '*']).next().unwrap_or_default();
        if !name.is_empty() && name != "__attribute__" {
            found.insert(name.to_string());
        }
    }
    for name in
        ["sigprocmask", "pthread_sigmask", "ppoll", "sigsuspend", "siglongjmp", "swapcontext", "sigblock"]
    {
        assert!(found.contains(name), "{name} is not among {found:?}");
    }
    let missing: Vec<_> = found
        .iter()
        .filter(|name| !ours.contains(*name) && !HARMLESS.iter().any(|(harmless, _)| harmless == name))
        .collect();
    assert!(missing.is_empty(), "these may set a mask past the library: {missing:?}");
}
