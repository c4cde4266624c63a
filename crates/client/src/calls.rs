//! Synchronous calls of several threads over one channel.
//!
//! A channel has one end that submits and one that reaps. Submitting never waits, so a thread submits under
//! the lock. Reaping waits. The first thread that waits takes the reaper out of the shared state and reaps
//! *for all* threads without the lock, storing each completion in the place of its call. When its own
//! completion has arrived the thread puts the reaper back and wakes the waiting threads, one of which takes
//! it.
//!
//! ```text
//!     a call's place:   free ──► reserved ──► in flight ──► done ──► reserved ──► free
//!                                memory is        │         what came is
//!                                found, filled    │         copied, memory freed
//!                                                 │ its thread has given up
//!                                                 └──► abandoned ──► free, when it is completed after all
//! ```
//!
//! A thread that waits for a free place or for memory, and has no request in flight, leaves the reaping to
//! the threads that have one: each place that becomes free wakes all waiting threads. Such a thread reaps
//! only if all requests in flight were abandoned, since no other thread would then reap them.
//!
//! Invariant: while a thread waits for a completion, either the reaper is with a thread that returns it
//! within its timeout, or a woken thread is about to take it. So no thread hangs, whichever thread gives up.
//!
//! Called by `volume` for each request over the channel; `client` makes the channel.

use crate::error::Error;
use crate::options::Interrupt;
use crate::request::memory_is_lost;
use crate::session::lock;
use bywash_channel::{Buffer, BufferAllocator, Client, Completion, Reaper, Submission, Submitter};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Operation that the errors of this module name.
const WHAT: &str = "a request";
/// Greatest time that a thread without a request in flight reaps before it looks for room again.
const SLICE: Duration = Duration::from_millis(10);
/// Interval between two calls of the program's interrupt function while a thread waits.
const ASK_EVERY: Duration = Duration::from_millis(50);

/// State of a call's place. A place is the entry of a call in [`State::places`]; its index is the request's
/// user data.
#[derive(Debug)]
enum CallState {
    Free,
    Reserved,
    InFlight,
    /// The request is in flight, and its thread has given up waiting for it.
    Abandoned,
    Done(Completion),
}

/// A channel that several threads make synchronous calls over.
#[derive(Debug)]
pub(crate) struct Calls {
    state: Mutex<State>,
    changed: Condvar,
    buffers: BufferAllocator,
    limit: Duration,
    interrupt: Option<Interrupt>,
}

#[derive(Debug)]
struct State {
    submitter: Submitter,
    /// The end of the channel that reaps; `None` while a thread reaps with it.
    reaper: Option<Reaper>,
    places: Vec<CallState>,
    free: Vec<u32>,
    waiting: usize,
    /// Number of threads that wait for the completion of a request of their own.
    owners: usize,
    abandoned: usize,
    /// Error that ended the channel, if it has ended.
    end: Option<Error>,
    /// Memory that a device may still write to; freed with the channel.
    lost: Vec<Buffer>,
}

impl Calls {
    /// Makes synchronous calls over `channel`. `limit` is the timeout that errors name; `interrupt` may end a
    /// wait.
    pub(crate) fn over(channel: Client, limit: Duration, interrupt: Option<Interrupt>) -> Calls {
        let (depth, buffers) = (channel.depth(), channel.buffers());
        let (submitter, reaper) = channel.split();
        let state = State {
            submitter,
            reaper: Some(reaper),
            places: (0..depth).map(|_| CallState::Free).collect(),
            free: (0..depth as u32).rev().collect(),
            waiting: 0,
            owners: 0,
            abandoned: 0,
            end: None,
            lost: Vec::new(),
        };
        Calls { state: Mutex::new(state), changed: Condvar::new(), buffers, limit, interrupt }
    }

