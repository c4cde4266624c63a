//! Calls that name files by paths.

use std::collections::BTreeMap;

use super::{Caller, Served, Stop, System};
use crate::descriptor::Object;
use crate::errno::Errno;
use crate::file::{Contents, Found, Kind, NodeId, PATH_LIMIT};
use crate::machine::{Path, Work};

/// Descriptor that stands for the current folder (`AT_FDCWD`).
const CURRENT_FOLDER: i32 = -100;
/// Flag: a symbolic link in the last name is not followed (`AT_SYMLINK_NOFOLLOW`).
pub(super) const NO_FOLLOW: u64 = 0x100;
/// Flag of unlinkat: a folder is removed (`AT_REMOVEDIR`).
const REMOVE_FOLDER: u64 = 0x200;
/// Flag of linkat: a symbolic link is followed (`AT_SYMLINK_FOLLOW`).
const FOLLOW: u64 = 0x400;
/// Flag: an empty path names the descriptor itself (`AT_EMPTY_PATH`).
pub(super) const EMPTY_PATH: u64 = 0x1000;

/// Flags of openat(2) on RISC-V.
mod open {
    /// Makes the file.
    pub const CREATE: u32 = 0o100;
    /// Refuses an existing file, with [`CREATE`].
    pub const EXCLUSIVE: u32 = 0o200;
    /// Empties the file.
    pub const TRUNCATE: u32 = 0o1000;
    /// Bypasses the page cache.
    pub const DIRECT: u32 = 0o40_000;
    /// Refuses all but folders.
    pub const FOLDER: u32 = 0o200_000;
    /// Refuses symbolic links.
    pub const NO_FOLLOW: u32 = 0o400_000;
    /// Closes the descriptor at execve.
    pub const CLOSE_ON_EXEC: u32 = 0o2_000_000;
    /// Names the file without opening it.
    pub const PATH: u32 = 0o10_000_000;
    /// Makes a file without a name.
    pub const TEMPORARY: u32 = 0o20_000_000;
}

impl System {
    /// Serves openat(2).
    pub(super) fn openat(&mut self, caller: &Caller) -> Served {
        let flags = caller.arguments[2] as u32;
        let has_bit = |bit: u32| flags & bit == bit;
        if has_bit(open::TEMPORARY) || has_bit(open::DIRECT) || flags & 3 == 3 {
            // Programs go on without these: with a name, and through the page cache.
            return Err(Errno::EINVAL.into());
        }
        let is_exclusive = has_bit(open::CREATE | open::EXCLUSIVE);
        let follow = !has_bit(open::NO_FOLLOW) && !is_exclusive;
        let found = self.find(caller, 0, 1, follow)?;
        let id = match found.node {
            Some(_) if is_exclusive => return Err(Errno::EEXIST.into()),
            Some(id) => id,
            None if has_bit(open::CREATE) => self.create_file(caller, &found)?,
            None => return Err(Errno::ENOENT.into()),
        };
        let is_folder = match &self.files.node(id)?.kind {
            Kind::Link(_) if !has_bit(open::PATH) => return Err(Errno::ELOOP.into()),
            Kind::Folder { .. } => true,
            _ => false,
        };
        if has_bit(open::FOLDER) && !is_folder {
            return Err(Errno::ENOTDIR.into());
        }
        if is_folder && (flags & 3 != 0 || has_bit(open::CREATE)) {
            return Err(Errno::EISDIR.into());
        }
        if has_bit(open::TRUNCATE) && flags & 3 != 0 && matches!(self.files.node(id)?.kind, Kind::File(_)) {
            self.resize(id, 0, caller)?;
        }
        let on_exec = has_bit(open::CLOSE_ON_EXEC);
        let kept = flags & !(open::CREATE | open::EXCLUSIVE | open::TRUNCATE | open::CLOSE_ON_EXEC);
        let descriptor = self.descriptors.open(Object::Node(id), kept, on_exec, 0)?;
        self.files.open(id);
        Ok(descriptor as u64)
    }

    /// Makes the file of a path that names none.
    fn create_file(&mut self, caller: &Caller, found: &Found) -> Result<NodeId, Stop> {
        if found.is_folder || found.name.is_empty() {
            return Err(Errno::EISDIR.into());
        }
        let mode = caller.arguments[3] as u32 & 0o7777 & !self.mask;
        let kind = Kind::File(Contents::default());
        Ok(self.files.create(found.parent, &found.name, kind, mode, caller.now)?)
    }

