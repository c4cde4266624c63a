//! File system in memory of the host: folders, files, symbolic links and devices.
//!
//! The caller fills it before the program starts, from its own bytes or from folders of the host, which are only
//! read. What the program writes stays here until the caller exports it. All times are the simulation's.
//!
//! - [`FileSystem`]: nodes, names and path resolution
//! - [`contents`](Contents): bytes of a file, in pages, so that files can have holes
//! - [`locks`](Locks): record locks

mod contents;
mod host;
mod locks;

use std::collections::BTreeMap;

pub use contents::{Contents, FILE_PAGE_BYTES};
pub use host::ImportError;
pub use locks::{LockRange, Locks};

use crate::clock::Time;
use crate::errno::Errno;

/// Number of a node: file, folder, link or device (`st_ino`).
pub type NodeId = u64;

/// Number of the root folder.
pub const ROOT: NodeId = 1;
/// Greatest number of nodes.
pub const NODES_LIMIT: usize = 1 << 20;
/// Greatest length of a name, in bytes (`NAME_MAX`).
pub const NAME_LIMIT: usize = 255;
/// Greatest length of a path with its zero byte, in bytes (`PATH_MAX`).
pub const PATH_LIMIT: usize = 4096;
/// Greatest number of symbolic links that a resolution follows.
pub const LINKS_LIMIT: u32 = 40;
/// Number of pages that lie together on the disk: 1 MiB.
const EXTENT_PAGES: u64 = 256;

/// Node of the file system.
#[derive(Clone, Debug)]
pub struct Node {
    /// Kind and content.
    pub kind: Kind,
    /// Permissions, nine bits and those above (`st_mode` without its type).
    pub mode: u32,
    /// Number of names; 0 once it was removed.
    pub links: u32,
    /// Number of open file descriptions.
    pub opens: u32,
    /// Time of the last access.
    pub accessed: Time,
    /// Time of the last change of the content.
    pub modified: Time,
    /// Time of the last change of the node.
    pub changed: Time,
    /// Offsets on the disk of each extent of the file, in bytes.
    extents: BTreeMap<u64, u64>,
}

/// Kind and content of a node.
#[derive(Clone, Debug)]
pub enum Kind {
    /// Regular file.
    File(Contents),
    /// Folder with its names.
    Folder {
        /// Nodes by their names, without `.` and `..`.
        entries: BTreeMap<Vec<u8>, NodeId>,
        /// Folder that it is in; the root is in itself.
        parent: NodeId,
    },
    /// Symbolic link with its target.
    Link(Vec<u8>),
    /// Character device.
    Device(Character),
}

/// Character device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Character {
    /// `/dev/null`.
    Null,
    /// `/dev/zero`.
    Zero,
    /// `/dev/random` and `/dev/urandom`.
    Random,
}

/// Result of a path's resolution.
#[derive(Clone, Debug)]
pub struct Found {
    /// Folder of the last name.
    pub parent: NodeId,
    /// Last name; empty if the path ends with `.`, `..` or is the root.
    pub name: Vec<u8>,
    /// Node that the path names, if there is one.
    pub node: Option<NodeId>,
    /// Number of names that were looked up.
    pub names: u32,
    /// True if the path ends with a slash, so that it must name a folder.
    pub is_folder: bool,
}

/// File system in memory.
#[derive(Clone, Debug)]
pub struct FileSystem {
    /// Nodes.
    nodes: BTreeMap<NodeId, Node>,
    /// Number of the next node.
    next: NodeId,
    /// Greatest number of bytes of all files.
    limit: u64,
    /// Number of bytes of all files' pages.
    used: u64,
    /// End of the allocated part of the disk, in bytes.
    disk_end: u64,
}

