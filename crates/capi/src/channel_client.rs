//! The side that asks: its end of a channel, what is submitted, what comes back.
//!
//! A client has two halves, so that one thread can submit while another one waits for completions. To submit
//! never waits, so who submits at the same time takes turns. To reap may wait: a second thread that wants to
//! is told that somebody does (`BYWASH_ERROR_BUSY`), and so it is while callbacks reap (`dispatch`).

use crate::buffer::{BUFFERS, BufferSource, bywash_buffer, take_of_channel};
use crate::channel::{BYWASH_ARGUMENTS, bywash_channel_stats, lock, wait};
use crate::channel_options::{bywash_channel_client_options, client_options};
use crate::error::bywash_error::BYWASH_ERROR_BUSY;
use crate::error::{Failure, answer};
use crate::handles::{BUSY, DEAD, Table, consume, handles, put, put_sized};
use crate::path::{NULL_STATS, bywash_credentials, check_place, given, name_of};
use ::bywash_channel::{
    BufferAllocator, Client, Completion, Credentials, Dispatcher, Reaper, Submission, SubmitError, Submitter,
};
use std::ffi::{CStr, c_char, c_int};
use std::mem::replace;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};

/// Client's end of a channel. May be used by several threads at a time; one of them may wait for completions.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct bywash_channel_client {
    /// Number of the handle; 0 is no handle.
    pub id: u64,
}

handles! { bywash_channel_client }

/// Request to be submitted. The service defines the meaning of opcode, flags and arguments. Zero the struct,
/// then set the fields that you need. The layout is part of the protocol and will not change.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct bywash_submission {
    /// Operation; the service defines the numbers.
    pub opcode: u8,
    /// Flags of the operation; the service defines the bits.
    pub flags: u8,
    /// Arguments of the operation.
    pub arguments: [u64; BYWASH_ARGUMENTS],
    /// Buffer of the request, or zero.
    pub buffer: bywash_buffer,
    /// Value for the program's own use, such as a pointer. The completion has the same value; the server
    /// never sees it.
    pub user_data: u64,
}

/// Completion of a request. The layout is part of the protocol and will not change.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct bywash_completion {
    /// Result value, defined by the service.
    pub value: u64,
    /// Value of `user_data` in the request.
    pub user_data: u64,
    /// Buffer of the request under a new handle, to be reused or freed. Zero if the request had none.
    pub buffer: bywash_buffer,
    /// Tag of the request.
    pub tag: u16,
    /// Status: 0 is success, the service defines all other numbers.
    pub status: u16,
}

/// A client that C has. Calls that are in flight keep it, whatever another thread does with the handle.
pub(crate) struct ClientEnd {
    /// None: closed.
    submitter: Mutex<Option<Submitter>>,
    reaping: Mutex<Reaping>,
    pub(crate) buffers: BufferAllocator,
    is_closed: AtomicBool,
    peer: Credentials,
    depth: usize,
    fd: c_int,
}

/// Reaping half of the client: a thread that calls, or a dispatcher.
pub(crate) enum Reaping {
    /// Those who call.
    Here(Reaper),
    /// A thread that calls back.
    Dispatched(Dispatcher),
    /// Nobody any more.
    Gone,
}

pub(crate) static CLIENTS: Table<Arc<ClientEnd>> = Table::new();

const NULL_CLIENT: &CStr = c"the pointer for the new client is null";
const DISPATCHED: Failure =
    Failure::fixed(BYWASH_ERROR_BUSY, c"callbacks reap; call bywash_channel_client_dispatch_stop() first");

impl ClientEnd {
    fn new(client: Client) -> ClientEnd {
        let (peer, depth, fd) = (client.peer(), client.depth(), client.as_fd().as_raw_fd());
        let buffers = client.buffers();
        let (submitter, reaper) = client.split();
        ClientEnd {
            buffers,
            submitter: Mutex::new(Some(submitter)),
            reaping: Mutex::new(Reaping::Here(reaper)),
            is_closed: AtomicBool::new(false),
            peer,
            depth,
            fd,
        }
    }

