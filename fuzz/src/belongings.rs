//! Whether an input has left something behind.
//!
//! What could go wrong: a descriptor that a liar sent is never closed, or a mapping of its memory never undone, so
//! that it can use a victim up.

use crate::files;
use std::fs;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Descriptors that are looked at; what is lost again and again gets there.
const NUMBERS: usize = 256;
/// Mappings are looked at after the first inputs, and then after every so many, since that takes long.
const FIRST: u64 = 8;
const EVERY: u64 = 512;

/// Which descriptors there are, in one system call.
fn open_descriptors() -> Vec<i32> {
    let mut polled: Vec<libc::pollfd> =
        (0..NUMBERS as i32).map(|fd| libc::pollfd { fd, events: 0, revents: 0 }).collect();
    // SAFETY: as many live values as is said.
    let answer = unsafe { libc::poll(polled.as_mut_ptr(), NUMBERS as libc::nfds_t, 0) };
    assert!(answer >= 0, "{}", std::io::Error::last_os_error());
    let there = polled.iter().filter(|polled| polled.revents & libc::POLLNVAL == 0);
    there.map(|polled| polled.fd).collect()
}

/// Mappings of memory that can be passed on.
fn mappings() -> usize {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines().filter(|line| line.contains("/memfd:")).count()
}

/// As [`watched`], for what others end in threads of their own: waits until this process has no more than before, no longer
/// than `limit`.
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
        // It has made what stays. Threads of it may still have something in their hands.
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

/// Runs one input, and panics if it leaves anything behind.
pub fn watched(input: impl FnOnce()) {
    static INPUTS: AtomicU64 = AtomicU64::new(0);
    static MAPPINGS: AtomicUsize = AtomicUsize::new(0);
    let number = INPUTS.fetch_add(1, Relaxed);
    if number == 0 {
        files::prepare();
        // A sleep of no time would else take the 50 us that the kernel may add to any.
        // SAFETY: a number, about this thread.
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
