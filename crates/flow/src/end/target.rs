//! A file that takes its name when it is whole.
//!
//! It has no name until then (O_TMPFILE), so that a flow that is killed leaves nothing; where the file system cannot
//! do that it has a name that nobody looks for. Invariant: under the name that the user gave there is at every moment
//! either what was there before, or everything. Called by the opening of a sink, and at the end of a flow.

use crate::error::Error;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// What a file becomes in the end.
pub(crate) struct Target {
    /// The name that the user gave, links resolved.
    path: PathBuf,
    /// The name that it has until then; none: it has none.
    temporary: Option<PathBuf>,
    /// Whether somebody else's file of that name may not be replaced.
    exclusive: bool,
}

/// How many names are tried before somebody is assumed to play with the folder.
const NAMES_MAX: u32 = 100;
/// Behind the name of what is not whole.
const PARTIAL: &str = ".partial";

impl Target {
    /// Makes a file that is to be `path`.
    pub(crate) fn create(path: &Path, mode: Mode, exclusive: bool) -> Result<(OwnedFd, Target), Error> {
        let failed = |error: Errno| Error::io(format!("make {}", path.display()), error);
        // What a link leads to is replaced, and not the link.
        let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        match rustix::fs::open(folder_of(&path), flags | OFlags::TMPFILE, mode) {
            Ok(descriptor) => Ok((descriptor, Target { path, temporary: None, exclusive })),
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOENT) => {
                let (descriptor, temporary) = fresh_name(&path, |name| {
                    rustix::fs::open(name, flags | OFlags::CREATE | OFlags::EXCL, mode)
                })
                .map_err(failed)?;
                Ok((descriptor, Target { path, temporary: Some(temporary), exclusive }))
            }
            Err(error) => Err(failed(error)),
        }
    }

    /// Gives the file its name; with `sync` the name is on the device too.
    pub(crate) fn commit(mut self, file: BorrowedFd<'_>, sync: bool) -> Result<(), Error> {
        let path = self.path.clone();
        let failed = |error: Errno| Error::io(format!("give {} its name", path.display()), error);
        self.name(file, &path, self.exclusive).map_err(failed)?;
        if sync {
            let folder =
                rustix::fs::open(folder_of(&path), OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty());
            folder.and_then(rustix::fs::fsync).map_err(failed)?;
        }
        Ok(())
    }

    /// Keeps what there is of it under a name that says so.
    pub(crate) fn keep_partial(mut self, file: BorrowedFd<'_>) -> Option<PathBuf> {
        let mut name = self.path.clone().into_os_string();
        name.push(PARTIAL);
        let path = PathBuf::from(name);
        self.name(file, &path, false).ok().map(|()| path)
    }

    fn name(&mut self, file: BorrowedFd<'_>, path: &Path, exclusive: bool) -> Result<(), Errno> {
        let temporary = match self.temporary.take() {
            Some(temporary) => temporary,
            None => match link(file, path) {
                Err(Errno::EXIST) if !exclusive => fresh_name(path, |name| link(file, name))?.1,
                done => return done,
            },
        };
        let flags = if exclusive { RenameFlags::NOREPLACE } else { RenameFlags::empty() };
        let renamed = rustix::fs::renameat_with(CWD, &temporary, CWD, path, flags);
        if renamed.is_err() {
            // Nothing stays behind that nobody knows of.
            let _ = rustix::fs::unlink(&temporary);
        }
        renamed
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        if let Some(temporary) = self.temporary.take() {
            // It may be gone already, with its folder.
            let _ = rustix::fs::unlink(&temporary);
        }
    }
}

fn link(file: BorrowedFd<'_>, name: &Path) -> Result<(), Errno> {
    let here = format!("/proc/self/fd/{}", file.as_raw_fd());
    rustix::fs::linkat(CWD, here, CWD, name, AtFlags::SYMLINK_FOLLOW)
}

/// Makes something under a name in the folder of `path` that nothing has yet.
fn fresh_name<T>(
    path: &Path,
    mut make: impl FnMut(&Path) -> Result<T, Errno>,
) -> Result<(T, PathBuf), Errno> {
    let name = path.file_name().unwrap_or(OsStr::new("flow"));
    for number in 0..NAMES_MAX {
        // A name of 255 bytes is the longest there is.
        let mut fresh = OsString::from(".");
        fresh.push(OsStr::from_bytes(&name.as_bytes()[..name.len().min(200)]));
        fresh.push(format!(".bywash-{}-{number}", std::process::id()));
        let fresh = path.with_file_name(fresh);
        match make(&fresh) {
            Ok(made) => return Ok((made, fresh)),
            Err(Errno::EXIST) => {}
            Err(error) => return Err(error),
        }
    }
    Err(Errno::EXIST)
}

/// The folder that `path` is in.
pub(crate) fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::fd::AsFd;

    fn made(path: &Path, exclusive: bool) -> (OwnedFd, Target) {
        let (file, target) = Target::create(path, Mode::from_raw_mode(0o644), exclusive).unwrap();
        rustix::io::write(&file, b"new").unwrap();
        (file, target)
    }

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn the_name_is_there_when_the_file_is_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        let (file, target) = made(&path, false);
        assert!(names(folder.path()).is_empty());
        target.commit(file.as_fd(), true).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(names(folder.path()), ["x"]);
    }

    #[test]
    fn what_was_there_stays_until_then() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        fs::write(&path, "old").unwrap();
        let (file, target) = made(&path, false);
        assert_eq!(fs::read(&path).unwrap(), b"old");
        target.commit(file.as_fd(), false).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        drop(made(&path, false));
        assert_eq!(names(folder.path()), ["x"]);
    }

    #[test]
    fn what_must_not_be_there_is_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        let (file, target) = made(&path, true);
        fs::write(&path, "somebody else's").unwrap();
        assert!(target.commit(file.as_fd(), false).is_err());
        assert_eq!(fs::read(&path).unwrap(), b"somebody else's");
        assert_eq!(names(folder.path()), ["x"]);
    }

    #[test]
    fn a_part_says_that_it_is_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        let (file, target) = made(&path, false);
        assert_eq!(target.keep_partial(file.as_fd()), Some(folder.path().join("x.partial")));
        assert_eq!(names(folder.path()), ["x.partial"]);
    }

    #[test]
    fn a_link_stays_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let (path, link) = (folder.path().join("x"), folder.path().join("link"));
        fs::write(&path, "old").unwrap();
        std::os::unix::fs::symlink("x", &link).unwrap();
        let (file, target) = made(&link, false);
        target.commit(file.as_fd(), false).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    }
}
