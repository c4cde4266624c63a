//! The side that asks: its end of a channel, what is submitted, what comes back.
//!
//! A client has two halves, so that one thread can submit while another one waits for completions. To submit never
//! waits, so who submits at the same time takes turns. To reap may wait: a second thread that wants to is told
//! that somebody does (`BYWASH_ERROR_BUSY`), and so it is while callbacks reap (`dispatch`).

use crate::buffer::{BUFFERS, Memory, bywash_buffer, take_of_channel};
use crate::channel::{BYWASH_ARGUMENTS, bywash_channel_stats, lock, wait};
use crate::channel_options::{bywash_client_options, client_options};
use crate::error::bywash_error::BYWASH_ERROR_BUSY;
use crate::error::{Failure, answer};
use crate::handles::{BUSY, DEAD, Table, consume, handles, put, put_sized};
use crate::path::{NULL_STATS, bywash_credentials, check_place, given, name_of};
use ::bywash_channel::{
    Buffers, Client, Completion, Credentials, Dispatcher, NotSubmitted, Reaper, Submission, Submitter,
};
use std::ffi::{CStr, c_char, c_int};
use std::mem::replace;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};

/// The client's end of a channel. May be used by several threads at a time; one of them may wait for
/// completions.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct bywash_client {
    /// 0: none.
    pub id: u64,
}

handles! { bywash_client }

/// What is to be submitted; the service says what opcode, flags and arguments mean. Set all of it to zero and
/// then what you need. This struct stays as it is, as the protocol's requests do.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct bywash_submission {
    /// What to do.
    pub opcode: u8,
    /// How.
    pub flags: u8,
    /// With what.
    pub arguments: [u64; BYWASH_ARGUMENTS],
    /// Memory that goes along, or zero.
    pub buffer: bywash_buffer,
    /// Yours: the server does not see it, and it comes back with the completion. A pointer, say.
    pub user_data: u64,
}

/// What became of a request. This struct stays as it is, as the protocol's completions do.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct bywash_completion {
    /// What the service says.
    pub value: u64,
    /// What was given with the request.
    pub user_data: u64,
    /// The memory that went along, under a new handle: to be used again, or freed. Zero if there was none.
    pub buffer: bywash_buffer,
    /// Which request it was.
    pub tag: u16,
    /// How it went: 0 is success, the rest is the service's.
    pub status: u16,
}

/// A client that C has. Calls that are under way keep it, whatever another thread does with the handle.
pub(crate) struct End {
    /// None: closed.
    submitter: Mutex<Option<Submitter>>,
    reaping: Mutex<Reaping>,
    pub(crate) buffers: Buffers,
    is_closed: AtomicBool,
    peer: Credentials,
    depth: usize,
    fd: c_int,
}

/// Who reaps.
pub(crate) enum Reaping {
    /// Those who call.
    Here(Reaper),
    /// A thread that calls back.
    Dispatched(Dispatcher),
    /// Nobody any more.
    Gone,
}

pub(crate) static CLIENTS: Table<Arc<End>> = Table::new();

const NULL_CLIENT: &CStr = c"the pointer for the new client is null";
const DISPATCHED: Failure =
    Failure::fixed(BYWASH_ERROR_BUSY, c"callbacks reap; call bywash_client_dispatch_stop() first");