impl FileSystem {
    /// Makes a file system with `/dev` and `/tmp`, whose files have at most `limit` bytes in all.
    pub fn new(limit: u64) -> FileSystem {
        let mut new = FileSystem { nodes: BTreeMap::new(), next: ROOT, limit, used: 0, disk_end: 0 };
        new.nodes
            .insert(ROOT, node(Kind::Folder { entries: BTreeMap::new(), parent: ROOT }, 0o755, Time::ZERO));
        new.next += 1;
        for (name, mode) in [("dev", 0o755), ("tmp", 0o1777)] {
            let folder = Kind::Folder { entries: BTreeMap::new(), parent: ROOT };
            // An empty file system takes any name.
            let _ = new.create(ROOT, name.as_bytes(), folder, mode, Time::ZERO);
        }
        if let Ok(Found { node: Some(folder), .. }) = new.resolve(ROOT, b"/dev", true) {
            for (name, device) in [
                ("null", Character::Null),
                ("zero", Character::Zero),
                ("random", Character::Random),
                ("urandom", Character::Random),
            ] {
                let _ = new.create(folder, name.as_bytes(), Kind::Device(device), 0o666, Time::ZERO);
            }
        }
        new
    }

    /// Returns a node.
    ///
    /// # Errors
    ///
    /// [`Errno::ENOENT`]: no node has the number.
    pub(crate) fn node(&self, id: NodeId) -> Result<&Node, Errno> {
        self.nodes.get(&id).ok_or(Errno::ENOENT)
    }

    /// Returns a node that can be changed.
    ///
    /// # Errors
    ///
    /// [`Errno::ENOENT`]: no node has the number.
    pub(crate) fn node_mut(&mut self, id: NodeId) -> Result<&mut Node, Errno> {
        self.nodes.get_mut(&id).ok_or(Errno::ENOENT)
    }

    /// Returns the number of bytes that files may still get.
    pub fn free(&self) -> u64 {
        self.limit.saturating_sub(self.used)
    }

    /// Returns the greatest number of bytes of all files.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Resolves a path from a folder. `follow` tells whether a symbolic link in the last name is followed.
    ///
    /// # Errors
    ///
    /// [`Errno::ENOENT`], [`Errno::ENOTDIR`] for names before the last, [`Errno::ELOOP`], and
    /// [`Errno::ENAMETOOLONG`].
    pub(crate) fn resolve(&self, folder: NodeId, path: &[u8], follow: bool) -> Result<Found, Errno> {
        if path.is_empty() {
            return Err(Errno::ENOENT);
        }
        // Names that are left, the next one last.
        let mut left = names(path)?;
        let mut at = if path[0] == b'/' { ROOT } else { folder };
        let mut found = Found {
            parent: at,
            name: Vec::new(),
            node: Some(at),
            names: 0,
            is_folder: path.ends_with(b"/") || path.ends_with(b"/."),
        };
        let mut links = 0;
        while let Some(name) = left.pop() {
            found.names += 1;
            let Kind::Folder { entries, parent } = &self.node(at)?.kind else { return Err(Errno::ENOTDIR) };
            if name == b"." || name == b".." {
                at = if name == b"." { at } else { *parent };
                found = Found { parent: at, name: Vec::new(), node: Some(at), ..found };
                continue;
            }
            let Some(&child) = entries.get(&name) else {
                let is_last = left.is_empty();
                return if is_last {
                    Ok(Found { parent: at, name, node: None, ..found })
                } else {
                    Err(Errno::ENOENT)
                };
            };
            if let Kind::Link(target) = &self.node(child)?.kind
                && (follow || !left.is_empty() || found.is_folder)
            {
                links += 1;
                if links > LINKS_LIMIT {
                    return Err(Errno::ELOOP);
                }
                if target.starts_with(b"/") {
                    at = ROOT;
                }
                left.extend(names(target)?);
                found = Found { parent: at, name: Vec::new(), node: Some(at), ..found };
                continue;
            }
            found = Found { parent: at, name, node: Some(child), ..found };
            at = child;
        }
        if found.is_folder && found.node.is_some_and(|node| !self.is_folder(node)) {
            return Err(Errno::ENOTDIR);
        }
        Ok(found)
    }

