//! Surfaces and their frames.

use crate::container::{NULL_RANGE, bywash_memory_range};
use crate::error::{Failure, answer};
use crate::handles::{Table, consume, consume_live, handles, put, put_sized};
use crate::path::{check_place, limit};
use crate::surface_options::{OPTIONS, bywash_surface_options};
use ::bywash_display::{Frame, Rectangle, Surface};
use std::ffi::{CStr, c_int};
use std::os::fd::{AsFd, AsRawFd};
use std::slice;

/// Surface: a window of a display, or a screen, whose frames are memory that the display has mapped. Used by one thread at
/// a time.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct bywash_surface {
    /// Number of the handle; 0 is no handle.
    pub id: u64,
}

/// Frame of a surface, which the program draws into. Used by one thread at a time.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct bywash_frame {
    /// Number of the handle; 0 is no handle.
    pub id: u64,
}

handles! { bywash_surface bywash_frame }

/// Pixels of a frame.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct bywash_pixels {
    /// First byte of the upper left pixel. A pixel is a word of 32 bits in little-endian order: blue in the lowest byte,
    /// then green, then red; the highest byte is ignored.
    pub bytes: *mut u8,
    /// Number of bytes from there up to the end of the last pixel.
    pub length: usize,
    /// Distance between the beginnings of two rows, in bytes: at least 4 * width.
    pub row_bytes: usize,
    /// Width, in pixels.
    pub width: u32,
    /// Height, in pixels.
    pub height: u32,
}

/// Rectangle of a frame, in pixels.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct bywash_rectangle {
    /// Column of the left edge.
    pub x: u32,
    /// Row of the upper edge.
    pub y: u32,
    /// Number of columns.
    pub width: u32,
    /// Number of rows.
    pub height: u32,
}

/// Counts of a surface.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct bywash_surface_stats {
    /// Frames that were handed to the display.
    pub presented: u64,
    /// Frames that the display has returned.
    pub returned: u64,
    /// Frames that followed though the display had not asked for them, since nobody sees the window.
    pub unseen: u64,
}

static SURFACES: Table<Surface> = Table::new();
static FRAMES: Table<Frame> = Table::new();

const NULL_SURFACE: &CStr = c"the pointer for the new surface is null";
const NULL_FRAME: &CStr = c"the pointer for the frame is null";
const NULL_STATS: &CStr = c"the pointer for the counts is null";

/// Opens a window, which the user cannot resize, or takes a screen. Close it with bywash_surface_close().
///
/// BYWASH_ERROR_OPTION: an option has an invalid value, or no display is named. BYWASH_ERROR_IO: the display cannot be
/// reached. BYWASH_ERROR_UNFIT: the display lacks something; the message says what. BYWASH_ERROR_TIMED_OUT: it does not
/// answer within the timeout.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_surface_open(
    options: bywash_surface_options,
    surface: *mut bywash_surface,
) -> c_int {
    answer(check_place(surface, NULL_SURFACE).and_then(|()| {
        let chosen = OPTIONS.look(options, |chosen| chosen.clone())?;
        let made = SURFACES.insert(Surface::open(chosen.kind()?, &chosen.options)?)?;
        // SAFETY: not null, so valid by the header's rule, and the variable is the caller's.
        unsafe { put(surface, made, NULL_SURFACE) }
    }))
}

/// Closes a surface and zeroes the handle. A zero handle is ignored. Frames that the program still has can be drawn into
/// and freed, but not presented.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_surface_close(surface: *mut bywash_surface) -> c_int {
    // SAFETY: the header's rule: a pointer is null or valid, here to a variable of the caller.
    answer(unsafe { consume(&SURFACES, surface) }.map(drop))
}

/// Returns a frame to draw into, whose contents are those of an older frame. Waits until the display asks for one and a
/// frame is free, up to `timeout_ns` nanoseconds (negative: as long as the timeout of the surface allows; 0: not at all).
/// A frame ends by bywash_surface_present() or bywash_frame_free().
///
/// BYWASH_ERROR_TIMED_OUT: there is none yet; or the display has returned none within the timeout of the surface, which the
/// message says. BYWASH_ERROR_CLOSED: the user closed the window. BYWASH_ERROR_PEER_DIED: the display server died, or the
/// screen was unplugged. BYWASH_ERROR_REFUSED: the display refused a request. BYWASH_ERROR_NO_ROOM: this program holds all
/// frames that the display does not hold.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_surface_frame(
    surface: bywash_surface,
    timeout_ns: i64,
    frame: *mut bywash_frame,
) -> c_int {
    answer(check_place(frame, NULL_FRAME).and_then(|()| {
        let made = SURFACES.with(surface, |surface| match limit(timeout_ns) {
            None => Ok(surface.frame()?),
            Some(limit) => surface.frame_within(limit)?.ok_or(Failure::NOT_NOW),
        })?;
        let made = FRAMES.insert(made)?;
        // SAFETY: not null, so valid by the header's rule, and the variable is the caller's.
        unsafe { put(frame, made, NULL_FRAME) }
    }))
}

