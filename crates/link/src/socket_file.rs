//! Names of listening sockets in the file system: creating them, replacing stale ones, and removing them.
//!
//! A program that creates, replaces or removes a name holds a lock (flock(2)) on the name's folder meanwhile.
//! So if two programs start at the same time, one listens and the other is refused; and a program that ends
//! does not remove its successor's name.
//!
//! Invariant: a name is replaced only if no process listens there, and a program removes only the very socket
//! that it made. Callers are the listeners: [`crate::Listener`], and programs with sockets of other kinds.

use crate::error::Error;
use rustix::fs::{FlockOperation, Mode, OFlags, flock, lstat};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Timeout for the lock of a folder, which other programs hold for moments.
const LOCK_LIMIT: Duration = Duration::from_secs(1);
/// Number of refused connections after which a socket counts as stale, and the time between two attempts.
const STALE_LOOKS: u32 = 3;
const STALE_LOOKS_APART: Duration = Duration::from_millis(20);

/// Binds a Unix socket of any kind to a name in the file system, and listens. A stale socket at the name, on
/// which no process listens, for instance since its program was killed, is replaced; nothing else is. If the
/// folder cannot be locked, nothing is replaced. `prepare` is called before anybody can connect, for instance
/// to set a mode.
///
/// # Errors
/// In each case no new name is left behind.
/// - [`Error::Io`] with `AddrInUse` if the name is taken; the text says by what, and what to do.
/// - [`Error::Io`] if the name is too long, `prepare` fails, or another system call fails.
pub fn listen_at(
    name: &Path,
    socket: impl AsFd,
    backlog: i32,
    prepare: impl FnOnce(&Path) -> io::Result<()>,
) -> Result<SocketFile, Error> {
    let address = address(name)?;
    let failed = |error: Errno| Error::io(format!("listen at {}", name.display()), error);
    let lock = lock_folder(name);
    match rustix::net::bind(&socket, &address) {
        Err(Errno::ADDRINUSE) => {
            remove_stale(name, lock.is_some())?;
            rustix::net::bind(&socket, &address).map_err(failed)?;
        }
        bound => bound.map_err(failed)?,
    }
    let file = SocketFile::just_made(name)?;
    let prepared = prepare(name).map_err(|error| Error::io(format!("prepare {}", name.display()), error));
    match prepared.and_then(|()| rustix::net::listen(&socket, backlog).map_err(failed)) {
        Ok(()) => Ok(file),
        Err(error) => {
            file.remove();
            Err(error)
        }
    }
}

/// Name of a listening socket. Dropping this value removes the name, unless something else has replaced the
/// socket.
///
/// It must be dropped before the socket that is bound to the name. The bound socket keeps its inode in use,
/// so that no newer file can have the same inode number; and other programs of this project replace no socket
/// on which a process listens.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    /// Device and inode number of the socket.
    identity: (u64, u64),
}

impl SocketFile {
    /// Takes over the socket that was just bound to `path`.
    ///
    /// # Errors
    /// [`Error::Io`] if lstat(2) fails.
    pub fn just_made(path: &Path) -> Result<SocketFile, Error> {
        let failed = |error| Error::io(format!("look at {}", path.display()), error);
        Ok(SocketFile { path: path.to_owned(), identity: identity(path).map_err(failed)? })
    }

    /// Leaves the name in the file system for good.
    pub fn keep(self) {
        // Frees the path without running the destructor, which would remove the name.
        drop(std::mem::take(&mut ManuallyDrop::new(self).path));
    }

    fn remove(&self) {
        if identity(&self.path) == Ok(self.identity) {
            // The error is ignored: if the folder has become read-only the name stays, and the next listener
            // replaces it.
            let _ = rustix::fs::unlink(&self.path);
        }
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // Removes the name even without the lock: as long as the socket listens, nobody replaces it between
        // check and removal.
        let _lock = lock_folder(&self.path);
        self.remove();
    }
}

fn identity(path: &Path) -> Result<(u64, u64), Errno> {
    lstat(path).map(|stat| (stat.st_dev, stat.st_ino))
}

/// Makes the socket address of a name; [`Error::Io`] if the name is too long.
pub(crate) fn address(name: &Path) -> Result<SocketAddrUnix, Error> {
    SocketAddrUnix::new(name)
        .map_err(|error| Error::io(format!("use {} as a socket's name", name.display()), error))
}

/// Makes a socket of sequenced packets.
pub(crate) fn new_socket() -> Result<OwnedFd, Error> {
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
        .map_err(|error| Error::io("make a socket", error))
}

/// Locks the folder of a name; `None` if it cannot be locked within [`LOCK_LIMIT`].
fn lock_folder(name: &Path) -> Option<OwnedFd> {
    let folder = name.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = rustix::fs::open(folder, flags, Mode::empty()).ok()?;
    let end = Instant::now() + LOCK_LIMIT;
    loop {
        match flock(&folder, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Some(folder),
            Err(Errno::WOULDBLOCK | Errno::INTR) if Instant::now() < end => {
                std::thread::sleep(LOCK_LIMIT / 100);
            }
            Err(_) => return None,
        }
    }
}

