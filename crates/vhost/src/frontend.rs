//! One frontend's connection, and the thread that serves the disk to it.
//!
//! ```text
//!             the disk                                             the disk, forgotten by its guest
//!   export ───────────────► slot ──► the frontend's thread ──► slot ───────────────────────────────► export
//!                            └─ or taken back, when that thread is stuck ──────────────────────────────┘
//! ```
//!
//! A descriptor that a frontend passes can refer to anything: a socket that lingers when it is closed, or a
//! file whose file system is a program. The kernel can block a thread that receives, inspects, maps or closes
//! such a descriptor, with no timeout. So only the frontend's own thread does that, and only while it does
//! not have the disk.
//!
//! Invariant: [`Frontend::moment`] is odd while the thread does not have the disk, and changes whenever the
//! thread takes or releases it. A thread whose moment stays odd is blocked by its own frontend alone, so that
//! the disk can be taken out of the slot. The thread then finds the slot empty, and ends as soon as it can.
//! Called by `export`.

use crate::backend_channel::BackendChannel;
use crate::disk::{Disk, FrontendObject, Turn};
use crate::export::Shared;
use crate::request::Parts;
use crate::ring::Ring;
use bywash_device::Device;
use bywash_export::{Error, PollList, Signal};
use bywash_link::{PeerState, Reason, SpinPolicy};
use bywash_sync::{AtomicBool, AtomicU64, Ordering};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread;
use std::time::Instant;
use vhost::vhost_user::{BackendReqHandler, Error as Spoken, VhostUserProtocolFeatures};

/// Number of turns without a sleep after which messages are looked for.
const TURNS_UNHEARD_MAX: u32 = 64;

/// Place of the disk: `None` once its thread has returned it, or the export has taken it back.
type Slot<D> = Mutex<Option<Box<Disk<D>>>>;

/// A released disk, and the result of the frontend that had it.
#[derive(Debug)]
pub(crate) struct FrontendResult<D> {
    pub(crate) disk: Box<Disk<D>>,
    pub(crate) end: Result<(), Error>,
}

/// A connected frontend.
#[derive(Debug)]
pub(crate) struct Frontend<D> {
    slot: Slot<D>,
    pub(crate) memory_bytes_max: u64,
    /// Clone of the connection, to shut it down from the export's thread. The frontend's thread takes it out
    /// at its end, since closing the last clone closes descriptors that the frontend has sent and that were
    /// not received.
    socket: Mutex<Option<UnixStream>>,
    /// Count of times that the thread has taken or released the disk: odd while the thread does not have it.
    lock_count: AtomicU64,
    has_spoken: AtomicBool,
    /// Protocol features that the frontend has accepted.
    protocol_features: AtomicU64,
    /// The disk and the result of the conversation, for the export.
    outcome: Mutex<Option<FrontendResult<D>>>,
    /// Signal that `outcome` is set or never will be.
    ended: Signal,
}

/// The locked disk, held by the frontend's thread.
pub(crate) struct LockedDisk<'a, D> {
    slot: MutexGuard<'a, Option<Box<Disk<D>>>>,
    moment: &'a AtomicU64,
}

