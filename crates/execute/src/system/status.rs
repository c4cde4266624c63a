//! Calls that tell and change what is known of files: type, length, times, entries of folders.

use super::{Caller, Served, Stop, System};
use crate::clock::Time;
use crate::descriptor::Object;
use crate::errno::Errno;
use crate::file::{FILE_PAGE_BYTES, Kind, NodeId, ROOT};
use crate::system::times::EPOCH_SECONDS;

/// Known facts of a file or another object.
struct Status {
    /// Number of the device.
    device: u64,
    /// Number of the node.
    node: u64,
    /// Type and permissions.
    mode: u32,
    /// Number of names.
    links: u32,
    /// Number of the device that a device node is.
    character: u64,
    /// Length in bytes.
    length: u64,
    /// Occupied blocks of 512 bytes.
    blocks: u64,
    /// Times of the last access, modification and change.
    times: [Time; 3],
}

/// Types in the mode (`S_IFMT`).
mod kind {
    pub const PIPE: u32 = 0o010_000;
    pub const CHARACTER: u32 = 0o020_000;
    pub const FOLDER: u32 = 0o040_000;
    pub const FILE: u32 = 0o100_000;
    pub const LINK: u32 = 0o120_000;
    pub const SOCKET: u32 = 0o140_000;
}

/// Length of a record of getdents64 before its name, in bytes.
const ENTRY_BYTES: usize = 19;

impl System {
    /// Serves fstat(2).
    pub(super) fn fstat(&mut self, caller: &Caller) -> Served {
        let status = self.status_of_descriptor(caller.descriptor(0))?;
        self.write_status(caller.arguments[1], &status)
    }

    /// Serves newfstatat(2).
    pub(super) fn newfstatat(&mut self, caller: &Caller) -> Served {
        let [_, path, address, flags, ..] = caller.arguments;
        let status = self.status_at(caller, path, flags)?;
        self.write_status(address, &status)
    }

    /// Serves statx(2).
    pub(super) fn statx(&mut self, caller: &Caller) -> Served {
        let [_, path, flags, _, address, _] = caller.arguments;
        let status = self.status_at(caller, path, flags)?;
        let mut bytes = [0_u8; 256];
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        put(0, &0x7ff_u32.to_le_bytes()); // The basic facts (STATX_BASIC_STATS).
        put(4, &(FILE_PAGE_BYTES as u32).to_le_bytes());
        put(16, &status.links.to_le_bytes());
        put(28, &(status.mode as u16).to_le_bytes());
        put(32, &status.node.to_le_bytes());
        put(40, &status.length.to_le_bytes());
        put(48, &status.blocks.to_le_bytes());
        for (at, time) in [(64, 0), (96, 2), (112, 1)] {
            let (seconds, nanoseconds) = epoch(status.times[time]);
            put(at, &seconds.to_le_bytes());
            put(at + 8, &(nanoseconds as u32).to_le_bytes());
        }
        put(128, &((status.character >> 8) as u32).to_le_bytes());
        put(132, &((status.character & 0xff) as u32).to_le_bytes());
        put(140, &(status.device as u32).to_le_bytes());
        self.memory.write(address, &bytes)?;
        Ok(0)
    }

    /// Serves statfs(2).
    pub(super) fn statfs(&mut self, caller: &Caller) -> Served {
        let path = self.memory.text(caller.arguments[0], crate::file::PATH_LIMIT)?;
        self.files.resolve(self.folder, &path, true)?.node.ok_or(Errno::ENOENT)?;
        self.write_space(caller.arguments[1])
    }

    /// Serves fstatfs(2).
    pub(super) fn fstatfs(&mut self, caller: &Caller) -> Served {
        self.descriptors.get(caller.descriptor(0))?;
        self.write_space(caller.arguments[1])
    }

