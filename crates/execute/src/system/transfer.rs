//! Reads and writes of descriptors.
//!
//! A transfer has buffers of the program, one or several, and counts in [`Call::progress`] how many bytes it has
//! moved. A file's transfer goes on after the disk until all is done. That of a pipe or a socket returns what
//! there is.
//!
//! [`Call::progress`]: crate::thread::Call::progress

use super::storage::READ_AHEAD_PAGES;
use super::{Caller, Served, Stop, System, TRANSFER_LIMIT};
use crate::clock::Time;
use crate::descriptor::{Description, Object};
use crate::errno::Errno;
use crate::file::{Character, FILE_PAGE_BYTES, Kind, NodeId};
use crate::machine::{Location, Path, ThreadId, Work};
use crate::pipe::{ATOMIC_BYTES, Counter};
use crate::poll::event;
use crate::signal::{Information, number};
use crate::thread::{Key, Source};

/// Flag of descriptions: calls do not block (`O_NONBLOCK`).
pub(super) const NON_BLOCKING: u32 = 0o4000;
/// Flag of descriptions: writes append (`O_APPEND`).
pub(super) const APPEND: u32 = 0o2000;
/// Flags of descriptions: writes wait for the disk (`O_SYNC`, `O_DSYNC`).
pub(super) const SYNCHRONOUS: u32 = 0o4_010_000;
/// Greatest number of buffers of a call (`IOV_MAX`).
const BUFFERS_LIMIT: u64 = 1024;
/// Number of bytes that are copied in one go.
const PART_BYTES: usize = 64 << 10;

/// Buffers of the program: address and length of each.
pub(super) type Buffers = Vec<(u64, u64)>;

impl System {
    /// Serves read(2).
    pub(super) fn read(&mut self, caller: &Caller) -> Served {
        let [_, address, length, ..] = caller.arguments;
        self.read_buffers(caller, vec![(address, length.min(TRANSFER_LIMIT))], None)
    }

    /// Serves write(2).
    pub(super) fn write(&mut self, caller: &Caller) -> Served {
        let [_, address, length, ..] = caller.arguments;
        self.write_buffers(caller, vec![(address, length.min(TRANSFER_LIMIT))], None)
    }

    /// Serves readv(2).
    pub(super) fn readv(&mut self, caller: &Caller) -> Served {
        let buffers = self.buffers(caller.arguments[1], caller.arguments[2])?;
        self.read_buffers(caller, buffers, None)
    }

    /// Serves writev(2).
    pub(super) fn writev(&mut self, caller: &Caller) -> Served {
        let buffers = self.buffers(caller.arguments[1], caller.arguments[2])?;
        self.write_buffers(caller, buffers, None)
    }

    /// Serves pread64(2).
    pub(super) fn pread64(&mut self, caller: &Caller) -> Served {
        let [_, address, length, offset, ..] = caller.arguments;
        self.read_buffers(caller, vec![(address, length.min(TRANSFER_LIMIT))], Some(offset))
    }

    /// Serves pwrite64(2).
    pub(super) fn pwrite64(&mut self, caller: &Caller) -> Served {
        let [_, address, length, offset, ..] = caller.arguments;
        self.write_buffers(caller, vec![(address, length.min(TRANSFER_LIMIT))], Some(offset))
    }

    /// Serves preadv(2).
    pub(super) fn preadv(&mut self, caller: &Caller) -> Served {
        let buffers = self.buffers(caller.arguments[1], caller.arguments[2])?;
        self.read_buffers(caller, buffers, Some(caller.arguments[3]))
    }

    /// Serves pwritev(2).
    pub(super) fn pwritev(&mut self, caller: &Caller) -> Served {
        let buffers = self.buffers(caller.arguments[1], caller.arguments[2])?;
        self.write_buffers(caller, buffers, Some(caller.arguments[3]))
    }

