//! Use of the processors by other programs during a measurement.

use rustix::param::clock_ticks_per_second;
use rustix::time::{ClockId, clock_gettime};
use std::fs;

/// State of the counters at the start of a measurement.
pub struct Others {
    stat: Option<Stat>,
    own: f64,
    /// Reads the ticks that do not count as others'.
    ours: fn() -> f64,
}

/// Ticks of all processors since the machine booted: busy ones, and all.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Stat {
    busy: f64,
    all: f64,
}

impl Others {
    /// Reads the counters now.
    pub fn watch() -> Others {
        Others { stat: look(), own: own_ticks(), ours: own_ticks }
    }

    /// Same as [`Others::watch`], where programs that this process has started and waited for are not others.
    pub fn watch_besides_children() -> Others {
        Others { stat: look(), own: family_ticks(), ours: family_ticks }
    }

    /// Returns the share of the processors' time since then that went to other programs, or to other machines
    /// of the host; `None` if the kernel does not report it.
    pub fn share(&self) -> Option<f64> {
        share((self.stat?, look()?), (self.ours)() - self.own)
    }
}

fn share((before, after): (Stat, Stat), own: f64) -> Option<f64> {
    let all = after.all - before.all;
    (all > 0.0).then(|| ((after.busy - before.busy - own) / all).clamp(0.0, 1.0))
}

fn own_ticks() -> f64 {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    (now.tv_sec as f64 + now.tv_nsec as f64 * 1e-9) * clock_ticks_per_second() as f64
}

/// Returns the ticks of this process and of the children that it has waited for; 0 if the kernel does not tell.
fn family_ticks() -> f64 {
    fs::read_to_string("/proc/self/stat")
        .ok()
        .and_then(|text| parse_family(&text))
        .map_or(0.0, |times| times.iter().sum())
}

/// Parses the times of a process and of its children: user, system, user and system, the 14th to 17th field
/// (proc_pid_stat(5)), in ticks.
pub fn parse_family(text: &str) -> Option<[f64; 4]> {
    let (_, behind_the_name) = text.rsplit_once(") ")?;
    let mut times = behind_the_name.split_whitespace().skip(11).map_while(|word| word.parse().ok());
    Some([times.next()?, times.next()?, times.next()?, times.next()?])
}

fn look() -> Option<Stat> {
    parse_stat(&fs::read_to_string("/proc/stat").ok()?)
}

/// Parses the line of all processors: user, nice, system, idle, iowait, irq, softirq, steal (proc_stat(5)).
/// The fields after these are included in them.
fn parse_stat(text: &str) -> Option<Stat> {
    let line = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let ticks: Vec<f64> = line.split_whitespace().take(8).map_while(|word| word.parse().ok()).collect();
    let [user, nice, system, idle, wait, irq, softirq, steal] = ticks[..] else { return None };
    let busy = user + nice + system + irq + softirq + steal;
    Some(Stat { busy, all: busy + idle + wait })
}

/// Describes the share in words; `None` below [`WORTH_SAYING`].
pub fn in_words(share: Option<f64>) -> Option<String> {
    share.filter(|share| *share >= WORTH_SAYING).map(|share| {
        format!(
            "Other programs used {:.0} % of the processors meanwhile: on an idle machine the numbers are different.",
            share * 100.0
        )
    })
}

const WORTH_SAYING: f64 = 0.05;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_ours_is_others() {
        let before = parse_stat("cpu  100 0 50 1000 10 0 0 5 0 0\ncpu0 1 2 3").unwrap();
        let after = parse_stat("cpu  160 10 70 1090 20 5 0 10 0 0\n").unwrap();
        assert_eq!((after.busy - before.busy, after.all - before.all), (100.0, 200.0));
        assert_eq!(share((before, after), 40.0), Some(0.3));
        assert_eq!(share((before, after), 500.0), Some(0.0), "ticks are coarse");
        assert_eq!((share((before, before), 0.0), parse_stat("cpu  1 2 3\n")), (None, None));
        let line = "7 (a ) b) S 1 7 7 0 -1 4 5 6 7 8 10 20 300 4000 20 0 1";
        assert_eq!(parse_family(line), Some([10.0, 20.0, 300.0, 4000.0]));
    }

    #[test]
    fn little_is_not_worth_a_word() {
        assert_eq!((in_words(None), in_words(Some(0.01))), (None, None));
        assert!(in_words(Some(0.5)).unwrap().contains("50 %"));
    }
}
