//! Helper threads: carry out operations that may block, for one user each: handshakes, receiving, inspecting
//! and closing passed descriptors.
//!
//! ```text
//!   core, control ──► waiting tasks of user 1000 ──► up to 16 threads, which may all be stuck
//!                 ──► waiting tasks of user 1001 ──► ...
//! ```
//!
//! A descriptor that a client passes can refer to anything: a socket that lingers when it is closed, a file
//! of a FUSE file system, a device that does not respond. The thread that receives, inspects, maps, unmaps or
//! closes such a descriptor may block in the kernel for an unlimited time. Therefore each helper thread
//! serves a single user, and a user whose descriptors block delays only that user's own tasks.
//!
//! Invariant: a task runs on a thread of its user, and [`Helpers::give`] neither blocks nor creates a thread.
//! The number of threads is limited for each user and overall. A user without a thread still gets one when
//! other users have taken all threads but the reserve. Called by the control thread, the core and the helpers
//! themselves.

use std::collections::{HashMap, VecDeque};
use std::ops::Deref;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Greatest number of threads of one user.
const THREADS_PER_USER_MAX: usize = 16;
/// Number of threads of all users from which on only a user's first thread is created.
const THREADS_SHARED_MAX: usize = 256;
/// Greatest number of threads of all users, including the reserve for users' first threads. The privileged
/// users' first threads may exceed it.
const THREADS_MAX: usize = 1024;
/// Time for which a thread without a task waits for another one before it ends.
const LINGER: Duration = Duration::from_secs(1);
/// Interval between attempts to create a thread after a failure.
const RETRY: Duration = Duration::from_millis(100);

/// An operation that may block.
type Task = Box<dyn FnOnce() + Send>;

/// Handle to the helper threads of all users. Clones share the same threads, which end when the last clone is
/// dropped and every task is done.
#[derive(Clone)]
pub(crate) struct Helpers(Arc<Owner>);

/// Right to hand in tasks. The threads themselves hold none, so that its drop ends them.
struct Owner(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    /// Signalled when a thread may have to be created.
    more: Condvar,
    /// Users whose first thread is created whatever the number of threads: root and the server's own user,
    /// who administer the server.
    privileged: [u32; 2],
}

#[derive(Default)]
struct State {
    users: HashMap<u32, User>,
    threads: usize,
    begun: u64,
    /// True when the last [`Helpers`] was dropped; tasks that wait are still carried out.
    ended: bool,
}

/// Tasks and threads of one user. A user without tasks and threads has no entry.
struct User {
    waiting: VecDeque<(Duration, Task)>,
    threads: usize,
    idle: usize,
    /// End of the time limit of each running task, by the task's number; afterwards the task counts as stuck.
    running: HashMap<u64, Instant>,
    /// Signalled when a task waits, for the user's idle threads.
    more: Arc<Condvar>,
}

impl Helpers {
    /// Starts the thread that creates the other threads.
    ///
    /// # Errors
    /// The kernel's error if it cannot create a thread.
    pub(crate) fn start() -> std::io::Result<Helpers> {
        let own = rustix::process::geteuid().as_raw();
        let shared = Shared { state: Mutex::default(), more: Condvar::new(), privileged: [0, own] };
        let shared = Arc::new(shared);
        let spawner = shared.clone();
        thread::Builder::new().name("helpers".into()).spawn(move || spawner.make_threads())?;
        Ok(Helpers(Arc::new(Owner(shared))))
    }

    /// Creates helpers without threads, whose tasks [`Helpers::do_waiting`] carries out.
    #[cfg(feature = "testing")]
    pub(crate) fn without_threads() -> Helpers {
        let shared = Shared { state: Mutex::default(), more: Condvar::new(), privileged: [0; 2] };
        Helpers(Arc::new(Owner(Arc::new(shared))))
    }

    /// Carries out all waiting tasks on the caller's thread. Returns true if there was one.
    #[cfg(feature = "testing")]
    pub(crate) fn do_waiting(&self) -> bool {
        let shared = &self.0.0;
        let mut busy = false;
        let mut state = shared.lock();
        while let Some(uid) = state.users.keys().next().copied() {
            busy = true;
            while !state.users[&uid].waiting.is_empty() {
                state = shared.do_next(state, uid);
            }
            state.users.remove(&uid);
        }
        busy
    }

    /// Queues a task for a user, for one of the user's threads. A task that runs longer than `limit` counts
    /// as stuck.
    pub(crate) fn spawn(&self, uid: u32, limit: Duration, task: impl FnOnce() + Send + 'static) {
        let shared = &self.0.0;
        let mut state = shared.lock();
        let user = state.users.entry(uid).or_insert_with(User::new);
        user.waiting.push_back((limit, Box::new(task)));
        if user.idle >= user.waiting.len() {
            user.more.notify_one();
        } else {
            shared.more.notify_one();
        }
    }

