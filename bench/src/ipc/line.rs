//! A bare cache line that goes from core to core and back: what no way between two processes can be faster than.

use super::run::{Spent, own_cpu, pin};
use std::hint::spin_loop;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

/// One line for each direction.
#[repr(align(128))]
struct Line(AtomicU64);

/// Sends a number there and back `messages` times, between two threads on two cores; answers what it took.
pub fn run(messages: u64) -> Spent {
    let (there, back, begun) = (Line(AtomicU64::new(0)), Line(AtomicU64::new(0)), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            pin(1);
            begun.store(true, Ordering::Release);
            for number in 1..=messages {
                wait_for(&there, number);
                back.0.store(number, Ordering::Release);
            }
        });
        pin(0);
        while !begun.load(Ordering::Acquire) {
            thread::yield_now();
        }
        let (before, begin) = (own_cpu(), Instant::now());
        for number in 1..=messages {
            there.0.store(number, Ordering::Release);
            wait_for(&back, number);
        }
        Spent { wall: begin.elapsed().as_secs_f64(), cpu: own_cpu() - before }
    })
}

fn wait_for(line: &Line, number: u64) {
    while line.0.load(Ordering::Acquire) != number {
        spin_loop();
    }
}
