//! File format of a trace: CSV (RFC 4180) with a header, and one line per call.
//!
//! ```text
//! time,process,call,file,offset,length
//! 0,4711,read,/data/a,0,4096
//! 0.0003,4711,sync,/data/a,0,0
//! 0.0005,4712,send,TCP:[10.0.0.1:80->10.0.0.2:4242],0,1448
//! ```
//!
//! A recorder of this project also tells when each call ended and how long the thread had computed before it.
//! Such a trace has two more columns, in seconds:
//!
//! ```text
//! time,process,call,file,offset,length,end,computed
//! 0,4711,read,/data/a,0,4096,0.0000012,0.0001
//! 0.0003,4711,wait,pipe:[123],0,0,0.0009,0.0000988
//! ```
//!
//! Lines may be in any order, and times may start at any value: a part cut out of a trace is a trace.

use super::{Call, CallKind, Error, Timing, Trace};
use csv::{ErrorKind, QuoteStyle, ReaderBuilder, StringRecord, WriterBuilder};
use std::collections::HashMap;

/// First line of a trace.
pub const HEADER: &str = "time,process,call,file,offset,length";
/// First line of a trace that tells the end of each call and the computing before it.
pub const TIMED_HEADER: &str = "time,process,call,file,offset,length,end,computed";

/// Returns true if the text begins like a trace, even if the header has a mistake after its first column.
pub fn is_header(text: &str) -> bool {
    let first = text.trim_start_matches('\u{feff}').lines().find(|line| !line.trim().is_empty());
    first.is_some_and(|line| line.replace(['"', ' '], "").to_lowercase().starts_with("time,"))
}

impl Trace {
    /// Parses a trace in the CSV format.
    ///
    /// # Errors
    /// [`Error::Line`] for the first invalid line; [`Error::TooManyFiles`] if an index of 32 bits is too
    /// small for the files.
    pub fn read(text: &str) -> Result<Trace, Error> {
        let text = text.trim_start_matches('\u{feff}');
        let mut reader = ReaderBuilder::new().has_headers(false).flexible(true).from_reader(text.as_bytes());
        let mut trace = Trace::default();
        let mut indices = HashMap::new();
        let mut record = StringRecord::new();
        let (mut has_header, mut is_timed) = (false, false);
        loop {
            let more = reader.read_record(&mut record).map_err(|why| refused(&why))?;
            if !more {
                break;
            }
            let line = record.position().map_or(0, csv::Position::line);
            let wrong = |reason: String| Error::Line { line, reason };
            if !has_header {
                has_header = true;
                is_timed = record.iter().map(str::trim).eq(TIMED_HEADER.split(','));
                if !is_timed && record.iter().map(str::trim).ne(HEADER.split(',')) {
                    return Err(wrong(format!("the first line of a trace is '{HEADER}'")));
                }
                continue;
            }
            let (call, file) = call(&record, is_timed).map_err(wrong)?;
            let next = u32::try_from(trace.files.len()).map_err(|_| Error::TooManyFiles)?;
            let index = match indices.get(file) {
                Some(index) => *index,
                None => {
                    trace.files.push(file.to_owned());
                    *indices.entry(file.to_owned()).or_insert(next)
                }
            };
            trace.calls.push(Call { file: index, ..call });
        }
        if !has_header {
            return Err(Error::Line { line: 1, reason: format!("the first line of a trace is '{HEADER}'") });
        }
        trace.calls.sort_by(|one, other| one.at.total_cmp(&other.at));
        let first = trace.calls.first().map_or(0.0, |call| call.at);
        for call in &mut trace.calls {
            call.at -= first;
            if let Some(timing) = &mut call.timing {
                timing.end -= first;
            }
        }
        trace.number_files();
        Ok(trace)
    }

