//! Opens files, FIFOs and devices. Called by the endpoints that are files.

use super::File;
use crate::control::Control;
use crate::end::{
    DescriptorSink, DescriptorSource, NewFile, ReadBehind, SinkSettings, kind_of, size_of, stat_endpoint,
};
use crate::error::Error;
use crate::facts::Kind;
use rustix::event::PollFlags;
use rustix::fs::{Mode, OFlags, Stat};
use rustix::io::Errno;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

/// Permissions of a new file before the umask, if the source has none.
const MODE: u32 = 0o666;
/// Mode bits that a copy takes from its source. The set-user-ID and set-group-ID bits are not among them,
/// since the copy may belong to another user.
const PERMISSIONS: u32 = 0o777;
/// Mode bits that a new file takes from the file that it replaces, if it also takes the owner.
const PERMISSIONS_AND_IDENTITY: u32 = 0o7777;
/// Interval between attempts to open a FIFO that has no reader yet.
const READER_CHECK_INTERVAL: Duration = Duration::from_millis(10);

/// Opens a file, FIFO or device to be read, and waits for a FIFO's first writer.
///
/// # Errors
/// [`Error::Io`] if it cannot be opened; [`Error::Usage`] if it is a folder or a socket, the range exceeds
/// its size, or a stream is given a range; [`Error::Cancelled`] if the flow is cancelled.
pub(super) fn source(file: &File, name: &str, control: &Control) -> Result<DescriptorSource, Error> {
    let failed = |error: Errno| Error::io(format!("open {name}"), error);
    let Some(stat) = stat_endpoint(&file.path, name)? else { return Err(failed(Errno::NOENT)) };
    let kind = kind_of(&stat);
    let waits = if kind == Kind::Pipe { OFlags::NONBLOCK } else { OFlags::empty() };
    let descriptor = rustix::fs::open(
        &file.path,
        OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY | waits,
        Mode::empty(),
    )
    .map_err(failed)?;
    if kind == Kind::Pipe {
        // A FIFO without a writer reads as ended.
        control.wait(descriptor.as_fd(), PollFlags::IN, None)?;
    }
    let mut source = DescriptorSource::from_storage(descriptor, name, 0).map_err(failed)?;
    source.may_block = kind == Kind::Device;
    if let Some(end) = source.end {
        let from = file.offset.unwrap_or(0);
        let to = file.length.map_or(end, |length| from.saturating_add(length));
        if from > end || to > end {
            return Err(Error::Usage(format!("{name}: there are only {end} bytes in it")));
        }
        (source.position, source.end) = (Some(from), Some(to));
        source.read_behind = file.nocache.then(|| ReadBehind::new(from));
    } else if file.offset.is_some() || file.length.is_some() {
        return Err(Error::Usage(format!(
            "{name}: offset and length are for files and block devices; use limit:SIZE"
        )));
    }
    Ok(source)
}

