//! Releases: for each wait of a recording, the call of another process or thread that ended it.
//!
//! A recording tells when a wait began and ended, not why. The cause is taken to be the latest call of another
//! thread that began during the wait and can have ended it: one on the same pipe or socket if there is any,
//! otherwise any call that sends; for a child, the child's last call; for a thread, any call. A wait without
//! such a call waited for something outside of the recording, such as a time. Causes begin before the wait
//! ends, so following them never leads in a circle.

use super::{Call, CallKind, Trace};
use std::collections::HashMap;

/// Name of the file of a wait for a child process; the length is the child's number.
pub const CHILD: &str = "child";
/// Name of the file of a wait for another thread: a condition, a semaphore, its end.
pub const THREAD: &str = "thread";
/// Name of the file of a sleep.
pub const SLEEP: &str = "sleep";

/// Greatest number of calls that are looked at for one wait.
const LOOK_MAX: usize = 256;

impl Trace {
    /// Returns, for each call, the index of the call that ended its wait; `None` for calls that do not wait,
    /// and for waits whose cause is not recorded. The trace must be timed; else there is none.
    pub fn releases(&self) -> Vec<Option<usize>> {
        let mut senders: Vec<usize> = Vec::new();
        let mut by_file: HashMap<u32, Vec<usize>> = HashMap::new();
        let mut by_process: HashMap<u32, Vec<usize>> = HashMap::new();
        for (index, call) in self.calls.iter().enumerate() {
            let named = self.name(call);
            let is_local = named.starts_with("pipe:") || named.starts_with("socket:");
            if call.kind == CallKind::Send || (call.kind == CallKind::Other && is_local) {
                senders.push(index);
                by_file.entry(call.file).or_default().push(index);
            }
            by_process.entry(call.process).or_default().push(index);
        }
        let all: Vec<usize> = (0..self.calls.len()).collect();
        self.calls
            .iter()
            .map(|call| {
                let end = call.timing?.end;
                let among = |indices: &[usize]| self.latest(indices, call, end);
                match (call.kind, self.name(call)) {
                    (CallKind::Wait, CHILD) => {
                        // The child's own end, also if the wait began later: then it did not wait.
                        let child = by_process.get(&u32::try_from(call.length).ok()?)?;
                        let last = child[..self.begun_before(child, end)].last()?;
                        (self.calls[*last].at >= call.at).then_some(*last)
                    }
                    (CallKind::Wait, THREAD) => among(&all),
                    (CallKind::Wait, SLEEP) => None,
                    (CallKind::Wait | CallKind::Receive, _) => {
                        by_file.get(&call.file).and_then(|indices| among(indices)).or_else(|| among(&senders))
                    }
                    _ => None,
                }
            })
            .collect()
    }

    fn name(&self, call: &Call) -> &str {
        self.files.get(call.file as usize).map_or("", String::as_str)
    }

    /// Returns the number of the calls in `indices`, which are in the order of time, that began before `end`.
    fn begun_before(&self, indices: &[usize], end: f64) -> usize {
        indices.partition_point(|index| self.calls[*index].at < end)
    }

    /// Returns the latest call in `indices` of another thread that began between the start of `wait` and `end`.
    fn latest(&self, indices: &[usize], wait: &Call, end: f64) -> Option<usize> {
        let before = &indices[..self.begun_before(indices, end)];
        let during = before.iter().rev().take(LOOK_MAX).take_while(|index| self.calls[**index].at >= wait.at);
        during.copied().find(|index| self.calls[*index].process != wait.process)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace(lines: &[&str]) -> Trace {
        let header = "time,process,call,file,offset,length,end,computed";
        Trace::read(&format!("{header}\n{}\n", lines.join("\n"))).unwrap()
    }

    #[test]
    fn a_wait_is_ended_by_the_latest_sender_during_it() {
        let trace = trace(&[
            "0,1,wait,pipe:[7],0,0,5,0",
            "1,2,other,pipe:[7],0,9,1.1,1",
            "2,2,other,pipe:[7],0,9,2.1,1",
            "3,2,other,pipe:[8],0,9,3.1,1",
            "4,3,read,/a,0,9,4.1,1",
            "6,1,wait,pipe:[9],0,0,7,1",
            "8,1,receive,TCP,0,5,9,1",
            "8.5,4,send,TCP2,0,5,8.7,1",
        ]);
        assert_eq!(trace.releases(), [Some(2), None, None, None, None, None, Some(7), None]);
    }

    #[test]
    fn a_child_ends_its_parents_wait_and_a_sleep_ends_by_itself() {
        let trace = trace(&[
            "0,1,wait,child,0,2,5,0",
            "1,2,read,/a,0,9,1.1,1",
            "4,2,other,exit,0,0,4,1",
            "6,1,wait,child,0,2,6.1,0",
            "7,1,wait,sleep,0,0,9,0",
            "8,3,send,x,0,1,8,0",
            "10,1,wait,thread,0,0,12,0",
            "11,3,read,/b,0,1,11,0",
        ]);
        assert_eq!(trace.releases(), [Some(2), None, None, None, None, None, Some(7), None]);
    }
}
