//! Callbacks: a thread that reaps and calls.

use crate::client::{Completion, Reaper};
use bywash_link::Error;
use bywash_sync::{AtomicBool, Ordering::Relaxed};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Longest time until a dispatcher sees that it shall stop.
const STOP_LIMIT: Duration = Duration::from_millis(100);

/// A thread that calls back for each completion, until it is stopped or dropped.
#[derive(Debug)]
pub struct Dispatcher {
    stop: Arc<AtomicBool>,
    /// There until it was joined.
    thread: Option<JoinHandle<Reaper>>,
}

impl Reaper {
    /// Calls `callback` for each completion, in a thread of its own that waits as the client does; and once with the
    /// error that ends the channel.
    ///
    /// # Errors
    /// [`Error::Io`] if there can be no thread.
    pub fn dispatch(
        mut self,
        mut callback: impl FnMut(Result<Completion, Error>) + Send + 'static,
    ) -> Result<Dispatcher, Error> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopping = stop.clone();
        let run = move || {
            while !stopping.load(Relaxed) {
                match self.reap_within(STOP_LIMIT) {
                    Err(Error::TimedOut) => {}
                    Ok(completion) => callback(Ok(completion)),
                    Err(error) => {
                        callback(Err(error));
                        break;
                    }
                }
            }
            self
        };
        let thread = thread::Builder::new().name("bywash-dispatch".into()).spawn(run);
        let thread = thread.map_err(|error| Error::io("start a thread for callbacks", error))?;
        Ok(Dispatcher { stop, thread: Some(thread) })
    }
}

impl Dispatcher {
    /// Waits for the callback that is running, if one is, and gives the reaper back: nothing is called after that.
    ///
    /// # Panics
    /// As the callback did; or if it is the callback that calls this.
    pub fn stop(mut self) -> Reaper {
        self.stop.store(true, Relaxed);
        let thread = self.thread.take().expect("a dispatcher is joined once");
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

impl Drop for Dispatcher {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        // Its own callback may drop it: then the thread ends when that returns.
        if let Some(thread) = self.thread.take().filter(|it| it.thread().id() != thread::current().id()) {
            let _ = thread.join();
        }
    }
}
