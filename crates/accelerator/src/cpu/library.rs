//! Kernel `so`: a function of a shared library, whose C interface is include/bywash_kernel.h.
//!
//! The library is the caller's own code, with all rights of the process. Sizes that it declares and returns are checked, so
//! that an honest mistake is an error; nothing can be done against a library that writes elsewhere.
//!
//! Unsafe code: loading a library runs its constructors, and its functions are called.

#![allow(unsafe_code)]

use super::worker::{Layout, Plan, Stop, Worker};
use crate::error::Error;
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use std::ffi::{c_int, c_void};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Version of [`Description`], `BYWASH_KERNEL_VERSION` of the header.
const VERSION: u32 = 1;
/// Flag of kernels whose blocks do not depend on each other.
const INDEPENDENT: u32 = 1;
/// Greatest size of a unit of input or output, in bytes.
const UNIT_MAX: u64 = 16 << 20;
/// Name of the constant that a library defines.
const SYMBOL: &str = "bywash_kernel";

/// `struct bywash_kernel` of the header.
#[repr(C)]
#[derive(Clone, Copy)]
struct Description {
    version: u32,
    flags: u32,
    input_bytes: u64,
    output_bytes: u64,
    begin: Option<unsafe extern "C" fn(*mut *mut c_void) -> i64>,
    run: Option<unsafe extern "C" fn(*mut c_void, *const c_void, u64, *mut c_void) -> i64>,
    end: Option<unsafe extern "C" fn(*mut c_void, *mut c_void) -> i64>,
}

/// Kernel of a loaded library.
struct Loaded {
    path: PathBuf,
    /// Library that has the functions: it stays loaded as long as they can be called.
    _library: Library,
    input_bytes: usize,
    output_bytes: usize,
    is_independent: bool,
    begin: unsafe extern "C" fn(*mut *mut c_void) -> i64,
    run: unsafe extern "C" fn(*mut c_void, *const c_void, u64, *mut c_void) -> i64,
    end: unsafe extern "C" fn(*mut c_void, *mut c_void) -> i64,
}

/// State of the kernel on one thread.
struct LibraryWorker {
    kernel: Arc<Loaded>,
    /// State that `begin` has made; `None` behind `end`.
    state: Option<*mut c_void>,
}

// SAFETY: the header allows any thread to use a state, one at a time; the worker owns the state.
unsafe impl Send for LibraryWorker {}

/// Loads a library and plans its kernel for some threads.
///
/// # Errors
/// [`Error::Kernel`] if the file cannot be loaded, has no kernel or one of another version, or if the kernel fails.
pub(super) fn plan(path: &Path, threads: usize) -> Result<Plan, Error> {
    let kernel = Arc::new(Loaded::open(path)?);
    let layout = Layout {
        sample_bytes: kernel.input_bytes,
        unit_bytes: kernel.input_bytes,
        output_bytes: kernel.output_bytes,
        history_bytes: 0,
        is_padded: false,
        passes_on: false,
        tail_bytes: if kernel.is_independent { 0 } else { kernel.output_bytes },
    };
    let threads = if kernel.is_independent { threads } else { 1 };
    let worker = || -> Result<Box<dyn Worker>, Error> { Ok(Box::new(LibraryWorker::new(&kernel)?)) };
    Ok(Plan { layout, workers: (0..threads).map(|_| worker()).collect::<Result<_, _>>()? })
}

impl Loaded {
    fn open(path: &Path) -> Result<Loaded, Error> {
        let failed = |message: String| Error::Kernel { path: path.into(), message };
        // The loader would look for a name without a slash in its own folders.
        let absolute = std::path::absolute(path).map_err(|error| failed(error.to_string()))?;
        let flags: c_int = RTLD_NOW | RTLD_LOCAL;
        // SAFETY: constructors of the library run, as the user has asked for by naming it.
        let library = unsafe { Library::open(Some(&absolute), flags) }
            .map_err(|error| failed(loader_message(&error)))?;
        // SAFETY: the pointer is used only after the check of the version, which all versions have as their first field.
        let symbol = unsafe { library.get::<*const Description>(SYMBOL) }
            .map_err(|error| failed(loader_message(&error)))?;
        let pointer = symbol.into_raw().cast::<Description>().cast_const();
        if pointer.is_null() || !pointer.is_aligned() {
            return Err(failed(format!("{SYMBOL} is no constant of struct {SYMBOL}")));
        }
        // SAFETY: the constant is mapped as long as the library, is aligned, and begins with the version.
        let version = unsafe { pointer.cast::<u32>().read() };
        if version != VERSION {
            return Err(failed(format!(
                "the kernel has version {version}, this program runs version {VERSION}: compile it again"
            )));
        }
        // SAFETY: a constant of this version has the fields of this struct, whose bits are all valid: functions are
        // `Option`s.
        let description = unsafe { pointer.read() };
        Loaded::new(path, library, &description).map_err(failed)
    }

