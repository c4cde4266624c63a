//! Recorded calls as a trace: times in seconds, computing between calls, without the recorder's cost.
//!
//! The recorder tells how much of the time between two calls the thread did not compute (it was
//! preempted, or waited in a call that nobody sees); the rest, less the recorder's cost, is computing. Times of
//! calls are those of the recording: only durations are corrected.

use super::cost::Cost;
use bywash_session::recording::{Function, RecordedCall, RecordedFile, RecordedRun};
use bywash_sim::trace::{CHILD, Call, CallKind, SLEEP, THREAD, Timing, Trace};
use std::collections::{BTreeMap, HashMap};

/// Calls of a recording, in the order of their starts.
#[derive(Clone, Debug, Default)]
pub struct Steps {
    /// The calls as a trace.
    pub trace: Trace,
    /// For each call of the trace, the recorded one.
    pub calls: Vec<RecordedCall>,
    /// For each call, time before it in which its thread neither computed nor was in a call, in seconds.
    pub away: Vec<f64>,
    /// Files of the recorded calls.
    pub files: Vec<RecordedFile>,
    /// Cost of recording a call.
    pub cost: Cost,
    /// Calls that are missing because the recording was full.
    pub lost: u64,
    /// Calls of signal handlers that are missing.
    pub nested: u32,
}

impl Steps {
    /// Converts a recording, whose ticks last `tick` seconds.
    pub fn new(run: &RecordedRun, tick: f64, cost: Cost) -> Steps {
        let mut threads: BTreeMap<u32, Vec<RecordedCall>> = BTreeMap::new();
        for call in &run.calls {
            threads.entry(call.owner.thread).or_default().push(*call);
        }
        let origin = run.calls.iter().map(|call| call.start).min().unwrap_or(0);
        let seconds = |ticks: u64| ticks as f64 * tick;
        let mut rows = Vec::with_capacity(run.calls.len());
        for calls in threads.values_mut() {
            calls.sort_by_key(|call| call.start);
            let mut before: Option<&RecordedCall> = None;
            for call in calls.iter() {
                let gap = before.map_or(0.0, |before| seconds(call.start.saturating_sub(before.end)));
                let gap = (gap - if before.is_some() { cost.outside } else { 0.0 }).max(0.0);
                // Between the call that replaces a program and the new one's start, the kernel and the loader work.
                let away = if call.function == Function::Start {
                    gap
                } else {
                    (call.away_ns as f64 * 1e-9).min(gap)
                };
                let duration = (seconds(call.end - call.start) - cost.inside).max(0.0);
                let at = seconds(call.start - origin);
                let timing = Timing { end: at + duration, computed: gap - away };
                rows.push((at, timing, away, *call));
                before = Some(call);
            }
        }
        rows.sort_by(|one, other| one.0.total_cmp(&other.0));
        let mut steps =
            Steps { files: run.files.clone(), cost, lost: run.lost, nested: run.nested, ..Steps::default() };
        let mut names: HashMap<String, u32> = HashMap::new();
        for (at, timing, away, call) in rows {
            let (kind, name, length) = kind(&call, run.files.get(call.file as usize));
            let next = names.len() as u32;
            let file = match names.get(name.as_str()) {
                Some(file) => *file,
                None => {
                    steps.trace.files.push(name.clone());
                    *names.entry(name).or_insert(next)
                }
            };
            let is_data = matches!(kind, CallKind::Read | CallKind::Write);
            let offset = if is_data { call.offset.unwrap_or(0) } else { 0 };
            let process = call.owner.thread;
            steps.trace.calls.push(Call { at, process, kind, file, offset, length, timing: Some(timing) });
            steps.calls.push(call);
            steps.away.push(away);
        }
        steps.set_positions();
        steps
    }

    /// Returns true if the call is on a regular file or a block device.
    pub fn is_on_file(&self, call: &RecordedCall) -> bool {
        self.files.get(call.file as usize).is_some_and(is_file)
    }

    /// Returns the number of threads that made calls.
    pub fn threads(&self) -> u32 {
        let mut threads: Vec<u32> = self.trace.calls.iter().map(|call| call.process).collect();
        threads.sort_unstable();
        threads.dedup();
        threads.len() as u32
    }

    /// Sets the offsets of calls at a descriptor's position, from the calls before on the same opening.
    fn set_positions(&mut self) {
        let mut positions: HashMap<u32, u64> = HashMap::new();
        for (call, recorded) in self.trace.calls.iter_mut().zip(&self.calls) {
            if recorded.file == 0 {
                continue;
            }
            let position = positions.entry(recorded.file).or_default();
            match recorded.function {
                Function::Seek if !recorded.failed => *position = recorded.offset.unwrap_or(*position),
                Function::Read | Function::Write if recorded.offset.is_none() => {
                    if matches!(call.kind, CallKind::Read | CallKind::Write) {
                        call.offset = *position;
                    }
                    *position = position.saturating_add(u64::from(recorded.length));
                }
                _ => {}
            }
        }
    }
}

/// Returns true if the entry is a regular file or a block device.
fn is_file(file: &RecordedFile) -> bool {
    matches!(file.mode & libc::S_IFMT, libc::S_IFREG | libc::S_IFBLK) && !file.name.is_empty()
}

