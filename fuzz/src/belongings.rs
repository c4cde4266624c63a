//! Checks that an input leaves no descriptors and no mappings behind. Called by the fuzz targets around each
//! input.
//!
//! Failures that this looks for: a descriptor from a malicious peer is never closed, or a mapping of its
//! memory is never unmapped, so that the peer can use up the resources of its victim.

use crate::files;
use std::fs;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Number of descriptors that are checked, from 0 on; a repeated leak reaches one of them.
const NUMBERS: usize = 256;
/// Mappings are checked after each of the first `FIRST` inputs, and then after every `EVERY`th, since that
/// takes long.
const FIRST: u64 = 8;
const EVERY: u64 = 512;

/// Returns the open descriptors below `NUMBERS`, found by one system call.
fn open_descriptors() -> Vec<i32> {
    let mut polled: Vec<libc::pollfd> =
        (0..NUMBERS as i32).map(|fd| libc::pollfd { fd, events: 0, revents: 0 }).collect();
    // SAFETY: the array has `NUMBERS` elements and outlives the call.
    let answer = unsafe { libc::poll(polled.as_mut_ptr(), NUMBERS as libc::nfds_t, 0) };
    assert!(answer >= 0, "{}", std::io::Error::last_os_error());
    let there = polled.iter().filter(|polled| polled.revents & libc::POLLNVAL == 0);
    there.map(|polled| polled.fd).collect()
}

/// Returns the number of mappings of memfds.
fn mappings() -> usize {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines().filter(|line| line.contains("/memfd:")).count()
}

/// Like [`watched`], but for resources that other threads release: waits up to `limit` until this process has
/// as many descriptors and mappings as before.
pub fn settled(limit: Duration, input: impl FnOnce()) {
    static INPUTS: AtomicU64 = AtomicU64::new(0);
    static MAPPINGS: AtomicUsize = AtomicUsize::new(0);
    let number = INPUTS.fetch_add(1, Relaxed);
    files::prepare();
    let descriptors = open_descriptors().len();
    input();
    let end = Instant::now() + limit;
    let wait = |is_so: &dyn Fn() -> bool| {
        while !is_so() {
            if Instant::now() >= end {
                return false;
            }
            std::thread::yield_now();
        }
        true
    };
    if number == 0 {
        // The first input makes what stays for good. Other threads may still be releasing the rest.
        std::thread::sleep(limit / 16);
        MAPPINGS.store(mappings(), Relaxed);
        return;
    }
    if !wait(&|| open_descriptors().len() == descriptors) {
        let there = fs::read_dir("/proc/self/fd").unwrap().flatten();
        let there: Vec<_> = there.map(|descriptor| fs::read_link(descriptor.path())).collect();
        panic!("{descriptors} descriptors before, and now {there:?}");
    }
    if number < FIRST || number.is_multiple_of(EVERY) {
        let before = MAPPINGS.load(Relaxed);
        assert!(wait(&|| mappings() == before), "{before} mappings before, and now {}", mappings());
    }
}

/// Runs one input, and panics if it leaves a descriptor or a mapping behind.
pub fn watched(input: impl FnOnce()) {
    static INPUTS: AtomicU64 = AtomicU64::new(0);
    static MAPPINGS: AtomicUsize = AtomicUsize::new(0);
    let number = INPUTS.fetch_add(1, Relaxed);
    if number == 0 {
        files::prepare();
        // Otherwise the kernel may delay even a sleep of no time by its timer slack, 50 us.
        // SAFETY: the call takes plain numbers and accesses no memory.
        unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
        MAPPINGS.store(mappings(), Relaxed);
    }
    let before = open_descriptors();
    input();
    assert_eq!(before, open_descriptors(), "descriptors before and after");
    if number < FIRST || number.is_multiple_of(EVERY) {
        assert_eq!(MAPPINGS.load(Relaxed), mappings(), "mappings before the first input and now");
    }
}