    /// Returns whether a node is a folder.
    pub(crate) fn is_folder(&self, id: NodeId) -> bool {
        matches!(self.nodes.get(&id), Some(Node { kind: Kind::Folder { .. }, .. }))
    }

    /// Makes a node with a name in a folder.
    ///
    /// # Errors
    ///
    /// [`Errno::EEXIST`], [`Errno::ENOTDIR`], [`Errno::ENOSPC`] at 1,048,576 nodes, and
    /// [`Errno::ENOENT`] in a folder that was removed.
    pub(crate) fn create(
        &mut self,
        parent: NodeId,
        name: &[u8],
        kind: Kind,
        mode: u32,
        now: Time,
    ) -> Result<NodeId, Errno> {
        if self.nodes.len() >= NODES_LIMIT {
            return Err(Errno::ENOSPC);
        }
        let id = self.next;
        let is_folder = matches!(kind, Kind::Folder { .. });
        self.enter(parent, name, id, now)?;
        self.next += 1;
        self.nodes.insert(id, node(kind, mode, now));
        if is_folder {
            self.node_mut(parent)?.links += 1;
            self.node_mut(id)?.links = 2;
        }
        Ok(id)
    }

    /// Gives a file another name (linkat(2)).
    ///
    /// # Errors
    ///
    /// [`Errno::EPERM`] for folders, [`Errno::EEXIST`] and [`Errno::ENOTDIR`].
    pub(crate) fn link(&mut self, id: NodeId, parent: NodeId, name: &[u8], now: Time) -> Result<(), Errno> {
        if self.is_folder(id) {
            return Err(Errno::EPERM);
        }
        self.enter(parent, name, id, now)?;
        let node = self.node_mut(id)?;
        node.links += 1;
        node.changed = now;
        Ok(())
    }

    /// Removes a name, and the node if nothing uses it any more (unlinkat(2)).
    ///
    /// # Errors
    ///
    /// [`Errno::ENOENT`], [`Errno::EISDIR`] and [`Errno::ENOTDIR`] if the node is no file or no folder,
    /// [`Errno::ENOTEMPTY`], and [`Errno::EBUSY`] for the root.
    pub(crate) fn remove(
        &mut self,
        parent: NodeId,
        name: &[u8],
        is_folder: bool,
        now: Time,
    ) -> Result<NodeId, Errno> {
        if name.is_empty() {
            return Err(if is_folder { Errno::EBUSY } else { Errno::EISDIR });
        }
        let id = self.child(parent, name).ok_or(Errno::ENOENT)?;
        match &self.node(id)?.kind {
            Kind::Folder { entries, .. } => {
                if !is_folder {
                    return Err(Errno::EISDIR);
                }
                if !entries.is_empty() {
                    return Err(Errno::ENOTEMPTY);
                }
            }
            _ if is_folder => return Err(Errno::ENOTDIR),
            _ => {}
        }
        self.leave(parent, name, now)?;
        let node = self.node_mut(id)?;
        node.links = if is_folder { 0 } else { node.links - 1 };
        node.changed = now;
        if is_folder {
            self.node_mut(parent)?.links -= 1;
        }
        self.drop_unused(id);
        Ok(id)
    }

