//! Volumes that are read and written by calls that wait.

use crate::bytes::{to_copy, to_fill};
use crate::client::{bywash_client, client};
use crate::error::{Failure, answer, c_text};
use crate::handles::{Table, consume, handles, put, put_sized};
use crate::options::one_of;
use crate::path::{check_place, given, name_of};
use crate::text;
use crate::text::bywash_text;
use ::bywash_client::{Access, Volume, VolumePath};
use std::ffi::{CStr, c_char, c_int};

/// An open volume. May be used by several threads at a time.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct bywash_volume {
    /// Number of the handle; 0 is no handle.
    pub id: u64,
}

handles! { bywash_volume }

/// Rights to a volume.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum bywash_access {
    /// Reading.
    BYWASH_ACCESS_READ = 0,
    /// Writing.
    BYWASH_ACCESS_WRITE = 1,
    /// Both.
    BYWASH_ACCESS_READ_WRITE = 2,
}

/// Properties of an open volume.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct bywash_volume_info {
    /// Size of the volume, in bytes.
    pub bytes: u64,
    /// Block size, in bytes. Offsets and lengths are multiples of the block size.
    pub block: u32,
    /// Rights with which the volume is open: one of enum bywash_access.
    pub access: u32,
    /// 1 if the volume's memory is mapped, so that the server takes no part in reads and writes; 0 if
    /// requests go through the channel.
    pub is_mapped: u32,
}

pub(crate) static VOLUMES: Table<Volume> = Table::new();

const ACCESSES: [Access; 3] = [Access::Read, Access::Write, Access::ReadWrite];
const NULL_VOLUME: &CStr = c"the pointer for the new volume is null";

/// Rights with which the volume is open: one of enum bywash_access.
pub(crate) fn access_of(number: c_int) -> Result<Access, Failure> {
    one_of("the access", number, &ACCESSES)
}

/// A volume's name.
///
/// # Safety
/// As [`name_of`].
pub(crate) unsafe fn volume_name(name: *const c_char) -> Result<String, Failure> {
    // SAFETY: the caller keeps the contract in this function's Safety section.
    Ok(unsafe { name_of(name) }?.to_string_lossy().into_owned())
}

/// Does something with a volume, which stays open meanwhile, whatever another thread does with the handle.
fn with<R>(
    handle: bywash_volume,
    work: impl FnOnce(&Volume) -> Result<R, ::bywash_client::Error>,
) -> Result<R, Failure> {
    let volume = VOLUMES.look(handle, |volume| volume.clone())?;
    Ok(work(&volume)?)
}

/// Opens a volume by its name, with rights of enum bywash_access.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_volume_open(
    client: bywash_client,
    name: *const c_char,
    access: c_int,
    volume: *mut bywash_volume,
) -> c_int {
    answer(check_place(volume, NULL_VOLUME).and_then(|()| {
        // SAFETY: the header's rule: a pointer is null or valid, here to a text that ends with a zero.
        let name = unsafe { volume_name(name) }?;
        let opened = self::client(client)?.open(&name, access_of(access)?)?;
        // SAFETY: not null, so valid by the header's rule, and the variable is the caller's.
        unsafe { put(volume, VOLUMES.insert(opened)?, NULL_VOLUME) }
    }))
}

/// Opens a regular file or a block device by a descriptor of the program, with the rights of the descriptor's
/// access mode. The library takes the descriptor over and closes it even if the call fails, except with
/// BYWASH_ERROR_ARGUMENT and BYWASH_ERROR_HANDLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_volume_open_descriptor(
    client: bywash_client,
    fd: c_int,
    volume: *mut bywash_volume,
) -> c_int {
    answer(check_place(volume, NULL_VOLUME).and_then(|()| {
        let opened = self::client(client)?.open_descriptor(given(fd)?)?;
        // SAFETY: not null, so valid by the header's rule, and the variable is the caller's.
        unsafe { put(volume, VOLUMES.insert(opened)?, NULL_VOLUME) }
    }))
}

/// Closes a volume and zeroes the handle. A zero handle is ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_volume_close(volume: *mut bywash_volume) -> c_int {
    // SAFETY: the header's rule: a pointer is null or valid, here to a variable of the caller.
    answer(unsafe { consume(&VOLUMES, volume) }.map(drop))
}