    /// Has a thread of the user drop a value, which may close descriptors or unmap memory.
    pub(crate) fn drop_later(&self, uid: u32, what: impl Send + 'static) {
        self.spawn(uid, CLOSING_LIMIT, move || drop(what));
    }

    /// Returns the number of stuck threads of each user that has some.
    pub(crate) fn stuck(&self) -> HashMap<u32, u64> {
        let (state, now) = (self.0.0.lock(), Instant::now());
        let users = state.users.iter().map(|(uid, user)| (*uid, user.stuck(now)));
        users.filter(|(_, threads)| *threads > 0).collect()
    }

    /// Refuses a user for whom no more tasks should be queued.
    ///
    /// # Errors
    /// A message for the user, if some of the user's threads are stuck, or if the user has no thread and
    /// could not get one.
    pub(crate) fn check(&self, uid: u32) -> Result<(), String> {
        let (state, now) = (self.0.0.lock(), Instant::now());
        let Some(user) = state.users.get(&uid) else {
            return match state.threads < THREADS_MAX || self.0.0.privileged.contains(&uid) {
                true => Ok(()),
                false => Err(format!(
                    "all {THREADS_MAX} helper threads are in use by other users; try again later"
                )),
            };
        };
        match user.stuck(now) {
            0 => Ok(()),
            stuck => Err(format!(
                "{stuck} of the threads that close what user {uid} has passed are stuck: a file or socket does not let \
                 itself be closed; end the program that passed it"
            )),
        }
    }
}

/// Time limit for closing a descriptor or unmapping memory, after which the task counts as stuck.
pub(crate) const CLOSING_LIMIT: Duration = Duration::from_secs(5);

impl Drop for Owner {
    fn drop(&mut self) {
        self.0.lock().ended = true;
        self.0.more.notify_one();
    }
}

/// A value from a user's client. Wherever it is dropped, a helper thread of this user does the drop.
#[derive(Debug)]
pub(crate) struct DropByHelper<T: Send + 'static> {
    /// The value; `None` after [`Foreign::take`].
    what: Option<T>,
    uid: u32,
    helpers: Helpers,
}

impl<T: Send + 'static> DropByHelper<T> {
    pub(crate) fn new(what: T, uid: u32, helpers: Helpers) -> DropByHelper<T> {
        DropByHelper { what: Some(what), uid, helpers }
    }

    /// Takes the value out, for a thread that may block on dropping it.
    pub(crate) fn take(&mut self) -> Option<T> {
        self.what.take()
    }
}

impl<T: Send + 'static> Deref for DropByHelper<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.what.as_ref().expect("it is taken out by the last who has it")
    }
}

impl<T: Send + 'static> Drop for DropByHelper<T> {
    fn drop(&mut self) {
        if let Some(what) = self.what.take() {
            self.helpers.drop_later(self.uid, what);
        }
    }
}

impl std::fmt::Debug for Helpers {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("helpers")
    }
}

impl User {
    fn new() -> User {
        User { waiting: VecDeque::new(), threads: 0, idle: 0, running: HashMap::new(), more: Arc::default() }
    }

    /// Returns the number of running tasks that have exceeded their time limit.
    fn stuck(&self, now: Instant) -> u64 {
        self.running.values().filter(|until| **until < now).count() as u64
    }