    /// Renames a node; a node that has the new name is removed (renameat2(2)).
    ///
    /// # Errors
    ///
    /// [`Errno::ENOENT`], [`Errno::EEXIST`] if `may_replace` is false, [`Errno::EINVAL`] if a folder would be
    /// in itself, and those of [`FileSystem::remove`].
    pub(crate) fn rename(
        &mut self,
        from: (NodeId, &[u8]),
        to: (NodeId, &[u8]),
        may_replace: bool,
        now: Time,
    ) -> Result<Option<NodeId>, Errno> {
        let id = self.child(from.0, from.1).ok_or(Errno::ENOENT)?;
        if to.1.is_empty() {
            return Err(Errno::EBUSY);
        }
        let is_folder = self.is_folder(id);
        if is_folder && self.is_inside(to.0, id) {
            return Err(Errno::EINVAL);
        }
        let replaced = self.child(to.0, to.1);
        if let Some(replaced) = replaced {
            if !may_replace {
                return Err(Errno::EEXIST);
            }
            if replaced == id {
                return Ok(None);
            }
            if is_folder && !self.is_folder(replaced) {
                return Err(Errno::ENOTDIR);
            }
            self.remove(to.0, to.1, is_folder, now)?;
        }
        self.leave(from.0, from.1, now)?;
        self.enter(to.0, to.1, id, now)?;
        let node = self.node_mut(id)?;
        node.changed = now;
        if let Kind::Folder { parent, .. } = &mut node.kind {
            *parent = to.0;
            self.node_mut(from.0)?.links -= 1;
            self.node_mut(to.0)?.links += 1;
        }
        Ok(replaced)
    }

    /// Counts one more open file description of a node.
    pub(crate) fn open(&mut self, id: NodeId) {
        if let Some(node) = self.nodes.get_mut(&id) {
            node.opens += 1;
        }
    }

    /// Counts one open file description less, and removes a node that has neither names nor descriptions.
    ///
    /// Returns whether the node was removed.
    pub(crate) fn close(&mut self, id: NodeId) -> bool {
        if let Some(node) = self.nodes.get_mut(&id) {
            node.opens = node.opens.saturating_sub(1);
        }
        self.drop_unused(id)
    }

    /// Returns the path of a folder.
    pub(crate) fn path(&self, folder: NodeId) -> Option<Vec<u8>> {
        let mut parts = Vec::new();
        let mut at = folder;
        while at != ROOT {
            let Some(Node { kind: Kind::Folder { parent, .. }, links: 1.., .. }) = self.nodes.get(&at) else {
                return None;
            };
            let Some(Node { kind: Kind::Folder { entries, .. }, .. }) = self.nodes.get(parent) else {
                return None;
            };
            parts.push(entries.iter().find(|&(_, &node)| node == at)?.0.as_slice());
            at = *parent;
        }
        let path: Vec<u8> = parts.iter().rev().flat_map(|part| [b"/", *part].concat()).collect();
        Some(if path.is_empty() { b"/".to_vec() } else { path })
    }

    /// Reads bytes of a file, and returns their number: less than the buffer's length only at the end.
    ///
    /// # Errors
    ///
    /// [`Errno::EINVAL`]: the node is no regular file.
    pub(crate) fn read(&self, id: NodeId, offset: u64, bytes: &mut [u8]) -> Result<usize, Errno> {
        match &self.node(id)?.kind {
            Kind::File(contents) => Ok(contents.read(offset, bytes)),
            _ => Err(Errno::EINVAL),
        }
    }

    /// Writes bytes of a file, which grows if they end behind its end.
    ///
    /// # Errors
    ///
    /// [`Errno::ENOSPC`] at the file system's limit, [`Errno::EFBIG`] behind the greatest offset, and
    /// [`Errno::EINVAL`] if the node is no regular file.
    pub(crate) fn write(&mut self, id: NodeId, offset: u64, bytes: &[u8], now: Time) -> Result<(), Errno> {
        let free = self.free();
        let node = self.nodes.get_mut(&id).ok_or(Errno::ENOENT)?;
        let Kind::File(contents) = &mut node.kind else { return Err(Errno::EINVAL) };
        self.used += contents.write(offset, bytes, free)?;
        (node.modified, node.changed) = (now, now);
        Ok(())
    }

    /// Sets a file's length.
    ///
    /// # Errors
    ///
    /// [`Errno::EFBIG`] for a length above the greatest offset, and [`Errno::EINVAL`] if the node is no
    /// regular file.
    pub(crate) fn set_length(&mut self, id: NodeId, length: u64, now: Time) -> Result<(), Errno> {
        let node = self.nodes.get_mut(&id).ok_or(Errno::ENOENT)?;
        let Kind::File(contents) = &mut node.kind else { return Err(Errno::EINVAL) };
        self.used -= contents.set_length(length)?;
        (node.modified, node.changed) = (now, now);
        Ok(())
    }

