//! Several queues of one device, for as many threads; and those of a device that has only one itself, at which the threads take
//! turns under a lock.
//!
//! Whoever holds the lock reaps the completions of all, and leaves those of the others to them. A thread that sleeps is
//! woken by the device's own descriptor, or by an event of its own if another thread has reaped its completion.
//!
//! Invariant: a completion is reported by the queue that its command was submitted to, with the token that it was
//! submitted with. Called by whoever uses a device from several threads.

use crate::command::{Command, CommandError, Completion, QueueFull};
use crate::device::{Device, Geometry};
use crate::error::Error;
use crate::region::{PinnedRegion, Pinner, RegionId};
use rustix::event::{EventfdFlags, epoll, eventfd};
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Greatest time that a dropped queue waits for its commands whose memory has an owner. The device keeps the owners.
const DROP_TIMEOUT: Duration = Duration::from_secs(5);

/// Makes `count` queues of a device, each of which another thread can use; `count` is 1 or more. The first one is the
/// device itself, if that makes further queues ([`Device::more_queues`]). Otherwise the threads share its queue under a
/// lock, and its depth evenly; its memory can then not be mapped ([`Device::chunks`]).
///
/// # Errors
/// [`Error::Io`] or [`Error::Unfit`] if the device could make queues but does not have what they need, or if descriptors
/// cannot be made. The device is dropped then.
pub fn queues(mut device: Box<dyn Device>, count: usize) -> Result<Vec<Box<dyn Device>>, Error> {
    if count <= 1 {
        return Ok(vec![device]);
    }
    let more = device.more_queues(count - 1)?;
    if more.is_empty() {
        return share(device, count);
    }
    debug_assert_eq!(more.len(), count - 1, "a device makes all queues or none");
    Ok([device].into_iter().chain(more).collect())
}

/// Queue of a device that several threads share.
pub(crate) struct SharedQueue {
    device: Arc<Mutex<SharedDevice>>,
    number: usize,
    geometry: Geometry,
    depth: usize,
    in_flight: usize,
    /// Completions that are being reported; empty between two calls, and kept for its memory.
    reported: VecDeque<Completion>,
    pinner: Option<Arc<dyn Pinner>>,
    /// Descriptor of an epoll(7) instance over the device's descriptor and the queue's event.
    wakes: OwnedFd,
    /// True if the device's descriptor wakes the thread. It does not while the queue has nothing in flight.
    is_watching: bool,
    /// True if the thread may have slept since the last reaping.
    has_slept: bool,
}

/// Device and what its queues have in flight.
struct SharedDevice {
    device: Box<dyn Device>,
    /// Commands in flight, by the tokens that the device knows them by.
    commands: Vec<Option<SharedCommand>>,
    free: Vec<usize>,
    queues: Vec<QueueState>,
}

/// Command in flight on a shared device.
#[derive(Clone, Copy)]
struct SharedCommand {
    queue: usize,
    token: u64,
    has_owner: bool,
}

/// State of one queue that all threads see.
struct QueueState {
    /// Completions that were reaped, and not yet reported.
    ready: VecDeque<Completion>,
    /// Number of commands in flight whose memory has no owner.
    without_owner: usize,
    /// True if the thread may sleep until its descriptor becomes readable.
    is_armed: bool,
    event: Arc<OwnedFd>,
}

/// Makes `count` queues of a device, which share its depth evenly.
fn share(device: Box<dyn Device>, count: usize) -> Result<Vec<Box<dyn Device>>, Error> {
    let failed = |error| Error::io("make a descriptor to wait for", error);
    let (geometry, pinner) = (device.geometry(), device.pinner());
    let depth = (device.depth() / count).max(1);
    let mut wakes = Vec::with_capacity(count);
    let mut queues = Vec::with_capacity(count);
    for _ in 0..count {
        let event = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(failed)?);
        let both = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(failed)?;
        epoll::add(&both, &event, epoll::EventData::new_u64(0), epoll::EventFlags::IN).map_err(failed)?;
        if let Some(descriptor) = device.descriptor() {
            epoll::add(&both, descriptor, epoll::EventData::new_u64(0), epoll::EventFlags::empty())
                .map_err(failed)?;
        }
        let ready = VecDeque::with_capacity(depth);
        queues.push(QueueState { ready, without_owner: 0, is_armed: false, event });
        wakes.push(both);
    }
    let places = device.depth().max(count);
    let (commands, free) = (vec![None; places], (0..places).rev().collect());
    let device = Arc::new(Mutex::new(SharedDevice { device, commands, free, queues }));
    let queue = |(number, wakes)| -> Box<dyn Device> {
        let (device, pinner, reported) = (device.clone(), pinner.clone(), VecDeque::with_capacity(depth));
        let (in_flight, is_watching, has_slept) = (0, false, false);
        Box::new(SharedQueue {
            device,
            number,
            geometry,
            depth,
            in_flight,
            reported,
            pinner,
            wakes,
            is_watching,
            has_slept,
        })
    };
    Ok(wakes.into_iter().enumerate().map(queue).collect())
}

impl SharedDevice {
    /// Reaps the completions of all queues, and wakes the threads of those that may sleep.
    fn reap(&mut self, by: usize) {
        let SharedDevice { device, commands, free, queues } = self;
        device.reap(&mut |completion| {
            let place = completion.token as usize;
            let Some(command) = commands.get_mut(place).and_then(Option::take) else { return };
            free.push(place);
            let queue = &mut queues[command.queue];
            queue.without_owner -= usize::from(!command.has_owner);
            queue.ready.push_back(Completion { token: command.token, ..completion });
            if command.queue != by {
                queue.wake();
            }
        });
        // The device may have been armed for another thread, which this reaping has undone.
        let sleeps = |queue: &QueueState| queue.is_armed && queue.ready.is_empty();
        if queues.iter().any(sleeps) && device.in_flight() > 0 && device.arm() {
            queues.iter_mut().for_each(QueueState::wake);
        }
    }
}

