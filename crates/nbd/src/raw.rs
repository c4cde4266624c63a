//! Bytes of a connection as they are on the wire, and the result of moving some.
//!
//! Called by `socket` and `tls`.

use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, recv, send, sendmsg};
use std::io::{self, IoSlice, Read, Write};
use std::os::fd::{BorrowedFd, OwnedFd};

/// Result of receiving or sending.
#[derive(Debug)]
pub(crate) enum Moved {
    /// Number of bytes that were moved.
    Bytes(usize),
    /// Result of a call that would have to wait.
    Blocked,
    /// The client has closed the connection.
    Closed,
    /// The client has sent descriptors.
    Descriptors(Vec<OwnedFd>),
    /// The system call failed.
    Failed(io::Error),
}

/// Bytes of a connection as they are on the wire.
pub(crate) struct Raw<'a>(pub(crate) BorrowedFd<'a>);

impl Read for Raw<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        Ok(recv(self.0, bytes, RecvFlags::DONTWAIT)?.0)
    }
}

impl Write for Raw<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(send(self.0, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)?)
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        Ok(sendmsg(self.0, parts, &mut SendAncillaryBuffer::default(), flags)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
