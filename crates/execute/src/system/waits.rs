//! Calls that wait for descriptors: ppoll, pselect6, epoll; event counters and timers.

use super::descriptors::{CLOSE_ON_EXEC, source_of};
use super::transfer::NON_BLOCKING;
use super::{Caller, Served, Stop, System};
use crate::clock::Time;
use crate::descriptor::{DESCRIPTORS_LIMIT, Object};
use crate::errno::Errno;
use crate::machine::{Path, Work};
use crate::pipe::{Counter, PIPE_BYTES, Timer};
use crate::poll::{Interest, event};
use crate::thread::{Key, Source};

/// Operations of epoll_ctl(2).
mod operation {
    pub const ADD: u64 = 1;
    pub const DELETE: u64 = 2;
    pub const CHANGE: u64 = 3;
}

/// Greatest number of sets below another set whose readiness counts for that set.
const DEPTH_LIMIT: u32 = 2;
/// Greatest number of events of a call.
const EVENTS_LIMIT: u64 = 4096;
/// Least room in a pipe with which it can be written to without waiting (`PIPE_BUF`).
const PIPE_ROOM: usize = crate::pipe::ATOMIC_BYTES;

impl System {
    /// Serves ppoll(2).
    pub(super) fn ppoll(&mut self, caller: &Caller) -> Served {
        let [list, count, timeout, mask, mask_length, _] = caller.arguments;
        if count > DESCRIPTORS_LIMIT as u64 {
            return Err(Errno::EINVAL.into());
        }
        let wait = if timeout == 0 { None } else { Some(self.time_at(timeout)?.duration()) };
        self.replace_mask(caller, mask, mask_length)?;
        let mut entries = vec![0_u8; 8 * count as usize];
        self.memory.read(list, &mut entries)?;
        let mut keys = Vec::new();
        let mut ready = 0;
        for entry in entries.chunks_exact_mut(8) {
            let descriptor = i32::from_le_bytes([entry[0], entry[1], entry[2], entry[3]]);
            let events = u32::from(u16::from_le_bytes([entry[4], entry[5]]));
            let found = if descriptor < 0 { 0 } else { self.poll_one(descriptor, events, &mut keys) };
            entry[6..8].copy_from_slice(&(found as u16).to_le_bytes());
            ready += u64::from(found != 0);
        }
        self.work.push(Work::Path(Path::Poll { descriptors: count as u32 }));
        if ready == 0 && !self.is_over(caller, wait)? {
            return Err(Stop::Block(keys));
        }
        self.memory.write(list, &entries)?;
        Ok(ready)
    }

    /// Serves pselect6(2).
    pub(super) fn pselect6(&mut self, caller: &Caller) -> Served {
        let [count, read, write, except, timeout, mask] = caller.arguments;
        if count > DESCRIPTORS_LIMIT as u64 {
            return Err(Errno::EINVAL.into());
        }
        let wait = if timeout == 0 { None } else { Some(self.time_at(timeout)?.duration()) };
        if mask != 0 {
            let [set, length] = self.memory.words(mask)?;
            self.replace_mask(caller, set, length)?;
        }
        let words = (count as usize).div_ceil(64);
        let mut sets = Vec::new();
        for (address, events) in [(read, event::IN), (write, event::OUT), (except, 2)] {
            let mut bytes = vec![0_u8; if address == 0 { 0 } else { words * 8 }];
            self.memory.read(address, &mut bytes)?;
            sets.push((address, events, bytes));
        }
        let mut keys = Vec::new();
        let mut ready = 0;
        for (_, events, bytes) in &mut sets {
            for (index, byte) in bytes.iter_mut().enumerate() {
                let wanted = std::mem::take(byte);
                for bit in (0..8).filter(|bit| wanted & 1 << bit != 0) {
                    let descriptor = (8 * index + bit) as i32;
                    if descriptor as u64 >= count {
                        continue;
                    }
                    let found = self.poll_one(descriptor, *events, &mut keys);
                    if found & event::INVALID != 0 {
                        return Err(Errno::EBADF.into());
                    }
                    // Errors and ends make a descriptor readable and writable.
                    if found & *events != 0 || found & event::ALWAYS != 0 && *events != 2 {
                        *byte |= 1 << bit;
                        ready += 1;
                    }
                }
            }
        }
        self.work.push(Work::Path(Path::Poll { descriptors: count as u32 }));
        if ready == 0 && !self.is_over(caller, wait)? {
            return Err(Stop::Block(keys));
        }
        for (address, _, bytes) in sets.iter().filter(|(address, ..)| *address != 0) {
            self.memory.write(*address, bytes)?;
        }
        Ok(ready)
    }

    /// Serves epoll_create1(2).
    pub(super) fn epoll_create(&mut self, caller: &Caller) -> Served {
        if !self.descriptors.has_room(1) {
            return Err(Errno::EMFILE.into());
        }
        let set = self.epolls.create();
        let on_exec = caller.arguments[0] & CLOSE_ON_EXEC != 0;
        Ok(self.descriptors.open(Object::Epoll(set), 2, on_exec, 0)? as u64)
    }

