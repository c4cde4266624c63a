//! Opening what has a name in the file system, and standard input and output.

use super::behind::{Behind, Trail};
use super::reading::Reading;
use super::target::Target;
use super::writing::Writing;
use crate::control::Control;
use crate::datagram::Rate;
use crate::error::Error;
use crate::facts::Kind;
use crate::plan::Mover;
use crate::spec::File;
use rustix::event::PollFlags;
use rustix::fs::{FileType, Mode, OFlags, SeekFrom, Stat};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::path::Path;
use std::time::{Duration, Instant};

/// Permissions of a new file, before the process's mask, where the source has none to give.
const MODE: u32 = 0o666;
/// What a source has to give: not that whoever runs it becomes the owner of a copy.
const PERMISSIONS: u32 = 0o777;
/// What a file keeps that is replaced.
const PERMISSIONS_AND_IDENTITY: u32 = 0o7777;
/// So often a pipe without a reader is tried again.
const READER_LOOK: Duration = Duration::from_millis(10);

/// How a sink is written, beyond its own options.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Manner {
    /// Bytes that will come, where that is known beforehand.
    pub(crate) bytes: Option<u64>,
    /// Permissions of the source.
    pub(crate) source_mode: Option<u32>,
    /// It is to be on the device in the end.
    pub(crate) sync: bool,
    /// Pieces of zeros are left out.
    pub(crate) skips_zeros: bool,
    /// Datagrams go by this engine and no other.
    pub(crate) via: Option<Mover>,
    /// How fast datagrams are sent.
    pub(crate) rate: Rate,
    /// What was written goes out of the page cache after so many bytes; none: it stays.
    pub(crate) behind_after: Option<u64>,
}

/// What the file system has under a name, or a descriptor is.
pub(crate) fn kind_of(stat: &Stat) -> Kind {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Kind::File,
        FileType::BlockDevice => Kind::Block,
        FileType::Fifo => Kind::Pipe,
        FileType::Socket => Kind::Stream,
        FileType::CharacterDevice if is_null(stat) => Kind::Nowhere,
        _ => Kind::Device,
    }
}

fn is_null(stat: &Stat) -> bool {
    (rustix::fs::major(stat.st_rdev), rustix::fs::minor(stat.st_rdev)) == (1, 3)
}

/// What is under `path`; none: nothing.
///
/// # Errors
/// That it is nothing that data can be in.
pub(crate) fn standing(path: &Path, name: &str) -> Result<Option<Stat>, Error> {
    match rustix::fs::stat(path) {
        Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Directory => {
            Err(Error::Usage(format!("{name} is a folder: name a file in it")))
        }
        Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Socket => {
            Err(Error::Usage(format!("{name} is a socket: write unix:{}", path.display())))
        }
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(Error::io(format!("look at {name}"), error)),
    }
}

/// The size of a file or of a block device.
pub(crate) fn size_of(descriptor: BorrowedFd<'_>, stat: &Stat) -> Result<u64, Errno> {
    match kind_of(stat) {
        Kind::Block => {
            let here = rustix::fs::seek(descriptor, SeekFrom::Current(0))?;
            let end = rustix::fs::seek(descriptor, SeekFrom::End(0))?;
            rustix::fs::seek(descriptor, SeekFrom::Start(here))?;
            Ok(end)
        }
        _ => Ok(stat.st_size as u64),
    }
}

/// Opens `file` to be read.
pub(crate) fn open_source(file: &File, name: &str, control: &Control) -> Result<Reading, Error> {
    let failed = |error: Errno| Error::io(format!("open {name}"), error);
    let Some(stat) = standing(&file.path, name)? else { return Err(failed(Errno::NOENT)) };
    let kind = kind_of(&stat);
    let waits = if kind == Kind::Pipe { OFlags::NONBLOCK } else { OFlags::empty() };
    let descriptor = rustix::fs::open(
        &file.path,
        OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY | waits,
        Mode::empty(),
    )
    .map_err(failed)?;
    if kind == Kind::Pipe {
        // Before somebody writes it looks as if it had ended.
        control.wait(descriptor.as_fd(), PollFlags::IN, None)?;
    }
    let mut reading = of_descriptor(descriptor, name, 0).map_err(failed)?;
    reading.may_block = kind == Kind::Device;
    if let Some(end) = reading.end {
        let from = file.offset.unwrap_or(0);
        let to = file.length.map_or(end, |length| from.saturating_add(length));
        if from > end || to > end {
            return Err(Error::Usage(format!("{name}: there are only {end} bytes in it")));
        }
        (reading.position, reading.end) = (Some(from), Some(to));
        reading.trail = file.nocache.then(|| Trail::new(from));
    } else if file.offset.is_some() || file.length.is_some() {
        return Err(Error::Usage(format!(
            "{name}: offset and length are for files and block devices; use limit:SIZE"
        )));
    }
    Ok(reading)
}

