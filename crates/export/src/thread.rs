//! The thread of an export.
//!
//! Invariant: whoever drops an [`ExportThread`] waits [`STOP_LIMIT`] at most, even if a device never completes a
//! request. Called by the crates that serve exports.

use crate::error::Error;
use crate::signal::Signal;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

/// Greatest time to wait for the thread of an export to stop.
pub const STOP_LIMIT: Duration = Duration::from_secs(10);

/// Thread of an export, which is stopped and waited for when this value is dropped.
#[derive(Debug)]
pub struct ExportThread {
    stop: Signal,
    /// Closed when the thread has dropped all that it served. The lock only makes this value one that threads can
    /// share; nobody but the destructor takes it.
    ended: Mutex<Receiver<()>>,
    thread: Option<JoinHandle<()>>,
}

impl ExportThread {
    /// Starts a thread that carries out `serve`, which has to return soon after `stop` was given. Of `name` the
    /// kernel keeps the first 15 bytes.
    ///
    /// # Errors
    /// [`Error::Io`] if no thread can be made.
    pub fn start(
        name: &str,
        stop: &Signal,
        serve: impl FnOnce() + Send + 'static,
    ) -> Result<ExportThread, Error> {
        let (end, ended) = channel();
        let carry_out = move || {
            serve();
            drop(end);
        };
        let thread = Builder::new().name(name.replace('\0', "")).spawn(carry_out);
        let thread = thread.map_err(|error| Error::io("start a thread", error))?;
        Ok(ExportThread { stop: stop.clone(), ended: Mutex::new(ended), thread: Some(thread) })
    }
}

impl Drop for ExportThread {
    /// Gives the signal to stop, and waits [`STOP_LIMIT`] at most. After that the thread is abandoned, and ends
    /// when the device allows it.
    fn drop(&mut self) {
        self.stop.give();
        // Nothing is ever sent over this channel: the thread drops its end when it stops.
        let ended = self.ended.get_mut().unwrap_or_else(PoisonError::into_inner);
        let is_left = ended.recv_timeout(STOP_LIMIT) == Err(RecvTimeoutError::Timeout);
        if let Some(thread) = self.thread.take().filter(|_| !is_left) {
            // The panic hook has already printed a panic of the thread.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::Timespec;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    const FOREVER: Timespec = Timespec { tv_sec: 1 << 30, tv_nsec: 0 };

    /// Sets a flag when dropped.
    struct SetsAtEnd(Arc<AtomicBool>);

    impl Drop for SetsAtEnd {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    #[test]
    fn all_that_was_served_is_dropped_before_the_owner_goes_on() {
        let (stop, is_over) = (Signal::new().unwrap(), Arc::new(AtomicBool::new(false)));
        let (theirs, served) = (stop.clone(), SetsAtEnd(is_over.clone()));
        let serve = move || {
            let _served = served;
            assert!(theirs.wait(&FOREVER));
        };
        let thread = ExportThread::start("a\0 long name of a thread", &stop, serve).unwrap();
        assert!(!is_over.load(Ordering::Relaxed));
        drop(thread);
        assert!(is_over.load(Ordering::Relaxed));
    }

    #[test]
    fn a_thread_that_has_ended_by_itself_is_not_waited_for() {
        let stop = Signal::new().unwrap();
        let began = std::time::Instant::now();
        drop(ExportThread::start("short", &stop, || {}).unwrap());
        assert!(began.elapsed() < STOP_LIMIT);
    }
}
