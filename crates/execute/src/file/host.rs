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
    /// Adds a file with its folders, and returns its node.
    ///
    /// # Errors
    ///
    /// [`ImportError::Simulated`]: a name is one of a file that exists, or the limit is reached.
    pub fn add_file(&mut self, path: &str, bytes: &[u8]) -> Result<NodeId, ImportError> {
        let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
        let add = |system: &mut FileSystem| {
            let folder = system.make_folders(folder.as_bytes())?;
            let file = Kind::File(Contents::default());
            let id = system.create(folder, name.as_bytes(), file, 0o644, Time::ZERO)?;
            system.write(id, 0, bytes, Time::ZERO)?;
            Ok(id)
        };
        add(self).map_err(|errno| refused(path, errno))
    }

    /// Adds a folder with the folders that it is in, if they are not there, and returns its node.
    ///
    /// # Errors
    ///
    /// [`ImportError::Simulated`]: a name is one of a file, or the limit is reached.
    pub fn add_folder(&mut self, path: &str) -> Result<NodeId, ImportError> {
        self.make_folders(path.as_bytes()).map_err(|errno| refused(path, errno))
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
            let id = self.add_file(path, &std::fs::read(host).map_err(failed)?)?;
            if is_executable(&status) {
                self.node_mut(id).map_err(|errno| refused(path, errno))?.mode = 0o755;
            }
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
                let length = usize::try_from(contents.length().min(self.limit())).unwrap_or(usize::MAX);
                let mut bytes = vec![0; length];
                contents.read(0, &mut bytes);
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
        Errno::ENOENT => "there is no such file",
        Errno::ENOTDIR => "a part of the path is no folder",
        _ => "choose another path",
    };
    ImportError::Simulated { path: path.into(), errno, hint }
}