    /// Returns a file's length in bytes; 0 for all else.
    pub(crate) fn length(&self, id: NodeId) -> u64 {
        match self.nodes.get(&id) {
            Some(Node { kind: Kind::File(contents), .. }) => contents.length(),
            _ => 0,
        }
    }

    /// Returns the offset on the disk of a page of a file, in bytes. Extents are allocated one behind the other
    /// when they are first used.
    pub(crate) fn disk_offset(&mut self, id: NodeId, page: u64) -> u64 {
        let extent = page / EXTENT_PAGES;
        let Some(node) = self.nodes.get_mut(&id) else { return 0 };
        let end = &mut self.disk_end;
        let start = *node.extents.entry(extent).or_insert_with(|| {
            let start = *end;
            *end += EXTENT_PAGES * FILE_PAGE_BYTES;
            start
        });
        start + page % EXTENT_PAGES * FILE_PAGE_BYTES
    }

    /// Returns the node that a folder has under a name.
    fn child(&self, folder: NodeId, name: &[u8]) -> Option<NodeId> {
        match &self.nodes.get(&folder)?.kind {
            Kind::Folder { entries, .. } => entries.get(name).copied(),
            _ => None,
        }
    }

    /// Returns whether a folder is another one or lies below it.
    fn is_inside(&self, folder: NodeId, outer: NodeId) -> bool {
        let mut at = folder;
        loop {
            if at == outer {
                return true;
            }
            match self.nodes.get(&at) {
                Some(Node { kind: Kind::Folder { parent, .. }, .. }) if *parent != at => at = *parent,
                _ => return false,
            }
        }
    }

    /// Enters a name into a folder.
    fn enter(&mut self, folder: NodeId, name: &[u8], id: NodeId, now: Time) -> Result<(), Errno> {
        let node = self.nodes.get_mut(&folder).filter(|node| node.links > 0).ok_or(Errno::ENOENT)?;
        let Kind::Folder { entries, .. } = &mut node.kind else { return Err(Errno::ENOTDIR) };
        if name.is_empty() || entries.contains_key(name) {
            return Err(Errno::EEXIST);
        }
        entries.insert(name.to_vec(), id);
        (node.modified, node.changed) = (now, now);
        Ok(())
    }

    /// Removes a name from a folder.
    fn leave(&mut self, folder: NodeId, name: &[u8], now: Time) -> Result<(), Errno> {
        let node = self.node_mut(folder)?;
        let Kind::Folder { entries, .. } = &mut node.kind else { return Err(Errno::ENOTDIR) };
        entries.remove(name);
        (node.modified, node.changed) = (now, now);
        Ok(())
    }

    /// Removes a node that has neither names nor open file descriptions, and returns whether it did.
    fn drop_unused(&mut self, id: NodeId) -> bool {
        if !self.nodes.get(&id).is_some_and(|node| node.links == 0 && node.opens == 0) {
            return false;
        }
        if let Some(Node { kind: Kind::File(contents), .. }) = self.nodes.remove(&id) {
            self.used -= contents.bytes_in_use();
        }
        true
    }
}

/// Makes a node.
fn node(kind: Kind, mode: u32, now: Time) -> Node {
    Node {
        kind,
        mode,
        links: 1,
        opens: 0,
        accessed: now,
        modified: now,
        changed: now,
        extents: BTreeMap::new(),
    }
}

