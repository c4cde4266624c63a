//! Pools: containers for a process that maps the arena by itself.

use crate::container::{NULL_RANGE, bywash_memory_range};
use crate::error::bywash_error::BYWASH_ERROR_NOT_MAPPED;
use crate::error::{Failure, answer};
use crate::handles::{Table, consume, handles, put};
use crate::options::one_of;
use crate::path::check_place;
use ::bywash_container::{Pool, PoolContainer, PoolShipment, Trust};
use std::ffi::{CStr, c_int};
use std::os::fd::{AsFd, AsRawFd};

/// Pool: an arena whose containers go to a process that maps it by itself. Used by one thread at a time.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct bywash_pool {
    /// Number of the handle; 0 is no handle.
    pub id: u64,
}

/// Container of a pool. Used by one thread at a time.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct bywash_pool_container {
    /// Number of the handle; 0 is no handle.
    pub id: u64,
}

handles! { bywash_pool bywash_pool_container }

/// Trust in the processes that get the descriptor of a pool.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum bywash_trust {
    /// They may read. The kernel refuses every attempt to write.
    BYWASH_TRUST_READER = 0,
    /// They may also write, at any time, as a Wayland compositor does: do not rely on what the memory holds.
    BYWASH_TRUST_WRITER = 1,
}

/// A container of a pool: this program's, or the other process's. Empty only while it changes hands.
enum Held {
    Here(PoolContainer),
    There(PoolShipment),
    Empty,
}

static POOLS: Table<Pool> = Table::new();
static CONTAINERS: Table<Held> = Table::new();

const NULL_POOL: &CStr = c"the pointer for the new pool is null";
const NULL_CONTAINER: &CStr = c"the pointer for the new container is null";
const SHIPPED: Failure = Failure::fixed(
    BYWASH_ERROR_NOT_MAPPED,
    c"the container was shipped; take it back by bywash_pool_container_returned() once the other process is done",
);
const NOT_SHIPPED: Failure =
    Failure::fixed(BYWASH_ERROR_NOT_MAPPED, c"the container was not shipped, so that it cannot be returned");

/// Creates a pool of at least `bytes` bytes, which are zeros. `trust` is one of enum bywash_trust. Free it with
/// bywash_pool_free().
///
/// BYWASH_ERROR_OPTION: `bytes` is 0, or more than an arena can have.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_pool_create(bytes: usize, trust: c_int, pool: *mut bywash_pool) -> c_int {
    answer(check_place(pool, NULL_POOL).and_then(|()| {
        let trust = one_of("the trust", trust, &[Trust::Reader, Trust::Writer])?;
        let made = POOLS.insert(Pool::create(bytes, trust)?)?;
        // SAFETY: not null, so valid by the header's rule, and the variable is the caller's.
        unsafe { put(pool, made, NULL_POOL) }
    }))
}

/// Frees a pool and zeroes the handle; a zero handle is ignored. Its memory is freed with its last container, those that
/// are shipped included.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_pool_free(pool: *mut bywash_pool) -> c_int {
    // SAFETY: the header's rule: a pointer is null or valid, here to a variable of the caller.
    answer(unsafe { consume(&POOLS, pool) }.map(drop))
}

/// Returns the descriptor of a pool's memory, which the other process maps, and its size in bytes. The descriptor remains
/// the library's: pass it on through a socket, or duplicate it. It is valid as long as the pool is. `bytes` may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_pool_memory(pool: bywash_pool, fd: *mut c_int, bytes: *mut usize) -> c_int {
    let found = POOLS.look(pool, |pool| (pool.as_fd().as_raw_fd(), pool.bytes()));
    answer(found.and_then(|(descriptor, size)| {
        // SAFETY: the header's rule: each pointer is null or valid, here to a variable of the caller.
        unsafe {
            put(fd, descriptor, c"the pointer for the descriptor is null")?;
            if bytes.is_null() { Ok(()) } else { put(bytes, size, c"") }
        }
    }))
}