    /// Writes what is known of the file system (`struct statfs`).
    fn write_space(&mut self, address: u64) -> Served {
        let (all, free) = (self.files.limit() / FILE_PAGE_BYTES, self.files.free() / FILE_PAGE_BYTES);
        let nodes = crate::file::NODES_LIMIT as u64;
        // Type of ext4, whose limits are those here.
        let words =
            [0xef53, FILE_PAGE_BYTES, all, free, free, nodes, nodes, 1, 255, FILE_PAGE_BYTES, 0, 0, 0, 0, 0];
        self.memory.set_words(address, &words)?;
        Ok(0)
    }

    /// Serves getdents64(2).
    pub(super) fn getdents64(&mut self, caller: &Caller) -> Served {
        let [_, address, length, ..] = caller.arguments;
        let description = self.descriptors.get(caller.descriptor(0))?;
        let Object::Node(folder) = description.object else { return Err(Errno::ENOTDIR.into()) };
        let Kind::Folder { entries, parent } = &self.files.node(folder)?.kind else {
            return Err(Errno::ENOTDIR.into());
        };
        let special = [(b".".to_vec(), folder), (b"..".to_vec(), *parent)];
        let names = special
            .iter()
            .map(|(name, node)| (name, *node))
            .chain(entries.iter().map(|(name, &node)| (name, node)));
        let mut bytes: Vec<u8> = Vec::new();
        let mut position = description.position;
        for (name, node) in names.skip(usize::try_from(position).unwrap_or(usize::MAX)) {
            let record = (ENTRY_BYTES + name.len() + 1).next_multiple_of(8);
            if (bytes.len() + record) as u64 > length {
                if bytes.is_empty() {
                    return Err(Errno::EINVAL.into());
                }
                break;
            }
            position += 1;
            let start = bytes.len();
            bytes.extend(node.to_le_bytes());
            bytes.extend(position.to_le_bytes());
            bytes.extend((record as u16).to_le_bytes());
            bytes.push((self.files.node(node).map_or(0, |node| mode_of(&node.kind)) >> 12) as u8);
            bytes.extend(name);
            bytes.resize(start + record, 0);
        }
        self.memory.write(address, &bytes)?;
        self.descriptors.get_mut(caller.descriptor(0))?.position = position;
        Ok(bytes.len() as u64)
    }

    /// Serves fchmod(2).
    pub(super) fn fchmod(&mut self, caller: &Caller) -> Served {
        match self.descriptors.get(caller.descriptor(0))?.object {
            Object::Node(id) => self.set_mode(id, caller.arguments[1], caller.now),
            _ => Ok(0),
        }
    }

    /// Serves fchmodat(2).
    pub(super) fn fchmodat(&mut self, caller: &Caller) -> Served {
        let id = self.node_at(caller, 1, 0)?;
        self.set_mode(id, caller.arguments[2], caller.now)
    }

    /// Sets the permissions of a node.
    fn set_mode(&mut self, id: NodeId, mode: u64, now: Time) -> Served {
        self.files.node_mut(id)?.mode = mode as u32 & 0o7777;
        self.mark_changed(id, now);
        Ok(0)
    }

    /// Serves fchown(2): all belongs to the one user there is.
    pub(super) fn fchown(&mut self, caller: &Caller) -> Served {
        self.descriptors.get(caller.descriptor(0))?;
        self.check_owner(caller.arguments[1], caller.arguments[2])
    }

    /// Serves fchownat(2), likewise.
    pub(super) fn fchownat(&mut self, caller: &Caller) -> Served {
        self.node_at(caller, 1, caller.arguments[4])?;
        self.check_owner(caller.arguments[2], caller.arguments[3])
    }

    /// Refuses owners that are not the one user.
    fn check_owner(&self, user: u64, group: u64) -> Served {
        let is_own = |id: u64| id as u32 == 0 || id as u32 == u32::MAX;
        if is_own(user) && is_own(group) { Ok(0) } else { Err(Errno::EPERM.into()) }
    }