    /// Serves sendfile(2): bytes of a file go to a descriptor.
    pub(super) fn sendfile(&mut self, caller: &Caller) -> Served {
        let [_, _, offset_address, count, ..] = caller.arguments;
        let target = self.writable(caller.descriptor(0))?;
        let source = self.readable(caller.descriptor(1))?;
        let Object::Node(file) = source.object else { return Err(Errno::EINVAL.into()) };
        let start =
            if offset_address == 0 { source.position } else { self.memory.words::<1>(offset_address)?[0] };
        let count = count.min(TRANSFER_LIMIT);
        loop {
            let done = self.call_of(caller.thread)?.progress;
            let offset = start.checked_add(done).ok_or(Errno::EINVAL)?;
            let part =
                (count - done).min(PART_BYTES as u64).min(self.files.length(file).saturating_sub(offset));
            if part == 0 {
                break;
            }
            let end = offset + part - 1;
            let last = (end / FILE_PAGE_BYTES).min(offset / FILE_PAGE_BYTES + READ_AHEAD_PAGES - 1);
            self.require_pages(caller, file, offset / FILE_PAGE_BYTES, last)?;
            let mut bytes = vec![0; part as usize];
            let read = self.read_file(file, offset, &mut bytes)?;
            let from = Location::Page { file, offset };
            match self.put(caller, target, from, &bytes[..read], true) {
                Ok(0) => break,
                Ok(written) => self.call_of(caller.thread)?.progress += written,
                // The offset moves by what was sent when all is done or the target cannot take more.
                Err(Stop::Error(_)) if done > 0 => break,
                Err(stop) => return Err(stop),
            }
        }
        let done = self.call_of(caller.thread)?.progress;
        if offset_address == 0 {
            self.descriptors.get_mut(caller.descriptor(1))?.position = start + done;
        } else {
            self.memory.set_words(offset_address, &[start + done])?;
        }
        Ok(done)
    }

    /// Reads from a descriptor, at an offset or at its position.
    fn read_buffers(&mut self, caller: &Caller, buffers: Buffers, at: Option<u64>) -> Served {
        let description = self.readable(caller.descriptor(0))?;
        if at.is_some_and(|offset| offset > i64::MAX as u64) {
            return Err(Errno::EINVAL.into());
        }
        let total: u64 = buffers.iter().map(|&(_, length)| length).sum();
        if let Object::Node(file) = description.object {
            return self.read_node(caller, file, description, &buffers, at);
        }
        if at.is_some() {
            return Err(Errno::ESPIPE.into());
        }
        let is_waiting = description.flags & NON_BLOCKING == 0;
        let (from, bytes) = match description.object {
            Object::Counter(_) | Object::Timer(_) => {
                if total < 8 {
                    return Err(Errno::EINVAL.into());
                }
                (Location::System, self.take_count(description.object, is_waiting)?.to_le_bytes().to_vec())
            }
            _ if total == 0 => return Ok(0),
            Object::Input => (Location::System, self.take_input(total, is_waiting)?),
            Object::PipeReader(id) => self.take_from_pipe(id, total, is_waiting)?,
            Object::Socket(id) => self.take_from_socket(id, total, is_waiting, false)?,
            _ => return Err(Errno::EINVAL.into()),
        };
        self.scatter(&buffers, from, &bytes)?;
        Ok(bytes.len() as u64)
    }