fn lock<T>(what: &Mutex<T>) -> MutexGuard<'_, T> {
    what.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<D: Device + 'static> Frontend<D> {
    /// Starts a thread that serves the disk to the frontend at the other end of `socket`.
    ///
    /// # Errors
    /// Returns the disk, with [`Error::Io`], if a descriptor, an event counter or a thread cannot be made.
    pub(crate) fn start(
        socket: UnixStream,
        disk: Box<Disk<D>>,
        shared: &Arc<Shared>,
    ) -> Result<Arc<Frontend<D>>, FrontendResult<D>> {
        let failed = |disk, error| Err(FrontendResult { disk, end: Err(error) });
        let clone = socket.try_clone();
        let (clone, ended) = match (clone, Signal::new()) {
            (Ok(clone), Ok(ended)) => (clone, ended),
            (Err(error), _) => return failed(disk, Error::io("copy a descriptor", error)),
            (_, Err(error)) => return failed(disk, error),
        };
        let frontend = Arc::new(Frontend {
            memory_bytes_max: disk.face.memory_bytes_max,
            slot: Mutex::new(Some(disk)),
            socket: Mutex::new(Some(clone)),
            lock_count: AtomicU64::new(1),
            has_spoken: AtomicBool::new(false),
            protocol_features: AtomicU64::new(0),
            outcome: Mutex::default(),
            ended,
        });
        let (theirs, counted, shared_with) = (frontend.clone(), ThreadCount::new(shared), shared.clone());
        let serve = move || {
            let _counted = counted;
            theirs.serve(socket, &shared_with);
        };
        match thread::Builder::new().name(shared.thread_name.clone()).spawn(serve) {
            Ok(_) => Ok(frontend),
            Err(error) => {
                let disk = lock(&frontend.slot).take();
                failed(disk.expect("no thread was made that takes it"), Error::io("start a thread", error))
            }
        }
    }

    /// Body of the thread: serves the disk, returns it, and drops the objects that the frontend has passed.
    fn serve(self: Arc<Self>, socket: UnixStream, shared: &Shared) {
        let end = GivesAtEnd(&self.ended);
        let spoken = self.converse(socket, shared);
        let disk = lock(&self.slot).take();
        let rest = disk.map(|mut disk| {
            let rest = disk.forget_guest();
            *lock(&self.outcome) = Some(FrontendResult { disk, end: spoken });
            rest
        });
        drop(end);
        // From here on no other thread waits for this one, so it does not matter if these drops block.
        drop(rest);
        let socket = lock(&self.socket).take();
        drop(socket);
    }

    fn converse(self: &Arc<Self>, socket: UnixStream, shared: &Shared) -> Result<(), Error> {
        // Until now the kernel has kept descriptors out of this socket, where it can.
        bywash_link::let_descriptors_in(&socket, true)
            .map_err(|error| Error::io("let descriptors in", std::io::Error::other(error)))?;
        let heard = socket.try_clone().map_err(|error| Error::io("copy a descriptor", error))?;
        let mut messages = BackendReqHandler::from_stream(socket, self.clone());
        let (mut parts, mut bells, mut polled) = (Parts::default(), Vec::new(), PollList::default());
        let mut channel: Option<BackendChannel> = None;
        let mut looking = Looking::default();
        loop {
            let Some(mut disk) = self.disk() else { return Ok(()) };
            let turn = disk.turn(&mut parts, looking.sleeps_next());
            if disk.has_lost_memory() {
                return Err(Error::Peer("it has taken pages of its guest's memory away".into()));
            }
            let released = disk.take_released(&mut bells);
            drop(disk);
            drop(released);
            bells.drain(..).for_each(|bell| bell.signal());
            let Some(mut disk) = self.disk() else { return Ok(()) };
            let Some(at_once) = looking.sleeps(&mut disk, turn) else { continue };
            let Woken { spoken, stop, changed } = sleep(&mut disk, &heard, shared, &mut polled, at_once)?;
            looking.has_slept();
            let has_changed = changed && shared.changed.take() && disk.refresh();
            drop(disk);
            if stop {
                return Ok(());
            }
            if let Some(channel) = channel.as_ref().filter(|_| has_changed) {
                channel.tell_of_change();
            }
            if !spoken {
                continue;
            }
            if let Some(passed) = self.receive_channel(&heard)? {
                channel = Some(passed);
            } else {
                match messages.handle_request() {
                    Ok(()) => self.has_spoken.store(true, Ordering::Relaxed),
                    Err(Spoken::Disconnected | Spoken::SocketBroken(_) | Spoken::PartialMessage) => {
                        return Ok(());
                    }
                    Err(error) => return Err(Error::Peer(error.to_string())),
                }
            }
        }
    }

    /// Locks the disk for this frontend's thread; `None` if the export has taken it back.
    pub(crate) fn disk(&self) -> Option<LockedDisk<'_, D>> {
        let slot = lock(&self.slot);
        slot.is_some().then(|| LockedDisk::new(slot, &self.lock_count))
    }

    /// Notes the protocol features that the frontend has accepted.
    pub(crate) fn accept(&self, features: VhostUserProtocolFeatures) {
        self.protocol_features.store(features.bits(), Ordering::Relaxed);
    }

    /// Receives the channel for notifications, if that is the next message, and the frontend has accepted the feature.
    fn receive_channel(&self, heard: &UnixStream) -> Result<Option<BackendChannel>, Error> {
        let features = self.protocol_features.load(Ordering::Relaxed);
        let has = |feature: VhostUserProtocolFeatures| features & feature.bits() != 0;
        match has(VhostUserProtocolFeatures::BACKEND_REQ) {
            true => BackendChannel::receive(heard, has(VhostUserProtocolFeatures::REPLY_ACK)),
            // The crate `vhost` refuses the message.
            false => Ok(None),
        }
    }

    /// Does the work that must not hold the disk: rings event counters, and drops objects that are no longer
    /// in use.
    pub(crate) fn flush_pending(&self) {
        let Some(mut disk) = self.disk() else { return };
        let mut bells = Vec::new();
        let released = disk.take_released(&mut bells);
        drop(disk);
        drop(released);
        bells.iter().for_each(|bell| bell.signal());
    }

    // The export's thread calls the following methods, none of which waits.

    /// Returns the count of times that the thread has taken or released the disk: odd while the thread does
    /// not have it.
    pub(crate) fn moment(&self) -> u64 {
        self.lock_count.load(Ordering::Relaxed)
    }

    /// Returns true if the frontend has sent a whole message.
    pub(crate) fn has_spoken(&self) -> bool {
        self.has_spoken.load(Ordering::Relaxed)
    }

    /// Shuts the connection down, so that the thread stops waiting for the frontend.
    pub(crate) fn shut_down(&self) {
        if let Some(socket) = &*lock(&self.socket) {
            // The shutdown fails if the frontend has already disconnected.
            let _ = socket.shutdown(std::net::Shutdown::Both);
        }
    }

    /// Takes the disk from a blocked thread; `None` if the thread has locked it, or has already returned it.
    pub(crate) fn take_back(&self) -> Option<Box<Disk<D>>> {
        match self.slot.try_lock() {
            Ok(mut slot) => slot.take(),
            Err(TryLockError::Poisoned(_) | TryLockError::WouldBlock) => None,
        }
    }

    /// Returns the disk and the result of the conversation; `None` if the thread has panicked.
    pub(crate) fn outcome(&self) -> Option<FrontendResult<D>> {
        lock(&self.outcome).take()
    }
}

