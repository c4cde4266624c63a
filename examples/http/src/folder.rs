//! The served folder: names of requests, and files that are opened below the folder and nowhere else.

use rustix::fs::{Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;
use std::borrow::Cow;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Folder whose files are served. A clone is the same folder.
#[derive(Clone, Debug)]
pub struct Folder {
    root: Arc<OwnedFd>,
    follows_links: bool,
}

/// File or folder that a name led to.
#[derive(Debug)]
pub enum Found {
    /// A regular file, open for reading.
    File(OwnedFd, Version),
    /// A folder, which has no contents of its own.
    Folder,
}

/// Properties of a file, of which at least one differs after each change of the contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    device: u64,
    inode: u64,
    /// Length, in bytes.
    pub bytes: u64,
    /// Time of the last change of the contents, in nanoseconds since 1970.
    modified_ns: i128,
    /// Time of the last change of the contents or of a property, in nanoseconds since 1970. No program can set it back.
    changed_ns: i128,
}

impl Folder {
    /// Opens the folder. With `follows_links`, symbolic links that stay inside it are followed; else none is.
    ///
    /// # Errors
    /// The kernel's error if the folder cannot be opened.
    pub fn open(path: &Path, follows_links: bool) -> io::Result<Folder> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(path, flags, Mode::empty())?;
        Ok(Folder { root: Arc::new(root), follows_links })
    }

    /// Opens the file `name`, a relative name, if the kernel can do so without waiting for a device: else `None`.
    ///
    /// # Errors
    /// Same as [`Folder::open_file`].
    pub fn open_cached(&self, name: &str) -> io::Result<Option<Found>> {
        match self.open_with(name, ResolveFlags::CACHED) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            found => found.map(Some),
        }
    }

    /// Opens the file `name`, a relative name. May wait for a device.
    ///
    /// # Errors
    /// The kernel's error if there is no such file, or if it may not be read. A name that leads out of the folder or
    /// over a symbolic link that is not followed, and what is neither a file nor a folder, do not exist.
    pub fn open_file(&self, name: &str) -> io::Result<Found> {
        for _ in 0..RENAMES_MAX {
            match self.open_with(name, ResolveFlags::empty()) {
                // A folder on the way was renamed meanwhile: openat2(2).
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                found => return found,
            }
        }
        Err(io::ErrorKind::ResourceBusy.into())
    }

    fn open_with(&self, name: &str, how: ResolveFlags) -> io::Result<Found> {
        let mut resolve = how | ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        if !self.follows_links {
            resolve |= ResolveFlags::NO_SYMLINKS;
        }
        // Not waiting: a FIFO without a writer would stop the thread.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let name = if name.is_empty() { "." } else { name };
        let file =
            rustix::fs::openat2(&self.root, name, flags, Mode::empty(), resolve).map_err(
                |error| match error {
                    Errno::LOOP | Errno::XDEV | Errno::NXIO | Errno::NODEV => Errno::NOENT,
                    other => other,
                },
            )?;
        let stat = rustix::fs::fstat(&file)?;
        match rustix::fs::FileType::from_raw_mode(stat.st_mode) {
            rustix::fs::FileType::RegularFile => Ok(Found::File(file, Version::from_stat(&stat))),
            rustix::fs::FileType::Directory => Ok(Found::Folder),
            _ => Err(Errno::NOENT.into()),
        }
    }
}

impl Version {
    /// Returns the version that an open file has now.
    ///
    /// # Errors
    /// The kernel's error if it cannot tell the file's properties.
    pub fn read(file: &OwnedFd) -> io::Result<Version> {
        Ok(Version::from_stat(&rustix::fs::fstat(file)?))
    }

    fn from_stat(stat: &Stat) -> Version {
        let time =
            |seconds: i64, nanoseconds: u64| i128::from(seconds) * 1_000_000_000 + i128::from(nanoseconds);
        Version {
            device: stat.st_dev,
            inode: stat.st_ino,
            bytes: u64::try_from(stat.st_size).unwrap_or(0),
            modified_ns: time(stat.st_mtime, stat.st_mtime_nsec),
            changed_ns: time(stat.st_ctime, stat.st_ctime_nsec),
        }
    }

    /// Returns true if a later change of the contents is certain to change the version: times of files are those of the
    /// kernel's last tick, so that of two changes within one tick the second leaves no trace.
    pub fn is_settled(&self) -> bool {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now_ns = i128::try_from(now.as_nanos()).unwrap_or(i128::MAX);
        now_ns - self.changed_ns > i128::from(TICK_NS_MAX)
    }

    /// Returns the time of the last change of the contents, in whole seconds; 1970 for anything before.
    pub fn modified(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(u64::try_from(self.modified_ns / 1_000_000_000).unwrap_or(0))
    }