    /// Serves utimensat(2).
    pub(super) fn utimensat(&mut self, caller: &Caller) -> Served {
        let [_, path, times, flags, ..] = caller.arguments;
        let id = if path == 0 {
            self.node_at(caller, 1, super::paths::EMPTY_PATH)?
        } else {
            self.node_at(caller, 1, flags)?
        };
        const NOW: u64 = 0x3fff_ffff;
        const OMIT: u64 = 0x3fff_fffe;
        let pairs = if times == 0 { [0, NOW, 0, NOW] } else { self.memory.words(times)? };
        for (index, pair) in pairs.chunks_exact(2).enumerate() {
            let time = match pair[1] {
                OMIT => continue,
                NOW => caller.now,
                // Times before the start of the simulation become its start.
                nanoseconds if nanoseconds < 1_000_000_000 => {
                    let seconds = pair[0].saturating_sub(EPOCH_SECONDS).min(1 << 32);
                    Time::from_nanoseconds(seconds.saturating_mul(1_000_000_000).saturating_add(nanoseconds))
                }
                _ => return Err(Errno::EINVAL.into()),
            };
            let node = self.files.node_mut(id)?;
            if index == 0 { node.accessed = time } else { node.modified = time }
        }
        self.mark_changed(id, caller.now);
        Ok(0)
    }

    /// Serves ftruncate(2).
    pub(super) fn ftruncate(&mut self, caller: &Caller) -> Served {
        let Object::Node(id) = self.writable(caller.descriptor(0)).map_err(|_| Errno::EINVAL)?.object else {
            return Err(Errno::EINVAL.into());
        };
        self.resize(id, caller.arguments[1], caller)?;
        Ok(0)
    }

    /// Serves fallocate(2): the file grows; holes and other modes are refused as file systems may refuse them.
    pub(super) fn fallocate(&mut self, caller: &Caller) -> Served {
        let [_, mode, offset, length, ..] = caller.arguments;
        let Object::Node(id) = self.writable(caller.descriptor(0))?.object else {
            return Err(Errno::ENODEV.into());
        };
        if mode & !1 != 0 {
            return Err(Errno::EOPNOTSUPP.into());
        }
        let end = offset
            .checked_add(length)
            .filter(|&end| length > 0 && end <= i64::MAX as u64)
            .ok_or(Errno::EINVAL)?;
        if end > self.files.length(id) {
            if end - self.files.length(id) > self.files.free() {
                return Err(Errno::ENOSPC.into());
            }
            if mode == 0 {
                self.resize(id, end, caller)?;
            }
        }
        Ok(0)
    }

    /// Serves lseek(2).
    pub(super) fn lseek(&mut self, caller: &Caller) -> Served {
        let [_, offset, origin, ..] = caller.arguments;
        let description = self.descriptors.get(caller.descriptor(0))?;
        let Object::Node(id) = description.object else { return Err(Errno::ESPIPE.into()) };
        let base = match origin {
            0 => 0,
            1 => description.position,
            2 => self.files.length(id),
            3 | 4 => {
                self.gather_mappings(id, 0, u64::MAX)?;
                let Kind::File(contents) = &self.files.node(id)?.kind else {
                    return Err(Errno::EINVAL.into());
                };
                let found = contents.next(offset, origin == 3).ok_or(Errno::ENXIO)?;
                self.descriptors.get_mut(caller.descriptor(0))?.position = found;
                return Ok(found);
            }
            _ => return Err(Errno::EINVAL.into()),
        };
        let position = base.checked_add_signed(offset as i64).filter(|&position| position <= i64::MAX as u64);
        let position = position.ok_or(Errno::EINVAL)?;
        self.descriptors.get_mut(caller.descriptor(0))?.position = position;
        Ok(position)
    }

