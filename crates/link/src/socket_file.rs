//! Names of listening sockets in the file system: made, taken over from the dead, and removed in the end.
//!
//! A program that makes, takes over or removes a name holds a lock (flock(2)) of its folder meanwhile, so that of two
//! programs that begin at the same time one listens and the other one is refused, and one that ends takes nothing from
//! its successor.
//!
//! Invariant: a name is taken over only where nobody listens, and a program removes only the very socket that it has made.
//! Called by whoever listens: [`crate::Listener`], and programs with sockets of other kinds.

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

/// Longest time that the lock of a folder is waited for, which others hold for moments.
const LOCK_LIMIT: Duration = Duration::from_secs(1);
/// Times that a socket must refuse before it counts as left behind, and the time between two of them.
const STALE_LOOKS: u32 = 3;
const STALE_LOOKS_APART: Duration = Duration::from_millis(20);

/// Listens at a name in the file system with a Unix socket of any kind that is not bound yet. A socket at that name that
/// nobody listens at any more, as a program leaves it that was killed, is replaced; anything else is left alone. Where the
/// folder cannot be locked nothing is replaced. `prepare` is called before anybody can connect, to set a mode, say.
///
/// # Errors
/// [`Error::Io`] with `AddrInUse` if the name is taken, with what it is taken by and what to do; what else the kernel says;
/// or what `prepare` does. There is no new name then.
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

/// Name of a listening socket, which is removed when this is dropped, unless something else has taken the name.
///
/// Must be dropped before the socket that is bound to the name: the bound socket keeps its inode in use, so that nothing
/// newer can have the same number, and a socket that still listens is replaced by no other program of this project.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    /// Device and inode.
    identity: (u64, u64),
}

impl SocketFile {
    /// The socket that has just been bound to `path`.
    ///
    /// # Errors
    /// [`Error::Io`] with the errors of lstat(2).
    pub fn just_made(path: &Path) -> Result<SocketFile, Error> {
        let failed = |error| Error::io(format!("look at {}", path.display()), error);
        Ok(SocketFile { path: path.to_owned(), identity: identity(path).map_err(failed)? })
    }

    /// Leaves the name where it is, for good.
    pub fn keep(self) {
        // Not dropped but for its memory: dropping removes the name.
        drop(std::mem::take(&mut ManuallyDrop::new(self).path));
    }

    fn remove(&self) {
        if identity(&self.path) == Ok(self.identity) {
            // A folder that has become read-only since keeps it, and the next listener replaces it.
            let _ = rustix::fs::unlink(&self.path);
        }
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // Without a lock, too: as long as the socket listens nobody replaces it between the look and the removal.
        let _lock = lock_folder(&self.path);
        self.remove();
    }
}

fn identity(path: &Path) -> Result<(u64, u64), Errno> {
    lstat(path).map(|stat| (stat.st_dev, stat.st_ino))
}

/// Address of a name in the file system.
pub(crate) fn address(name: &Path) -> Result<SocketAddrUnix, Error> {
    SocketAddrUnix::new(name)
        .map_err(|error| Error::io(format!("use {} as a socket's name", name.display()), error))
}

/// A new socket of sequenced packets.
pub(crate) fn new_socket() -> Result<OwnedFd, Error> {
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
        .map_err(|error| Error::io("make a socket", error))
}

/// Locks the folder of a name, if it can be locked within [`LOCK_LIMIT`].
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

/// Removes a socket that nobody listens at.
fn remove_stale(name: &Path, is_locked: bool) -> Result<(), Error> {
    let taken = |by: &str| {
        Err(Error::io(format!("listen at {}: the name is taken by {by}", name.display()), Errno::ADDRINUSE))
    };
    let status = std::fs::symlink_metadata(name);
    if !status.is_ok_and(|status| status.file_type().is_socket()) {
        return taken("something that is no socket; choose another one");
    }
    // Another program may just have made it, and not listen yet.
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

/// Returns whether the kernel says that nobody listens at a socket.
fn is_refused(name: &Path) -> Result<bool, Error> {
    let socket = new_socket()?;
    rustix::io::ioctl_fionbio(&socket, true).map_err(|error| Error::io("make a socket", error))?;
    Ok(rustix::net::connect(&socket, &address(name)?) == Err(Errno::CONNREFUSED))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rendezvous::{Listener, connect};
    use std::os::unix::net::UnixListener;

    /// Made by a child that was killed, say: the name is there, and nobody listens.
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
        // Whoever holds the lock of the folder keeps others from replacing.
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
        // Gone already.
        let again = UnixListener::bind(&path).unwrap();
        let file = SocketFile::just_made(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        drop((file, again));
    }

    fn stream() -> OwnedFd {
        rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap()
    }

    /// Two that end and begin again and again at one name: whoever has said that it listens can be reached.
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
                        // Every other one is as if it had been killed.
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
