//! The pace of turns: pauses that let requests of busy clients come together.
//!
//! ```text
//!   no pause      request ─ wake ─ reply ── request ─ wake ─ reply ── request ─ wake ─ reply
//!   with pauses   request, request, request ─ pause ─ wake ─ reply, reply, reply
//! ```
//!
//! A client with many requests in flight often sends them one by one, while it handles the replies of others. A server
//! that is faster than its client is then woken for each, which takes several times as long, on both sides, as the
//! request itself. After a short pause one wake-up, one recvmsg(2) and one sendmsg(2) serve all that have come.
//!
//! Trials find out which pauses pay: longer ones are kept as long as they gather more requests in proportion. If one
//! does not, all of the client's requests have come, it has nothing to do, and the pause before was long enough. With
//! one request at a time no pause gathers more than that one, so there are none. Invariant: trials take [`TRIAL`] turns
//! of [`REST`], and no pause is longer than the last of [`PAUSES`]. Called by `service`.

use rustix::event::Timespec;

/// Lengths of pauses, in nanoseconds.
const PAUSES: [i64; 5] = [0, 10_000, 20_000, 40_000, 80_000];
/// Number of turns with requests after which a pause is judged.
const TRIAL: u32 = 32;
/// Number of turns with requests that follow a trial before the next one.
const REST: u32 = 4096;
/// Least number of requests, in relation to the pause before, for which a longer pause is kept.
const GAIN: f64 = 1.4;
/// Number of requests in a turn that is enough: pauses get no longer.
const ENOUGH: f64 = 16.0;

/// Length of the pauses, and what has been gathered by them.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// Index of the pause in `PAUSES`.
    level: usize,
    /// Turns with requests since the pause is as long as it is, and their requests.
    turns: u32,
    requests: u64,
    /// Requests in a turn by the pause before; `None` if this pause is not on trial.
    before: Option<f64>,
    /// Turns until the next trial.
    rest: u32,
}

impl Pace {
    /// Takes the number of requests of a turn, and returns the pause that follows it.
    #[inline]
    pub(crate) fn after(&mut self, requests: u64) -> Option<Timespec> {
        if requests == 0 {
            return None;
        }
        self.turns += 1;
        self.requests += requests;
        self.rest = self.rest.saturating_sub(1);
        if self.turns == TRIAL {
            self.judge(self.requests as f64 / f64::from(TRIAL));
            (self.turns, self.requests) = (0, 0);
        }
        (self.level > 0).then(|| Timespec { tv_sec: 0, tv_nsec: PAUSES[self.level] })
    }

    /// Chooses the next pause, by what this one has gathered in a turn.
    fn judge(&mut self, gathered: f64) {
        if self.before.take().is_some_and(|before| gathered < GAIN * before) {
            self.level -= 1;
            self.rest = REST;
        } else if self.level > 0 && gathered < GAIN {
            // The client has no more than one request at a time any more.
            (self.level, self.rest) = (0, REST);
        } else if self.rest == 0 && gathered < ENOUGH && self.level + 1 < PAUSES.len() {
            self.before = Some(gathered);
            self.level += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lets a client with `depth` requests at a time, each of which takes it `work` nanoseconds, be served for
    /// `turns` turns. Returns the longest pause of the last half, and the requests in a turn then.
    fn serve(pace: &mut Pace, depth: u64, work: i64, turns: u32) -> (i64, f64) {
        let (mut requests, mut longest, mut sum) = (1, 0, 0);
        for turn in 0..turns {
            let pause = pace.after(requests).map_or(0, |pause| pause.tv_nsec);
            requests = (pause as u64 / work as u64 + 1).min(depth);
            if turn >= turns / 2 {
                longest = longest.max(pause);
                sum += requests;
            }
        }
        (longest, sum as f64 / f64::from(turns - turns / 2))
    }

    #[test]
    fn requests_of_a_deep_client_are_gathered() {
        let (pause, gathered) = serve(&mut Pace::default(), 32, 7000, 1000);
        assert!(pause == 80_000 && gathered >= 11.0, "{pause} {gathered}");
        let (pause, gathered) = serve(&mut Pace::default(), 32, 1000, 1000);
        assert!(pause == 20_000 && gathered >= 16.0, "{pause} {gathered}");
    }

    #[test]
    fn no_pause_is_longer_than_the_client_has_requests_for() {
        let (pause, gathered) = serve(&mut Pace::default(), 4, 7000, 1000);
        assert!(pause <= 40_000 && gathered >= 3.0, "{pause} {gathered}");
    }

    #[test]
    fn one_request_at_a_time_is_served_at_once() {
        let mut pace = Pace::default();
        let mut pauses = 0;
        for _ in 0..100_000 {
            pauses += u32::from(pace.after(1).is_some());
        }
        assert!(pauses < 100_000 / 100, "{pauses} turns with a pause");
        // A client that was deep before leaves no pauses behind.
        serve(&mut pace, 32, 7000, 10_000);
        let (pause, _) = serve(&mut pace, 1, 7000, 200);
        assert_eq!(pause, 0);
    }
}
