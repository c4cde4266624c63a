//! Files of the host: their import before a program starts, and the export of what a program has written.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::{Contents, FileSystem, Kind, Node, NodeId, ROOT};
use crate::clock::Time;
use crate::errno::Errno;

/// Reason for which files cannot be imported or exported.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// The host refuses to read or write a file.
    #[error("cannot access {path}: {error}")]
    Host {
        /// Path of the host.
        path: PathBuf,
        /// Error of the host.
        error: std::io::Error,
    },
    /// The simulated file system refuses the file.
    #[error("cannot have {path} in the simulated file system: error {}; {hint}", errno.number())]
    Simulated {
        /// Path in the simulation.
        path: String,
        /// Error.
        errno: Errno,
        /// Advice.
        hint: &'static str,
    },
    /// The tree of folders is too deep.
    #[error(
        "{0} lies more than {DEPTH_LIMIT} folders below the one to copy; name a smaller part of the tree"
    )]
    TooDeep(PathBuf),
}

/// Greatest depth of folders that are imported or exported.
const DEPTH_LIMIT: usize = 64;

impl FileSystem {
    /// Adds a file with the folders that it is in.
    ///
    /// # Errors
    ///
    /// [`ImportError::Simulated`]: a name is one of a file that exists, or the limit is reached.
    pub fn add_file(&mut self, path: &str, bytes: &[u8]) -> Result<(), ImportError> {
        self.insert_file(path, bytes, 0o644).map_err(|errno| refused(path, errno))
    }

    /// Adds a folder with the folders that it is in, if they are not there.
    ///
    /// # Errors
    ///
    /// [`ImportError::Simulated`]: a name is one of a file, or the limit is reached.
    pub fn add_folder(&mut self, path: &str) -> Result<(), ImportError> {
        self.make_folders(path.as_bytes()).map(|_| ()).map_err(|errno| refused(path, errno))
    }

    /// Returns the bytes of a file.
    ///
    /// # Errors
    ///
    /// [`ImportError::Simulated`]: there is no such file, or a hole makes it longer than the file system's limit.
    pub fn contents(&self, path: &str) -> Result<Vec<u8>, ImportError> {
        let found = self.resolve(ROOT, path.as_bytes(), true);
        let node = found.and_then(|found| self.node(found.node.ok_or(Errno::ENOENT)?));
        match node.map(|node| &node.kind) {
            Ok(Kind::File(contents)) => self.bytes_of(contents).map_err(|errno| refused(path, errno)),
            Ok(_) => Err(refused(path, Errno::EINVAL)),
            Err(errno) => Err(refused(path, errno)),
        }
    }

    /// Copies a file or a folder of the host, with all below it, to a path. Symbolic links stay links; what is
    /// neither file, folder nor link is left out.
    ///
    /// # Errors
    ///
    /// [`ImportError`]: the host refuses a file, the names or the size are impossible here, or the tree is too
    /// deep.
    pub fn import(&mut self, host: &Path, path: &str) -> Result<(), ImportError> {
        self.import_tree(host, path.trim_end_matches('/'), 0)
    }

    /// Writes a file, or a folder with all below it, to the host. Existing files are replaced; links and devices
    /// are left out.
    ///
    /// # Errors
    ///
    /// [`ImportError`]: there is no such file, the host refuses it, or the tree is too deep.
    pub fn export(&self, path: &str, host: &Path) -> Result<(), ImportError> {
        let found =
            self.resolve(ROOT, path.as_bytes(), true).and_then(|found| found.node.ok_or(Errno::ENOENT));
        self.export_tree(found.map_err(|errno| refused(path, errno))?, host, 0)
    }

    /// Imports a tree at a depth.
    fn import_tree(&mut self, host: &Path, path: &str, depth: usize) -> Result<(), ImportError> {
        let failed = |error| ImportError::Host { path: host.into(), error };
        if depth > DEPTH_LIMIT {
            return Err(ImportError::TooDeep(host.into()));
        }
        // The folder itself may be named by a link.
        let status = if depth == 0 { host.metadata() } else { host.symlink_metadata() }.map_err(failed)?;
        if status.is_dir() {
            self.add_folder(path)?;
            let entries = std::fs::read_dir(host).map_err(failed)?;
            let mut names =
                entries.map(|entry| entry.map(|entry| entry.file_name())).collect::<Result<Vec<_>, _>>();
            if let Ok(names) = &mut names {
                names.sort();
            }
            for name in names.map_err(failed)? {
                self.import_tree(
                    &host.join(&name),
                    &format!("{path}/{}", name.to_string_lossy()),
                    depth + 1,
                )?;
            }
        } else if status.is_symlink() {
            let target = std::fs::read_link(host).map_err(failed)?;
            let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
            let link = Kind::Link(target.to_string_lossy().into_owned().into_bytes());
            let add = self
                .make_folders(folder.as_bytes())
                .and_then(|folder| self.create(folder, name.as_bytes(), link, 0o777, Time::ZERO));
            add.map_err(|errno| refused(path, errno))?;
        } else if status.is_file() {
            if status.len() > self.free() {
                return Err(refused(path, Errno::ENOSPC));
            }
            let mode = if is_executable(&status) { 0o755 } else { 0o644 };
            let bytes = std::fs::read(host).map_err(failed)?;
            self.insert_file(path, &bytes, mode).map_err(|errno| refused(path, errno))?;
        }
        Ok(())
    }