    /// Serves epoll_ctl(2).
    pub(super) fn epoll_ctl(&mut self, caller: &Caller) -> Served {
        let [_, operation, _, address, ..] = caller.arguments;
        let Object::Epoll(set) = self.descriptors.get(caller.descriptor(0))?.object else {
            return Err(Errno::EINVAL.into());
        };
        let descriptor = caller.descriptor(2);
        let member = (descriptor, self.descriptors.description(descriptor)?);
        // Files are always ready, and cannot be in a set.
        let source = source_of(self.descriptors.get(descriptor)?.object).ok_or(Errno::EPERM)?;
        if operation == operation::DELETE {
            self.epolls.remove(set, member)?;
            return Ok(0);
        }
        let [events, data] = self.memory.words(address)?;
        let events = events as u32;
        match operation {
            operation::ADD => {
                self.epolls.add(set, member, Interest { events, data, source, is_enabled: true })?
            }
            operation::CHANGE => self.epolls.change(set, member, events, data)?,
            _ => return Err(Errno::EINVAL.into()),
        }
        if self.readiness(descriptor) & (events | event::ALWAYS) != 0 {
            self.notify_set(set);
        }
        Ok(0)
    }

    /// Serves epoll_pwait(2).
    pub(super) fn epoll_pwait(&mut self, caller: &Caller) -> Served {
        let [_, address, limit, timeout, mask, mask_length] = caller.arguments;
        let Object::Epoll(set) = self.descriptors.get(caller.descriptor(0))?.object else {
            return Err(Errno::EINVAL.into());
        };
        if limit as i32 <= 0 {
            return Err(Errno::EINVAL.into());
        }
        self.replace_mask(caller, mask, mask_length)?;
        self.call_of(caller.thread)?.is_exclusive = true;
        let mut bytes = Vec::new();
        let mut looked_at = 0;
        for (member, interest) in self.epolls.candidates(set) {
            if bytes.len() as u64 / 16 >= limit.min(EVENTS_LIMIT) {
                break;
            }
            looked_at += 1;
            let found = self.readiness_of(member.1) & (interest.events | event::ALWAYS);
            self.epolls.settle(set, member, found != 0);
            if found != 0 {
                bytes.extend(u64::from(found).to_le_bytes());
                bytes.extend(interest.data.to_le_bytes());
            }
        }
        self.work.push(Work::Path(Path::Poll { descriptors: looked_at }));
        let wait = u64::try_from(timeout as i32).ok().map(|wait| Time::from_nanoseconds(wait * 1_000_000));
        if bytes.is_empty() && !self.is_over(caller, wait)? {
            return Err(Stop::Block(vec![Key::Source(Source::Epoll(set))]));
        }
        self.memory.write(address, &bytes)?;
        if !self.epolls.candidates(set).is_empty() {
            // Another thread may take what is left.
            self.notify_set(set);
        }
        Ok(bytes.len() as u64 / 16)
    }

    /// Serves eventfd2(2).
    pub(super) fn eventfd(&mut self, caller: &Caller) -> Served {
        let [value, flags, ..] = caller.arguments;
        if flags & !(CLOSE_ON_EXEC | u64::from(NON_BLOCKING) | 1) != 0 {
            return Err(Errno::EINVAL.into());
        }
        if !self.descriptors.has_room(1) {
            return Err(Errno::EMFILE.into());
        }
        let id = self.next_source()?;
        self.counters.insert(id, Counter { value: value & 0xffff_ffff, is_semaphore: flags & 1 != 0 });
        self.open_source(Object::Counter(id), flags)
    }

    /// Serves timerfd_create(2).
    pub(super) fn timerfd_create(&mut self, caller: &Caller) -> Served {
        let [clock, flags, ..] = caller.arguments;
        if !matches!(clock, 0 | 1 | 7) || flags & !(CLOSE_ON_EXEC | u64::from(NON_BLOCKING)) != 0 {
            return Err(Errno::EINVAL.into());
        }
        if !self.descriptors.has_room(1) {
            return Err(Errno::EMFILE.into());
        }
        let id = self.next_source()?;
        self.timers.insert(id, Timer { is_real: clock == 0, ..Timer::default() });
        self.open_source(Object::Timer(id), flags)
    }

    /// Serves timerfd_settime(2).
    pub(super) fn timerfd_settime(&mut self, caller: &Caller) -> Served {
        let [_, flags, new, old, ..] = caller.arguments;
        let id = self.timer_of(caller)?;
        let (interval, value) = (self.time_at(new)?, self.time_at(new.wrapping_add(16))?);
        if old != 0 {
            self.write_timer(old, id, caller.now)?;
        }
        let timer = self.timers.get_mut(&id).ok_or(Errno::EBADF)?;
        let next = match flags & 1 {
            0 => caller.now + value.duration(),
            _ if timer.is_real => value.since_start(),
            _ => value.duration(),
        };
        timer.next = (value.duration() > Time::ZERO).then_some(next);
        timer.interval = interval.duration();
        timer.expirations = 0;
        Ok(0)
    }

