//! Costs of basic operations on this machine, measured in about a second.
//!
//! Each cost is the best of many short batches, since other work on the machine only adds time; for wake-ups
//! it is the median batch. Each wait is bounded by [`TIMEOUT`]; a wait that expires is reported instead of a
//! number.

use super::kernel::Mapping;
use super::machine::{cores, pin};
use super::paths::{candidates, file_system};
use rustix::thread::futex;
use serde::Serialize;
use std::fs::File;
use std::hint::{black_box, spin_loop};
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{
    AtomicBool, AtomicU32,
    Ordering::{Acquire, Relaxed, Release},
};
use std::time::{Duration, Instant};

/// A measured cost.
#[derive(Serialize)]
pub struct Cost {
    /// Name of the cost, for programs.
    pub name: &'static str,
    /// Description of the cost, in words.
    pub what: &'static str,
    /// Time in nanoseconds, or null if it could not be measured.
    pub ns: Option<f64>,
    /// Reason that the cost could not be measured.
    pub why_not: Option<String>,
}

/// Times of reads of one size, at random offsets of a file in the page cache.
#[derive(Serialize)]
pub struct Copying {
    /// Directory of the file.
    pub place: PathBuf,
    /// File system of the directory.
    pub file_system: String,
    /// Size of a read, in bytes.
    pub bytes: usize,
    /// Time of pread(2), in nanoseconds.
    pub pread_ns: f64,
    /// Time of a copy from a mapping of the file, in nanoseconds.
    pub mapped_ns: f64,
}

/// Duration of the measurement of one cost.
const MEASURE: Duration = Duration::from_millis(60);
/// Greatest time that one thread waits for the other.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Size of the file that is read, in bytes: larger than the nearer caches, small enough to be written
/// quickly.
const FILE_BYTES: usize = 16 << 20;
const SIZES: [usize; 6] = [512, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20];
/// Greatest ratio of a copy's time to the call's time that counts as clearly cheaper. A mapping also costs
/// faults and windows.
const CLEARLY_CHEAPER: f64 = 0.8;

/// Measures all costs that need no file.
pub fn measure() -> Vec<Cost> {
    vec![
        cost("syscall_ns", "system call", Ok(system_call())),
        cost("cache_line_round_trip_ns", "cache line to another core and back", cache_line()),
        cost("futex_round_trip_ns", "futex wake-up and back", futex_wake_up()),
        cost("pipe_round_trip_ns", "pipe wake-up and back", pipe_wake_up()),
    ]
}

fn cost(name: &'static str, what: &'static str, measured: io::Result<f64>) -> Cost {
    match measured {
        Ok(ns) => Cost { name, what, ns: Some(ns), why_not: None },
        Err(error) => Cost { name, what, ns: None, why_not: Some(error.to_string()) },
    }
}

/// Runs batches of `batch` calls of `once` for `time`. Returns the time of one call in each batch, in
/// nanoseconds, sorted.
fn batches(batch: u32, time: Duration, mut once: impl FnMut()) -> Vec<f64> {
    let (start, mut taken) = (Instant::now(), Vec::new());
    while taken.is_empty() || start.elapsed() < time {
        let begin = Instant::now();
        for _ in 0..batch {
            once();
        }
        taken.push(begin.elapsed().as_nanos() as f64 / f64::from(batch));
    }
    taken.sort_by(f64::total_cmp);
    taken
}

/// Returns the time of the best batch, for operations that other work on the machine can only slow down.
fn best(batch: u32, time: Duration, once: impl FnMut()) -> f64 {
    batches(batch, time, once)[0]
}

/// Returns the time of the median batch, for wake-ups, whose cost depends on the sleep state of a core.
fn median(batch: u32, time: Duration, once: impl FnMut()) -> f64 {
    let taken = batches(batch, time, once);
    taken[taken.len() / 2]
}

fn system_call() -> f64 {
    best(500, MEASURE, || {
        black_box(rustix::process::getppid());
    })
}

/// A word that two threads write in turns: one writes odd numbers, the other even ones.
#[derive(Default)]
#[repr(align(128))]
struct Word(AtomicU32);