impl End {
    fn new(client: Client) -> End {
        let (peer, depth, fd) = (client.peer(), client.depth(), client.as_fd().as_raw_fd());
        let buffers = client.buffers();
        let (submitter, reaper) = client.split();
        End {
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
pub(crate) fn client(handle: bywash_client) -> Result<Arc<End>, Failure> {
    CLIENTS.look(handle, |end| end.clone())
}

/// Keeps a client and tells C its handle.
///
/// # Safety
/// As [`put`].
unsafe fn hand_out(made: Client, place: *mut bywash_client) -> Result<(), Failure> {
    let handle = CLIENTS.insert(Arc::new(End::new(made)))?;
    // SAFETY: what the caller promises.
    unsafe { put(place, handle, NULL_CLIENT) }
}

/// Makes a channel to the server that listens at a name, as its client.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_client_connect(
    name: *const c_char,
    options: bywash_client_options,
    client: *mut bywash_client,
) -> c_int {
    answer(check_place(client, NULL_CLIENT).and_then(|()| {
        let options = client_options(options)?;
        // SAFETY: the caller's text and variable.
        unsafe { hand_out(Client::connect(name_of(name)?, &options)?, client) }
    }))
}

/// Makes the client's end of a channel over a connected descriptor of bywash_socket_pair(), or one that was
/// inherited. Waits until the server does the same with the other one. The descriptor is the library's from here
/// on, and is closed even if this fails, except with BYWASH_ERROR_ARGUMENT and BYWASH_ERROR_HANDLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_client_over(
    fd: c_int,
    options: bywash_client_options,
    client: *mut bywash_client,
) -> c_int {
    answer(check_place(client, NULL_CLIENT).and_then(|()| {
        let options = client_options(options)?;
        // SAFETY: the caller's variable.
        unsafe { hand_out(Client::over(given(fd)?, &options)?, client) }
    }))
}

/// Closes this end and zeroes the handle. The server takes what was submitted before, and hears then that there
/// is no more; what it completes goes nowhere. A call that waits in another thread ends within 100 ms, with
/// BYWASH_ERROR_HANDLE. Callbacks are stopped as by bywash_client_dispatch_stop(); called from within one, this
/// does not wait for it, and nothing is called after it. Buffers stay what they are, but those that are under
/// way are freed. Zero is left alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_client_close(client: *mut bywash_client) -> c_int {
    // SAFETY: the caller's variable, or null.
    answer(unsafe { consume(&CLIENTS, client) }.map(|end| {
        if let Some(end) = end {
            end.close();
        }
    }))
}

/// Submits a request, and tells its tag: less than the depth, and its own until its completion (`tag` may be
/// null). It never waits; threads that submit at the same time take turns. The buffer is the server's then: its
/// handle becomes zero, and its bytes must not be touched until it comes back with the completion. On failure the
/// buffer stays, under a new handle that takes the old one's place, and the rest of the submission is as it was.
///
/// BYWASH_ERROR_NO_ROOM: as many requests are under way as the channel is deep; reap first. BYWASH_ERROR_UNFIT:
/// the buffer is of another channel. That the server is gone is heard of by those who reap.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_client_submit(
    client: bywash_client,
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
    client: bywash_client,
    submission: *mut bywash_submission,
    tag: *mut u16,
) -> Result<(), Failure> {
    self::client(client)?.submitting(|submitter| {
        // SAFETY: what the caller promises.
        let (given, place) = unsafe { (submission.read(), &raw mut (*submission).buffer) };
        let buffer = match given.buffer.id {
            0 => None,
            // SAFETY: as above.
            _ => Some(unsafe { take_of_channel(place) }?),
        };
        let bywash_submission { opcode, flags, arguments, user_data, .. } = given;
        match submitter.submit(Submission { opcode, flags, arguments, buffer, user_data }) {
            Ok(given) => {
                if !tag.is_null() {
                    // SAFETY: as above. A tag is of 16 bits in the protocol.
                    unsafe { tag.write(given.index() as u16) };
                }
                Ok(())
            }
            Err(NotSubmitted { error, submission }) => {
                if let Some(buffer) = submission.buffer {
                    let handle = BUFFERS.insert(Memory::Channel(buffer))?;
                    // SAFETY: as above.
                    unsafe { place.write(handle) };
                }
                Err(error.into())
            }
        }
    })
}

/// Makes of a completion what C gets. The failure is [`crate::error::bywash_error::BYWASH_ERROR_FULL`]: then its
/// buffer was freed.
pub(crate) fn hand_over(done: Completion) -> (bywash_completion, Result<(), Failure>) {
    let Completion { tag, status, value, buffer, user_data } = done;
    let none = bywash_buffer { id: 0 };
    let (buffer, kept) = match buffer.map_or(Ok(none), |buffer| BUFFERS.insert(Memory::Channel(buffer))) {
        Ok(buffer) => (buffer, Ok(())),
        Err(failure) => (none, Err(failure)),
    };
    // A tag is of 16 bits in the protocol.
    (bywash_completion { value, user_data, buffer, tag: tag.index() as u16, status }, kept)
}

