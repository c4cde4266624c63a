//! Detection of a text's form, and the result of its import.

use super::{Call, CallKind, Error, Trace, blkparse, format, strace};
use std::collections::HashMap;

/// Form of an imported text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TextFormat {
    /// A trace in the CSV format.
    Own,
    /// Output of strace.
    Strace,
    /// Output of blkparse.
    Blkparse,
}

impl TextFormat {
    /// Name of the form in words.
    pub fn name(self) -> &'static str {
        match self {
            TextFormat::Own => "a trace",
            TextFormat::Strace => "what strace prints",
            TextFormat::Blkparse => "what blkparse prints",
        }
    }
}

/// Result of an import.
#[derive(Clone, Debug, PartialEq)]
pub struct Imported {
    /// Form of the text.
    pub form: TextFormat,
    /// The trace.
    pub trace: Trace,
    /// Contents of the text that the trace omits, most frequent first.
    pub left_out: Vec<Omission>,
    /// Assumptions of the trace that the text does not state, most frequent first.
    pub assumed: Vec<Omission>,
}

/// Group of calls or lines that were treated alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Omission {
    /// Description of the group, with the reason.
    pub what: String,
    /// Number of calls or lines.
    pub count: u64,
    /// Number of the first line of the group, from 1.
    pub line: usize,
}

impl Trace {
    /// Imports a trace, output of strace, or output of blkparse.
    ///
    /// # Errors
    /// [`Error::Unknown`] if the text has none of these forms; [`Error::Line`] for an invalid line of a
    /// trace; [`Error::NoTimes`] for output of strace without times; [`Error::TooManyFiles`] if an index of
    /// 32 bits is too small for the files.
    pub fn import(text: &str) -> Result<Imported, Error> {
        if format::is_header(text) {
            let trace = Trace::read(text)?;
            return Ok(Imported { form: TextFormat::Own, trace, left_out: Vec::new(), assumed: Vec::new() });
        }
        // The traced program's own output may be among the lines, so the first line alone does not decide.
        let count = |is: fn(&str) -> bool| text.lines().take(LOOKED_AT).filter(|line| is(line)).count();
        let (calls, requests) = (count(strace::is_line), count(blkparse::is_line));
        if calls == 0 && requests == 0 {
            Err(Error::Unknown)
        } else if calls >= requests {
            strace::import(text)
        } else {
            blkparse::import(text)
        }
    }
}

impl Trace {
    /// Renumbers the files in the order of their first calls, so that writing and reading a trace preserves
    /// it. Drops files without calls.
    pub(super) fn number_files(&mut self) {
        let mut old: Vec<Option<String>> = std::mem::take(&mut self.files).into_iter().map(Some).collect();
        let mut numbers = vec![0; old.len()];
        for call in &mut self.calls {
            let file = call.file as usize;
            if let Some(name) = old[file].take() {
                // The new number is at most the old list's length, which fits `u32`.
                numbers[file] = self.files.len() as u32;
                self.files.push(name);
            }
            call.file = numbers[file];
        }
    }
}

/// Number of lines that are examined to detect the form.
const LOOKED_AT: usize = 10_000;

/// Collector of the calls that an importer finds.
#[derive(Default)]
pub(super) struct Recorder {
    indices: HashMap<String, u32>,
    calls: Vec<TimedCall>,
    left_out: Tally,
    assumed: Tally,
}

/// A call with its exact time in nanoseconds.
struct TimedCall {
    at: u64,
    call: Call,
}

impl Recorder {
    /// Adds a call. `at` is in nanoseconds since any fixed moment.
    pub fn call(
        &mut self,
        at: u64,
        process: u32,
        kind: CallKind,
        file: &str,
        (offset, length): (u64, u64),
    ) -> Result<(), Error> {
        let next = u32::try_from(self.indices.len()).map_err(|_| Error::TooManyFiles)?;
        let file = match self.indices.get(file) {
            Some(index) => *index,
            None => *self.indices.entry(file.to_owned()).or_insert(next),
        };
        self.calls.push(TimedCall {
            at,
            call: Call { at: 0.0, process, kind, file, offset, length, timing: None },
        });
        Ok(())
    }

