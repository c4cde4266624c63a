//! The controller as a device sees it: its own, or one that devices of several threads share, each of which has queues of its own.
//!
//! ```text
//!    epoch          even: ready              odd: a reset                                          even: ready
//!    ─────────────────────────────────┬─────────────────────────────────────────────────────────┬─────────────────►
//!    controller                       │ waits for the active devices │ disabled, enabled, set up  │
//!    device with commands in flight   │ sees it                      │ looks for the next step    │ empties its queues,
//!    device without                   │                              │                            │ repeats its commands
//! ```
//!
//! Devices look at the epoch, a word that seldom changes, and at nothing else that they share, as long as it stays the same. A
//! device that wants a reset begins an epoch. The controller is disabled when each device that has commands in flight has seen
//! that: afterwards none writes a doorbell. Whichever device looks next makes the next step; one that sleeps is woken. A device
//! that has nothing in flight is not waited for: it says so by a flag, and looks at the epoch after it has taken the flag
//! back.
//!
//! Invariant: a device writes to its queues and their doorbells only while it is active, in an even epoch that it has entered.
//! A reset gets beyond its first step when each device has seen its epoch, or was not active after the epoch had begun.
//! Called by the device.

use crate::controller::{AbortSent, Controller, ResetStep};
use crate::error::Error;
use crate::event::{Event, ResetReason};
use crate::function::Function;
use crate::queue::QueuePair;
use bywash_sync::{heavy_fence, light_fence, prepare_fences};
use std::any::Any;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

/// Epoch of a controller that cannot be used any more.
const LOST: u32 = u32::MAX;
/// Greatest time that a reset waits for the devices of the other threads. A device that is slower has a thread that is stuck:
/// the controller is given up.
const DEVICES_TIMEOUT: Duration = Duration::from_secs(10);

/// Controller of a device.
#[expect(clippy::large_enum_variant, reason = "there is one for each device, and most are its own")]
pub(super) enum Link<F: Function> {
    /// The device's own.
    Own(Controller<F>),
    /// Shared with other devices.
    Shared(Member<F>),
}

/// One of the devices that share a controller.
pub(super) struct Member<F: Function> {
    hub: Arc<Hub<F>>,
    index: usize,
    /// Last even epoch that the device has entered.
    entered: u32,
    /// True if commands have completed since the controller was last told so.
    has_progressed: bool,
}

/// Controller that devices share.
struct Hub<F: Function> {
    epoch: AtomicU32,
    /// True for each device that may write to its queues and doorbells.
    active: Box<[Flag]>,
    function: Arc<F>,
    /// Set where the hub is made.
    state: OnceLock<Mutex<HubState<F>>>,
}

/// Flag in cache lines of its own, since its device writes it often.
#[repr(align(128))]
#[derive(Default)]
struct Flag(AtomicBool);

struct HubState<F: Function> {
    /// Dropped, and so shut down, before the memory that it was told of.
    controller: Controller<F>,
    /// Reset that waits for the devices to see its epoch, and the time at which it began.
    waiting: Option<(ResetReason, Duration)>,
    /// Last odd epoch that each device has seen; `None` for one that was dropped.
    seen: Vec<Option<u32>>,
    /// Queues and memory of dropped devices, of which the controller was told; kept until it is shut down.
    left: Vec<Box<dyn Any + Send>>,
}

impl<F: Function> Hub<F> {
    fn lock(&self) -> MutexGuard<'_, HubState<F>> {
        let Some(state) = self.state.get() else { unreachable!("it is set where the hub is made") };
        // A thread that panicked left the controller in a state from which another one can go on.
        state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins an epoch, and wakes all devices but one.
    fn begin(&self, epoch: u32, state: &HubState<F>, by: usize) {
        // SYNC: epoch. What was done to the controller before is seen by devices that enter the epoch.
        self.epoch.store(epoch, Ordering::Release);
        // A device that becomes active after this sees the epoch.
        heavy_fence();
        for (index, seen) in state.seen.iter().enumerate() {
            if index != by && seen.is_some() {
                self.function.wake(index as u16);
            }
        }
    }

    /// Returns true if no device writes to queues and doorbells in an odd epoch.
    fn is_quiet(&self, epoch: u32, state: &HubState<F>) -> bool {
        // SYNC: active. The last doorbell of a device that is not active was written before.
        let is_active = |index: usize| self.active[index].0.load(Ordering::Acquire);
        let is_quiet =
            |(index, seen): (usize, &Option<u32>)| seen.is_none_or(|seen| seen == epoch) || !is_active(index);
        state.seen.iter().enumerate().all(is_quiet)
    }
}

impl<F: Function> Member<F> {
    #[inline(always)]
    fn epoch(&self) -> u32 {
        // SYNC: epoch.
        self.hub.epoch.load(Ordering::Acquire)
    }

    /// Has the controller know that commands have completed.
    fn tell_progress(has_progressed: &mut bool, state: &mut HubState<F>) {
        if std::mem::take(has_progressed) {
            state.controller.note_progress();
        }
    }