    /// Serves mkdirat(2).
    pub(super) fn mkdirat(&mut self, caller: &Caller) -> Served {
        let found = self.find(caller, 0, 1, false)?;
        if found.node.is_some() {
            return Err(Errno::EEXIST.into());
        }
        let mode = caller.arguments[2] as u32 & 0o1777 & !self.mask;
        let folder = Kind::Folder { entries: BTreeMap::new(), parent: found.parent };
        self.files.create(found.parent, &found.name, folder, mode, caller.now)?;
        Ok(0)
    }

    /// Serves symlinkat(2).
    pub(super) fn symlinkat(&mut self, caller: &Caller) -> Served {
        let target = self.memory.text(caller.arguments[0], PATH_LIMIT)?;
        let found = self.find(caller, 1, 2, false)?;
        if found.node.is_some() {
            return Err(Errno::EEXIST.into());
        }
        if target.is_empty() || found.is_folder {
            return Err(Errno::ENOENT.into());
        }
        self.files.create(found.parent, &found.name, Kind::Link(target), 0o777, caller.now)?;
        Ok(0)
    }

    /// Serves linkat(2).
    pub(super) fn linkat(&mut self, caller: &Caller) -> Served {
        let old = self.find(caller, 0, 1, caller.arguments[4] & FOLLOW != 0)?.node.ok_or(Errno::ENOENT)?;
        let new = self.find(caller, 2, 3, false)?;
        if new.node.is_some() {
            return Err(Errno::EEXIST.into());
        }
        self.files.link(old, new.parent, &new.name, caller.now)?;
        Ok(0)
    }

    /// Serves unlinkat(2).
    pub(super) fn unlinkat(&mut self, caller: &Caller) -> Served {
        let found = self.find(caller, 0, 1, false)?;
        found.node.ok_or(Errno::ENOENT)?;
        let is_folder = caller.arguments[2] & REMOVE_FOLDER != 0;
        let id = self.files.remove(found.parent, &found.name, is_folder, caller.now)?;
        self.forget_removed(id);
        Ok(0)
    }

    /// Serves renameat2(2).
    pub(super) fn renameat2(&mut self, caller: &Caller) -> Served {
        let old = self.find(caller, 0, 1, false)?;
        let new = self.find(caller, 2, 3, false)?;
        old.node.ok_or(Errno::ENOENT)?;
        let flags = caller.arguments[4];
        if flags > 1 {
            // Exchanging and white-outs are features that file systems may lack.
            return Err(Errno::EINVAL.into());
        }
        let (from, to) = ((old.parent, old.name.as_slice()), (new.parent, new.name.as_slice()));
        if let Some(replaced) = self.files.rename(from, to, flags == 0, caller.now)? {
            self.forget_removed(replaced);
        }
        Ok(0)
    }

    /// Serves readlinkat(2).
    pub(super) fn readlinkat(&mut self, caller: &Caller) -> Served {
        let [_, path, buffer, length, ..] = caller.arguments;
        let name = self.memory.text(path, PATH_LIMIT)?;
        let target = if name == b"/proc/self/exe" {
            self.facts.program.clone()
        } else {
            let id = self.find(caller, 0, 1, false)?.node.ok_or(Errno::ENOENT)?;
            match &self.files.node(id)?.kind {
                Kind::Link(target) => target.clone(),
                _ => return Err(Errno::EINVAL.into()),
            }
        };
        if length as i32 <= 0 {
            return Err(Errno::EINVAL.into());
        }
        let count = target.len().min(length as usize);
        self.memory.write(buffer, &target[..count])?;
        Ok(count as u64)
    }

    /// Serves faccessat(2) and faccessat2(2). The program's user may do all but execute what nobody may execute.
    pub(super) fn faccessat(&mut self, caller: &Caller) -> Served {
        let mode = caller.arguments[2];
        if mode > 7 {
            return Err(Errno::EINVAL.into());
        }
        let id = self.find(caller, 0, 1, true)?.node.ok_or(Errno::ENOENT)?;
        let node = self.files.node(id)?;
        if mode & 1 != 0 && node.mode & 0o111 == 0 { Err(Errno::EACCES.into()) } else { Ok(0) }
    }

    /// Serves truncate(2).
    pub(super) fn truncate(&mut self, caller: &Caller) -> Served {
        let path = self.memory.text(caller.arguments[0], PATH_LIMIT)?;
        let id = self.lookup(self.folder, &path, true)?.node.ok_or(Errno::ENOENT)?;
        if self.files.is_folder(id) {
            return Err(Errno::EISDIR.into());
        }
        self.resize(id, caller.arguments[1], caller)?;
        Ok(0)
    }