/// The descriptor becomes readable when the conversation has ended.
impl<D> AsFd for Frontend<D> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ended.as_fd()
    }
}

/// Drops a frontend's objects in a thread of its own, since unmapping a guest's memory can take seconds.
pub(crate) fn drop_aside(rest: Vec<FrontendObject>, shared: &Arc<Shared>) {
    let counted = ThreadCount::new(shared);
    let end = move || drop((rest, counted));
    // If no thread can be made, they are dropped here. They are memory and event counters, whose drop takes
    // time but does not block.
    let _ = thread::Builder::new().name(shared.thread_name.clone()).spawn(end);
}

/// Counts a frontend's thread in `Shared::threads` as long as it lives.
struct ThreadCount(Arc<Shared>);

impl ThreadCount {
    fn new(shared: &Arc<Shared>) -> ThreadCount {
        shared.threads.fetch_add(1, Ordering::Relaxed);
        ThreadCount(shared.clone())
    }
}

impl Drop for ThreadCount {
    fn drop(&mut self) {
        self.0.threads.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Gives a signal when dropped, even by a panic.
struct GivesAtEnd<'a>(&'a Signal);

impl Drop for GivesAtEnd<'_> {
    fn drop(&mut self) {
        self.0.give();
    }
}

impl<'a, D> LockedDisk<'a, D> {
    fn new(slot: MutexGuard<'a, Option<Box<Disk<D>>>>, moment: &'a AtomicU64) -> LockedDisk<'a, D> {
        // Only one thread changes the count, so a load and a store suffice.
        moment.store(moment.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        LockedDisk { slot, moment }
    }
}

impl<D> Drop for LockedDisk<'_, D> {
    fn drop(&mut self) {
        self.moment.store(self.moment.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }
}

impl<D> Deref for LockedDisk<'_, D> {
    type Target = Disk<D>;

    fn deref(&self) -> &Disk<D> {
        self.slot.as_ref().expect("it was there when it was locked")
    }
}