    /// Writes the trace in the CSV format.
    pub fn write(&self) -> String {
        let mut writer = WriterBuilder::new().quote_style(QuoteStyle::Necessary).from_writer(Vec::new());
        // Writing to memory cannot fail, so the results carry no information.
        let is_timed = self.is_timed();
        let _ = writer.write_record(if is_timed { TIMED_HEADER } else { HEADER }.split(','));
        for Call { at, process, kind, file, offset, length, timing } in &self.calls {
            let name = self.files.get(*file as usize).map_or("", String::as_str);
            let (at, process) = (at.to_string(), process.to_string());
            let (offset, length) = (offset.to_string(), length.to_string());
            let line = [&at, &process, kind.name(), name, &offset, &length];
            let _ = match timing.filter(|_| is_timed) {
                Some(Timing { end, computed }) => {
                    let [end, computed] = [end, computed].map(|seconds| seconds.to_string());
                    writer.write_record(line.into_iter().chain([end.as_str(), &computed]))
                }
                None => writer.write_record(line),
            };
        }
        String::from_utf8_lossy(&writer.into_inner().unwrap_or_default()).into_owned()
    }
}

/// Parses a line into its call, whose file index is not set yet, and the name of its file.
fn call(record: &StringRecord, is_timed: bool) -> Result<(Call, &str), String> {
    let columns: Vec<&str> = record.iter().collect();
    let (all, header) = if is_timed { ("eight", TIMED_HEADER) } else { ("six", HEADER) };
    let wrong = || {
        format!(
            "{} columns in place of {all} ({header}); a name with a comma or a quote in it is written in quotes",
            columns.len()
        )
    };
    let (&[at, process, kind, file, offset, length], rest) =
        columns.split_first_chunk::<6>().ok_or_else(wrong)?;
    let at = seconds("time", at)?;
    let timing = match *rest {
        [] if !is_timed => None,
        [end, computed] if is_timed => {
            let timing = Timing { end: seconds("end", end)?, computed: seconds("computed", computed)? };
            if timing.end < at {
                return Err(format!("end '{end}' is before the call's time"));
            }
            Some(timing)
        }
        _ => return Err(wrong()),
    };
    let process = process
        .trim()
        .parse()
        .map_err(|_| format!("process '{process}' is no number from 0 to {}", u32::MAX))?;
    let kind = kind.trim();
    let kind = CallKind::ALL.into_iter().find(|known| known.name() == kind).ok_or_else(|| {
        let names = CallKind::ALL.map(CallKind::name).join(", ");
        format!("call '{kind}' is none of {names}")
    })?;
    let bytes = |column: &str, text: &str| {
        text.trim().parse::<u64>().map_err(|_| format!("{column} '{text}' is no number of bytes, as 4096 is"))
    };
    let (offset, length) = (bytes("offset", offset)?, bytes("length", length)?);
    if offset.checked_add(length).is_none() {
        return Err(format!("offset {offset} and length {length} lead past the end of any file"));
    }
    if length == 0 && !matches!(kind, CallKind::Sync | CallKind::Wait | CallKind::Other) {
        return Err(format!("a {} of 0 bytes is none; leave the line out", kind.name()));
    }
    Ok((Call { at, process, kind, file: 0, offset, length, timing }, file))
}

/// Parses a time or duration in seconds, which is not negative.
fn seconds(column: &str, text: &str) -> Result<f64, String> {
    let number = text.trim().parse().ok().filter(|number: &f64| number.is_finite() && *number >= 0.0);
    number.ok_or_else(|| format!("{column} '{text}' is no number of seconds, as 12.000345 is"))
}

