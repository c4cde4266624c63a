//! Record of the jobs that occupied the servers of each station, with start and end times. A run fills it on
//! request; the command draws it.

use super::time::Time;

/// Time during which one job occupied one server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Number of the station, in the order of creation.
    pub station: u32,
    /// Number of the job. A number is reused after its job has ended.
    pub job: u32,
    /// Start of the span.
    pub from: Time,
    /// End of the span.
    pub to: Time,
}

/// Record of the first spans of a run, up to a greatest number.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    /// Finished spans, in the order in which they ended.
    pub spans: Vec<Span>,
    /// Names of the stations, by station number.
    pub stations: Vec<String>,
    /// Jobs that occupy a server now, with their start times, by station number.
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

    /// Ends the span of `job`. If another job seized the server that `job` frees, this ends the span that
    /// began first.
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
