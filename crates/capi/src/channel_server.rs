//! The side that answers: its end of a channel.
//!
//! A server has two halves, so that one thread can wait for requests while others complete what they were
//! handed. To complete never waits, so who does at the same time takes turns. To take requests may wait: a
//! second thread that wants to is told that somebody does (`BYWASH_ERROR_BUSY`).

use crate::channel::{BYWASH_ARGUMENTS, bywash_channel_stats, lock, wait};
use crate::channel_options::{bywash_channel_server_options, server_options};
use crate::error::bywash_error::BYWASH_ERROR_CLOSED;
use crate::error::{Failure, answer};
use crate::handles::{BUSY, Table, bywash_listener, consume, handles, put, put_sized};
use crate::path::{NULL_STATS, bywash_credentials, check_place, come_to, given};
use crate::request::{REQUESTS, StoredRequest, bywash_request};
use ::bywash_channel::{BufferAccess, Completer, Credentials, Request, RequestReceiver, Server};
use std::ffi::{CStr, c_int};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};

/// Server's end of a channel. May be used by several threads at a time; one of them may wait for requests.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct bywash_channel_server {
    /// Number of the handle; 0 is no handle.
    pub id: u64,
}

handles! { bywash_channel_server }

/// Contents of a request, exactly as the client sent them: the library has checked only the buffer. The
/// service defines their meaning. The layout is part of the protocol and will not change.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct bywash_request_contents {
    /// Operation; the service defines the numbers.
    pub opcode: u8,
    /// Flags of the operation; the service defines the bits.
    pub flags: u8,
    /// Arguments of the operation.
    pub arguments: [u64; BYWASH_ARGUMENTS],
    /// Size of the request's buffer, in bytes; 0 if the request has none.
    pub length: usize,
}

/// A server that C has. Calls that are in flight keep it, and so do requests that are not completed.
pub(crate) struct ServerEnd {
    taking: Mutex<Taking>,
    /// None: closed.
    completer: Mutex<Option<Completer>>,
    pub(crate) memories: BufferAccess,
    is_closed: AtomicBool,
    peer: Credentials,
    fd: c_int,
}

struct Taking {
    requests: RequestReceiver,
    /// One that was taken, and found no room among the handles.
    left: Option<Request>,
}

static SERVERS: Table<Arc<ServerEnd>> = Table::new();

const NULL_SERVER: &CStr = c"the pointer for the new server is null";
const CLOSED_HERE: Failure = Failure::fixed(
    BYWASH_ERROR_CLOSED,
    c"the server that took the request was closed before it was completed; its client has heard of that",
);

impl ServerEnd {
    fn new(server: Server) -> ServerEnd {
        let (memories, peer, fd) = (server.buffer_access(), server.peer(), server.as_fd().as_raw_fd());
        let (requests, completer) = server.split();
        ServerEnd {
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
unsafe fn hand_out(made: Server, place: *mut bywash_channel_server) -> Result<(), Failure> {
    let handle = SERVERS.insert(Arc::new(ServerEnd::new(made)))?;
    // SAFETY: the caller keeps the contract in this function's Safety section.
    unsafe { put(place, handle, NULL_SERVER) }
}

/// A server that stays alive as long as the answer.
fn server(handle: bywash_channel_server) -> Result<Arc<ServerEnd>, Failure> {
    SERVERS.look(handle, |end| end.clone())
}

/// Waits for a client and makes a channel to it. The handshakes of several clients run side by side, so that
/// a silent client delays no other. A client with incompatible options fails this call only; the listener
/// remains usable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_channel_server_accept(
    listener: bywash_listener,
    options: bywash_channel_server_options,
    server: *mut bywash_channel_server,
) -> c_int {
    answer(check_place(server, NULL_SERVER).and_then(|()| {
        let options = server_options(options)?;
        // SAFETY: valid by the header's rule for pointers, and the variable is the caller's.
        unsafe { hand_out(Server::over(come_to(listener, -1)?, &options)?, server) }
    }))
}

/// Like bywash_channel_server_accept(), with a timeout in nanoseconds that includes the handshake; a negative
/// timeout waits for ever.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_channel_server_accept_within(
    listener: bywash_listener,
    options: bywash_channel_server_options,
    timeout_ns: i64,
    server: *mut bywash_channel_server,
) -> c_int {
    answer(check_place(server, NULL_SERVER).and_then(|()| {
        let options = server_options(options)?;
        // SAFETY: valid by the header's rule for pointers, and the variable is the caller's.
        unsafe { hand_out(Server::over(come_to(listener, timeout_ns)?, &options)?, server) }
    }))
}

/// Makes the server's end of a channel over a connected descriptor, from bywash_socket_pair() or
/// bywash_accept_fd(), or inherited. Waits until the client does the same at the other end. The library takes
/// the descriptor over and closes it even if the call fails, except with BYWASH_ERROR_ARGUMENT and
/// BYWASH_ERROR_HANDLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_channel_server_over(
    fd: c_int,
    options: bywash_channel_server_options,
    server: *mut bywash_channel_server,
) -> c_int {
    answer(check_place(server, NULL_SERVER).and_then(|()| {
        let options = server_options(options)?;
        // SAFETY: valid by the header's rule for pointers, and the variable is the caller's.
        unsafe { hand_out(Server::over(given(fd)?, &options)?, server) }
    }))
}

