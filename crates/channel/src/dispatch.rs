//! Callbacks: a thread that reaps and calls.

use crate::client::{Completion, Reaper};
use bywash_link::{Error, Maker};
use bywash_sync::{AtomicBool, Ordering::Relaxed};
use std::cell::Cell;
use std::mem::forget;
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Longest time until a dispatcher sees that it shall stop.
const STOP_LIMIT: Duration = Duration::from_millis(100);

thread_local! {
    /// By what the dispatcher whose thread this is is known.
    static OWN: Cell<*const AtomicBool> = const { Cell::new(ptr::null()) };
}

/// A thread that calls back for each completion, until it is stopped or dropped.
///
/// To drop it waits for the callback that is running, if one is; but not from within the callback itself, whose thread
/// ends when it returns. In a forked child, which does not have the thread, nothing happens.
#[derive(Debug)]
pub struct Dispatcher {
    stop: Arc<AtomicBool>,
    /// There until it was joined.
    thread: Option<JoinHandle<Reaper>>,
    maker: Maker,
}

/// What could not be dispatched, and why.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct NotDispatched {
    /// Why.
    #[source]
    pub error: Error,
    /// What was given, unharmed.
    pub reaper: Box<Reaper>,
}

impl Reaper {
    /// Calls `callback` for each completion, in a thread of its own that waits as the client does; and once with the
    /// error that ends the channel.
    ///
    /// # Errors
    /// [`Error::Io`] if there can be no thread.
    pub fn dispatch(
        self,
        mut callback: impl FnMut(Result<Completion, Error>) + Send + 'static,
    ) -> Result<Dispatcher, NotDispatched> {
        let stop = Arc::new(AtomicBool::new(false));
        // A place of its own, so that it is still there when there can be no thread.
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
            Ok(thread) => Ok(Dispatcher { stop, thread: Some(thread), maker: Maker::this() }),
            Err(error) => {
                let error = Error::io("start a thread for callbacks", error);
                Err(NotDispatched { error, reaper: Box::new(take(&place)) })
            }
        }
    }
}

impl Dispatcher {
    /// Whether this is called by the callback itself.
    pub fn is_own_callback(&self) -> bool {
        OWN.get() == Arc::as_ptr(&self.stop)
    }

    /// Waits for the callback that is running, if one is, and gives the reaper back: nothing is called after that.
    ///
    /// # Errors
    /// The dispatcher, if it is its own callback that calls this, or a forked child.
    ///
    /// # Panics
    /// As the callback did.
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
