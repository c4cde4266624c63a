//! A descriptor of the kernel's that is read.

use super::Input;
use super::behind::Trail;
use super::connection::Connection;
use crate::control::Control;
use crate::error::Error;
use crate::facts::Kind;
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::RecvFlags;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A descriptor of the kernel's that is read: at a position of its own if it has one, else what comes next.
pub(crate) struct Reading {
    pub(crate) descriptor: OwnedFd,
    /// As the user said it.
    pub(crate) name: String,
    pub(crate) kind: Kind,
    /// Where the next byte is; none for a stream.
    pub(crate) position: Option<u64>,
    /// Where it ends; none: where it ends by itself.
    pub(crate) end: Option<u64>,
    /// What takes it out of the page cache again.
    pub(crate) trail: Option<Trail>,
    /// Whether a call may wait, because the descriptor is somebody else's too and its flags are not to be changed.
    pub(crate) may_block: bool,
    /// Whether others go on at the descriptor's own position.
    pub(crate) tells_position: bool,
    /// A connection that the flow made.
    pub(crate) connection: Option<Connection>,
    /// Bytes that have been read.
    pub(crate) taken: u64,
}

impl Reading {
    /// Reads what is there, up to all of `room`; 0 at the end.
    pub(crate) fn read(&self, room: &mut [u8]) -> Result<usize, Errno> {
        match (self.position, self.kind) {
            (Some(position), _) => rustix::io::pread(&self.descriptor, room, position),
            (None, Kind::Stream) if self.may_block => {
                rustix::net::recv(&self.descriptor, room, RecvFlags::DONTWAIT).map(|read| read.1)
            }
            (None, _) => rustix::io::read(&self.descriptor, room),
        }
    }

    /// Waits until there is something to read; for a descriptor that does not wait by itself, after EAGAIN.
    pub(crate) fn wait(&self, control: &Control) -> Result<(), Error> {
        control.wait(self.descriptor.as_fd(), PollFlags::IN, None).map(drop)
    }

    /// Waits in front of a call that would not let itself be cancelled.
    pub(crate) fn wait_if_it_blocks(&self, control: &Control) -> Result<(), Error> {
        if self.may_block { self.wait(control) } else { Ok(()) }
    }

    /// So many bytes have been read.
    pub(crate) fn advance(&mut self, bytes: u64) {
        self.taken += bytes;
        if let Some(position) = &mut self.position {
            *position += bytes;
            if let Some(trail) = &mut self.trail {
                trail.read(self.descriptor.as_fd(), *position);
            }
        }
    }

    /// Bytes from the position to the end, where both are known.
    pub(crate) fn left(&self) -> Option<u64> {
        Some(self.end?.saturating_sub(self.position?))
    }

    /// It could not be read.
    pub(crate) fn failed(&self, error: impl Into<std::io::Error>) -> Error {
        Error::io(format!("read {}", self.name), error)
    }

    /// Decides what an empty read means.
    ///
    /// # Errors
    /// [`Error::Data`] when the size was known and is not reached; the reset of a connection whose other direction has
    /// heard of it already.
    pub(crate) fn has_ended(&self) -> Result<(), Error> {
        if self.end.is_some() {
            return Err(self.shrank());
        }
        match self.connection {
            Some(connection) if !connection.has_ended_in_order(self.as_fd(), self.taken) => {
                Err(self.failed(Errno::CONNRESET))
            }
            _ => Ok(()),
        }
    }

    /// Decides how a connection ends when it is closed: in order, or by a reset.
    pub(crate) fn let_go(&self, in_order: bool) {
        if let Some(connection) = self.connection {
            connection.let_go(self.as_fd(), in_order);
        }
    }

    /// It ended before its size was reached.
    pub(crate) fn shrank(&self) -> Error {
        let end = self.end.unwrap_or(0);
        let now = rustix::fs::fstat(&self.descriptor).map_or(0, |stat| stat.st_size);
        Error::Data(format!("{} got shorter while it was read: it had {end} bytes and has {now}", self.name))
    }

    /// Leaves the descriptor's own position behind what was read.
    pub(crate) fn tell_position(&self) {
        if let Some(position) = self.position.filter(|_| self.tells_position) {
            // Who shares the descriptor reads from there; it was seekable when it was opened.
            let _ = rustix::fs::seek(&self.descriptor, rustix::fs::SeekFrom::Start(position));
        }
    }
}

impl Input for Reading {
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

impl AsFd for Reading {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}
