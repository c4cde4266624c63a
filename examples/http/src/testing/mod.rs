//! For tests and benches of servers: a strict client, contents, and the processor time of another process.

#![allow(clippy::unwrap_used)]

mod client;
mod process;

pub use client::{Client, Response};
pub use process::{Running, cpu_seconds, free_address, pin, processors};

use std::time::{Duration, Instant};

/// Waits until a change of a file is certain to be noticed ([`Version::is_settled`](crate::Version::is_settled)).
pub fn settle() {
    std::thread::sleep(Duration::from_millis(150));
}

/// Waits until a condition holds.
///
/// # Panics
/// If it does not within 10 s; `what` is then in the message.
pub fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < Duration::from_secs(10), "not within 10 s: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Returns contents of which each 8 bytes are different.
pub fn contents(bytes: usize) -> Vec<u8> {
    let words =
        (0..bytes as u64 / 8 + 1).flat_map(|word| word.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
    words.take(bytes).collect()
}
