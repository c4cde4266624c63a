//! Functions of ALSA's library (libasound), which is loaded when it is used first, and stays loaded.
//!
//! The declarations are those of <alsa/pcm.h>, version 1.1 or later: the functions whose names begin with `snd_pcm_`.
//!
//! Unsafe code: loading a library runs its constructors, and its symbols are taken for functions of these types.

#![allow(unsafe_code)]

use crate::error::Error;
use libloading::os::unix::{Library as Handle, RTLD_LOCAL, RTLD_NOW};
use std::ffi::{c_char, c_int, c_long, c_uint, c_ulong, c_void};
use std::sync::OnceLock;

/// File name of the library.
const NAME: &str = "libasound.so.2";

/// `snd_pcm_t`: an open device.
pub(crate) type RawPcm = c_void;
/// `snd_pcm_hw_params_t`: a set of configurations.
pub(crate) type RawParameters = c_void;

macro_rules! functions {
    ($($name:ident($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// The functions of the library.
        pub(crate) struct Library {
            $(pub(crate) $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }

        impl Library {
            fn take_from(handle: &Handle, missing: impl Fn(libloading::Error) -> Error) -> Result<Library, Error> {
                Ok(Library { $(
                    $name: {
                        let name = concat!("snd_pcm_", stringify!($name));
                        // SAFETY: ALSA's header declares the function of this name with this type, and the library stays
                        // loaded for good.
                        let symbol = unsafe { handle.get::<unsafe extern "C" fn($($argument),*) $(-> $result)?>(name) };
                        *symbol.map_err(&missing)?
                    },
                )* })
            }
        }
    };
}

functions! {
    open(*mut *mut RawPcm, *const c_char, c_int, c_int) -> c_int;
    close(*mut RawPcm) -> c_int;
    nonblock(*mut RawPcm, c_int) -> c_int;
    set_params(*mut RawPcm, c_int, c_int, c_uint, c_uint, c_int, c_uint) -> c_int;
    get_params(*mut RawPcm, *mut c_ulong, *mut c_ulong) -> c_int;
    start(*mut RawPcm) -> c_int;
    prepare(*mut RawPcm) -> c_int;
    resume(*mut RawPcm) -> c_int;
    drain(*mut RawPcm) -> c_int;
    delay(*mut RawPcm, *mut c_long) -> c_int;
    writei(*mut RawPcm, *const c_void, c_ulong) -> c_long;
    readi(*mut RawPcm, *mut c_void, c_ulong) -> c_long;
    hw_params_malloc(*mut *mut RawParameters) -> c_int;
    hw_params_free(*mut RawParameters);
    hw_params_any(*mut RawPcm, *mut RawParameters) -> c_int;
    hw_params_test_access(*mut RawPcm, *mut RawParameters, c_int) -> c_int;
    hw_params_test_format(*mut RawPcm, *mut RawParameters, c_int) -> c_int;
    hw_params_test_channels(*mut RawPcm, *mut RawParameters, c_uint) -> c_int;
    hw_params_test_rate(*mut RawPcm, *mut RawParameters, c_uint, c_int) -> c_int;
    hw_params_get_channels_min(*const RawParameters, *mut c_uint) -> c_int;
    hw_params_get_channels_max(*const RawParameters, *mut c_uint) -> c_int;
    hw_params_get_rate_min(*const RawParameters, *mut c_uint, *mut c_int) -> c_int;
    hw_params_get_rate_max(*const RawParameters, *mut c_uint, *mut c_int) -> c_int;
}

/// Loads ALSA's library, unless it is loaded.
///
/// # Errors
/// [`Error::Library`] if it is missing, or lacks a function.
pub fn load() -> Result<(), Error> {
    library().map(drop)
}

/// Returns the functions of the library, which is loaded by the first call.
pub(crate) fn library() -> Result<&'static Library, Error> {
    static LOADED: OnceLock<Library> = OnceLock::new();
    if let Some(library) = LOADED.get() {
        return Ok(library);
    }
    let library = open(NAME)?;
    // Two threads load the same one.
    Ok(LOADED.get_or_init(|| library))
}

fn open(name: &str) -> Result<Library, Error> {
    let failed = |error: libloading::Error| {
        let message =
            std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
        Error::Library { library: name.into(), message }
    };
    // SAFETY: the constructors of the system's sound library run, which set up its own variables.
    let handle = unsafe { Handle::open(Some(name), RTLD_NOW | RTLD_LOCAL) }.map_err(failed)?;
    let library = Library::take_from(&handle, failed);
    // Plugins may have threads that run code of the library, so it is never unloaded.
    std::mem::forget(handle);
    library
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_is_missing_is_told_with_its_package() {
        let refused = open("libasound-that-nobody-has.so").map(drop).unwrap_err().to_string();
        for part in ["cannot load libasound-that-nobody-has.so", "No such file", "libasound2t64"] {
            assert!(refused.contains(part), "{refused}");
        }
        // One that is no sound library lacks the first function.
        let refused = open("libc.so.6").map(drop).unwrap_err().to_string();
        assert!(refused.contains("snd_pcm_open"), "{refused}");
        load().unwrap();
    }
}