fn refused(why: &csv::Error) -> Error {
    let line = why.position().map_or(0, csv::Position::line);
    let reason = match why.kind() {
        ErrorKind::Utf8 { .. } => "not UTF-8; write the names in it".to_owned(),
        _ => why.to_string(),
    };
    Error::Line { line, reason }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SMALL: &str = "\
time,process,call,file,offset,length
0,4711,read,/data/a,0,4096
0.0003,4711,sync,/data/a,0,0
0.0005,4712,send,\"TCP:[1->2], \"\"x\"\"\",0,1448
";

    #[test]
    fn a_trace_is_read_as_it_was_written() {
        let trace = Trace::read(SMALL).unwrap();
        assert_eq!(trace.files, ["/data/a", "TCP:[1->2], \"x\""]);
        let (kind, timing) = (CallKind::Send, None);
        let last = Call { at: 0.0005, process: 4712, kind, file: 1, offset: 0, length: 1448, timing };
        assert_eq!(trace.calls[2], last);
        assert_eq!(trace.write(), SMALL);
        assert_eq!(Trace::import(SMALL).unwrap().trace, trace);
    }

    #[test]
    fn a_piece_of_a_trace_in_any_order_is_one_that_begins_at_its_first_call() {
        let cut =
            "\u{feff}time,process,call,file,offset,length\r\n12.5,1,read,b,0,1\r\n\r\n12,1,write,a,0,1\r\n";
        let trace = Trace::import(cut).unwrap().trace;
        let calls: Vec<_> = trace.calls.iter().map(|call| (call.at, call.kind)).collect();
        assert_eq!(calls, [(0.0, CallKind::Write), (0.5, CallKind::Read)]);
    }

    #[test]
    fn a_line_that_is_wrong_is_named() {
        for (line, wanted) in [
            ("x,1,read,a,0,1", "time 'x' is no number of seconds"),
            ("-1,1,read,a,0,1", "time '-1'"),
            ("inf,1,read,a,0,1", "time 'inf'"),
            ("0,-1,read,a,0,1", "process '-1'"),
            ("0,1,open,a,0,1", "call 'open' is none of read, write, sync, receive, send, wait, other"),
            ("0,1,read,a,4k,1", "offset '4k' is no number of bytes"),
            ("0,1,read,a,0,-1", "length '-1'"),
            ("0,1,read,a,0,0", "leave the line out"),
            ("0,1,read,a,18446744073709551615,1", "past the end of any file"),
            ("0,1,read,a,b,0,1", "7 columns in place of six"),
            ("0,1", "2 columns"),
        ] {
            let said = Trace::import(&format!("{SMALL}{line}\n")).unwrap_err().to_string();
            assert!(said.starts_with("line 5: ") && said.contains(wanted), "{line}: {said}");
        }
        let said = Trace::import("time,process,call,name,offset,length\n").unwrap_err().to_string();
        assert_eq!(said, "line 1: the first line of a trace is 'time,process,call,file,offset,length'");
        assert!(Trace::read("").is_err());
    }

    #[test]
    fn a_trace_with_ends_is_read_as_it_was_written_and_names_what_is_wrong() {
        let text = "\
time,process,call,file,offset,length,end,computed
0,4711,read,/data/a,0,4096,0.25,0
1.5,4711,wait,pipe:[1],0,0,2,1.25
";
        let trace = Trace::read(text).unwrap();
        assert_eq!(trace.calls[1].timing, Some(Timing { end: 2.0, computed: 1.25 }));
        assert!(trace.is_timed() && trace.write() == text);
        let later = text
            .replace("\n0,", "\n10,")
            .replace("0.25", "10.25")
            .replace("\n1.5,", "\n11.5,")
            .replace(",2,", ",12,");
        assert_eq!(Trace::read(&later).unwrap(), trace);
        for (line, wanted) in [
            ("3,1,other,,0,0,2,0", "end '2' is before the call's time"),
            ("3,1,other,,0,0,4,-1", "computed '-1' is no number of seconds"),
            ("3,1,other,,0,0", "6 columns in place of eight"),
        ] {
            let said = Trace::read(&format!("{text}{line}\n")).unwrap_err().to_string();
            assert!(said.starts_with("line 4: ") && said.contains(wanted), "{line}: {said}");
        }
    }

    fn names() -> impl Strategy<Value = String> {
        proptest::string::string_regex("[ -~\n\r\u{e4}\u{1f600}]{0,8}").unwrap()
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn what_is_written_is_what_is_read(
            calls in proptest::collection::vec(
                (0.0..1e6_f64, any::<u32>(), 0..5_usize, names(), any::<u32>(), 1..u64::MAX / 2),
                0..20,
            ),
        ) {
            let mut text = String::from("time,process,call,file,offset,length\n");
            for (at, process, kind, name, offset, length) in &calls {
                let (kind, name) = (CallKind::ALL[*kind].name(), name.replace('"', "\"\""));
                text += &format!("{at},{process},{kind},\"{name}\",{offset},{length}\n");
            }
            let trace = Trace::read(&text).unwrap();
            prop_assert_eq!(trace.calls.len(), calls.len());
            for (_, _, _, name, _, _) in &calls {
                prop_assert!(trace.files.contains(name));
            }
            prop_assert_eq!(&Trace::read(&trace.write()).unwrap(), &trace);
        }
    }
}