/// Spins until `word` is `value`. Returns false if `ended` is set or [`TIMEOUT`] expires first.
fn spin_until(word: &AtomicU32, value: u32, ended: &AtomicBool) -> bool {
    let mut begin = None;
    loop {
        for _ in 0..1000 {
            // SYNC: doctor-turn (acquire; the other thread's store releases).
            if word.load(Acquire) == value {
                return true;
            }
            spin_loop();
        }
        if ended.load(Relaxed) || begin.get_or_insert_with(Instant::now).elapsed() > TIMEOUT {
            return false;
        }
    }
}

/// Returns the round-trip time of a word to another core and back, in nanoseconds. Also called by `bywash
/// plan calibrate`.
///
/// # Errors
/// If this process may use one core only, or the other thread does not respond in time.
pub fn cache_line() -> io::Result<f64> {
    let (word, ended) = (Word::default(), AtomicBool::new(false));
    ask_and_answer(
        || {
            let (mut turn, mut answered) = (1u32, true);
            let ns = best(1000, MEASURE, || {
                // SYNC: doctor-turn (release).
                word.0.store(turn, Release);
                answered = answered && spin_until(&word.0, turn.wrapping_add(1), &ended);
                turn = turn.wrapping_add(2);
            });
            ended.store(true, Relaxed);
            if answered { Ok(ns) } else { Err(no_answer()) }
        },
        || {
            let mut turn = 1u32;
            while spin_until(&word.0, turn, &ended) {
                // SYNC: doctor-turn (release).
                word.0.store(turn.wrapping_add(1), Release);
                turn = turn.wrapping_add(2);
            }
            Ok(())
        },
    )
}

fn futex_wake_up() -> io::Result<f64> {
    // Values of the word.
    const ASKED: u32 = 1;
    const ANSWERED: u32 = 2;
    const ENDED: u32 = 3;
    let word = Word::default();
    let set = |value| {
        // SYNC: doctor-turn (release).
        word.0.store(value, Release);
        futex::wake(&word.0, futex::Flags::PRIVATE, 1).map(|_| ())
    };
    ask_and_answer(
        || {
            let mut outcome = Ok(());
            let ns = median(5, MEASURE, || {
                if outcome.is_ok() {
                    outcome = set(ASKED).map_err(io::Error::from).and_then(|()| {
                        sleep_while(&word.0, ASKED)?;
                        Ok(())
                    });
                }
            });
            set(ENDED)?;
            outcome.map(|()| ns)
        },
        || {
            loop {
                // SYNC: doctor-turn (acquire).
                match word.0.load(Acquire) {
                    ASKED => set(ANSWERED)?,
                    ENDED => return Ok(()),
                    other => sleep_while(&word.0, other)?,
                }
            }
        },
    )
}

/// Sleeps until `word` is no longer `value`.
fn sleep_while(word: &AtomicU32, value: u32) -> io::Result<()> {
    let timeout = rustix::thread::Timespec { tv_sec: TIMEOUT.as_secs() as i64, tv_nsec: 0 };
    // SYNC: doctor-turn (acquire).
    while word.load(Acquire) == value {
        match futex::wait(word, futex::Flags::PRIVATE, value, Some(&timeout)) {
            // Another thread changed the word, before or during this sleep, or a signal ended the sleep.
            Ok(()) | Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::TIMEDOUT) => return Err(no_answer()),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn pipe_wake_up() -> io::Result<f64> {
    let (mut question, mut asking) = io::pipe()?;
    let (mut answer, mut answering) = io::pipe()?;
    ask_and_answer(
        move || {
            let mut outcome = Ok(());
            let ns = median(5, MEASURE, || {
                if outcome.is_ok() {
                    outcome = asking.write_all(b"?").and_then(|()| answer.read_exact(&mut [0]));
                }
            });
            outcome.map(|()| ns)
        },
        // Ends when the asking thread has dropped its end of the pipe.
        move || {
            while question.read(&mut [0])? == 1 {
                answering.write_all(b"!")?;
            }
            Ok(())
        },
    )
}

/// Runs both functions, each on a core of its own, until both return. Returns the result of `ask`.
fn ask_and_answer(
    ask: impl FnOnce() -> io::Result<f64> + Send,
    answer: impl FnOnce() -> io::Result<()> + Send,
) -> io::Result<f64> {
    let cores = cores();
    let [first, .., last] = cores[..] else {
        return Err(io::Error::other("this process may use one core only"));
    };
    std::thread::scope(|scope| {
        let answerer = scope.spawn(move || pin(last).and_then(|()| answer()));
        let asked = scope.spawn(move || pin(first).and_then(|()| ask())).join();
        let answered = answerer.join();
        let panicked = |_| io::Error::other("the measuring thread panicked");
        answered.map_err(panicked)??;
        asked.map_err(panicked)?
    })
}

fn no_answer() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "the other thread did not answer in time; is the machine busy?")
}

