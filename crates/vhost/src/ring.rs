//! One of a disk's rings: where the guest leaves its chains, and how both sides tell each other.
//!
//! Invariant: no call of a [`Ring`] waits. Descriptors that a frontend passes for notifications have to be event counters
//! (eventfd(2)): a pipe, or a file on a file system of the frontend's own, could hold up whoever uses or closes it. Even an
//! event counter can, where it is full and the frontend has taken O_NONBLOCK from it; so it is rung by the frontend's own
//! thread, which then has nothing that others need ([`Event::ring`]). Called by `disk` and `messages`.

use crate::chain::Chain;
use crate::memory::{Map, Memory};
use crate::record::Record;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl, readlinkat};
use rustix::io::{Errno, ReadWriteFlags};
use std::collections::VecDeque;
use std::fs::File;
use std::io::IoSliceMut;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use virtio_queue::{Queue, QueueOwnedT, QueueT};

/// Most entries of a ring (virtio 1.2, 2.7: a power of two).
pub(crate) const ENTRIES_MAX: u16 = 1024;

/// Where a chain begins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    pub(crate) number: u16,
    /// Somebody else has taken it from the ring already, and not given it back.
    pub(crate) left: bool,
}

/// Times that an empty ring is looked at while the guest says that it has left something.
const LOOKS_MAX: usize = 4;

/// A ring.
#[derive(Debug)]
pub(crate) struct Ring {
    queue: Queue,
    kick: Option<Event>,
    call: Option<Arc<Event>>,
    error: Option<Arc<Event>>,
    /// The frontend has said where it is.
    placed: bool,
    pub(crate) enabled: bool,
    /// It does not make sense: nothing is taken from it before it is started anew.
    broken: bool,
    /// Chains that were taken and not given back.
    pub(crate) under_way: u16,
    /// Something was given back since the guest was told last.
    pub(crate) news: bool,
    /// What is under way, for whoever serves the ring after this process.
    record: Option<Record>,
    /// What was under way when this process came to serve it.
    left: VecDeque<u16>,
}

/// The guest has written what cannot be; the ring stops.
#[derive(Debug)]
pub(crate) struct Broken;

/// What a ring has.
pub(crate) enum Next {
    /// The chain that begins with this descriptor; it may be none.
    Chain(Head),
    /// There is more, and it has to wait until something was given back.
    Busy,
    /// Nothing, and the guest will say when there is.
    Nothing,
    /// Nothing, and the guest may not know that it has to say when there is.
    Unclear,
}

impl Ring {
    pub(crate) fn new() -> Ring {
        let queue = Queue::new(ENTRIES_MAX).expect("a power of two that a ring can have");
        Ring {
            queue,
            kick: None,
            call: None,
            error: None,
            placed: false,
            enabled: false,
            broken: false,
            under_way: 0,
            news: false,
            record: None,
            left: VecDeque::new(),
        }
    }

    /// Whether chains may be taken from it. It begins with the descriptor for kicks and ends with
    /// [`Ring::stop`]; a kick that came before is not missed, since the ring is looked at.
    pub(crate) fn is_live(&self) -> bool {
        self.queue.ready() && self.enabled && !self.broken
    }

    pub(crate) fn set_entries(&mut self, entries: u32) -> Result<(), String> {
        let set = u16::try_from(entries).ok().and_then(|entries| self.queue.try_set_size(entries).ok());
        set.ok_or_else(|| format!("a ring of {entries} entries: give a power of two up to {ENTRIES_MAX}"))
    }

    /// Where its three parts are, in the frontend's addresses.
    pub(crate) fn place(
        &mut self,
        table: u64,
        available: u64,
        used: u64,
        memory: &Memory,
    ) -> Result<(), String> {
        let at = |address| memory.translate(address).map(vm_memory::GuestAddress);
        let (Some(table), Some(available), Some(used)) = (at(table), at(available), at(used)) else {
            return Err("a ring is outside of the memory that was passed on".into());
        };
        let placed = self
            .queue
            .try_set_desc_table_address(table)
            .and_then(|()| self.queue.try_set_avail_ring_address(available))
            .and_then(|()| self.queue.try_set_used_ring_address(used));
        placed.map_err(|error| format!("a ring is at an odd address: {error}"))?;
        self.placed = true;
        // A guest that was there before with another server has got so far.
        let given_back = self.queue.used_idx(memory.map().as_ref(), Ordering::Acquire);
        self.queue.set_next_used(given_back.map_err(|error| format!("a ring cannot be read: {error}"))?.0);
        self.check(memory.map())
    }

