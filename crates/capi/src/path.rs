//! Listeners and paths: accepting, connecting, closing, properties of a path.

use crate::error::bywash_error::BYWASH_ERROR_ARGUMENT;
use crate::error::{Failure, answer};
use crate::handles::{Table, bywash_listener, bywash_options, bywash_path, consume, put, put_sized};
use crate::options::chosen;
use ::bywash_channel::Listener;
use ::bywash_container::{Credentials, Path, socket_pair};
use std::ffi::{CStr, OsStr, c_char, c_int};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::time::Duration;

/// Paths are shared: a call that waits keeps its path, whatever another thread does with the handle.
pub(crate) static PATHS: Table<Arc<Path>> = Table::new();
/// A listener is one whether paths or channels are made of who comes.
static LISTENERS: Table<Arc<Listener>> = Table::new();

/// Timeout, in nanoseconds, of a call that waits for ever. Every negative number means the same.
pub const BYWASH_FOREVER: i64 = -1;

/// Process, user and group of a peer, as the kernel states them.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct bywash_credentials {
    /// Process number in the namespace of this process; 0 if the peer has none there.
    pub pid: u32,
    /// Effective user number.
    pub uid: u32,
    /// Effective group number.
    pub gid: u32,
}

impl From<Credentials> for bywash_credentials {
    fn from(Credentials { pid, uid, gid }: Credentials) -> bywash_credentials {
        bywash_credentials { pid, uid, gid }
    }
}

/// Counters of one end of a path. Counts may be slightly off if several threads use the end.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct bywash_stats {
    /// Messages shipped.
    pub shipped: u64,
    /// Bytes in these messages.
    pub shipped_bytes: u64,
    /// Messages received.
    pub received: u64,
    /// Bytes in these messages.
    pub received_bytes: u64,
    /// Messages, shipped or received, that were small enough to be copied into an entry of a ring.
    pub inline_messages: u64,
    /// Bytes that were copied out of containers in an arena.
    pub copied_out_bytes: u64,
    /// Received containers that were shipped on.
    pub forwarded: u64,
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
    /// Times that a call found no free memory or ring entry at first.
    pub no_room: u64,
    /// Size of this end's arena, in bytes.
    pub arena_bytes: u64,
    /// Containers of the arena that this program holds.
    pub arena_held: u64,
    /// Bytes of the arena in containers that this program holds.
    pub arena_held_bytes: u64,
    /// Containers of the arena that the peer holds.
    pub arena_shipped: u64,
    /// Bytes of the arena in containers that the peer holds.
    pub arena_shipped_bytes: u64,
    /// Size of the largest container that could be allocated in the arena, in bytes.
    pub arena_largest_free: u64,
}

/// A path that stays alive as long as the answer.
pub(crate) fn path(handle: bywash_path) -> Result<Arc<Path>, Failure> {
    PATHS.look(handle, |path| path.clone())
}

/// A time limit as C gives it; none: wait for ever.
pub(crate) fn limit(timeout_ns: i64) -> Option<Duration> {
    u64::try_from(timeout_ns).ok().map(Duration::from_nanos)
}

const NULL_PATH: &CStr = c"the pointer for the new path is null";
pub(crate) const NULL_STATS: &CStr = c"the pointer for the counters is null";

pub(crate) fn check_place<V>(place: *mut V, null: &'static CStr) -> Result<(), Failure> {
    if place.is_null() { Err(Failure::null(null)) } else { Ok(()) }
}

/// Keeps a path and tells C its handle.
///
/// # Safety
/// As [`put`].
unsafe fn hand_out(made: Path, place: *mut bywash_path) -> Result<(), Failure> {
    let handle = PATHS.insert(Arc::new(made))?;
    // SAFETY: the caller keeps the contract in this function's Safety section.
    unsafe { put(place, handle, NULL_PATH) }
}

/// A name in the file system.
///
/// # Safety
/// `name` is null or leads to a text that ends with a zero.
pub(crate) unsafe fn name_of<'a>(name: *const c_char) -> Result<&'a OsStr, Failure> {
    if name.is_null() {
        return Err(Failure::null(c"the name is null"));
    }
    // SAFETY: the caller keeps the contract in this function's Safety section.
    Ok(OsStr::from_bytes(unsafe { CStr::from_ptr(name) }.to_bytes()))
}

/// Waits for somebody to come to a listener and to present itself; negative: for ever.
pub(crate) fn come_to(listener: bywash_listener, timeout_ns: i64) -> Result<OwnedFd, Failure> {
    // The listener stays as long as the call, whatever another thread does with the handle.
    let listener = LISTENERS.look(listener, |listener| listener.clone())?;
    Ok(listener.accept_socket(limit(timeout_ns))?)
}