/// What is known of a descriptor that is to be read from `position` on.
fn of_descriptor(descriptor: OwnedFd, name: &str, position: u64) -> Result<Reading, Errno> {
    let stat = rustix::fs::fstat(&descriptor)?;
    let kind = kind_of(&stat);
    let end = kind.is_storage().then(|| size_of(descriptor.as_fd(), &stat)).transpose()?;
    // Files of procfs and sysfs have no size, and are read to their end like streams.
    let has_size = end.is_some_and(|end| end > 0 || kind == Kind::Block);
    let kind = if kind == Kind::File && !has_size { Kind::Device } else { kind };
    Ok(Reading {
        descriptor,
        name: name.into(),
        kind,
        position: has_size.then_some(position),
        end: end.filter(|_| has_size),
        trail: None,
        may_block: false,
        tells_position: false,
        connection: None,
        taken: 0,
    })
}

/// Standard input.
pub(crate) fn standard_input() -> Result<Reading, Error> {
    let name = "standard input";
    let failed = |error: Errno| Error::io(format!("open {name}"), error);
    let (descriptor, kind, may_block) = standard(0, OFlags::RDONLY).map_err(failed)?;
    let position = if kind.is_storage() {
        rustix::fs::seek(&descriptor, SeekFrom::Current(0)).map_err(failed)?
    } else {
        0
    };
    let mut reading = of_descriptor(descriptor, name, position).map_err(failed)?;
    (reading.may_block, reading.tells_position) = (may_block, reading.position.is_some());
    Ok(reading)
}

/// Standard output.
pub(crate) fn standard_output(manner: &Manner) -> Result<Writing, Error> {
    let name = "standard output";
    let failed = |error: Errno| Error::io(format!("open {name}"), error);
    let (descriptor, kind, may_block) = standard(1, OFlags::WRONLY).map_err(failed)?;
    let flags = rustix::fs::fcntl_getfl(&descriptor).map_err(failed)?;
    let positioned = kind.is_storage() && !flags.contains(OFlags::APPEND);
    let position = positioned
        .then(|| rustix::fs::seek(&descriptor, SeekFrom::Current(0)))
        .transpose()
        .map_err(failed)?;
    let mut writing = written(descriptor, name, kind, position, manner);
    (writing.may_block, writing.tells_position) = (may_block, positioned);
    Ok(writing)
}

/// A descriptor of ours for one that was inherited, what it is, and whether calls with it may wait.
fn standard(number: RawFd, access: OFlags) -> Result<(OwnedFd, Kind, bool), Errno> {
    // SAFETY: it is borrowed for the two calls below; if it is closed, they say so.
    let inherited = unsafe { BorrowedFd::borrow_raw(number) };
    let stat = rustix::fs::fstat(inherited)?;
    let kind = kind_of(&stat);
    if kind == Kind::Pipe {
        // One that does not wait, without a change to what others have.
        let again = format!("/proc/self/fd/{number}");
        let flags = access | OFlags::NONBLOCK | OFlags::CLOEXEC;
        if let Ok(descriptor) = rustix::fs::open(again, flags, Mode::empty()) {
            return Ok((descriptor, kind, false));
        }
    }
    let descriptor = rustix::io::fcntl_dupfd_cloexec(inherited, 3)?;
    Ok((descriptor, kind, !kind.is_storage()))
}

