//! Calls on descriptors: duplicates, flags, record locks, pipes.

use super::transfer::NON_BLOCKING;
use super::{Caller, Served, Stop, System};
use crate::descriptor::{Description, DescriptionId, Object};
use crate::errno::Errno;
use crate::file::{LockRange, NodeId};
use crate::machine::{Path, Work};
use crate::pipe::Pipe;
use crate::poll::event;
use crate::thread::{Key, Source};

/// Flag of open(2), dup3(2) and pipe2(2): the descriptor is closed at execve (`O_CLOEXEC`).
pub(super) const CLOSE_ON_EXEC: u64 = 0o2_000_000;
/// Flags of descriptions that fcntl can change: append, non-blocking.
const CHANGEABLE: u32 = super::transfer::APPEND | NON_BLOCKING;
/// Locks that flock(2) sets have an owner that no description's number is.
const FLOCK_OWNER: u64 = 1 << 63;

/// Commands of fcntl(2).
mod command {
    pub const DUPLICATE: u64 = 0;
    pub const GET_DESCRIPTOR_FLAGS: u64 = 1;
    pub const SET_DESCRIPTOR_FLAGS: u64 = 2;
    pub const GET_FLAGS: u64 = 3;
    pub const SET_FLAGS: u64 = 4;
    pub const GET_LOCK: u64 = 5;
    pub const SET_LOCK: u64 = 6;
    pub const SET_LOCK_WAIT: u64 = 7;
    pub const GET_DESCRIPTION_LOCK: u64 = 36;
    pub const SET_DESCRIPTION_LOCK: u64 = 37;
    pub const SET_DESCRIPTION_LOCK_WAIT: u64 = 38;
    pub const DUPLICATE_CLOSE_ON_EXEC: u64 = 1030;
    pub const GET_PIPE_SIZE: u64 = 1032;
}

/// Commands of ioctl(2).
mod control {
    pub const SET_NON_BLOCKING: u64 = 0x5421;
    pub const AVAILABLE: u64 = 0x541b;
    pub const CLOSE_ON_EXEC: u64 = 0x5451;
    pub const KEEP_ON_EXEC: u64 = 0x5450;
}

impl System {
    /// Serves close(2).
    pub(super) fn close(&mut self, caller: &Caller) -> Served {
        self.close_descriptor(caller.descriptor(0))
    }

    /// Serves close_range(2).
    pub(super) fn close_range(&mut self, caller: &Caller) -> Served {
        let [first, last, flags, ..] = caller.arguments;
        let (first, last) = (first as u32, last as u32);
        if first > last {
            return Err(Errno::EINVAL.into());
        }
        for descriptor in self.descriptors.between(first.into(), last.into()) {
            if flags & 4 != 0 {
                self.descriptors.set_closed_on_exec(descriptor, true)?;
            } else {
                self.close_descriptor(descriptor)?;
            }
        }
        Ok(0)
    }

    /// Serves dup(2).
    pub(super) fn dup(&mut self, caller: &Caller) -> Served {
        Ok(self.descriptors.duplicate(caller.descriptor(0), false, 0)? as u64)
    }

    /// Serves dup3(2).
    pub(super) fn dup3(&mut self, caller: &Caller) -> Served {
        let (old, new) = (caller.descriptor(0), caller.descriptor(1));
        if old == new {
            return Err(Errno::EINVAL.into());
        }
        self.descriptors.get(old)?;
        if self.descriptors.get(new).is_ok() {
            self.close_descriptor(new)?;
        }
        self.descriptors.duplicate_to(old, new, caller.arguments[2] & CLOSE_ON_EXEC != 0)?;
        Ok(new as u64)
    }