/// Returns the pixels of a frame, which the program may write until it presents or frees the frame. A display server may
/// write them as well, so do not rely on what they hold.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_frame_map(frame: bywash_frame, pixels: *mut bywash_pixels) -> c_int {
    let found = FRAMES.look(frame, |frame| bywash_pixels {
        bytes: frame.as_mut_ptr(),
        length: frame.len(),
        row_bytes: frame.row_bytes(),
        width: frame.width(),
        height: frame.height(),
    });
    // SAFETY: the header's rule: a pointer is null or valid, here to a variable of the caller.
    answer(found.and_then(|found| unsafe { put(pixels, found, c"the pointer for the pixels is null") }))
}

/// Returns descriptor, offset and length of a frame's memory, for a process that maps it by itself.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_frame_memory(frame: bywash_frame, range: *mut bywash_memory_range) -> c_int {
    let found = FRAMES.look(frame, |frame| frame.memory_range().into());
    // SAFETY: the header's rule: a pointer is null or valid, here to a variable of the caller.
    answer(found.and_then(|found: bywash_memory_range| unsafe { put(range, found, NULL_RANGE) }))
}

/// Gives a frame back without showing it, and zeroes the handle. A zero handle is ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_frame_free(frame: *mut bywash_frame) -> c_int {
    // SAFETY: the header's rule: a pointer is null or valid, here to a variable of the caller.
    answer(unsafe { consume(&FRAMES, frame) }.map(drop))
}

/// Hands a frame to the display without a copy, and zeroes the handle, also if this fails. `damage` is `count` rectangles
/// in which the frame differs from the one before; with 0 rectangles, all of it does, and `damage` may be null. The display
/// shows the frame as long as no other one is presented.
///
/// BYWASH_ERROR_UNFIT: the frame belongs to another surface; it is given back to that one. Other errors are those of
/// bywash_surface_frame().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_surface_present(
    surface: bywash_surface,
    frame: *mut bywash_frame,
    damage: *const bywash_rectangle,
    count: usize,
) -> c_int {
    let parts = match count {
        0 => Ok(Vec::new()),
        _ if damage.is_null() => Err(Failure::null(c"the pointer to the rectangles is null")),
        // SAFETY: not null, so valid by the header's rule for as many rectangles.
        _ => Ok(unsafe { slice::from_raw_parts(damage, count) }
            .iter()
            .map(|&bywash_rectangle { x, y, width, height }| Rectangle { x, y, width, height })
            .collect::<Vec<_>>()),
    };
    answer(parts.and_then(|parts| {
        // SAFETY: the header's rule: a pointer is null or valid, here to a variable of the caller.
        let frame = unsafe { consume_live(&FRAMES, frame) }?;
        SURFACES.with(surface, |surface| Ok(surface.present(frame, &parts)?))
    }))
}

/// Waits until the display has asked for another frame after the last one, so that the last one has been shown. A window
/// that nobody sees counts as shown. Errors are those of bywash_surface_frame().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_surface_finish(surface: bywash_surface) -> c_int {
    answer(SURFACES.with(surface, |surface| Ok(surface.finish()?)))
}

/// Handles what the display has sent, without waiting: for a program that draws nothing for a while. Errors are those of
/// bywash_surface_frame().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_surface_dispatch(surface: bywash_surface) -> c_int {
    answer(SURFACES.with(surface, |surface| Ok(surface.dispatch()?)))
}

/// Returns a descriptor for poll(2), which becomes readable (POLLIN) when the display has sent something. Then, or when
/// 100 ms have passed, call bywash_surface_frame() with a timeout of 0. It remains the library's, and is valid as long as
/// the surface is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_surface_fd(surface: bywash_surface, fd: *mut c_int) -> c_int {
    let found = SURFACES.look(surface, |surface| surface.as_fd().as_raw_fd());
    // SAFETY: the header's rule: a pointer is null or valid, here to a variable of the caller.
    answer(found.and_then(|found| unsafe { put(fd, found, c"the pointer for the descriptor is null") }))
}

/// Returns the counts of a surface so far. `size` is sizeof(struct bywash_surface_stats).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_surface_get_stats(
    surface: bywash_surface,
    stats: *mut bywash_surface_stats,
    size: usize,
) -> c_int {
    let found = SURFACES.look(surface, |surface| {
        let stats = surface.stats();
        bywash_surface_stats { presented: stats.presented, returned: stats.returned, unseen: stats.unseen }
    });
    // SAFETY: the header's rule: a pointer is null or valid, here to as many bytes as the caller says.
    answer(found.and_then(|found| unsafe { put_sized(stats, size, found, NULL_STATS) }))
}
