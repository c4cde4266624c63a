//! `read`, `write` and similar calls.

use crate::durability::descriptors::flag;
use crate::durability::syncs::{self, SyncKind};
use crate::durability::writes::{self, Contents};
use crate::durability::{self, synchronous};
use crate::{real, signals};
use bywash_file::buffer::{Buffer, Segment};
use bywash_file::copy::guarded_copy;
use bywash_file::table::{self, At, Direction, PositionLookup};
use bywash_file::threads;
use bywash_session::Counter;
use core::ffi::{c_int, c_long, c_void};
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use libc::{iovec, off_t, size_t, ssize_t};

/// Greatest number of segments of a `readv` or `writev` that the library serves.
const SEGMENTS_MAX: usize = 64;

/// True if the program has ever cancelled a thread.
static CANCELS: AtomicBool = AtomicBool::new(false);

/// Tests for cancellation: the calls of this module are cancellation points, also if the kernel is not
/// called.
#[inline(always)]
pub fn cancellation_point() {
    unsafe extern "C" {
        fn pthread_testcancel();
    }
    if CANCELS.load(Relaxed) {
        // SAFETY: the call has no arguments; it may end the thread, which holds no resource of the library
        // here.
        unsafe { pthread_testcancel() };
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_cancel(thread: usize) -> c_int {
    CANCELS.store(true, Relaxed);
    // SAFETY: the program keeps the contract of the C library's function that it called.
    unsafe { real::pthread_cancel(thread) }
}

/// Serves a call at an offset, at user level or by `kernel`. A call that writes names the bytes.
///
/// # Safety
/// The buffer is the one that the program passed for this call.
#[inline(always)]
unsafe fn at_offset(
    fd: c_int,
    buffer: Buffer<'_>,
    wanted: size_t,
    offset: off_t,
    kernel: impl Fn() -> ssize_t,
    written: Option<Contents>,
) -> ssize_t {
    cancellation_point();
    let direction = direction_of(written);
    let kernel = || match written {
        None => kernel(),
        Some(contents) => writes::at(fd, offset, contents, &kernel),
    };
    // SAFETY: the caller passes the program's own buffer, as the contract of the call requires.
    match unsafe { table::serve_at(fd, direction, buffer, offset) } {
        At::Served(done) => done as ssize_t,
        At::Passed(passed) => {
            let result = kernel();
            passed.finish(result);
            result
        }
        At::Kernel => {
            let result = by_kernel(fd, direction, &kernel);
            table::served_at(fd, direction, wanted, offset, result);
            result
        }
    }
}

/// Serves a call at the file's own position: at user level, by `kernel_at` with an offset, or by `kernel`. A call that writes
/// names the bytes.
///
/// # Safety
/// The buffer is the one that the program passed for this call.
#[inline(always)]
unsafe fn here(
    fd: c_int,
    buffer: Buffer<'_>,
    wanted: size_t,
    kernel_at: impl Fn(off_t) -> ssize_t,
    kernel: impl Fn() -> ssize_t,
    written: Option<Contents>,
) -> ssize_t {
    cancellation_point();
    let direction = direction_of(written);
    let kernel_at = |offset| match written {
        None => kernel_at(offset),
        Some(contents) => writes::at(fd, offset, contents, || kernel_at(offset)),
    };
    let kernel = || match written {
        None => {
            let _position = synchronous::position(fd);
            kernel()
        }
        Some(contents) => writes::here(fd, contents, &kernel),
    };
    // SAFETY: the caller passes the program's own buffer, as the contract of the call requires.
    match unsafe { table::serve_here(fd, direction, buffer) } {
        PositionLookup::Served(done) => done as ssize_t,
        PositionLookup::Ours(mut call) => loop {
            let result = by_kernel(fd, direction, &|| kernel_at(call.offset));
            if !call.finish(direction, wanted, result) {
                return result;
            }
        },
        PositionLookup::Kernel(position) => {
            let result = by_kernel(fd, direction, &kernel);
            position.finish(direction, wanted, result);
            result
        }
    }
}

/// Returns the direction of a call that writes these bytes, or none.
#[inline(always)]
fn direction_of(written: Option<Contents>) -> Direction {
    if written.is_some() { Direction::Write } else { Direction::Read }
}

/// Lets the kernel serve a call, by a system call made here where that makes no difference, otherwise by the
/// C library. On processors that do not trust their return predictions after a system call, each return
/// behind it is mispredicted, and one return less saves more than this library's whole work for the call
/// costs. The C library would only add that a cancelled thread ends within the call: on a file with a data
/// path the call never waits long, and a thread that is alone cannot be cancelled by another.
///
/// # Safety
/// The arguments are those that the program passed for the call of this number.
#[inline(always)]
unsafe fn direct_or(
    number: c_long,
    fd: c_int,
    buffer: *const c_void,
    length: size_t,
    offset: off_t,
    by_library: impl Fn() -> ssize_t,
) -> ssize_t {
    unsafe extern "C" {
        /// The C library's flag that the process has one thread only.
        safe static __libc_single_threaded: AtomicBool;
    }
    if CANCELS.load(Relaxed) || !(table::is_served(fd) || __libc_single_threaded.load(Relaxed)) {
        return by_library();
    }
    // SAFETY: the caller passes the program's arguments for the call of this number.
    unsafe { real::direct(number, [fd as usize, buffer as usize, length, offset as usize, 0, 0]) }
}

#[inline(always)]
unsafe fn kernel_read(fd: c_int, to: *mut c_void, length: size_t) -> ssize_t {
    // SAFETY: the program keeps the contract of the C library's function that it called.
    unsafe { direct_or(libc::SYS_read, fd, to, length, 0, || real::read(fd, to, length)) }
}

#[inline(always)]
unsafe fn kernel_write(fd: c_int, from: *const c_void, length: size_t) -> ssize_t {
    // SAFETY: the program keeps the contract of the C library's function that it called.
    unsafe { direct_or(libc::SYS_write, fd, from, length, 0, || real::write(fd, from, length)) }
}

#[inline(always)]
unsafe fn kernel_pread(fd: c_int, to: *mut c_void, length: size_t, offset: off_t) -> ssize_t {
    // SAFETY: the program keeps the contract of the C library's function that it called.
    unsafe { direct_or(libc::SYS_pread64, fd, to, length, offset, || real::pread(fd, to, length, offset)) }
}

#[inline(always)]
unsafe fn kernel_pwrite(fd: c_int, from: *const c_void, length: size_t, offset: off_t) -> ssize_t {
    // SAFETY: the program keeps the contract of the C library's function that it called.
    unsafe {
        direct_or(libc::SYS_pwrite64, fd, from, length, offset, || real::pwrite(fd, from, length, offset))
    }
}

#[inline(always)]
fn by_kernel(fd: c_int, direction: Direction, kernel: &impl Fn() -> ssize_t) -> ssize_t {
    let _alone = (direction == Direction::Write).then(|| table::before_kernel_write(fd));
    kernel()
}

/// Copy of the program's list of segments; empty if the kernel must serve the call.
struct Segments {
    pieces: [Segment; SEGMENTS_MAX],
    count: usize,
}

impl Segments {
    /// Copies the list of a call, if `fd` has a data path and the list is short and readable.
    #[inline]
    unsafe fn copy(fd: c_int, list: *const iovec, count: c_int) -> Segments {
        let mut segments =
            Segments { pieces: [Segment { at: core::ptr::null_mut(), length: 0 }; SEGMENTS_MAX], count: 0 };
        let Ok(count) = usize::try_from(count) else { return segments };
        if count > SEGMENTS_MAX || !table::is_served(fd) || !signals::ready() {
            return segments;
        }
        let bytes = count * size_of::<Segment>();
        // SAFETY: the target is a local array of sufficient size; a bad list faults, which is caught, and the
        // kernel then reports it.
        if unsafe { guarded_copy(segments.pieces.as_mut_ptr().cast(), list.cast(), bytes) }.is_ok() {
            segments.count = count;
        }
        segments
    }

    fn buffer(&self) -> Buffer<'_> {
        Buffer::Pieces(&self.pieces[..self.count])
    }

    fn bytes(&self) -> usize {
        self.pieces[..self.count].iter().fold(0, |sum, segment| sum.saturating_add(segment.length))
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn read(fd: c_int, to: *mut c_void, length: size_t) -> ssize_t {
    let buffer = Buffer::Whole(Segment { at: to.cast(), length });
    // SAFETY: the program keeps the contract of the C library's function that it called.
    unsafe {
        here(
            fd,
            buffer,
            length,
            |offset| kernel_pread(fd, to, length, offset),
            || kernel_read(fd, to, length),
            None,
        )
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn write(fd: c_int, from: *const c_void, length: size_t) -> ssize_t {
    let buffer = Buffer::Whole(Segment { at: from.cast_mut().cast(), length });
    // SAFETY: the program keeps the contract of the C library's function that it called.
    unsafe {
        here(
            fd,
            buffer,
            length,
            |offset| kernel_pwrite(fd, from, length, offset),
            || kernel_write(fd, from, length),
            Some(Contents::Buffer(from, length)),
        )
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pread(fd: c_int, to: *mut c_void, length: size_t, offset: off_t) -> ssize_t {
    let buffer = Buffer::Whole(Segment { at: to.cast(), length });
    // SAFETY: the program keeps the contract of the C library's function that it called.
    unsafe { at_offset(fd, buffer, length, offset, || kernel_pread(fd, to, length, offset), None) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pwrite(fd: c_int, from: *const c_void, length: size_t, offset: off_t) -> ssize_t {
    let buffer = Buffer::Whole(Segment { at: from.cast_mut().cast(), length });
    // SAFETY: the program keeps the contract of the C library's function that it called.
    unsafe {
        at_offset(
            fd,
            buffer,
            length,
            offset,
            || kernel_pwrite(fd, from, length, offset),
            Some(Contents::Buffer(from, length)),
        )
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn readv(fd: c_int, to: *const iovec, count: c_int) -> ssize_t {
    // SAFETY: the program keeps the contract of the C library's function that it called.
    unsafe {
        let segments = Segments::copy(fd, to, count);
        here(
            fd,
            segments.buffer(),
            segments.bytes(),
            |offset| real::preadv(fd, to, count, offset),
            || real::readv(fd, to, count),
            None,
        )
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn writev(fd: c_int, from: *const iovec, count: c_int) -> ssize_t {
    // SAFETY: the program keeps the contract of the C library's function that it called.
    unsafe {
        let segments = Segments::copy(fd, from, count);
        here(
            fd,
            segments.buffer(),
            segments.bytes(),
            |offset| real::pwritev(fd, from, count, offset),
            || real::writev(fd, from, count),
            Some(Contents::List(from, count, 0)),
        )
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn preadv(fd: c_int, to: *const iovec, count: c_int, offset: off_t) -> ssize_t {
    // SAFETY: the program keeps the contract of the C library's function that it called.
    unsafe {
        let segments = Segments::copy(fd, to, count);
        at_offset(
            fd,
            segments.buffer(),
            segments.bytes(),
            offset,
            || real::preadv(fd, to, count, offset),
            None,
        )
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pwritev(fd: c_int, from: *const iovec, count: c_int, offset: off_t) -> ssize_t {
    // SAFETY: the program keeps the contract of the C library's function that it called.
    unsafe {
        let segments = Segments::copy(fd, from, count);
        at_offset(
            fd,
            segments.buffer(),
            segments.bytes(),
            offset,
            || real::pwritev(fd, from, count, offset),
            Some(Contents::List(from, count, 0)),
        )
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn preadv2(
    fd: c_int,
    to: *const iovec,
    count: c_int,
    offset: off_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: the program keeps the contract of the C library's function that it called.
    unsafe {
        match (flags, offset) {
            (0, -1) => readv(fd, to, count),
            (0, _) => preadv(fd, to, count, offset),
            _ => table::with_kernel_position(fd, || {
                count_flags(fd);
                let _position = (offset == -1).then(|| synchronous::position(fd));
                real::preadv2(fd, to, count, offset, flags)
            }),
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pwritev2(
    fd: c_int,
    from: *const iovec,
    count: c_int,
    offset: off_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: the program keeps the contract of the C library's function that it called.
    unsafe {
        match (flags, offset) {
            (0, -1) => writev(fd, from, count),
            (0, _) => pwritev(fd, from, count, offset),
            _ => table::with_kernel_position(fd, || {
                count_flags(fd);
                by_kernel(fd, Direction::Write, &|| with_flags(fd, from, count, offset, flags))
            }),
        }
    }
}

/// Writes with flags by the kernel: with those that make the write durable if the file has no entry in a log, otherwise
/// without them and with a sync behind.
///
/// # Safety
/// Same as pwritev2(2).
unsafe fn with_flags(fd: c_int, from: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t {
    const DURABLE: c_int = libc::RWF_DSYNC | libc::RWF_SYNC;
    /// Flag of Linux 6.9: a descriptor with O_APPEND writes at the offset all the same.
    const RWF_NOAPPEND: c_int = 0x20;
    let kernel = |flags| {
        // SAFETY: the caller promises the arguments.
        unsafe { real::pwritev2(fd, from, count, offset, flags) }
    };
    let Some(log) = durability::log() else { return kernel(flags) };
    let target = durability::descriptors::look(log, fd);
    // What a synchronous descriptor writes is durable with the flags and without them.
    let is_durable = flags & DURABLE != 0 && !target.is(flag::SYNC);
    let syncs = is_durable && target.entry.is_some();
    let by_kernel = if syncs { flags & !DURABLE } else { flags };
    let appends = match flags & (libc::RWF_APPEND | RWF_NOAPPEND) {
        0 => None,
        flag => Some(flag & libc::RWF_APPEND != 0),
    };
    let contents = Contents::List(from, count, flags & !DURABLE);
    let offset = (offset != -1).then_some(offset);
    let result = writes::noted(log, fd, (offset, appends), contents, || kernel(by_kernel));
    if result <= 0 || !is_durable {
        return result;
    }
    if !syncs {
        return syncs::durable_by_kernel(log, fd, result);
    }
    let kind = if flags & libc::RWF_SYNC != 0 { SyncKind::All } else { SyncKind::Data };
    // SAFETY: the calls have an integer argument only.
    let synced = syncs::sync(fd, kind, || unsafe {
        if kind == SyncKind::All { real::fsync(fd) } else { real::fdatasync(fd) }
    });
    if synced == 0 { result } else { -1 }
}

/// Counts a call with flags, which the kernel serves.
fn count_flags(fd: c_int) {
    if table::is_served(fd) {
        threads::count(Counter::FallbackFlags, 1);
    }
}

macro_rules! same {
    ($($name:ident = $same:ident($($argument:ident: $kind:ty),*);)*) => {
        $(
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($argument: $kind),*) -> ssize_t {
                // SAFETY: the same function under another name, with the same contract.
                unsafe { $same($($argument),*) }
            }
        )*
    };
}

same! {
    pread64 = pread(fd: c_int, to: *mut c_void, length: size_t, offset: off_t);
    pwrite64 = pwrite(fd: c_int, from: *const c_void, length: size_t, offset: off_t);
    preadv64 = preadv(fd: c_int, to: *const iovec, count: c_int, offset: off_t);
    pwritev64 = pwritev(fd: c_int, from: *const iovec, count: c_int, offset: off_t);
    preadv64v2 = preadv2(fd: c_int, to: *const iovec, count: c_int, offset: off_t, flags: c_int);
    pwritev64v2 = pwritev2(fd: c_int, from: *const iovec, count: c_int, offset: off_t, flags: c_int);
    __pread64_chk = __pread_chk(fd: c_int, to: *mut c_void, length: size_t, offset: off_t, room: size_t);
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn __read_chk(fd: c_int, to: *mut c_void, length: size_t, room: size_t) -> ssize_t {
    // SAFETY: the program keeps the contract; the C library's function ends a program whose buffer is too
    // small.
    unsafe { if length > room { real::__read_chk(fd, to, length, room) } else { read(fd, to, length) } }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn __pread_chk(
    fd: c_int,
    to: *mut c_void,
    length: size_t,
    offset: off_t,
    room: size_t,
) -> ssize_t {
    // SAFETY: the program keeps the contract; the C library's function ends a program whose buffer is too
    // small.
    unsafe {
        if length > room {
            real::__pread_chk(fd, to, length, offset, room)
        } else {
            pread(fd, to, length, offset)
        }
    }
}