    /// Reads from a node of the file system.
    fn read_node(
        &mut self,
        caller: &Caller,
        file: NodeId,
        description: Description,
        buffers: &Buffers,
        at: Option<u64>,
    ) -> Served {
        match self.files.node(file)?.kind {
            Kind::File(_) => {}
            Kind::Folder { .. } => return Err(Errno::EISDIR.into()),
            Kind::Device(device) => return self.read_character(device, buffers),
            Kind::Link(_) => return Err(Errno::EINVAL.into()),
        }
        let start = at.unwrap_or(description.position);
        loop {
            let done = self.call_of(caller.thread)?.progress;
            let Some((address, left)) = segment(buffers, done) else { break };
            let offset = start.checked_add(done).ok_or(Errno::EOVERFLOW)?;
            let part = left.min(self.files.length(file).saturating_sub(offset));
            // A part lies in the pages of one request.
            let limit = READ_AHEAD_PAGES * FILE_PAGE_BYTES - offset % FILE_PAGE_BYTES;
            let part = part.min(limit) as usize;
            if part == 0 {
                break;
            }
            let (first, last) = (offset / FILE_PAGE_BYTES, (offset + part as u64 - 1) / FILE_PAGE_BYTES);
            let is_direct = self.facts.reads_directly && !self.has_cached(file, first, last);
            if is_direct {
                self.read_directly(caller, file, offset, part as u64, address)?;
            } else {
                self.require_pages(caller, file, first, last)?;
            }
            let mut bytes = vec![0; part];
            self.read_file(file, offset, &mut bytes)?;
            let read = match is_direct {
                true => self.memory.write(address, &bytes),
                false => self.copy_out(Location::Page { file, offset }, address, &bytes),
            };
            if let Err(errno) = read {
                if done == 0 {
                    return Err(errno.into());
                }
                break;
            }
            self.call_of(caller.thread)?.progress += part as u64;
        }
        let done = self.call_of(caller.thread)?.progress;
        if at.is_none() {
            self.descriptors.get_mut(caller.descriptor(0))?.position = start + done;
        }
        if done > 0 {
            self.files.node_mut(file)?.accessed = caller.now;
        }
        Ok(done)
    }

    /// Reads from a character device.
    fn read_character(&mut self, device: Character, buffers: &Buffers) -> Served {
        let mut done = 0;
        while let Some((address, left)) = segment(buffers, done).filter(|_| device != Character::Null) {
            let mut bytes = vec![0; left.min(PART_BYTES as u64) as usize];
            if device == Character::Random {
                self.random.fill(&mut bytes);
            }
            match self.copy_out(Location::System, address, &bytes) {
                Ok(()) => done += bytes.len() as u64,
                Err(errno) if done == 0 => return Err(errno.into()),
                Err(_) => break,
            }
        }
        Ok(done)
    }

    /// Writes to a descriptor, at an offset or at its position.
    fn write_buffers(&mut self, caller: &Caller, buffers: Buffers, at: Option<u64>) -> Served {
        let description = self.writable(caller.descriptor(0))?;
        if at.is_some_and(|offset| offset > i64::MAX as u64) {
            return Err(Errno::EINVAL.into());
        }
        let file = match description.object {
            Object::Node(file) => Some(file),
            _ if at.is_some() => return Err(Errno::ESPIPE.into()),
            _ => None,
        };
        let total: u64 = buffers.iter().map(|&(_, length)| length).sum();
        if total == 0 && !matches!(description.object, Object::Counter(_)) {
            return Ok(0);
        }
        if let Some(file) = file.filter(|_| description.flags & SYNCHRONOUS != 0)
            && self.call_of(caller.thread)?.is_begun
        {
            // All is written, and waits for the disk.
            self.wait_for_writes(caller, Some(file))?;
            return Ok(self.call_of(caller.thread)?.progress);
        }
        let append = description.flags & APPEND != 0;
        loop {
            let done = self.call_of(caller.thread)?.progress;
            let Some((address, left)) = segment(&buffers, done) else { break };
            let mut bytes = vec![0; left.min(PART_BYTES as u64) as usize];
            let written = match file {
                Some(file) => {
                    let start = at.unwrap_or(description.position).saturating_add(done);
                    let start = if append { self.files.length(file) } else { start };
                    self.write_node(caller, file, start, address, &mut bytes)
                }
                None => self.memory.read(address, &mut bytes).map_err(Stop::from).and_then(|()| {
                    self.put(
                        caller,
                        description,
                        Location::Program(address),
                        &bytes,
                        left > bytes.len() as u64,
                    )
                }),
            };
            match written {
                Ok(0) => break,
                Ok(count) => self.call_of(caller.thread)?.progress += count,
                Err(Stop::Error(_)) if done > 0 => break,
                Err(stop) => return Err(stop),
            }
        }
        let done = self.call_of(caller.thread)?.progress;
        if let Some(file) = file {
            if at.is_none() {
                let end = if append { self.files.length(file) } else { description.position + done };
                self.descriptors.get_mut(caller.descriptor(0))?.position = end;
            }
            if description.flags & SYNCHRONOUS != 0 {
                self.wait_for_writes(caller, Some(file))?;
            }
        }
        Ok(done)
    }

