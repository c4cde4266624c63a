//! Cores without a thread of their own: the thread that waits for one steps it.

use crate::bell::Bell;
use crate::core::Core;
use std::cell::RefCell;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::time::Instant;

/// A stepped core, with the bell that its orders ring.
type KnownCore = (Arc<Bell>, Weak<RefCell<Core>>);

thread_local! {
    /// Cores that this thread steps.
    static CORES: RefCell<Vec<KnownCore>> = const { RefCell::new(Vec::new()) };
}

/// Adds a core that listens to `bell` to those that the caller's thread steps.
pub(crate) fn add(bell: Arc<Bell>, core: &Rc<RefCell<Core>>) {
    CORES.with_borrow_mut(|cores| cores.push((bell, Rc::downgrade(core))));
}

/// Removes a core from those that the caller's thread steps.
pub(crate) fn remove(core: &Rc<RefCell<Core>>) {
    // The thread-local list may have been destroyed already when the thread ends.
    let _ = CORES.try_with(|cores| {
        cores.borrow_mut().retain(|(_, known)| !Weak::ptr_eq(known, &Rc::downgrade(core)));
    });
}

/// Returns true if the caller's thread steps no core.
#[cfg(test)]
pub(crate) fn is_none() -> bool {
    CORES.with_borrow(Vec::is_empty)
}

/// Returns true if the caller's thread steps the core that listens to this bell.
pub(crate) fn is_here(bell: &Arc<Bell>) -> bool {
    // The thread-local list may have been destroyed already when the thread ends; then no core is found.
    let found = CORES.try_with(|cores| cores.borrow().iter().any(|(own, _)| Arc::ptr_eq(own, bell)));
    found.unwrap_or(false)
}

/// Steps all cores of the caller's thread until one of them has sent something or `until` has passed.
pub(crate) fn step_until_there<T>(
    receiver: &Receiver<T>,
    until: Option<Instant>,
) -> Result<T, RecvTimeoutError> {
    loop {
        match receiver.try_recv() {
            Ok(sent) => return Ok(sent),
            Err(TryRecvError::Disconnected) => return Err(RecvTimeoutError::Disconnected),
            Err(TryRecvError::Empty) => {}
        }
        if until.is_some_and(|until| until <= Instant::now()) {
            return Err(RecvTimeoutError::Timeout);
        }
        // Several cores of a server may have to answer.
        let cores: Vec<_> =
            CORES.with_borrow(|cores| cores.iter().filter_map(|(_, core)| core.upgrade()).collect());
        for core in cores {
            core.borrow_mut().round(false);
        }
    }
}
