//! Recalculation of the PCI bars of Figures 8 and 9 by formulas of queueing theory, which share no code with the
//! simulator: bounds by the busiest resource, and mean-value analysis of a closed network (Reiser and Lavenberg
//! 1980) with its stations.
//!
//! The simulator's times are mostly constants and mean-value analysis is exact for exponential ones, so the
//! simulated throughput must be between the analysis and the bound.

use bywash_sim::paper::servers::{Bar, Figures};
use std::sync::LazyLock;

/// Simulated figures, for all tests.
static FIGURES: LazyLock<Figures> = LazyLock::new(Figures::without_limits);

const KIB: f64 = 1024.0;
const THREADS: u32 = 64;
/// Seconds per byte on PCI: bursts of 1 KiB at 512 MB/s, with 45 ns of arbitration each.
const PCI: f64 = 1.0 / 512e6 + 45e-9 / KIB;
/// Seconds per byte on the memory bus.
const MEMORY: f64 = 1.0 / 1064e6;
/// Seconds per byte of a host's processor at 1.5 GHz with 10 cycles per byte, and of an interface.
const HOST: f64 = 10.0 / 1.5e9;
const WIRE: f64 = 1.0 / 128e6;
/// Time of a disk that positions its head and transfers `bytes`, in seconds.
fn disk(bytes: f64) -> f64 {
    2e-3 + bytes / 40e6
}

/// Station with this many equal queues: seconds that a request takes there.
struct Station(f64, f64);

/// Throughput in requests per second by mean-value analysis, with `delay` seconds outside all stations.
fn analysed(stations: &[Station], delay: f64) -> f64 {
    let mut lengths = vec![0.0; stations.len()];
    let mut rate = 0.0;
    for threads in 1..=THREADS {
        let stays: Vec<f64> =
            stations.iter().zip(&lengths).map(|(Station(time, _), length)| time * (1.0 + length)).collect();
        rate = f64::from(threads) / (delay + stays.iter().sum::<f64>());
        for ((length, stay), Station(_, queues)) in lengths.iter_mut().zip(&stays).zip(stations) {
            *length = rate * stay / queues;
        }
    }
    rate
}

/// Greatest throughput in requests per second: that of the busiest station.
fn bound(stations: &[Station]) -> f64 {
    stations.iter().map(|Station(time, queues)| queues / time).fold(f64::INFINITY, f64::min)
}

/// Asserts that the bar lies between the analysis and the bound, both within `tolerance`.
fn assert_between(bar: &Bar, stations: &[Station], bytes: f64, delay: f64, tolerance: f64) {
    let [least, most] = [analysed(stations, delay), bound(stations)].map(|rate| rate * bytes);
    let found = bar.throughput.mean;
    assert!(
        found > least * (1.0 - tolerance) && found < most * (1.0 + tolerance),
        "{}: {found} is not between {least} and {most}",
        bar.name
    );
}

#[test]
fn video_on_pci_is_what_queueing_theory_says() {
    let bars = &FIGURES.video;
    let bytes = 32.0 * KIB;
    let bus = || Station(2.0 * bytes * PCI, 1.0);
    // Conventional: commands of 16 KiB, each with its own positioning. Memory: in, out, the write-back before it,
    // and the kernel's copy.
    let stations = [bus(), Station(4.0 * bytes * MEMORY, 1.0), Station(2.0 * disk(16.0 * KIB), 16.0)];
    assert_between(&bars[0], &stations, bytes, bytes * (HOST + WIRE), 0.03);
    // Active: one positioning for 32 KiB, which is a segment.
    for (bar, clock) in [(&bars[1], 300e6), (&bars[2], 1.5e9)] {
        let stations = [
            bus(),
            Station(disk(bytes), 16.0),
            Station(bytes * 3.8 / clock, 16.0),
            Station(bytes * 1.5 / clock, 16.0),
        ];
        assert_between(bar, &stations, bytes, bytes * WIRE, 0.03);
    }
}

#[test]
fn the_web_on_pci_is_what_queueing_theory_says() {
    let bars = &FIGURES.web;
    let (bytes, miss) = (16.0 * KIB, 0.1);
    for (bar, clock) in [(&bars[1], 300e6), (&bars[2], 1.5e9)] {
        let stations = [
            Station((1.0 + miss) * bytes * PCI, 1.0),
            Station(miss * disk(bytes), 16.0),
            Station(bytes * 3.8 / clock, 16.0),
            Station(bytes * WIRE, 16.0),
        ];
        assert_between(bar, &stations, bytes, bytes * 0.15 / 1.5e9, 0.03);
    }
    // Conventional: each byte that PCI moves waits for memory while it holds the bus, and memory also carries the
    // copies. So the bus is held for at least its own time, and at most for that of all crossings of memory: the
    // source, the socket's buffer, its write-back and the interface's read, and what misses add.
    let crossings = 4.0 + miss * 4.0;
    let held = (1.0 + miss) * PCI + MEMORY;
    let stations = [Station(bytes * held.max(crossings * MEMORY), 1.0), Station(miss * disk(bytes), 16.0)];
    let found = bars[0].throughput.mean;
    let [least, most] =
        [analysed(&stations, bytes * HOST), 1.0 / (bytes * 3.0 * MEMORY)].map(|rate| rate * bytes);
    assert!(found > 0.85 * least && found < most, "{found} is not between {least} and {most}");
}