    /// Submits a request with `bytes` of memory from the arena (0: none), which `fill` fills; waits until
    /// `end` for the completion and passes it to `finish`. With an error returns true if the request had been
    /// submitted, so that it may have been carried out.
    pub(crate) fn call<R>(
        &self,
        submission: Submission,
        bytes: usize,
        fill: impl FnOnce(&mut Buffer),
        end: Instant,
        finish: impl FnOnce(Completion) -> R,
    ) -> Result<R, (Error, bool)> {
        let (number, buffer) = self.reserve(bytes, end).map_err(|error| (error, false))?;
        let mut submission = submission.user_data(u64::from(number));
        if let Some(mut buffer) = buffer {
            fill(&mut buffer);
            submission = submission.buffer(buffer);
        }
        if let Err(error) = self.submit(submission, number) {
            self.release(number);
            return Err((error, false));
        }
        lock(&self.state).owners += 1;
        let done = self.drive(true, end, |state| Ok(state.take_done(number)));
        match done {
            Ok(done) => {
                let answer = finish(done);
                self.release(number);
                Ok(answer)
            }
            Err(error) => {
                let mut state = lock(&self.state);
                state.abandon(number);
                self.hand_on(&state);
                Err((error, true))
            }
        }
    }

    /// Waits until `end` for a free place, and for `bytes` of memory if that is not 0.
    fn reserve(&self, bytes: usize, end: Instant) -> Result<(u32, Option<Buffer>), Error> {
        let mut place = None;
        let reserved = self.drive(false, end, |state| {
            if place.is_none() {
                place = state.reserve();
            }
            let Some(place) = place else { return Ok(None) };
            if bytes == 0 {
                return Ok(Some((place, None)));
            }
            match self.buffers.alloc(bytes) {
                Ok(buffer) => Ok(Some((place, Some(buffer)))),
                // Other calls hold the memory and will free it.
                Err(bywash_link::Error::ArenaFull { .. }) if state.in_use() > 1 => Ok(None),
                Err(error) => Err(Error::from_link(error, WHAT, self.limit)),
            }
        });
        if let (Err(_), Some(place)) = (&reserved, place) {
            self.release(place);
        }
        reserved
    }

    fn submit(&self, submission: Submission, place: u32) -> Result<(), Error> {
        let mut state = lock(&self.state);
        if let Some(end) = &state.end {
            return Err(end.clone());
        }
        // The place must be in flight before a completion can arrive.
        state.places[place as usize] = CallState::InFlight;
        state.submitter.submit(submission).map(drop).map_err(|refused| {
            let error = Error::from_link(refused.error, WHAT, self.limit);
            if error.is_end() {
                state.end = Some(error.clone());
            }
            error
        })
    }

    /// Makes a place free that has no request in flight.
    fn release(&self, place: u32) {
        let mut state = lock(&self.state);
        state.set_free(place);
        self.hand_on(&state);
    }

    /// Wakes the threads that wait, if any: one of them takes the reaper if no thread reaps.
    fn hand_on(&self, state: &State) {
        if state.waiting > 0 {
            self.changed.notify_all();
        }
    }