    /// Serves pipe2(2).
    pub(super) fn pipe2(&mut self, caller: &Caller) -> Served {
        let [address, flags, ..] = caller.arguments;
        if flags & !(CLOSE_ON_EXEC | u64::from(NON_BLOCKING)) != 0 {
            return Err(Errno::EINVAL.into());
        }
        if !self.descriptors.has_room(2) {
            return Err(Errno::EMFILE.into());
        }
        self.memory.array::<8>(address)?;
        let id = self.next_source()?;
        self.pipes.insert(id, Pipe::new());
        let on_exec = flags & CLOSE_ON_EXEC != 0;
        let status = flags as u32 & NON_BLOCKING;
        let reader = self.descriptors.open(Object::PipeReader(id), status, on_exec, 0)?;
        let writer = self.descriptors.open(Object::PipeWriter(id), status | 1, on_exec, 0)?;
        self.memory.write(address, &[reader.to_le_bytes(), writer.to_le_bytes()].concat())?;
        Ok(0)
    }

    /// Serves fcntl(2).
    pub(super) fn fcntl(&mut self, caller: &Caller) -> Served {
        let descriptor = caller.descriptor(0);
        let [_, command, argument, ..] = caller.arguments;
        let description = self.descriptors.get(descriptor)?;
        let id = self.descriptors.description(descriptor)?;
        match command {
            command::DUPLICATE | command::DUPLICATE_CLOSE_ON_EXEC => {
                let lowest = usize::try_from(argument).map_err(|_| Errno::EINVAL)?;
                if lowest >= crate::descriptor::DESCRIPTORS_LIMIT {
                    return Err(Errno::EINVAL.into());
                }
                let on_exec = command == command::DUPLICATE_CLOSE_ON_EXEC;
                Ok(self.descriptors.duplicate(descriptor, on_exec, lowest)? as u64)
            }
            command::GET_DESCRIPTOR_FLAGS => Ok(self.descriptors.is_closed_on_exec(descriptor)?.into()),
            command::SET_DESCRIPTOR_FLAGS => {
                self.descriptors.set_closed_on_exec(descriptor, argument & 1 != 0)?;
                Ok(0)
            }
            command::GET_FLAGS => Ok(description.flags.into()),
            command::SET_FLAGS => {
                let flags = description.flags & !CHANGEABLE | argument as u32 & CHANGEABLE;
                self.descriptors.get_mut(descriptor)?.flags = flags;
                Ok(0)
            }
            command::GET_LOCK | command::GET_DESCRIPTION_LOCK => {
                self.get_lock(description, if command == command::GET_LOCK { 0 } else { id }, argument)
            }
            command::SET_LOCK | command::SET_LOCK_WAIT => {
                self.set_lock(description, 0, argument, command == command::SET_LOCK_WAIT)
            }
            command::SET_DESCRIPTION_LOCK | command::SET_DESCRIPTION_LOCK_WAIT => {
                self.set_lock(description, id, argument, command == command::SET_DESCRIPTION_LOCK_WAIT)
            }
            command::GET_PIPE_SIZE => match description.object {
                Object::PipeReader(_) | Object::PipeWriter(_) => Ok(crate::pipe::PIPE_BYTES as u64),
                _ => Err(Errno::EBADF.into()),
            },
            _ => Err(Errno::EINVAL.into()),
        }
    }

    /// Serves ioctl(2): there is no terminal.
    pub(super) fn ioctl(&mut self, caller: &Caller) -> Served {
        let descriptor = caller.descriptor(0);
        let [_, control, argument, ..] = caller.arguments;
        let description = self.descriptors.get(descriptor)?;
        match control & 0xffff_ffff {
            control::SET_NON_BLOCKING => {
                let is_set = self.memory.word32(argument)? != 0;
                let flags = &mut self.descriptors.get_mut(descriptor)?.flags;
                *flags = if is_set { *flags | NON_BLOCKING } else { *flags & !NON_BLOCKING };
                Ok(0)
            }
            control::AVAILABLE => {
                let count = match description.object {
                    Object::PipeReader(id) => self.pipes.get(&id).map_or(0, Pipe::len),
                    Object::Socket(id) => self.network.available(id),
                    Object::Input => self.input.len(),
                    _ => return Err(Errno::ENOTTY.into()),
                };
                self.memory.write(argument, &(count as u32).to_le_bytes())?;
                Ok(0)
            }
            control::CLOSE_ON_EXEC | control::KEEP_ON_EXEC => {
                self.descriptors.set_closed_on_exec(descriptor, control == control::CLOSE_ON_EXEC)?;
                Ok(0)
            }
            _ => Err(Errno::ENOTTY.into()),
        }
    }

