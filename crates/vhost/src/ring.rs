//! One of a disk's virtqueues: the ring in which the guest makes chains available, and the notifications of
//! both sides.
//!
//! Invariant: no method of [`Ring`] blocks. Descriptors that a frontend passes for notifications must be
//! event counters (eventfd(2)): a pipe, or a file on a file system of the frontend's own, could block each
//! use and its closing. Even an event counter blocks when it is full and the frontend has cleared O_NONBLOCK.
//! So only the frontend's own thread rings it, while holding nothing that others need ([`EventCounter::signal`]).
//! Called by `disk` and `messages`.

use crate::chain::Chain;
use crate::inflight::Record;
use crate::memory::{Map, Memory};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl, readlinkat};
use rustix::io::{Errno, ReadWriteFlags};
use std::collections::VecDeque;
use std::fs::File;
use std::io::IoSliceMut;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use virtio_queue::{Queue, QueueOwnedT, QueueT};

/// Greatest number of entries of a ring (virtio 1.2, 2.7: a power of two).
pub(crate) const ENTRIES_MAX: u16 = 1024;

/// First descriptor of a chain.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChainHead {
    pub(crate) number: u16,
    /// True if an earlier server has taken the chain from the ring and not returned it.
    pub(crate) inherited: bool,
}

/// Greatest number of times that an empty ring is polled again because the guest has just added a chain.
const LOOKS_MAX: usize = 4;

/// A virtqueue.
#[derive(Debug)]
pub(crate) struct Ring {
    queue: Queue,
    kick: Option<EventCounter>,
    call: Option<Arc<EventCounter>>,
    error: Option<Arc<EventCounter>>,
    /// True once the frontend has told the ring's addresses.
    placed: bool,
    pub(crate) enabled: bool,
    /// True if the ring has invalid contents: no chain is taken until the ring is started anew.
    broken: bool,
    /// Number of chains that were taken and not returned.
    pub(crate) in_flight: u16,
    /// Number of chains that were taken, and not put back, modulo 2^16.
    pub(crate) taken: u16,
    /// True if a chain was returned since the guest was last notified.
    pub(crate) has_unsent_returns: bool,
    /// True if the ring was empty when the guest was told to notify of the next chain, which still holds.
    will_notify: bool,
    /// Record of the chains in flight, for the next server of the ring.
    record: Option<Record>,
    /// Chains that an earlier server had in flight when this process took the ring over.
    inherited: VecDeque<u16>,
}

/// Error for invalid contents of a ring, which stops it.
#[derive(Debug)]
pub(crate) struct Broken;

