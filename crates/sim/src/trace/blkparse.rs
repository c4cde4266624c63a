//! Importer of blkparse's default output (blkparse(1), "DEFAULT OUTPUT").
//!
//! ```text
//!   8,0    3        1     0.000000000   697  Q   W 223490 + 8 [kjournald]
//!   device cpu      sequence  time      pid  action, RWBS, sector + sectors, command
//! ```
//!
//! A request causes several events. The importer takes the event at which the request is queued (Q), because
//! this shows what programs and file systems requested, before requests were merged, split or sorted. If a
//! recording has no such event, the importer takes the event at which a request is issued to the driver (D).
//! The device is the file of the calls; offsets count from the device's beginning.

use super::imported::{Imported, Recorder, TextFormat, nanoseconds};
use super::{CallKind, Error};

/// Size of a sector in blkparse's output, in bytes, independent of the device's own sectors.
const SECTOR: u64 = 512;

const OTHER_EVENTS: &str =
    "events on a request's way (merged, inserted, issued, completed, ...), which was taken once";
const OTHER_LINES: &str = "lines that are no events, as blkparse's summary";
const DISCARDS: &str = "discards";
const NO_DATA: &str = "requests that are neither reads nor writes nor flushes, as commands for the drive";

/// Returns true if blkparse printed the line.
pub fn is_line(line: &str) -> bool {
    Event::parse(line).is_some()
}

/// Imports all requests of blkparse's output.
pub fn import(text: &str) -> Result<Imported, Error> {
    let queued = text.lines().filter_map(Event::parse).any(|event| event.action == "Q");
    let taken = if queued { "Q" } else { "D" };
    let mut recorder = Recorder::default();
    for (number, line) in text.lines().enumerate().map(|(index, line)| (index + 1, line)) {
        match Event::parse(line) {
            _ if line.trim().is_empty() => {}
            None => recorder.count_omitted(OTHER_LINES, number),
            Some(event) if event.action != taken => recorder.count_omitted(OTHER_EVENTS, number),
            Some(event) => request(&mut recorder, &event, number)?,
        }
    }
    Ok(recorder.finish(TextFormat::Blkparse))
}

/// Records the calls of one request: a flush before its data, its data, and a flush after a write that must
/// be durable by itself (FUA).
fn request(recorder: &mut Recorder, event: &Event, line: usize) -> Result<(), Error> {
    let Event { at, process, device, .. } = *event;
    let Some(asked) = Rwbs::parse(event.rwbs) else {
        recorder.count_omitted(NO_DATA, line);
        return Ok(());
    };
    if asked.flushes {
        recorder.call(at, process, CallKind::Sync, device, (0, 0))?;
    }
    match (asked.data, event.range) {
        (Data::Discard, _) => recorder.count_omitted(DISCARDS, line),
        (Data::Read, Some(range)) => recorder.call(at, process, CallKind::Read, device, range)?,
        (Data::Write, Some(range)) => {
            recorder.call(at, process, CallKind::Write, device, range)?;
            if asked.is_durable {
                recorder.call(at, process, CallKind::Sync, device, range)?;
            }
        }
        (Data::Read | Data::Write | Data::None, _) if asked.flushes => {}
        _ => recorder.count_omitted(NO_DATA, line),
    }
    Ok(())
}

/// One line of blkparse's output.
struct Event<'a> {
    device: &'a str,
    at: u64,
    process: u32,
    action: &'a str,
    rwbs: &'a str,
    /// Range of the request: offset and length in bytes.
    range: Option<(u64, u64)>,
}

impl<'a> Event<'a> {
    fn parse(line: &'a str) -> Option<Event<'a>> {
        let mut words = line.split_ascii_whitespace();
        let device = words.next().filter(|word| is_device(word))?;
        let _processor: u32 = words.next()?.parse().ok()?;
        let _sequence: u64 = words.next()?.parse().ok()?;
        let time = words.next().filter(|word| word.contains('.'))?;
        let at = nanoseconds(time)?;
        let process = words.next()?.parse().ok()?;
        let letters = |word: &&str| word.len() <= 8 && word.bytes().all(|byte| byte.is_ascii_alphabetic());
        let action = words.next().filter(letters)?;
        let rwbs = words.next().filter(letters).unwrap_or("");
        Some(Event { device, at, process, action, rwbs, range: range(words) })
    }
}

/// Returns true for major and minor number of a device, as `8,0`.
fn is_device(word: &str) -> bool {
    word.split_once(',').is_some_and(|(major, minor)| {
        [major, minor].iter().all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()))
    })
}

/// Parses `sector + sectors` into offset and length in bytes. Returns `None` if the range is missing, empty
/// or too large.
fn range<'a>(mut words: impl Iterator<Item = &'a str>) -> Option<(u64, u64)> {
    let sector: u64 = words.next()?.parse().ok()?;
    words.next().filter(|word| *word == "+")?;
    let sectors: u64 = words.next()?.parse().ok()?;
    let (offset, length) = (sector.checked_mul(SECTOR)?, sectors.checked_mul(SECTOR)?);
    offset.checked_add(length)?;
    (length > 0).then_some((offset, length))
}

/// Decoded RWBS column. A leading `F` is a flush, the next letter is the operation, and an `F` after it is
/// FUA. `S`, `M`, `A` and `B` are attributes of the request.
struct Rwbs {
    flushes: bool,
    data: Data,
    is_durable: bool,
}