    /// Returns what is known of the node that a descriptor and a path name.
    fn status_at(&mut self, caller: &Caller, path: u64, flags: u64) -> Result<Status, Stop> {
        let is_empty = flags & super::paths::EMPTY_PATH != 0
            && (path == 0 || self.memory.text(path, crate::file::PATH_LIMIT)?.is_empty());
        if is_empty && caller.descriptor(0) >= 0 {
            return self.status_of_descriptor(caller.descriptor(0));
        }
        let id = self.node_at(caller, 1, flags)?;
        self.status_of_node(id)
    }

    /// Returns what is known of what a descriptor refers to.
    fn status_of_descriptor(&mut self, descriptor: i32) -> Result<Status, Stop> {
        let mode = match self.descriptors.get(descriptor)?.object {
            Object::Node(id) => return self.status_of_node(id),
            Object::Input | Object::Output(_) | Object::PipeReader(_) | Object::PipeWriter(_) => {
                kind::PIPE | 0o600
            }
            Object::Socket(_) => kind::SOCKET | 0o777,
            Object::Epoll(_) | Object::Counter(_) | Object::Timer(_) => 0o600,
        };
        let node = self.descriptors.description(descriptor)? | 1 << 32;
        Ok(Status {
            device: 2,
            node,
            mode,
            links: 1,
            character: 0,
            length: 0,
            blocks: 0,
            times: [Time::ZERO; 3],
        })
    }

    /// Returns what is known of a node.
    fn status_of_node(&mut self, id: NodeId) -> Result<Status, Stop> {
        self.gather_mappings(id, 0, u64::MAX)?;
        let node = self.files.node(id)?;
        let (length, blocks) = match &node.kind {
            Kind::File(contents) => (contents.length(), contents.bytes_in_use() / 512),
            Kind::Folder { .. } => (FILE_PAGE_BYTES, 8),
            Kind::Link(target) => (target.len() as u64, 0),
            Kind::Device(_) => (0, 0),
        };
        let character = if let Kind::Device(device) = &node.kind {
            match device {
                crate::file::Character::Null => 0x103,
                crate::file::Character::Zero => 0x105,
                crate::file::Character::Random => 0x109,
            }
        } else {
            0
        };
        let mode = mode_of(&node.kind) | node.mode;
        let times = [node.accessed, node.modified, node.changed];
        Ok(Status { device: ROOT, node: id, mode, links: node.links, character, length, blocks, times })
    }

    /// Writes what is known of a file (`struct stat`).
    fn write_status(&mut self, address: u64, status: &Status) -> Served {
        let mut bytes = [0_u8; 128];
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        put(0, &status.device.to_le_bytes());
        put(8, &status.node.to_le_bytes());
        put(16, &status.mode.to_le_bytes());
        put(20, &status.links.to_le_bytes());
        put(32, &status.character.to_le_bytes());
        put(48, &status.length.to_le_bytes());
        put(56, &(FILE_PAGE_BYTES as u32).to_le_bytes());
        put(64, &status.blocks.to_le_bytes());
        for (index, &time) in status.times.iter().enumerate() {
            let (seconds, nanoseconds) = epoch(time);
            put(72 + 16 * index, &seconds.to_le_bytes());
            put(80 + 16 * index, &nanoseconds.to_le_bytes());
        }
        self.memory.write(address, &bytes)?;
        Ok(0)
    }
}

/// Returns the type of a node, as modes have it.
fn mode_of(kind: &Kind) -> u32 {
    match kind {
        Kind::File(_) => kind::FILE,
        Kind::Folder { .. } => kind::FOLDER,
        Kind::Link(_) => kind::LINK,
        Kind::Device(_) => kind::CHARACTER,
    }
}

/// Returns seconds and nanoseconds since 1970.
fn epoch(time: Time) -> (u64, u64) {
    let nanoseconds = time.nanoseconds();
    (EPOCH_SECONDS + nanoseconds / 1_000_000_000, nanoseconds % 1_000_000_000)
}