    /// Checks the fields. Returns a message if one is invalid.
    fn new(path: &Path, library: Library, description: &Description) -> Result<Loaded, String> {
        let size = |name, bytes: u64| match (1..=UNIT_MAX).contains(&bytes) {
            // At most `UNIT_MAX`, which every `usize` can be.
            true => Ok(bytes as usize),
            false => Err(format!("{name} is {bytes}, but can be 1 to {UNIT_MAX}")),
        };
        if description.flags & !INDEPENDENT != 0 {
            return Err(format!("flags are {:#x}, of which {INDEPENDENT:#x} is known", description.flags));
        }
        let missing = |name| format!("the function {name} is null");
        Ok(Loaded {
            path: path.into(),
            _library: library,
            input_bytes: size("input_bytes", description.input_bytes)?,
            output_bytes: size("output_bytes", description.output_bytes)?,
            is_independent: description.flags & INDEPENDENT != 0,
            begin: description.begin.ok_or_else(|| missing("begin"))?,
            run: description.run.ok_or_else(|| missing("run"))?,
            end: description.end.ok_or_else(|| missing("end"))?,
        })
    }

    /// Checks what a function has returned: the number of bytes that it wrote.
    fn check(&self, function: &str, returned: i64, possible: usize) -> Result<usize, Error> {
        let message = match usize::try_from(returned) {
            Ok(bytes) if bytes <= possible => return Ok(bytes),
            Ok(bytes) => format!("{function} returned {bytes} bytes of output, but may write {possible}"),
            Err(_) => format!("{function} failed with the error {returned}"),
        };
        Err(Error::Kernel { path: self.path.clone(), message })
    }
}

/// Returns the loader's message, which the error of the crate carries as its source.
fn loader_message(error: &libloading::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}

impl LibraryWorker {
    fn new(kernel: &Arc<Loaded>) -> Result<LibraryWorker, Error> {
        let mut state = std::ptr::null_mut();
        // SAFETY: the library is loaded, and its header promises a function that sets the pointer.
        let returned = unsafe { (kernel.begin)(&raw mut state) };
        kernel.check("begin", returned, 0)?;
        Ok(LibraryWorker { kernel: Arc::clone(kernel), state: Some(state) })
    }
}

impl Worker for LibraryWorker {
    fn run(&mut self, input: &[u8], output: &mut [u8], _: &Stop) -> Result<usize, Error> {
        let state = self.state.expect("blocks come before the end");
        let possible = input.len() / self.kernel.input_bytes * self.kernel.output_bytes;
        assert!(possible <= output.len(), "an output buffer has room for the output of a whole block");
        // SAFETY: `begin` has made the state, which this worker alone uses. Input and output have the sizes that the header
        // names, and the library promises to stay within them.
        let returned = unsafe {
            (self.kernel.run)(state, input.as_ptr().cast(), input.len() as u64, output.as_mut_ptr().cast())
        };
        self.kernel.check("run", returned, possible)
    }

    fn end(&mut self, output: &mut [u8]) -> Result<usize, Error> {
        let state = self.state.take().expect("the input ends once");
        // SAFETY: `begin` has made the state, and it was taken, so it ends once. The output has the size of a unit.
        let returned = unsafe { (self.kernel.end)(state, output.as_mut_ptr().cast()) };
        self.kernel.check("end", returned, output.len())
    }
}

impl Drop for LibraryWorker {
    fn drop(&mut self) {
        if let Some(state) = self.state.take() {
            // SAFETY: `begin` has made the state, and it was taken, so it ends once; null says that no output is taken.
            let _ = unsafe { (self.kernel.end)(state, std::ptr::null_mut()) };
        }
    }
}
