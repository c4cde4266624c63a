//! Calls made again: a script of calls on files, and a process of its own that makes them and times each.
//!
//! `bywash plan record` and `predict` write scripts and run them with a library preloaded and without. The
//! process is this command with the hidden subcommand `plan repeat`; it reads the whole script and makes its
//! stand-ins before the first call, and prints JSON. A stand-in is a file whose bytes are not zero, for files that
//! a program wrote or that are gone. It has a name only where a commit log needs one.

use super::words::{json, print};
use crate::cli::plan::RepeatArgs;
use crate::error::Failure;
use crate::plan::measure::failed;
use bywash_session::recording::ticks;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

/// Greatest size of a call that is made again; larger ones are cut.
pub const LENGTH_MAX: u32 = 1 << 24;
/// Time of a read, write or seek from which on the process must have been preempted, in seconds.
const PREEMPTED: f64 = 1e-3;
/// Bytes over which the buffers of consecutive calls are spread, as those of programs are.
const BUFFERS: usize = 1 << 20;

/// Number of calls, and the time that they took.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Class {
    /// Number of calls.
    pub count: u64,
    /// Time of all of them, in seconds.
    pub seconds: f64,
    /// Calls during which another program had the processor, which are neither counted nor timed.
    pub preempted: u64,
}

/// Times of a script's calls, by class.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct Repetition {
    /// Reads at an offset.
    pub read_at: Class,
    /// Reads at the position.
    pub read: Class,
    /// Writes at an offset.
    pub write_at: Class,
    /// Writes at the position.
    pub write: Class,
    /// `lseek`.
    pub seek: Class,
    /// Openings.
    pub open: Class,
    /// `fsync`.
    pub sync: Class,
    /// `fdatasync`.
    pub sync_data: Class,
    /// Closings.
    pub close: Class,
    /// End of the process, which closes what is open.
    pub end: Class,
}

/// A script that is being written.
pub struct Script {
    file: BufWriter<tempfile::NamedTempFile>,
}

/// A script that can be run.
pub struct FinishedScript(tempfile::TempPath);

impl Script {
    /// Creates an empty script, in a temporary file.
    ///
    /// # Errors
    /// Those of creating the file.
    pub fn new() -> io::Result<Script> {
        Ok(Script { file: BufWriter::new(tempfile::NamedTempFile::new()?) })
    }

    /// Adds the opening of a file as number `slot`.
    ///
    /// # Errors
    /// Those of writing the script.
    pub fn open(&mut self, slot: u32, path: &Path, writes: bool) -> io::Result<()> {
        write!(self.file, "open {slot} {} ", u8::from(writes))?;
        self.file.write_all(path.as_os_str().as_bytes())?;
        self.file.write_all(b"\n")
    }

    /// Adds the stand-in `number` of `size` bytes in `folder`, which is made before the first call, with a name or
    /// without.
    ///
    /// # Errors
    /// Those of writing the script.
    pub fn stand_in(&mut self, number: u32, size: u64, folder: &Path, is_named: bool) -> io::Result<()> {
        let step = if is_named { "make-named" } else { "make" };
        write!(self.file, "{step} {number} {size} ")?;
        self.file.write_all(folder.as_os_str().as_bytes())?;
        self.file.write_all(b"\n")
    }

    /// Adds the opening of the stand-in `number` as number `slot`.
    ///
    /// # Errors
    /// Those of writing the script.
    pub fn open_stand_in(&mut self, slot: u32, number: u32) -> io::Result<()> {
        writeln!(self.file, "made {slot} {number}")
    }

    /// Adds a read of `length` bytes at `offset`.
    ///
    /// # Errors
    /// Those of writing the script.
    pub fn read_at(&mut self, slot: u32, offset: u64, length: u32) -> io::Result<()> {
        writeln!(self.file, "read-at {slot} {length} {offset}")
    }

    /// Adds any other call: `read`, `write`, `write-at`, `seek`, `sync`, `sync-data` or `close`.
    ///
    /// # Errors
    /// Those of writing the script.
    pub fn call(&mut self, name: &str, slot: u32, length: u32, offset: u64) -> io::Result<()> {
        writeln!(self.file, "{name} {slot} {length} {offset}")
    }