    /// Writes a part of a buffer to a node of the file system, and returns the number of bytes.
    fn write_node(
        &mut self,
        caller: &Caller,
        file: NodeId,
        start: u64,
        address: u64,
        bytes: &mut [u8],
    ) -> Served {
        if let Kind::Device(_) = self.files.node(file)?.kind {
            self.copy_in(address, Location::System, bytes)?;
            return Ok(bytes.len() as u64);
        }
        let end = start.checked_add(bytes.len() as u64).ok_or(Errno::EFBIG)?;
        // The first and the last page may be overwritten partly, and then must be read before.
        let length = self.files.length(file);
        for edge in [start, end] {
            let page = edge / FILE_PAGE_BYTES;
            if edge % FILE_PAGE_BYTES != 0 && page * FILE_PAGE_BYTES < length {
                self.require_pages(caller, file, page, page)?;
            }
        }
        self.copy_in(address, Location::Page { file, offset: start }, bytes)?;
        self.write_file(file, start, bytes, caller.now)?;
        Ok(bytes.len() as u64)
    }

    /// Puts bytes into something that is no file, and returns their number. `has_more` tells that more bytes
    /// of the same call follow.
    fn put(
        &mut self,
        caller: &Caller,
        description: Description,
        from: Location,
        bytes: &[u8],
        has_more: bool,
    ) -> Served {
        let is_waiting = description.flags & NON_BLOCKING == 0;
        match description.object {
            Object::Output(number) => {
                self.tell(from, Location::System, bytes.len());
                self.output_bytes += bytes.len();
                match self.output.last_mut() {
                    Some((last, text)) if *last == number => text.extend_from_slice(bytes),
                    _ => self.output.push((number, bytes.to_vec())),
                }
                Ok(bytes.len() as u64)
            }
            Object::PipeWriter(id) => self.put_into_pipe(caller, id, from, bytes, is_waiting, has_more),
            Object::Socket(id) => self.put_into_socket(caller, id, from, bytes, is_waiting, true),
            Object::Counter(id) => self.put_into_counter(id, bytes, is_waiting),
            Object::Node(file) => {
                let position = self.descriptors.get(caller.descriptor(0))?.position;
                self.tell(from, Location::Page { file, offset: position }, bytes.len());
                self.write_file(file, position, bytes, caller.now)?;
                self.descriptors.get_mut(caller.descriptor(0))?.position = position + bytes.len() as u64;
                Ok(bytes.len() as u64)
            }
            _ => Err(Errno::EINVAL.into()),
        }
    }

    /// Takes bytes of standard input.
    fn take_input(&mut self, limit: u64, is_waiting: bool) -> Result<Vec<u8>, Stop> {
        if self.input.is_empty() && !self.is_input_ended {
            return Err(wait_for(Source::Input, is_waiting));
        }
        let count = self.input.len().min(usize::try_from(limit).unwrap_or(usize::MAX));
        Ok(self.input.drain(..count).collect())
    }