    /// Counts a call or line that the trace omits.
    pub fn count_omitted(&mut self, what: &str, line: usize) {
        self.left_out.add(what, line);
    }

    /// Counts an assumption.
    pub fn count_assumed(&mut self, what: &str, line: usize) {
        self.assumed.add(what, line);
    }

    /// Sorts the calls and returns the result of the import.
    pub fn finish(mut self, form: TextFormat) -> Imported {
        self.calls.sort_by_key(|found| found.at);
        let first = self.calls.first().map_or(0, |found| found.at);
        let mut trace = Trace { files: vec![String::new(); self.indices.len()], calls: Vec::new() };
        for (name, index) in self.indices {
            trace.files[index as usize] = name;
        }
        let calls = self.calls.into_iter();
        trace.calls = calls.map(|found| Call { at: (found.at - first) as f64 / 1e9, ..found.call }).collect();
        trace.number_files();
        Imported { form, trace, left_out: self.left_out.most_first(), assumed: self.assumed.most_first() }
    }

    /// Replaces the number of a process in all calls added so far.
    pub fn rename_process(&mut self, from: u32, to: u32) {
        for found in self.calls.iter_mut().filter(|found| found.call.process == from) {
            found.call.process = to;
        }
    }
}

#[derive(Default)]
struct Tally(HashMap<String, (u64, usize)>);

impl Tally {
    fn add(&mut self, what: &str, line: usize) {
        match self.0.get_mut(what) {
            Some((count, first)) => (*count, *first) = (*count + 1, line.min(*first)),
            None => {
                self.0.insert(what.to_owned(), (1, line));
            }
        }
    }

    fn most_first(self) -> Vec<Omission> {
        let mut left: Vec<Omission> =
            self.0.into_iter().map(|(what, (count, line))| Omission { what, count, line }).collect();
        left.sort_by(|one, other| other.count.cmp(&one.count).then(one.line.cmp(&other.line)));
        left
    }
}

/// Parses decimal seconds, `12` or `12.345678`, into nanoseconds. Digits after the ninth decimal are dropped.
pub(super) fn nanoseconds(text: &str) -> Option<u64> {
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(seconds) || !digits(fraction) {
        return None;
    }
    let fraction = &fraction[..fraction.len().min(9)];
    let scale = 10_u64.pow(9 - fraction.len() as u32);
    let fraction: u64 = fraction.parse().ok()?;
    seconds.parse::<u64>().ok()?.checked_mul(1_000_000_000)?.checked_add(fraction * scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_read_to_the_nanosecond() {
        assert_eq!(nanoseconds("1795327436.662304"), Some(1_795_327_436_662_304_000));
        assert_eq!(nanoseconds("0.000000001"), Some(1));
        assert_eq!(nanoseconds("7"), Some(7_000_000_000));
        assert_eq!(nanoseconds("0.1234567899"), Some(123_456_789));
        for wrong in ["", ".", "1.", ".1", "1.x", "-1", "1.2.3", "99999999999999999999", "1e3"] {
            assert_eq!(nanoseconds(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn calls_are_put_in_the_order_of_time_and_files_in_that_of_their_calls() {
        let mut recorder = Recorder::default();
        recorder.call(2_000, 1, CallKind::Read, "b", (0, 1)).unwrap();
        recorder.call(1_000, 1, CallKind::Read, "a", (0, 1)).unwrap();
        recorder.count_omitted("seldom", 3);
        recorder.count_omitted("often", 4);
        recorder.count_omitted("often", 5);
        let imported = recorder.finish(TextFormat::Strace);
        assert_eq!(imported.trace.files, ["a", "b"]);
        let calls: Vec<_> = imported.trace.calls.iter().map(|call| (call.at, call.file)).collect();
        assert_eq!(calls, [(0.0, 0), (1e-6, 1)]);
        assert_eq!(imported.left_out[0], Omission { what: "often".into(), count: 2, line: 4 });
        assert_eq!(imported.left_out.len(), 2);
    }

    #[test]
    fn what_is_none_of_the_three_is_refused() {
        for text in ["", "\n\n", "hello", "a,b,c\n1,2,3\n", "\0\u{fffd}"] {
            assert_eq!(Trace::import(text), Err(Error::Unknown), "{text:?}");
        }
    }
}
