//! Property tests with randomly damaged recordings: an importer returns an error or a trace that keeps its
//! invariants.

use super::{CallKind, Trace};
use proptest::collection::vec;
use proptest::prelude::*;

const RECORDINGS: [&str; 6] = [
    include_str!("recordings/blkparse.txt"),
    include_str!("recordings/server.txt"),
    include_str!("recordings/server-plain.txt"),
    include_str!("recordings/shell.txt"),
    include_str!("recordings/sqlite.txt"),
    "time,process,call,file,offset,length\n0,1,read,\"a,\"\"b\",0,4096\n0.5,1,sync,c,0,0\n1.5,2,send,d,0,9\n",
];

/// Tokens of recordings, and numbers that overflow.
const PIECES: [&str; 22] = [
    "\"",
    "\\",
    "<",
    ">",
    "(",
    ")",
    "[",
    "]",
    ",",
    " ",
    "\n",
    " = ",
    "<unfinished ...>",
    "<... read resumed>",
    "-1",
    "18446744073709551615",
    "9999999999999999999999",
    "0x",
    "\u{e4}",
    "+++",
    "[pid ",
    "strace: Process 7 attached",
];

#[derive(Clone, Debug)]
enum Change {
    /// Removes bytes.
    Cut(usize, usize),
    /// Inserts a token.
    Insert(usize, usize),
    /// Repeats a line at another position.
    Repeat(usize, usize),
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    let at = || 0..1_usize << 16;
    vec(
        prop_oneof![
            (at(), 1..12_usize).prop_map(|(at, length)| Change::Cut(at, length)),
            (at(), 0..PIECES.len()).prop_map(|(at, piece)| Change::Insert(at, piece)),
            (at(), at()).prop_map(|(from, to)| Change::Repeat(from, to)),
        ],
        1..12,
    )
}

fn changed(text: &str, changes: &[Change]) -> String {
    let mut bytes = text.as_bytes().to_vec();
    for change in changes {
        let length = bytes.len().max(1);
        match change {
            Change::Cut(at, count) => {
                let at = at % length;
                bytes.drain(at.min(bytes.len())..(at + count).min(bytes.len()));
            }
            Change::Insert(at, piece) => {
                let at = (at % length).min(bytes.len());
                bytes.splice(at..at, PIECES[*piece].bytes());
            }
            Change::Repeat(from, to) => {
                let lines: Vec<Vec<u8>> =
                    bytes.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
                if let Some(line) = lines.get(from % lines.len().max(1)).cloned() {
                    let mut lines = lines;
                    let to = to % lines.len();
                    lines.insert(to, line);
                    bytes = lines.concat();
                }
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Checks the invariants of [`Trace`].
fn hold(trace: &Trace) -> Result<(), TestCaseError> {
    prop_assert!(trace.calls.first().is_none_or(|first| first.at == 0.0));
    prop_assert!(trace.calls.is_sorted_by(|one, other| one.at <= other.at));
    for call in &trace.calls {
        prop_assert!((call.file as usize) < trace.files.len());
        prop_assert!(
            call.length > 0 || matches!(call.kind, CallKind::Sync | CallKind::Wait | CallKind::Other)
        );
        prop_assert!(call.offset.checked_add(call.length).is_some());
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_recording_breaks_an_importer(recording in 0..RECORDINGS.len(), changes in changes()) {
        let text = changed(RECORDINGS[recording], &changes);
        if let Ok(imported) = Trace::import(&text) {
            hold(&imported.trace)?;
            let again = Trace::read(&imported.trace.write()).unwrap();
            prop_assert_eq!(&again, &imported.trace);
        }
    }

    #[test]
    fn no_text_breaks_an_importer(text in "[ -~\n]{0,200}|([0-9]{1,3} [0-9]{1,20}[.:][0-9]{0,8} [a-z]{1,6}\\([ -~]{0,20}\\) = [0-9?-]{1,20}\n){1,8}") {
        if let Ok(imported) = Trace::import(&text) {
            hold(&imported.trace)?;
        }
    }
}

#[test]
fn recordings_are_read_back_as_they_were_written() {
    for recording in RECORDINGS {
        let imported = Trace::import(recording).unwrap();
        hold(&imported.trace).unwrap();
        assert!(imported.trace.calls.len() >= 3);
        assert_eq!(Trace::read(&imported.trace.write()).unwrap(), imported.trace);
    }
}