    /// Ends the script.
    ///
    /// # Errors
    /// Those of writing the script.
    pub fn finish(self) -> io::Result<FinishedScript> {
        Ok(FinishedScript(self.file.into_inner().map_err(io::IntoInnerError::into_error)?.into_temp_path()))
    }
}

/// Surroundings in which the calls of a script are made.
pub enum Side<'a> {
    /// The kernel alone.
    Kernel,
    /// A library that is preloaded, and a variable of the environment that it reads, with its value.
    Preloaded(&'a Path, Option<(&'static str, OsString)>),
    /// A launcher with its arguments.
    Launched(&'a [OsString]),
}

impl FinishedScript {
    /// Makes the calls once, in a new process.
    ///
    /// # Errors
    /// Those of starting the process, or what it said.
    pub fn repeat(&self, side: &Side<'_>) -> io::Result<Repetition> {
        let own = std::env::current_exe()?;
        let mut command = match side {
            Side::Launched([launcher, words @ ..]) => {
                let mut command = Command::new(launcher);
                command.args(words).arg(own);
                command
            }
            _ => Command::new(own),
        };
        command.args(["plan", "repeat"]).arg(&self.0).stdin(Stdio::null()).env_remove("LD_PRELOAD");
        if let Side::Preloaded(library, variable) = side {
            command.env("LD_PRELOAD", library).envs(variable.clone());
        }
        let output = command.output()?;
        if !output.status.success() {
            return Err(io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned()));
        }
        serde_json::from_slice(&output.stdout).map_err(io::Error::other)
    }
}

/// One call of a script.
enum Step {
    Open { slot: usize, writes: bool, path: PathBuf },
    OpenStandIn { slot: usize, number: usize },
    ReadAt { slot: usize, length: usize, offset: u64 },
    Read { slot: usize, length: usize },
    WriteAt { slot: usize, length: usize, offset: u64 },
    Write { slot: usize, length: usize },
    Seek { slot: usize, offset: u64 },
    Sync { slot: usize },
    SyncData { slot: usize },
    Close { slot: usize },
}

/// Makes the calls of a script, and prints their times.
///
/// # Errors
/// [`Failure::Measure`] if the script cannot be read or a stand-in cannot be made.
pub fn main(arguments: &RepeatArgs) -> Result<i32, Failure> {
    let times = repeat(&arguments.script).map_err(failed("calls that are made again"))?;
    print(&json(&times))
}

fn repeat(script: &Path) -> io::Result<Repetition> {
    let mut files = Files::default();
    let steps = parse(script, &mut files)?;
    let tick = {
        let (begin, first) = (Instant::now(), ticks());
        std::thread::sleep(std::time::Duration::from_millis(10));
        begin.elapsed().as_secs_f64() / (ticks().wrapping_sub(first) as f64).max(1.0)
    };
    let mut buffer = vec![1u8; BUFFERS + LENGTH_MAX as usize];
    let mut at = 0;
    let mut times = Repetition::default();
    for step in &steps {
        let length = match step {
            Step::ReadAt { length, .. }
            | Step::Read { length, .. }
            | Step::WriteAt { length, .. }
            | Step::Write { length, .. } => *length,
            _ => 0,
        };
        at = if at + length > BUFFERS { 0 } else { at };
        let bytes = &mut buffer[at..at + length];
        at += length.next_multiple_of(64);
        let begin = ticks();
        // A call that fails here has succeeded in the program; it takes its time all the same.
        let _ = files.make(step, bytes);
        let spent = ticks().wrapping_sub(begin) as f64 * tick;
        let class = times.class(step);
        // Longer than any read, write or warming of the library takes: another program had the processor.
        let was_preempted = spent > PREEMPTED
            && !matches!(
                step,
                Step::Open { .. }
                    | Step::OpenStandIn { .. }
                    | Step::Sync { .. }
                    | Step::SyncData { .. }
                    | Step::Close { .. }
            );
        if was_preempted {
            class.preempted += 1;
        } else {
            class.count += 1;
            class.seconds += spent;
        }
    }
    let begin = ticks();
    files.open.clear();
    times.end = Class { count: 1, seconds: ticks().wrapping_sub(begin) as f64 * tick, preempted: 0 };
    Ok(times)
}