    /// Exports a tree at a depth.
    fn export_tree(&self, id: NodeId, host: &Path, depth: usize) -> Result<(), ImportError> {
        let failed = |error| ImportError::Host { path: host.into(), error };
        if depth > DEPTH_LIMIT {
            return Err(ImportError::TooDeep(host.into()));
        }
        match self.node(id) {
            Ok(Node { kind: Kind::File(contents), .. }) => {
                let bytes = self.bytes_of(contents);
                let bytes = bytes.map_err(|errno| refused(&host.to_string_lossy(), errno))?;
                std::fs::write(host, bytes).map_err(failed)
            }
            Ok(Node { kind: Kind::Folder { entries, .. }, .. }) => {
                std::fs::create_dir_all(host).map_err(failed)?;
                for (name, &node) in entries {
                    self.export_tree(node, &host.join(String::from_utf8_lossy(name).as_ref()), depth + 1)?;
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Makes a file with the folders that it is in.
    fn insert_file(&mut self, path: &str, bytes: &[u8], mode: u32) -> Result<(), Errno> {
        let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
        let folder = self.make_folders(folder.as_bytes())?;
        let file = Kind::File(Contents::default());
        let id = self.create(folder, name.as_bytes(), file, mode, Time::ZERO)?;
        self.write(id, 0, bytes, Time::ZERO)
    }

    /// Returns the bytes of a file. A file with a hole can be longer than all files' bytes, and is refused.
    fn bytes_of(&self, contents: &Contents) -> Result<Vec<u8>, Errno> {
        let length = usize::try_from(contents.length().min(self.limit() + 1)).map_err(|_| Errno::EFBIG)?;
        if length as u64 > self.limit() {
            return Err(Errno::EFBIG);
        }
        let mut bytes = vec![0; length];
        contents.read(0, &mut bytes);
        Ok(bytes)
    }

    /// Makes the folders of a path that are not there, and returns the last.
    fn make_folders(&mut self, path: &[u8]) -> Result<NodeId, Errno> {
        let mut at = ROOT;
        for name in path.split(|&byte| byte == b'/').filter(|name| !name.is_empty()) {
            let found = self.resolve(at, name, true)?;
            at = match found.node {
                Some(node) => node,
                None => {
                    let folder = Kind::Folder { entries: BTreeMap::new(), parent: found.parent };
                    self.create(found.parent, &found.name, folder, 0o755, Time::ZERO)?
                }
            };
        }
        if self.is_folder(at) { Ok(at) } else { Err(Errno::ENOTDIR) }
    }
}

/// Returns whether a file of the host may be executed.
#[cfg(unix)]
fn is_executable(status: &std::fs::Metadata) -> bool {
    std::os::unix::fs::PermissionsExt::mode(&status.permissions()) & 0o111 != 0
}

/// Returns whether a file of the host may be executed; hosts without such permissions say no.
#[cfg(not(unix))]
fn is_executable(_: &std::fs::Metadata) -> bool {
    false
}

/// Makes the error of a path.
fn refused(path: &str, errno: Errno) -> ImportError {
    let hint = match errno {
        Errno::EEXIST => "the name is in use",
        Errno::ENOSPC => "the file system's limit is reached; raise it",
        Errno::EFBIG => "a hole makes it longer than the file system's limit; raise the limit",
        Errno::ENOENT => "there is no such file",
        Errno::ENOTDIR => "a part of the path is no folder",
        _ => "choose another path",
    };
    ImportError::Simulated { path: path.into(), errno, hint }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_comes_back_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("from"), folder.path().join("to"));
        std::fs::create_dir_all(from.join("deep/er")).unwrap();
        std::fs::write(from.join("deep/er/file"), vec![3; 10_000]).unwrap();
        std::fs::write(from.join("empty"), "").unwrap();
        let mut files = FileSystem::new(1 << 20);
        files.import(&from, "/tree").unwrap();
        assert_eq!(files.contents("/tree/deep/er/file").unwrap(), vec![3; 10_000]);
        files.export("/tree", &to).unwrap();
        assert_eq!(std::fs::read(to.join("deep/er/file")).unwrap(), vec![3; 10_000]);
        assert_eq!(std::fs::read(to.join("empty")).unwrap(), b"");
        let error = files.import(&from, "/tree").unwrap_err().to_string();
        assert!(error.contains("/tree/deep/er/file") && error.contains("the name is in use"), "{error}");
        let error = FileSystem::new(4096).import(&from, "/").unwrap_err().to_string();
        assert!(error.contains("limit is reached; raise it"), "{error}");
    }

    #[test]
    fn a_hole_beyond_the_limit_is_not_read() {
        let mut files = FileSystem::new(1 << 20);
        files.add_file("/f", b"x").unwrap();
        let node = files.resolve(ROOT, b"/f", true).unwrap().node.unwrap();
        files.set_length(node, 1 << 40, Time::ZERO).unwrap();
        assert!(files.contents("/f").unwrap_err().to_string().contains("a hole makes it longer"));
    }
}
