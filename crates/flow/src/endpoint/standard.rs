//! `-`: standard input or output.

use super::file::{file_system, opened_source};
use super::{Endpoint, EndpointKind, EndpointType, OpenContext};
use crate::end::{DescriptorSink, DescriptorSource, OpenedStream, Sink, SinkSettings, Source, kind_of};
use crate::error::Error;
use crate::facts::{End, Kind};
use bywash_options::Row;
use rustix::fs::{Mode, OFlags, SeekFrom};
use rustix::io::Errno;
use std::fmt;
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};

/// Standard input as a source, standard output as a sink.
#[derive(Clone, Copy, Debug)]
struct Standard;

pub(super) static KIND: EndpointKind = EndpointKind {
    row: Row { name: "-", address: "", sentence: "standard input, standard output", options: &[] },
    parse: |words| {
        words.check_all_taken()?;
        words.no_address()?;
        Ok(Endpoint::new(Standard))
    },
};

impl EndpointType for Standard {
    fn inspect_source(&self) -> Result<End, Error> {
        // SAFETY: descriptor 0 is borrowed only for this call, and nothing here closes it; if it is not
        // open, fstat(2) fails.
        let inherited = unsafe { BorrowedFd::borrow_raw(0) };
        let failed = |error: Errno| Error::io("look at standard input", error);
        let end = opened_source(&self.to_string(), inherited).map_err(failed)?;
        // Standard input is read from its current position, so only the rest counts.
        let read = match end.size {
            Some(_) => rustix::fs::seek(inherited, SeekFrom::Current(0)).map_err(failed)?,
            None => 0,
        };
        Ok(End { size: end.size.map(|size| size.saturating_sub(read)), ..end })
    }

    fn inspect_sink(&self) -> Result<End, Error> {
        // SAFETY: descriptor 1 is borrowed only for this function, and nothing here closes it; if it is
        // not open, fstat(2) fails.
        let inherited = unsafe { BorrowedFd::borrow_raw(1) };
        let failed = |error: Errno| Error::io("look at standard output", error);
        let stat = rustix::fs::fstat(inherited).map_err(failed)?;
        let flags = rustix::fs::fcntl_getfl(inherited).map_err(failed)?;
        let kind = kind_of(&stat);
        let file_system = kind.is_storage().then(|| file_system(inherited, stat.st_dev, None));
        let appends = flags.contains(OFlags::APPEND);
        Ok(End { file_system, appends, ..End::new(self.to_string(), kind) })
    }

    fn waits_for_peer(&self) -> bool {
        false
    }

    fn open_source(&self, _: &OpenContext<'_>) -> Result<OpenedStream<Source>, Error> {
        Ok(OpenedStream::OneWay(Source::Descriptor(open_input()?)))
    }

    fn open_sink(&self, _: &OpenContext<'_>, settings: &SinkSettings) -> Result<OpenedStream<Sink>, Error> {
        Ok(OpenedStream::OneWay(Sink::Descriptor(open_output(settings)?)))
    }

    fn check_shared_sink(&self) -> Result<(), Error> {
        Ok(())
    }
}

impl fmt::Display for Standard {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("-")
    }
}

/// Opens standard input, at its current offset.
fn open_input() -> Result<DescriptorSource, Error> {
    let name = "standard input";
    let failed = |error: Errno| Error::io(format!("open {name}"), error);
    let (descriptor, kind, may_block) = duplicate(0, OFlags::RDONLY).map_err(failed)?;
    let position = if kind.is_storage() {
        rustix::fs::seek(&descriptor, SeekFrom::Current(0)).map_err(failed)?
    } else {
        0
    };
    let mut source = DescriptorSource::from_storage(descriptor, name, position).map_err(failed)?;
    (source.may_block, source.updates_offset) = (may_block, source.position.is_some());
    Ok(source)
}

/// Opens standard output, at its current offset.
fn open_output(settings: &SinkSettings) -> Result<DescriptorSink, Error> {
    let name = "standard output";
    let failed = |error: Errno| Error::io(format!("open {name}"), error);
    let (descriptor, kind, may_block) = duplicate(1, OFlags::WRONLY).map_err(failed)?;
    let flags = rustix::fs::fcntl_getfl(&descriptor).map_err(failed)?;
    let positioned = kind.is_storage() && !flags.contains(OFlags::APPEND);
    let position = positioned
        .then(|| rustix::fs::seek(&descriptor, SeekFrom::Current(0)))
        .transpose()
        .map_err(failed)?;
    let mut sink = DescriptorSink::new(descriptor, name, kind, position, settings);
    (sink.may_block, sink.updates_offset) = (may_block, positioned);
    Ok(sink)
}

/// Returns a descriptor of this flow for an inherited one, its kind, and whether calls with it may block.
fn duplicate(number: RawFd, access: OFlags) -> Result<(OwnedFd, Kind, bool), Errno> {
    // SAFETY: the descriptor is borrowed only in this function, and nothing here closes it; if it is not
    // open, fstat(2) fails.
    let inherited = unsafe { BorrowedFd::borrow_raw(number) };
    let stat = rustix::fs::fstat(inherited)?;
    let kind = kind_of(&stat);
    if kind == Kind::Pipe {
        // Opening the pipe again gives non-blocking flags that other users of the pipe do not share.
        let again = format!("/proc/self/fd/{number}");
        let flags = access | OFlags::NONBLOCK | OFlags::CLOEXEC;
        if let Ok(descriptor) = rustix::fs::open(again, flags, Mode::empty()) {
            return Ok((descriptor, kind, false));
        }
    }
    let descriptor = rustix::io::fcntl_dupfd_cloexec(inherited, 3)?;
    Ok((descriptor, kind, !kind.is_storage()))
}
