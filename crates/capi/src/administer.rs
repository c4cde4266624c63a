//! What only a device server's administrator may ask: its own user, and root.
//!
//! None of this is asked again where the connection is made again meanwhile: whether it was done is then unknown.

use crate::error::bywash_error::BYWASH_ERROR_ARGUMENT;
use crate::error::{Failure, answer};
use crate::storage::{bywash_storage, storage};
use crate::volume::volume_name;
use ::bywash_client::{Client, Error, NewVolume, Permissions};
use std::ffi::{c_char, c_int};

/// Asks something of a volume.
///
/// # Safety
/// As [`volume_name`].
unsafe fn ask(
    storage: bywash_storage,
    name: *const c_char,
    ask: impl FnOnce(&Client, &str) -> Result<(), Error>,
) -> c_int {
    // SAFETY: what the caller promises.
    let name = unsafe { volume_name(name) };
    answer(name.and_then(|name| Ok(ask(&self::storage(storage)?, &name)?)))
}

/// Makes a volume of at least `bytes` on a device, of that owner and group; of the mode, as chmod(1) has it, the bits to
/// read and to write count. Only the server's own user and root may do this, and what follows here
/// (BYWASH_ERROR_DENIED).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_storage_create(
    storage: bywash_storage,
    name: *const c_char,
    device: *const c_char,
    bytes: u64,
    owner: u32,
    group: u32,
    mode: u16,
) -> c_int {
    // SAFETY: the caller's texts, or null.
    match unsafe { volume_name(device) } {
        // SAFETY: as above.
        Ok(device) => unsafe {
            ask(storage, name, |client, name| {
                client.create(NewVolume { name: name.into(), device, bytes, owner, group, mode })
            })
        },
        Err(failure) => answer(Err(failure)),
    }
}

/// Makes a volume larger or smaller; the rights to a smaller one are taken back.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_storage_resize(
    storage: bywash_storage,
    name: *const c_char,
    bytes: u64,
) -> c_int {
    // SAFETY: the caller's text, or null.
    unsafe { ask(storage, name, |client, name| client.resize(name, bytes)) }
}

/// Gives a volume another name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_storage_rename(
    storage: bywash_storage,
    name: *const c_char,
    to: *const c_char,
) -> c_int {
    // SAFETY: the caller's texts, or null.
    match unsafe { volume_name(to) } {
        // SAFETY: as above.
        Ok(to) => unsafe { ask(storage, name, |client, name| client.rename(name, &to)) },
        Err(failure) => answer(Err(failure)),
    }
}

/// One of the numbers of [`bywash_storage_permit`]; negative: none.
fn number<N: TryFrom<i64>>(what: &str, given: i64) -> Result<Option<N>, Failure> {
    if given < 0 {
        return Ok(None);
    }
    let found = N::try_from(given).map(Some);
    found.map_err(|_| Failure::new(BYWASH_ERROR_ARGUMENT, format!("{what} {given} cannot be")))
}

/// Changes who may do what with a volume, and takes all rights to it back. What is negative stays as it is; `read_only` is
/// 0 or 1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_storage_permit(
    storage: bywash_storage,
    name: *const c_char,
    owner: i64,
    group: i64,
    mode: i64,
    read_only: c_int,
) -> c_int {
    let permissions = || {
        let (owner, group) = (number("the owner", owner)?, number("the group", group)?);
        let read_only = number::<u8>("for read_only,", read_only.into())?.map(|read_only| read_only != 0);
        Ok(Permissions { owner, group, mode: number("the mode", mode)?, read_only })
    };
    match permissions() {
        // SAFETY: the caller's text, or null.
        Ok(permissions) => unsafe { ask(storage, name, |client, name| client.permit(name, permissions)) },
        Err(failure) => answer(Err(failure)),
    }
}

/// Removes a volume: the rights to it are taken back, and its contents are cleared.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_storage_remove(storage: bywash_storage, name: *const c_char) -> c_int {
    // SAFETY: the caller's text, or null.
    unsafe { ask(storage, name, Client::remove) }
}

/// Takes back all rights to a volume, and waits until no request by them is under way.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_storage_revoke(storage: bywash_storage, name: *const c_char) -> c_int {
    // SAFETY: the caller's text, or null.
    unsafe { ask(storage, name, Client::revoke) }
}
