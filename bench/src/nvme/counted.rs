//! Samples of the counting plugin, by the names of their series.
//!
//! A line of the guest, `series NAME`, announces each series, whose number in the plugin's output is its number among these
//! lines, from one on. `absent NAME: REASON` says that there is no such series; `copied NAME: BYTES` tells how many bytes a
//! driver has copied.

use crate::error::Error;
use std::collections::BTreeMap;

/// Instructions of a sample.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sample {
    /// User instructions of the program.
    pub user: f64,
    /// Instructions of the kernel, and of whatever else ran meanwhile.
    pub kernel: f64,
    /// System calls of the program.
    pub calls: f64,
    /// User instructions of a server, if there is one.
    pub server: f64,
}

impl Sample {
    /// Returns all instructions of the sample.
    pub fn all(&self) -> f64 {
        self.user + self.kernel + self.server
    }

    /// Returns the share of one of `count` operations.
    pub fn divided(self, count: usize) -> Sample {
        let share = |value: f64| value / count as f64;
        Sample {
            user: share(self.user),
            kernel: share(self.kernel),
            calls: share(self.calls),
            server: share(self.server),
        }
    }
}

/// Piece of a server's instructions between two PAUSE instructions; so many follow one another alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cut {
    length: u64,
    calls: u64,
    count: u64,
}

/// Kind of the samples of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Those in which the program did not sleep.
    Awake,
    /// Those in which it slept.
    Slept,
    /// All of them.
    Any,
}

/// Treatment of windows whose first cut, in which the client falls asleep, has work of the server in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstCut {
    /// They are left out: the server spins before it finds something, so that they are few.
    LeftOut,
    /// The cut counts as the server's, with the few instructions by which the client falls asleep: the server is woken.
    Counted,
}

#[derive(Debug, Default)]
struct Series {
    samples: Vec<(Sample, bool)>,
    windows: Vec<Vec<Cut>>,
}

/// Everything that was counted.
#[derive(Debug, Default)]
pub struct Counted {
    series: BTreeMap<String, Series>,
    absent: BTreeMap<String, String>,
    copied: BTreeMap<String, u64>,
}

impl Counted {
    /// Reads the lines of the guest and the output of the plugin.
    ///
    /// # Errors
    /// [`Error::Failed`] if the output is not the plugin's.
    pub fn read(lines: &[String], output: &str) -> Result<Counted, Error> {
        let wrong = |line: &str| {
            Error::failed("the counting plugin", format!("wrote a line that is not its: {line}"))
        };
        let mut counted = Counted::default();
        let mut names = Vec::new();
        for line in lines {
            match line.split_once(' ') {
                Some(("series", name)) => {
                    names.push(name.to_owned());
                    counted.series.insert(name.into(), Series::default());
                }
                Some(("absent", rest)) => {
                    let (name, reason) = rest.split_once(": ").unwrap_or((rest, ""));
                    counted.absent.insert(name.into(), reason.into());
                }
                Some(("copied", rest)) => {
                    let (name, bytes) = rest.split_once(": ").ok_or_else(|| wrong(line))?;
                    counted.copied.insert(name.into(), bytes.parse().map_err(|_| wrong(line))?);
                }
                _ => {}
            }
        }
        for line in output.lines() {
            let mut words = line.split(' ');
            let kind = words.next();
            let number: usize = words.next().and_then(|word| word.parse().ok()).ok_or_else(|| wrong(line))?;
            // What was counted before the first series belongs to none.
            let Some(name) = number.checked_sub(1).and_then(|at| names.get(at)) else { continue };
            let series = counted.series.entry(name.clone()).or_default();
            match kind {
                Some("S") => {
                    let numbers: Option<Vec<u64>> = words.map(|word| word.parse().ok()).collect();
                    let Some([kind, user, kernel, calls]) = numbers.as_deref() else {
                        return Err(wrong(line));
                    };
                    let [user, kernel, calls] = [user, kernel, calls].map(|number| *number as f64);
                    series.samples.push((Sample { user, kernel, calls, server: 0.0 }, *kind == 1));
                }
                Some("W") => {
                    let cuts: Option<Vec<Cut>> = words.map(cut).collect();
                    series.windows.push(cuts.ok_or_else(|| wrong(line))?);
                }
                _ => return Err(wrong(line)),
            }
        }
        Ok(counted)
    }