/// Waits for the next completion, of whichever request, for `timeout_ns` nanoseconds (negative: for ever; 0: not
/// at all). One thread at a time; others may submit meanwhile.
///
/// BYWASH_ERROR_TIMED_OUT: there was none. BYWASH_ERROR_CLOSED, BYWASH_ERROR_PEER_DIED: what the server had
/// completed before came first, and the rest will not come; that it died is not seen with a time of 0.
/// BYWASH_ERROR_BUSY: another thread waits, or callbacks reap. BYWASH_ERROR_FULL: the completion is there all the
/// same, and its buffer was freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_client_reap(
    client: bywash_client,
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
        // SAFETY: the caller's variable, which is not null.
        unsafe { completion.write(done) };
        kept
    }))
}

/// For event loops. Reap with a time of 0 until there is nothing; then call this. `ready` 0: from now on the
/// descriptor becomes readable when the server completes something or is gone. `ready` 1: something is there
/// already, reap it. What made the descriptor readable is taken away by the next call of this, which also is who
/// hears that the server died.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_client_arm(client: bywash_client, ready: *mut c_int) -> c_int {
    const NULL: &CStr = c"the pointer for whether something is there is null";
    answer(check_place(ready, NULL).and_then(|()| {
        let armed = self::client(client)?.reaper(|reaper| Ok(reaper.arm()?))?;
        // SAFETY: the caller's variable, which is not null.
        unsafe { put(ready, c_int::from(armed), NULL) }
    }))
}

/// Tells the channel's descriptor, for an event loop; see bywash_client_arm(). It stays the library's: poll it,
/// and do nothing else with it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_client_fd(client: bywash_client, fd: *mut c_int) -> c_int {
    let known = CLIENTS.look(client, |end| end.fd);
    // SAFETY: the caller's variable, or null.
    answer(known.and_then(|known| unsafe { put(fd, known, c"the pointer for the descriptor is null") }))
}

/// Tells how many requests are under way: submitted, and not reaped. While other threads submit and reap it may
/// be off by what they are just doing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_client_under_way(client: bywash_client, requests: *mut u32) -> c_int {
    let known = self::client(client).and_then(|end| end.submitting(|submitter| Ok(submitter.stats())));
    // No more than the depth, and none less than none where the counts are of different moments.
    let under_way = known.map(|known| known.requests.saturating_sub(known.completions) as u32);
    // SAFETY: the caller's variable, or null.
    answer(under_way.and_then(|count| unsafe { put(requests, count, NULL_NUMBER) }))
}

const NULL_NUMBER: &CStr = c"the pointer for the number of requests is null";

/// Tells how many requests can be under way at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_client_depth(client: bywash_client, requests: *mut u32) -> c_int {
    let known = CLIENTS.look(client, |end| end.depth as u32);
    // SAFETY: the caller's variable, or null.
    answer(known.and_then(|known| unsafe { put(requests, known, NULL_NUMBER) }))
}

/// Tells who the server is, as the kernel says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_client_peer(client: bywash_client, peer: *mut bywash_credentials) -> c_int {
    let known = CLIENTS.look(client, |end| end.peer.into());
    // SAFETY: the caller's variable, or null.
    answer(known.and_then(|known| unsafe { put(peer, known, c"the pointer for the peer is null") }))
}

/// Tells what this end has done so far. `size` is sizeof(struct bywash_channel_stats) as the program knows it: it
/// gets so many bytes, and counters that are newer than the library are 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_client_stats(
    client: bywash_client,
    stats: *mut bywash_channel_stats,
    size: usize,
) -> c_int {
    let known = self::client(client).and_then(|end| end.submitting(|submitter| Ok(submitter.stats().into())));
    // SAFETY: the caller has `size` bytes there, or null.
    answer(known.and_then(|known| unsafe { put_sized(stats, size, known, NULL_STATS) }))
}