    /// Whether all of it is in the guest's memory: asked again when that is another one.
    pub(crate) fn check(&mut self, map: &Map) -> Result<(), String> {
        if !self.placed {
            return Ok(());
        }
        let was_ready = self.queue.ready();
        self.queue.set_ready(true);
        let valid = self.queue.is_valid(map);
        self.queue.set_ready(was_ready);
        if valid { Ok(()) } else { Err("a ring is not wholly in the memory that was passed on".into()) }
    }

    pub(crate) fn set_next(&mut self, next: u32) -> Result<(), String> {
        let next =
            u16::try_from(next).map_err(|_| format!("a ring that goes on at {next}: it counts 16 bits"))?;
        self.queue.set_next_avail(next);
        Ok(())
    }

    pub(crate) fn set_event_index(&mut self, used: bool) {
        self.queue.set_event_idx(used);
    }

    /// Starts it, if the frontend has said where it is.
    pub(crate) fn start(&mut self, kick: Option<Event>, map: &Map) -> Result<(), String> {
        if !self.placed {
            return Err("a ring is started, and nothing said where it is".into());
        }
        self.check(map)?;
        if !self.queue.ready() {
            self.take_over(map)?;
        }
        self.kick =
            Some(kick.ok_or("a ring is to be polled, which is not done here: pass a descriptor for kicks")?);
        self.queue.set_ready(true);
        self.broken = false;
        Ok(())
    }

    /// Goes on where whoever served it before has died, if there is a record of that.
    fn take_over(&mut self, map: &Map) -> Result<(), String> {
        let Some(record) = &mut self.record else { return Ok(()) };
        if record.entries < self.queue.size() {
            let (has, entries) = (record.entries, self.queue.size());
            return Err(format!("a ring has {entries} entries, and the record of what is under way {has}"));
        }
        let used = self
            .queue
            .used_idx(map, Ordering::Acquire)
            .map_err(|error| format!("a ring cannot be read: {error}"))?
            .0;
        self.left = record.left(used).into();
        // So many were taken: what the frontend says of that does not know of them.
        self.queue.set_next_avail(used.wrapping_add(self.left.len() as u16));
        self.queue.set_next_used(used);
        Ok(())
    }

    /// Sets the record of requests in flight, and returns the one that was used before.
    pub(crate) fn set_record(&mut self, record: Record) -> Result<Option<Record>, String> {
        if self.queue.ready() {
            return Err("a record of what is under way comes for a ring that is in use".into());
        }
        Ok(self.record.replace(record))
    }

    pub(crate) fn set_call(&mut self, call: Option<Arc<Event>>) {
        self.call = call;
    }

    pub(crate) fn set_error(&mut self, error: Option<Event>) {
        self.error = error.map(Arc::new);
    }

    /// Nothing more is taken. The next chain would be the one with this number.
    pub(crate) fn stop(&mut self) -> u16 {
        self.queue.set_ready(false);
        (self.kick, self.call) = (None, None);
        self.queue.next_avail()
    }