impl QueueState {
    fn wake(&mut self) {
        if std::mem::take(&mut self.is_armed) {
            // The write fails only if the counter would overflow, after 2^64 wake-ups without a read.
            let _ = rustix::io::write(&*self.event, &1u64.to_ne_bytes());
        }
    }

    /// Notes that the thread does not sleep, and empties the event, so that the descriptor is no longer readable because of it.
    fn get_up(&mut self) {
        self.is_armed = false;
        let mut count = [0; 8];
        // The read fails only if the event is empty already.
        let _ = rustix::io::read(&*self.event, &mut count);
    }
}

/// Has the descriptor of a device make `wakes` readable, or no longer. Returns true if it does now.
fn watch(wakes: &OwnedFd, device: &dyn Device, is_wanted: bool) -> bool {
    let Some(descriptor) = device.descriptor() else { return false };
    let flags = if is_wanted { epoll::EventFlags::IN } else { epoll::EventFlags::empty() };
    match epoll::modify(wakes, descriptor, epoll::EventData::new_u64(0), flags) {
        Ok(()) => is_wanted,
        // The descriptor was added, so the kernel has no memory; all stays as it was.
        Err(_) => !is_wanted,
    }
}

fn lock(device: &Mutex<SharedDevice>) -> MutexGuard<'_, SharedDevice> {
    // A thread that panicked has not left the device or the lists in a state that others could not use.
    device.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Device for SharedQueue {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn refresh(&mut self) -> Geometry {
        let geometry = lock(&self.device).device.refresh();
        self.geometry = geometry;
        geometry
    }

    fn submit<'a>(&mut self, command: Command<'a>) -> Result<(), QueueFull<'a>> {
        if self.in_flight >= self.depth {
            return Err(QueueFull(command));
        }
        let mut shared = lock(&self.device);
        let Some(place) = shared.free.pop() else { return Err(QueueFull(command)) };
        let (token, has_owner) = (command.token, command.owner.is_some());
        if let Err(QueueFull(command)) = shared.device.submit(Command { token: place as u64, ..command }) {
            shared.free.push(place);
            return Err(QueueFull(Command { token, ..command }));
        }
        shared.commands[place] = Some(SharedCommand { queue: self.number, token, has_owner });
        shared.queues[self.number].without_owner += usize::from(!has_owner);
        drop(shared);
        self.in_flight += 1;
        Ok(())
    }

    fn carry_out(&mut self, command: &Command<'_>) -> Option<Result<(), CommandError>> {
        lock(&self.device).device.carry_out(command)
    }

    fn reap(&mut self, done: &mut dyn FnMut(Completion)) -> usize {
        if self.in_flight == 0 {
            return 0;
        }
        let mut shared = lock(&self.device);
        if std::mem::take(&mut self.has_slept) {
            shared.queues[self.number].get_up();
        }
        if shared.queues[self.number].ready.is_empty() {
            shared.reap(self.number);
        }
        std::mem::swap(&mut shared.queues[self.number].ready, &mut self.reported);
        // Reported without the lock, since others need not wait for that.
        drop(shared);
        let count = self.reported.len();
        self.reported.drain(..).for_each(done);
        self.in_flight -= count;
        if self.in_flight == 0 && self.is_watching {
            // A thread that waits for nothing is not to be woken by the commands of others.
            self.is_watching = watch(&self.wakes, &*lock(&self.device).device, false);
        }
        count
    }

    fn arm(&mut self) -> bool {
        let number = self.number;
        let mut shared = lock(&self.device);
        if std::mem::take(&mut self.has_slept) {
            shared.queues[number].get_up();
        }
        if !shared.queues[number].ready.is_empty() || shared.device.arm() {
            return true;
        }
        if !self.is_watching {
            self.is_watching = watch(&self.wakes, &*shared.device, true);
            if !self.is_watching && shared.device.descriptor().is_some() {
                return true;
            }
        }
        shared.queues[number].is_armed = true;
        self.has_slept = true;
        false
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.wakes.as_fd())
    }

    fn depth(&self) -> usize {
        self.depth
    }

    fn in_flight(&self) -> usize {
        self.in_flight
    }

    fn pinner(&self) -> Option<Arc<dyn Pinner>> {
        self.pinner.clone()
    }

    fn register(&mut self, memory: &Arc<PinnedRegion>) -> Result<Option<RegionId>, Error> {
        lock(&self.device).device.register(memory)
    }

    fn unregister(&mut self, region: RegionId) {
        lock(&self.device).device.unregister(region);
    }

    fn description(&self) -> String {
        let shared = lock(&self.device);
        let count = shared.queues.len();
        format!("{}; one queue, which {count} threads share under a lock", shared.device.description())
    }
}

impl Drop for SharedQueue {
    /// Waits for the queue's commands in flight: without end for those whose memory has no owner, as their memory may be
    /// freed afterwards.
    fn drop(&mut self) {
        let end = Instant::now() + DROP_TIMEOUT;
        while self.in_flight > 0 {
            if self.reap(&mut |_| {}) == 0 {
                std::thread::yield_now();
            }
            let shared = lock(&self.device);
            let is_owned = shared.queues[self.number].without_owner == 0;
            // The last queue drops the device, which waits in the device's own fashion.
            if Arc::strong_count(&self.device) == 1 || (is_owned && Instant::now() > end) {
                return;
            }
        }
    }
}
