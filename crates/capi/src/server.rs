//! The side that answers: its end of a channel.
//!
//! A server has two halves, so that one thread can wait for requests while others complete what they were handed.
//! To complete never waits, so who does at the same time takes turns. To take requests may wait: a second thread
//! that wants to is told that somebody does (`BYWASH_ERROR_BUSY`).

use crate::channel::{BYWASH_ARGUMENTS, bywash_channel_stats, lock, wait};
use crate::channel_options::{bywash_server_options, server_options};
use crate::error::bywash_error::BYWASH_ERROR_CLOSED;
use crate::error::{Failure, answer};
use crate::handles::{BUSY, Table, bywash_listener, consume, handles, put, put_sized};
use crate::path::{NULL_STATS, bywash_credentials, check_place, come_to, given};
use crate::request::{Asked, REQUESTS, bywash_request};
use ::bywash_channel::{Completer, Credentials, Memories, Request, Requests, Server};
use std::ffi::{CStr, c_int};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};

/// The server's end of a channel. May be used by several threads at a time; one of them may wait for requests.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct bywash_server {
    /// 0: none.
    pub id: u64,
}

handles! { bywash_server }

/// What a request says; the service says what it means. It was checked by nobody. This struct stays as it is, as
/// the protocol's requests do.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct bywash_request_contents {
    /// What to do.
    pub opcode: u8,
    /// How.
    pub flags: u8,
    /// With what.
    pub arguments: [u64; BYWASH_ARGUMENTS],
    /// Bytes of the memory that came along.
    pub length: usize,
}

/// A server that C has. Calls that are under way keep it, and so do requests that are not completed.
pub(crate) struct End {
    taking: Mutex<Taking>,
    /// None: closed.
    completer: Mutex<Option<Completer>>,
    pub(crate) memories: Memories,
    is_closed: AtomicBool,
    peer: Credentials,
    fd: c_int,
}

struct Taking {
    requests: Requests,
    /// One that was taken, and found no room among the handles.
    left: Option<Request>,
}

static SERVERS: Table<Arc<End>> = Table::new();

const NULL_SERVER: &CStr = c"the pointer for the new server is null";
const CLOSED_HERE: Failure = Failure::fixed(
    BYWASH_ERROR_CLOSED,
    c"the server that took the request was closed before it was completed; its client has heard of that",
);

impl End {
    fn new(server: Server) -> End {
        let (memories, peer, fd) = (server.memories(), server.peer(), server.as_fd().as_raw_fd());
        let (requests, completer) = server.split();
        End {
            taking: Mutex::new(Taking { requests, left: None }),
            completer: Mutex::new(Some(completer)),
            memories,
            is_closed: AtomicBool::new(false),
            peer,
            fd,
        }
    }

    /// The half that takes requests, if no other thread is in a call with it.
    fn taking(&self) -> Result<MutexGuard<'_, Taking>, Failure> {
        match self.taking.try_lock() {
            Ok(taking) => Ok(taking),
            Err(TryLockError::WouldBlock) => Err(BUSY),
            Err(TryLockError::Poisoned(poisoned)) => Ok(poisoned.into_inner()),
        }
    }

    pub(crate) fn complete(&self, request: Request, status: u16, value: u64) -> Result<(), Failure> {
        let mut completer = lock(&self.completer);
        let completer = completer.as_mut().ok_or(CLOSED_HERE)?;
        Ok(completer.complete(request, status, value)?)
    }
}

/// Keeps a server and tells C its handle.
///
/// # Safety
/// As [`put`].
unsafe fn hand_out(made: Server, place: *mut bywash_server) -> Result<(), Failure> {
    let handle = SERVERS.insert(Arc::new(End::new(made)))?;
    // SAFETY: what the caller promises.
    unsafe { put(place, handle, NULL_SERVER) }
}

/// A server that stays alive as long as the answer.
fn server(handle: bywash_server) -> Result<Arc<End>, Failure> {
    SERVERS.look(handle, |end| end.clone())
}

/// Waits for a client and makes a channel to it. Clients that have connected present themselves side by side, so
/// that one that is silent keeps no other one waiting. A client that does not fit is an error of this call only; the
/// listener goes on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_server_accept(
    listener: bywash_listener,
    options: bywash_server_options,
    server: *mut bywash_server,
) -> c_int {
    answer(check_place(server, NULL_SERVER).and_then(|()| {
        let options = server_options(options)?;
        // SAFETY: the caller's variable.
        unsafe { hand_out(Server::over(come_to(listener, -1)?, &options)?, server) }
    }))
}

/// As bywash_server_accept(), but waits no longer than timeout_ns in all, until the client has presented itself;
/// negative: for ever.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_server_accept_within(
    listener: bywash_listener,
    options: bywash_server_options,
    timeout_ns: i64,
    server: *mut bywash_server,
) -> c_int {
    answer(check_place(server, NULL_SERVER).and_then(|()| {
        let options = server_options(options)?;
        // SAFETY: the caller's variable.
        unsafe { hand_out(Server::over(come_to(listener, timeout_ns)?, &options)?, server) }
    }))
}