impl Repetition {
    fn class(&mut self, step: &Step) -> &mut Class {
        match step {
            Step::Open { .. } | Step::OpenStandIn { .. } => &mut self.open,
            Step::ReadAt { .. } => &mut self.read_at,
            Step::Read { .. } => &mut self.read,
            Step::WriteAt { .. } => &mut self.write_at,
            Step::Write { .. } => &mut self.write,
            Step::Seek { .. } => &mut self.seek,
            Step::Sync { .. } => &mut self.sync,
            Step::SyncData { .. } => &mut self.sync_data,
            Step::Close { .. } => &mut self.close,
        }
    }
}

/// Open files of a script, and its stand-ins, by number.
#[derive(Default)]
struct Files {
    open: Vec<Option<File>>,
    stand_ins: Vec<Option<StandIn>>,
}

/// File that stands for another until the end of the script.
struct StandIn {
    path: PathBuf,
    /// Descriptor that keeps a file without a name.
    _file: File,
    /// Name, which goes away with this.
    _name: Option<tempfile::TempPath>,
}

impl Files {
    /// Makes a call; returns the number of bytes that it moved.
    fn make(&mut self, step: &Step, bytes: &mut [u8]) -> io::Result<usize> {
        let none = || io::Error::from(io::ErrorKind::NotFound);
        match step {
            Step::Open { slot, writes, path } => {
                let file = OpenOptions::new().read(true).write(*writes).open(path)?;
                self.open[*slot] = Some(file);
            }
            Step::OpenStandIn { slot, number } => {
                let there = self.stand_ins.get(*number).and_then(Option::as_ref).ok_or_else(none)?;
                self.open[*slot] = Some(OpenOptions::new().read(true).write(true).open(&there.path)?);
            }
            Step::ReadAt { slot, offset, .. } => {
                return self.file(*slot).ok_or_else(none)?.read_at(bytes, *offset);
            }
            Step::Read { slot, .. } => {
                return self.file(*slot).ok_or_else(none)?.read(bytes);
            }
            Step::WriteAt { slot, offset, .. } => {
                return self.file(*slot).ok_or_else(none)?.write_at(bytes, *offset);
            }
            Step::Write { slot, .. } => {
                return self.file(*slot).ok_or_else(none)?.write(bytes);
            }
            Step::Seek { slot, offset } => {
                self.file(*slot).ok_or_else(none)?.seek(SeekFrom::Start(*offset))?;
            }
            Step::Sync { slot } => self.file(*slot).ok_or_else(none)?.sync_all()?,
            Step::SyncData { slot } => self.file(*slot).ok_or_else(none)?.sync_data()?,
            Step::Close { slot } => drop(self.open[*slot].take()),
        }
        Ok(0)
    }

    fn file(&mut self, slot: usize) -> Option<&mut File> {
        self.open[slot].as_mut()
    }

    /// Makes a stand-in of `size` bytes that are not zero.
    fn stand_in(&mut self, slot: usize, size: u64, folder: &Path, is_named: bool) -> io::Result<()> {
        let (file, name) = if is_named {
            let (file, name) =
                tempfile::Builder::new().prefix(".bywash-plan-").tempfile_in(folder)?.into_parts();
            (file, Some(name))
        } else {
            (tempfile::tempfile_in(folder)?, None)
        };
        let block = vec![1u8; 1 << 20];
        let mut offset = 0;
        while offset < size {
            let length = (size - offset).min(block.len() as u64) as usize;
            file.write_all_at(&block[..length], offset)?;
            offset += length as u64;
        }
        let path = match &name {
            Some(name) => name.to_path_buf(),
            None => PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd())),
        };
        self.stand_ins[slot] = Some(StandIn { path, _file: file, _name: name });
        Ok(())
    }
}

/// Greatest number of files of a script.
pub const SLOTS_MAX: u32 = 200_000;

