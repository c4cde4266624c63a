//! Sources that are a descriptor of the kernel. Called by the movers.

use super::connection::Connection;
use super::page_cache::ReadBehind;
use super::stat::{kind_of, size_of};
use crate::block_io::Input;
use crate::control::Control;
use crate::error::Error;
use crate::facts::Kind;
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::RecvFlags;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A descriptor that is read: at a position kept here if it is a file or block device, else as a stream.
pub(crate) struct DescriptorSource {
    pub(crate) descriptor: OwnedFd,
    /// Name of the source, for messages.
    pub(crate) name: String,
    pub(crate) kind: Kind,
    /// Offset of the next byte; `None` for a stream.
    pub(crate) position: Option<u64>,
    /// Offset of the end, in bytes; `None` if the end shows itself by an empty read.
    pub(crate) end: Option<u64>,
    /// Drops pages from the page cache after they were read; `None` to keep them.
    pub(crate) read_behind: Option<ReadBehind>,
    /// True if a call may block: the descriptor is a device, or other processes share it and its flags must
    /// not change.
    pub(crate) may_block: bool,
    /// True if the descriptor's own offset must be updated at the end, for other processes.
    pub(crate) updates_offset: bool,
    /// Settings of a connection that the flow has made itself.
    pub(crate) connection: Option<Connection>,
    /// Number of bytes read so far.
    pub(crate) bytes_read: u64,
}

impl DescriptorSource {
    /// Creates a source from a socket or from a program's output.
    pub(crate) fn new(descriptor: OwnedFd, kind: Kind, name: &str) -> DescriptorSource {
        DescriptorSource {
            descriptor,
            name: name.into(),
            kind,
            position: None,
            end: None,
            read_behind: None,
            may_block: false,
            updates_offset: false,
            connection: None,
            bytes_read: 0,
        }
    }

    /// Creates a source from a descriptor of any kind, to be read from `position` on if the descriptor has
    /// positions.
    ///
    /// # Errors
    /// The errno of fstat(2) or lseek(2).
    pub(crate) fn from_storage(
        descriptor: OwnedFd,
        name: &str,
        position: u64,
    ) -> Result<DescriptorSource, Errno> {
        let stat = rustix::fs::fstat(&descriptor)?;
        let kind = kind_of(&stat);
        let end = kind.is_storage().then(|| size_of(descriptor.as_fd(), &stat)).transpose()?;
        // Files of procfs and sysfs have size 0 and are read to their end like streams.
        let has_size = end.is_some_and(|end| end > 0 || kind == Kind::Block);
        let kind = if kind == Kind::File && !has_size { Kind::Device } else { kind };
        Ok(DescriptorSource {
            descriptor,
            name: name.into(),
            kind,
            position: has_size.then_some(position),
            end: end.filter(|_| has_size),
            read_behind: None,
            may_block: false,
            updates_offset: false,
            connection: None,
            bytes_read: 0,
        })
    }

    /// Reads what is available, up to all of `room`. Returns 0 at the end.
    pub(crate) fn read(&self, room: &mut [u8]) -> Result<usize, Errno> {
        match (self.position, self.kind) {
            (Some(position), _) => rustix::io::pread(&self.descriptor, room, position),
            (None, Kind::Stream) if self.may_block => {
                rustix::net::recv(&self.descriptor, room, RecvFlags::DONTWAIT).map(|read| read.1)
            }
            (None, _) => rustix::io::read(&self.descriptor, room),
        }
    }

    /// Waits until there is something to read. For non-blocking descriptors, called after EAGAIN.
    pub(crate) fn wait(&self, control: &Control) -> Result<(), Error> {
        control.wait(self.descriptor.as_fd(), PollFlags::IN, None).map(drop)
    }

    /// Waits for data in front of a call that could block and then could not be cancelled.
    pub(crate) fn wait_if_it_blocks(&self, control: &Control) -> Result<(), Error> {
        if self.may_block { self.wait(control) } else { Ok(()) }
    }

    /// Records that `bytes` bytes have been read.
    pub(crate) fn advance(&mut self, bytes: u64) {
        self.bytes_read += bytes;
        if let Some(position) = &mut self.position {
            *position += bytes;
            if let Some(read_behind) = &mut self.read_behind {
                read_behind.read(self.descriptor.as_fd(), *position);
            }
        }
    }

    /// Returns the number of bytes from the position to the end; `None` if either is unknown.
    pub(crate) fn left(&self) -> Option<u64> {
        Some(self.end?.saturating_sub(self.position?))
    }

    /// Creates the error of a failed read.
    pub(crate) fn failed(&self, error: impl Into<std::io::Error>) -> Error {
        Error::io(format!("read {}", self.name), error)
    }

    /// Decides whether an empty read is the end of the data.
    ///
    /// # Errors
    /// [`Error::Data`] if a known size has not been reached; [`Error::Io`] with ECONNRESET if the connection
    /// was reset and the other direction has taken that error.
    pub(crate) fn has_ended(&self) -> Result<(), Error> {
        if self.end.is_some() {
            return Err(self.shrank());
        }
        match self.connection {
            Some(connection) if !connection.has_ended_in_order(self.as_fd(), self.bytes_read) => {
                Err(self.failed(Errno::CONNRESET))
            }
            _ => Ok(()),
        }
    }

    /// Decides how a connection ends when it is closed: in order, or by a reset.
    pub(crate) fn set_linger(&self, in_order: bool) {
        if let Some(connection) = self.connection {
            connection.set_linger(self.as_fd(), in_order);
        }
    }

    /// Creates the error of a source that ended before its size was reached.
    pub(crate) fn shrank(&self) -> Error {
        let end = self.end.unwrap_or(0);
        let now = rustix::fs::fstat(&self.descriptor).map_or(0, |stat| stat.st_size);
        Error::Data(format!("{} got shorter while it was read: it had {end} bytes and has {now}", self.name))
    }

    /// Moves the descriptor's own offset behind the data that was read, if other processes use it.
    pub(crate) fn restore_offset(&self) {
        if let Some(position) = self.position.filter(|_| self.updates_offset) {
            // The seek cannot fail, since the descriptor was seekable when it was opened.
            let _ = rustix::fs::seek(&self.descriptor, rustix::fs::SeekFrom::Start(position));
        }
    }
}

impl Input for DescriptorSource {
    fn next<'a>(&'a mut self, room: &'a mut [u8], control: &Control) -> Result<&'a [u8], Error> {
        let most = self.left().map_or(room.len(), |left| left.min(room.len() as u64) as usize);
        if most == 0 {
            return Ok(&[]);
        }
        loop {
            self.wait_if_it_blocks(control)?;
            match self.read(&mut room[..most]) {
                Ok(0) => {
                    self.has_ended()?;
                    return Ok(&[]);
                }
                Ok(read) => {
                    self.advance(read as u64);
                    return Ok(&room[..read]);
                }
                Err(Errno::AGAIN) => self.wait(control)?,
                Err(Errno::INTR) => {}
                Err(error) => return Err(self.failed(error)),
            }
        }
    }
}

impl AsFd for DescriptorSource {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}
