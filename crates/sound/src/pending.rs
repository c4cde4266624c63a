//! Operations of the sound library that may block, each on a thread of its own.
//!
//! A plugin that speaks to a daemon waits for it without a limit. The caller of such an operation waits as long as it
//! likes; a thread whose caller has gone ends when the plugin lets it, or with the process.

use crate::error::Error;
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread;
use std::time::Duration;

/// An operation that goes on on a thread of its own.
#[derive(Debug)]
pub struct Pending<T>(Receiver<Result<T, Error>>);

impl<T: Send + 'static> Pending<T> {
    /// Starts an operation.
    ///
    /// # Errors
    /// [`Error::Thread`] if no thread can be started.
    pub(crate) fn start(
        work: impl FnOnce() -> Result<T, Error> + Send + 'static,
    ) -> Result<Pending<T>, Error> {
        let (sender, receiver) = sync_channel(1);
        let named = thread::Builder::new().name("sound".into());
        // If nobody waits for the result any more, it is dropped, which closes a device.
        let started = named.spawn(move || drop(sender.send(work())));
        started.map(|_| Pending(receiver)).map_err(Error::Thread)
    }

    /// Waits for the result, at most this long. Returns `None` if the operation still goes on.
    pub fn wait(&self, limit: Duration) -> Option<Result<T, Error>> {
        match self.0.recv_timeout(limit) {
            Ok(result) => Some(result),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => {
                Some(Err(Error::Thread(io::Error::other("it has ended without a result"))))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_waits_no_longer_than_it_likes() {
        let (release, wait) = sync_channel::<()>(0);
        let pending = Pending::start(move || Ok(wait.recv().is_ok())).unwrap();
        assert!(pending.wait(Duration::from_millis(10)).is_none());
        release.send(()).unwrap();
        assert!(pending.wait(Duration::from_secs(60)).unwrap().unwrap());
        assert!(matches!(pending.wait(Duration::from_secs(60)), Some(Err(Error::Thread(_)))));
    }
}
