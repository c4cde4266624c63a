//! Calls that wait: other threads of the program run meanwhile, and Ctrl-C ends the wait.
//!
//! Python runs signal handlers between the steps of its main thread, not inside a call. So a call waits in
//! slices, and checks for signals between slices.

use crate::errors::{OrRaise, exception};
use bywash_container::Error;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

/// Length of a slice: greatest time that a signal waits for its handler.
pub(crate) const SLICE: Duration = Duration::from_millis(50);

/// Time at which a wait ends; `None` for a wait without a timeout.
#[derive(Clone, Copy)]
pub(crate) struct Deadline(Option<Instant>);

impl Deadline {
    /// Converts a timeout in seconds from now; `None` means no timeout. Raises `ValueError` for a negative
    /// number or NaN.
    pub(crate) fn after(seconds: Option<f64>) -> PyResult<Deadline> {
        let Some(seconds) = seconds else { return Ok(Deadline(None)) };
        if seconds.is_nan() || seconds < 0.0 {
            let text =
                format!("the timeout is {seconds}, and must be a number of seconds from 0 on, or None");
            return Err(PyValueError::new_err(text));
        }
        // A time that the clock cannot represent counts as no timeout.
        let end = Duration::try_from_secs_f64(seconds).ok();
        Ok(Deadline(end.and_then(|left| Instant::now().checked_add(left))))
    }

    /// Returns the time to wait next, at most [`SLICE`], and true if the timeout expires with it.
    pub(crate) fn next(self) -> (Duration, bool) {
        match self.0.map(|end| end.saturating_duration_since(Instant::now())) {
            Some(left) if left <= SLICE => (left, true),
            _ => (SLICE, false),
        }
    }
}

/// Calls `attempt` until it does something other than time out, or until `limit`. `attempt` gets the greatest
/// time that it may take; it runs without the interpreter and cannot call Python.
pub(crate) fn in_slices<T: Send>(
    py: Python<'_>,
    limit: Deadline,
    mut attempt: impl FnMut(Duration) -> Attempt<T> + Send,
) -> PyResult<T> {
    loop {
        let (slice, is_last) = limit.next();
        match py.detach(|| attempt(slice)) {
            Attempt::Abandoned(gone) => return Err(gone),
            Attempt::Done(Err(Error::TimedOut | Error::AllocTimedOut { .. })) if !is_last => {
                py.check_signals()?
            }
            Attempt::Done(outcome) => return outcome.or_raise(py),
        }
    }
}

/// Result of an attempt.
pub(crate) enum Attempt<T> {
    Done(Result<T, Error>),
    /// The attempt was not made, because its path or queue was closed.
    Abandoned(PyErr),
}

/// Does work that waits and cannot be sliced, in a thread of its own. If a signal ends the wait, the thread
/// goes on until the work ends by itself, and its result is dropped.
pub(crate) fn in_own_thread<T: Send + 'static>(
    py: Python<'_>,
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> PyResult<T> {
    let (done, mut outcome) = sync_channel(1);
    let started = thread::Builder::new().name("bywash-beside".into()).spawn(move || {
        // The send fails if the wait was ended by a signal; then the result is dropped here.
        let _ = done.send(work());
    });
    started.map_err(|source| exception(py, &Error::Io { what: "start a thread".into(), source }))?;
    loop {
        match wait_for(py, &mut outcome) {
            Ok(outcome) => return outcome.or_raise(py),
            Err(RecvTimeoutError::Timeout) => py.check_signals()?,
            Err(RecvTimeoutError::Disconnected) => unreachable!("the thread sends before it ends"),
        }
    }
}

fn wait_for<T: Send>(py: Python<'_>, outcome: &mut Receiver<T>) -> Result<T, RecvTimeoutError> {
    py.detach(move || outcome.recv_timeout(SLICE))
}