    /// Does what does not wait with the half that submits.
    pub(crate) fn submitting<R>(
        &self,
        work: impl FnOnce(&mut Submitter) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        lock(&self.submitter).as_mut().map_or(Err(DEAD), work)
    }

    /// The other half, if no other thread is in a call with it.
    pub(crate) fn reaping(&self) -> Result<MutexGuard<'_, Reaping>, Failure> {
        match self.reaping.try_lock() {
            Ok(reaping) => Ok(reaping),
            Err(TryLockError::WouldBlock) => Err(BUSY),
            Err(TryLockError::Poisoned(poisoned)) => Ok(poisoned.into_inner()),
        }
    }

    /// Does something with the half that reaps.
    fn reaper<R>(&self, work: impl FnOnce(&mut Reaper) -> Result<R, Failure>) -> Result<R, Failure> {
        match &mut *self.reaping()? {
            Reaping::Here(reaper) => work(reaper),
            Reaping::Dispatched(_) => Err(DISPATCHED),
            Reaping::Gone => Err(DEAD),
        }
    }

    fn close(&self) {
        self.is_closed.store(true, Relaxed);
        drop(lock(&self.submitter).take());
        // A thread that is in a call with it sees soon that it is closed, and drops the end then.
        if let Ok(mut reaping) = self.reaping() {
            let was = replace(&mut *reaping, Reaping::Gone);
            drop(reaping);
            // Without the lock: it may wait for a callback, which may look at this end.
            drop(was);
        }
    }
}

/// A client that stays alive as long as the answer.
pub(crate) fn client(handle: bywash_channel_client) -> Result<Arc<ClientEnd>, Failure> {
    CLIENTS.look(handle, |end| end.clone())
}

/// Keeps a client and tells C its handle.
///
/// # Safety
/// As [`put`].
unsafe fn hand_out(made: Client, place: *mut bywash_channel_client) -> Result<(), Failure> {
    let handle = CLIENTS.insert(Arc::new(ClientEnd::new(made)))?;
    // SAFETY: the caller keeps the contract in this function's Safety section.
    unsafe { put(place, handle, NULL_CLIENT) }
}

/// Connects to the server that listens at a name, and makes the client's end of a channel.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_channel_client_connect(
    name: *const c_char,
    options: bywash_channel_client_options,
    client: *mut bywash_channel_client,
) -> c_int {
    answer(check_place(client, NULL_CLIENT).and_then(|()| {
        let options = client_options(options)?;
        // SAFETY: valid by the header's rule for pointers: a text and a variable of the caller.
        unsafe { hand_out(Client::connect(name_of(name)?, &options)?, client) }
    }))
}

/// Makes the client's end of a channel over a connected descriptor, from bywash_socket_pair() or inherited.
/// Waits until the server does the same at the other end. The library takes the descriptor over and closes it
/// even if the call fails, except with BYWASH_ERROR_ARGUMENT and BYWASH_ERROR_HANDLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_channel_client_over(
    fd: c_int,
    options: bywash_channel_client_options,
    client: *mut bywash_channel_client,
) -> c_int {
    answer(check_place(client, NULL_CLIENT).and_then(|()| {
        let options = client_options(options)?;
        // SAFETY: valid by the header's rule for pointers, and the variable is the caller's.
        unsafe { hand_out(Client::over(given(fd)?, &options)?, client) }
    }))
}

/// Closes this end and zeroes the handle. The server takes the requests that were submitted before, then
/// receives BYWASH_ERROR_CLOSED; its completions are discarded. A call that waits in another thread returns
/// BYWASH_ERROR_HANDLE within 100 ms. Callbacks stop as by bywash_channel_client_dispatch_stop(); if a
/// callback itself closes the client, the call does not wait, and no callback follows. Buffers remain valid,
/// but those in flight are freed. A zero handle is ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_channel_client_close(client: *mut bywash_channel_client) -> c_int {
    // SAFETY: the header's rule: a pointer is null or valid, here to a variable of the caller.
    answer(unsafe { consume(&CLIENTS, client) }.map(|end| {
        if let Some(end) = end {
            end.close();
        }
    }))
}