    /// Serves flock(2).
    pub(super) fn flock(&mut self, caller: &Caller) -> Served {
        let descriptor = caller.descriptor(0);
        let operation = caller.arguments[1];
        let Object::Node(file) = self.descriptors.get(descriptor)?.object else {
            return Err(Errno::EBADF.into());
        };
        let owner = self.descriptors.description(descriptor)? | FLOCK_OWNER;
        // These locks and record locks do not see each other: they are those of another file's number.
        let range = LockRange { start: 0, last: u64::MAX, is_exclusive: operation & 2 != 0, owner };
        match operation & !4 {
            1 | 2 => self.lock(file | FLOCK_OWNER, range, operation & 4 == 0),
            8 => {
                self.unlock(file | FLOCK_OWNER, range);
                Ok(0)
            }
            _ => Err(Errno::EINVAL.into()),
        }
    }

    /// Closes a descriptor, and what it refers to if it was the last one.
    pub(super) fn close_descriptor(&mut self, descriptor: i32) -> Served {
        let (id, closed) = self.descriptors.close(descriptor)?;
        if let Some((_, Description { object: Object::Node(file), .. })) = closed {
            self.release_locks(file, id);
        }
        if let Some((id, description)) = closed {
            self.end_description(id, description);
        }
        Ok(0)
    }

    /// Ends a description without descriptors.
    fn end_description(&mut self, id: DescriptionId, description: Description) {
        if let Some(source) = source_of(description.object) {
            self.epolls.forget(source, id);
        }
        match description.object {
            Object::Node(file) => {
                if self.files.close(file) {
                    self.forget_removed(file);
                }
            }
            Object::PipeReader(id) => self.end_pipe(id, true),
            Object::PipeWriter(id) => self.end_pipe(id, false),
            Object::Socket(id) => {
                self.work.push(Work::Path(Path::Disconnect));
                let effects = self.network.close(id);
                self.apply(effects);
            }
            Object::Epoll(id) => self.epolls.remove_set(id),
            Object::Counter(id) => drop(self.counters.remove(&id)),
            Object::Timer(id) => drop(self.timers.remove(&id)),
            Object::Input | Object::Output(_) => {}
        }
    }

    /// Counts one end of a pipe less, and lets the other ends see it.
    fn end_pipe(&mut self, id: u64, is_reader: bool) {
        let Some(pipe) = self.pipes.get_mut(&id) else { return };
        if is_reader {
            pipe.readers -= 1;
        } else {
            pipe.writers -= 1;
        }
        let (readers, writers) = (pipe.readers, pipe.writers);
        if readers == 0 && writers == 0 {
            self.pipes.remove(&id);
        } else if readers == 0 {
            self.notify(Source::PipeWriter(id), event::OUT | event::ERROR);
        } else if writers == 0 {
            self.notify(Source::PipeReader(id), event::IN | event::HANG_UP);
        }
    }

    /// Tells the lock that conflicts with a wanted one.
    fn get_lock(&mut self, description: Description, owner: u64, address: u64) -> Served {
        let (file, range, kind) = self.lock_range(description, owner, address)?;
        if kind == 2 {
            return Err(Errno::EINVAL.into());
        }
        match self.locks.get(&file).and_then(|locks| locks.conflict(range)) {
            None => self.memory.write(address, &2_u16.to_le_bytes())?,
            Some(other) => {
                let length = if other.last == u64::MAX { 0 } else { other.last - other.start + 1 };
                let owner: u32 = if other.owner == 0 { crate::thread::PROCESS } else { u32::MAX };
                self.memory.write(address, &u16::from(other.is_exclusive).to_le_bytes())?;
                self.memory.write(address.wrapping_add(2), &0_u16.to_le_bytes())?;
                self.memory.set_words(address.wrapping_add(8), &[other.start, length])?;
                self.memory.write(address.wrapping_add(24), &owner.to_le_bytes())?;
            }
        }
        Ok(0)
    }

