//! Importer of strace's output.
//!
//! The importer joins lines that strace split because processes interrupted each other. It then applies each
//! call to a table of descriptors like the kernel's, so that the offset of a `read` is known. Calls that
//! moved bytes become calls of the trace.
//!
//! - `line`: parser of one line
//! - `descriptors`: the open files behind the descriptors of every process
//! - `calls`: the effect of each call
//!
//! Some I/O is invisible to strace: accesses through a mapping of a file, and requests through io_uring. The
//! importer counts such I/O where its calls show that it exists.

mod calls;
mod descriptors;
mod line;

use super::Error;
use super::imported::{Imported, Recorder, TextFormat};
use descriptors::Descriptors;
use line::{Body, StraceLine, Syscall, Time};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Returns true if strace printed the line.
pub fn is_line(line: &str) -> bool {
    StraceLine::parse(line).is_some_and(|line| match line.body {
        Body::Call(text) => Syscall::parse(text).is_some(),
        _ => true,
    })
}

/// Imports all calls of strace's output.
pub fn import(text: &str) -> Result<Imported, Error> {
    let mut importer = Importer::default();
    for (index, line) in text.lines().enumerate() {
        importer.line(index + 1, line)?;
    }
    importer.finish()
}

const NOT_A_LINE: &str = "lines that are not strace's, as what the program printed between them";
const NOT_READ: &str = "calls whose line could not be read";
const NO_TIME: &str = "lines without a time";
const NO_BEGINNING: &str = "ends of calls whose beginnings are not in the recording";
const NO_RETURN: &str = "calls that did not return";

/// State of an import.
#[derive(Default)]
struct Importer {
    recorder: Recorder,
    descriptors: Descriptors,
    clock: Clock,
    processes: Processes,
    /// Calls that began and did not end yet, by process.
    begun: BTreeMap<u32, PendingCall>,
    /// Process whose call strace interrupted to announce a child. The next line may be the rest of this call.
    cut: Option<u32>,
    /// Known end of each file, in bytes, and true if it is the actual end and not only the end of its known
    /// calls.
    ends: HashMap<String, (u64, bool)>,
    /// Number of sockets whose name is made up, because strace did not print one.
    sockets: u64,
}

/// A call that began and did not end yet.
struct PendingCall {
    at: u64,
    line: usize,
    text: String,
}

/// Time, process and line of a call.
#[derive(Clone, Copy)]
struct CallSite {
    at: u64,
    process: u32,
    line: usize,
}

impl Importer {
    fn line(&mut self, number: usize, text: &str) -> Result<(), Error> {
        if text.trim().is_empty() {
            return Ok(());
        }
        if let Some(process) = self.cut.take()
            && self.continued(process, text)?
        {
            return Ok(());
        }
        let (text, child) = line::split_attached(text);
        if let Some(child) = child {
            self.processes.attach(child);
            if text.is_empty() {
                return Ok(());
            }
        }
        let Some(StraceLine { process, time, body }) = StraceLine::parse(&text) else {
            self.recorder.count_omitted(NOT_A_LINE, number);
            return Ok(());
        };
        let process = self.whose(process, &body);
        let at = time.and_then(|time| self.clock.read(time));
        let Some(at) = at else {
            // Ends of processes and signals need no time.
            match body {
                Body::Ended => self.ended(process),
                Body::Remark => {}
                _ => self.recorder.count_omitted(NO_TIME, number),
            }
            return Ok(());
        };
        let moment = CallSite { at, process, line: number };
        match body {
            Body::Call(text) => self.complete_call(moment, text)?,
            Body::Unfinished(text) => {
                self.cut = child.map(|_| process);
                let begun = PendingCall { at, line: number, text: text.to_owned() };
                if let Some(before) = self.begun.insert(process, begun) {
                    self.recorder.count_omitted(NO_RETURN, before.line);
                }
            }
            Body::Resumed(name, rest) => match self.begun.remove(&process) {
                Some(begun) if begun.text.split('(').next() == Some(name) => {
                    let moment = CallSite { at: begun.at, process, line: begun.line };
                    self.complete_call(moment, &(begun.text + rest))?;
                }
                before => {
                    if let Some(before) = before {
                        self.recorder.count_omitted(NO_RETURN, before.line);
                    }
                    self.recorder.count_omitted(NO_BEGINNING, number);
                }
            },
            Body::Ended => self.ended(process),
            Body::Remark => {}
        }
        Ok(())
    }

    /// Appends a line to the call of `process` that strace interrupted. Returns false if the line does not
    /// belong to that call.
    fn continued(&mut self, process: u32, text: &str) -> Result<bool, Error> {
        if text.trim() == line::UNFINISHED {
            return Ok(true);
        }
        if StraceLine::parse(text).is_some() {
            return Ok(false);
        }
        if let Some(begun) = self.begun.remove(&process) {
            let moment = CallSite { at: begun.at, process, line: begun.line };
            self.complete_call(moment, &(begun.text + text))?;
        }
        Ok(true)
    }