/// Returns the names of a path, the last one first.
fn names(path: &[u8]) -> Result<Vec<Vec<u8>>, Errno> {
    let names = path.split(|&byte| byte == b'/').filter(|name| !name.is_empty());
    let names: Vec<Vec<u8>> = names.rev().map(<[u8]>::to_vec).collect();
    if names.iter().any(|name| name.len() > NAME_LIMIT) { Err(Errno::ENAMETOOLONG) } else { Ok(names) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_files(paths: &[&str]) -> FileSystem {
        let mut system = FileSystem::new(1 << 20);
        for path in paths {
            system.add_file(path, path.as_bytes()).unwrap();
        }
        system
    }

    fn find(system: &FileSystem, path: &str) -> Result<NodeId, Errno> {
        system.resolve(ROOT, path.as_bytes(), true)?.node.ok_or(Errno::ENOENT)
    }

    #[test]
    fn paths_are_resolved() {
        let mut system = with_files(&["/a/b/c", "/a/d"]);
        let a = find(&system, "/a").unwrap();
        system.create(a, b"link", Kind::Link(b"../a/b".to_vec()), 0o777, Time::ZERO).unwrap();
        system.create(a, b"loop", Kind::Link(b"loop".to_vec()), 0o777, Time::ZERO).unwrap();
        let c = find(&system, "/a/b/c").unwrap();
        for path in ["/a/../a/./b//c", "a/link/c", "/../a/b/c", "/a/link/../b/c"] {
            assert_eq!(find(&system, path), Ok(c), "{path}");
        }
        assert_eq!(find(&system, "/a/d/c"), Err(Errno::ENOTDIR));
        assert_eq!(find(&system, "/a/d/"), Err(Errno::ENOTDIR));
        assert_eq!(find(&system, "/a/x/c"), Err(Errno::ENOENT));
        assert_eq!(find(&system, "/a/loop"), Err(Errno::ELOOP));
        assert_eq!(find(&system, &format!("/{}", "n".repeat(256))), Err(Errno::ENAMETOOLONG));
        assert_eq!(system.path(find(&system, "/a/b").unwrap()), Some(b"/a/b".to_vec()));
    }

    #[test]
    fn names_are_removed_and_replaced() {
        let mut system = with_files(&["/a/b", "/a/c", "/d/e"]);
        let (a, d) = (find(&system, "/a").unwrap(), find(&system, "/d").unwrap());
        assert_eq!(system.remove(ROOT, b"a", true, Time::ZERO), Err(Errno::ENOTEMPTY));
        assert_eq!(system.remove(ROOT, b"a", false, Time::ZERO), Err(Errno::EISDIR));
        assert_eq!(system.remove(a, b"b", true, Time::ZERO), Err(Errno::ENOTDIR));
        assert_eq!(system.rename((ROOT, b"a"), (a, b"x"), true, Time::ZERO), Err(Errno::EINVAL));
        assert_eq!(system.rename((a, b"b"), (d, b"e"), false, Time::ZERO), Err(Errno::EEXIST));
        system.rename((a, b"b"), (d, b"e"), true, Time::ZERO).unwrap();
        let mut bytes = [0; 10];
        assert_eq!(system.read(find(&system, "/d/e").unwrap(), 1, &mut bytes), Ok(3));
        assert_eq!(&bytes[..3], b"a/b");
        let c = find(&system, "/a/c").unwrap();
        system.open(c);
        system.remove(a, b"c", false, Time::ZERO).unwrap();
        assert_eq!(system.length(c), 4, "an open file outlives its name");
        assert!(system.close(c));
        assert!(system.node(c).is_err());
    }

    #[test]
    fn the_limit_counts_pages_and_holes_are_free() {
        let mut system = FileSystem::new(3 * FILE_PAGE_BYTES);
        system.add_file("/f", b"x").unwrap();
        let file = find(&system, "/f").unwrap();
        system.set_length(file, 1 << 40, Time::ZERO).unwrap();
        system.write(file, (1 << 30) - 1, b"yz", Time::ZERO).unwrap();
        assert_eq!(system.write(file, 1 << 20, b"no", Time::ZERO), Err(Errno::ENOSPC));
        system.set_length(file, 0, Time::ZERO).unwrap();
        assert_eq!(system.free(), 3 * FILE_PAGE_BYTES);
        assert_eq!(system.set_length(file, u64::MAX, Time::ZERO), Err(Errno::EFBIG));
    }
}
