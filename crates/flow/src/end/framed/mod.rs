//! Framed streams with an end mark (`whole`), for sockets that cannot tell a killed sender from one that has
//! finished.
//!
//! Both sides send a hello message after connecting, and each waits for the other's before it moves data. A
//! peer without `whole` thus gets no data, and none of its data is taken for a complete stream. Then each
//! block is sent as a frame ([`layout`]), and the end mark holds the number of bytes before it.
//!
//! Invariant: [`FramedInput`] ends without an error only after the end mark. Called by the ends of a flow.

mod layout;

use super::connection::Connected;
use super::{DescriptorSink, DescriptorSource};
use crate::block_io::{Input, Output};
use crate::control::Control;
use crate::error::Error;
use layout::{COUNT_BYTES, FRAME_BYTES_MAX, HEAD_BYTES, HELLO_BYTES, HelloError};
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

pub(crate) use layout::Role;

/// Timeout of the handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Performs the handshake: sends a hello message and waits for the peer's. Returns the role of the peer.
///
/// # Errors
/// [`Error::Data`] if the peer was not told `whole`, uses another version, does not answer within
/// [`HANDSHAKE_TIMEOUT`], or has a role that does not go with `role`; [`Error::Io`] if the socket fails;
/// [`Error::Cancelled`] if the flow is cancelled.
pub(crate) fn handshake(
    connected: &Connected,
    role: Role,
    name: &str,
    control: &Control,
) -> Result<Role, Error> {
    let failed = |error: Errno| Error::io(format!("greet the peer of {name}"), error);
    // The send buffer of a new connection has room for a whole hello message.
    rustix::net::send(&connected.socket, &role.encode(), SendFlags::NOSIGNAL).map_err(failed)?;
    let until = Instant::now() + HANDSHAKE_TIMEOUT;
    let (mut hello, mut came) = ([0; HELLO_BYTES], 0);
    while came < HELLO_BYTES {
        if !control.wait(connected.as_fd(), PollFlags::IN, Some(until))? {
            return Err(Error::Data(format!(
                "{name}: the peer has not greeted within {} seconds: say 'whole' at both ends, or at neither",
                HANDSHAKE_TIMEOUT.as_secs()
            )));
        }
        match rustix::net::recv(&connected.socket, &mut hello[came..], RecvFlags::empty()) {
            Ok((_, 0)) => return Err(no_frames(name)),
            Ok((_, more)) => came += more,
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(error) => return Err(failed(error)),
        }
    }
    let peer = Role::decode(&hello).map_err(|error| match error {
        HelloError::Plain => no_frames(name),
        HelloError::Version(version) => Error::Data(format!(
            "{name}: the peer frames by version {version}, and this is version {}: use one release at both ends",
            layout::VERSION
        )),
    })?;
    let goes_together = (role.sends && peer.receives) || (role.receives && peer.sends);
    match (goes_together, role.sends) {
        (true, _) => Ok(peer),
        (false, true) => {
            Err(Error::Data(format!("{name}: both ends send: one of them must be the sink of its flow")))
        }
        (false, false) => {
            Err(Error::Data(format!("{name}: both ends receive: one of them must be the source of its flow")))
        }
    }
}

fn no_frames(name: &str) -> Error {
    Error::Data(format!("{name}: the peer does not say 'whole': say it at both ends, or at neither"))
}

/// Source that reads the data out of frames.
pub(crate) struct FramedInput {
    source: DescriptorSource,
    /// Data bytes of the current frame that have not been read yet.
    left: usize,
    total: u64,
    ended: bool,
}

impl FramedInput {
    pub(crate) fn new(source: DescriptorSource) -> FramedInput {
        FramedInput { source, left: 0, total: 0, ended: false }
    }

    /// Reads exactly `N` bytes.
    ///
    /// # Errors
    /// [`Error::Data`] if the stream ends before; those of [`DescriptorSource`].
    fn exactly<const N: usize>(&mut self, control: &Control) -> Result<[u8; N], Error> {
        let (mut bytes, mut came) = ([0; N], 0);
        while came < N {
            match self.source.next(&mut bytes[came..], control)?.len() {
                0 => return Err(self.broke_off()),
                more => came += more,
            }
        }
        Ok(bytes)
    }

    fn broke_off(&self) -> Error {
        Error::Data(format!(
            "{} ended after {} bytes, without an end mark: the sender was killed or gave up",
            self.source.name, self.total
        ))
    }

    /// Reads the length of the next frame, or the end mark.
    ///
    /// # Errors
    /// [`Error::Data`] if the count in the end mark is wrong, the frame is too large or the stream ends;
    /// those of [`DescriptorSource`].
    fn begin_frame(&mut self, control: &Control) -> Result<(), Error> {
        let length = u32::from_le_bytes(self.exactly::<HEAD_BYTES>(control)?) as usize;
        let name = &self.source.name;
        match length {
            0 => {
                let count = u64::from_le_bytes(self.exactly::<COUNT_BYTES>(control)?);
                if count != self.total {
                    return Err(Error::Data(format!(
                        "{}: {} bytes came, and the end mark says {count}",
                        self.source.name, self.total
                    )));
                }
                self.ended = true;
            }
            length if length <= FRAME_BYTES_MAX => self.left = length,
            length => return Err(Error::Data(format!("{name}: the peer sent a frame of {length} bytes"))),
        }
        Ok(())
    }

    /// Returns the descriptor that the frames are read from.
    pub(crate) fn source(&self) -> &DescriptorSource {
        &self.source
    }
}

impl Input for FramedInput {
    fn next<'a>(&'a mut self, room: &'a mut [u8], control: &Control) -> Result<&'a [u8], Error> {
        if self.left == 0 && !self.ended {
            self.begin_frame(control)?;
        }
        if self.ended {
            return Ok(&[]);
        }
        let most = self.left.min(room.len());
        let read = self.source.next(&mut room[..most], control)?.len();
        if read == 0 {
            return Err(self.broke_off());
        }
        self.left -= read;
        self.total += read as u64;
        Ok(&room[..read])
    }
}

/// Sink that writes the data in frames.
pub(crate) struct FramedOutput {
    sink: DescriptorSink,
    total: u64,
}

impl FramedOutput {
    pub(crate) fn new(sink: DescriptorSink) -> FramedOutput {
        FramedOutput { sink, total: 0 }
    }

    /// Returns the descriptor that the frames are written to.
    pub(crate) fn sink(&self) -> &DescriptorSink {
        &self.sink
    }
}

impl Output for FramedOutput {
    fn put(&mut self, block: &[u8], control: &Control) -> Result<(), Error> {
        for piece in block.chunks(FRAME_BYTES_MAX) {
            self.sink.write_with(&(piece.len() as u32).to_le_bytes(), SendFlags::MORE, control)?;
            self.sink.write_all(piece, control)?;
            self.total += piece.len() as u64;
        }
        Ok(())
    }

    fn finish(&mut self, control: &Control) -> Result<(), Error> {
        let mut mark = [0; HEAD_BYTES + COUNT_BYTES];
        mark[HEAD_BYTES..].copy_from_slice(&self.total.to_le_bytes());
        self.sink.write_all(&mark, control)?;
        self.sink.finish(control)
    }
}