/// A descriptor that C gives away.
pub(crate) fn given(fd: c_int) -> Result<OwnedFd, Failure> {
    // SAFETY: F_GETFD takes no pointer, and the kernel refuses a number that is no descriptor.
    if unsafe { libc::fcntl(fd, libc::F_GETFD) } < 0 {
        return Err(Failure::new(BYWASH_ERROR_ARGUMENT, format!("descriptor {fd} is not open")));
    }
    // SAFETY: it is open, and the caller has given it away, as the functions that take one say.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Listens at a name in the file system; the name remains until you remove it. A socket there that no process listens at
/// is replaced; anything else there is BYWASH_ERROR_IO. The permissions of the name decide who may connect. The call that
/// accepts a peer decides what the peer gets: a path by bywash_accept(), a channel by bywash_channel_server_accept().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_listen(name: *const c_char, listener: *mut bywash_listener) -> c_int {
    const NULL: &CStr = c"the pointer for the new listener is null";
    // SAFETY: the header's rule: each pointer is null or valid, here to a text and a variable.
    answer(check_place(listener, NULL).and_then(|()| unsafe {
        let made = Listener::bind(name_of(name)?)?;
        put(listener, LISTENERS.insert(Arc::new(made))?, NULL)
    }))
}

/// Waits for a peer and makes a path to it. The handshakes of several peers run side by side, so that a silent peer delays
/// no other. A peer with incompatible options fails this call only; the listener remains usable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_accept(
    listener: bywash_listener,
    options: bywash_options,
    path: *mut bywash_path,
) -> c_int {
    answer(check_place(path, NULL_PATH).and_then(|()| {
        let options = chosen(options)?;
        // SAFETY: valid by the header's rule for pointers, and the variable is the caller's.
        unsafe { hand_out(Path::over(come_to(listener, -1)?, &options)?, path) }
    }))
}

/// Like bywash_accept(), with a timeout in nanoseconds that includes the handshake; a negative timeout waits for ever.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_accept_within(
    listener: bywash_listener,
    options: bywash_options,
    timeout_ns: i64,
    path: *mut bywash_path,
) -> c_int {
    answer(check_place(path, NULL_PATH).and_then(|()| {
        let options = chosen(options)?;
        // SAFETY: valid by the header's rule for pointers, and the variable is the caller's.
        unsafe { hand_out(Path::over(come_to(listener, timeout_ns)?, &options)?, path) }
    }))
}

/// Waits for a peer and returns the descriptor of its connection, which then belongs to the program: pass it to
/// bywash_path_over() or bywash_channel_server_over(), or close it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_accept_fd(listener: bywash_listener, fd: *mut c_int) -> c_int {
    answer(check_place(fd, c"the pointer for the descriptor is null").and_then(|()| {
        let socket = come_to(listener, -1)?;
        // SAFETY: not null, so valid by the header's rule, and the variable is the caller's.
        unsafe { put(fd, socket.into_raw_fd(), c"") }
    }))
}

/// Returns the listener's descriptor, which is readable when a peer may be waiting. The descriptor remains the library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_listener_fd(listener: bywash_listener, fd: *mut c_int) -> c_int {
    let number = LISTENERS.look(listener, |listener| listener.as_fd().as_raw_fd());
    // SAFETY: the header's rule: a pointer is null or valid, here to a variable of the caller.
    answer(number.and_then(|number| unsafe { put(fd, number, c"the pointer for the descriptor is null") }))
}

/// Closes a listener and sets the handle to zero. The socket file remains. A zero handle is ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_listener_close(listener: *mut bywash_listener) -> c_int {
    // SAFETY: the header's rule: a pointer is null or valid, here to a variable of the caller.
    answer(unsafe { consume(&LISTENERS, listener) }.map(drop))
}

/// Connects to the listener at a name and makes a path.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_connect(
    name: *const c_char,
    options: bywash_options,
    path: *mut bywash_path,
) -> c_int {
    // SAFETY: the header's rule: each pointer is null or valid, here to a text and a variable.
    answer(
        check_place(path, NULL_PATH)
            .and_then(|()| unsafe { hand_out(Path::connect(name_of(name)?, &chosen(options)?)?, path) }),
    )
}

