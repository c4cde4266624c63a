//! The socket at which the peers of an export connect.

use crate::error::Error;
use rustix::net::AddressFamily;
use rustix::net::sockopt::socket_domain;
use std::io;
use std::os::fd::AsFd;

/// Prepares a listening socket for a thread that must not block: accepting does not block, and where the kernel can
/// (Linux 6.16) it keeps descriptors out of what peers send before they were accepted, since closing the socket
/// would close them, which can block. Returns true if no descriptors can come.
///
/// # Errors
/// [`Error::Io`] if a system call fails.
pub fn prepare_listener(listener: impl AsFd) -> Result<bool, Error> {
    let failed = |error: rustix::io::Errno| Error::io("prepare a socket", error);
    rustix::io::ioctl_fionbio(&listener, true).map_err(failed)?;
    if socket_domain(&listener).map_err(failed)? != AddressFamily::UNIX {
        return Ok(true);
    }
    bywash_link::let_descriptors_in(&listener, false)
        .map_err(|error| Error::io("keep descriptors out", io::Error::other(error)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::os::unix::net::UnixListener;

    #[test]
    fn accepting_does_not_block() {
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        assert!(prepare_listener(&tcp).unwrap());
        assert_eq!(tcp.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock);
        let folder = std::env::temp_dir().join(format!("bywash-export-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let unix = UnixListener::bind(folder.join("socket")).unwrap();
        prepare_listener(&unix).unwrap();
        assert_eq!(unix.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock);
        std::fs::remove_dir_all(folder).unwrap();
    }
}