#[derive(Clone, Copy)]
enum Data {
    Read,
    Write,
    Discard,
    None,
}

impl Rwbs {
    fn parse(rwbs: &str) -> Option<Rwbs> {
        let (mut flushes, rest) = match rwbs.strip_prefix('F') {
            Some(rest) => (true, rest),
            None => (false, rwbs),
        };
        let data = match rest.bytes().next() {
            Some(b'R') => Data::Read,
            Some(b'W') => Data::Write,
            Some(b'D') => Data::Discard,
            Some(b'N') => Data::None,
            // In FF, or a single F, the request is only the flush.
            Some(b'F') | None if flushes => Data::None,
            _ => return None,
        };
        let is_durable = matches!(data, Data::Write) && rest.contains('F');
        // A barrier, in kernels before 2.6.37, was a write between two flushes.
        let is_barrier = rest.contains('B');
        flushes |= is_barrier;
        Some(Rwbs { flushes, data, is_durable: is_durable || is_barrier })
    }
}

#[cfg(test)]
mod tests {
    use super::super::Trace;
    use super::*;

    /// Output of blkparse 1.2.0 for synthetic events of every kind.
    const PRINTED: &str = include_str!("recordings/blkparse.txt");

    fn calls(imported: &Imported) -> Vec<(CallKind, u32, u64, u64)> {
        let calls = imported.trace.calls.iter();
        calls.map(|call| (call.kind, call.process, call.offset, call.length)).collect()
    }

    #[test]
    fn requests_are_taken_where_they_are_queued() {
        let imported = Trace::import(PRINTED).unwrap();
        assert_eq!(imported.form, TextFormat::Blkparse);
        assert_eq!(imported.trace.files, ["8,0"]);
        assert_eq!(
            calls(&imported),
            [
                (CallKind::Write, 697, 223490 * 512, 4096),
                (CallKind::Read, 701, 1000 * 512, 131072),
                (CallKind::Read, 701, 1256 * 512, 131072),
                (CallKind::Sync, 697, 0, 0),
                (CallKind::Sync, 697, 0, 0),
                (CallKind::Write, 697, 2048 * 512, 4096),
                (CallKind::Sync, 697, 2048 * 512, 4096),
                (CallKind::Read, 800, 4096 * 512, 8192),
                (CallKind::Sync, 697, 0, 0),
                (CallKind::Write, 800, 0, 4096),
            ]
        );
        let times: Vec<f64> = imported.trace.calls.iter().map(|call| call.at).collect();
        assert_eq!((times[0], times[1], times[9]), (0.0, 0.000099, 1.999999001));
        let left: Vec<_> = imported.left_out.iter().map(|left| (left.what.as_str(), left.count)).collect();
        let (events, discards, commands) = (13, 1, 1);
        assert!(left.contains(&(OTHER_EVENTS, events)), "{left:?}");
        assert!(left.contains(&(DISCARDS, discards)) && left.contains(&(NO_DATA, commands)), "{left:?}");
        let lines = PRINTED.lines().filter(|line| !line.trim().is_empty()).count() as u64;
        let told: u64 = left.iter().map(|(_, count)| count).sum();
        assert_eq!(told + 8, lines, "8 requests are ten calls");
    }

    #[test]
    fn without_queued_events_issued_ones_are_taken() {
        let issued: String =
            PRINTED.lines().filter(|line| !line.contains("  Q ")).map(|line| format!("{line}\n")).collect();
        let imported = Trace::import(&issued).unwrap();
        assert_eq!(
            calls(&imported),
            [
                (CallKind::Write, 697, 223490 * 512, 4096),
                (CallKind::Read, 701, 1000 * 512, 262144),
                (CallKind::Sync, 697, 0, 0),
            ]
        );
    }

    #[test]
    fn the_line_of_the_manual_is_read() {
        let line = "  8,0     3         1      0.000000000   697  Q   W 223490 + 8 [kjournald]";
        let event = Event::parse(line).unwrap();
        assert_eq!((event.device, event.at, event.process, event.action), ("8,0", 0, 697, "Q"));
        assert_eq!(event.range, Some((114_426_880, 4096)));
        for wrong in [
            "",
            "CPU0 (8,0):",
            " Reads Queued:           4,      264KiB",
            "8,0 3 1 0 697 Q W 223490 + 8 [x]",
            "8, 3 1 0.0 697 Q W 223490 + 8 [x]",
            "8,0 3 1 0.0 697",
        ] {
            assert!(Event::parse(wrong).is_none(), "{wrong}");
        }
        let beyond = "8,0 3 1 0.0 697 Q W 18446744073709551615 + 8 [x]";
        assert_eq!(Event::parse(beyond).unwrap().range, None);
        assert_eq!(Event::parse("259,12 3 1 0.0 697 Q FF [x]").unwrap().rwbs, "FF");
    }

    #[test]
    fn what_rwbs_says_is_understood() {
        let of = |rwbs| Rwbs::parse(rwbs).map(|asked| (asked.flushes, asked.is_durable));
        for flush in ["F", "FF", "FN", "FWS"] {
            assert_eq!(of(flush), Some((true, false)), "{flush}");
        }
        assert_eq!(of("WFS"), Some((false, true)));
        assert_eq!(of("FWFSM"), Some((true, true)));
        assert_eq!(of("WB"), Some((true, true)));
        assert_eq!(of("RA"), Some((false, false)));
        assert!(of("").is_none() && of("Z").is_none());
    }
}