/// Result of taking a chain from a ring.
pub(crate) enum Next {
    /// The chain that begins with this descriptor, which may be invalid.
    Chain(ChainHead),
    /// The number of chains in flight equals the ring's entries: another can be taken after one was returned.
    Full,
    /// The ring is empty, and the guest will notify when it adds a chain, if the caller sleeps next.
    Empty,
    /// The ring was empty, but the guest keeps adding chains and may not know that it has to notify.
    StillPolling,
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
            in_flight: 0,
            taken: 0,
            has_unsent_returns: false,
            will_notify: false,
            record: None,
            inherited: VecDeque::new(),
        }
    }

    /// Returns true if chains may be taken. A ring is live from receiving its kick descriptor
    /// ([`Ring::start`]), if enabled, until [`Ring::stop`]. A kick before that is not missed, since a ring is
    /// polled when it becomes live.
    pub(crate) fn is_live(&self) -> bool {
        self.queue.ready() && self.enabled && !self.broken
    }

    pub(crate) fn set_entries(&mut self, entries: u32) -> Result<(), String> {
        let set = u16::try_from(entries).ok().and_then(|entries| self.queue.try_set_size(entries).ok());
        set.ok_or_else(|| format!("a ring of {entries} entries: give a power of two up to {ENTRIES_MAX}"))
    }

    /// Sets the addresses of the ring's three parts, given as addresses of the frontend.
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
        // A guest that another server has served before has a used index of its own.
        let map: &Map = memory.map();
        let given_back = self.queue.used_idx(map, Ordering::Acquire);
        self.queue.set_next_used(given_back.map_err(|error| format!("a ring cannot be read: {error}"))?.0);
        self.check(memory.map())
    }

    /// Checks that the whole ring lies in the guest's memory. Called again whenever that memory changes.
    pub(crate) fn check(&mut self, map: &Map) -> Result<(), String> {
        if !self.placed {
            return Ok(());
        }
        // What was told to the guest is in the memory before, perhaps.
        self.will_notify = false;
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
        self.will_notify = false;
        self.queue.set_event_idx(used);
    }

    /// Starts the ring, if the frontend has told its addresses.
    pub(crate) fn start(&mut self, kick: Option<EventCounter>, map: &Map) -> Result<(), String> {
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
        (self.broken, self.will_notify) = (false, false);
        Ok(())
    }

    /// Continues where an earlier server of the ring has died, if there is a record.
    fn take_over(&mut self, map: &Map) -> Result<(), String> {
        let Some(record) = &mut self.record else { return Ok(()) };
        if record.entries < self.queue.size() {
            let (has, entries) = (record.entries, self.queue.size());
            return Err(format!("a ring has {entries} entries, and the record of what is in flight {has}"));
        }
        let used = self
            .queue
            .used_idx(map, Ordering::Acquire)
            .map_err(|error| format!("a ring cannot be read: {error}"))?
            .0;
        self.inherited = record.inherited(used).into();
        // The earlier server took these chains as well, which the index that the frontend sends does not
        // include.
        self.queue.set_next_avail(used.wrapping_add(self.inherited.len() as u16));
        self.queue.set_next_used(used);
        Ok(())
    }

    /// Sets the record of requests in flight, and returns the one that was used before.
    pub(crate) fn set_record(&mut self, record: Record) -> Result<Option<Record>, String> {
        if self.queue.ready() {
            return Err("a record of what is in flight comes for a ring that is in use".into());
        }
        Ok(self.record.replace(record))
    }

    pub(crate) fn set_call(&mut self, call: Option<Arc<EventCounter>>) {
        self.call = call;
    }

    pub(crate) fn set_error(&mut self, error: Option<EventCounter>) {
        self.error = error.map(Arc::new);
    }

    /// Stops the ring, and returns the index of the next chain that would have been taken.
    pub(crate) fn stop(&mut self) -> u16 {
        self.queue.set_ready(false);
        (self.kick, self.call) = (None, None);
        self.queue.next_avail()
    }

    /// Returns the descriptor that becomes readable when the guest has added a chain.
    pub(crate) fn kick(&self) -> Option<BorrowedFd<'_>> {
        self.kick.as_ref().filter(|_| self.is_live()).map(AsFd::as_fd)
    }

    /// Resets the counter of kicks.
    pub(crate) fn reset_kicks(&self) {
        if let Some(kick) = &self.kick {
            kick.reset();
        }
    }

    /// Returns true if the guest has added a chain that can be taken.
    pub(crate) fn has_chain(&self, map: &Map) -> bool {
        self.is_live() && self.in_flight < self.queue.size() && self.has_added(map)
    }

    /// Returns true if the ring was empty when the guest was last told to notify, and still is: there is nothing to take, and
    /// the guest notifies when there is.
    pub(crate) fn is_waiting(&self, map: &Map) -> bool {
        self.will_notify && self.inherited.is_empty() && !self.has_added(map)
    }

    /// Returns true if the guest has added a chain that was not taken. A ring that cannot be read has, which taking finds out.
    fn has_added(&self, map: &Map) -> bool {
        self.queue.avail_idx(map, Ordering::Relaxed).map_or(true, |added| added.0 != self.queue.next_avail())
    }

    /// Takes the next chain. Its descriptor number is not checked here, but by [`Ring::chain`] and
    /// [`Ring::give_back`]. With `sleeps_next`, the guest will notify if the ring is empty; otherwise it need not, since the
    /// ring is looked at again.
    pub(crate) fn next(&mut self, map: &Map, sleeps_next: bool) -> Result<Next, Broken> {
        // A guest that adds the same chain again and again gets no more requests in flight than any other.
        if self.in_flight >= self.queue.size() {
            return Ok(Next::Full);
        }
        if let Some(number) = self.inherited.pop_front() {
            return Ok(self.taken(ChainHead { number, inherited: true }));
        }
        for _ in 0..LOOKS_MAX {
            if let Some(chain) = self.queue.iter(map).map_err(|_| Broken)?.next() {
                let number = chain.head_index();
                return Ok(self.taken(ChainHead { number, inherited: false }));
            }
            if !sleeps_next {
                return Ok(Next::Empty);
            }
            // The guest may have added a chain between the last poll and enabling its notifications.
            if !self.queue.enable_notification(map).map_err(|_| Broken)? {
                self.will_notify = true;
                return Ok(Next::Empty);
            }
        }
        Ok(Next::StillPolling)
    }

    fn taken(&mut self, head: ChainHead) -> Next {
        self.in_flight += 1;
        self.taken = self.taken.wrapping_add(1);
        if let Some(record) = self.record.as_mut().filter(|_| !head.inherited) {
            record.take(head.number);
        }
        Next::Chain(head)
    }

    /// Returns an iterator over the descriptors of a chain.
    pub(crate) fn chain<'a>(&self, head: ChainHead, map: &'a Map) -> Chain<'a> {
        Chain::new(map, self.queue.desc_table(), self.queue.size(), head.number)
    }

    /// Tells the guest that it need not notify when it adds a chain, since the ring is being polled.
    pub(crate) fn keep_looking(&mut self, map: &Map) -> Result<(), Broken> {
        self.will_notify = false;
        self.queue.disable_notification(map).map_err(|_| Broken)
    }

    /// Undoes the last [`Ring::next`], so that the same chain is taken again.
    pub(crate) fn put_back(&mut self, head: ChainHead) {
        self.in_flight -= 1;
        self.taken = self.taken.wrapping_sub(1);
        if head.inherited {
            self.inherited.push_front(head.number);
            return;
        }
        self.queue.go_to_previous_position();
        if let Some(record) = &self.record {
            record.put_back(head.number);
        }
    }

    /// Returns a chain to the guest, with the number of bytes written to it.
    pub(crate) fn give_back(&mut self, head: ChainHead, bytes: u32, map: &Map) -> Result<(), Broken> {
        self.in_flight -= 1;
        self.has_unsent_returns = true;
        let queue = &mut self.queue;
        let mut add =
            || queue.add_used(map, head.number, bytes).map(|()| queue.next_used()).map_err(|_| Broken);
        match &self.record {
            Some(record) => record.give_back(head.number, add),
            None => add().map(|_| ()),
        }
    }

    /// Returns the event counter to ring for the chains returned since the last call, if the guest wants a
    /// notification.
    pub(crate) fn notification(&mut self, map: &Map) -> Result<Option<Arc<EventCounter>>, Broken> {
        self.has_unsent_returns = false;
        let wanted = self.queue.needs_notification(map).map_err(|_| Broken)?;
        Ok(self.call.clone().filter(|_| wanted))
    }

    /// Stops an invalid ring, and returns the event counter that tells the frontend.
    pub(crate) fn give_up(&mut self) -> Option<Arc<EventCounter>> {
        self.broken = true;
        self.error.clone()
    }
}

