//! Callbacks: a thread that reaps, and calls a function of the program for each completion.

use crate::client::{Reaping, bywash_client, bywash_completion, client, hand_over};
use crate::error::bywash_error::BYWASH_ERROR_BUSY;
use crate::error::{Failure, answer};
use crate::handles::DEAD;
use ::bywash_channel::{Completion, Error, NotDispatched};
use std::ffi::{c_int, c_void};
use std::mem::replace;

/// What is called for a completion, in a thread that calls for one after the other. `context` is what was given
/// to bywash_client_dispatch(). `error` is BYWASH_OK, and `completion` is there until the callback returns; its
/// buffer is the callback's to use or free. Or else `error` is what ended the channel, `completion` is null, and
/// nothing more is called: then bywash_last_error_message() has the text. (BYWASH_ERROR_FULL is as in
/// bywash_client_reap().)
///
/// A callback may call everything here but bywash_client_dispatch_stop() of its own client.
pub type bywash_callback =
    Option<unsafe extern "C" fn(context: *mut c_void, error: c_int, completion: *const bywash_completion)>;

/// A function of the program's, and what it wants to be told.
struct Callback {
    call: unsafe extern "C" fn(*mut c_void, c_int, *const bywash_completion),
    context: *mut c_void,
}

// SAFETY: the context is a number to this library. That the program's function may be called with it in another
// thread is what `bywash_client_dispatch` asks of the program.
unsafe impl Send for Callback {}

const NO_CALLBACK: Failure = Failure::null(c"the callback is null");
const DISPATCHED: Failure = Failure::fixed(
    BYWASH_ERROR_BUSY,
    c"the client has a callback; call bywash_client_dispatch_stop() before it gets another one",
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

/// Has `callback` called for each completion, in a thread that waits as the client does, until
/// bywash_client_dispatch_stop() or bywash_client_close(); and once with the error that ends the channel. Nobody
/// else can reap meanwhile (BYWASH_ERROR_BUSY). What `callback` uses must be there until then.
///
/// BYWASH_ERROR_IO: there can be no thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_client_dispatch(
    client: bywash_client,
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
                    Err(NotDispatched { error, reaper }) => {
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

/// Waits until the callback that is running has returned (up to 100 ms longer), and ends callbacks: nothing is
/// called after that, and bywash_client_reap() can be used again. Where there are no callbacks this does nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_client_dispatch_stop(client: bywash_client) -> c_int {
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
