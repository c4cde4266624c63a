//! Compares the table of system calls with the kernel's own list, so that a new call must be classified.

#![allow(clippy::unwrap_used)] // helpers of the tests

#[path = "../../../crates/shim/src/syscalls/calls.rs"]
mod calls;

use calls::{CALLS, Effect, effect};
use std::collections::BTreeMap;

/// Paths at which distributions install the kernel's list for x86-64.
const HEADERS: [&str; 2] = ["/usr/include/x86_64-linux-gnu/asm/unistd_64.h", "/usr/include/asm/unistd_64.h"];

/// Returns the name of each number in the kernel's list.
fn kernels() -> BTreeMap<u16, String> {
    let text = HEADERS.iter().find_map(|path| std::fs::read_to_string(path).ok());
    let text = text.expect("no asm/unistd_64.h: install it (Debian: apt-get install linux-libc-dev)");
    text.lines()
        .filter_map(|line| {
            let (name, number) = line.strip_prefix("#define __NR_")?.split_once(' ')?;
            Some((number.trim().parse().ok()?, name.to_string()))
        })
        .collect()
}

fn ours() -> BTreeMap<u16, &'static str> {
    let all = || CALLS.iter().flat_map(|(_, calls)| calls.iter());
    let named: BTreeMap<u16, &str> = all().copied().collect();
    assert_eq!(named.len(), all().count(), "a number has two effects");
    named
}

#[test]
fn every_call_of_the_kernel_is_classified_by_its_name() {
    let (ours, kernels) = (ours(), kernels());
    assert!(kernels.len() > 350, "the kernel's list has {} calls only", kernels.len());
    let missing: Vec<_> =
        kernels.iter().filter(|(number, name)| ours.get(number) != Some(&name.as_str())).collect();
    assert!(missing.is_empty(), "look at these calls and enter them in calls.rs: {missing:?}");
}

#[test]
fn what_is_not_in_the_table_may_share_descriptors() {
    for number in [-1, 511, 512, 100_000, i64::MAX] {
        assert_eq!(effect(number), Effect::Shares, "{number}");
    }
    assert_eq!(effect(libc::SYS_getpid), Effect::Nothing);
}

/// Checks that no call is classified as [`Effect::Nothing`] if the manual says that it uses, moves or depends
/// on the position of a descriptor, or passes descriptors on.
#[test]
fn calls_that_use_a_position_are_not_nothing() {
    for name in [
        "read",
        "write",
        "readv",
        "writev",
        "preadv2",
        "pwritev2",
        "lseek",
        "sendfile",
        "splice",
        "copy_file_range",
        "ioctl",
        "fcntl",
        "dup",
        "dup2",
        "dup3",
        "pidfd_getfd",
        "sendmsg",
        "sendmmsg",
        "fork",
        "vfork",
        "clone",
        "clone3",
        "execve",
        "execveat",
        "unshare",
        "close_range",
    ] {
        let (number, _) = ours().into_iter().find(|(_, known)| *known == name).unwrap();
        assert_ne!(effect(i64::from(number)), Effect::Nothing, "{name}");
    }
}
