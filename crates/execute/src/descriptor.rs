//! Descriptors and open file descriptions (open(2)).

use std::collections::BTreeMap;

use crate::errno::Errno;
use crate::file::NodeId;

/// Number of an open file description.
pub type DescriptionId = u64;

/// Greatest number of descriptors (`ulimit -n`).
pub const DESCRIPTORS_LIMIT: usize = 4096;

/// Object that a description refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Object {
    /// Node of the file system.
    Node(NodeId),
    /// Standard input.
    Input,
    /// Standard output (1) or standard error (2).
    Output(u8),
    /// End of a pipe from which bytes are read.
    PipeReader(u64),
    /// End of a pipe into which bytes are written.
    PipeWriter(u64),
    /// Socket.
    Socket(u64),
    /// Set of descriptors to wait for (epoll(7)).
    Epoll(u64),
    /// Event counter.
    Counter(u64),
    /// Timer.
    Timer(u64),
}

/// Open file description.
#[derive(Clone, Copy, Debug)]
pub struct Description {
    /// Object.
    pub object: Object,
    /// Flags of open(2): access mode and status.
    pub flags: u32,
    /// Position, in bytes; of a folder, the number of entries read.
    pub position: u64,
    /// Number of descriptors that refer to it.
    references: u32,
}

/// Entry of the table of descriptors.
#[derive(Clone, Copy, Debug)]
struct Entry {
    /// Description.
    description: DescriptionId,
    /// True if execve(2) closes it.
    is_closed_on_exec: bool,
}

/// Descriptors of the process, and their descriptions.
#[derive(Clone, Debug, Default)]
pub struct Descriptors {
    /// Descriptors.
    table: Vec<Option<Entry>>,
    /// Descriptions.
    descriptions: BTreeMap<DescriptionId, Description>,
    /// Number of the latest description.
    last: DescriptionId,
}

impl Descriptors {
    /// Makes a description and the lowest free descriptor from `lowest` on for it.
    ///
    /// # Errors
    ///
    /// [`Errno::EMFILE`]: there are [`DESCRIPTORS_LIMIT`] descriptors.
    pub fn open(&mut self, object: Object, flags: u32, on_exec: bool, lowest: usize) -> Result<i32, Errno> {
        let descriptor = self.free_from(lowest)?;
        self.last += 1;
        let description = Description { object, flags, position: 0, references: 1 };
        self.descriptions.insert(self.last, description);
        self.table[descriptor] = Some(Entry { description: self.last, is_closed_on_exec: on_exec });
        Ok(descriptor as i32)
    }

    /// Returns whether a number of descriptors are free.
    pub fn has_room(&self, count: usize) -> bool {
        DESCRIPTORS_LIMIT - self.table.iter().flatten().count() >= count
    }

    /// Returns the description of a descriptor.
    ///
    /// # Errors
    ///
    /// [`Errno::EBADF`]: it is not open.
    pub fn description(&self, descriptor: i32) -> Result<DescriptionId, Errno> {
        let entry = usize::try_from(descriptor).ok().and_then(|index| self.table.get(index));
        entry.and_then(|entry| entry.as_ref()).map(|entry| entry.description).ok_or(Errno::EBADF)
    }

    /// Returns what a descriptor refers to.
    ///
    /// # Errors
    ///
    /// [`Errno::EBADF`]: it is not open.
    pub fn get(&self, descriptor: i32) -> Result<Description, Errno> {
        self.find(self.description(descriptor)?).ok_or(Errno::EBADF)
    }

    /// Returns what a descriptor refers to, to be changed.
    ///
    /// # Errors
    ///
    /// [`Errno::EBADF`]: it is not open.
    pub fn get_mut(&mut self, descriptor: i32) -> Result<&mut Description, Errno> {
        let id = self.description(descriptor)?;
        self.descriptions.get_mut(&id).ok_or(Errno::EBADF)
    }

    /// Returns a description by its number.
    pub fn find(&self, id: DescriptionId) -> Option<Description> {
        self.descriptions.get(&id).copied()
    }

    /// Makes another descriptor of a description: the lowest free one from `lowest` on.
    ///
    /// # Errors
    ///
    /// [`Errno::EBADF`] and [`Errno::EMFILE`].
    pub fn duplicate(&mut self, descriptor: i32, on_exec: bool, lowest: usize) -> Result<i32, Errno> {
        let id = self.description(descriptor)?;
        let new = self.free_from(lowest)?;
        self.attach(new, id, on_exec);
        Ok(new as i32)
    }