/// Creates two connected descriptors, both close-on-exec: keep one and give the other to the peer, such as a child. Each
/// process calls bywash_path_over() on its own descriptor, after the fork.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_socket_pair(fds: *mut c_int) -> c_int {
    answer(check_place(fds, c"the pointer for the two descriptors is null").and_then(|()| {
        let (one, other) = socket_pair()?;
        // SAFETY: valid by the header's rule for pointers, with room for two descriptors.
        unsafe {
            fds.write(one.into_raw_fd());
            fds.add(1).write(other.into_raw_fd());
        }
        Ok(())
    }))
}

/// Makes a path over a connected descriptor, from bywash_socket_pair() or inherited. Waits until the other end does the
/// same. The library takes the descriptor over and closes it even if the call fails, except with BYWASH_ERROR_ARGUMENT and
/// BYWASH_ERROR_HANDLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_path_over(
    fd: c_int,
    options: bywash_options,
    path: *mut bywash_path,
) -> c_int {
    answer(check_place(path, NULL_PATH).and_then(|()| {
        let options = chosen(options)?;
        // SAFETY: valid by the header's rule for pointers, and the variable is the caller's.
        unsafe { hand_out(Path::over(given(fd)?, &options)?, path) }
    }))
}

/// Closes this end and zeroes the handle. The peer receives what was shipped before, then BYWASH_ERROR_CLOSED. Messages and
/// containers of the path remain valid. The path closes after the calls of other threads that use it have returned. A
/// zero handle is ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_path_close(path: *mut bywash_path) -> c_int {
    // SAFETY: the header's rule: a pointer is null or valid, here to a variable of the caller.
    answer(unsafe { consume(&PATHS, path) }.map(drop))
}

/// Returns the credentials of the peer, as the kernel states them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_path_peer(path: bywash_path, peer: *mut bywash_credentials) -> c_int {
    let known = PATHS.look(path, |path| path.peer().into());
    // SAFETY: the header's rule: a pointer is null or valid, here to a variable of the caller.
    answer(known.and_then(|known| unsafe { put(peer, known, c"the pointer for the peer is null") }))
}

/// Returns the counters of this end. `size` is sizeof(struct bywash_stats) as the program was compiled; the call writes
/// that many bytes, and counters that the library does not know are 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_path_stats(
    path: bywash_path,
    stats: *mut bywash_stats,
    size: usize,
) -> c_int {
    let known = PATHS.look(path, |path| path.stats());
    let counted = known.map(|known| bywash_stats {
        shipped: known.shipped,
        shipped_bytes: known.shipped_bytes,
        received: known.received,
        received_bytes: known.received_bytes,
        inline_messages: known.inline,
        copied_out_bytes: known.copied_out_bytes,
        forwarded: known.forwarded,
        spins: known.spins,
        futex_sleeps: known.futex_sleeps,
        socket_sleeps: known.socket_sleeps,
        futex_wakes: known.futex_wakes,
        doorbells: known.doorbells,
        no_room: known.no_room,
        arena_bytes: known.arena_bytes,
        arena_held: known.arena_held,
        arena_held_bytes: known.arena_held_bytes,
        arena_shipped: known.arena_shipped,
        arena_shipped_bytes: known.arena_shipped_bytes,
        arena_largest_free: known.arena_largest_free,
    });
    // SAFETY: the header's rule: a pointer is null or valid, here to `size` bytes.
    answer(counted.and_then(|counted| unsafe { put_sized(stats, size, counted, NULL_STATS) }))
}

/// Returns the path's descriptor for an event loop; see bywash_path_arm(). The descriptor remains the library's: poll it,
/// and do nothing else with it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_path_fd(path: bywash_path, fd: *mut c_int) -> c_int {
    let number = PATHS.look(path, |path| path.as_fd().as_raw_fd());
    // SAFETY: the header's rule: a pointer is null or valid, here to a variable of the caller.
    answer(number.and_then(|number| unsafe { put(fd, number, c"the pointer for the descriptor is null") }))
}

/// Prepares the descriptor for an event loop. Receive with a timeout of 0 until BYWASH_ERROR_TIMED_OUT, then call this
/// function. With `ready` 0 the descriptor becomes readable when the peer ships something or ends. With `ready` 1 a message
/// is ready: receive it. The next call makes the descriptor unreadable again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_path_arm(path: bywash_path, ready: *mut c_int) -> c_int {
    const NULL: &CStr = c"the pointer for whether something is there is null";
    let armed = check_place(ready, NULL).and_then(|()| Ok(self::path(path)?.arm()?));
    // SAFETY: the header's rule: a pointer is null or valid, here to a variable of the caller.
    answer(armed.and_then(|armed| unsafe { put(ready, c_int::from(armed), NULL) }))
}