    /// Returns true if tasks wait for which no thread is idle, and the user may have another thread.
    fn wants_thread(&self) -> bool {
        self.waiting.len() > self.idle && self.threads < THREADS_PER_USER_MAX
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // A thread that panicked has left no change half done: each change is one step.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Creates threads as tasks need them, until all handles are dropped and no task waits.
    fn make_threads(self: Arc<Shared>) {
        let mut state = self.lock();
        loop {
            while let Some(uid) = self.next(&state) {
                if !self.make_thread(&mut state, uid) {
                    break;
                }
            }
            let waits = state.users.values().any(User::wants_thread);
            if state.ended && !state.users.values().any(|user| !user.waiting.is_empty()) {
                return;
            }
            state = match waits || state.ended {
                // Retry after a while: a thread may have ended by then, or the kernel may allow one again.
                true => self.more.wait_timeout(state, RETRY).unwrap_or_else(PoisonError::into_inner).0,
                false => self.more.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    /// Returns a user who needs a thread, preferably one without any.
    fn next(&self, state: &State) -> Option<u32> {
        let wanting = || state.users.iter().filter(|(_, user)| user.wants_thread());
        let first = wanting().find(|(uid, user)| {
            user.threads == 0 && (state.threads < THREADS_MAX || self.privileged.contains(uid))
        });
        let more = || wanting().find(|_| state.threads < THREADS_SHARED_MAX);
        first.or_else(more).map(|(uid, _)| *uid)
    }

    /// Creates a thread for a user; false if the kernel refuses now.
    fn make_thread(self: &Arc<Shared>, state: &mut State, uid: u32) -> bool {
        let Some(user) = state.users.get_mut(&uid) else { return true };
        let (shared, more) = (self.clone(), user.more.clone());
        let made = thread::Builder::new().name("helper".into()).spawn(move || shared.work(uid, &more));
        if let Err(error) = &made {
            tracing::warn!("cannot make a thread for user {uid}: {error}");
            return false;
        }
        user.threads += 1;
        state.threads += 1;
        true
    }

    /// Carries out a user's tasks, until none has arrived for [`LINGER`].
    fn work(&self, uid: u32, more: &Condvar) {
        let mut state = self.lock();
        let mut until = Instant::now() + LINGER;
        loop {
            let ended = state.ended;
            let Some(user) = state.users.get_mut(&uid) else { return };
            if !user.waiting.is_empty() {
                state = self.do_next(state, uid);
                until = Instant::now() + LINGER;
                continue;
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || ended {
                return self.leave(&mut state, uid);
            }
            user.idle += 1;
            state = more.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
            if let Some(user) = state.users.get_mut(&uid) {
                user.idle -= 1;
            }
        }
    }

    /// Carries out the first waiting task of a user, with the lock released meanwhile.
    fn do_next<'a>(&'a self, mut state: MutexGuard<'a, State>, uid: u32) -> MutexGuard<'a, State> {
        let number = state.begun;
        let Some(user) = state.users.get_mut(&uid) else { return state };
        let Some((limit, task)) = user.waiting.pop_front() else { return state };
        user.running.insert(number, Instant::now() + limit);
        state.begun += 1;
        drop(state);
        // A panic of the task was reported already; the thread goes on for the user's other tasks.
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(task));
        let mut state = self.lock();
        state.users.get_mut(&uid).map(|user| user.running.remove(&number));
        state
    }

    /// Deregisters a thread of a user that is about to end.
    fn leave(&self, state: &mut State, uid: u32) {
        state.threads -= 1;
        if let Some(user) = state.users.get_mut(&uid) {
            user.threads -= 1;
            if user.threads == 0 && user.waiting.is_empty() {
                state.users.remove(&uid);
            }
        }
        self.more.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    const LIMIT: Duration = Duration::from_secs(20);

    #[test]
    fn who_is_stuck_is_so_alone() {
        let helpers = Helpers::start().unwrap();
        let (release, wait) = channel::<()>();
        let wait = Arc::new(Mutex::new(wait));
        for _ in 0..2 * THREADS_PER_USER_MAX {
            let wait = wait.clone();
            helpers.spawn(1000, Duration::ZERO, move || {
                let _ = wait.lock().unwrap().recv();
            });
        }
        let (done, is_done) = channel();
        helpers.spawn(1001, LIMIT, move || done.send(()).unwrap());
        is_done.recv_timeout(LIMIT).unwrap();
        assert!(helpers.check(1001).is_ok());
        let end = Instant::now() + LIMIT;
        while helpers.check(1000).is_ok() {
            assert!(Instant::now() < end);
            thread::yield_now();
        }
        assert!(helpers.check(1000).unwrap_err().contains("user 1000"));
        assert!(helpers.0.0.lock().users[&1000].threads <= THREADS_PER_USER_MAX);
        drop(release);
        while helpers.check(1000).is_err() {
            assert!(Instant::now() < end);
            thread::yield_now();
        }
    }

    #[test]
    fn the_first_thread_of_a_user_is_kept_free() {
        let helpers = Helpers::start().unwrap();
        let (release, wait) = channel::<()>();
        let wait = Arc::new(Mutex::new(wait));
        let users = (THREADS_SHARED_MAX / THREADS_PER_USER_MAX) as u32 + 4;
        for uid in 0..users {
            for _ in 0..THREADS_PER_USER_MAX {
                let wait = wait.clone();
                helpers.spawn(10_000 + uid, LIMIT, move || {
                    let _ = wait.lock().unwrap().recv();
                });
            }
        }
        let (done, is_done) = channel();
        helpers.spawn(1, LIMIT, move || done.send(()).unwrap());
        is_done.recv_timeout(LIMIT).unwrap();
        assert!(helpers.0.0.lock().threads <= THREADS_SHARED_MAX + users as usize + 1);
        drop(release);
    }

    #[test]
    fn what_waits_at_the_end_is_still_done() {
        let helpers = Helpers::start().unwrap();
        let (done, is_done) = channel();
        for number in 0..100 {
            let done = done.clone();
            helpers.spawn(7, LIMIT, move || done.send(number).unwrap());
        }
        drop(helpers);
        for _ in 0..100 {
            is_done.recv_timeout(LIMIT).unwrap();
        }
    }
}
