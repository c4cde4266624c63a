//! Options of a surface: setters that build [`bywash_display::SurfaceOptions`], and the kind of the display.

use crate::error::bywash_error::BYWASH_ERROR_OPTION;
use crate::error::{Failure, answer};
use crate::handles::{Table, consume, handles, put};
use crate::options::one_of;
use crate::path::check_place;
use ::bywash_display::{DisplayKind, Error, SurfaceOptions};
use std::ffi::{CStr, c_char, c_int};
use std::time::Duration;

/// Options of a surface. Used by one thread at a time.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct bywash_surface_options {
    /// Number of the handle; 0 is no handle.
    pub id: u64,
}

handles! { bywash_surface_options }

/// Kind of a display.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum bywash_display {
    /// The display that the environment names: Wayland by WAYLAND_DISPLAY, X11 by DISPLAY. The default.
    BYWASH_DISPLAY_DETECT = 0,
    /// A Wayland compositor, which maps the frames for reading and writing.
    BYWASH_DISPLAY_WAYLAND = 1,
    /// An X server of this machine, which maps the frames for reading.
    BYWASH_DISPLAY_X11 = 2,
    /// A screen of a display adapter without a display server.
    BYWASH_DISPLAY_KMS = 3,
}

pub(crate) struct Chosen {
    kind: Option<DisplayKind>,
    pub(crate) options: SurfaceOptions,
}

impl Chosen {
    pub(crate) fn kind(&self) -> Result<DisplayKind, Failure> {
        self.kind.or_else(DisplayKind::detect).ok_or_else(|| {
            let what =
                "neither WAYLAND_DISPLAY nor DISPLAY is set; set one, or choose the kind of the display";
            Error::NoDisplay(what.into()).into()
        })
    }
}

impl Clone for Chosen {
    fn clone(&self) -> Chosen {
        Chosen { kind: self.kind, options: self.options.clone() }
    }
}

pub(crate) static OPTIONS: Table<Chosen> = Table::new();

fn set(
    handle: bywash_surface_options,
    change: impl FnOnce(SurfaceOptions) -> SurfaceOptions,
) -> Result<(), Failure> {
    OPTIONS.look(handle, |chosen| chosen.options = change(chosen.options.clone()))
}

/// Reads a text of the program.
///
/// # Safety
/// `text` is null or leads to a text that ends with a zero.
unsafe fn read(text: *const c_char) -> Result<String, Failure> {
    if text.is_null() {
        return Err(Failure::null(c"the text is null"));
    }
    // SAFETY: the caller keeps the contract in this function's Safety section.
    let bytes = unsafe { CStr::from_ptr(text) };
    let failed = |_| {
        let text = format!("'{}' is not UTF-8: give text that is", bytes.to_string_lossy());
        Failure::new(BYWASH_ERROR_OPTION, text)
    };
    bytes.to_str().map(str::to_owned).map_err(failed)
}

/// Creates options of a surface of this size, in pixels, with the defaults: three frames, a timeout of 5 s, and the
/// display that the environment names. Free them with bywash_surface_options_free(), at any time after the last surface was
/// opened with them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_surface_options_new(
    width: u32,
    height: u32,
    options: *mut bywash_surface_options,
) -> c_int {
    const NULL: &CStr = c"the pointer for the new options is null";
    answer(check_place(options, NULL).and_then(|()| {
        let made = OPTIONS.insert(Chosen { kind: None, options: SurfaceOptions::new(width, height) })?;
        // SAFETY: not null, so valid by the header's rule, and the variable is the caller's.
        unsafe { put(options, made, NULL) }
    }))
}

/// Frees options and zeroes the handle. A zero handle is ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_surface_options_free(options: *mut bywash_surface_options) -> c_int {
    // SAFETY: the header's rule: a pointer is null or valid, here to a variable of the caller.
    answer(unsafe { consume(&OPTIONS, options) }.map(drop))
}

/// Sets the display: its kind, one of enum bywash_display, and its name: for X11 as in DISPLAY (":0"), for Wayland its
/// socket, for a screen without a server the path of the card. A null name stands for the one that the environment names,
/// and for the first card that has a screen.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_surface_options_set_display(
    options: bywash_surface_options,
    kind: c_int,
    name: *const c_char,
) -> c_int {
    let all = [None, Some(DisplayKind::Wayland), Some(DisplayKind::X11), Some(DisplayKind::Kms)];
    let kind = one_of("the kind of display", kind, &all);
    answer(kind.and_then(|kind| {
        if !name.is_null() {
            // SAFETY: the header's rule: a pointer is null or valid, here to a text that ends with a zero.
            let name = unsafe { read(name) }?;
            set(options, |options| options.display(name))?;
        }
        OPTIONS.look(options, |chosen| chosen.kind = kind)
    }))
}

/// Sets the title of the window. Default "bywash".
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_surface_options_set_title(
    options: bywash_surface_options,
    title: *const c_char,
) -> c_int {
    // SAFETY: the header's rule: a pointer is null or valid, here to a text that ends with a zero.
    answer(unsafe { read(title) }.and_then(|title| set(options, |options| options.title(title))))
}

/// Sets the number of frames, from 2 to 16 (else opening the surface fails with BYWASH_ERROR_OPTION): those that the
/// program draws into, and those that the display has. Default 3.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_surface_options_set_frames(
    options: bywash_surface_options,
    frames: usize,
) -> c_int {
    answer(set(options, |options| options.frames(frames)))
}

/// Sets the greatest time that the display may take to answer or to return a frame, in nanoseconds. Not negative. Default
/// 5 s.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_surface_options_set_timeout(
    options: bywash_surface_options,
    limit_ns: i64,
) -> c_int {
    const NEGATIVE: Failure =
        Failure::fixed(BYWASH_ERROR_OPTION, c"the timeout of a surface is negative; it must have an end");
    let limit = u64::try_from(limit_ns).map(Duration::from_nanos).map_err(|_| NEGATIVE);
    answer(limit.and_then(|limit| set(options, |options| options.timeout(limit))))
}

/// Sets the size of the screen's mode, in pixels, for BYWASH_DISPLAY_KMS alone. Default the mode that the screen prefers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_surface_options_set_mode(
    options: bywash_surface_options,
    width: u32,
    height: u32,
) -> c_int {
    answer(set(options, |options| options.mode(width, height)))
}
