//! Callbacks: a thread that reaps completions and calls a function for each.

use crate::client::{Completion, Reaper};
use bywash_link::{Error, ProcessGeneration};
use bywash_sync::{AtomicBool, Ordering::Relaxed};
use std::cell::Cell;
use std::mem::forget;
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Longest time until a dispatcher notices that it shall stop.
const STOP_LIMIT: Duration = Duration::from_millis(100);

thread_local! {
    /// Address of the stop flag of the dispatcher that runs on this thread; null on every other thread.
    static OWN: Cell<*const AtomicBool> = const { Cell::new(ptr::null()) };
}

/// A thread that calls back for each completion, until it is stopped or dropped.
///
/// Dropping a dispatcher waits for a callback that is running. Dropping it within the callback itself does
/// not wait: the thread ends when the callback returns. In a forked child, which does not have the thread,
/// dropping has no effect.
#[derive(Debug)]
pub struct Dispatcher {
    stop: Arc<AtomicBool>,
    /// Handle of the thread; `None` once it was joined.
    thread: Option<JoinHandle<Reaper>>,
    maker: ProcessGeneration,
}

/// A failed dispatch: its error, and the reaper, which the caller owns again.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct DispatchError {
    /// Reason of the failure.
    #[source]
    pub error: Error,
    /// The reaper, unchanged.
    pub reaper: Box<Reaper>,
}

impl Reaper {
    /// Starts a thread that waits with this client's [`Wait`](crate::Wait) and calls `callback` for each
    /// completion, and once with the error that ends the channel.
    ///
    /// # Errors
    /// [`Error::Io`] if the thread cannot be started; the reaper is handed back.
    pub fn dispatch(
        self,
        mut callback: impl FnMut(Result<Completion, Error>) + Send + 'static,
    ) -> Result<Dispatcher, DispatchError> {
        let stop = Arc::new(AtomicBool::new(false));
        // The reaper is shared through a slot, so that it can be handed back if the thread cannot be started.
        let place = Arc::new(Mutex::new(Some(self)));
        let take = |place: &Mutex<Option<Reaper>>| {
            let reaper = place.lock().unwrap_or_else(PoisonError::into_inner).take();
            reaper.expect("it is taken once")
        };
        let (stopping, given) = (stop.clone(), place.clone());
        let run = move || {
            OWN.set(Arc::as_ptr(&stopping));
            let mut reaper = take(&given);
            while !stopping.load(Relaxed) {
                match reaper.reap_within(STOP_LIMIT) {
                    Err(Error::TimedOut) => {}
                    Ok(completion) => callback(Ok(completion)),
                    Err(error) => {
                        callback(Err(error));
                        break;
                    }
                }
            }
            reaper
        };
        match thread::Builder::new().name("bywash-dispatch".into()).spawn(run) {
            Ok(thread) => Ok(Dispatcher { stop, thread: Some(thread), maker: ProcessGeneration::current() }),
            Err(error) => {
                let error = Error::io("start a thread for callbacks", error);
                Err(DispatchError { error, reaper: Box::new(take(&place)) })
            }
        }
    }
}

impl Dispatcher {
    /// Returns true if the caller is a callback of this dispatcher.
    pub fn is_own_callback(&self) -> bool {
        OWN.get() == Arc::as_ptr(&self.stop)
    }

    /// Waits for a callback that is running and returns the reaper. The callback is not called after that.
    ///
    /// # Errors
    /// Returns the dispatcher if the caller is its own callback or a forked child.
    ///
    /// # Panics
    /// If the callback panicked, with the same panic.
    pub fn stop(mut self) -> Result<Reaper, Dispatcher> {
        if self.is_own_callback() || !self.maker.is_here() {
            return Err(self);
        }
        self.stop.store(true, Relaxed);
        let thread = self.thread.take().expect("a dispatcher is joined once");
        Ok(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    }
}

impl Drop for Dispatcher {
    fn drop(&mut self) {
        let is_own_callback = self.is_own_callback();
        let Some(thread) = self.thread.take() else { return };
        if !self.maker.is_here() {
            forget(thread);
            return;
        }
        self.stop.store(true, Relaxed);
        if !is_own_callback {
            let _ = thread.join();
        }
    }
}
