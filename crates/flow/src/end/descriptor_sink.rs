//! Sinks that are a descriptor of the kernel. Called by the movers.

use super::connection::{Connection, PEER_CHECK_INTERVAL};
use super::new_file::NewFile;
use super::page_cache::WriteBehind;
use crate::block_io::Output;
use crate::control::Control;
use crate::datagram::Rate;
use crate::error::Error;
use crate::facts::Kind;
use crate::sys;
use crate::timing::Omitted;
use rustix::event::PollFlags;
use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use rustix::net::{SendFlags, Shutdown};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A descriptor that is written: at a position kept here if it is a file or block device, else as a stream or
/// at the end of the file.
pub(crate) struct DescriptorSink {
    pub(crate) descriptor: OwnedFd,
    /// Name of the sink, for messages.
    pub(crate) name: String,
    pub(crate) kind: Kind,
    /// Offset of the next byte; `None` for a stream and for a file that is appended to.
    pub(crate) position: Option<u64>,
    /// Offset that writes must not exceed, such as the end of a device; `None` for no limit.
    pub(crate) end: Option<u64>,
    /// True if a call may block: the descriptor is a device, or other processes share it and its flags must
    /// not change.
    pub(crate) may_block: bool,
    /// True if the descriptor's own offset must be updated at the end, for other processes.
    pub(crate) updates_offset: bool,
    /// True if the file must have no holes.
    pub(crate) dense: bool,
    /// True if blocks of zeros become holes.
    pub(crate) skips_zeros: bool,
    /// True if an existing file is truncated behind the last byte written.
    pub(crate) truncates: bool,
    /// True if the data must be durable before the flow succeeds.
    pub(crate) sync: bool,
    /// Writes back and drops pages, so that they do not fill the page cache; `None` to keep them.
    pub(crate) write_behind: Option<WriteBehind>,
    /// The new file that gets its name at the end; `None` for other sinks.
    pub(crate) new_file: Option<NewFile>,
    /// Settings of a connection that the flow has made itself.
    pub(crate) connection: Option<Connection>,
}

/// Properties of the flow that decide how its sinks are opened and written.
#[derive(Clone, Debug)]
pub(crate) struct SinkSettings {
    /// Number of bytes that will arrive; `None` if unknown.
    pub(crate) bytes: Option<u64>,
    /// Mode of the source; `None` if new files do not take permissions from it.
    pub(crate) source_mode: Option<u32>,
    /// True if the data must be durable before the flow succeeds.
    pub(crate) sync: bool,
    /// True if blocks of zeros become holes.
    pub(crate) skips_zeros: bool,
    /// Rate of a datagram sender.
    pub(crate) rate: Rate,
    /// Time that a stage before the sink leaves out of a stream.
    pub(crate) omitted: Arc<Omitted>,
    /// Bytes that stay in the page cache before older pages are written back and dropped; `None` to drop
    /// none.
    pub(crate) write_behind_after: Option<u64>,
}

/// Size of a block that becomes a hole if it is all zeros, in bytes: the usual allocation unit of file
/// systems.
const HOLE_BYTES: usize = 4096;
/// Interval between checks whether the peer has acknowledged everything written.
const ACKNOWLEDGE_CHECK_INTERVAL: Duration = Duration::from_millis(2);

impl DescriptorSink {
    /// Creates a sink from a descriptor, without the settings that only one kind of sink has.
    pub(crate) fn new(
        descriptor: OwnedFd,
        name: &str,
        kind: Kind,
        position: Option<u64>,
        settings: &SinkSettings,
    ) -> DescriptorSink {
        let behind = position
            .zip(settings.write_behind_after)
            .map(|(position, grace)| WriteBehind::new(position, grace));
        DescriptorSink {
            descriptor,
            name: name.into(),
            kind,
            position,
            end: None,
            may_block: false,
            updates_offset: false,
            dense: false,
            skips_zeros: settings.skips_zeros,
            truncates: false,
            sync: settings.sync,
            write_behind: behind,
            new_file: None,
            connection: None,
        }
    }

    /// Writes as much of `block` as one call accepts; `flags` are for sockets.
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

    /// Waits until the sink accepts data.
    ///
    /// # Errors
    /// [`Error::Io`] with ETIMEDOUT if the peer of a connection has not responded for the endpoint's `timeout`;
    /// [`Error::Io`] if poll(2) fails;
    /// [`Error::Cancelled`] if the flow is cancelled.
    pub(crate) fn wait(&self, control: &Control) -> Result<(), Error> {
        while !control.wait(self.as_fd(), PollFlags::OUT, Some(Instant::now() + PEER_CHECK_INTERVAL))? {
            self.check_peer()?;
        }
        Ok(())
    }

    /// Checks that the peer of a connection is alive.
    ///
    /// # Errors
    /// [`Error::Io`] with ETIMEDOUT if it gave no sign of life for the connection's timeout.
    pub(crate) fn check_peer(&self) -> Result<(), Error> {
        match self.connection {
            Some(connection) if connection.is_dead(self.as_fd()) => Err(self.failed(Errno::TIMEDOUT)),
            _ => Ok(()),
        }
    }

    /// Decides how a connection ends when it is closed: in order, or by a reset.
    pub(crate) fn set_linger(&self, in_order: bool) {
        if let Some(connection) = self.connection {
            connection.set_linger(self.as_fd(), in_order);
        }
    }

    /// Waits for room in front of a call that could block and then could not be cancelled.
    pub(crate) fn wait_if_it_blocks(&self, control: &Control) -> Result<(), Error> {
        if self.may_block { self.wait(control) } else { Ok(()) }
    }