    /// Returns the samples of a kind of a series.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if there are none, with the reason.
    pub fn samples(&self, name: &str, kind: Kind) -> Result<Vec<Sample>, Error> {
        if let Some(reason) = self.absent.get(name.split(';').next().unwrap_or_default()) {
            return Err(Error::Unavailable(reason.clone()));
        }
        let fits = |slept: bool| match kind {
            Kind::Any => true,
            Kind::Awake => !slept,
            Kind::Slept => slept,
        };
        let series = self.series.get(name);
        let all = series.into_iter().flat_map(|series| &series.samples);
        let samples: Vec<Sample> = all.filter(|(_, slept)| fits(*slept)).map(|(sample, _)| *sample).collect();
        match (samples.is_empty(), kind) {
            (false, _) => Ok(samples),
            (true, Kind::Awake) => {
                Err(Error::Unavailable("no read completed before the program slept".into()))
            }
            (true, Kind::Slept) => Err(Error::Unavailable("no read made the program sleep".into())),
            (true, Kind::Any) => Err(Error::failed(name, "was not counted".into())),
        }
    }

    /// Returns the samples of a series, with a server's part of each window. `first` says what becomes of windows whose first
    /// cut has work of the server in it.
    ///
    /// # Errors
    /// As [`Counted::samples`], and [`Error::Failed`] if no window tells what the server did.
    pub fn with_server(&self, name: &str, first: FirstCut) -> Result<Vec<Sample>, Error> {
        let samples = self.samples(name, Kind::Any)?;
        let windows = self.series.get(name).map_or(&[][..], |series| &series.windows);
        let vain = Vain::of(windows);
        let served: Vec<Served> = windows.iter().filter_map(|window| vain.served(window, first)).collect();
        if served.is_empty() {
            return Err(Error::failed(name, "has no window that tells what the server did".into()));
        }
        // The parts are independent: which window goes with which sample changes no median but that of the sum, by little.
        let joined = samples.into_iter().zip(served.iter().cycle());
        let joined = joined.map(|(sample, served)| Sample {
            server: served.instructions,
            calls: sample.calls + served.calls,
            ..sample
        });
        Ok(joined.collect())
    }

    /// Returns the number of bytes that a driver has copied.
    pub fn copied(&self, name: &str) -> Option<u64> {
        self.copied.get(name).copied()
    }
}

fn cut(word: &str) -> Option<Cut> {
    let mut numbers = word.split(':').map(|number| number.parse().ok());
    let mut next = || numbers.next().flatten();
    Some(Cut { length: next()?, calls: next()?, count: next()? })
}

/// Work of a server in a window.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Served {
    instructions: f64,
    calls: f64,
}

/// Interval between two looks of the server for doorbells: 50 us, of an instruction a nanosecond.
const LOOK_INTERVAL: u64 = 50_000;

/// Cuts in which a polling server found nothing.
///
/// A cut in which it found something is longer than those, and ends with a round in which it found nothing again. That
/// round is spinning, too, and is taken off. So is a look for doorbells, a system call that the server makes when some time
/// has passed, whatever it does.
#[derive(Debug)]
struct Vain {
    /// Longest cut without a system call while something is in flight, in instructions.
    in_flight: u64,
    /// Longest cut without a system call while nothing is in flight, in instructions.
    idle: u64,
    /// Length of a cut with a look for doorbells while nothing is in flight, in instructions.
    look: u64,
}

impl Vain {
    /// Finds the cuts in vain by their number: they come again and again in each window, whereas work comes once.
    fn of(windows: &[Vec<Cut>]) -> Vain {
        let (mut counts, mut repeats, mut looks) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        // The first cut of a window has the client's system call by which it sleeps.
        for cut in windows.iter().flat_map(|window| window.iter().skip(1)) {
            if cut.calls == 0 {
                *counts.entry(cut.length).or_insert(0) += cut.count;
                *repeats.entry(cut.length).or_insert(0) += u64::from(cut.count > 1);
            } else {
                *looks.entry(cut.length).or_insert(0) += cut.count;
            }
        }
        let many = windows.len() as u64;
        let longest = |counts: &BTreeMap<u64, u64>, least| {
            counts.iter().filter(|(_, count)| **count >= least).map(|(length, _)| *length).max().unwrap_or(0)
        };
        let idle = longest(&counts, 4 * many);
        let look = looks.into_iter().max_by_key(|(_, count)| *count).map_or(0, |(length, _)| length);
        Vain { in_flight: longest(&repeats, many.div_ceil(10)).max(idle), idle, look }
    }

