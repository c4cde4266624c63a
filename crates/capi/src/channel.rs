//! Parts that both ends of a channel share: methods of waiting, and counters.

use crate::error::Failure;
use crate::handles::DEAD;
use crate::path::limit;
use ::bywash_channel::{ARGUMENTS, Error, Stats};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Number of arguments of a request.
pub const BYWASH_ARGUMENTS: usize = 6;
const _: () = assert!(BYWASH_ARGUMENTS == ARGUMENTS);

/// Counters of one end of a channel. Counts may be slightly off if several threads use the end.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct bywash_channel_stats {
    /// Requests submitted, or taken by the server.
    pub requests: u64,
    /// Completions sent, or reaped by the client.
    pub completions: u64,
    /// Bytes copied into buffers and out of them.
    pub copied_bytes: u64,
    /// Waits that ended while spinning.
    pub spins: u64,
    /// Sleeps on a futex.
    pub futex_sleeps: u64,
    /// Sleeps on the socket.
    pub socket_sleeps: u64,
    /// Times that this end woke the peer by a futex.
    pub futex_wakes: u64,
    /// Times that this end woke the peer through the socket.
    pub doorbells: u64,
}

impl From<Stats> for bywash_channel_stats {
    fn from(known: Stats) -> bywash_channel_stats {
        bywash_channel_stats {
            requests: known.requests,
            completions: known.completions,
            copied_bytes: known.copied_bytes,
            spins: known.spins,
            futex_sleeps: known.futex_sleeps,
            socket_sleeps: known.socket_sleeps,
            futex_wakes: known.futex_wakes,
            doorbells: known.doorbells,
        }
    }
}

/// Longest time until a call that waits sees that another thread has closed its end.
const CLOSE_LIMIT: Duration = Duration::from_millis(100);

/// Waits as C says, for what `attempt` answers when it is told how long it may take (`None`: it only looks).
pub(crate) fn wait<R>(
    timeout_ns: i64,
    is_closed: &AtomicBool,
    mut attempt: impl FnMut(Option<Duration>) -> Result<Option<R>, Error>,
) -> Result<R, Failure> {
    if let Some(found) = attempt(None)? {
        return Ok(found);
    }
    let limit = limit(timeout_ns);
    if limit.is_some_and(|limit| limit.is_zero()) {
        return Err(Failure::NOT_NOW);
    }
    // No end: for ever, or for longer than the clock goes.
    let end = limit.and_then(|limit| Instant::now().checked_add(limit));
    loop {
        if is_closed.load(Relaxed) {
            return Err(DEAD);
        }
        let left = end.map_or(CLOSE_LIMIT, |end| end.saturating_duration_since(Instant::now()));
        match attempt(Some(left.min(CLOSE_LIMIT))) {
            Ok(Some(found)) => return Ok(found),
            Ok(None) | Err(Error::TimedOut) if end.is_none_or(|end| Instant::now() < end) => {}
            Ok(None) => return Err(Error::TimedOut.into()),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Locks; a panic ends the program, so that it leaves nothing behind.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