    /// Writes all of `block`.
    ///
    /// # Errors
    /// [`Error::Io`] if a write fails; those of [`DescriptorSink::wait`].
    pub(crate) fn write_all(&mut self, block: &[u8], control: &Control) -> Result<(), Error> {
        self.write_with(block, SendFlags::empty(), control)
    }

    /// Like [`DescriptorSink::write_all`], but with `flags` for sockets.
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

    /// Records that `bytes` bytes have been written.
    pub(crate) fn advance(&mut self, bytes: u64) {
        if let Some(position) = &mut self.position {
            *position += bytes;
            if let Some(behind) = &mut self.write_behind {
                behind.written(self.descriptor.as_fd(), *position);
            }
        }
    }

    fn skip(&mut self, bytes: u64) {
        if let Some(position) = &mut self.position {
            *position += bytes;
        }
    }

    /// Returns true if holes are possible: in a regular file that is written at positions and not `dense`.
    pub(crate) fn may_have_holes(&self) -> bool {
        self.kind == Kind::File && self.position.is_some() && !self.dense
    }

    /// Leaves a hole of `bytes` bytes at the position and advances the position. Returns false, without
    /// advancing, if the file system cannot remove the data that an existing file has there; the caller then
    /// writes zeros.
    ///
    /// # Errors
    /// [`Error::Io`] if fstat(2) fails.
    pub(crate) fn make_hole(&mut self, bytes: u64) -> Result<bool, Error> {
        let Some(position) = self.position else { return Ok(false) };
        // A new file has no data at positions that were not written.
        if self.new_file.is_none() {
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

    /// Creates the error of a failed write.
    pub(crate) fn failed(&self, error: impl Into<std::io::Error>) -> Error {
        Error::io(format!("write {}", self.name), error)
    }

    /// Sets the size of a regular file to include trailing holes and to exclude old data, and updates a
    /// shared offset.
    ///
    /// # Errors
    /// [`Error::Io`] if fstat(2), ftruncate(2) or lseek(2) fails.
    fn settle(&mut self) -> Result<(), Error> {
        if let (Kind::File, Some(position)) = (self.kind, self.position) {
            let size =
                rustix::fs::fstat(&self.descriptor).map_err(|error| self.failed(error))?.st_size as u64;
            if size < position || (self.truncates && size > position) {
                rustix::fs::ftruncate(&self.descriptor, position).map_err(|error| self.failed(error))?;
            }
        }
        if let Some(position) = self.position.filter(|_| self.updates_offset) {
            rustix::fs::seek(&self.descriptor, rustix::fs::SeekFrom::Start(position))
                .map_err(|error| self.failed(error))?;
        }
        Ok(())
    }

    /// Ends the stream in order, and waits until the peer's kernel has acknowledged all data.
    ///
    /// # Errors
    /// [`Error::Io`] if the socket reports an error, or the peer counts as dead; [`Error::Cancelled`] if the
    /// flow is cancelled.
    fn end_stream(&self, control: &Control) -> Result<(), Error> {
        let ended = match self.connection {
            Some(connection) => connection.end_writing(self.as_fd()),
            None => rustix::net::shutdown(&self.descriptor, Shutdown::Write),
        };
        match ended {
            // ENOTCONN means that the peer has gone; the checks below tell whether it got everything.
            Ok(()) | Err(Errno::NOTCONN) => {}
            Err(error) => return Err(self.failed(error)),
        }
        loop {
            control.check()?;
            if let Err(error) = rustix::net::sockopt::socket_error(&self.descriptor).and_then(|error| error) {
                return Err(self.failed(error));
            }
            // A failure of the call means that the connection is over, with nothing in flight.
            if sys::unacknowledged(self.as_fd()).unwrap_or(0) == 0 {
                return Ok(());
            }
            self.check_peer()?;
            control.sleep_until(Instant::now() + ACKNOWLEDGE_CHECK_INTERVAL)?;
        }
    }

    /// Gives a new file its name, after the whole flow has succeeded.
    ///
    /// # Errors
    /// Same as [`NewFile::commit`].
    pub(crate) fn commit(&mut self) -> Result<(), Error> {
        match self.new_file.take() {
            Some(new_file) => new_file.commit(self.descriptor.as_fd(), self.sync),
            None => Ok(()),
        }
    }

    /// Keeps a new file under the name of a partial file, and returns its path; `None` if there is nothing to
    /// keep.
    pub(crate) fn keep_partial(&mut self) -> Option<std::path::PathBuf> {
        let new_file = self.new_file.take()?;
        new_file.keep_partial(self.descriptor.as_fd())
    }
}

impl Output for DescriptorSink {
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
            Kind::Stream => self.end_stream(control),
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

/// Returns the length of the run of blocks at the beginning of `block` that are all zeros (`of_zeros`) or are
/// not.
fn leading(block: &[u8], of_zeros: bool) -> usize {
    let pieces = block.chunks(HOLE_BYTES);
    pieces.take_while(|piece| is_zero(piece) == of_zeros).map(<[u8]>::len).sum()
}

fn is_zero(piece: &[u8]) -> bool {
    // SAFETY: every bit pattern is a valid u64, and the bytes are initialised.
    let (head, words, tail) = unsafe { piece.align_to::<u64>() };
    head.iter().chain(tail).all(|byte| *byte == 0) && words.iter().fold(0, |all, word| all | word) == 0
}

impl AsFd for DescriptorSink {
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
