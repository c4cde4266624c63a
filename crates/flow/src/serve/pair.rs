//! Two connected sockets, between which bytes are passed on without waiting for either.
//!
//! Invariant: a direction reads no more before it has written what it holds, so that a peer that takes
//! nothing holds its other side up and costs a pipe or a buffer; a direction that holds nothing has neither.
//! An end is passed on as an end, and a reset as a reset of the other side. Called by [`super::forwarder`],
//! by one thread at a time.

use crate::end::Connected;
use crate::error::Error;
use crate::mover::Pipe;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use rustix::pipe::{SpliceFlags, splice};
use std::os::fd::AsFd;

/// Bytes that a direction moves before others have their turn.
const TURN_BYTES: usize = 4 << 20;
/// Size of the buffer of a thread, and the most that a direction without a pipe holds.
const BUFFER_BYTES: usize = 64 << 10;
/// Pipes of a thread; a direction that finds none goes through the buffer.
const PIPES_MAX: usize = 64;

/// What the directions of a thread's pairs share.
pub(super) struct TransferBuffers {
    pipes: Vec<Pipe>,
    /// Pipes that are there, used or not.
    made: usize,
    splices: bool,
    block: usize,
    buffer: Vec<u8>,
}

impl TransferBuffers {
    /// With pipes of `block` bytes, or with none.
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

/// What a direction has read and not written yet.
enum Held {
    Nothing,
    Pipe(Pipe),
    /// Bytes, of which the first have been written.
    Bytes(Vec<u8>, usize),
}

/// Bytes from one socket to another.
struct Direction {
    held: Held,
    /// Bytes that have been read.
    taken: u64,
    /// The source has said its end.
    ended: bool,
    /// The sink has been told.
    done: bool,
}

/// How far a turn has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// There is more to move, when others have had their turn.
    More,
    /// One of the sockets is waited for.
    Waits,
    /// Both directions have ended in order.
    Over,
}

/// Two connected sockets.
pub(super) struct Pair {
    sockets: [Connected; 2],
    directions: [Direction; 2],
    /// Whether its turn has been asked for.
    pub(super) is_queued: bool,
    /// Whether it waited for a peer to take something when its last turn ended.
    pub(super) is_stalled: bool,
}

impl Pair {
    /// From the first to the second, and back unless it is to be one way.
    pub(super) fn new(here: Connected, there: Connected, one_way: bool) -> Result<Pair, Errno> {
        for socket in [&here, &there] {
            rustix::io::ioctl_fionbio(socket, true)?;
        }
        let direction = |done| Direction { held: Held::Nothing, taken: 0, ended: done, done };
        let directions = [direction(false), direction(one_way)];
        Ok(Pair { sockets: [here, there], directions, is_queued: false, is_stalled: false })
    }

    /// The sockets: where the connection came in, and where it goes.
    pub(super) fn sockets(&self) -> &[Connected; 2] {
        &self.sockets
    }

    /// Bytes that went there, and back.
    pub(super) fn moved(&self) -> [u64; 2] {
        [self.directions[0].taken, self.directions[1].taken]
    }

    /// Moves what can be moved without waiting.
    ///
    /// # Errors
    /// What failed, by the name of the socket in `names`.
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

    /// Whether a direction has read something that it has not written yet.
    pub(super) fn holds_something(&self) -> bool {
        self.directions.iter().any(|direction| !matches!(direction.held, Held::Nothing))
    }

    /// The socket whose peer has given no sign of life for too long.
    pub(super) fn dead(&self) -> Option<usize> {
        self.sockets.iter().position(|socket| socket.connection.is_dead(socket.as_fd()))
    }

    /// Closes both, in order or by resets.
    pub(super) fn close(mut self, in_order: bool, buffers: &mut TransferBuffers) {
        for direction in &mut self.directions {
            direction.let_go(buffers);
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

    /// Reads what is there, at most a pipe or a buffer full.
    fn fill(&mut self, from: &Connected, buffers: &mut TransferBuffers) -> Result<usize, Errno> {
        if let Some(mut pipe) = buffers.pipe() {
            let flags = SpliceFlags::NONBLOCK | SpliceFlags::MOVE;
            let came = splice(from, None, &pipe.writer, None, pipe.room, flags);
            match came {
                Ok(bytes) if bytes > 0 => {
                    pipe.holds = bytes;
                    self.held = Held::Pipe(pipe);
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
            self.held = Held::Bytes(buffers.buffer[..bytes].to_vec(), 0);
        }
        Ok(bytes)
    }

    /// Writes what is held; whether nothing is left of it.
    fn drain(&mut self, to: &Connected, buffers: &mut TransferBuffers) -> Result<bool, Errno> {
        loop {
            let written = match &mut self.held {
                Held::Nothing => return Ok(true),
                Held::Pipe(pipe) => {
                    let flags = SpliceFlags::NONBLOCK | SpliceFlags::MOVE;
                    splice(&pipe.reader, None, to, None, pipe.holds, flags).map(|bytes| {
                        pipe.holds -= bytes;
                        pipe.holds == 0
                    })
                }
                Held::Bytes(bytes, from) => {
                    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
                    rustix::net::send(to, &bytes[*from..], flags).map(|sent| {
                        *from += sent;
                        *from == bytes.len()
                    })
                }
            };
            match written {
                Ok(true) => self.let_go(buffers),
                Ok(false) | Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
    }

    /// Gives a pipe back to the others; one that still holds something is closed.
    fn let_go(&mut self, buffers: &mut TransferBuffers) {
        if let Held::Pipe(pipe) = std::mem::replace(&mut self.held, Held::Nothing) {
            match pipe.holds {
                0 => buffers.pipes.push(pipe),
                _ => buffers.made -= 1,
            }
        }
    }
}