/// Opens `file` to be written.
pub(crate) fn open_sink(
    file: &File,
    name: &str,
    manner: &Manner,
    control: &Control,
) -> Result<Writing, Error> {
    let failed = |error: Errno| Error::io(format!("open {name}"), error);
    let manner =
        &Manner { behind_after: if file.nocache { Some(0) } else { manner.behind_after }, ..*manner };
    let there = standing(&file.path, name)?;
    let kind = there.as_ref().map_or(Kind::File, kind_of);
    if kind != Kind::File && (file.append || file.exclusive) {
        return Err(Error::Usage(format!("{name} is no file: it cannot be appended to, nor be made")));
    }
    match kind {
        Kind::File if file.append => {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::APPEND | OFlags::CLOEXEC;
            let descriptor = rustix::fs::open(&file.path, flags, mode(file, manner)).map_err(failed)?;
            Ok(written(descriptor, name, kind, None, manner))
        }
        Kind::File if file.in_place || file.offset.is_some() => {
            // To be read too: what is shared with the source is found out so.
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC;
            let descriptor = rustix::fs::open(&file.path, flags, mode(file, manner)).map_err(failed)?;
            let mut writing = written(descriptor, name, kind, Some(file.offset.unwrap_or(0)), manner);
            writing.cuts = file.offset.is_none();
            writing.dense = file.dense;
            Ok(writing)
        }
        Kind::File => replace(file, name, there.as_ref(), manner),
        Kind::Block => {
            // Exclusively: not what is mounted or otherwise in use.
            let flags = OFlags::RDWR | OFlags::EXCL | OFlags::CLOEXEC;
            let descriptor = rustix::fs::open(&file.path, flags, Mode::empty()).map_err(failed)?;
            let stat = rustix::fs::fstat(&descriptor).map_err(failed)?;
            let end = size_of(descriptor.as_fd(), &stat).map_err(failed)?;
            let mut writing = written(descriptor, name, kind, Some(file.offset.unwrap_or(0)), manner);
            let from = file.offset.unwrap_or(0);
            let end = file.length.map_or(end, |length| end.min(from.saturating_add(length)));
            has_room(end.saturating_sub(from), name, manner)?;
            writing.end = Some(end);
            Ok(writing)
        }
        Kind::Pipe => {
            let descriptor = pipe_with_reader(&file.path, control)?.map_err(failed)?;
            Ok(written(descriptor, name, kind, None, manner))
        }
        _ => {
            let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOCTTY;
            let descriptor = rustix::fs::open(&file.path, flags, Mode::empty()).map_err(failed)?;
            let mut writing = written(descriptor, name, kind, None, manner);
            writing.may_block = kind == Kind::Device;
            Ok(writing)
        }
    }
}

/// # Errors
/// ENOSPC if more bytes are known to come than there is room for: what is on a device is not destroyed for a flow that
/// cannot succeed.
fn has_room(room: u64, name: &str, manner: &Manner) -> Result<(), Error> {
    match manner.bytes {
        Some(bytes) if bytes > room => {
            let what =
                format!("write {bytes} bytes to {name}, which has room for {room} and was left as it is");
            Err(Error::io(what, Errno::NOSPC))
        }
        _ => Ok(()),
    }
}

/// A new file that takes the place of one that may be there.
fn replace(file: &File, name: &str, there: Option<&Stat>, manner: &Manner) -> Result<Writing, Error> {
    if file.exclusive && there.is_some() {
        return Err(Error::io(format!("make {name}"), Errno::EXIST));
    }
    let (descriptor, target) = Target::create(&file.path, mode(file, manner), file.exclusive)?;
    if let Some(there) = there.filter(|_| file.mode.is_none()) {
        // What may be done with the file stays as it was; to whom it belongs, where we may say so.
        let (owner, group) =
            (rustix::fs::Uid::from_raw(there.st_uid), rustix::fs::Gid::from_raw(there.st_gid));
        let is_theirs = rustix::fs::fchown(&descriptor, Some(owner), Some(group)).is_ok();
        // A file that is somebody else's now does not make whoever runs it that somebody.
        let kept = if is_theirs { PERMISSIONS_AND_IDENTITY } else { PERMISSIONS };
        rustix::fs::fchmod(&descriptor, Mode::from_raw_mode(there.st_mode & kept))
            .map_err(|error| Error::io(format!("set the permissions of {name}"), error))?;
    }
    let mut writing = written(descriptor, name, Kind::File, Some(0), manner);
    writing.dense = file.dense;
    writing.target = Some(target);
    Ok(writing)
}

fn mode(file: &File, manner: &Manner) -> Mode {
    let of_source = manner.source_mode.map(|mode| mode & PERMISSIONS);
    Mode::from_raw_mode(file.mode.or(of_source).unwrap_or(MODE))
}

/// A pipe with a name can be opened when somebody reads it.
fn pipe_with_reader(path: &Path, control: &Control) -> Result<Result<OwnedFd, Errno>, Error> {
    let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    loop {
        match rustix::fs::open(path, flags, Mode::empty()) {
            Err(Errno::NXIO) => control.sleep_until(Instant::now() + READER_LOOK)?,
            other => return Ok(other),
        }
    }
}

/// A sink as it is, but for what one kind of it has beyond that.
pub(crate) fn written(
    descriptor: OwnedFd,
    name: &str,
    kind: Kind,
    position: Option<u64>,
    manner: &Manner,
) -> Writing {
    let behind = position.zip(manner.behind_after).map(|(position, grace)| Behind::new(position, grace));
    Writing {
        descriptor,
        name: name.into(),
        kind,
        position,
        end: None,
        may_block: false,
        tells_position: false,
        dense: false,
        skips_zeros: manner.skips_zeros,
        cuts: false,
        sync: manner.sync,
        behind,
        target: None,
        connection: None,
    }
}