    /// Makes a certain descriptor one of a description, and returns the description that it closed for that, if
    /// it was its last.
    ///
    /// # Errors
    ///
    /// [`Errno::EBADF`]: the old one is not open, or the new one is beyond the limit.
    pub fn duplicate_to(
        &mut self,
        descriptor: i32,
        new: i32,
        on_exec: bool,
    ) -> Result<Option<(DescriptionId, Description)>, Errno> {
        let id = self.description(descriptor)?;
        let index = usize::try_from(new).ok().filter(|&new| new < DESCRIPTORS_LIMIT).ok_or(Errno::EBADF)?;
        let closed = if self.description(new).is_ok() { self.close(new)?.1 } else { None };
        self.attach(index, id, on_exec);
        Ok(closed)
    }

    /// Closes a descriptor. Returns its description's number, and the description if it was its last.
    ///
    /// # Errors
    ///
    /// [`Errno::EBADF`]: it is not open.
    #[allow(clippy::type_complexity)]
    pub fn close(
        &mut self,
        descriptor: i32,
    ) -> Result<(DescriptionId, Option<(DescriptionId, Description)>), Errno> {
        let id = self.description(descriptor)?;
        self.table[descriptor as usize] = None;
        let description = self.descriptions.get_mut(&id).ok_or(Errno::EBADF)?;
        description.references -= 1;
        let closed = *description;
        if closed.references > 0 {
            return Ok((id, None));
        }
        self.descriptions.remove(&id);
        Ok((id, Some((id, closed))))
    }

    /// Returns whether execve(2) closes a descriptor.
    ///
    /// # Errors
    ///
    /// [`Errno::EBADF`]: it is not open.
    pub fn is_closed_on_exec(&self, descriptor: i32) -> Result<bool, Errno> {
        self.description(descriptor)?;
        Ok(self.table[descriptor as usize].is_some_and(|entry| entry.is_closed_on_exec))
    }

    /// Sets whether execve(2) closes a descriptor.
    ///
    /// # Errors
    ///
    /// [`Errno::EBADF`]: it is not open.
    pub fn set_closed_on_exec(&mut self, descriptor: i32, on_exec: bool) -> Result<(), Errno> {
        self.description(descriptor)?;
        if let Some(entry) = &mut self.table[descriptor as usize] {
            entry.is_closed_on_exec = on_exec;
        }
        Ok(())
    }

    /// Returns the open descriptors between two numbers, both included.
    pub fn between(&self, first: u64, last: u64) -> Vec<i32> {
        let open = self.table.iter().enumerate().filter(|(_, entry)| entry.is_some());
        open.map(|(index, _)| index)
            .filter(|&index| (first..=last).contains(&(index as u64)))
            .map(|index| index as i32)
            .collect()
    }

    /// Refers to a description by a free descriptor.
    fn attach(&mut self, index: usize, id: DescriptionId, on_exec: bool) {
        if index >= self.table.len() {
            self.table.resize(index + 1, None);
        }
        self.table[index] = Some(Entry { description: id, is_closed_on_exec: on_exec });
        if let Some(description) = self.descriptions.get_mut(&id) {
            description.references += 1;
        }
    }

    /// Returns the lowest free descriptor from a number on, which the table has room for.
    fn free_from(&mut self, lowest: usize) -> Result<usize, Errno> {
        let index =
            (lowest..DESCRIPTORS_LIMIT).find(|&index| self.table.get(index).is_none_or(Option::is_none));
        let index = index.ok_or(Errno::EMFILE)?;
        if index >= self.table.len() {
            self.table.resize(index + 1, None);
        }
        Ok(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_descriptor_is_used_and_descriptions_are_counted() {
        let mut all = Descriptors::default();
        for number in 0..3 {
            assert_eq!(all.open(Object::Output(number), 0, false, 0), Ok(i32::from(number)));
        }
        assert_eq!(all.duplicate(1, false, 10), Ok(10));
        assert!(all.close(1).unwrap().1.is_none());
        assert_eq!(all.open(Object::Input, 0, true, 0), Ok(1));
        assert!(all.is_closed_on_exec(1).unwrap());
        assert_eq!(all.close(10).unwrap().1.map(|(_, closed)| closed.object), Some(Object::Output(1)));
        assert!(all.duplicate_to(0, 2, false).unwrap().is_some());
        assert_eq!(all.duplicate_to(0, i32::MAX, false).map(|_| ()), Err(Errno::EBADF));
        assert_eq!(all.get(-1).map(|_| ()), Err(Errno::EBADF));
        assert_eq!(all.between(0, u64::MAX), [0, 1, 2]);
    }

    #[test]
    fn there_is_a_limit() {
        let mut all = Descriptors::default();
        for _ in 0..DESCRIPTORS_LIMIT {
            all.open(Object::Input, 0, false, 0).unwrap();
        }
        assert_eq!(all.open(Object::Input, 0, false, 0), Err(Errno::EMFILE));
        assert!(!all.has_room(1));
    }
}
