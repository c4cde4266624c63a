//! A new file that takes its name when it is complete.
//!
//! Until then the file has no name (O_TMPFILE), so that a killed flow leaves nothing behind. On file systems
//! without O_TMPFILE it has a hidden temporary name. Invariant: at any moment, the user's name refers either
//! to what was there before or to the complete file. Called when a sink is opened, and at the end of a flow.

use crate::error::Error;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, RenameFlags, StatxAttributes, StatxFlags};
use rustix::io::Errno;
use rustix::thread::{CapabilitySet, capabilities};
use std::ffi::{OsStr, OsString};
use std::io::Seek;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Name and state of a new file that is not complete.
pub(crate) struct NewFile {
    /// Final path of the file, with symbolic links resolved.
    path: PathBuf,
    /// Path of the file while it is not complete; `None` if it has no name then (O_TMPFILE).
    temporary: Option<PathBuf>,
    /// True if an existing file at the final path must not be replaced.
    exclusive: bool,
    /// True if the temporary path is that of an earlier flow's partial file, which keeps this name if the
    /// flow fails.
    resumed: bool,
}

/// Number of names that are tried before the search for a free one ends with an error.
const NAMES_MAX: u32 = 1000;
/// Longest file name, in bytes (limits.h), and the part of it reserved for a suffix and a number.
const NAME_BYTES_MAX: usize = 255;
const SUFFIX_BYTES_MAX: usize = 15;
/// Suffix of a partial file.
const PARTIAL: &str = ".partial";
/// Suffix of a complete file that could not take its name.
const COMPLETE: &str = ".complete";

