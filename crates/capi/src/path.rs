//! How two programs come together, and what can be asked of a path.

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

/// For a time in nanoseconds: wait for ever. Every negative number does.
pub const BYWASH_FOREVER: i64 = -1;

/// Who somebody is, as the kernel says.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct bywash_credentials {
    /// Process, in this process's namespace; 0 if it has no number there.
    pub pid: u32,
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

impl From<Credentials> for bywash_credentials {
    fn from(Credentials { pid, uid, gid }: Credentials) -> bywash_credentials {
        bywash_credentials { pid, uid, gid }
    }
}

/// What one end of a path has done so far. Counts may be off by some where several threads use the end.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct bywash_stats {
    /// Messages shipped.
    pub shipped: u64,
    /// Bytes in them.
    pub shipped_bytes: u64,
    /// Messages received.
    pub received: u64,
    /// Bytes in them.
    pub received_bytes: u64,
    /// Messages of so few bytes that these were copied into a ring's entry, shipped or received.
    pub inline_messages: u64,
    /// Bytes that were copied out of containers in an arena.
    pub copied_out_bytes: u64,
    /// Containers shipped on as they came.
    pub forwarded: u64,
    /// Times that what was waited for came while spinning.
    pub spins: u64,
    /// Sleeps on a futex.
    pub futex_sleeps: u64,
    /// Sleeps on the socket.
    pub socket_sleeps: u64,
    /// Times that the peer was woken by a futex.
    pub futex_wakes: u64,
    /// Times that the peer was woken through the socket.
    pub doorbells: u64,
    /// Times that there was no room at first.
    pub no_room: u64,
    /// Size of this end's arena, in bytes.
    pub arena_bytes: u64,
    /// Containers of the arena that this program has and has not shipped.
    pub arena_held: u64,
    /// Bytes of the arena that this program has and has not shipped.
    pub arena_held_bytes: u64,
    /// Containers of the arena that the peer has and has not given back.
    pub arena_shipped: u64,
    /// Bytes of the arena that the peer has and has not given back.
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
    // SAFETY: what the caller promises.
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
    // SAFETY: what the caller promises.
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
    // SAFETY: a question about a number.
    if unsafe { libc::fcntl(fd, libc::F_GETFD) } < 0 {
        return Err(Failure::new(BYWASH_ERROR_ARGUMENT, format!("descriptor {fd} is not open")));
    }
    // SAFETY: it is open, and the caller has given it away, as the functions that take one say.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Listens at a name in the file system, which stays until you remove it. A socket there that nobody listens at any
/// more is replaced; anything else is BYWASH_ERROR_SYSTEM. Its permissions say who may connect. What a peer gets is for you to say when it comes: a path by bywash_accept(), or a
/// channel by bywash_server_accept().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_listen(name: *const c_char, listener: *mut bywash_listener) -> c_int {
    const NULL: &CStr = c"the pointer for the new listener is null";
    // SAFETY: the caller's text and variable, or null.
    answer(check_place(listener, NULL).and_then(|()| unsafe {
        let made = Listener::bind(name_of(name)?)?;
        put(listener, LISTENERS.insert(Arc::new(made))?, NULL)
    }))
}

/// Waits for a peer and makes a path to it. Peers that have connected present themselves side by side, so that one
/// that is silent keeps no other one waiting. A peer that does not fit is an error of this call only; the listener
/// goes on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_accept(
    listener: bywash_listener,
    options: bywash_options,
    path: *mut bywash_path,
) -> c_int {
    answer(check_place(path, NULL_PATH).and_then(|()| {
        let options = chosen(options)?;
        // SAFETY: the caller's variable.
        unsafe { hand_out(Path::over(come_to(listener, -1)?, &options)?, path) }
    }))
}

/// As bywash_accept(), but waits no longer than timeout_ns in all, until the peer has presented itself; negative:
/// for ever.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_accept_within(
    listener: bywash_listener,
    options: bywash_options,
    timeout_ns: i64,
    path: *mut bywash_path,
) -> c_int {
    answer(check_place(path, NULL_PATH).and_then(|()| {
        let options = chosen(options)?;
        // SAFETY: the caller's variable.
        unsafe { hand_out(Path::over(come_to(listener, timeout_ns)?, &options)?, path) }
    }))
}

/// Waits for a peer that presents itself and answers the descriptor of the connection, which is yours: give it to
/// bywash_path_over() or bywash_server_over(), or close it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_accept_fd(listener: bywash_listener, fd: *mut c_int) -> c_int {
    answer(check_place(fd, c"the pointer for the descriptor is null").and_then(|()| {
        let socket = come_to(listener, -1)?;
        // SAFETY: the caller's variable, which is not null.
        unsafe { put(fd, socket.into_raw_fd(), c"") }
    }))
}