    fn reset(&mut self, state: &mut HubState<F>, reason: ResetReason) {
        let epoch = self.epoch();
        if epoch != self.entered {
            return;
        }
        state.waiting = Some((reason, self.hub.function.now()));
        state.seen[self.index] = Some(epoch + 1);
        self.hub.begin(epoch + 1, state, self.index);
    }

    /// Ends all epochs if the controller cannot be used any more.
    fn end_if_lost(&self, state: &HubState<F>) {
        if state.controller.failure().is_some() && self.epoch() != LOST {
            self.hub.begin(LOST, state, self.index);
        }
    }

    fn advance(&mut self, queues: &mut [QueuePair<F>]) -> Option<ResetStep> {
        let hub = self.hub.clone();
        let mut guard = hub.lock();
        let state = &mut *guard;
        let epoch = self.epoch();
        if epoch == LOST || epoch == self.entered {
            return None;
        }
        if epoch.is_multiple_of(2) {
            // The controller has made the queues anew, and nothing was submitted since.
            self.entered = epoch;
            queues.iter_mut().for_each(QueuePair::clear);
            state.controller.choose_doorbells(queues);
            return Some(ResetStep::Stopped);
        }
        Member::tell_progress(&mut self.has_progressed, state);
        state.seen[self.index] = Some(epoch);
        match state.waiting {
            Some((reason, _)) if hub.is_quiet(epoch, state) => {
                state.waiting = None;
                state.controller.reset(reason);
            }
            Some((_, since)) if hub.function.now() > since + DEVICES_TIMEOUT => {
                let seconds = DEVICES_TIMEOUT.as_secs();
                state.controller.fail(Error::Timeout { what: "be left alone for a reset", seconds });
            }
            Some(_) => {}
            None => {
                if state.controller.advance(&mut []) == Some(ResetStep::Ready) {
                    hub.begin(epoch + 1, state, self.index);
                    drop(guard);
                    return self.advance(queues);
                }
            }
        }
        self.end_if_lost(state);
        None
    }
}

impl<F: Function> Link<F> {
    /// Has `count` devices share the controller, which is this device's own and ready, and returns the links of the others.
    /// Returns none if the controller is shared already.
    pub(super) fn share(&mut self, function: &Arc<F>, count: usize) -> Vec<Link<F>> {
        if self.is_shared() {
            return Vec::new();
        }
        prepare_fences();
        let (epoch, state) = (AtomicU32::new(0), OnceLock::new());
        let active = (0..count).map(|_| Flag::default()).collect();
        let hub = Arc::new(Hub { epoch, active, function: function.clone(), state });
        let member =
            |index| Link::Shared(Member { hub: hub.clone(), index, entered: 0, has_progressed: false });
        if let Link::Own(controller) = std::mem::replace(self, member(0)) {
            let (seen, left) = (vec![Some(0); count], Vec::new());
            let state = HubState { controller, waiting: None, seen, left };
            // It is empty, since it was made above.
            let _ = hub.state.set(Mutex::new(state));
        }
        (1..count).map(member).collect()
    }

    /// Returns true if the controller is shared, so that a look at it takes a lock.
    #[inline]
    pub(super) fn is_shared(&self) -> bool {
        matches!(self, Link::Shared(_))
    }

    /// Calls `work` with the controller.
    fn with<R>(&self, work: impl FnOnce(&Controller<F>) -> R) -> R {
        match self {
            Link::Own(controller) => work(controller),
            Link::Shared(member) => work(&member.hub.lock().controller),
        }
    }

    fn with_mut<R>(&mut self, work: impl FnOnce(&mut Controller<F>) -> R) -> R {
        match self {
            Link::Own(controller) => work(controller),
            Link::Shared(member) => work(&mut member.hub.lock().controller),
        }
    }

    /// Returns true if I/O commands can be submitted.
    #[inline(always)]
    pub(super) fn is_ready(&self) -> bool {
        match self {
            Link::Own(controller) => controller.is_ready(),
            Link::Shared(member) => member.epoch() == member.entered,
        }
    }

    /// Returns true if the device, which has commands in flight or not, may write to its queues now. If the controller is
    /// shared, the device is active from then on, until [`Link::rest`].
    #[inline(always)]
    pub(super) fn begin(&self, has_commands: bool) -> bool {
        match self {
            Link::Own(_) => true,
            Link::Shared(member) => {
                if !has_commands {
                    member.hub.active[member.index].0.store(true, Ordering::Relaxed);
                    light_fence();
                }
                member.epoch() == member.entered
            }
        }
    }

    /// Notes that the device does not write to its queues, as long as it has nothing in flight.
    #[inline(always)]
    pub(super) fn rest(&self) {
        if let Link::Shared(member) = self {
            // SYNC: active.
            member.hub.active[member.index].0.store(false, Ordering::Release);
        }
    }

