//! Writes that others make for the program: the C library's threads (aio(7)) and the kernel's queues (libaio). A commit log
//! notes none of them, so such files are the kernel's for good.

use crate::durability::{log, unseen};
use crate::real;
use core::ffi::{c_int, c_void};
use libc::aiocb;

/// Leaves the file of a request to the kernel.
///
/// # Safety
/// The request is null or valid, as the C library needs it, which reads it in this process.
unsafe fn written(request: *const aiocb) {
    if log().is_some() && !request.is_null() {
        // SAFETY: the caller promises a request.
        unseen::written_by_others(unsafe { (*request).aio_fildes });
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn aio_write(request: *mut aiocb) -> c_int {
    // SAFETY: the program keeps the contract of the C library's function that it called.
    unsafe {
        written(request);
        real::aio_write(request)
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn aio_write64(request: *mut aiocb) -> c_int {
    // SAFETY: the same function under another name, with the same contract.
    unsafe { aio_write(request) }
}

/// Syncs a file by a thread of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aio_fsync(operation: c_int, request: *mut aiocb) -> c_int {
    // SAFETY: the program keeps the contract of the C library's function that it called.
    unsafe {
        written(request);
        real::aio_fsync(operation, request)
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn aio_fsync64(operation: c_int, request: *mut aiocb) -> c_int {
    // SAFETY: the same function under another name, with the same contract.
    unsafe { aio_fsync(operation, request) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lio_listio(
    mode: c_int,
    list: *const *mut aiocb,
    count: c_int,
    event: *mut c_void,
) -> c_int {
    let requests = if log().is_some() { usize::try_from(count).unwrap_or(0) } else { 0 };
    for place in 0..requests {
        // SAFETY: the program passes a list of this length, which the C library reads in this process.
        unsafe { written(*list.add(place)) };
    }
    // SAFETY: the program keeps the contract of the C library's function that it called.
    unsafe { real::lio_listio(mode, list, count, event) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lio_listio64(
    mode: c_int,
    list: *const *mut aiocb,
    count: c_int,
    event: *mut c_void,
) -> c_int {
    // SAFETY: the same function under another name, with the same contract.
    unsafe { lio_listio(mode, list, count, event) }
}

/// Sets up a queue of the kernel's, to which libaio submits without a call that the library sees.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn io_setup(count: c_int, context: *mut c_void) -> c_int {
    unseen::begins_to_write_unseen();
    // SAFETY: the program keeps the contract of libaio's function that it called.
    unsafe { real::io_setup(count, context) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn io_queue_init(count: c_int, context: *mut c_void) -> c_int {
    unseen::begins_to_write_unseen();
    // SAFETY: the program keeps the contract of libaio's function that it called.
    unsafe { real::io_queue_init(count, context) }
}
