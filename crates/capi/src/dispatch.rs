//! Callbacks: a thread that reaps, and calls a function of the program for each completion.

use crate::channel_client::{Reaping, bywash_channel_client, bywash_completion, client, hand_over};
use crate::error::bywash_error::BYWASH_ERROR_BUSY;
use crate::error::{Failure, answer};
use crate::handles::DEAD;
use ::bywash_channel::{Completion, DispatchError, Error};
use std::ffi::{c_int, c_void};
use std::mem::replace;

/// Callback of bywash_channel_client_dispatch(), called in one thread for one completion after the other.
/// `context` is the argument of bywash_channel_client_dispatch(). If `error` is BYWASH_OK, `completion` is
/// valid until the callback returns, and its buffer belongs to the callback, which uses or frees it. Any
/// other `error` ended the channel: `completion` is null, bywash_last_error_message() returns the message,
/// and no callback follows. (For BYWASH_ERROR_FULL see bywash_channel_client_reap().)
///
/// A callback may call every function of this header except bywash_channel_client_dispatch_stop() for its own
/// client.
pub type bywash_callback =
    Option<unsafe extern "C" fn(context: *mut c_void, error: c_int, completion: *const bywash_completion)>;

/// A function of the program's, and what it wants to be told.
struct Callback {
    call: unsafe extern "C" fn(*mut c_void, c_int, *const bywash_completion),
    context: *mut c_void,
}

// SAFETY: the context is a number to this library. That the program's function may be called with it in
// another thread is what `bywash_channel_client_dispatch` asks of the program.
unsafe impl Send for Callback {}

const NO_CALLBACK: Failure = Failure::null(c"the callback is null");
const DISPATCHED: Failure = Failure::fixed(
    BYWASH_ERROR_BUSY,
    c"the client has a callback; call bywash_channel_client_dispatch_stop() before it gets another one",
);
const FROM_WITHIN: Failure = Failure::fixed(
    BYWASH_ERROR_BUSY,
    c"a callback cannot wait for its own end; stop it from another thread, or close the client",
);

impl Callback {
    fn call(&self, done: Result<Completion, Error>) {
        match done.map(hand_over) {
            Ok((completion, kept)) => self.call_with(answer(kept), &raw const completion),
            Err(error) => self.call_with(answer(Err(error.into())), std::ptr::null()),
        }
    }

    fn call_with(&self, error: c_int, completion: *const bywash_completion) {
        // SAFETY: the program's function, with what the program wants it to be called with.
        unsafe { (self.call)(self.context, error, completion) };
    }
}

/// Starts a thread that calls `callback` for each completion, and once with the error that ends the channel,
/// until bywash_channel_client_dispatch_stop() or bywash_channel_client_close(). No other thread can reap
/// meanwhile (BYWASH_ERROR_BUSY). `context` must remain valid until then.
///
/// BYWASH_ERROR_IO: the thread could not be created.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_channel_client_dispatch(
    client: bywash_channel_client,
    callback: bywash_callback,
    context: *mut c_void,
) -> c_int {
    answer(callback.ok_or(NO_CALLBACK).and_then(|call| {
        let end = self::client(client)?;
        let mut reaping = end.reaping()?;
        match replace(&mut *reaping, Reaping::Gone) {
            Reaping::Here(reaper) => {
                let callback = Callback { call, context };
                match reaper.dispatch(move |done| callback.call(done)) {
                    Ok(dispatcher) => *reaping = Reaping::Dispatched(dispatcher),
                    Err(DispatchError { error, reaper }) => {
                        *reaping = Reaping::Here(*reaper);
                        return Err(error.into());
                    }
                }
                Ok(())
            }
            other @ Reaping::Dispatched(_) => {
                *reaping = other;
                Err(DISPATCHED)
            }
            Reaping::Gone => Err(DEAD),
        }
    }))
}

/// Waits until a running callback has returned (and up to 100 ms longer), and ends the thread that calls
/// back. Afterwards bywash_channel_client_reap() can be used again. Without a dispatcher the call does
/// nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_channel_client_dispatch_stop(client: bywash_channel_client) -> c_int {
    answer(self::client(client).and_then(|end| {
        let mut reaping = end.reaping()?;
        let (next, stopped) = match replace(&mut *reaping, Reaping::Gone) {
            Reaping::Dispatched(dispatcher) => match dispatcher.stop() {
                Ok(reaper) => (Reaping::Here(reaper), Ok(())),
                Err(still) => {
                    let why = if still.is_own_callback() { FROM_WITHIN } else { Error::Forked.into() };
                    (Reaping::Dispatched(still), Err(why))
                }
            },
            other => (other, Ok(())),
        };
        *reaping = next;
        stopped
    }))
}