/// Returns the properties of a volume; `size` is sizeof *info.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_volume_get_info(
    volume: bywash_volume,
    info: *mut bywash_volume_info,
    size: usize,
) -> c_int {
    answer(
        with(volume, |volume| {
            let access = ACCESSES.iter().position(|access| *access == volume.access()).unwrap_or(0) as u32;
            let is_mapped = u32::from(volume.path().is_mapped());
            Ok(bywash_volume_info { bytes: volume.len(), block: volume.block(), access, is_mapped })
        })
        // SAFETY: the caller's variable, of so many bytes, or null.
        .and_then(|found| unsafe { put_sized(info, size, found, c"the pointer for the facts is null") }),
    )
}

/// Returns the reason why a volume is not mapped, or an empty text if the volume is mapped. Free the text
/// with bywash_text_free().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_volume_why_not_mapped(
    volume: bywash_volume,
    text: *mut bywash_text,
) -> c_int {
    answer(check_place(text, text::NULL_TEXT).and_then(|()| {
        let why = with(volume, |volume| {
            Ok(match volume.path() {
                VolumePath::Mapped => String::new(),
                VolumePath::Channel { why } => why,
                path @ VolumePath::Direct { .. } => path.to_string(),
            })
        })?;
        // SAFETY: not null, so valid by the header's rule, and the variable is the caller's.
        unsafe { text::hand_out(c_text(why), text) }
    }))
}

/// Reads `length` bytes from `offset` on into `to`. If the call fails the contents of `to` are undefined.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_volume_read(
    volume: bywash_volume,
    offset: u64,
    to: *mut u8,
    length: usize,
) -> c_int {
    // SAFETY: the header's rule: a pointer is null or valid, here to as many bytes as the length says.
    let to = unsafe { to_fill(to, length) };
    answer(to.and_then(|to| with(volume, |volume| volume.read_at(to, offset))))
}

/// Writes `length` bytes at `from` to the volume from `offset` on. The bytes are durable after the next
/// bywash_volume_flush(), or, if `durable` is not 0, when the call returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_volume_write(
    volume: bywash_volume,
    offset: u64,
    from: *const u8,
    length: usize,
    durable: c_int,
) -> c_int {
    // SAFETY: the header's rule: a pointer is null or valid, here to as many bytes as the length says.
    let from = unsafe { to_copy(from, length) };
    answer(from.and_then(|from| {
        with(volume, |volume| match durable {
            0 => volume.write_at(from, offset),
            _ => volume.write_at_durable(from, offset),
        })
    }))
}

/// Flushes a volume: every write that was completed before the call is durable when the call returns, as far
/// as the device is durable at all.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_volume_flush(volume: bywash_volume) -> c_int {
    answer(with(volume, Volume::flush))
}

/// Tells the device that the contents of a range are no longer needed (TRIM). The bytes are undefined until
/// they are written again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_volume_discard(volume: bywash_volume, offset: u64, length: u64) -> c_int {
    answer(with(volume, |volume| volume.discard(offset, length)))
}

/// Writes zeros to a range; see bywash_volume_write() for `durable`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_volume_write_zeroes(
    volume: bywash_volume,
    offset: u64,
    length: u64,
    durable: c_int,
) -> c_int {
    answer(with(volume, |volume| match durable {
        0 => volume.write_zeroes(offset, length),
        _ => volume.write_zeroes_durable(offset, length),
    }))
}

/// Writes the `length` bytes at `written` if the range holds the bytes at `expected`, else fails with
/// BYWASH_ERROR_DIFFERS. The operation is atomic among all clients of the server. Most devices support a
/// length of one block.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_volume_compare_and_write(
    volume: bywash_volume,
    offset: u64,
    expected: *const u8,
    written: *const u8,
    length: usize,
) -> c_int {
    // SAFETY: the header's rule: a pointer is null or valid, here to as many bytes as the length says.
    let both = unsafe { to_copy(expected, length).and_then(|one| Ok((one, to_copy(written, length)?))) };
    answer(both.and_then(|(expected, written)| {
        with(volume, |volume| match volume.compare_and_write(offset, expected, written)? {
            true => Ok(()),
            false => Err(::bywash_client::Error::CompareFailed { volume: volume.name() }),
        })
    }))
}
