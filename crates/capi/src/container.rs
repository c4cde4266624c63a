//! Containers, as long as they are this end's: alloc, map, free.
//!
//! What a handle stands for is a [`Shipment`], since a ship that failed may have turned the container into
//! something else: sealed memory that only waits for being shipped, or a copy in the arena.

use crate::error::bywash_error::{BYWASH_ERROR_NOT_MAPPED, BYWASH_ERROR_TOO_LARGE};
use crate::error::{Failure, answer};
use crate::handles::{Table, bywash_container, bywash_path, consume, put};
use crate::path::{limit, path};
use ::bywash_container::{Container, MemoryRange, Shipment};
use std::ffi::c_int;
use std::os::fd::AsRawFd;

pub(crate) static CONTAINERS: Table<Shipment> = Table::new();

const SEALED: Failure = Failure::fixed(
    BYWASH_ERROR_NOT_MAPPED,
    c"the container was sealed by a ship that did not find room; ship it again, or free it",
);
const LENGTH_NULL: &std::ffi::CStr = c"the pointer for the length is null";

/// Does something with a container that is still to be filled.
fn fillable<R>(
    handle: bywash_container,
    look: impl FnOnce(&mut Container) -> Result<R, Failure>,
) -> Result<R, Failure> {
    CONTAINERS.try_look(handle, |shipment| match shipment {
        Shipment::Own(container) => look(container),
        Shipment::Received(_) => Err(SEALED),
    })
}

/// Allocates a container of `bytes` bytes on a path, and waits up to `timeout_ns` nanoseconds for free memory
/// (negative: for ever; 0: not at all). The contents are those of the last use of the memory, or zeros. A
/// container ends by bywash_ship() or bywash_free().
///
/// BYWASH_ERROR_TOO_LARGE: `bytes` exceeds the arena. BYWASH_ERROR_TIMED_OUT: the arena has no free memory,
/// until the peer frees a container. BYWASH_ERROR_UNFIT: `bytes` is 0 on a sealed path.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_alloc(
    path: bywash_path,
    bytes: usize,
    timeout_ns: i64,
    container: *mut bywash_container,
) -> c_int {
    if container.is_null() {
        return answer(Err(Failure::null(c"the pointer for the new container is null")));
    }
    // SAFETY: not null, so valid by the header's rule, and the variable is the caller's.
    answer(alloc(path, bytes, timeout_ns).and_then(|made| unsafe { put(container, made, c"") }))
}

fn alloc(handle: bywash_path, bytes: usize, timeout_ns: i64) -> Result<bywash_container, Failure> {
    let path = path(handle)?;
    let made = match limit(timeout_ns) {
        None => path.alloc(bytes)?,
        Some(limit) if limit.is_zero() => path.try_alloc(bytes)?.ok_or(Failure::NOT_NOW)?,
        Some(limit) => path.alloc_within(bytes, limit)?,
    };
    CONTAINERS.insert(Shipment::Own(made))
}

/// Returns the address and the length of a container's bytes. The program may read and write the bytes until
/// the container is shipped, freed or resized; after a failed ship, call this function again. `length` may be
/// null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_container_map(
    container: bywash_container,
    bytes: *mut *mut u8,
    length: *mut usize,
) -> c_int {
    let found = fillable(container, |container| Ok((container.as_mut_ptr(), container.len())));
    answer(found.and_then(|(at, count)| {
        // SAFETY: the header's rule: each pointer is null or valid, here to a variable of the caller.
        unsafe {
            put(bytes, at, c"the pointer for the bytes is null")?;
            if length.is_null() { Ok(()) } else { put(length, count, LENGTH_NULL) }
        }
    }))
}

/// Returns the length of a container, in bytes: that many bytes are shipped.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_container_length(container: bywash_container, length: *mut usize) -> c_int {
    let found = CONTAINERS.look(container, |shipment| shipment.len());
    // SAFETY: the header's rule: a pointer is null or valid, here to a variable of the caller.
    answer(found.and_then(|found| unsafe { put(length, found, LENGTH_NULL) }))
}

/// Returns the capacity of a container, in bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_container_capacity(
    container: bywash_container,
    capacity: *mut usize,
) -> c_int {
    let found = fillable(container, |container| Ok(container.capacity()));
    // SAFETY: the header's rule: a pointer is null or valid, here to a variable of the caller.
    answer(found.and_then(|found| unsafe { put(capacity, found, c"the pointer for the capacity is null") }))
}

/// Memory of a container, for a process that maps it by itself, such as a display server.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct bywash_memory_range {
    /// Descriptor of the memory file, which remains the library's: pass it on through a socket, or duplicate it. It is
    /// valid as long as the container is.
    pub fd: c_int,
    /// Offset of the first byte in the file, in bytes.
    pub offset: usize,
    /// Length, in bytes.
    pub length: usize,
}

impl From<MemoryRange<'_>> for bywash_memory_range {
    fn from(MemoryRange { descriptor, offset, length }: MemoryRange<'_>) -> bywash_memory_range {
        bywash_memory_range { fd: descriptor.as_raw_fd(), offset, length }
    }
}

pub(crate) const NULL_RANGE: &std::ffi::CStr = c"the pointer for the memory range is null";

/// Returns descriptor, offset and length of a container's memory. A process that maps it can read the whole arena and
/// write none of it. BYWASH_ERROR_NOT_MAPPED: the container is so small that it is outside of shared memory, it is on a
/// sealed path and not shipped yet, or both ends may write to the arena.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_container_memory(
    container: bywash_container,
    range: *mut bywash_memory_range,
) -> c_int {
    let found = CONTAINERS.try_look(container, |shipment| Ok(shipment.memory()?.into()));
    // SAFETY: the header's rule: a pointer is null or valid, here to a variable of the caller.
    answer(found.and_then(|found: bywash_memory_range| unsafe { put(range, found, NULL_RANGE) }))
}

/// Sets the length of a container, up to its capacity (else BYWASH_ERROR_TOO_LARGE). The address may change:
/// call bywash_container_map() again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_container_resize(container: bywash_container, length: usize) -> c_int {
    answer(fillable(container, |container| match container.resize(length) {
        true => Ok(()),
        false => {
            let most = container.capacity();
            let text = format!("{length} bytes do not fit into a container of {most}; allocate a larger one");
            Err(Failure::new(BYWASH_ERROR_TOO_LARGE, text))
        }
    }))
}

/// Frees a container without shipping it, and zeroes the handle. A zero handle is ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_free(container: *mut bywash_container) -> c_int {
    // SAFETY: the header's rule: a pointer is null or valid, here to a variable of the caller.
    answer(unsafe { consume(&CONTAINERS, container) }.map(drop))
}
