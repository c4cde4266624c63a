//! Log on a volume of a device server, of which this process is a client.
//!
//! Such a log is named `volume:[SOCKET/]NAME[,path=channel|mapped]`. Its locks are those of a file in memory, since a volume
//! has none: in /dev/shm, where everybody finds the same one, with a name that the socket and the volume determine, and of
//! the volume's owner alone.

use crate::error::Error;
use crate::log_file::Access;
use bywash_client::{Client, Options, PathChoice, Reconnect, SharedMapping, Volume};
use bywash_log::checksum::checksum;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Beginning of the name of a log on a volume.
const PREFIX: &str = "volume:";
/// Socket of the device server, if the name has none.
const SOCKET: &str = "/run/bywash/socket";
/// Folder of the files whose locks count.
const LOCKS: &str = "/dev/shm";
/// Time in which a server that has ended may come back, while programs wait for their commits.
const RECONNECT_LIMIT: Duration = Duration::from_secs(10);

/// Name of a log on a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeName {
    /// Path of the server's socket.
    pub socket: PathBuf,
    /// Name of the volume.
    pub volume: String,
    choice: PathChoice,
}

impl VolumeName {
    /// Parses the name of a log; `None` if it is a path.
    ///
    /// # Errors
    /// [`Error::VolumeName`].
    pub fn parse(log: &Path) -> Result<Option<VolumeName>, Error> {
        let wrong = |reason| Error::VolumeName { path: log.to_owned(), reason };
        let Some(rest) = log.as_os_str().as_bytes().strip_prefix(PREFIX.as_bytes()) else { return Ok(None) };
        let rest = std::str::from_utf8(rest).map_err(|_| wrong("it is not UTF-8"))?;
        let (rest, choice) = match rest.split_once(',') {
            None => (rest, PathChoice::Automatic),
            Some((rest, "path=channel")) => (rest, PathChoice::Channel),
            Some((rest, "path=mapped")) => (rest, PathChoice::Mapped),
            Some(_) => return Err(wrong("what follows the comma is neither path=channel nor path=mapped")),
        };
        let (socket, volume) = rest.rsplit_once('/').unwrap_or((SOCKET, rest));
        if volume.is_empty() || socket.is_empty() {
            return Err(wrong("it lacks the name of a volume"));
        }
        Ok(Some(VolumeName { socket: socket.into(), volume: volume.into(), choice }))
    }

    /// Returns the name of the log with the absolute path of the socket.
    ///
    /// # Errors
    /// [`Error::Io`] if the socket is not there.
    pub fn absolute(self) -> Result<VolumeName, Error> {
        let socket = self.socket.canonicalize().map_err(Error::io("find the socket", &self.socket))?;
        Ok(VolumeName { socket, ..self })
    }

    /// Returns the name as [`VolumeName::parse`] takes it.
    pub fn path(&self) -> PathBuf {
        let mut name = std::ffi::OsString::from(PREFIX);
        name.push(&self.socket);
        name.push("/");
        name.push(&self.volume);
        match self.choice {
            PathChoice::Channel => name.push(",path=channel"),
            PathChoice::Mapped => name.push(",path=mapped"),
            _ => {}
        }
        name.into()
    }
}

/// Open volume with a log.
#[derive(Debug)]
pub struct VolumeFile {
    volume: Volume,
    locks: File,
    locks_path: PathBuf,
    owner: u32,
    mode: u32,
}

impl VolumeFile {
    /// Opens a volume.
    ///
    /// # Errors
    /// [`Error::Volume`] if the server or the volume cannot be reached; [`Error::Locks`] or [`Error::Io`].
    pub fn open(name: &VolumeName, access: Access) -> Result<VolumeFile, Error> {
        let failed = |source| Error::Volume { path: name.path(), source: Box::new(source) };
        let options = Options::new()
            .name("bywash log")
            .choice(name.choice)
            // For a write in one piece and a read ahead.
            .depth(4)
            .arena_bytes(8 << 20);
        let access = match access {
            Access::Read => bywash_client::Access::Read,
            Access::Write => bywash_client::Access::ReadWrite,
        };
        let open = |options| {
            let client = Client::connect(&name.socket, options)?;
            client.open(&name.volume, access).map(|volume| (client, volume))
        };
        let (mut client, mut volume) = open(options.clone()).map_err(failed)?;
        if !volume.is_volatile() {
            // A server that comes back has its blocks.
            (client, volume) = open(options.reconnect(Reconnect::Within(RECONNECT_LIMIT))).map_err(failed)?;
        }
        let all = client.volumes().map_err(failed)?;
        let found = all.into_iter().find(|found| found.name == name.volume);
        let found = found.ok_or_else(|| Error::Missing(name.path()))?;
        let (locks, locks_path) = open_locks(name, found.owner)?;
        Ok(VolumeFile { volume, locks, locks_path, owner: found.owner, mode: found.mode.into() })
    }