    /// Returns the server's work in a window. `None` if there is none, or it cannot be told from the client's falling asleep.
    fn served(&self, window: &[Cut], first_cut: FirstCut) -> Option<Served> {
        let (first, rest) = window.split_first()?;
        let is_work = |cut: &Cut| cut.length > if cut.calls == 0 { self.in_flight } else { self.look };
        let mut works: Vec<Cut> = rest.iter().copied().filter(is_work).collect();
        if first.length > self.in_flight {
            match first_cut {
                FirstCut::LeftOut => return None,
                // Without the client's own call.
                FirstCut::Counted => works.push(Cut { calls: first.calls.saturating_sub(1), ..*first }),
            }
        }
        if works.is_empty() {
            return None;
        }
        let sum = |figure: fn(&Cut) -> u64| works.iter().map(|cut| figure(cut) * cut.count).sum::<u64>();
        let (all, rounds) = (sum(|cut| cut.length), sum(|_| 1));
        // At most one at the end of each interval, and one that was due.
        let looks = sum(|cut| cut.calls.min(1 + cut.length / LOOK_INTERVAL));
        // A look makes a round end early, so that a cut in vain has two rounds.
        let look = self.look.saturating_sub(2 * self.idle);
        // After the last work nothing is in flight.
        let vain = self.in_flight * (rounds - 1) + self.idle + look * looks;
        let calls = sum(|cut| cut.calls) - looks;
        Some(Served { instructions: all.saturating_sub(vain) as f64, calls: calls as f64 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(output: &str) -> Result<Counted, Error> {
        let lines = ["series a; 1", "absent b: no such path", "series c; 1", "copied d: 7"];
        Counted::read(&lines.map(String::from), output)
    }

    #[test]
    fn samples_belong_to_series_in_their_order() {
        let counted = counted("S 0 0 9 9 9\nS 1 0 10 20 1\nS 1 1 11 40 1\nS 2 0 5 0 0\n").unwrap();
        let of = |name, kind| counted.samples(name, kind).map(|samples| samples[0].all());
        assert_eq!((of("a; 1", Kind::Awake).unwrap(), of("a; 1", Kind::Slept).unwrap()), (30.0, 51.0));
        assert_eq!(
            (counted.samples("a; 1", Kind::Any).unwrap().len(), of("c; 1", Kind::Any).unwrap()),
            (2, 5.0)
        );
        let absent = of("b; 32", Kind::Any).unwrap_err();
        assert!(absent.is_absence() && absent.to_string() == "no such path");
        assert!(of("c; 1", Kind::Slept).unwrap_err().is_absence());
        assert!(!of("e", Kind::Any).unwrap_err().is_absence());
        assert_eq!((counted.copied("d"), counted.copied("a")), (Some(7), None));
    }

    #[test]
    fn other_output_is_refused() {
        for output in ["x", "S 1 0 10", "S 1 0 a 0 0", "W 1 3:0", "T 1 0"] {
            assert!(counted(output).is_err(), "{output}");
        }
    }

    /// A window: the client falls asleep, the server takes a request, polls in vain, completes it, and polls in vain; now and
    /// then it makes a system call.
    #[test]
    fn work_of_a_server_is_told_from_polling() {
        use FirstCut::{Counted, LeftOut};
        let usual = "50:1:1 1200:0:1 200:0:3 600:0:1 30:0:31 150:0:1 30:0:31 150:0:1 400:1:1 30:0:31 150:0:1 30:0:31 150:0:1";
        let cuts = |text: &str| text.split(' ').map(|word| cut(word).unwrap()).collect::<Vec<_>>();
        let hidden = usual.replace("50:1:1 1200:0:1", "1250:1:1");
        let windows: Vec<Vec<Cut>> = (0..20).map(|_| cuts(usual)).chain([cuts(&hidden)]).collect();
        let vain = Vain::of(&windows);
        assert_eq!((vain.in_flight, vain.idle, vain.look), (200, 150, 400));
        let work = Served { instructions: 1200.0 - 200.0 + 600.0 - 150.0, calls: 0.0 };
        assert_eq!(vain.served(&windows[0], LeftOut), Some(work));
        // A look for doorbells, and a system call that is none.
        let looking = cuts(&usual.replace("1200:0:1", "1300:1:1"));
        assert_eq!(vain.served(&looking, LeftOut), Some(work));
        let calling = cuts(&usual.replace("1200:0:1", "1300:2:1"));
        assert_eq!(vain.served(&calling, LeftOut), Some(Served { calls: 1.0, ..work }));
        let long = cuts(&usual.replace("1200:0:1", "101200:3:1"));
        assert_eq!(vain.served(&long, LeftOut).unwrap().calls, 0.0);
        assert_eq!(vain.served(&cuts(&hidden), LeftOut), None);
        let with_sleep = Served { instructions: work.instructions + 50.0, ..work };
        assert_eq!(vain.served(&cuts(&hidden), Counted), Some(with_sleep));
        assert_eq!(vain.served(&cuts("50:1:1 30:0:31"), Counted), None);
        assert_eq!(vain.served(&[], Counted), None);
    }
}
