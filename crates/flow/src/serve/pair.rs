//! Pair of connected sockets between which bytes are forwarded without blocking on either.
//!
//! Invariant: a direction reads nothing more until it has written what it has read. A peer that accepts no
//! data thus stops the other peer and costs one pipe or buffer; a direction with nothing pending has neither.
//! An orderly end is forwarded as an orderly end, a reset as a reset. Called by [`super::forwarder`], by one
//! thread at a time.

use crate::end::Connected;
use crate::error::Error;
use crate::mover::Pipe;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use rustix::pipe::{SpliceFlags, splice};
use std::os::fd::AsFd;

/// Number of bytes that a direction may move in one turn.
const TURN_BYTES: usize = 4 << 20;
/// Size of a thread's buffer, in bytes, which limits what a direction without a pipe has pending.
const BUFFER_BYTES: usize = 64 << 10;
/// Greatest number of pipes of a thread; a direction that gets none uses the buffer.
const PIPES_MAX: usize = 64;

/// Pipes and buffer that the directions of a thread's pairs share.
pub(super) struct TransferBuffers {
    pipes: Vec<Pipe>,
    /// Number of pipes that exist, in use or not.
    made: usize,
    splices: bool,
    block: usize,
    buffer: Vec<u8>,
}

impl TransferBuffers {
    /// Creates the buffers; with `splices`, pipes of `block` bytes are created when they are needed.
    pub(super) fn new(splices: bool, block: usize) -> TransferBuffers {
        TransferBuffers { pipes: Vec::new(), made: 0, splices, block, buffer: vec![0; BUFFER_BYTES] }
    }

    fn pipe(&mut self) -> Option<Pipe> {
        if !self.splices {
            return None;
        }
        if let Some(pipe) = self.pipes.pop() {
            return Some(pipe);
        }
        let pipe = if self.made < PIPES_MAX { Pipe::new(self.block).ok() } else { None };
        self.made += usize::from(pipe.is_some());
        pipe
    }
}

/// Bytes that a direction has read and not written yet.
enum Pending {
    Nothing,
    Pipe(Pipe),
    /// Bytes, and the number of them that have been written.
    Bytes(Vec<u8>, usize),
}

/// State of one direction, from one socket to the other.
struct Direction {
    pending: Pending,
    /// Number of bytes read from the source.
    taken: u64,
    /// True if the source has ended in order.
    ended: bool,
    /// True if the end has been forwarded to the sink.
    done: bool,
}

/// Result of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// More bytes can be moved at once, but the turn is used up.
    More,
    /// A socket has no data or no room, and must become ready first.
    Waits,
    /// Both directions have ended in order.
    Over,
}

/// Two connected sockets and the state of both directions.
pub(super) struct Pair {
    sockets: [Connected; 2],
    directions: [Direction; 2],
    /// True if the pair is in its worker's queue of ready pairs.
    pub(super) is_queued: bool,
    /// True if bytes were pending for a peer when the last turn ended.
    pub(super) is_stalled: bool,
}

impl Pair {
    /// Creates a pair that forwards from `here` to `there` and, unless `one_way`, back.
    ///
    /// # Errors
    /// The errno of ioctl(2), if a socket cannot be made non-blocking.
    pub(super) fn new(here: Connected, there: Connected, one_way: bool) -> Result<Pair, Errno> {
        for socket in [&here, &there] {
            rustix::io::ioctl_fionbio(socket, true)?;
        }
        let direction = |done| Direction { pending: Pending::Nothing, taken: 0, ended: done, done };
        let directions = [direction(false), direction(one_way)];
        Ok(Pair { sockets: [here, there], directions, is_queued: false, is_stalled: false })
    }

    /// Returns the sockets: the accepted connection first, then the forwarder's own.
    pub(super) fn sockets(&self) -> &[Connected; 2] {
        &self.sockets
    }

    /// Returns the number of bytes moved there and back.
    pub(super) fn moved(&self) -> [u64; 2] {
        [self.directions[0].taken, self.directions[1].taken]
    }

    /// Moves all bytes that can be moved without blocking, at most [`TURN_BYTES`] in each direction.
    ///
    /// # Errors
    /// [`Error::Io`] with the name of the socket in `names`, if a read, write or shutdown fails or a peer has
    /// reset the connection.
    pub(super) fn turn(
        &mut self,
        buffers: &mut TransferBuffers,
        names: [&str; 2],
    ) -> Result<Progress, Error> {
        let mut progress = Progress::Over;
        for number in [0, 1] {
            let (from, to) = (&self.sockets[number], &self.sockets[1 - number]);
            let names = (names[number], names[1 - number]);
            match self.directions[number].turn(from, to, names, buffers)? {
                Progress::More => progress = Progress::More,
                Progress::Waits if progress == Progress::Over => progress = Progress::Waits,
                _ => {}
            }
        }
        Ok(progress)
    }