    /// Returns the file whose locks count for the log, and its path.
    pub fn locks(&self) -> (&File, &Path) {
        (&self.locks, &self.locks_path)
    }

    /// Returns owner and permissions of the volume.
    pub fn owner_and_mode(&self) -> (u32, u32) {
        (self.owner, self.mode)
    }

    /// Returns the size of the volume, in bytes.
    pub fn bytes(&self) -> u64 {
        self.volume.len()
    }

    /// Returns true if the volume is in the server's memory.
    pub fn is_volatile(&self) -> bool {
        self.volume.is_volatile()
    }

    /// Reads bytes at an offset, as many as there are up to the end of the volume.
    ///
    /// # Errors
    /// The client's reason.
    pub fn read_at(&self, to: &mut [u8], at: u64) -> io::Result<usize> {
        let length = self.volume.len().saturating_sub(at).min(to.len() as u64) as usize;
        self.volume.read_at(&mut to[..length], at).map_err(io::Error::other)?;
        Ok(length)
    }

    /// Writes bytes at an offset, durably.
    ///
    /// # Errors
    /// The client's reason.
    pub fn write_all_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        self.volume.write_at_durable(bytes, at).map_err(io::Error::other)
    }

    /// Checks that the server lives and the volume is this client's.
    ///
    /// # Errors
    /// The client's reason.
    pub fn check(&self) -> io::Result<()> {
        // A server that comes back has the volume's blocks, if it is not in memory: the next request finds out.
        if self.is_volatile() { self.volume.check_server().map_err(io::Error::other) } else { Ok(()) }
    }

    /// Returns the descriptors of the volume's memory for programs, if it is mapped.
    ///
    /// # Errors
    /// The client's reason.
    pub fn share(&self) -> io::Result<Option<SharedMapping>> {
        if !self.volume.path().is_mapped() {
            return Ok(None);
        }
        self.volume.map().and_then(|memory| memory.share()).map(Some).map_err(io::Error::other)
    }
}

/// Opens the file whose locks count for a log, and creates it if it is missing.
fn open_locks(name: &VolumeName, owner: u32) -> Result<(File, PathBuf), Error> {
    let key = [name.socket.as_os_str().as_bytes(), b"/", name.volume.as_bytes()].concat();
    let path = Path::new(LOCKS).join(format!("bywash-log-{owner}-{:016x}", checksum(&key)));
    let failed = || Error::io("open", &path);
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let open = || match rustix::fs::open(&path, flags, Mode::empty()) {
        Ok(file) => Ok(Some(File::from(file))),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(failed()(error.into())),
    };
    let file = match open()? {
        Some(file) => file,
        None => match rustix::fs::open(&path, flags | OFlags::CREATE | OFlags::EXCL, Mode::RUSR | Mode::WUSR)
        {
            Ok(file) => {
                let file = File::from(file);
                if rustix::process::geteuid().as_raw() != owner {
                    // For the owner's keeper: made by root, or refused here.
                    std::os::unix::fs::fchown(&file, Some(owner), None).map_err(failed())?;
                }
                file
            }
            // Another process has made it meanwhile.
            Err(Errno::EXIST) => open()?.ok_or_else(|| failed()(io::ErrorKind::NotFound.into()))?,
            Err(error) => return Err(failed()(error.into())),
        },
    };
    let status = file.metadata().map_err(failed())?;
    if status.uid() != owner || !status.is_file() {
        return Err(Error::Locks { path, owner });
    }
    Ok((file, path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_volumes() {
        let parse = |text: &str| VolumeName::parse(Path::new(text));
        assert_eq!(parse("/var/log").unwrap(), None);
        assert_eq!(parse("./volume:log").unwrap(), None);
        let name = parse("volume:log").unwrap().unwrap();
        assert_eq!((name.socket.to_str(), name.volume.as_str()), (Some(SOCKET), "log"));
        for text in ["volume:/run/x/socket/log", "volume:/s/log,path=channel", "volume:/s/log,path=mapped"] {
            assert_eq!(parse(text).unwrap().unwrap().path(), Path::new(text));
        }
        for wrong in ["volume:", "volume:/socket/", "volume:/log", "volume:log,path=x", "volume:log,"] {
            assert!(parse(wrong).unwrap_err().to_string().contains(wrong), "{wrong}");
        }
    }
}