/// Returns kind, file name and length of a call in a trace.
fn kind(call: &RecordedCall, file: Option<&RecordedFile>) -> (CallKind, String, u64) {
    let file = file.filter(|_| call.file != 0);
    let name = file.map(|file| file.name.clone()).filter(|name| !name.is_empty());
    let type_ = file.map_or(0, |file| file.mode & libc::S_IFMT);
    let is_network = type_ == libc::S_IFSOCK
        && file.is_some_and(|file| matches!(file.size as i32, libc::AF_INET | libc::AF_INET6));
    let is_file = file.is_some_and(is_file);
    let length = u64::from(call.length);
    let moves = length > 0 && !call.failed;
    let other = |name: &str, length| (CallKind::Other, name.to_owned(), length);
    let named = name.unwrap_or_else(|| "unknown".into());
    match call.function {
        Function::Read | Function::ReadAt | Function::Receive => match type_ {
            _ if is_file && moves => (CallKind::Read, named, length),
            libc::S_IFSOCK if is_network && moves => (CallKind::Receive, named, length),
            libc::S_IFSOCK | libc::S_IFIFO => (CallKind::Wait, named, length),
            _ => other(&named, 0),
        },
        Function::Write | Function::WriteAt | Function::Send => match type_ {
            _ if is_file && moves => (CallKind::Write, named, length),
            libc::S_IFSOCK if is_network && moves => (CallKind::Send, named, length),
            _ => other(&named, length),
        },
        Function::Sync | Function::SyncData | Function::SyncRange if is_file => (CallKind::Sync, named, 0),
        Function::Poll => (CallKind::Wait, "poll".into(), 0),
        Function::WaitChild => (CallKind::Wait, CHILD.into(), length),
        Function::WaitThread => (CallKind::Wait, THREAD.into(), 0),
        Function::Sleep => (CallKind::Wait, SLEEP.into(), 0),
        Function::Start => other("start", 0),
        Function::Exit => other("exit", 0),
        Function::Fork => other("fork", 0),
        Function::Execute => other("execute", 0),
        Function::Open => other("open", 0),
        Function::Close => other("close", 0),
        Function::Seek | Function::Sync | Function::SyncData | Function::SyncRange => other(&named, 0),
        Function::Transfer => other(&named, length),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bywash_session::recording::Owner;

    fn call(function: Function, start: u64, end: u64, file: u32) -> RecordedCall {
        let owner = Owner { process: 1, pid: 7, thread: 7, parent: 1 };
        let (offset, length) = (None, 10);
        RecordedCall { owner, function, failed: false, start, end, offset, length, file, away_ns: 0 }
    }

    fn file(name: &str, mode: u32, size: u64) -> RecordedFile {
        RecordedFile { name: name.into(), mode, size, ..RecordedFile::default() }
    }

    #[test]
    fn computing_is_what_is_left_between_calls() {
        let run = RecordedRun {
            files: vec![
                RecordedFile::default(),
                file("/a", libc::S_IFREG, 0),
                file("pipe:[1]", libc::S_IFIFO, 0),
            ],
            calls: vec![
                call(Function::Read, 1000, 1100, 1),
                RecordedCall { away_ns: 300, ..call(Function::Read, 2100, 2200, 1) },
                call(Function::Write, 2250, 2300, 2),
                call(Function::Read, 2301, 2400, 2),
            ],
            ..RecordedRun::default()
        };
        let steps = Steps::new(&run, 1e-9, Cost { inside: 10e-9, outside: 20e-9 });
        let near = |one: f64, other: f64| (one - other).abs() < 1e-12;
        let timing = |index: usize| steps.trace.calls[index].timing.unwrap();
        assert!(near(timing(0).computed, 0.0) && near(timing(0).end, 90e-9));
        assert!(near(timing(1).computed, 680e-9) && near(steps.away[1], 300e-9));
        assert!(near(timing(2).computed, 30e-9) && near(timing(3).computed, 0.0));
        let kinds: Vec<CallKind> = steps.trace.calls.iter().map(|call| call.kind).collect();
        assert_eq!(kinds, [CallKind::Read, CallKind::Read, CallKind::Other, CallKind::Wait]);
        assert_eq!((steps.trace.calls[1].offset, steps.trace.files.len(), steps.threads()), (10, 2, 1));
        assert_eq!(Trace::read(&steps.trace.write()).unwrap().calls.len(), 4);
    }

    #[test]
    fn sockets_of_the_network_are_told_from_local_ones() {
        let network = file("socket:[1]", libc::S_IFSOCK, libc::AF_INET as u64);
        let local = file("socket:[2]", libc::S_IFSOCK, libc::AF_UNIX as u64);
        let of = |function, file: &RecordedFile| kind(&call(function, 0, 1, 1), Some(file)).0;
        assert_eq!(of(Function::Read, &network), CallKind::Receive);
        assert_eq!(of(Function::Send, &network), CallKind::Send);
        assert_eq!(of(Function::Receive, &local), CallKind::Wait);
        assert_eq!(of(Function::Write, &local), CallKind::Other);
    }
}