    /// Returns true if a direction has read bytes that it has not written yet.
    pub(super) fn has_pending(&self) -> bool {
        self.directions.iter().any(|direction| !matches!(direction.pending, Pending::Nothing))
    }

    /// Returns the index of a socket whose peer counts as dead.
    pub(super) fn dead_peer(&self) -> Option<usize> {
        self.sockets.iter().position(|socket| socket.connection.is_dead(socket.as_fd()))
    }

    /// Closes both sockets, in order or by resets.
    pub(super) fn close(mut self, in_order: bool, buffers: &mut TransferBuffers) {
        for direction in &mut self.directions {
            direction.return_pipe(buffers);
        }
        for socket in &self.sockets {
            socket.connection.set_linger(socket.as_fd(), in_order);
        }
    }
}

impl Direction {
    fn turn(
        &mut self,
        from: &Connected,
        to: &Connected,
        (source, sink): (&str, &str),
        buffers: &mut TransferBuffers,
    ) -> Result<Progress, Error> {
        let (unread, unwritten) = (
            |error: Errno| Error::io(format!("read {source}"), error),
            |error: Errno| Error::io(format!("write {sink}"), error),
        );
        let begin = self.taken;
        while !self.done {
            if !self.drain(to, buffers).map_err(unwritten)? {
                return Ok(Progress::Waits);
            }
            if self.ended {
                to.connection.end_writing(to.as_fd()).map_err(unwritten)?;
                self.done = true;
            } else if self.taken - begin >= TURN_BYTES as u64 {
                return Ok(Progress::More);
            } else {
                match self.fill(from, buffers) {
                    Ok(0) if from.connection.has_ended_in_order(from.as_fd(), self.taken) => {
                        self.ended = true
                    }
                    Ok(0) => return Err(unread(Errno::CONNRESET)),
                    Ok(bytes) => self.taken += bytes as u64,
                    Err(Errno::AGAIN) => return Ok(Progress::Waits),
                    Err(Errno::INTR) => {}
                    Err(error) => return Err(unread(error)),
                }
            }
        }
        Ok(Progress::Over)
    }

    /// Reads the available bytes, at most as many as a pipe or the buffer holds.
    fn fill(&mut self, from: &Connected, buffers: &mut TransferBuffers) -> Result<usize, Errno> {
        if let Some(mut pipe) = buffers.pipe() {
            let flags = SpliceFlags::NONBLOCK | SpliceFlags::MOVE;
            let came = splice(from, None, &pipe.writer, None, pipe.room, flags);
            match came {
                Ok(bytes) if bytes > 0 => {
                    pipe.holds = bytes;
                    self.pending = Pending::Pipe(pipe);
                    return came;
                }
                Err(Errno::INVAL | Errno::OPNOTSUPP) => buffers.splices = false,
                _ => {
                    buffers.pipes.push(pipe);
                    return came;
                }
            }
        }
        let (_, bytes) = rustix::net::recv(from, &mut buffers.buffer[..], RecvFlags::DONTWAIT)?;
        if bytes > 0 {
            self.pending = Pending::Bytes(buffers.buffer[..bytes].to_vec(), 0);
        }
        Ok(bytes)
    }

    /// Writes the pending bytes. Returns true if none are left.
    fn drain(&mut self, to: &Connected, buffers: &mut TransferBuffers) -> Result<bool, Errno> {
        loop {
            let written = match &mut self.pending {
                Pending::Nothing => return Ok(true),
                Pending::Pipe(pipe) => {
                    let flags = SpliceFlags::NONBLOCK | SpliceFlags::MOVE;
                    splice(&pipe.reader, None, to, None, pipe.holds, flags).map(|bytes| {
                        pipe.holds -= bytes;
                        pipe.holds == 0
                    })
                }
                Pending::Bytes(bytes, from) => {
                    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
                    rustix::net::send(to, &bytes[*from..], flags).map(|sent| {
                        *from += sent;
                        *from == bytes.len()
                    })
                }
            };
            match written {
                Ok(true) => self.return_pipe(buffers),
                Ok(false) | Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
    }

    /// Returns an empty pipe to the shared ones; a pipe that is not empty is closed.
    fn return_pipe(&mut self, buffers: &mut TransferBuffers) {
        if let Pending::Pipe(pipe) = std::mem::replace(&mut self.pending, Pending::Nothing) {
            match pipe.holds {
                0 => buffers.pipes.push(pipe),
                _ => buffers.made -= 1,
            }
        }
    }
}
