//! Thread that waits for the end of what was submitted to a device.
//!
//! wgpu-core calls back from whichever thread looks at the device. Only this thread waits for it, and without a limit: in
//! version 30, a wait with a limit ends the process if another thread sees the end of the work in the moment after the limit.
//! A driver that never answers holds this thread alone, as others wait for the callbacks, with limits.

use super::causes::chain;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use wgpu_core::global::Global;
use wgpu_core::id::DeviceId;
use wgpu_types::PollType;

/// Time that the thread has to end when nobody needs the device any more.
const END: Duration = Duration::from_secs(2);

/// Submissions that the thread waits for.
#[derive(Default)]
struct State {
    submissions: VecDeque<u64>,
    /// True if there will be no more.
    is_closed: bool,
    /// True if the thread has ended.
    has_ended: bool,
    /// Message of the driver when the device was lost.
    loss: Option<String>,
}

/// State, and the signal of each change.
#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // Each change is a single assignment, so the state is valid whatever a thread that panicked did.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lose(&self, message: String) {
        self.state().loss.get_or_insert(message);
    }
}

/// Thread and its submissions.
pub(super) struct Watch {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Starts the thread for a device.
    ///
    /// # Errors
    /// The reason why there is no thread.
    pub(super) fn start(global: &Arc<Global>, device: DeviceId) -> Result<Watch, String> {
        let shared = Arc::<Shared>::default();
        let told = Arc::clone(&shared);
        global.device_set_device_lost_closure(device, Box::new(move |_, message| told.lose(message)));
        let (global, watched) = (Arc::clone(global), Arc::clone(&shared));
        let thread = thread::Builder::new().name("bywash-gpu".into()).spawn(move || {
            watch(&global, device, &watched);
            watched.state().has_ended = true;
            watched.changed.notify_all();
        });
        let thread = thread.map_err(|error| format!("a thread cannot be started: {error}"))?;
        Ok(Watch { shared, thread: Some(thread) })
    }

    /// Waits for a submission, from now on.
    pub(super) fn add(&self, submission: u64) {
        self.shared.state().submissions.push_back(submission);
        self.shared.changed.notify_all();
    }

    /// Returns the driver's message if the device was lost.
    pub(super) fn loss(&self) -> Option<String> {
        self.shared.state().loss.clone()
    }

    /// Ends the thread, and returns whether the device has done all its work, and is there.
    pub(super) fn end(&mut self) -> bool {
        let mut state = self.shared.state();
        state.is_closed = true;
        self.shared.changed.notify_all();
        let ended = self.shared.changed.wait_timeout_while(state, END, |state| !state.has_ended);
        let (state, _) = ended.unwrap_or_else(PoisonError::into_inner);
        if !state.has_ended {
            return false;
        }
        let is_there = state.loss.is_none();
        drop(state);
        // A thread that panicked has said so.
        let _ = self.thread.take().map(JoinHandle::join);
        is_there
    }
}

/// Waits for each submission in order, until there are no more, or the device is lost.
fn watch(global: &Global, device: DeviceId, shared: &Shared) {
    let mut state = shared.state();
    while state.loss.is_none() {
        let Some(submission) = state.submissions.pop_front() else {
            if state.is_closed {
                return;
            }
            state = shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            continue;
        };
        drop(state);
        let waited =
            global.device_poll(device, PollType::Wait { submission_index: Some(submission), timeout: None });
        if let Err(error) = waited {
            shared.lose(chain(&error));
        }
        state = shared.state();
    }
}
