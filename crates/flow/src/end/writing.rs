//! A descriptor of the kernel's that is written.

use super::Output;
use super::behind::Behind;
use super::connection::{Connection, LOOK};
use super::target::Target;
use crate::control::Control;
use crate::error::Error;
use crate::facts::Kind;
use crate::sys;
use rustix::event::PollFlags;
use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use rustix::net::{SendFlags, Shutdown};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// A descriptor of the kernel's that is written: at a position of its own if it has one, else behind what was written.
pub(crate) struct Writing {
    pub(crate) descriptor: OwnedFd,
    /// As the user said it.
    pub(crate) name: String,
    pub(crate) kind: Kind,
    /// Where the next byte goes; none for a stream, and for what is appended to.
    pub(crate) position: Option<u64>,
    /// Where it must end, as a device does.
    pub(crate) end: Option<u64>,
    /// Whether a call may wait, because the descriptor is somebody else's too and its flags are not to be changed.
    pub(crate) may_block: bool,
    /// Whether others go on at the descriptor's own position.
    pub(crate) tells_position: bool,
    /// Whether it is to have no holes.
    pub(crate) dense: bool,
    /// Whether pieces of zeros are left out, for holes.
    pub(crate) skips_zeros: bool,
    /// Whether what an old file has behind the end is cut off.
    pub(crate) cuts: bool,
    /// Whether it is to be on the device in the end.
    pub(crate) sync: bool,
    /// What keeps the page cache from filling.
    pub(crate) behind: Option<Behind>,
    /// The file that gets its name in the end.
    pub(crate) target: Option<Target>,
    /// A connection that the flow made.
    pub(crate) connection: Option<Connection>,
}

/// Pieces that are a hole or none of it: what every file system allocates at the least, mostly.
const HOLE_BYTES: usize = 4096;
/// Interval between looks at what the peer has acknowledged, when everything has been written.
const ACKNOWLEDGE_LOOK: Duration = Duration::from_millis(2);

impl Writing {
    /// Writes what fits, up to all of `block`; `flags` are for sockets.
    fn write_once(&self, block: &[u8], flags: SendFlags) -> Result<usize, Errno> {
        match (self.position, self.kind) {
            (Some(position), _) => rustix::io::pwrite(&self.descriptor, block, position),
            (None, Kind::Stream) => {
                let waits = if self.may_block { SendFlags::DONTWAIT } else { SendFlags::empty() };
                rustix::net::send(&self.descriptor, block, flags | waits | SendFlags::NOSIGNAL)
            }
            (None, _) => rustix::io::write(&self.descriptor, block),
        }
    }

    /// Waits until it takes something.
    ///
    /// # Errors
    /// That the peer of a connection has given no sign of life for too long; that the flow was cancelled; the kernel's.
    pub(crate) fn wait(&self, control: &Control) -> Result<(), Error> {
        while !control.wait(self.as_fd(), PollFlags::OUT, Some(Instant::now() + LOOK))? {
            self.check_peer()?;
        }
        Ok(())
    }

    /// Looks whether whoever is at the other end still lives.
    ///
    /// # Errors
    /// That the peer of a connection has given no sign of life for too long.
    pub(crate) fn check_peer(&self) -> Result<(), Error> {
        match self.connection {
            Some(connection) if connection.is_dead(self.as_fd()) => Err(self.failed(Errno::TIMEDOUT)),
            _ => Ok(()),
        }
    }

    /// Decides how a connection ends when it is closed: in order, or by a reset.
    pub(crate) fn let_go(&self, in_order: bool) {
        if let Some(connection) = self.connection {
            connection.let_go(self.as_fd(), in_order);
        }
    }

    /// Waits in front of a call that would not let itself be cancelled.
    pub(crate) fn wait_if_it_blocks(&self, control: &Control) -> Result<(), Error> {
        if self.may_block { self.wait(control) } else { Ok(()) }
    }

    /// Writes all of `block`.
    pub(crate) fn write_all(&mut self, block: &[u8], control: &Control) -> Result<(), Error> {
        self.write_with(block, SendFlags::empty(), control)
    }

    /// As [`Writing::write_all`]; `flags` are for sockets.
    pub(crate) fn write_with(
        &mut self,
        mut block: &[u8],
        flags: SendFlags,
        control: &Control,
    ) -> Result<(), Error> {
        while !block.is_empty() {
            self.wait_if_it_blocks(control)?;
            match self.write_once(block, flags) {
                Ok(0) => return Err(self.failed(Errno::NOSPC)),
                Ok(written) => {
                    self.advance(written as u64);
                    block = &block[written..];
                }
                Err(Errno::AGAIN) => self.wait(control)?,
                Err(Errno::INTR) => {}
                Err(error) => return Err(self.failed(error)),
            }
        }
        Ok(())
    }

    /// So many bytes have been written.
    pub(crate) fn advance(&mut self, bytes: u64) {
        if let Some(position) = &mut self.position {
            *position += bytes;
            if let Some(behind) = &mut self.behind {
                behind.written(self.descriptor.as_fd(), *position);
            }
        }
    }

    fn skip(&mut self, bytes: u64) {
        if let Some(position) = &mut self.position {
            *position += bytes;
        }
    }

    /// Whether holes can be left in it: it is a file that is written at positions, and is not to be dense.
    pub(crate) fn may_have_holes(&self) -> bool {
        self.kind == Kind::File && self.position.is_some() && !self.dense
    }