    /// Takes bytes out of a pipe; none at its end.
    fn take_from_pipe(&mut self, id: u64, limit: u64, is_waiting: bool) -> Result<(Location, Vec<u8>), Stop> {
        let pipe = self.pipes.get_mut(&id).ok_or(Errno::EBADF)?;
        let from = Location::Pipe { pipe: id, offset: pipe.read };
        if pipe.is_empty() {
            return if pipe.writers == 0 {
                Ok((from, Vec::new()))
            } else {
                Err(wait_for(Source::PipeReader(id), is_waiting))
            };
        }
        let bytes = pipe.pop(usize::try_from(limit).unwrap_or(usize::MAX));
        self.notify(Source::PipeWriter(id), event::OUT);
        Ok((from, bytes))
    }

    /// Takes bytes that a socket has received; none at the end.
    pub(super) fn take_from_socket(
        &mut self,
        id: u64,
        limit: u64,
        is_waiting: bool,
        peek: bool,
    ) -> Result<(Location, Vec<u8>), Stop> {
        match self.network.receive(id, usize::try_from(limit).unwrap_or(usize::MAX), peek) {
            Ok((bytes, offset, effects)) => {
                self.apply(effects);
                Ok((Location::Socket { socket: id, offset }, bytes))
            }
            Err(Errno::EAGAIN) => Err(wait_for(Source::Socket(id), is_waiting)),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Takes the value of an event counter, or a timer's number of expirations.
    fn take_count(&mut self, object: Object, is_waiting: bool) -> Result<u64, Stop> {
        let (source, value) = match object {
            Object::Counter(id) => {
                let value = self.counters.get_mut(&id).ok_or(Errno::EBADF)?.take();
                if value.is_some() {
                    self.notify(Source::Counter(id), event::OUT);
                }
                (Source::Counter(id), value)
            }
            Object::Timer(id) => {
                let timer = self.timers.get_mut(&id).ok_or(Errno::EBADF)?;
                let count = std::mem::take(&mut timer.expirations);
                (Source::Timer(id), (count > 0).then_some(count))
            }
            _ => return Err(Errno::EINVAL.into()),
        };
        value.ok_or_else(|| wait_for(source, is_waiting))
    }

    /// Puts bytes into a pipe.
    fn put_into_pipe(
        &mut self,
        caller: &Caller,
        id: u64,
        from: Location,
        bytes: &[u8],
        is_waiting: bool,
        has_more: bool,
    ) -> Served {
        let pipe = self.pipes.get_mut(&id).ok_or(Errno::EBADF)?;
        if pipe.readers == 0 {
            return Err(self.broken_pipe(caller.thread));
        }
        let room = pipe.room();
        let is_atomic = bytes.len() <= ATOMIC_BYTES && !has_more;
        if room == 0 || is_atomic && room < bytes.len() {
            return Err(wait_for(Source::PipeWriter(id), is_waiting));
        }
        let count = room.min(bytes.len());
        let to = Location::Pipe { pipe: id, offset: pipe.end() };
        pipe.push(&bytes[..count]);
        self.tell(from, to, count);
        self.notify(Source::PipeReader(id), event::IN);
        Ok(count as u64)
    }

    /// Sends bytes by a socket.
    pub(super) fn put_into_socket(
        &mut self,
        caller: &Caller,
        id: u64,
        from: Location,
        bytes: &[u8],
        is_waiting: bool,
        signals: bool,
    ) -> Served {
        let (socket, offset) = self.network.destination(id);
        match self.network.send(id, bytes) {
            Ok((0, _)) => Err(wait_for(Source::Socket(id), is_waiting)),
            Ok((count, effects)) => {
                self.tell(from, Location::Socket { socket, offset }, count);
                self.work.push(Work::Path(Path::Send { bytes: count as u64 }));
                self.apply(effects);
                Ok(count as u64)
            }
            Err(Errno::EPIPE) if signals => Err(self.broken_pipe(caller.thread)),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Adds to an event counter.
    fn put_into_counter(&mut self, id: u64, bytes: &[u8], is_waiting: bool) -> Served {
        let value: [u8; 8] = bytes.get(..8).and_then(|bytes| bytes.try_into().ok()).ok_or(Errno::EINVAL)?;
        let value = u64::from_le_bytes(value);
        let counter = self.counters.get_mut(&id).ok_or(Errno::EBADF)?;
        if value > Counter::MAX {
            return Err(Errno::EINVAL.into());
        }
        if Counter::MAX - counter.value < value {
            return Err(wait_for(Source::Counter(id), is_waiting));
        }
        counter.value += value;
        self.notify(Source::Counter(id), event::IN);
        Ok(8)
    }

    /// Sends SIGPIPE to a thread, and returns the error that goes with it.
    fn broken_pipe(&mut self, thread: ThreadId) -> Stop {
        self.send_to_thread(thread, Information::sent(number::PIPE, 0));
        Errno::EPIPE.into()
    }

    /// Copies bytes to the program's buffers.
    pub(super) fn scatter(&mut self, buffers: &Buffers, from: Location, bytes: &[u8]) -> Result<(), Stop> {
        let mut done = 0;
        while done < bytes.len() {
            let Some((address, left)) = segment(buffers, done as u64) else { break };
            let part = left.min((bytes.len() - done) as u64) as usize;
            self.copy_out(from.behind(done as u64), address, &bytes[done..done + part])?;
            done += part;
        }
        Ok(())
    }

    /// Reads a list of buffers (`struct iovec`).
    pub(super) fn buffers(&mut self, address: u64, count: u64) -> Result<Buffers, Errno> {
        if count > BUFFERS_LIMIT {
            return Err(Errno::EINVAL);
        }
        let mut left = TRANSFER_LIMIT;
        let mut buffers = Vec::with_capacity(count as usize);
        for index in 0..count {
            let [base, length] = self.memory.words(address.wrapping_add(16 * index))?;
            if length > i64::MAX as u64 {
                return Err(Errno::EINVAL);
            }
            let length = length.min(left);
            left -= length;
            buffers.push((base, length));
        }
        Ok(buffers)
    }

    /// Returns what a descriptor refers to, if it can be read.
    pub(super) fn readable(&self, descriptor: i32) -> Result<Description, Errno> {
        let description = self.descriptors.get(descriptor)?;
        if description.flags & 3 == 1 { Err(Errno::EBADF) } else { Ok(description) }
    }

    /// Returns what a descriptor refers to, if it can be written.
    pub(super) fn writable(&self, descriptor: i32) -> Result<Description, Errno> {
        let description = self.descriptors.get(descriptor)?;
        let is_written = match description.object {
            Object::Node(_) => description.flags & 3 != 0,
            Object::Input | Object::PipeReader(_) => false,
            _ => true,
        };
        if is_written { Ok(description) } else { Err(Errno::EBADF) }
    }

    /// Tells the copy of bytes.
    fn tell(&mut self, from: Location, to: Location, bytes: usize) {
        self.work.push(Work::Copy { from, to, bytes: bytes as u64 });
    }

    /// Takes note of the time of a file's change that is none of its content.
    pub(super) fn mark_changed(&mut self, file: NodeId, now: Time) {
        if let Ok(node) = self.files.node_mut(file) {
            node.changed = now;
        }
    }
}

/// Returns the wait for a source, or the error of a call that does not wait.
pub(super) fn wait_for(source: Source, is_waiting: bool) -> Stop {
    if is_waiting { Stop::Block(vec![Key::Source(source)]) } else { Errno::EAGAIN.into() }
}

/// Returns the address and the length of the buffer behind a number of bytes; `None` if all are done.
fn segment(buffers: &Buffers, done: u64) -> Option<(u64, u64)> {
    let mut before = done;
    for &(address, length) in buffers {
        if before < length {
            return Some((address.wrapping_add(before), length - before));
        }
        before -= length;
    }
    None
}