impl NewFile {
    /// Creates a file that will become `path`.
    ///
    /// # Errors
    /// [`Error::Io`] if the file cannot be created.
    pub(crate) fn create(path: &Path, mode: Mode, exclusive: bool) -> Result<(OwnedFd, NewFile), Error> {
        let failed = |error: Errno| Error::io(format!("make {}", path.display()), error);
        let path = resolved(path).map_err(failed)?;
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let nameless = match rustix::fs::access("/proc/self/fd", rustix::fs::Access::EXISTS) {
            Ok(()) => rustix::fs::open(folder_of(&path), flags | OFlags::TMPFILE, mode),
            // Without /proc a nameless file could not be linked to a name later.
            Err(_) => Err(Errno::OPNOTSUPP),
        };
        let resumed = false;
        match nameless {
            Ok(descriptor) => Ok((descriptor, NewFile { path, temporary: None, exclusive, resumed })),
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOENT) => {
                let (descriptor, temporary) = fresh_name(&path, |name| {
                    rustix::fs::open(name, flags | OFlags::CREATE | OFlags::EXCL, mode)
                })
                .map_err(failed)?;
                Ok((descriptor, NewFile { path, temporary: Some(temporary), exclusive, resumed }))
            }
            Err(error) => Err(failed(error)),
        }
    }

    /// Gives the file its final name; with `sync` the name is durable when this returns.
    ///
    /// # Errors
    /// [`Error::Io`] if the file cannot take its name (the message tells where it is kept instead), or the
    /// folder cannot be synced.
    pub(crate) fn commit(mut self, file: BorrowedFd<'_>, sync: bool) -> Result<(), Error> {
        let path = self.path.clone();
        let failed = |error: Errno| Error::io(format!("give {} its name", path.display()), error);
        if let Err(error) = self.name(file, &path, self.exclusive) {
            let kept = match self.keep_complete(file) {
                Some(kept) => format!("everything has arrived, and is kept as {}", kept.display()),
                None => "and no other name could be given to what has arrived".into(),
            };
            return Err(Error::io(format!("give {} its name ({kept})", path.display()), error));
        }
        if sync {
            let folder =
                rustix::fs::open(folder_of(&path), OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty());
            folder.and_then(rustix::fs::fsync).map_err(failed)?;
        }
        Ok(())
    }

    /// Keeps an incomplete file under an unused name with the suffix of a partial file, and returns that
    /// path.
    pub(crate) fn keep_partial(mut self, file: BorrowedFd<'_>) -> Option<PathBuf> {
        if self.resumed {
            // A continued partial file has such a name already.
            return self.temporary.take();
        }
        let path = self.path.clone();
        self.link_unused_name(file, &path, PARTIAL).ok()
    }

    /// Returns the paths of the partial files that earlier flows to the same path have left.
    pub(crate) fn partial_files(&self) -> Vec<PathBuf> {
        let is_file =
            |path: &PathBuf| std::fs::symlink_metadata(path).is_ok_and(|there| there.file_type().is_file());
        numbered(&self.path, PARTIAL).filter(is_file).collect()
    }

    /// Returns this file with the partial file `part` as its contents so far: the flow appends to the partial
    /// file, which takes the final name at the end.
    pub(crate) fn resumed(self, part: PathBuf) -> NewFile {
        let (path, exclusive) = (self.path.clone(), self.exclusive);
        NewFile { path, temporary: Some(part), exclusive, resumed: true }
    }

    /// Saves a complete file that could not take its name: in the same folder, in the nearest folder above
    /// that still exists, in the current folder, or as a copy in the folder for temporary files.
    fn keep_complete(&mut self, file: BorrowedFd<'_>) -> Option<PathBuf> {
        let name = self.path.file_name()?.to_owned();
        let above: Vec<PathBuf> = self.path.ancestors().skip(1).map(|folder| folder.join(&name)).collect();
        let here = std::env::current_dir().ok().map(|folder| folder.join(&name));
        let kept =
            above.iter().chain(&here).find_map(|path| self.link_unused_name(file, path, COMPLETE).ok());
        kept.or_else(|| copy(file, &std::env::temp_dir().join(&name)).ok())
    }

    /// Gives the file the first unused name that consists of `path`, `suffix` and perhaps a number.
    fn link_unused_name(
        &mut self,
        file: BorrowedFd<'_>,
        path: &Path,
        suffix: &str,
    ) -> Result<PathBuf, Errno> {
        for name in numbered(path, suffix) {
            match self.name(file, &name, true) {
                Err(Errno::EXIST) => {}
                done => return done.map(|()| name),
            }
        }
        Err(Errno::EXIST)
    }

    /// Gives the file a name. If that fails, the file keeps its earlier name, if it had one.
    fn name(&mut self, file: BorrowedFd<'_>, path: &Path, exclusive: bool) -> Result<(), Errno> {
        let temporary = match &self.temporary {
            Some(temporary) => temporary.clone(),
            None => match link(file, path) {
                Err(Errno::EXIST) if !exclusive => {
                    let fresh = fresh_name(path, |name| link(file, name))?.1;
                    self.temporary.insert(fresh).clone()
                }
                done => return done,
            },
        };
        if exclusive { rename_to_nothing(&temporary, path) } else { rustix::fs::rename(&temporary, path) }?;
        self.temporary = None;
        Ok(())
    }
}

/// Renames a file to a name that is not in use.
fn rename_to_nothing(from: &Path, to: &Path) -> Result<(), Errno> {
    match rustix::fs::renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // The file system has no RENAME_NOREPLACE, but link(2) does not replace a file either.
        Err(Errno::INVAL | Errno::NOSYS) => {
            rustix::fs::linkat(CWD, from, CWD, to, AtFlags::empty())?;
            rustix::fs::unlink(from)
        }
        done => done,
    }
}