/// Makes the server's end of a channel over a connected descriptor of bywash_socket_pair(), or one that was
/// inherited, or of bywash_accept_fd(). Waits until the client does the same with the other one. The descriptor
/// is the library's from here on, and is closed even if this fails, except with BYWASH_ERROR_ARGUMENT and
/// BYWASH_ERROR_HANDLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_server_over(
    fd: c_int,
    options: bywash_server_options,
    server: *mut bywash_server,
) -> c_int {
    answer(check_place(server, NULL_SERVER).and_then(|()| {
        let options = server_options(options)?;
        // SAFETY: the caller's variable.
        unsafe { hand_out(Server::over(given(fd)?, &options)?, server) }
    }))
}

/// Closes this end and zeroes the handle. The client reaps what was completed before, and hears then that there
/// is no more. A call that waits in another thread ends within 100 ms, with BYWASH_ERROR_HANDLE. Requests that
/// were taken and not completed keep their memory until bywash_request_complete() frees them. Zero is left alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_server_close(server: *mut bywash_server) -> c_int {
    // SAFETY: the caller's variable, or null.
    answer(unsafe { consume(&SERVERS, server) }.map(|end| {
        if let Some(end) = end {
            end.is_closed.store(true, Relaxed);
            drop(lock(&end.completer).take());
        }
    }))
}

/// Waits for the next request for `timeout_ns` nanoseconds (negative: for ever; 0: not at all), and tells what it
/// says. It is to be ended by bywash_request_complete(), by any thread: the client waits for that. One thread at a
/// time may take requests; others may complete some meanwhile.
///
/// BYWASH_ERROR_TIMED_OUT: there was none. BYWASH_ERROR_CLOSED, BYWASH_ERROR_PEER_DIED: what the client had
/// submitted before came first, and there will be no more; that it died is not seen with a time of 0.
/// BYWASH_ERROR_BUSY: another thread waits. BYWASH_ERROR_FULL: the request is kept for the next call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_server_next(
    server: bywash_server,
    timeout_ns: i64,
    request: *mut bywash_request,
    contents: *mut bywash_request_contents,
) -> c_int {
    answer(check_place(request, c"the pointer for the new request is null").and_then(|()| {
        check_place(contents, c"the pointer for what the request says is null")?;
        let (handle, said) = next(&self::server(server)?, timeout_ns)?;
        // SAFETY: the caller's variables, which are not null.
        unsafe {
            request.write(handle);
            contents.write(said);
        }
        Ok(())
    }))
}

fn next(end: &Arc<End>, timeout_ns: i64) -> Result<(bywash_request, bywash_request_contents), Failure> {
    let mut taking = end.taking()?;
    let Taking { requests, left } = &mut *taking;
    let request = match left.take() {
        Some(request) => request,
        None => wait(timeout_ns, &end.is_closed, |limit| match limit {
            None => requests.try_next(),
            Some(limit) => requests.next_within(limit).map(Some),
        })?,
    };
    let said = bywash_request_contents {
        opcode: request.opcode(),
        flags: request.flags(),
        arguments: *request.arguments(),
        length: request.len(),
    };
    match REQUESTS.offer(Asked { request, end: end.clone() }) {
        Ok(handle) => Ok((handle, said)),
        Err((failure, asked)) => {
            *left = Some(asked.request);
            Err(failure)
        }
    }
}

/// For event loops. Take requests with a time of 0 until there is none; then call this. `ready` 0: from now on the
/// descriptor becomes readable when the client submits something or is gone. `ready` 1: something is there
/// already, take it. What made the descriptor readable is taken away by the next call of this, which also is who
/// hears that the client died.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_server_arm(server: bywash_server, ready: *mut c_int) -> c_int {
    const NULL: &CStr = c"the pointer for whether something is there is null";
    answer(check_place(ready, NULL).and_then(|()| {
        let end = self::server(server)?;
        let mut taking = end.taking()?;
        let armed = taking.left.is_some() || taking.requests.arm()?;
        // SAFETY: the caller's variable, which is not null.
        unsafe { put(ready, c_int::from(armed), NULL) }
    }))
}

/// Tells the channel's descriptor, for an event loop; see bywash_server_arm(). It stays the library's: poll it,
/// and do nothing else with it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_server_fd(server: bywash_server, fd: *mut c_int) -> c_int {
    let known = SERVERS.look(server, |end| end.fd);
    // SAFETY: the caller's variable, or null.
    answer(known.and_then(|known| unsafe { put(fd, known, c"the pointer for the descriptor is null") }))
}

/// Tells who the client is, as the kernel says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_server_peer(server: bywash_server, peer: *mut bywash_credentials) -> c_int {
    let known = SERVERS.look(server, |end| end.peer.into());
    // SAFETY: the caller's variable, or null.
    answer(known.and_then(|known| unsafe { put(peer, known, c"the pointer for the peer is null") }))
}

/// Tells what this end has done so far. `size` is sizeof(struct bywash_channel_stats) as the program knows it: it
/// gets so many bytes, and counters that are newer than the library are 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_server_stats(
    server: bywash_server,
    stats: *mut bywash_channel_stats,
    size: usize,
) -> c_int {
    let known = SERVERS.look(server, |end| end.memories.stats().into());
    // SAFETY: the caller has `size` bytes there, or null.
    answer(known.and_then(|known| unsafe { put_sized(stats, size, known, NULL_STATS) }))
}