/// Submits a request, and returns its tag in `tag` (which may be null): a number below the depth, unique
/// among requests in flight. The call never waits; threads that submit at the same time take turns. The
/// buffer then belongs to the server: its handle becomes zero, and the program must not touch the bytes until
/// the completion returns the buffer. On failure the program keeps the buffer, under a new handle that
/// replaces the old one, and the rest of the submission is unchanged.
///
/// BYWASH_ERROR_NO_ROOM: as many requests are in flight as the channel is deep; reap first.
/// BYWASH_ERROR_UNFIT: the buffer belongs to another channel. The death of the server is reported to the
/// thread that reaps.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_channel_client_submit(
    client: bywash_channel_client,
    submission: *mut bywash_submission,
    tag: *mut u16,
) -> c_int {
    answer(
        check_place(submission, c"the pointer to the submission is null")
            // SAFETY: the caller's variables, of which only `tag` may be null.
            .and_then(|()| unsafe { submit(client, submission, tag) }),
    )
}

/// # Safety
/// As [`bywash_client_submit`] says; `submission` is not null.
unsafe fn submit(
    client: bywash_channel_client,
    submission: *mut bywash_submission,
    tag: *mut u16,
) -> Result<(), Failure> {
    self::client(client)?.submitting(|submitter| {
        // SAFETY: the caller keeps the contract in this function's Safety section.
        let (given, place) = unsafe { (submission.read(), &raw mut (*submission).buffer) };
        let buffer = match given.buffer.id {
            0 => None,
            // SAFETY: the header's rule: the caller keeps its pointers valid until the call returns.
            _ => Some(unsafe { take_of_channel(place) }?),
        };
        let bywash_submission { opcode, flags, arguments, user_data, .. } = given;
        match submitter.submit(Submission { opcode, flags, arguments, buffer, user_data }) {
            Ok(given) => {
                if !tag.is_null() {
                    // SAFETY: not null, so valid by the header's rule; a tag has 16 bits in the protocol.
                    unsafe { tag.write(given.index() as u16) };
                }
                Ok(())
            }
            Err(SubmitError { error, submission }) => {
                if let Some(buffer) = submission.buffer {
                    let handle = BUFFERS.insert(BufferSource::Channel(buffer))?;
                    // SAFETY: the header's rule: the caller keeps its pointers valid until the call
                    // returns.
                    unsafe { place.write(handle) };
                }
                Err(error.into())
            }
        }
    })
}

/// Makes of a completion what C gets. The failure is [`crate::error::bywash_error::BYWASH_ERROR_FULL`]: then
/// its buffer was freed.
pub(crate) fn hand_over(done: Completion) -> (bywash_completion, Result<(), Failure>) {
    let Completion { tag, status, value, buffer, user_data } = done;
    let none = bywash_buffer { id: 0 };
    let (buffer, kept) = match buffer.map_or(Ok(none), |buffer| BUFFERS.insert(BufferSource::Channel(buffer)))
    {
        Ok(buffer) => (buffer, Ok(())),
        Err(failure) => (none, Err(failure)),
    };
    // A tag is of 16 bits in the protocol.
    (bywash_completion { value, user_data, buffer, tag: tag.index() as u16, status }, kept)
}

/// Waits up to `timeout_ns` nanoseconds for the next completion of any request (negative: for ever; 0: not at
/// all). One thread at a time may reap; others may submit meanwhile.
///
/// BYWASH_ERROR_TIMED_OUT: no completion arrived. BYWASH_ERROR_CLOSED, BYWASH_ERROR_PEER_DIED: all
/// completions that the server sent were reaped, and no more will arrive; a timeout of 0 does not detect the
/// death of the server. BYWASH_ERROR_BUSY: another thread waits, or a dispatcher reaps. BYWASH_ERROR_FULL:
/// `completion` is valid, but its buffer was freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_channel_client_reap(
    client: bywash_channel_client,
    timeout_ns: i64,
    completion: *mut bywash_completion,
) -> c_int {
    const NULL: &CStr = c"the pointer for the completion is null";
    answer(check_place(completion, NULL).and_then(|()| {
        let end = self::client(client)?;
        let done = end.reaper(|reaper| {
            wait(timeout_ns, &end.is_closed, |limit| match limit {
                None => reaper.try_reap(),
                Some(limit) => reaper.reap_within(limit).map(Some),
            })
        })?;
        let (done, kept) = hand_over(done);
        // SAFETY: not null, so valid by the header's rule, and the variable is the caller's.
        unsafe { completion.write(done) };
        kept
    }))
}

