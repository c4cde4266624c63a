//! Threads: their state, the order in which they run, and the events that they wait for.
//!
//! A thread that blocks in a call keeps the call's registers. When an event that it waits for occurs, or its
//! time is over, it becomes ready, and the operating system executes the call again from what is written down in
//! [`Call`]. So a call never blocks the host, and its state is data.

mod futex;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bywash_cpu::Hart;

pub use futex::Futexes;

use crate::clock::Time;
use crate::errno::Errno;
use crate::machine::{Tag, ThreadId};
use crate::signal::ThreadSignals;

/// Greatest number of threads.
pub const THREADS_LIMIT: usize = 4096;
/// Number of the process, which is that of its first thread.
pub const PROCESS: u32 = 1;

/// Source of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// Standard input.
    Input,
    /// End of a pipe from which bytes are read.
    PipeReader(u64),
    /// End of a pipe into which bytes are written.
    PipeWriter(u64),
    /// Socket.
    Socket(u64),
    /// Set of descriptors to wait for.
    Epoll(u64),
    /// Event counter.
    Counter(u64),
    /// Timer.
    Timer(u64),
}

/// Event that a thread waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// Change of a source.
    Source(Source),
    /// Completion of a device request.
    Completion(Tag),
    /// End of what a device's processor does for the thread.
    Device,
    /// Release of a record lock of a file.
    Lock(u64),
}

/// Call that a thread is in.
#[derive(Clone, Debug, Default)]
pub struct Call {
    /// Number of bytes that were moved before the thread blocked.
    pub progress: u64,
    /// Time at which the thread goes on in any case.
    pub deadline: Option<Time>,
    /// Requests whose completion the call still waits for.
    pub requests: BTreeSet<Tag>,
    /// True once the thread was entered into a futex's queue, or began another wait that is begun only once.
    pub is_begun: bool,
    /// True if an event that several threads wait for is for one of them: accept(2), epoll_wait(2).
    pub is_exclusive: bool,
}

/// State of a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// In the queue of threads that can run.
    Ready,
    /// On a processor.
    Running(usize),
    /// Waits for one of some events.
    Blocked(Vec<Key>),
}

/// Thread of the program.
#[derive(Clone, Debug)]
pub struct Thread {
    /// Registers.
    pub hart: Hart,
    /// State.
    pub state: State,
    /// Call that the thread is in, if it has not returned yet.
    pub call: Option<Call>,
    /// Signals and their mask.
    pub signals: ThreadSignals,
    /// Address that is cleared, and woken as a futex, when the thread ends; 0 for none.
    pub clear_address: u64,
    /// Address of the list of robust futexes; 0 for none.
    pub robust_list: u64,
    /// Time at which another thread may have the processor.
    pub slice_end: Time,
    /// Time that it has spent on processors.
    pub busy: Time,
    /// Name (prctl(2)).
    pub name: [u8; 16],
}

/// Threads of the program.
#[derive(Clone, Debug, Default)]
pub struct Threads {
    /// Threads by their number.
    all: BTreeMap<ThreadId, Thread>,
    /// Threads that can run, the next one first.
    ready: VecDeque<ThreadId>,
    /// Threads by the event that they wait for, the longest waiting first.
    waiting: BTreeMap<Key, VecDeque<ThreadId>>,
    /// Deadlines of blocked threads.
    deadlines: BTreeSet<(Time, ThreadId)>,
    /// Number of the latest thread.
    last: u32,
}

impl Threads {
    /// Adds a ready thread.
    ///
    /// # Errors
    ///
    /// [`Errno::EAGAIN`]: there are [`THREADS_LIMIT`] threads, or no number is left.
    pub fn add(&mut self, hart: Hart, signals: ThreadSignals) -> Result<ThreadId, Errno> {
        if self.all.len() >= THREADS_LIMIT || self.last >= i32::MAX as u32 {
            return Err(Errno::EAGAIN);
        }
        self.last += 1;
        let id = ThreadId(self.last);
        let thread = Thread {
            hart,
            state: State::Ready,
            call: None,
            signals,
            clear_address: 0,
            robust_list: 0,
            slice_end: Time::ZERO,
            busy: Time::ZERO,
            name: [0; 16],
        };
        self.all.insert(id, thread);
        self.ready.push_back(id);
        Ok(id)
    }

    /// Removes a thread.
    pub fn remove(&mut self, id: ThreadId) -> Option<Thread> {
        self.unblock(id);
        self.ready.retain(|&other| other != id);
        self.all.remove(&id)
    }

    /// Returns a thread.
    pub fn get(&self, id: ThreadId) -> Option<&Thread> {
        self.all.get(&id)
    }

    /// Returns a thread that can be changed.
    pub fn get_mut(&mut self, id: ThreadId) -> Option<&mut Thread> {
        self.all.get_mut(&id)
    }