/// Copies a file to the first unused name that consists of `path`, the suffix of complete files and perhaps a
/// number.
fn copy(file: BorrowedFd<'_>, path: &Path) -> std::io::Result<PathBuf> {
    for name in numbered(path, COMPLETE) {
        let mut new = std::fs::OpenOptions::new();
        match new.write(true).create_new(true).mode(0o600).open(&name) {
            Ok(mut to) => {
                let mut from = std::fs::File::from(file.try_clone_to_owned()?);
                from.rewind()?;
                return match std::io::copy(&mut from, &mut to) {
                    Ok(_) => Ok(name),
                    Err(error) => {
                        // An incomplete copy must not look like a complete one.
                        let _ = std::fs::remove_file(&name);
                        Err(error)
                    }
                };
            }
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(Errno::EXIST.into())
}

/// Iterates over `path` with `suffix`, and then with a number behind it too: `x.partial`, `x.partial.1`,
/// `x.partial.2`.
fn numbered(path: &Path, suffix: &str) -> impl Iterator<Item = PathBuf> {
    let name = path.file_name().unwrap_or(OsStr::new("flow")).as_bytes();
    let mut first = OsStr::from_bytes(&name[..name.len().min(NAME_BYTES_MAX - SUFFIX_BYTES_MAX)]).to_owned();
    first.push(suffix);
    let first = path.with_file_name(first);
    let others = first.clone();
    let with = move |number: u32| {
        let mut name = others.clone().into_os_string();
        name.push(format!(".{number}"));
        PathBuf::from(name)
    };
    std::iter::once(first).chain((1..NAMES_MAX).map(with))
}

/// Checks before anything is moved whether a new file could take the name `path` at the end.
///
/// # Errors
/// [`Error::Usage`] if the path ends in `/`; [`Error::Io`] if the file at the path may not be replaced: it is
/// a mount point, immutable, append-only, or another user's in a folder with the sticky bit.
pub(crate) fn check(path: &Path) -> Result<(), Error> {
    let shown = path.display();
    if path.as_os_str().as_bytes().ends_with(b"/") {
        return Err(Error::Usage(format!("{shown} is no folder yet: make it, or name a file")));
    }
    let attributes = |path: &Path| {
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        rustix::fs::statx(CWD, path, flags, StatxFlags::BASIC_STATS).ok()
    };
    let (Some(folder), Some(there)) = (attributes(folder_of(path)), attributes(path)) else {
        return Ok(());
    };
    let refused = |why: &str, error: Errno| Err(Error::io(format!("replace {shown}: {why}"), error));
    let fixed = StatxAttributes::IMMUTABLE | StatxAttributes::APPEND;
    if there.stx_attributes.contains(StatxAttributes::MOUNT_ROOT) {
        return refused(
            "it is mounted there, and can only be written in place (file:PATH,in-place)",
            Errno::BUSY,
        );
    }
    if there.stx_attributes.intersects(fixed) || folder.stx_attributes.intersects(fixed) {
        return refused("it or its folder is immutable or may only grow (chattr(1))", Errno::PERM);
    }
    let user = rustix::process::geteuid().as_raw();
    let is_sticky = u32::from(folder.stx_mode) & libc::S_ISVTX != 0;
    if is_sticky && user != folder.stx_uid && user != there.stx_uid && !may_replace_others() {
        return refused(
            "it is somebody else's, in a folder where each may only replace what is his own",
            Errno::PERM,
        );
    }
    Ok(())
}

fn may_replace_others() -> bool {
    capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::FOWNER))
}

impl Drop for NewFile {
    fn drop(&mut self) {
        // An earlier flow's partial file stays.
        if let Some(temporary) = self.temporary.take().filter(|_| !self.resumed) {
            // The unlink may fail, for example if the folder has been removed.
            let _ = rustix::fs::unlink(&temporary);
        }
    }
}

fn link(file: BorrowedFd<'_>, name: &Path) -> Result<(), Errno> {
    let here = format!("/proc/self/fd/{}", file.as_raw_fd());
    rustix::fs::linkat(CWD, here, CWD, name, AtFlags::SYMLINK_FOLLOW)
}