    /// Returns true if the controller is the device's own, or if the device, which has commands in flight or not, may write
    /// to its queues.
    #[inline(always)]
    pub(super) fn is_undisturbed(&self, has_commands: bool) -> bool {
        match self {
            Link::Own(_) => true,
            Link::Shared(member) => has_commands && member.epoch() == member.entered,
        }
    }

    /// Returns the errno(3) of the reason why the controller cannot be used any more.
    pub(super) fn failure(&self) -> Option<i32> {
        match self {
            Link::Shared(member) if member.epoch() != LOST => None,
            link => link.with(|controller| controller.failure().map(Error::errno)),
        }
    }

    /// Returns the reason why the controller cannot be used any more.
    pub(super) fn failure_text(&self) -> Option<String> {
        self.with(|controller| controller.failure().map(ToString::to_string))
    }

    /// Returns the number of resets since the controller was opened.
    pub(super) fn resets(&self) -> u32 {
        self.with(Controller::resets)
    }

    /// Returns true if I/O queues use shadow doorbells.
    pub(super) fn has_shadow_doorbells(&self) -> bool {
        self.with(Controller::has_shadow_doorbells)
    }

    /// Takes the oldest event that nobody has taken yet.
    pub(super) fn next_event(&mut self) -> Option<Event> {
        self.with_mut(Controller::next_event)
    }

    /// Keeps an event.
    pub(super) fn note(&mut self, event: Event) {
        self.with_mut(|controller| controller.note(event));
    }

    /// Notes that a command completed, so that the controller is not given up.
    #[inline(always)]
    pub(super) fn note_progress(&mut self) {
        match self {
            Link::Own(controller) => controller.note_progress(),
            Link::Shared(member) => member.has_progressed = true,
        }
    }

    /// Makes the next step of a reset, if it can be made, like [`Controller::advance`]. `queues` are the device's.
    pub(super) fn advance(&mut self, queues: &mut [QueuePair<F>]) -> Option<ResetStep> {
        match self {
            Link::Own(controller) => controller.advance(queues),
            Link::Shared(member) => member.advance(queues),
        }
    }

    /// Resets the controller, now or when all devices that share it know.
    pub(super) fn reset(&mut self, reason: ResetReason) {
        match self {
            Link::Own(controller) => controller.reset(reason),
            Link::Shared(member) => {
                let hub = member.hub.clone();
                member.reset(&mut hub.lock(), reason);
            }
        }
    }

    /// Gives the controller up, also for all devices that share it.
    pub(super) fn fail(&mut self, error: Error) {
        match self {
            Link::Own(controller) => controller.fail(error),
            Link::Shared(member) => {
                let mut state = member.hub.lock();
                if state.controller.failure().is_none() {
                    state.controller.fail(error);
                }
                member.end_if_lost(&state);
            }
        }
    }

    /// Returns true if an admin command has completed.
    pub(super) fn has_admin_completion(&self) -> bool {
        self.is_ready() && self.with(Controller::has_admin_completion)
    }

    /// Takes completions of admin commands, and looks at the state of the controller, which is failed or reset if necessary.
    pub(super) fn check(&mut self, now: Duration) {
        match self {
            Link::Own(controller) => {
                controller.poll_admin();
                if let Some(reason) = controller.check(now) {
                    controller.reset(reason);
                }
            }
            Link::Shared(member) => {
                let hub = member.hub.clone();
                let mut state = hub.lock();
                // A reset may have begun before the lock was taken.
                if member.epoch() != member.entered {
                    return;
                }
                Member::tell_progress(&mut member.has_progressed, &mut state);
                state.controller.poll_admin();
                if let Some(reason) = state.controller.check(now) {
                    member.reset(&mut state, reason);
                }
                member.end_if_lost(&state);
            }
        }
    }

    /// Takes completions of admin commands of a ready controller.
    pub(super) fn poll_admin(&mut self) {
        if self.is_ready() {
            self.with_mut(Controller::poll_admin);
        }
    }

    /// Requests the end of command `identifier` of queue `queue`; see [`Controller::abort`].
    pub(super) fn abort(&mut self, queue: u16, identifier: u16, timeout: Duration) -> AbortSent {
        match self {
            Link::Own(controller) => controller.abort(queue, identifier, timeout),
            Link::Shared(member) => {
                let mut state = member.hub.lock();
                match member.epoch() == member.entered {
                    true => state.controller.abort(queue, identifier, timeout),
                    // A reset ends the command anyway.
                    false => AbortSent::Busy,
                }
            }
        }
    }

    /// Shuts the controller down; a shared one when the last device that shares it is dropped, and what this device has
    /// `left` is kept until then.
    pub(super) fn end(&mut self, left: Box<dyn Any + Send>) {
        match self {
            Link::Own(controller) => controller.shut_down(),
            Link::Shared(member) => {
                let mut state = member.hub.lock();
                state.seen[member.index] = None;
                state.left.push(left);
            }
        }
    }
}