/// Measures reads in all places. A place that cannot be measured is left out; a finding gives the reason.
pub fn copying() -> Vec<Copying> {
    candidates().iter().filter_map(|place| copying_in(place).ok()).flatten().collect()
}

fn copying_in(place: &Path) -> io::Result<Vec<Copying>> {
    let mut file = tempfile::tempfile_in(place)?;
    let chunk = vec![0x5a; 1 << 20];
    for _ in 0..FILE_BYTES / chunk.len() {
        file.write_all(&chunk)?;
    }
    let mapping = Mapping::new(&file, FILE_BYTES)?;
    SIZES.iter().map(|bytes| copying_of(place, &file, &mapping, *bytes)).collect()
}

fn copying_of(place: &Path, file: &File, mapping: &Mapping, bytes: usize) -> io::Result<Copying> {
    let mut buffer = vec![0; bytes];
    let (mut pread_ns, mut mapped_ns) = (f64::INFINITY, f64::INFINITY);
    let batch = (256 * 1024 / bytes).clamp(1, 64) as u32;
    let mut offsets = Offsets { state: 0x9e37_79b9_7f4a_7c15, bytes };
    // The two alternate, so that other work on the machine affects both.
    for _ in 0..4 {
        let mut outcome = Ok(());
        let ns = best(batch, MEASURE / 16, || {
            if outcome.is_ok() {
                outcome = file.read_exact_at(&mut buffer, offsets.next() as u64);
            }
        });
        outcome?;
        pread_ns = pread_ns.min(ns);
        mapped_ns = mapped_ns.min(best(batch, MEASURE / 16, || {
            mapping.copy_to(offsets.next(), &mut buffer);
            black_box(&mut buffer);
        }));
    }
    Ok(Copying { place: place.into(), file_system: file_system(place), bytes, pread_ns, mapped_ns })
}

/// Random multiples of the size `bytes` within the file (xorshift64).
struct Offsets {
    state: u64,
    bytes: usize,
}

impl Offsets {
    fn next(&mut self) -> usize {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        (self.state % (FILE_BYTES / self.bytes) as u64) as usize * self.bytes
    }
}

/// Returns the largest size up to which a copy from a mapping is clearly cheaper than the call, in every
/// place.
pub fn threshold(copying: &[Copying]) -> Option<u64> {
    let cheaper = |size: usize| {
        let mut measured = copying.iter().filter(|cost| cost.bytes == size).peekable();
        measured.peek().is_some() && measured.all(|cost| cost.mapped_ns <= cost.pread_ns * CLEARLY_CHEAPER)
    };
    SIZES.into_iter().take_while(|size| cheaper(*size)).last().map(|size| size as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(bytes: usize, pread_ns: f64, mapped_ns: f64) -> Copying {
        Copying { place: "/".into(), file_system: "x".into(), bytes, pread_ns, mapped_ns }
    }

    #[test]
    fn the_threshold_is_where_every_place_still_wins() {
        let fast = |bytes| row(bytes, 100.0, 10.0);
        let slow = |bytes| row(bytes, 100.0, 90.0);
        assert_eq!(threshold(&[]), None);
        assert_eq!(threshold(&[slow(512), fast(4096)]), None);
        assert_eq!(threshold(&[fast(512), fast(4096), slow(16_384), fast(65_536)]), Some(4096));
        assert_eq!(threshold(&[fast(512), fast(4096), fast(512), slow(4096)]), Some(512));
    }

    #[test]
    fn costs_are_measured_or_say_why_not() {
        for cost in measure() {
            assert_ne!(cost.ns.is_some(), cost.why_not.is_some(), "{}", cost.name);
            assert!(cost.ns.is_none_or(|ns| ns > 1.0 && ns < 1e9), "{}: {:?}", cost.name, cost.ns);
        }
    }

    #[test]
    fn offsets_stay_inside_the_file() {
        for bytes in SIZES {
            let mut offsets = Offsets { state: 1, bytes };
            assert!((0..1000).all(|_| offsets.next() + bytes <= FILE_BYTES));
        }
    }
}