/// Tells the listener's descriptor, which is readable when a call that accepts may find somebody. It stays the
/// library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_listener_fd(listener: bywash_listener, fd: *mut c_int) -> c_int {
    let number = LISTENERS.look(listener, |listener| listener.as_fd().as_raw_fd());
    // SAFETY: the caller's variable, or null.
    answer(number.and_then(|number| unsafe { put(fd, number, c"the pointer for the descriptor is null") }))
}

/// Ends a listener and zeroes the handle. The name stays. Zero is left alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_listener_close(listener: *mut bywash_listener) -> c_int {
    // SAFETY: the caller's variable, or null.
    answer(unsafe { consume(&LISTENERS, listener) }.map(drop))
}

/// Makes a path to whoever listens at a name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_connect(
    name: *const c_char,
    options: bywash_options,
    path: *mut bywash_path,
) -> c_int {
    // SAFETY: the caller's text and variable, or null.
    answer(
        check_place(path, NULL_PATH)
            .and_then(|()| unsafe { hand_out(Path::connect(name_of(name)?, &chosen(options)?)?, path) }),
    )
}

/// Makes two connected descriptors, closed on exec: keep one and give the other to whom the path shall lead to,
/// to a child, say. Each end calls bywash_path_over() in its own process, after the fork.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_socket_pair(fds: *mut c_int) -> c_int {
    answer(check_place(fds, c"the pointer for the two descriptors is null").and_then(|()| {
        let (one, other) = socket_pair()?;
        // SAFETY: the caller's array of two.
        unsafe {
            fds.write(one.into_raw_fd());
            fds.add(1).write(other.into_raw_fd());
        }
        Ok(())
    }))
}

/// Makes a path over a connected descriptor of bywash_socket_pair(), or one that was inherited. Waits until the
/// other end does the same. The descriptor is the library's from here on, and is closed even if this fails,
/// except with BYWASH_ERROR_ARGUMENT and BYWASH_ERROR_HANDLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_path_over(
    fd: c_int,
    options: bywash_options,
    path: *mut bywash_path,
) -> c_int {
    answer(check_place(path, NULL_PATH).and_then(|()| {
        let options = chosen(options)?;
        // SAFETY: the caller's variable.
        unsafe { hand_out(Path::over(given(fd)?, &options)?, path) }
    }))
}

/// Closes this end and zeroes the handle. The peer receives what was shipped before, and then
/// BYWASH_ERROR_CLOSED. Messages and containers of the path stay what they are. A call of another thread that
/// is under way ends first; then the path closes. Zero is left alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_path_close(path: *mut bywash_path) -> c_int {
    // SAFETY: the caller's variable, or null.
    answer(unsafe { consume(&PATHS, path) }.map(drop))
}

/// Tells who is at the other end, as the kernel says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_path_peer(path: bywash_path, peer: *mut bywash_credentials) -> c_int {
    let known = PATHS.look(path, |path| path.peer().into());
    // SAFETY: the caller's variable, or null.
    answer(known.and_then(|known| unsafe { put(peer, known, c"the pointer for the peer is null") }))
}

/// Tells what this end has done so far. `size` is sizeof(struct bywash_stats) as the program knows it: it gets
/// so many bytes, and counters that are newer than the library are 0.
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
    // SAFETY: the caller has `size` bytes there, or null.
    answer(counted.and_then(|counted| unsafe { put_sized(stats, size, counted, NULL_STATS) }))
}

/// Tells the path's descriptor, for an event loop; see bywash_path_arm(). It stays the library's: poll it, and
/// do nothing else with it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_path_fd(path: bywash_path, fd: *mut c_int) -> c_int {
    let number = PATHS.look(path, |path| path.as_fd().as_raw_fd());
    // SAFETY: the caller's variable, or null.
    answer(number.and_then(|number| unsafe { put(fd, number, c"the pointer for the descriptor is null") }))
}

/// For event loops. Receive with a time of 0 until there is nothing; then call this. `ready` 0: from now on the
/// descriptor becomes readable when the peer ships something or is gone. `ready` 1: something is there already,
/// receive it. What made the descriptor readable is taken away by the next call of this.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_path_arm(path: bywash_path, ready: *mut c_int) -> c_int {
    const NULL: &CStr = c"the pointer for whether something is there is null";
    let armed = check_place(ready, NULL).and_then(|()| Ok(self::path(path)?.arm()?));
    // SAFETY: the caller's variable, or null.
    answer(armed.and_then(|armed| unsafe { put(ready, c_int::from(armed), NULL) }))
}
