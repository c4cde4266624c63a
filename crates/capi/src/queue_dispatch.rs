//! Callbacks of queues: a thread that reaps, and calls a function of the program for each request that is done.

use crate::error::bywash_error::BYWASH_ERROR_BUSY;
use crate::error::{Failure, answer};
use crate::handles::DEAD;
use crate::queue::{STOPPING, State, bywash_done, bywash_queue, queue};
use ::bywash_channel::Error as ChannelError;
use ::bywash_client::{Completion, Error};
use std::ffi::{c_int, c_void};
use std::mem::replace;
use std::sync::atomic::Ordering::Relaxed;

/// Callback of bywash_queue_dispatch(), called in one thread for one completed request after the other. `context` is the
/// argument of bywash_queue_dispatch(). If `error` is BYWASH_OK, `done` is valid until the callback returns, its buffer
/// belongs to the callback, and its field `error` is the result of the request. Any other `error` ended the queue: `done` is
/// null, bywash_last_error_message() returns the message, and no callback follows.
///
/// A callback may call every function of this header except bywash_queue_dispatch_stop() for its own queue.
pub type bywash_queue_callback =
    Option<unsafe extern "C" fn(context: *mut c_void, error: c_int, done: *const bywash_done)>;

/// A function of the program's, and what it wants to be told.
struct Callback {
    call: unsafe extern "C" fn(*mut c_void, c_int, *const bywash_done),
    context: *mut c_void,
}

// SAFETY: the context is a number to this library. That the program's function may be called with it in another thread is
// what `bywash_queue_dispatch` asks of the program.
unsafe impl Send for Callback {}

impl Callback {
    fn call(&self, error: c_int, done: *const bywash_done) {
        // SAFETY: the program's function, with what the program wants it to be called with.
        unsafe { (self.call)(self.context, error, done) };
    }
}

const NO_CALLBACK: Failure = Failure::null(c"the callback is null");
const DISPATCHED: Failure = Failure::fixed(
    BYWASH_ERROR_BUSY,
    c"the queue has a callback; call bywash_queue_dispatch_stop() before it gets another one",
);
const FROM_WITHIN: Failure = Failure::fixed(
    BYWASH_ERROR_BUSY,
    c"a callback cannot wait for its own end; stop it from another thread, or close the queue",
);

/// Starts a thread that calls `callback` for each completed request, and once with the error that ends the queue, until
/// bywash_queue_dispatch_stop() or bywash_queue_close(). Any thread may submit meanwhile, the callback included, but no
/// other thread can reap (BYWASH_ERROR_BUSY). `context` must remain valid until then.
///
/// BYWASH_ERROR_IO: the thread could not be created, and the queue has ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_queue_dispatch(
    queue: bywash_queue,
    callback: bywash_queue_callback,
    context: *mut c_void,
) -> c_int {
    answer(callback.ok_or(NO_CALLBACK).and_then(|call| {
        let end = self::queue(queue)?;
        let mut state = end.state()?;
        match replace(&mut *state, State::Gone) {
            State::Here(queue) => {
                let (callback, notes) = (Callback { call, context }, end.notes.clone());
                let reaped = move |done: Result<Completion, Error>| match done {
                    // From within a callback.
                    _ if notes.is_closed.load(Relaxed) => {}
                    Ok(done) => {
                        // SAFETY: what was lent is there until it is called for.
                        let done = unsafe { notes.finish(done) };
                        callback.call(0, &raw const done);
                    }
                    Err(error) => callback.call(answer(Err(error.into())), std::ptr::null()),
                };
                // Before the first callback, which waits for the state then.
                end.is_dispatched.store(true, Relaxed);
                let dispatcher = queue.dispatch(reaped);
                end.is_dispatched.store(dispatcher.is_ok(), Relaxed);
                *state = State::Dispatched(dispatcher?);
                Ok(())
            }
            State::Gone => Err(DEAD),
            other => {
                let why = if matches!(other, State::Stopping) { STOPPING } else { DISPATCHED };
                *state = other;
                Err(why)
            }
        }
    }))
}

/// Waits until a running callback has returned, and ends the thread that calls back. Afterwards bywash_queue_reap() can be
/// used again. Without a dispatcher the call does nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_queue_dispatch_stop(queue: bywash_queue) -> c_int {
    answer(self::queue(queue).and_then(|end| {
        let mut state = end.state()?;
        let dispatcher = match replace(&mut *state, State::Stopping) {
            State::Dispatched(dispatcher) if dispatcher.is_own_callback() => {
                *state = State::Dispatched(dispatcher);
                return Err(FROM_WITHIN);
            }
            State::Dispatched(dispatcher) => dispatcher,
            other => {
                let outcome = match &other {
                    State::Gone => Err(DEAD),
                    State::Stopping => Err(STOPPING),
                    _ => Ok(()),
                };
                *state = other;
                return outcome;
            }
        };
        drop(state);
        // Without the lock: the callback may want it.
        let (next, stopped) = match dispatcher.stop() {
            Ok(queue) => (State::Here(Box::new(queue)), Ok(())),
            Err(still) => (State::Dispatched(still), Err(ChannelError::Forked.into())),
        };
        let mut state = end.state()?;
        if matches!(*state, State::Stopping) {
            end.is_dispatched.store(stopped.is_err(), Relaxed);
            *state = next;
        }
        stopped
    }))
}