    /// Returns the numbers of all threads.
    pub fn ids(&self) -> impl Iterator<Item = ThreadId> + '_ {
        self.all.keys().copied()
    }

    /// Returns the number of threads.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Returns whether a thread waits for a processor.
    pub fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Gives a processor to the next ready thread.
    pub fn dispatch(&mut self, processor: usize, slice_end: Time) -> Option<ThreadId> {
        let id = self.ready.pop_front()?;
        let thread = self.all.get_mut(&id)?;
        thread.state = State::Running(processor);
        thread.slice_end = slice_end;
        Some(id)
    }

    /// Lets a running thread wait for a processor behind the others.
    pub fn preempt(&mut self, id: ThreadId) {
        if let Some(thread) = self.all.get_mut(&id) {
            thread.state = State::Ready;
            self.ready.push_back(id);
        }
    }

    /// Blocks a running thread until an event occurs or its call's deadline comes.
    pub fn block(&mut self, id: ThreadId, keys: Vec<Key>) {
        let Some(thread) = self.all.get_mut(&id) else { return };
        if let Some(deadline) = thread.call.as_ref().and_then(|call| call.deadline) {
            self.deadlines.insert((deadline, id));
        }
        for &key in &keys {
            self.waiting.entry(key).or_default().push_back(id);
        }
        thread.state = State::Blocked(keys);
    }

    /// Makes threads ready that wait for an event: all that wait for it alone, and the first of those for which
    /// one is enough. Returns how many.
    pub fn wake(&mut self, key: Key) -> usize {
        let Some(queue) = self.waiting.get(&key) else { return 0 };
        let is_exclusive = |id: &ThreadId| {
            self.all.get(id).and_then(|thread| thread.call.as_ref()).is_some_and(|call| call.is_exclusive)
        };
        let (one, mut woken): (Vec<_>, Vec<_>) = queue.iter().copied().partition(is_exclusive);
        woken.extend(one.first());
        woken.into_iter().filter(|&id| self.wake_thread(id)).count()
    }

    /// Makes a blocked thread ready. Returns false if it was not blocked.
    pub fn wake_thread(&mut self, id: ThreadId) -> bool {
        if !self.unblock(id) {
            return false;
        }
        if let Some(thread) = self.all.get_mut(&id) {
            thread.state = State::Ready;
            self.ready.push_back(id);
        }
        true
    }

    /// Makes the threads ready whose deadline has come. Returns how many.
    pub fn expire(&mut self, now: Time) -> usize {
        let mut woken = 0;
        while let Some(&(_, id)) = self.deadlines.first().filter(|&&(deadline, _)| deadline <= now) {
            self.wake_thread(id);
            woken += 1;
        }
        woken
    }

    /// Returns the earliest deadline.
    pub fn deadline(&self) -> Option<Time> {
        self.deadlines.first().map(|&(deadline, _)| deadline)
    }

    /// Returns whether a thread waits for an event.
    pub fn is_waiting(&self, key: Key) -> bool {
        self.waiting.contains_key(&key)
    }

    /// Removes a blocked thread from all queues. Returns false if it was not blocked.
    fn unblock(&mut self, id: ThreadId) -> bool {
        let Some(thread) = self.all.get_mut(&id) else { return false };
        let State::Blocked(keys) = &mut thread.state else { return false };
        for key in std::mem::take(keys) {
            if let Some(queue) = self.waiting.get_mut(&key) {
                queue.retain(|&other| other != id);
                if queue.is_empty() {
                    self.waiting.remove(&key);
                }
            }
        }
        if let Some(deadline) = thread.call.as_ref().and_then(|call| call.deadline) {
            self.deadlines.remove(&(deadline, id));
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn threads(count: usize) -> (Threads, Vec<ThreadId>) {
        let mut threads = Threads::default();
        let ids = (0..count).map(|_| threads.add(Hart::new(0), ThreadSignals::default()).unwrap()).collect();
        (threads, ids)
    }

    #[test]
    fn threads_run_in_turn_and_wake_in_the_order_of_their_waiting() {
        let (mut threads, ids) = threads(3);
        let key = Key::Source(Source::Input);
        for id in &ids {
            assert_eq!(threads.dispatch(0, Time::ZERO), Some(*id));
            threads.block(*id, vec![key, Key::Lock(8)]);
        }
        assert_eq!((threads.wake(key), threads.wake(Key::Lock(8))), (3, 0));
        assert_eq!(threads.dispatch(0, Time::ZERO), Some(ids[0]));
        threads.preempt(ids[0]);
        assert_eq!(threads.dispatch(0, Time::ZERO), Some(ids[1]));
        assert!(!threads.is_waiting(key));
    }

    #[test]
    fn one_of_the_exclusive_threads_wakes() {
        let (mut threads, ids) = threads(3);
        let key = Key::Source(Source::Socket(1));
        for id in &ids {
            threads.dispatch(0, Time::ZERO);
            let is_exclusive = *id != ids[1];
            threads.get_mut(*id).unwrap().call = Some(Call { is_exclusive, ..Call::default() });
            threads.block(*id, vec![key]);
        }
        assert_eq!([threads.wake(key), threads.wake(key), threads.wake(key)], [2, 1, 0]);
    }

    #[test]
    fn a_deadline_wakes_once() {
        let (mut threads, ids) = threads(1);
        threads.dispatch(0, Time::ZERO);
        let deadline = Some(Time::from_nanoseconds(5));
        threads.get_mut(ids[0]).unwrap().call = Some(Call { deadline, ..Call::default() });
        threads.block(ids[0], vec![]);
        assert_eq!(threads.deadline(), deadline);
        assert_eq!(threads.expire(Time::from_nanoseconds(4)), 0);
        assert_eq!(threads.expire(Time::from_nanoseconds(5)), 1);
        assert_eq!((threads.expire(Time::MAX), threads.deadline()), (0, None));
    }
}