/// Allocates a container of `bytes` bytes from a pool. The contents are those of the last use of the memory, or zeros.
/// Free it with bywash_pool_container_free().
///
/// BYWASH_ERROR_TOO_LARGE: the pool can never hold so many bytes in one container, or `bytes` is 0.
/// BYWASH_ERROR_NO_ROOM: the pool has no room now; the message tells who has it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_pool_alloc(
    pool: bywash_pool,
    bytes: usize,
    container: *mut bywash_pool_container,
) -> c_int {
    answer(check_place(container, NULL_CONTAINER).and_then(|()| {
        let pool = POOLS.look(pool, |pool| pool.clone())?;
        let made = CONTAINERS.insert(Held::Here(pool.alloc(bytes)?))?;
        // SAFETY: not null, so valid by the header's rule, and the variable is the caller's.
        unsafe { put(container, made, NULL_CONTAINER) }
    }))
}

/// Returns the address and the length of a container's bytes, which the program may write until it ships or frees the
/// container. `length` may be null.
///
/// BYWASH_ERROR_NOT_MAPPED: the container was shipped.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_pool_container_map(
    container: bywash_pool_container,
    bytes: *mut *mut u8,
    length: *mut usize,
) -> c_int {
    let found = CONTAINERS.try_look(container, |held| match held {
        Held::Here(container) => Ok((container.as_mut_ptr(), container.len())),
        Held::There(_) | Held::Empty => Err(SHIPPED),
    });
    answer(found.and_then(|(at, count)| {
        // SAFETY: the header's rule: each pointer is null or valid, here to a variable of the caller.
        unsafe {
            put(bytes, at, c"the pointer for the bytes is null")?;
            if length.is_null() { Ok(()) } else { put(length, count, c"") }
        }
    }))
}

/// Returns descriptor, offset and length of a container's memory, for the other process.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_pool_container_memory(
    container: bywash_pool_container,
    range: *mut bywash_memory_range,
) -> c_int {
    let found = CONTAINERS.try_look(container, |held| match held {
        Held::Here(container) => Ok(container.memory().into()),
        Held::There(shipment) => Ok(shipment.memory().into()),
        Held::Empty => Err(SHIPPED),
    });
    // SAFETY: the header's rule: a pointer is null or valid, here to a variable of the caller.
    answer(found.and_then(|found: bywash_memory_range| unsafe { put(range, found, NULL_RANGE) }))
}

/// Ships a container: it can be neither mapped nor allocated again until bywash_pool_container_returned(). Tell the other
/// process its offset.
///
/// BYWASH_ERROR_NOT_MAPPED: it was shipped already.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_pool_container_ship(container: bywash_pool_container) -> c_int {
    answer(CONTAINERS.try_look(container, |held| match std::mem::replace(held, Held::Empty) {
        Held::Here(container) => {
            *held = Held::There(container.ship());
            Ok(())
        }
        other => {
            *held = other;
            Err(SHIPPED)
        }
    }))
}

/// Takes a shipped container back. You state that the other process has returned it; otherwise it sees what you write next.
///
/// BYWASH_ERROR_NOT_MAPPED: it was not shipped.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_pool_container_returned(container: bywash_pool_container) -> c_int {
    answer(CONTAINERS.try_look(container, |held| match std::mem::replace(held, Held::Empty) {
        Held::There(shipment) => {
            *held = Held::Here(shipment.returned());
            Ok(())
        }
        other => {
            *held = other;
            Err(NOT_SHIPPED)
        }
    }))
}

/// Frees a container and zeroes the handle; a zero handle is ignored. The memory of a container that is shipped is not
/// used again as long as the pool exists, since the other process may still read it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_pool_container_free(container: *mut bywash_pool_container) -> c_int {
    // SAFETY: the header's rule: a pointer is null or valid, here to a variable of the caller.
    answer(unsafe { consume(&CONTAINERS, container) }.map(drop))
}
