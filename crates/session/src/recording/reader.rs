//! Copies of everything that a run has recorded.
//!
//! Any process of the run could have written any word, so each is copied once and then checked: an index
//! beyond the entries names no file, an unknown function is left out, and a call never ends before it starts.

use super::layout::{FAILED, FILES_MAX, Function, NAME_BYTES};
use super::memory::{Owner, Recording};
use alloc::string::String;
use alloc::vec::Vec;
use core::sync::atomic::Ordering::{Acquire, Relaxed};

/// A recorded call. Times are ticks of the time-stamp counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordedCall {
    /// Thread that made the call.
    pub owner: Owner,
    /// Kind of the call.
    pub function: Function,
    /// True if the call failed.
    pub failed: bool,
    /// Start, in ticks.
    pub start: u64,
    /// End, in ticks, not before the start.
    pub end: u64,
    /// Offset in the file, in bytes; `None` at the descriptor's position.
    pub offset: Option<u64>,
    /// Bytes moved, or what the kind says.
    pub length: u32,
    /// Index into [`RecordedRun::files`]; 0 for none.
    pub file: u32,
    /// Time before the call in which the thread did not compute for the program, in nanoseconds.
    pub away_ns: u64,
}

/// A file, program, pipe or socket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordedFile {
    /// Path as the kernel names it; empty if unknown.
    pub name: String,
    /// Type and permissions (`st_mode`).
    pub mode: u32,
    /// Flags of the opening (open(2)).
    pub flags: u32,
    /// Device that has the file.
    pub device: u64,
    /// Number of the inode.
    pub inode: u64,
    /// Size at the first use, in bytes.
    pub size: u64,
    /// Number of the process that used it first.
    pub process: u32,
}

/// Everything that a run has recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordedRun {
    /// Files that calls refer to by index; the first stands for none.
    pub files: Vec<RecordedFile>,
    /// Calls, thread by thread, in the order in which each thread made them.
    pub calls: Vec<RecordedCall>,
    /// Calls that found the recording full.
    pub lost: u64,
    /// Calls of signal handlers that were left out.
    pub nested: u32,
}

impl Recording {
    /// Copies all files and calls that were recorded so far.
    pub fn read(&self) -> RecordedRun {
        let header = self.header();
        let files = header.files_claimed.load(Relaxed).min(FILES_MAX);
        let files: Vec<RecordedFile> = (0..files).map(|index| self.file(index)).collect();
        let mut calls = Vec::new();
        for index in 0..header.chunks_claimed.load(Relaxed).min(self.chunks()) {
            let chunk = self.chunk(index);
            let process = chunk.process();
            if process == 0 {
                continue;
            }
            let [pid, thread, parent] = [&chunk.header().pid, &chunk.header().thread, &chunk.header().parent]
                .map(|word| word.load(Relaxed));
            let owner = Owner { process, pid, thread, parent };
            for slot in (0..chunk.used()).filter_map(|index| chunk.slot(index)) {
                let number = slot.function.load(Relaxed);
                let Some(function) = Function::ALL.get((number & (FAILED - 1)) as usize) else { continue };
                let (start, offset) = (slot.start.load(Relaxed), slot.offset.load(Relaxed));
                let file = slot.file.load(Relaxed);
                calls.push(RecordedCall {
                    owner,
                    function: *function,
                    failed: number & FAILED != 0,
                    start,
                    end: slot.end.load(Relaxed).max(start),
                    offset: (offset != u64::MAX).then_some(offset),
                    length: slot.length.load(Relaxed),
                    file: if (file as usize) < files.len() { file } else { 0 },
                    away_ns: u64::from(slot.away.load(Relaxed)) * 100,
                });
            }
        }
        RecordedRun { files, calls, lost: header.lost.load(Relaxed), nested: header.nested.load(Relaxed) }
    }

    fn file(&self, index: u32) -> RecordedFile {
        let entry = self.entry(index);
        // SYNC: file-entry (acquire).
        if index == 0 || entry.state.load(Acquire) != 1 {
            return RecordedFile::default();
        }
        let length = (entry.name_len.load(Relaxed) as usize).min(NAME_BYTES);
        let name: Vec<u8> = entry.name[..length].iter().map(|byte| byte.load(Relaxed)).collect();
        RecordedFile {
            name: String::from_utf8_lossy(&name).into_owned(),
            mode: entry.mode.load(Relaxed),
            flags: entry.flags.load(Relaxed),
            device: entry.device.load(Relaxed),
            inode: entry.inode.load(Relaxed),
            size: entry.size.load(Relaxed),
            process: entry.process.load(Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{CHUNK_CALLS, Described, Sample};
    use super::*;

    fn owner(thread: u32) -> Owner {
        Owner { process: 1, pid: 10, thread, parent: 1 }
    }

    #[test]
    fn what_threads_add_is_read_in_their_order() {
        let recording = Recording::create(8).unwrap();
        let there = Recording::open(&recording.path()).unwrap();
        let file = there.add_file(Described { size: 9, name: b"/data/a", ..Described::default() });
        let chunks = [10, 11].map(|thread| there.claim_chunk(owner(thread), 5).unwrap());
        for number in 0..3u64 {
            for chunk in chunks {
                let function = Function::Read as u32 | if number == 2 { FAILED } else { 0 };
                let times = (number * 10, number * 10 + 4);
                assert!(chunk.push(Sample {
                    start: times.0,
                    end: times.1,
                    offset: u64::MAX,
                    file,
                    function,
                    away: 7,
                    ..Sample::default()
                }));
            }
        }
        let run = recording.read();
        assert_eq!((run.files[file as usize].name.as_str(), run.files[file as usize].size), ("/data/a", 9));
        let seen: Vec<_> =
            run.calls.iter().map(|call| (call.owner.thread, call.start, call.failed)).collect();
        assert_eq!(
            seen,
            [
                (10, 0, false),
                (10, 10, false),
                (10, 20, true),
                (11, 0, false),
                (11, 10, false),
                (11, 20, true)
            ]
        );
        assert_eq!((run.calls[0].offset, run.calls[0].away_ns, run.lost), (None, 700, 0));
    }

    #[test]
    fn a_full_recording_takes_no_more() {
        let recording = Recording::create(2).unwrap();
        let chunk = recording.claim_chunk(owner(1), 0).unwrap();
        for _ in 0..CHUNK_CALLS {
            assert!(!chunk.is_full() && chunk.push(Sample::default()));
        }
        assert!(chunk.is_full() && !chunk.push(Sample::default()));
        assert!(recording.claim_chunk(owner(1), 0).is_some());
        assert!(recording.claim_chunk(owner(1), 0).is_none());
        recording.lose();
        let run = recording.read();
        assert_eq!((run.calls.len(), run.lost), (CHUNK_CALLS, 1));
    }

    #[test]
    fn words_that_make_no_sense_are_not_believed() {
        let recording = Recording::create(1).unwrap();
        let chunk = recording.claim_chunk(owner(1), 0).unwrap();
        chunk.push(Sample { function: 200, ..Sample::default() });
        chunk.push(Sample { start: 9, end: 3, file: 77, ..Sample::default() });
        chunk.header().used.store(u32::MAX, Relaxed);
        let run = recording.read();
        assert_eq!((run.calls[0].start, run.calls[0].end, run.calls[0].file), (9, 9, 0));
        assert!(Recording::open(c"/proc/self/exe").is_err() && Recording::open(c"/no/such").is_err());
    }
}