/// Opens a file, FIFO or device to be written.
///
/// # Errors
/// [`Error::Io`] if it cannot be opened or created, or a block device has too little room; [`Error::Usage`]
/// if it is a folder or a socket, or the options do not fit its kind; [`Error::Cancelled`] if the flow is
/// cancelled.
pub(super) fn sink(
    file: &File,
    name: &str,
    settings: &SinkSettings,
    control: &Control,
) -> Result<DescriptorSink, Error> {
    let failed = |error: Errno| Error::io(format!("open {name}"), error);
    let settings = &SinkSettings {
        write_behind_after: if file.nocache { Some(0) } else { settings.write_behind_after },
        ..settings.clone()
    };
    let there = stat_endpoint(&file.path, name)?;
    let kind = there.as_ref().map_or(Kind::File, kind_of);
    if kind != Kind::File && (file.append || file.exclusive) {
        return Err(Error::Usage(format!("{name} is no file: it cannot be appended to, nor be made")));
    }
    match kind {
        Kind::File if file.append => {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::APPEND | OFlags::CLOEXEC;
            let descriptor = rustix::fs::open(&file.path, flags, mode(file, settings)).map_err(failed)?;
            Ok(DescriptorSink::new(descriptor, name, kind, None, settings))
        }
        Kind::File if file.in_place || file.offset.is_some() => {
            // Opened readable like a new file, although no mover reads the sink.
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC;
            let descriptor = rustix::fs::open(&file.path, flags, mode(file, settings)).map_err(failed)?;
            let mut sink =
                DescriptorSink::new(descriptor, name, kind, Some(file.offset.unwrap_or(0)), settings);
            sink.truncates = file.offset.is_none();
            sink.dense = file.dense;
            Ok(sink)
        }
        Kind::File => replace(file, name, there.as_ref(), settings),
        Kind::Block => {
            // O_EXCL refuses a device that is mounted or otherwise in use.
            let flags = OFlags::RDWR | OFlags::EXCL | OFlags::CLOEXEC;
            let descriptor = rustix::fs::open(&file.path, flags, Mode::empty()).map_err(failed)?;
            let stat = rustix::fs::fstat(&descriptor).map_err(failed)?;
            let end = size_of(descriptor.as_fd(), &stat).map_err(failed)?;
            let mut sink =
                DescriptorSink::new(descriptor, name, kind, Some(file.offset.unwrap_or(0)), settings);
            let from = file.offset.unwrap_or(0);
            let end = file.length.map_or(end, |length| end.min(from.saturating_add(length)));
            has_room(end.saturating_sub(from), name, settings)?;
            sink.end = Some(end);
            Ok(sink)
        }
        Kind::Pipe => {
            let descriptor = pipe_with_reader(&file.path, control)?.map_err(failed)?;
            Ok(DescriptorSink::new(descriptor, name, kind, None, settings))
        }
        _ => {
            let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOCTTY;
            let descriptor = rustix::fs::open(&file.path, flags, Mode::empty()).map_err(failed)?;
            let mut sink = DescriptorSink::new(descriptor, name, kind, None, settings);
            sink.may_block = kind == Kind::Device;
            Ok(sink)
        }
    }
}

/// Checks that the data will fit into the `room` bytes of a block device, before anything on it is
/// overwritten.
///
/// # Errors
/// [`Error::Io`] with ENOSPC if more bytes are known to arrive.
fn has_room(room: u64, name: &str, settings: &SinkSettings) -> Result<(), Error> {
    match settings.bytes {
        Some(bytes) if bytes > room => {
            let what =
                format!("write {bytes} bytes to {name}, which has room for {room} and was left as it is");
            Err(Error::io(what, Errno::NOSPC))
        }
        _ => Ok(()),
    }
}

/// Creates a new file that will replace the one at the path, if there is one.
///
/// # Errors
/// [`Error::Io`] if the file exists and must not, or cannot be created or given its permissions.
fn replace(
    file: &File,
    name: &str,
    there: Option<&Stat>,
    settings: &SinkSettings,
) -> Result<DescriptorSink, Error> {
    if file.exclusive && there.is_some() {
        return Err(Error::io(format!("make {name}"), Errno::EXIST));
    }
    let (descriptor, new_file) = NewFile::create(&file.path, mode(file, settings), file.exclusive)?;
    if let Some(there) = there.filter(|_| file.mode.is_none()) {
        // The new file takes the permissions of the old one, and also its owner if this process may set it.
        let (owner, group) =
            (rustix::fs::Uid::from_raw(there.st_uid), rustix::fs::Gid::from_raw(there.st_gid));
        let is_theirs = rustix::fs::fchown(&descriptor, Some(owner), Some(group)).is_ok();
        // A set-user-ID bit must not be copied if the new file belongs to another user than the old one.
        let kept = if is_theirs { PERMISSIONS_AND_IDENTITY } else { PERMISSIONS };
        rustix::fs::fchmod(&descriptor, Mode::from_raw_mode(there.st_mode & kept))
            .map_err(|error| Error::io(format!("set the permissions of {name}"), error))?;
    }
    let mut sink = DescriptorSink::new(descriptor, name, Kind::File, Some(0), settings);
    sink.dense = file.dense;
    sink.new_file = Some(new_file);
    Ok(sink)
}

fn mode(file: &File, settings: &SinkSettings) -> Mode {
    let of_source = settings.source_mode.map(|mode| mode & PERMISSIONS);
    Mode::from_raw_mode(file.mode.or(of_source).unwrap_or(MODE))
}

/// Opens a FIFO to be written, as soon as it has a reader. The inner result is that of open(2).
fn pipe_with_reader(path: &Path, control: &Control) -> Result<Result<OwnedFd, Errno>, Error> {
    let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    loop {
        match rustix::fs::open(path, flags, Mode::empty()) {
            Err(Errno::NXIO) => control.sleep_until(Instant::now() + READER_CHECK_INTERVAL)?,
            other => return Ok(other),
        }
    }
}