    /// Leaves a hole of `bytes` bytes at the position, and passes over it. False if the file system cannot take the
    /// data away that an old file has there: then zeros are to be written.
    pub(crate) fn make_hole(&mut self, bytes: u64) -> Result<bool, Error> {
        let Some(position) = self.position else { return Ok(false) };
        // A new file holds nothing where nothing was written.
        if self.target.is_none() {
            let size =
                rustix::fs::fstat(&self.descriptor).map_err(|error| self.failed(error))?.st_size as u64;
            let old = size.saturating_sub(position).min(bytes);
            let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            if old > 0 && rustix::fs::fallocate(&self.descriptor, punch, position, old).is_err() {
                return Ok(false);
            }
        }
        self.skip(bytes);
        Ok(true)
    }

    /// It could not be written.
    pub(crate) fn failed(&self, error: impl Into<std::io::Error>) -> Error {
        Error::io(format!("write {}", self.name), error)
    }

    /// The size that the file must have with everything that was written and left out.
    fn settle(&mut self) -> Result<(), Error> {
        if let (Kind::File, Some(position)) = (self.kind, self.position) {
            let size =
                rustix::fs::fstat(&self.descriptor).map_err(|error| self.failed(error))?.st_size as u64;
            if size < position || (self.cuts && size > position) {
                rustix::fs::ftruncate(&self.descriptor, position).map_err(|error| self.failed(error))?;
            }
        }
        if let Some(position) = self.position.filter(|_| self.tells_position) {
            rustix::fs::seek(&self.descriptor, rustix::fs::SeekFrom::Start(position))
                .map_err(|error| self.failed(error))?;
        }
        Ok(())
    }

    /// What is on its way to the peer has reached its kernel, and the peer knows that no more comes.
    fn see_off(&self, control: &Control) -> Result<(), Error> {
        let ended = match self.connection {
            Some(connection) => connection.end_writing(self.as_fd()),
            None => rustix::net::shutdown(&self.descriptor, Shutdown::Write),
        };
        match ended {
            // The peer has gone, with everything or without: the next look tells.
            Ok(()) | Err(Errno::NOTCONN) => {}
            Err(error) => return Err(self.failed(error)),
        }
        loop {
            control.check()?;
            if let Err(error) = rustix::net::sockopt::socket_error(&self.descriptor).and_then(|error| error) {
                return Err(self.failed(error));
            }
            // A socket whose connection is over has nothing on its way.
            if sys::unacknowledged(self.as_fd()).unwrap_or(0) == 0 {
                return Ok(());
            }
            self.check_peer()?;
            control.sleep_until(Instant::now() + ACKNOWLEDGE_LOOK)?;
        }
    }

    /// The file gets its name. Called when the whole flow has succeeded.
    pub(crate) fn commit(&mut self) -> Result<(), Error> {
        match self.target.take() {
            Some(target) => target.commit(self.descriptor.as_fd(), self.sync),
            None => Ok(()),
        }
    }

    /// The file gets a name that says that it is not whole, which is answered; none: there is nothing to keep.
    pub(crate) fn keep_partial(&mut self) -> Option<std::path::PathBuf> {
        let target = self.target.take()?;
        target.keep_partial(self.descriptor.as_fd())
    }
}

impl Output for Writing {
    fn put(&mut self, block: &[u8], control: &Control) -> Result<(), Error> {
        if !self.skips_zeros || !self.may_have_holes() {
            return self.write_all(block, control);
        }
        let mut rest = block;
        while !rest.is_empty() {
            let zeros = leading(rest, true);
            if zeros > 0 && self.make_hole(zeros as u64)? {
                rest = &rest[zeros..];
                continue;
            }
            let data = zeros + leading(&rest[zeros..], false);
            self.write_all(&rest[..data], control)?;
            rest = &rest[data..];
        }
        Ok(())
    }

    fn finish(&mut self, control: &Control) -> Result<(), Error> {
        match self.kind {
            Kind::Stream => self.see_off(control),
            Kind::File | Kind::Block => {
                self.settle()?;
                if self.sync {
                    rustix::fs::fdatasync(&self.descriptor).map_err(|error| self.failed(error))?;
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

/// Bytes at the beginning of `block` that are pieces of zeros, or that are pieces of something else.
fn leading(block: &[u8], of_zeros: bool) -> usize {
    let pieces = block.chunks(HOLE_BYTES);
    pieces.take_while(|piece| is_zero(piece) == of_zeros).map(<[u8]>::len).sum()
}

fn is_zero(piece: &[u8]) -> bool {
    // SAFETY: every pattern of bits is a u64.
    let (head, words, tail) = unsafe { piece.align_to::<u64>() };
    head.iter().chain(tail).all(|byte| *byte == 0) && words.iter().fold(0, |all, word| all | word) == 0
}

impl AsFd for Writing {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_and_others_in_turn() {
        let mut block = vec![0u8; 4 * HOLE_BYTES + 10];
        block[2 * HOLE_BYTES + 7] = 1;
        assert_eq!(leading(&block, true), 2 * HOLE_BYTES);
        assert_eq!(leading(&block[2 * HOLE_BYTES..], false), HOLE_BYTES);
        assert_eq!(leading(&block[3 * HOLE_BYTES..], true), HOLE_BYTES + 10);
        assert_eq!((leading(&[], true), leading(&[0, 1], true)), (0, 0));
    }
}