    /// What becomes readable when the guest has left something.
    pub(crate) fn kick(&self) -> Option<BorrowedFd<'_>> {
        self.kick.as_ref().filter(|_| self.is_live()).map(AsFd::as_fd)
    }

    /// Takes note of kicks so far.
    pub(crate) fn hear(&self) {
        if let Some(kick) = &self.kick {
            kick.hear();
        }
    }

    /// Takes a chain. Its number in the ring is believed only as far as [`Ring::give_back`] believes it.
    pub(crate) fn next(&mut self, map: &Map) -> Result<Next, Broken> {
        // A guest that leaves the same chain again and again has no more under way than an honest one.
        if self.under_way >= self.queue.size() {
            return Ok(Next::Busy);
        }
        if let Some(number) = self.left.pop_front() {
            return Ok(self.taken(Head { number, left: true }));
        }
        for _ in 0..LOOKS_MAX {
            if let Some(chain) = self.queue.iter(map).map_err(|_| Broken)?.next() {
                let number = chain.head_index();
                return Ok(self.taken(Head { number, left: false }));
            }
            // Between looking and asking to be told, something may have come.
            if !self.queue.enable_notification(map).map_err(|_| Broken)? {
                return Ok(Next::Nothing);
            }
        }
        Ok(Next::Unclear)
    }

    fn taken(&mut self, head: Head) -> Next {
        self.under_way += 1;
        if let Some(record) = self.record.as_mut().filter(|_| !head.left) {
            record.take(head.number);
        }
        Next::Chain(head)
    }

    /// Its descriptors.
    pub(crate) fn chain<'a>(&self, head: Head, map: &'a Map) -> Chain<'a> {
        Chain::new(map, self.queue.desc_table(), self.queue.size(), head.number)
    }

    /// The guest need not say when it leaves something: it is looked at anyway.
    pub(crate) fn keep_looking(&mut self, map: &Map) -> Result<(), Broken> {
        self.queue.disable_notification(map).map_err(|_| Broken)
    }

    /// The last chain that was taken is to be taken again.
    pub(crate) fn put_back(&mut self, head: Head) {
        self.under_way -= 1;
        if head.left {
            self.left.push_front(head.number);
            return;
        }
        self.queue.go_to_previous_position();
        if let Some(record) = &self.record {
            record.put_back(head.number);
        }
    }

    /// Gives a chain back, in which `bytes` were written.
    pub(crate) fn give_back(&mut self, head: Head, bytes: u32, map: &Map) -> Result<(), Broken> {
        self.under_way -= 1;
        self.news = true;
        let queue = &mut self.queue;
        let mut add =
            || queue.add_used(map, head.number, bytes).map(|()| queue.next_used()).map_err(|_| Broken);
        match &self.record {
            Some(record) => record.give_back(head.number, add),
            None => add().map(|_| ()),
        }
    }

    /// Answers the event counter that tells the guest of what was given back, if it wants to hear of it.
    pub(crate) fn tell(&mut self, map: &Map) -> Result<Option<Arc<Event>>, Broken> {
        self.news = false;
        let wanted = self.queue.needs_notification(map).map_err(|_| Broken)?;
        Ok(self.call.clone().filter(|_| wanted))
    }

    /// It stops for good; answers the event counter that tells the frontend so.
    pub(crate) fn give_up(&mut self) -> Option<Arc<Event>> {
        self.broken = true;
        self.error.clone()
    }
}

/// An event counter of the frontend's.
#[derive(Debug)]
pub(crate) struct Event(OwnedFd);

impl Event {
    /// Takes an event counter; anything else is refused and closed, which may block.
    pub(crate) fn from_file(file: Option<File>) -> Result<Option<Event>, String> {
        let Some(file) = file else { return Ok(None) };
        let refused = |error: Errno| format!("a descriptor for notifications cannot be used: {error}");
        let link = format!("/proc/self/fd/{}", file.as_raw_fd());
        let kind = readlinkat(rustix::fs::CWD, link, Vec::new()).map_err(refused)?;
        if kind.as_bytes() != b"anon_inode:[eventfd]" {
            return Err(format!("a descriptor for notifications is no eventfd, but {kind:?}"));
        }
        fcntl_getfl(&file).and_then(|flags| fcntl_setfl(&file, flags | OFlags::NONBLOCK)).map_err(refused)?;
        Ok(Some(Event(file.into())))
    }

    /// Takes what is in the counter, without waiting: O_NONBLOCK is the frontend's as much as this process's.
    fn hear(&self) {
        let mut count = [0; 8];
        let place = &mut [IoSliceMut::new(&mut count)];
        // Nothing to be read: somebody else has read it, and the ring is looked at all the same.
        let _ = rustix::io::preadv2(&self.0, place, u64::MAX, ReadWriteFlags::NOWAIT);
    }

    /// Adds one to the counter, which may block where the frontend wants it to: no lock may be held.
    pub(crate) fn ring(&self) {
        // It fails when the counter is full, and then whoever looks at it is told already.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }
}

impl AsFd for Event {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