/// Closes this end and zeroes the handle. The client reaps earlier completions, then receives
/// BYWASH_ERROR_CLOSED. A call that waits in another thread returns BYWASH_ERROR_HANDLE within 100 ms.
/// Requests that were taken and not completed keep their memory until bywash_request_complete() frees them. A
/// zero handle is ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_channel_server_close(server: *mut bywash_channel_server) -> c_int {
    // SAFETY: the header's rule: a pointer is null or valid, here to a variable of the caller.
    answer(unsafe { consume(&SERVERS, server) }.map(|end| {
        if let Some(end) = end {
            end.is_closed.store(true, Relaxed);
            drop(lock(&end.completer).take());
        }
    }))
}

/// Waits up to `timeout_ns` nanoseconds for the next request (negative: for ever; 0: not at all), and returns
/// its contents. End every request by bywash_request_complete(), in any thread: the client waits for that.
/// One thread at a time may take requests; others may complete requests meanwhile.
///
/// BYWASH_ERROR_TIMED_OUT: no request arrived. BYWASH_ERROR_CLOSED, BYWASH_ERROR_PEER_DIED: all requests that
/// the client submitted were taken, and no more will arrive; a timeout of 0 does not detect the death of the
/// client. BYWASH_ERROR_BUSY: another thread waits. BYWASH_ERROR_FULL: the request is kept for the next call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_channel_server_next(
    server: bywash_channel_server,
    timeout_ns: i64,
    request: *mut bywash_request,
    contents: *mut bywash_request_contents,
) -> c_int {
    answer(check_place(request, c"the pointer for the new request is null").and_then(|()| {
        check_place(contents, c"the pointer for what the request says is null")?;
        let (handle, said) = next(&self::server(server)?, timeout_ns)?;
        // SAFETY: not null, so valid by the header's rule, and the variables are the caller's.
        unsafe {
            request.write(handle);
            contents.write(said);
        }
        Ok(())
    }))
}

fn next(end: &Arc<ServerEnd>, timeout_ns: i64) -> Result<(bywash_request, bywash_request_contents), Failure> {
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
    match REQUESTS.offer(StoredRequest { request, end: end.clone() }) {
        Ok(handle) => Ok((handle, said)),
        Err((failure, asked)) => {
            *left = Some(asked.request);
            Err(failure)
        }
    }
}

/// Prepares the descriptor for an event loop. Take requests with a timeout of 0 until BYWASH_ERROR_TIMED_OUT,
/// then call this function. With `ready` 0 the descriptor becomes readable when the client submits a request
/// or ends. With `ready` 1 a request is ready: take it. The next call makes the descriptor unreadable again,
/// and reports the death of the client.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_channel_server_arm(
    server: bywash_channel_server,
    ready: *mut c_int,
) -> c_int {
    const NULL: &CStr = c"the pointer for whether something is there is null";
    answer(check_place(ready, NULL).and_then(|()| {
        let end = self::server(server)?;
        let mut taking = end.taking()?;
        let armed = taking.left.is_some() || taking.requests.arm()?;
        // SAFETY: not null, so valid by the header's rule, and the variable is the caller's.
        unsafe { put(ready, c_int::from(armed), NULL) }
    }))
}

/// Returns the channel's descriptor for an event loop; see bywash_channel_server_arm(). The descriptor
/// remains the library's: poll it, and do nothing else with it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_channel_server_fd(server: bywash_channel_server, fd: *mut c_int) -> c_int {
    let known = SERVERS.look(server, |end| end.fd);
    // SAFETY: the header's rule: a pointer is null or valid, here to a variable of the caller.
    answer(known.and_then(|known| unsafe { put(fd, known, c"the pointer for the descriptor is null") }))
}

/// Returns the credentials of the client, as the kernel states them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_channel_server_peer(
    server: bywash_channel_server,
    peer: *mut bywash_credentials,
) -> c_int {
    let known = SERVERS.look(server, |end| end.peer.into());
    // SAFETY: the header's rule: a pointer is null or valid, here to a variable of the caller.
    answer(known.and_then(|known| unsafe { put(peer, known, c"the pointer for the peer is null") }))
}

/// Returns the counters of this end. `size` is sizeof(struct bywash_channel_stats) as the program was
/// compiled; the call writes that many bytes, and counters that the library does not know are 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_channel_server_stats(
    server: bywash_channel_server,
    stats: *mut bywash_channel_stats,
    size: usize,
) -> c_int {
    let known = SERVERS.look(server, |end| end.memories.stats().into());
    // SAFETY: the header's rule: a pointer is null or valid, here to `size` bytes.
    answer(known.and_then(|known| unsafe { put_sized(stats, size, known, NULL_STATS) }))
}