/// An event counter (eventfd(2)) of the frontend.
#[derive(Debug)]
pub(crate) struct EventCounter(OwnedFd);

impl EventCounter {
    /// Takes a descriptor as an event counter. Any other descriptor is refused and closed, which may block.
    pub(crate) fn from_file(file: Option<File>) -> Result<Option<EventCounter>, String> {
        let Some(file) = file else { return Ok(None) };
        let refused = |error: Errno| format!("a descriptor for notifications cannot be used: {error}");
        let link = format!("/proc/self/fd/{}", file.as_raw_fd());
        let kind = readlinkat(rustix::fs::CWD, link, Vec::new()).map_err(refused)?;
        if kind.as_bytes() != b"anon_inode:[eventfd]" {
            return Err(format!("a descriptor for notifications is no eventfd, but {kind:?}"));
        }
        fcntl_getfl(&file).and_then(|flags| fcntl_setfl(&file, flags | OFlags::NONBLOCK)).map_err(refused)?;
        Ok(Some(EventCounter(file.into())))
    }

    /// Resets the counter without blocking, whether or not the frontend has cleared O_NONBLOCK.
    fn reset(&self) {
        let mut count = [0; 8];
        let place = &mut [IoSliceMut::new(&mut count)];
        // Nothing to read means that another process has read the counter; the ring is polled in any case.
        let _ = rustix::io::preadv2(&self.0, place, u64::MAX, ReadWriteFlags::NOWAIT);
    }

    /// Adds one to the counter. This blocks if the counter is full and the frontend has cleared O_NONBLOCK,
    /// so the caller must hold no lock.
    pub(crate) fn signal(&self) {
        // The write fails only if the counter is full, and then it is readable already.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }
}

impl AsFd for EventCounter {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