impl<D> DerefMut for LockedDisk<'_, D> {
    fn deref_mut(&mut self) -> &mut Disk<D> {
        self.slot.as_mut().expect("it was there when it was locked")
    }
}

/// Decides whether the thread sleeps after a turn, or looks for more work before ([`SpinPolicy`]).
///
/// While it looks, neither the guest nor the device has to wake the thread, which spares both a system call for each
/// request. If looking finds nothing in time, another turn asks the guest to notify, and the thread sleeps.
#[derive(Debug, Default)]
struct Looking {
    policy: SpinPolicy,
    /// Number of looks of the next attempt, and its reason; `None`: the thread sleeps after the next turn.
    attempt: Option<(u32, Reason)>,
    /// Number of turns since messages were last looked for.
    turns: u32,
    /// Beginning of a sleep that is measured.
    slept_from: Option<Instant>,
}

impl Looking {
    /// Returns true if the thread sleeps after the next turn, if that leaves nothing to be done.
    fn sleeps_next(&self) -> bool {
        self.attempt.is_none()
    }

    /// Looks for more work after a turn, if looking is likely to find some. Returns `None` if another turn follows without a
    /// sleep, and otherwise whether the sleep is to end at once.
    fn sleeps<D: Device>(&mut self, disk: &mut Disk<D>, turn: Turn) -> Option<bool> {
        self.turns += 1;
        match self.attempt {
            None if !turn.has_more => {
                self.slept_from = self.policy.sleep().then(Instant::now);
                return Some(false);
            }
            Some((looks, reason)) if !turn.has_more && !turn.has_progress => {
                if disk.has_work_within(looks) {
                    self.policy.found(reason, PeerState::Unasked);
                    self.attempt = self.policy.spin(PeerState::Unasked);
                } else {
                    self.policy.missed(reason);
                    self.attempt = None;
                }
            }
            _ => {}
        }
        (self.turns >= TURNS_UNHEARD_MAX).then_some(true)
    }

    /// Notes that the thread has looked for messages, or has slept.
    fn has_slept(&mut self) {
        self.turns = 0;
        if let Some(from) = self.slept_from.take() {
            self.policy.slept(from.elapsed());
        }
        if self.attempt.is_none() {
            self.attempt = self.policy.spin(PeerState::Unasked);
        }
    }
}

/// Reasons for which a frontend's thread goes on.
struct Woken {
    /// True if a message has come.
    spoken: bool,
    /// True if the thread has to stop.
    stop: bool,
    /// True if the disk may have another size.
    changed: bool,
}

/// Waits for a message, a kick, a completion, the order to stop, or one to look at the disk's size.
fn sleep<D: Device>(
    disk: &mut Disk<D>,
    frontend: &UnixStream,
    shared: &Shared,
    polled: &mut PollList,
    again: bool,
) -> Result<Woken, Error> {
    let in_flight = disk.device.in_flight() > 0;
    let at_once = again || (in_flight && disk.device.arm());
    let mut waiting = polled.take();
    waiting.push(PollFd::new(frontend, PollFlags::IN));
    waiting.push(PollFd::new(&shared.stop, PollFlags::IN));
    waiting.push(PollFd::new(&shared.changed, PollFlags::IN));
    let kicks = disk.rings.iter().filter_map(Ring::kick);
    let descriptors = kicks.chain(disk.device.descriptor().filter(|_| in_flight));
    waiting.extend(descriptors.map(|descriptor| PollFd::from_borrowed_fd(descriptor, PollFlags::IN)));
    match poll(&mut waiting, at_once.then_some(&Timespec { tv_sec: 0, tv_nsec: 0 })) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(error) => return Err(Error::io("wait for a frontend", error)),
    }
    let [spoken, stop, changed] = [0, 1, 2].map(|at| !waiting[at].revents().is_empty());
    let kicked = disk.rings.iter().filter(|ring| ring.kick().is_some()).zip(&waiting[3..]);
    kicked.filter(|(_, kick)| !kick.revents().is_empty()).for_each(|(ring, _)| ring.reset_kicks());
    polled.give_back(waiting);
    Ok(Woken { spoken, stop, changed })
}