    /// Returns the entity tag (RFC 9110, section 8.8.3). It is a weak one if the version is not settled.
    pub fn tag(&self) -> String {
        let weak = if self.is_settled() { "" } else { "W/" };
        let (times, place) =
            (self.modified_ns ^ self.changed_ns.rotate_left(64), self.device.rotate_left(48));
        format!("{weak}\"{:x}-{:x}-{times:x}\"", place ^ self.inode, self.bytes)
    }
}

/// Translates the path of a URL to a relative name of a file: percent signs decoded, without `.` and empty segments.
/// `None` if no name can be meant: a segment `..`, a slash or a zero byte that is encoded, or text that is not UTF-8.
///
/// The result ends in a slash if the path does, or is empty.
pub fn file_name(path: &str) -> Option<String> {
    let mut name = String::with_capacity(path.len());
    for segment in path.split('/') {
        let segment = decode(segment)?;
        match &*segment {
            "" | "." => continue,
            ".." => return None,
            _ if segment.contains(['/', '\0']) => return None,
            _ => {}
        }
        if !name.is_empty() {
            name.push('/');
        }
        name.push_str(&segment);
    }
    if !name.is_empty() && path.ends_with('/') {
        name.push('/');
    }
    Some(name)
}

fn decode(segment: &str) -> Option<Cow<'_, str>> {
    if !segment.contains('%') {
        return Some(segment.into());
    }
    let mut bytes = Vec::with_capacity(segment.len());
    let mut rest = segment.as_bytes().iter();
    while let Some(&byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || char::from(*rest.next()?).to_digit(16);
        let value = digit()? * 16 + digit()?;
        bytes.push(u8::try_from(value).ok()?);
    }
    String::from_utf8(bytes).ok().map(Cow::from)
}

/// Greatest number of attempts to open a name while others rename folders on the way to it.
const RENAMES_MAX: usize = 16;
/// Time after which a change of a file has a later time than the one before: more than the longest tick of a kernel
/// (10 ms) and than the resolution of common file systems.
const TICK_NS_MAX: u32 = 100_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn names_are_decoded_and_stay_inside() {
        let name = |path: &str| file_name(path).unwrap_or_else(|| "none".to_owned());
        assert_eq!(name("/a/b.html"), "a/b.html");
        assert_eq!(name("//a/./b//"), "a/b/");
        assert_eq!(name("/"), "");
        assert_eq!(name("/%61%20b%C3%A9"), "a bé");
        for path in ["/..", "/a/../b", "/%2e%2E/x", "/a%2fb", "/a%00", "/%", "/%4", "/%zz", "/%ff"] {
            assert_eq!(name(path), "none", "{path}");
        }
    }

    #[test]
    fn nothing_outside_is_opened() {
        let outer = tempfile::tempdir().unwrap();
        let root = outer.path().join("root");
        fs::create_dir_all(root.join("sub")).unwrap();
        fs::write(outer.path().join("secret"), "secret").unwrap();
        fs::write(root.join("file"), "text").unwrap();
        symlink("file", root.join("inside")).unwrap();
        symlink("../secret", root.join("outside")).unwrap();
        symlink("/etc/passwd", root.join("absolute")).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, root.join("fifo"), Mode::RUSR | Mode::WUSR).unwrap();
        let opens = |folder: &Folder, name: &str| match folder.open_file(name) {
            Ok(Found::File(_, version)) => version.bytes.to_string(),
            Ok(Found::Folder) => "folder".to_owned(),
            Err(error) => format!("{:?}", error.kind()),
        };
        let strict = Folder::open(&root, false).unwrap();
        let lenient = Folder::open(&root, true).unwrap();
        for folder in [&strict, &lenient] {
            assert_eq!(opens(folder, "file"), "4");
            assert_eq!(opens(folder, "sub"), "folder");
            assert_eq!(opens(folder, ""), "folder");
            for name in ["outside", "absolute", "fifo", "../secret", "/etc/passwd", "none"] {
                assert_eq!(opens(folder, name), "NotFound", "{name}");
            }
        }
        assert_eq!(opens(&strict, "inside"), "NotFound");
        assert_eq!(opens(&lenient, "inside"), "4");
    }

    #[test]
    fn a_change_has_another_version() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let read = || Version::read(&fs::File::open(&path).unwrap().into()).unwrap();
        fs::write(&path, "one").unwrap();
        let one = read();
        assert!(!one.is_settled() && one.tag().starts_with("W/\""), "{one:?}");
        std::thread::sleep(Duration::from_millis(150));
        assert!(one.is_settled() && one.tag().starts_with('"'), "{one:?}");
        assert_eq!(read(), one);
        fs::write(&path, "two").unwrap();
        assert_ne!(read(), one);
        assert_ne!(read().tag().trim_start_matches("W/"), one.tag());
    }
}
