//! The interface that each kind of display implements.
//!
//! A back end shows one window, whose frames lie in the arena of a pool at fixed offsets, or in an adapter: the *slots*.
//! It sends requests and reads events, and keeps no memory. It never waits but while it is opened, and there no longer than
//! the timeout. Called by [`crate::Surface`], which owns the pool and knows who holds each frame.

use crate::error::Error;
use crate::kind::DisplayKind;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// Size of a pixel, in bytes.
pub const PIXEL_BYTES: usize = 4;

/// Rectangle of a frame, in pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rectangle {
    /// Column of the left edge.
    pub x: u32,
    /// Row of the upper edge.
    pub y: u32,
    /// Number of columns.
    pub width: u32,
    /// Number of rows.
    pub height: u32,
}

impl Rectangle {
    /// Returns the part that lies within a frame of this size; `None` if there is none.
    pub(crate) fn within(self, width: u32, height: u32) -> Option<Rectangle> {
        let across = width.checked_sub(self.x)?.min(self.width);
        let down = height.checked_sub(self.y)?.min(self.height);
        (across > 0 && down > 0).then_some(Rectangle { width: across, height: down, ..self })
    }
}

/// Properties of the window that a back end opens.
pub(crate) struct WindowOptions<'a> {
    pub(crate) title: &'a str,
    pub(crate) width: u32,
    pub(crate) height: u32,
    /// Size of the screen's mode, in pixels; `None` for the preferred one.
    pub(crate) mode: Option<(u32, u32)>,
    /// Greatest time that the server may take to answer.
    pub(crate) timeout: Duration,
}

/// Memory of the frames, for the server: descriptor and size of the arena, and the offset of each slot.
pub(crate) struct FrameMemory<'a> {
    pub(crate) descriptor: BorrowedFd<'a>,
    pub(crate) bytes: usize,
    pub(crate) offsets: &'a [usize],
}

/// Events that a back end has read.
#[derive(Debug, Default)]
pub(crate) struct Events {
    /// Slots that the server has returned.
    pub(crate) returned: Vec<usize>,
    /// True if the display has asked for the next frame.
    pub(crate) is_ready: bool,
    /// True if the user has asked to close the window.
    pub(crate) is_closed: bool,
}

/// A window of a display.
pub(crate) trait Backend: Send {
    /// Returns the descriptor that is readable when there are events.
    fn descriptor(&self) -> BorrowedFd<'_>;

    /// Sends what is queued, and adds all events that have arrived to `events`, without waiting.
    ///
    /// # Errors
    /// [`Error::Gone`] if the server died; [`Error::Refused`] if it refused a request.
    fn dispatch(&mut self, events: &mut Events) -> Result<(), Error>;

    /// Hands the frame in `slot` to the server, which shows at least the changed rectangles. The slot is the
    /// server's until [`Events::returned`] names it.
    ///
    /// # Errors
    /// Those of [`Backend::dispatch`].
    fn present(&mut self, slot: usize, damage: &[Rectangle]) -> Result<(), Error>;

    /// Returns true if the display may ask for no frames because nobody sees the window. Then the next frame may be
    /// presented nevertheless.
    fn may_be_unseen(&self) -> bool {
        true
    }
}

/// A display by its kind and name, which makes errors that name it.
#[derive(Clone, Debug)]
pub(crate) struct DisplayName {
    pub(crate) kind: DisplayKind,
    pub(crate) name: String,
}

impl DisplayName {
    pub(crate) fn unsupported(&self, what: impl Into<String>) -> Error {
        Error::Unsupported { kind: self.kind, name: self.name.clone(), what: what.into() }
    }

    pub(crate) fn refused(&self, what: impl Into<String>) -> Error {
        Error::Refused { kind: self.kind, name: self.name.clone(), what: what.into() }
    }

    pub(crate) fn gone(&self, source: impl Into<io::Error>) -> Error {
        Error::Gone { kind: self.kind, name: self.name.clone(), source: source.into() }
    }

    pub(crate) fn silent(&self, what: &'static str, timeout: Duration) -> Error {
        Error::Silent { kind: self.kind, name: self.name.clone(), what, timeout }
    }

    pub(crate) fn not_connected(&self, source: impl Into<io::Error>) -> Error {
        Error::Connect { kind: self.kind, name: self.name.clone(), source: source.into() }
    }
}

/// Connects to a socket, and waits no longer than `limit` for a server that accepts nobody. The socket is
/// non-blocking.
pub(crate) fn connect_within(address: &SocketAddrUnix, limit: Duration) -> io::Result<UnixStream> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    set_socket_timeout(&socket, Timeout::Send, Some(limit))?;
    match connect(&socket, address) {
        Err(Errno::AGAIN) => return Err(io::ErrorKind::TimedOut.into()),
        other => other?,
    }
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(true)?;
    Ok(stream)
}

/// Waits until the descriptor is ready or `until` has come. Returns true if it is ready.
pub(crate) fn wait_for(descriptor: impl AsFd, events: PollFlags, until: Instant) -> io::Result<bool> {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).unwrap_or(Timespec { tv_sec: i64::MAX, tv_nsec: 0 });
        match poll(&mut [PollFd::new(&descriptor, events)], Some(&left)) {
            Ok(ready) => return Ok(ready > 0),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rectangles_are_cut_at_the_frame() {
        let whole = |x, y, width, height| Rectangle { x, y, width, height };
        assert_eq!(whole(1, 2, 3, 4).within(10, 10), Some(whole(1, 2, 3, 4)));
        assert_eq!(whole(8, 9, 3, u32::MAX).within(10, 10), Some(whole(8, 9, 2, 1)));
        for outside in [whole(10, 0, 1, 1), whole(0, 11, 1, 1), whole(0, 0, 0, 1)] {
            assert_eq!(outside.within(10, 10), None);
        }
    }
}
