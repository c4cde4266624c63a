//! Processors: their number and speed, and the costs of a system call and of a word from another processor.

use crate::doctor::costs::cache_line;
use crate::plan::measure::rounds::{Effort, mapped};
use crate::plan::measure::{KIB, processors};
use bywash_bench::statistics::Summary;
use std::fs;
use std::hint::black_box;
use std::io;
use std::path::Path;
use std::time::Instant;

/// Measured properties.
pub struct Processors {
    /// Number of processors that this process may use.
    pub count: usize,
    /// Speed in cycles a second, and the source of this number.
    pub speed: f64,
    pub known_by: &'static str,
    /// Time of a system call that does nothing (getppid), in seconds.
    pub call: Summary,
    /// Round-trip time of a word to another processor, in seconds; `None` with one processor only.
    pub word: Option<Summary>,
    /// Sizes of the first-level and second-level data caches, in bytes; 0 if the kernel does not report them.
    pub caches: [usize; 2],
}

impl Processors {
    /// Measures the properties.
    ///
    /// # Errors
    /// An error if another thread does not respond.
    pub fn measure(effort: &Effort) -> io::Result<Processors> {
        let (speed, known_by) = speed();
        let call = effort.each(500, || {
            black_box(rustix::process::getppid());
            Ok(())
        })?;
        let word = match processors() {
            1 => None,
            _ => {
                let ns = effort.rounds(cache_line)?;
                Some(mapped(ns, |ns| ns * 1e-9))
            }
        };
        Ok(Processors { count: processors(), speed, known_by, call, word, caches: [cache(1), cache(2)] })
    }
}

/// Returns the speed in cycles a second, and its source: the kernel, or else a chain of operations that take
/// one cycle each.
fn speed() -> (f64, &'static str) {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    if let Some(speed) = parse_cpuinfo(&text) {
        return (speed, "as /proc/cpuinfo says");
    }
    let most = fs::read_to_string("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq");
    match most.ok().and_then(|khz| khz.trim().parse::<f64>().ok()).filter(|khz| *khz > 0.0) {
        Some(khz) => (khz * 1e3, "the most of cpu0, as sysfs says"),
        None => (measure_chain(), "by a chain of rotations and exclusive ors, each a cycle"),
    }
}

fn parse_cpuinfo(text: &str) -> Option<f64> {
    let line = text.lines().find(|line| line.starts_with("cpu MHz"))?;
    let mhz: f64 = line.split_once(':')?.1.trim().parse().ok()?;
    (mhz > 0.0).then_some(mhz * 1e6)
}

fn measure_chain() -> f64 {
    const STEPS: u64 = 2_000_000;
    let fastest = (0..5)
        .map(|_| {
            let (begin, mut value) = (Instant::now(), black_box(1u64));
            for _ in 0..STEPS {
                value = value.rotate_left(7) ^ 0x5bd1_e995;
            }
            black_box(value);
            begin.elapsed().as_secs_f64()
        })
        .fold(f64::INFINITY, f64::min);
    2.0 * STEPS as f64 / fastest
}

/// Returns the size of the data cache of this level, in bytes; 0 if the kernel does not report it.
fn cache(level: u32) -> usize {
    let all = fs::read_dir("/sys/devices/system/cpu/cpu0/cache").into_iter().flatten().flatten();
    all.filter_map(|entry| cache_at(&entry.path(), level)).next().unwrap_or(0)
}

fn cache_at(path: &Path, level: u32) -> Option<usize> {
    let read = |name: &str| fs::read_to_string(path.join(name)).ok().map(|text| text.trim().to_owned());
    let is_it = read("level")?.parse() == Ok(level) && read("type")? != "Instruction";
    let kib: usize = read("size").filter(|_| is_it)?.strip_suffix('K')?.parse().ok()?;
    Some(kib * KIB)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_s_word_for_the_speed_is_taken_if_it_is_one() {
        assert_eq!(parse_cpuinfo("processor\t: 0\ncpu MHz\t\t: 2596.124\n"), Some(2_596_124_000.0));
        assert_eq!(parse_cpuinfo("cpu MHz\t\t: 0.000\n"), None);
        assert_eq!(parse_cpuinfo("processor : 0\nBogoMIPS : 50.00\n"), None);
    }

    #[test]
    fn a_cache_is_one_of_data_or_of_both() {
        let folder = tempfile::tempdir().unwrap();
        let say = |level: &str, kind: &str, size: &str| {
            for (name, text) in [("level", level), ("type", kind), ("size", size)] {
                fs::write(folder.path().join(name), format!("{text}\n")).unwrap();
            }
        };
        say("1", "Data", "48K");
        assert_eq!((cache_at(folder.path(), 1), cache_at(folder.path(), 2)), (Some(48 << 10), None));
        say("1", "Instruction", "32K");
        assert_eq!(cache_at(folder.path(), 1), None);
        say("2", "Unified", "1024K");
        assert_eq!(cache_at(folder.path(), 2), Some(1 << 20));
    }
}