/// Prepares the descriptor for an event loop. Reap with a timeout of 0 until BYWASH_ERROR_TIMED_OUT, then
/// call this function. With `ready` 0 the descriptor becomes readable when the server completes a request or
/// ends. With `ready` 1 a completion is ready: reap it. The next call makes the descriptor unreadable again,
/// and reports the death of the server.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_channel_client_arm(
    client: bywash_channel_client,
    ready: *mut c_int,
) -> c_int {
    const NULL: &CStr = c"the pointer for whether something is there is null";
    answer(check_place(ready, NULL).and_then(|()| {
        let armed = self::client(client)?.reaper(|reaper| Ok(reaper.arm()?))?;
        // SAFETY: not null, so valid by the header's rule, and the variable is the caller's.
        unsafe { put(ready, c_int::from(armed), NULL) }
    }))
}

/// Returns the channel's descriptor for an event loop; see bywash_channel_client_arm(). The descriptor
/// remains the library's: poll it, and do nothing else with it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_channel_client_fd(client: bywash_channel_client, fd: *mut c_int) -> c_int {
    let known = CLIENTS.look(client, |end| end.fd);
    // SAFETY: the header's rule: a pointer is null or valid, here to a variable of the caller.
    answer(known.and_then(|known| unsafe { put(fd, known, c"the pointer for the descriptor is null") }))
}

/// Returns the number of requests in flight: submitted and not reaped. The number is approximate while other
/// threads submit and reap.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_channel_client_in_flight(
    client: bywash_channel_client,
    requests: *mut u32,
) -> c_int {
    let known = self::client(client).and_then(|end| end.submitting(|submitter| Ok(submitter.stats())));
    // No more than the depth, and none less than none where the counts are of different moments.
    let in_flight = known.map(|known| known.requests.saturating_sub(known.completions) as u32);
    // SAFETY: the header's rule: a pointer is null or valid, here to a variable of the caller.
    answer(in_flight.and_then(|count| unsafe { put(requests, count, NULL_NUMBER) }))
}

const NULL_NUMBER: &CStr = c"the pointer for the number of requests is null";

/// Returns the depth: the greatest number of requests in flight.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_channel_client_depth(
    client: bywash_channel_client,
    requests: *mut u32,
) -> c_int {
    let known = CLIENTS.look(client, |end| end.depth as u32);
    // SAFETY: the header's rule: a pointer is null or valid, here to a variable of the caller.
    answer(known.and_then(|known| unsafe { put(requests, known, NULL_NUMBER) }))
}

/// Returns the credentials of the server, as the kernel states them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_channel_client_peer(
    client: bywash_channel_client,
    peer: *mut bywash_credentials,
) -> c_int {
    let known = CLIENTS.look(client, |end| end.peer.into());
    // SAFETY: the header's rule: a pointer is null or valid, here to a variable of the caller.
    answer(known.and_then(|known| unsafe { put(peer, known, c"the pointer for the peer is null") }))
}

/// Returns the counters of this end. `size` is sizeof(struct bywash_channel_stats) as the program was
/// compiled; the call writes that many bytes, and counters that the library does not know are 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_channel_client_stats(
    client: bywash_channel_client,
    stats: *mut bywash_channel_stats,
    size: usize,
) -> c_int {
    let known = self::client(client).and_then(|end| end.submitting(|submitter| Ok(submitter.stats().into())));
    // SAFETY: the header's rule: a pointer is null or valid, here to `size` bytes.
    answer(known.and_then(|known| unsafe { put_sized(stats, size, known, NULL_STATS) }))
}