    /// Serves timerfd_gettime(2).
    pub(super) fn timerfd_gettime(&mut self, caller: &Caller) -> Served {
        let id = self.timer_of(caller)?;
        self.write_timer(caller.arguments[1], id, caller.now)?;
        Ok(0)
    }

    /// Writes a timer's interval and remaining time.
    fn write_timer(&mut self, address: u64, id: u64, now: Time) -> Result<(), Errno> {
        let timer = *self.timers.get(&id).ok_or(Errno::EBADF)?;
        let left = timer.next.map_or(Time::ZERO, |next| next.since(now));
        let parts = |time: Time| [time.nanoseconds() / 1_000_000_000, time.nanoseconds() % 1_000_000_000];
        self.memory.set_words(address, &[parts(timer.interval), parts(left)].concat())
    }

    /// Returns the timer of a call's first argument.
    fn timer_of(&self, caller: &Caller) -> Result<u64, Errno> {
        match self.descriptors.get(caller.descriptor(0))?.object {
            Object::Timer(id) => Ok(id),
            _ => Err(Errno::EINVAL),
        }
    }

    /// Makes a descriptor of a counter or timer.
    fn open_source(&mut self, object: Object, flags: u64) -> Served {
        let (status, on_exec) = (2 | flags as u32 & NON_BLOCKING, flags & CLOSE_ON_EXEC != 0);
        Ok(self.descriptors.open(object, status, on_exec, 0)? as u64)
    }

    /// Returns the events that a descriptor is ready for, and adds the source that changes it.
    fn poll_one(&mut self, descriptor: i32, events: u32, keys: &mut Vec<Key>) -> u32 {
        let Ok(description) = self.descriptors.get(descriptor) else { return event::INVALID };
        keys.extend(source_of(description.object).map(Key::Source));
        let found = self.readiness(descriptor);
        let normal = |bit, same| if found & bit != 0 { bit | same } else { 0 };
        let found = found | normal(event::IN, event::READ_NORMAL) | normal(event::OUT, event::WRITE_NORMAL);
        found & (events | event::ALWAYS)
    }

    /// Returns whether a call's time is over; `wait` is its timeout.
    fn is_over(&mut self, caller: &Caller, wait: Option<Time>) -> Result<bool, Stop> {
        Ok(self.deadline(caller, wait)?.is_some_and(|deadline| deadline <= caller.now))
    }

    /// Returns the events that a descriptor is ready for.
    fn readiness(&self, descriptor: i32) -> u32 {
        self.descriptors.description(descriptor).map_or(0, |id| self.readiness_of(id))
    }

    /// Returns the events that a description is ready for.
    fn readiness_of(&self, id: u64) -> u32 {
        self.descriptors.find(id).map_or(0, |description| self.readiness_of_object(description.object, 0))
    }

    /// Returns the events that an object is ready for, at a depth of sets.
    fn readiness_of_object(&self, object: Object, depth: u32) -> u32 {
        let when = |is_true: bool, events: u32| if is_true { events } else { 0 };
        match object {
            Object::Node(_) => event::IN | event::OUT,
            Object::Output(_) => event::OUT,
            Object::Input => when(!self.input.is_empty() || self.is_input_ended, event::IN),
            Object::PipeReader(id) => self.pipes.get(&id).map_or(0, |pipe| {
                when(!pipe.is_empty(), event::IN) | when(pipe.writers == 0, event::HANG_UP)
            }),
            Object::PipeWriter(id) => self.pipes.get(&id).map_or(0, |pipe| {
                let has_room = pipe.room() >= PIPE_ROOM.min(PIPE_BYTES);
                when(has_room, event::OUT) | when(pipe.readers == 0, event::ERROR)
            }),
            Object::Socket(id) => {
                let ready = self.network.readiness(id);
                when(ready.is_readable, event::IN)
                    | when(ready.is_writable, event::OUT)
                    | when(ready.is_read_ended, event::READ_HANG_UP)
                    | when(ready.is_hung_up, event::HANG_UP)
                    | when(ready.is_failed, event::ERROR)
            }
            Object::Counter(id) => self.counters.get(&id).map_or(0, |counter| {
                when(counter.value > 0, event::IN) | when(counter.value < Counter::MAX, event::OUT)
            }),
            Object::Timer(id) => {
                when(self.timers.get(&id).is_some_and(|timer| timer.expirations > 0), event::IN)
            }
            Object::Epoll(set) if depth < DEPTH_LIMIT => {
                let is_ready = self.epolls.candidates(set).iter().any(|(member, interest)| {
                    let found = self.descriptors.find(member.1);
                    let found = found.map_or(0, |found| self.readiness_of_object(found.object, depth + 1));
                    found & (interest.events | event::ALWAYS) != 0
                });
                when(is_ready, event::IN)
            }
            Object::Epoll(_) => 0,
        }
    }
}
