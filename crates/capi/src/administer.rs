//! Requests of a device server's administrator: the server's own user, or root.
//!
//! None of this is asked again where the connection is made again meanwhile: whether it was done is then unknown.

use crate::client::{bywash_client, client};
use crate::error::bywash_error::BYWASH_ERROR_ARGUMENT;
use crate::error::{Failure, answer};
use crate::volume::volume_name;
use ::bywash_client::{Client, Error, NewVolume, Permissions};
use std::ffi::{c_char, c_int};

/// Asks something of a volume.
///
/// # Safety
/// As [`volume_name`].
unsafe fn ask(
    client: bywash_client,
    name: *const c_char,
    ask: impl FnOnce(&Client, &str) -> Result<(), Error>,
) -> c_int {
    // SAFETY: the caller keeps the contract in this function's Safety section.
    let name = unsafe { volume_name(name) };
    answer(name.and_then(|name| Ok(ask(&self::client(client)?, &name)?)))
}

/// Asks something of two volumes.
///
/// # Safety
/// As [`volume_name`], for both texts.
unsafe fn ask_of_two(
    client: bywash_client,
    name: *const c_char,
    other: *const c_char,
    what: impl FnOnce(&Client, &str, &str) -> Result<(), Error>,
) -> c_int {
    // SAFETY: the caller keeps the contract in this function's Safety section.
    match unsafe { volume_name(other) } {
        // SAFETY: the caller keeps the contract in this function's Safety section.
        Ok(other) => unsafe { ask(client, name, |client, name| what(client, name, &other)) },
        Err(failure) => answer(Err(failure)),
    }
}

/// Creates a volume of at least `bytes` bytes on a device, with an owner, a group and a mode (the read and write bits of
/// chmod(1)). Only the server's own user and root may administer volumes (else BYWASH_ERROR_DENIED).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_client_create(
    client: bywash_client,
    name: *const c_char,
    device: *const c_char,
    bytes: u64,
    owner: u32,
    group: u32,
    mode: u16,
) -> c_int {
    let permit = |volume: NewVolume| volume.owner(owner).group(group).mode(mode);
    // SAFETY: the caller keeps the header's rule for both texts.
    unsafe { create(client, name, device, bytes, permit) }
}

/// Creates a thin volume, as bywash_client_create() creates others: its blocks are allocated when they are first written,
/// and until then read as zeros. A write for which the device has no room fails with BYWASH_ERROR_DEVICE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_client_create_thin(
    client: bywash_client,
    name: *const c_char,
    device: *const c_char,
    bytes: u64,
    owner: u32,
    group: u32,
    mode: u16,
) -> c_int {
    let permit = |volume: NewVolume| volume.owner(owner).group(group).mode(mode).thin(true);
    // SAFETY: the caller keeps the header's rule for both texts.
    unsafe { create(client, name, device, bytes, permit) }
}

/// Creates a volume with the properties that `permit` gives it.
///
/// # Safety
/// As [`volume_name`], for both texts.
unsafe fn create(
    client: bywash_client,
    name: *const c_char,
    device: *const c_char,
    bytes: u64,
    permit: impl FnOnce(NewVolume) -> NewVolume,
) -> c_int {
    // SAFETY: the header's rule: each pointer is null or valid, here to a text that ends with a zero.
    match unsafe { volume_name(device) } {
        // SAFETY: the header's rule: the caller keeps its pointers valid until the call returns.
        Ok(device) => unsafe {
            ask(client, name, |client, name| client.create(permit(NewVolume::new(name, device, bytes))))
        },
        Err(failure) => answer(Err(failure)),
    }
}

/// Changes the size of a volume. Grants to a volume that becomes smaller are revoked.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_client_resize(
    client: bywash_client,
    name: *const c_char,
    bytes: u64,
) -> c_int {
    // SAFETY: the header's rule: a pointer is null or valid, here to a text that ends with a zero.
    unsafe { ask(client, name, |client, name| client.resize(name, bytes)) }
}

/// Renames a volume.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_client_rename(
    client: bywash_client,
    name: *const c_char,
    to: *const c_char,
) -> c_int {
    // SAFETY: the header's rule: each pointer is null or valid, here to a text that ends with a zero.
    unsafe { ask_of_two(client, name, to, Client::rename) }
}

/// Takes a snapshot of a thin volume: a volume `snapshot` that nobody can write, with the contents of one instant. Every write
/// that completed before the call is in it, and all of it is durable when the call returns. It takes space only where the
/// volume is written afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_client_snapshot(
    client: bywash_client,
    name: *const c_char,
    snapshot: *const c_char,
) -> c_int {
    // SAFETY: the header's rule: each pointer is null or valid, here to a text that ends with a zero.
    unsafe { ask_of_two(client, name, snapshot, Client::snapshot) }
}

/// Creates a thin volume `name` with the contents, the owner, the group and the mode of a snapshot.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_client_clone_snapshot(
    client: bywash_client,
    snapshot: *const c_char,
    name: *const c_char,
) -> c_int {
    // SAFETY: the header's rule: each pointer is null or valid, here to a text that ends with a zero.
    unsafe { ask_of_two(client, snapshot, name, Client::clone_snapshot) }
}

/// Gives a thin volume the contents and the size that one of its snapshots has, and revokes all grants to it. Refused while a
/// client has it open for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_client_rollback(
    client: bywash_client,
    name: *const c_char,
    snapshot: *const c_char,
) -> c_int {
    // SAFETY: the header's rule: each pointer is null or valid, here to a text that ends with a zero.
    unsafe { ask_of_two(client, name, snapshot, Client::rollback) }
}

/// One of the numbers of [`bywash_client_permit`]; negative: none.
fn number<N: TryFrom<i64>>(what: &str, given: i64) -> Result<Option<N>, Failure> {
    if given < 0 {
        return Ok(None);
    }
    let found = N::try_from(given).map(Some);
    found.map_err(|_| Failure::new(BYWASH_ERROR_ARGUMENT, format!("{what} {given} cannot be")))
}

/// Changes owner, group, mode and write protection (`read_only`, 0 or 1) of a volume, and revokes all grants to it. A
/// negative argument leaves its property unchanged.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_client_permit(
    client: bywash_client,
    name: *const c_char,
    owner: i64,
    group: i64,
    mode: i64,
    read_only: c_int,
) -> c_int {
    let permissions = || {
        let (owner, group) = (number::<u32>("the owner", owner)?, number::<u32>("the group", group)?);
        let read_only = number::<u8>("for read_only,", read_only.into())?.map(|read_only| read_only != 0);
        let permissions = Permissions::default().owner(owner).group(group).read_only(read_only);
        Ok(permissions.mode(number::<u16>("the mode", mode)?))
    };
    match permissions() {
        // SAFETY: the header's rule: a pointer is null or valid, here to a text that ends with a zero.
        Ok(permissions) => unsafe { ask(client, name, |client, name| client.permit(name, permissions)) },
        Err(failure) => answer(Err(failure)),
    }
}

/// Removes a volume: all grants to it are revoked, and its contents are cleared, except what snapshots or clones have, too.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_client_remove(client: bywash_client, name: *const c_char) -> c_int {
    // SAFETY: the header's rule: a pointer is null or valid, here to a text that ends with a zero.
    unsafe { ask(client, name, Client::remove) }
}

/// Revokes all grants to a volume, and waits until no request by them is in flight.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_client_revoke(client: bywash_client, name: *const c_char) -> c_int {
    // SAFETY: the header's rule: a pointer is null or valid, here to a text that ends with a zero.
    unsafe { ask(client, name, Client::revoke) }
}
