//! A process that connects to the server as any user, and passes the connections on.
//!
//! The kernel records the process and the user of a connection. A server lets its own process open every
//! volume, so clients that are to be refused something are connected by this other process.

use bywash_support::peers::{receive, send};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::path::Path;

/// Socket to the connecting process, which ends when this value is dropped.
pub(crate) struct Connector(OwnedFd);

impl Connector {
    /// Starts the process for a socket of this name in a folder. Called before any descriptors are open that
    /// must not be kept open by another process.
    pub(crate) fn start(folder: &Path, name: &str) -> Connector {
        let (here, there) = bywash_link::socket_pair().unwrap();
        // SAFETY: the child continues with this thread only, and leaves by _exit.
        match unsafe { libc::fork() } {
            0 => {
                drop(here);
                std::env::set_current_dir(folder).unwrap();
                // SAFETY: the call accesses no memory, and the process has one thread. It fails harmlessly if
                // this is not root.
                unsafe { libc::setgroups(0, std::ptr::null()) };
                while let Some(uid) = told(&there) {
                    let (as_whom, socket) = connect_as(uid, name);
                    assert!(send(&there, &as_whom.to_le_bytes(), &[socket.as_raw_fd()]));
                }
                // SAFETY: the process ends here, and nothing of it has to be cleaned up.
                unsafe { libc::_exit(0) }
            }
            child => assert!(child > 0, "{}", std::io::Error::last_os_error()),
        }
        Connector(here)
    }

    /// Makes a connection as this user, or as this process's user. Returns the user ID as well.
    pub(crate) fn connect(&self, uid: u32) -> (u32, OwnedFd) {
        assert!(send(&self.0, &uid.to_le_bytes(), &[]));
        wait(&self.0);
        let (as_whom, mut socket) = receive(&self.0);
        (u32::from_le_bytes(as_whom.try_into().unwrap()), socket.pop().unwrap())
    }
}

fn told(socket: &OwnedFd) -> Option<u32> {
    wait(socket);
    receive(socket).0.try_into().ok().map(u32::from_le_bytes)
}

fn wait(socket: &OwnedFd) {
    let mut polled = libc::pollfd { fd: socket.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: the array has one element and outlives the call.
    unsafe { libc::poll(&mut polled, 1, -1) };
}

fn connect_as(uid: u32, name: &str) -> (u32, OwnedFd) {
    const SAME: u32 = u32::MAX;
    // SAFETY: all calls concern this process only; the descriptor is made here, and the address outlives
    // them.
    unsafe {
        // The calls fail if this process is not root; its user then stays the same.
        let is_other = libc::setresgid(SAME, uid, SAME) == 0 && libc::setresuid(SAME, uid, SAME) == 0;
        let socket: RawFd = libc::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC, 0);
        assert!(socket >= 0);
        let socket = OwnedFd::from_raw_fd(socket);
        let mut address: libc::sockaddr_un = std::mem::zeroed();
        address.sun_family = libc::AF_UNIX as libc::sa_family_t;
        name.bytes().zip(&mut address.sun_path).for_each(|(byte, at)| *at = byte as libc::c_char);
        let bytes = size_of_val(&address) as libc::socklen_t;
        let connected = libc::connect(socket.as_raw_fd(), (&raw const address).cast(), bytes);
        assert_eq!(connected, 0, "{}", std::io::Error::last_os_error());
        let as_whom = libc::geteuid();
        if is_other {
            assert!(libc::setresuid(SAME, 0, SAME) == 0 && libc::setresgid(SAME, 0, SAME) == 0);
        }
        (as_whom, socket)
    }
}
