//! Who had a server of which station, from when to when.

use super::time::Time;

/// A job had a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Number of the station, in the order in which they were made.
    pub station: u32,
    /// Number of the job; numbers of jobs that have ended are used again.
    pub job: u32,
    /// From here.
    pub from: Time,
    /// To here.
    pub to: Time,
}

/// The first so many spans of a run.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    /// In the order in which they ended.
    pub spans: Vec<Span>,
    /// Names of the stations.
    pub stations: Vec<String>,
    /// Who has a server now, by station.
    held: Vec<Vec<(u32, Time)>>,
    most: usize,
}

impl Timeline {
    pub(super) fn new(stations: Vec<String>, most: usize) -> Timeline {
        Timeline { spans: Vec::new(), held: vec![Vec::new(); stations.len()], stations, most }
    }

    pub(super) fn begins(&mut self, station: u32, job: u32, now: Time) {
        self.held[station as usize].push((job, now));
    }

    /// `job` leaves; where another one took the server, that one's began first.
    pub(super) fn ends(&mut self, station: u32, job: u32, now: Time) {
        let held = &mut self.held[station as usize];
        let own = held.iter().position(|(holder, _)| *holder == job).unwrap_or(0);
        if own < held.len() {
            let (job, from) = held.remove(own);
            if self.spans.len() < self.most {
                self.spans.push(Span { station, job, from, to: now });
            }
        }
    }
}