/// Removes the socket at a name if no process listens on it.
fn remove_stale(name: &Path, is_locked: bool) -> Result<(), Error> {
    let taken = |by: &str| {
        Err(Error::io(format!("listen at {}: the name is taken by {by}", name.display()), Errno::ADDRINUSE))
    };
    let status = std::fs::symlink_metadata(name);
    if !status.is_ok_and(|status| status.file_type().is_socket()) {
        return taken("something that is no socket; choose another one");
    }
    // Tries several times, since another program may just have bound the socket and not listen yet.
    for look in 0..STALE_LOOKS {
        if look > 0 {
            std::thread::sleep(STALE_LOOKS_APART);
        }
        if !is_refused(name)? {
            return taken("a program that listens there; end that program, or choose another name");
        }
    }
    if !is_locked {
        return taken("a socket that nobody listens at, and its folder cannot be locked; remove the socket");
    }
    std::fs::remove_file(name)
        .map_err(|error| Error::io(format!("remove {}, where nobody listens", name.display()), error))
}

/// Returns true if the kernel refuses a connection, since no process listens on the socket.
fn is_refused(name: &Path) -> Result<bool, Error> {
    let socket = new_socket()?;
    rustix::io::ioctl_fionbio(&socket, true).map_err(|error| Error::io("make a socket", error))?;
    Ok(rustix::net::connect(&socket, &address(name)?) == Err(Errno::CONNREFUSED))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connect::{Listener, connect};
    use std::os::unix::net::UnixListener;

    /// A killed child leaves such a socket: the name exists, and no process listens on it.
    #[test]
    fn a_socket_that_was_left_behind_is_replaced_and_nothing_else_is() {
        let folder = tempfile::tempdir().unwrap();
        let name = folder.path().join("socket");
        drop(Listener::bind(&name).unwrap());
        let listener = Listener::bind(&name).unwrap();
        drop(connect(&name).unwrap());
        let error = Listener::bind(&name).unwrap_err().to_string();
        assert!(error.contains("a program that listens there"), "{error}");
        drop(listener);
        // While somebody else holds the lock of the folder, nothing is replaced.
        let lock = lock_folder(&name).unwrap();
        let error = Listener::bind(&name).unwrap_err().to_string();
        assert!(error.contains("cannot be locked; remove the socket"), "{error}");
        drop(lock);
        for other in ["file", "folder", "link"] {
            let name = folder.path().join(other);
            match other {
                "file" => std::fs::write(&name, b"kept").unwrap(),
                "folder" => std::fs::create_dir(&name).unwrap(),
                _ => std::os::unix::fs::symlink(folder.path().join("socket"), &name).unwrap(),
            }
            let error = Listener::bind(&name).unwrap_err().to_string();
            assert!(error.contains("no socket"), "{other}: {error}");
            assert!(std::fs::symlink_metadata(&name).is_ok());
        }
    }

    #[test]
    fn only_the_socket_that_was_made_here_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let ours = UnixListener::bind(&path).unwrap();
        let file = SocketFile::just_made(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let theirs = UnixListener::bind(&path).unwrap();
        drop(file);
        assert!(path.exists(), "somebody else's socket was removed");
        drop((ours, theirs));
        drop(SocketFile::just_made(&path).unwrap());
        assert!(!path.exists());
        // The name was removed before the value is dropped.
        let again = UnixListener::bind(&path).unwrap();
        let file = SocketFile::just_made(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        drop((file, again));
    }

    fn stream() -> OwnedFd {
        rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap()
    }

    /// Three threads start and end listening at one name again and again. A socket that listens can always be
    /// reached.
    #[test]
    fn one_that_ends_never_takes_the_name_of_its_successor() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let reached = std::sync::atomic::AtomicU32::new(0);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for round in 0..40 {
                        let socket = stream();
                        let Ok(file) = listen_at(&path, &socket, 8, |_| Ok(())) else { continue };
                        let there = std::os::unix::net::UnixStream::connect(&path);
                        assert!(there.is_ok(), "{there:?}");
                        reached.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                        // Every second one leaves its name behind, as if it had been killed.
                        if round % 2 == 0 {
                            file.keep();
                        } else {
                            drop(file);
                        }
                        drop(socket);
                    }
                });
            }
        });
        assert!(reached.into_inner() > 3);
    }

    #[test]
    fn the_name_is_prepared_before_anybody_can_connect_and_goes_if_it_cannot_be() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let error = listen_at(&path, stream(), 8, |path| {
            assert!(std::os::unix::net::UnixStream::connect(path).is_err());
            Err(io::Error::other("no such group"))
        });
        assert!(error.unwrap_err().to_string().contains("no such group"));
        assert!(!path.exists());
    }
}