    fn complete_call(&mut self, moment: CallSite, text: &str) -> Result<(), Error> {
        match Syscall::parse(text) {
            Some(call) => self.call(moment, &call),
            None => {
                self.recorder.count_omitted(NOT_READ, moment.line);
                Ok(())
            }
        }
    }

    fn ended(&mut self, process: u32) {
        if let Some(begun) = self.begun.remove(&process) {
            self.recorder.count_omitted(NO_RETURN, begun.line);
        }
        self.processes.end(process);
        self.descriptors.end(process);
    }

    /// Returns the process of a line. The first line of a child may precede the end of the call that creates
    /// it.
    fn whose(&mut self, named: Option<u32>, body: &Body) -> u32 {
        if let Some(known) = self.processes.known_process(named) {
            return known;
        }
        let parents = self.begun.iter().filter(|(_, begun)| calls::makes_a_child(&begun.text));
        let parent = parents.max_by_key(|(_, begun)| begun.line);
        let parent = parent.map(|(process, begun)| (*process, calls::shares_descriptors(&begun.text)));
        let is_child_expected = parent.is_some() && !matches!(body, Body::Resumed(..));
        let process = self.processes.register(named, is_child_expected);
        if let (true, Some((parent, is_shared))) = (process != UNNAMED, parent) {
            self.descriptors.inherit(process, parent, is_shared);
        }
        process
    }

    fn finish(mut self) -> Result<Imported, Error> {
        if self.clock.is_unset() {
            return Err(Error::NoTimes);
        }
        for begun in self.begun.values() {
            self.recorder.count_omitted(NO_RETURN, begun.line);
        }
        if let Some(first) = self.processes.first {
            self.recorder.rename_process(UNNAMED, first);
        }
        Ok(self.recorder.finish(TextFormat::Strace))
    }
}

/// Clock that converts strace's times of any kind to nanoseconds that never run backwards at midnight.
#[derive(Default)]
struct Clock {
    last: Option<Time>,
    at: u64,
}

const DAY: u64 = 24 * 3600 * 1_000_000_000;

impl Clock {
    /// Returns the time in nanoseconds, or `None` if the recording began with times of another kind or the
    /// time overflows.
    fn read(&mut self, time: Time) -> Option<u64> {
        self.at = match (self.last, time) {
            (None | Some(Time::Epoch(_)), Time::Epoch(at)) => at,
            (None, Time::Day(at)) => at,
            (Some(Time::Day(last)), Time::Day(now)) if last > now.checked_add(DAY / 2)? => {
                self.at.checked_add((now + DAY).checked_sub(last)?)?
            }
            (Some(Time::Day(last)), Time::Day(now)) => self.at.checked_add(now)?.checked_sub(last)?,
            (None | Some(Time::Since(_)), Time::Since(by)) => self.at.checked_add(by)?,
            _ => return None,
        };
        self.last = Some(time);
        Some(self.at)
    }

    fn is_unset(&self) -> bool {
        self.last.is_none()
    }
}

/// Number for the process that strace started, until its real number is known: strace prints numbers only
/// from the first child on.
const UNNAMED: u32 = 0;

/// Processes of the recording.
#[derive(Default)]
struct Processes {
    alive: BTreeSet<u32>,
    /// Processes that were announced as children.
    children: BTreeSet<u32>,
    /// Real number of the process that strace started, once known.
    first: Option<u32>,
}

impl Processes {
    fn attach(&mut self, child: u32) {
        self.children.insert(child);
    }

    /// Registers a child, and returns true if no line of this child has been read yet.
    fn is_first_heard(&mut self, child: u32) -> bool {
        self.children.insert(child);
        self.alive.insert(child)
    }

    fn end(&mut self, process: u32) {
        self.alive.remove(&process);
        self.children.remove(&process);
    }

    /// Returns the process of a line, if this process is already known.
    fn known_process(&self, named: Option<u32>) -> Option<u32> {
        match named {
            // strace omits the number while only one process exists, also after the others have ended.
            None if self.alive.len() == 1 => self.alive.first().copied(),
            None => self.alive.get(&UNNAMED).copied(),
            Some(number) if self.first == Some(number) => self.alive.get(&UNNAMED).copied(),
            Some(number) => self.alive.get(&number).copied(),
        }
    }

    /// Returns the process of a line that is the first of its process, or the first that names the number.
    fn register(&mut self, named: Option<u32>, is_child_expected: bool) -> u32 {
        let process = match named {
            None => UNNAMED,
            Some(number) if self.first == Some(number) => UNNAMED,
            Some(number) => {
                let is_child = is_child_expected || self.children.contains(&number);
                if !is_child && self.first.is_none() && self.alive.contains(&UNNAMED) {
                    self.first = Some(number);
                    UNNAMED
                } else {
                    number
                }
            }
        };
        self.alive.insert(process);
        process
    }
}

#[cfg(test)]
mod tests;