    /// Repeats `attempt` until it returns something, or the time `end`, or an error; between attempts reaps,
    /// or waits for the thread that reaps. An owner is a thread with a request in flight; the caller has
    /// counted it in `owners`.
    fn drive<R>(
        &self,
        is_owner: bool,
        end: Instant,
        mut attempt: impl FnMut(&mut State) -> Result<Option<R>, Error>,
    ) -> Result<R, Error> {
        let mut ask_next = self.interrupt.as_ref().map(|_| Instant::now() + ASK_EVERY);
        let mut state = lock(&self.state);
        let outcome = loop {
            let outcome = match attempt(&mut state) {
                Ok(None) => None,
                Ok(Some(found)) => Some(Ok(found)),
                Err(error) => Some(Err(error)),
            };
            let mut left = Duration::ZERO;
            let outcome = outcome.or_else(|| {
                if let Some(end) = &state.end {
                    return Some(Err(end.clone()));
                }
                left = end.saturating_duration_since(Instant::now());
                left.is_zero().then_some(Err(Error::TimedOut { what: WHAT, limit: self.limit }))
            });
            if let Some(outcome) = outcome {
                break outcome;
            }
            if let (Some(interrupt), Some(next)) = (&self.interrupt, &mut ask_next) {
                let until_then = next.saturating_duration_since(Instant::now());
                if until_then.is_zero() {
                    drop(state);
                    let ends = interrupt.ends_it();
                    state = lock(&self.state);
                    if ends {
                        break Err(Error::Interrupted);
                    }
                    *next = Instant::now() + ASK_EVERY;
                    continue;
                }
                left = left.min(until_then);
            }
            let reaps = is_owner || (state.owners == 0 && state.abandoned > 0);
            match state.reaper.take_if(|_| reaps) {
                Some(mut reaper) => {
                    drop(state);
                    let reaped = reaper.reap_within(if is_owner { left } else { left.min(SLICE) });
                    state = lock(&self.state);
                    state.reaper = Some(reaper);
                    let failed = match reaped {
                        Ok(completion) => {
                            state.deliver(completion);
                            None
                        }
                        Err(bywash_link::Error::TimedOut) => None,
                        Err(error) => Some(Error::from_link(error, WHAT, self.limit)),
                    };
                    match failed {
                        Some(error) if error.is_end() => state.end = Some(error),
                        // The error concerns this thread alone, and the channel goes on.
                        Some(error) => break Err(error),
                        None => {}
                    }
                    self.hand_on(&state);
                }
                None => {
                    state.waiting += 1;
                    let woken = self.changed.wait_timeout(state, left);
                    state = woken.unwrap_or_else(PoisonError::into_inner).0;
                    state.waiting -= 1;
                }
            }
        };
        state.owners -= usize::from(is_owner);
        if state.reaper.is_some() {
            self.hand_on(&state);
        }
        outcome
    }

    /// Returns the allocator of the channel's arena.
    pub(crate) fn buffers(&self) -> &BufferAllocator {
        &self.buffers
    }

    /// Keeps the memory of a request whose device may still write to it.
    pub(crate) fn quarantine(&self, buffer: Buffer) {
        lock(&self.state).lost.push(buffer);
    }

    /// Returns the bytes of the arena that are never reused.
    pub(crate) fn lost_bytes(&self) -> usize {
        lock(&self.state).lost.iter().map(Buffer::capacity).sum()
    }
}

impl State {
    fn reserve(&mut self) -> Option<u32> {
        let place = self.free.pop()?;
        self.places[place as usize] = CallState::Reserved;
        Some(place)
    }

    fn in_use(&self) -> usize {
        self.places.len() - self.free.len()
    }

    fn set_free(&mut self, place: u32) {
        self.places[place as usize] = CallState::Free;
        self.free.push(place);
    }

    fn take_done(&mut self, place: u32) -> Option<Completion> {
        if !matches!(self.places[place as usize], CallState::Done(_)) {
            return None;
        }
        match std::mem::replace(&mut self.places[place as usize], CallState::Reserved) {
            CallState::Done(done) => Some(done),
            _ => None,
        }
    }

    fn abandon(&mut self, place: u32) {
        match self.take_done(place) {
            // The completion arrived after the last look at the place.
            Some(done) => {
                self.forget(done);
                self.set_free(place);
            }
            None => {
                self.places[place as usize] = CallState::Abandoned;
                self.abandoned += 1;
            }
        }
    }

    /// Disposes of a completion that no thread waits for: frees its memory, unless a device may still write
    /// to it.
    fn forget(&mut self, done: Completion) {
        if memory_is_lost(done.status) {
            self.lost.extend(done.buffer);
        }
    }

    fn deliver(&mut self, done: Completion) {
        // The user data is the one that `call` set, so it is the index of a place.
        let place = done.user_data as u32;
        match self.places[place as usize] {
            CallState::Abandoned => {
                self.abandoned -= 1;
                self.forget(done);
                self.set_free(place);
            }
            _ => self.places[place as usize] = CallState::Done(done),
        }
    }
}