    /// Serves chdir(2).
    pub(super) fn chdir(&mut self, caller: &Caller) -> Served {
        let path = self.memory.text(caller.arguments[0], PATH_LIMIT)?;
        let id = self.lookup(self.folder, &path, true)?.node.ok_or(Errno::ENOENT)?;
        self.enter_folder(id)
    }

    /// Serves fchdir(2).
    pub(super) fn fchdir(&mut self, caller: &Caller) -> Served {
        match self.descriptors.get(caller.descriptor(0))?.object {
            Object::Node(id) => self.enter_folder(id),
            _ => Err(Errno::ENOTDIR.into()),
        }
    }

    /// Serves getcwd(2).
    pub(super) fn getcwd(&mut self, caller: &Caller) -> Served {
        let [buffer, length, ..] = caller.arguments;
        let mut path = self.files.path(self.folder).ok_or(Errno::ENOENT)?;
        path.push(0);
        if path.len() as u64 > length {
            return Err(Errno::ERANGE.into());
        }
        self.memory.write(buffer, &path)?;
        Ok(path.len() as u64)
    }

    /// Serves umask(2).
    pub(super) fn umask(&mut self, caller: &Caller) -> Served {
        let old = std::mem::replace(&mut self.mask, caller.arguments[0] as u32 & 0o777);
        Ok(old.into())
    }

    /// Makes a folder the current one.
    pub(crate) fn enter_folder(&mut self, id: NodeId) -> Served {
        if !self.files.is_folder(id) {
            return Err(Errno::ENOTDIR.into());
        }
        // The folder stays while it is the current one, even without a name.
        self.files.open(id);
        self.files.close(self.folder);
        self.folder = id;
        Ok(0)
    }

    /// Sets a file's length, and forgets what was behind it.
    pub(super) fn resize(&mut self, id: NodeId, length: u64, caller: &Caller) -> Result<(), Stop> {
        if length > i64::MAX as u64 {
            return Err(Errno::EINVAL.into());
        }
        self.gather_mappings(id, 0, length)?;
        let before = self.files.length(id);
        self.files.set_length(id, length, caller.now)?;
        if length < before {
            self.forget_pages(id, length.div_ceil(crate::file::FILE_PAGE_BYTES));
        }
        Ok(())
    }

    /// Returns the node that a descriptor and a path name; an empty path names the descriptor's.
    pub(super) fn node_at(&mut self, caller: &Caller, path: usize, flags: u64) -> Result<NodeId, Stop> {
        let address = caller.arguments[path];
        if flags & EMPTY_PATH != 0 && (address == 0 || self.memory.text(address, PATH_LIMIT)?.is_empty()) {
            let descriptor = caller.descriptor(0);
            if descriptor == CURRENT_FOLDER {
                return Ok(self.folder);
            }
            return match self.descriptors.get(descriptor)?.object {
                Object::Node(id) => Ok(id),
                _ => Err(Errno::EINVAL.into()),
            };
        }
        Ok(self.find(caller, 0, path, flags & NO_FOLLOW == 0)?.node.ok_or(Errno::ENOENT)?)
    }

    /// Resolves the path of an argument from the folder of another one.
    fn find(&mut self, caller: &Caller, folder: usize, path: usize, follow: bool) -> Result<Found, Stop> {
        let path = self.memory.text(caller.arguments[path], PATH_LIMIT)?;
        let folder = match caller.descriptor(folder) {
            _ if path.starts_with(b"/") => self.folder,
            CURRENT_FOLDER => self.folder,
            descriptor => match self.descriptors.get(descriptor)?.object {
                Object::Node(id) => id,
                _ => return Err(Errno::ENOTDIR.into()),
            },
        };
        Ok(self.lookup(folder, &path, follow)?)
    }

    /// Resolves a path, and tells the work.
    fn lookup(&mut self, folder: NodeId, path: &[u8], follow: bool) -> Result<Found, Errno> {
        let found = self.files.resolve(folder, path, follow);
        let names = match &found {
            Ok(found) => found.names,
            Err(_) => path.split(|&byte| byte == b'/').count() as u32,
        };
        self.work.push(Work::Path(Path::Lookup { names }));
        found
    }

    /// Forgets the cached pages of a node if it was removed.
    pub(super) fn forget_removed(&mut self, id: NodeId) {
        if self.files.node(id).is_err() {
            self.forget_pages(id, 0);
            self.locks.remove(&id);
        }
    }
}