fn parse(script: &Path, files: &mut Files) -> io::Result<Vec<Step>> {
    let mut steps = Vec::new();
    let mut reader = BufReader::new(File::open(script)?);
    let mut line = Vec::new();
    loop {
        line.clear();
        if reader.read_until(b'\n', &mut line)? == 0 {
            return Ok(steps);
        }
        let wrong = || io::Error::other(format!("'{}' is no step", String::from_utf8_lossy(&line)));
        let mut words = line.strip_suffix(b"\n").unwrap_or(&line).splitn(4, |byte| *byte == b' ');
        let mut word = || words.next().ok_or_else(wrong);
        let number = |text: &[u8]| {
            std::str::from_utf8(text).ok().and_then(|text| text.parse::<u64>().ok()).ok_or_else(wrong)
        };
        let name = word()?.to_vec();
        let slot = usize::try_from(number(word()?)?.min(SLOTS_MAX.into())).map_err(io::Error::other)?;
        if files.open.len() <= slot {
            files.open.resize_with(slot + 1, || None);
            files.stand_ins.resize_with(slot + 1, || None);
        }
        let path = |bytes: &[u8]| PathBuf::from(OsString::from_vec(bytes.to_vec()));
        let step = match name.as_slice() {
            b"open" => Step::Open { slot, writes: number(word()?)? != 0, path: path(word()?) },
            b"make" | b"make-named" => {
                let size = number(word()?)?;
                files.stand_in(slot, size, &path(word()?), name == b"make-named")?;
                continue;
            }
            b"made" => Step::OpenStandIn { slot, number: number(word()?)? as usize },
            _ => {
                let length = number(word()?)?.min(LENGTH_MAX.into()) as usize;
                let offset = number(word()?)?;
                match name.as_slice() {
                    b"read-at" => Step::ReadAt { slot, length, offset },
                    b"read" => Step::Read { slot, length },
                    b"write-at" => Step::WriteAt { slot, length, offset },
                    b"write" => Step::Write { slot, length },
                    b"seek" => Step::Seek { slot, offset },
                    b"sync" => Step::Sync { slot },
                    b"sync-data" => Step::SyncData { slot },
                    b"close" => Step::Close { slot },
                    _ => return Err(wrong()),
                }
            }
        };
        steps.push(step);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_is_made_call_by_call() {
        let folder = tempfile::tempdir().unwrap();
        let mut script = Script::new().unwrap();
        let path = folder.path().join("with space");
        std::fs::write(&path, "abc").unwrap();
        script.open(0, &path, false).unwrap();
        script.read_at(0, 1, 2).unwrap();
        script.call("read", 0, 10, 0).unwrap();
        script.call("seek", 0, 0, 1).unwrap();
        script.call("close", 0, 0, 0).unwrap();
        script.stand_in(0, 5000, folder.path(), false).unwrap();
        script.stand_in(1, 10, folder.path(), true).unwrap();
        script.open_stand_in(1, 0).unwrap();
        script.open_stand_in(2, 1).unwrap();
        script.call("write-at", 1, 100, 5000).unwrap();
        script.call("write", 2, 7, 0).unwrap();
        script.call("sync", 2, 0, 0).unwrap();
        script.call("sync-data", 1, 0, 0).unwrap();
        let script = script.finish().unwrap();
        let times = repeat(&script.0).unwrap();
        let counts = [
            times.open,
            times.read_at,
            times.read,
            times.seek,
            times.close,
            times.write_at,
            times.write,
            times.sync,
            times.sync_data,
        ];
        assert_eq!(counts.map(|class| class.count + class.preempted), [3, 1, 1, 1, 1, 1, 1, 1, 1]);
        assert!(counts.iter().all(|class| class.preempted > 0 || class.seconds > 0.0));
        let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
        assert_eq!(left.len(), 1, "stand-ins are gone, also those that had a name");
    }

    #[test]
    fn a_line_that_is_no_step_is_named() {
        let folder = tempfile::tempdir().unwrap();
        for line in ["jump 0 0 0", "read 0", "read-at x 1 1"] {
            let path = folder.path().join("script");
            std::fs::write(&path, format!("{line}\n")).unwrap();
            let said = repeat(&path).unwrap_err().to_string();
            assert!(said.contains(line) && said.contains("is no step"), "{said}");
        }
    }
}