    /// Sets or removes a record lock.
    fn set_lock(&mut self, description: Description, owner: u64, address: u64, is_waiting: bool) -> Served {
        let (file, range, kind) = self.lock_range(description, owner, address)?;
        let access = description.flags & 3;
        match kind {
            0 if access == 1 => Err(Errno::EBADF.into()),
            1 if access == 0 => Err(Errno::EBADF.into()),
            2 => {
                self.unlock(file, range);
                Ok(0)
            }
            _ => self.lock(file, range, is_waiting),
        }
    }

    /// Sets a lock, or waits for those in its path.
    fn lock(&mut self, file: NodeId, range: LockRange, is_waiting: bool) -> Served {
        let locks = self.locks.entry(file).or_default();
        if locks.conflict(range).is_some() {
            return Err(if is_waiting { Stop::Block(vec![Key::Lock(file)]) } else { Errno::EAGAIN.into() });
        }
        if locks.set(range, true) { Ok(0) } else { Err(Errno::ENOMEM.into()) }
    }

    /// Removes a range of an owner's locks.
    fn unlock(&mut self, file: NodeId, range: LockRange) {
        if let Some(locks) = self.locks.get_mut(&file) {
            locks.set(range, false);
            self.wake(Key::Lock(file));
        }
    }

    /// Removes the locks that go with a closed description: its own, and the process's.
    fn release_locks(&mut self, file: NodeId, description: DescriptionId) {
        for (file, owners) in [(file, [0, description]), (file | FLOCK_OWNER, [description | FLOCK_OWNER; 2])]
        {
            if let Some(locks) = self.locks.get_mut(&file) {
                owners.into_iter().for_each(|owner| locks.release(owner));
                if locks.is_empty() {
                    self.locks.remove(&file);
                }
                self.wake(Key::Lock(file));
            }
        }
    }

    /// Reads a lock of the program (`struct flock`): the file, the range, and the type: 0 to read, 1 to write, 2
    /// to unlock.
    fn lock_range(
        &mut self,
        description: Description,
        owner: u64,
        address: u64,
    ) -> Result<(NodeId, LockRange, u16), Stop> {
        let Object::Node(file) = description.object else { return Err(Errno::EBADF.into()) };
        let head = self.memory.word32(address)?;
        let [start, length] = self.memory.words(address.wrapping_add(8))?;
        let (kind, origin) = (head as u16, (head >> 16) as u16);
        let base = match origin {
            0 => 0,
            1 => description.position,
            2 => self.files.length(file),
            _ => return Err(Errno::EINVAL.into()),
        };
        let start = base.checked_add_signed(start as i64).filter(|&start| start <= i64::MAX as u64);
        let start = start.ok_or(Errno::EINVAL)?;
        let (start, last) = match length as i64 {
            0 => (start, u64::MAX),
            length @ 1.. => (start, start.saturating_add(length as u64 - 1)),
            length => (
                start.checked_add_signed(length).ok_or(Errno::EINVAL)?,
                start.checked_sub(1).ok_or(Errno::EINVAL)?,
            ),
        };
        if kind > 2 {
            return Err(Errno::EINVAL.into());
        }
        Ok((file, LockRange { start, last, is_exclusive: kind == 1, owner }, kind))
    }
}

/// Returns the source of an object's events; `None` for files, which are always ready.
pub(super) fn source_of(object: Object) -> Option<Source> {
    match object {
        Object::Node(_) | Object::Output(_) => None,
        Object::Input => Some(Source::Input),
        Object::PipeReader(id) => Some(Source::PipeReader(id)),
        Object::PipeWriter(id) => Some(Source::PipeWriter(id)),
        Object::Socket(id) => Some(Source::Socket(id)),
        Object::Epoll(id) => Some(Source::Epoll(id)),
        Object::Counter(id) => Some(Source::Counter(id)),
        Object::Timer(id) => Some(Source::Timer(id)),
    }
}