/// Calls `make` with hidden temporary paths in the folder of `path`, until one does not exist yet.
fn fresh_name<T>(
    path: &Path,
    mut make: impl FnMut(&Path) -> Result<T, Errno>,
) -> Result<(T, PathBuf), Errno> {
    let name = path.file_name().unwrap_or(OsStr::new("flow"));
    for number in 0..NAMES_MAX {
        // The name is cut to 200 bytes, so that it stays below the limit of 255 with prefix and suffix.
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

/// Greatest number of symbolic links that are followed, as in the kernel (path_resolution(7)).
const LINKS_MAX: u32 = 40;

/// Follows symbolic links from `path`, even to a path at which nothing exists yet, so that writing replaces
/// the target and not the link.
///
/// # Errors
/// ELOOP if there are more than [`LINKS_MAX`] links, and the errno of readlink(2).
pub(crate) fn resolved(path: &Path) -> Result<PathBuf, Errno> {
    let mut path = path.to_path_buf();
    for _ in 0..LINKS_MAX {
        match rustix::fs::readlink(&path, Vec::new()) {
            // An absolute target replaces the whole path.
            Ok(leads_to) => path = folder_of(&path).join(OsStr::from_bytes(leads_to.as_bytes())),
            // The path is not a link, or nothing exists there.
            Err(Errno::INVAL | Errno::NOENT) => return Ok(path),
            Err(error) => return Err(error),
        }
    }
    Err(Errno::LOOP)
}

/// Returns the folder that `path` is in.
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

    fn made(path: &Path, exclusive: bool) -> (OwnedFd, NewFile) {
        let (file, new_file) = NewFile::create(path, Mode::from_raw_mode(0o644), exclusive).unwrap();
        rustix::io::write(&file, b"new").unwrap();
        (file, new_file)
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
        let (file, new_file) = made(&path, false);
        assert!(names(folder.path()).is_empty());
        new_file.commit(file.as_fd(), true).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(names(folder.path()), ["x"]);
    }

    #[test]
    fn what_was_there_stays_until_then() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        fs::write(&path, "old").unwrap();
        let (file, new_file) = made(&path, false);
        assert_eq!(fs::read(&path).unwrap(), b"old");
        new_file.commit(file.as_fd(), false).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        drop(made(&path, false));
        assert_eq!(names(folder.path()), ["x"]);
    }

    #[test]
    fn what_must_not_be_there_is_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        let (file, new_file) = made(&path, true);
        fs::write(&path, "somebody else's").unwrap();
        let error = new_file.commit(file.as_fd(), false).unwrap_err().to_string();
        assert!(error.contains("is kept as") && error.contains("x.complete"), "{error}");
        assert_eq!(fs::read(&path).unwrap(), b"somebody else's");
        assert_eq!(names(folder.path()), ["x", "x.complete"]);
    }

    #[test]
    fn what_is_whole_is_kept_when_its_folder_has_gone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("inner/x");
        fs::create_dir(folder.path().join("inner")).unwrap();
        let (file, new_file) = made(&path, false);
        fs::remove_dir(folder.path().join("inner")).unwrap();
        let error = new_file.commit(file.as_fd(), false).unwrap_err().to_string();
        let kept = folder.path().join("x.complete");
        assert!(error.contains(kept.to_str().unwrap()), "{error}");
        assert_eq!(fs::read(kept).unwrap(), b"new");
    }

    #[test]
    fn a_long_name_has_a_part_too() {
        let folder = tempfile::tempdir().unwrap();
        let (file, new_file) = made(&folder.path().join("x".repeat(255)), false);
        assert!(new_file.keep_partial(file.as_fd()).unwrap().to_str().unwrap().ends_with("xx.partial"));
    }

    #[test]
    fn a_part_says_that_it_is_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        let (file, new_file) = made(&path, false);
        assert_eq!(new_file.keep_partial(file.as_fd()), Some(folder.path().join("x.partial")));
        assert_eq!(names(folder.path()), ["x.partial"]);
        fs::write(folder.path().join("x.partial"), "an earlier part").unwrap();
        for number in 1..12 {
            let (file, new_file) = made(&path, false);
            let kept = folder.path().join(format!("x.partial.{number}"));
            assert_eq!(new_file.keep_partial(file.as_fd()), Some(kept));
        }
        assert_eq!(fs::read(folder.path().join("x.partial")).unwrap(), b"an earlier part");
    }

    #[test]
    fn a_link_stays_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let (path, link) = (folder.path().join("x"), folder.path().join("link"));
        fs::write(&path, "old").unwrap();
        std::os::unix::fs::symlink("x", &link).unwrap();
        let (file, new_file) = made(&link, false);
        new_file.commit(file.as_fd(), false).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    }

    #[test]
    fn a_link_to_nothing_stays_a_link_and_then_leads_to_the_file() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("there")).unwrap();
        let (path, link) = (folder.path().join("there/x"), folder.path().join("link"));
        std::os::unix::fs::symlink("there/second", &link).unwrap();
        std::os::unix::fs::symlink("x", folder.path().join("there/second")).unwrap();
        let (file, new_file) = made(&link, false);
        new_file.commit(file.as_fd(), false).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        std::os::unix::fs::symlink("circle", folder.path().join("circle")).unwrap();
        assert!(NewFile::create(&folder.path().join("circle"), Mode::empty(), false).is_err());
    }
}
