//! Volumes that are read and written by calls that wait.

use crate::bytes::{to_copy, to_fill};
use crate::error::{Failure, answer, c_text};
use crate::handles::{Table, consume, handles, put, put_sized};
use crate::options::one_of;
use crate::path::{check_place, given, name_of};
use crate::storage::{bywash_storage, storage};
use crate::text;
use crate::text::bywash_text;
use ::bywash_client::{Access, Path, Volume};
use std::ffi::{CStr, c_char, c_int};

/// An open volume. May be used by several threads at a time.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct bywash_volume {
    /// 0: none.
    pub id: u64,
}

handles! { bywash_volume }

/// What may be done with a volume.
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

/// What an open volume is.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct bywash_volume_info {
    /// Its bytes.
    pub bytes: u64,
    /// Bytes of a block: offsets and lengths are multiples of it.
    pub block: u32,
    /// One of enum bywash_access.
    pub access: u32,
    /// 1: its memory is mapped here, and no server is on the way. 0: requests go through the channel.
    pub is_mapped: u32,
}

pub(crate) static VOLUMES: Table<Volume> = Table::new();

const ACCESSES: [Access; 3] = [Access::Read, Access::Write, Access::ReadWrite];
const NULL_VOLUME: &CStr = c"the pointer for the new volume is null";

/// One of enum bywash_access.
pub(crate) fn access_of(number: c_int) -> Result<Access, Failure> {
    one_of("the access", number, &ACCESSES)
}

/// A volume's name.
///
/// # Safety
/// As [`name_of`].
pub(crate) unsafe fn volume_name(name: *const c_char) -> Result<String, Failure> {
    // SAFETY: what the caller promises.
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

/// Opens a volume by its name, for one of enum bywash_access.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_volume_open(
    storage: bywash_storage,
    name: *const c_char,
    access: c_int,
    volume: *mut bywash_volume,
) -> c_int {
    answer(check_place(volume, NULL_VOLUME).and_then(|()| {
        // SAFETY: the caller's text, or null.
        let name = unsafe { volume_name(name) }?;
        let opened = self::storage(storage)?.open(&name, access_of(access)?)?;
        // SAFETY: the caller's variable, which is not null.
        unsafe { put(volume, VOLUMES.insert(opened)?, NULL_VOLUME) }
    }))
}

/// Opens a regular file or a block device that the program has opened: what may be done with it is what the descriptor's
/// access mode is. The descriptor is the library's from here on, and is closed even if this fails, except with
/// BYWASH_ERROR_ARGUMENT and BYWASH_ERROR_HANDLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_volume_open_descriptor(
    storage: bywash_storage,
    fd: c_int,
    volume: *mut bywash_volume,
) -> c_int {
    answer(check_place(volume, NULL_VOLUME).and_then(|()| {
        let opened = self::storage(storage)?.open_descriptor(given(fd)?)?;
        // SAFETY: the caller's variable, which is not null.
        unsafe { put(volume, VOLUMES.insert(opened)?, NULL_VOLUME) }
    }))
}

/// Closes a volume and zeroes the handle. Zero is left alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_volume_close(volume: *mut bywash_volume) -> c_int {
    // SAFETY: the caller's variable, or null.
    answer(unsafe { consume(&VOLUMES, volume) }.map(drop))
}

/// Tells what a volume is; `size` is sizeof *info.
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

/// Tells why a volume is not mapped; the text is empty if it is. Free it with bywash_text_free().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_volume_why_not_mapped(
    volume: bywash_volume,
    text: *mut bywash_text,
) -> c_int {
    answer(check_place(text, text::NULL_TEXT).and_then(|()| {
        let why = with(volume, |volume| {
            Ok(match volume.path() {
                Path::Mapped => String::new(),
                Path::Channel { why } => why,
            })
        })?;
        // SAFETY: the caller's variable, which is not null.
        unsafe { text::hand_out(c_text(why), text) }
    }))
}

/// Reads `length` bytes from `offset` on into `to`, all of them or none for certain.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_volume_read(
    volume: bywash_volume,
    offset: u64,
    to: *mut u8,
    length: usize,
) -> c_int {
    // SAFETY: the caller's memory, or null.
    let to = unsafe { to_fill(to, length) };
    answer(to.and_then(|to| with(volume, |volume| volume.read_at(to, offset))))
}

/// Writes `length` bytes from `from` on. They are durable after the next bywash_volume_flush(), or, if `durable` is not 0,
/// when this returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_volume_write(
    volume: bywash_volume,
    offset: u64,
    from: *const u8,
    length: usize,
    durable: c_int,
) -> c_int {
    // SAFETY: the caller's bytes, or null.
    let from = unsafe { to_copy(from, length) };
    answer(from.and_then(|from| {
        with(volume, |volume| match durable {
            0 => volume.write_at(from, offset),
            _ => volume.write_at_durable(from, offset),
        })
    }))
}

/// Everything whose writing had been completed before is durable, as far as the medium is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_volume_flush(volume: bywash_volume) -> c_int {
    answer(with(volume, Volume::flush))
}

/// What these bytes are is of no matter any more: they may be anything until they are written again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_volume_discard(volume: bywash_volume, offset: u64, length: u64) -> c_int {
    answer(with(volume, |volume| volume.discard(offset, length)))
}

/// Changes bytes to zeros; `durable` as in bywash_volume_write().
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

/// Writes the `length` bytes at `written` if those at `expected` are there, as one step for all who do so through the
/// server; else BYWASH_ERROR_DIFFERS. Most devices do that with one block.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_volume_compare_and_write(
    volume: bywash_volume,
    offset: u64,
    expected: *const u8,
    written: *const u8,
    length: usize,
) -> c_int {
    // SAFETY: the caller's bytes, or null.
    let both = unsafe { to_copy(expected, length).and_then(|one| Ok((one, to_copy(written, length)?))) };
    answer(both.and_then(|(expected, written)| {
        with(volume, |volume| match volume.compare_and_write(offset, expected, written)? {
            true => Ok(()),
            false => Err(::bywash_client::Error::Differs { volume: volume.name() }),
        })
    }))
}
