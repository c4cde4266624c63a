//! Card by the CUDA driver interface. Its library is looked for at run time, as is NVRTC, which compiles the passes.
//!
//! All commands go to one stream, which carries them out in their order. Memory of the host is pinned, so that the card
//! reads and writes it without the processor.
//!
//! Unsafe code: calls of the driver, and pinned memory as slices.

#![allow(unsafe_code)]

use crate::card::{Access, Binding, Card, Limits, Pass, Source};
use crate::error::Error;
use cudarc::driver::sys::{CUdevice_attribute, CUdeviceptr, CUfunction, CUmodule, CUresult, CUstream};
use cudarc::driver::{DriverError, result, sys};
use cudarc::nvrtc::{CompileError, CompileOptions, compile_ptx_with_opts};
use std::collections::HashMap;
use std::ffi::{CStr, CString, c_void};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Buffers and parameters that a pass can have (arguments.cuh).
const BUFFERS_MAX: usize = 8;
const PARAMETERS_MAX: usize = 16;
/// Greatest size of a buffer: passes count samples of 8 bytes with 32 bits.
const BUFFER_BYTES_MAX: usize = 8 << 32;
/// Greatest number of groups in one dimension, and of all dimensions of every card.
const GROUPS_MAX: u32 = 65_535;
/// Greatest number of rows of groups.
const ROWS_MAX: u32 = 65_535;

/// Device of a number, and its name and sizes.
#[derive(Clone, Debug)]
pub(super) struct Properties {
    pub(super) number: i32,
    pub(super) description: String,
}

/// Returns all devices that the driver knows.
///
/// # Errors
/// The reason why there is none, and the remedy.
pub(super) fn all() -> Result<Vec<Properties>, [String; 2]> {
    let absent = |reason: &str, remedy: &str| Err([reason.to_owned(), remedy.to_owned()]);
    // SAFETY: the driver's library is made to be loaded by any process.
    if !unsafe { sys::is_culib_present() } {
        return absent("no driver libcuda.so.1", "install that of an NVIDIA card");
    }
    // SAFETY: like the driver's.
    if !unsafe { cudarc::nvrtc::sys::is_culib_present() } {
        return absent("no compiler libnvrtc.so", "install NVRTC of the CUDA toolkit, version 11, 12 or 13");
    }
    let failed = |error: DriverError| [told(error), "look at the driver and its kernel module".to_owned()];
    result::init().map_err(failed)?;
    let count = result::device::get_count().map_err(failed)?;
    if count == 0 {
        return absent("the CUDA driver knows no card", "look at the driver and its kernel module");
    }
    (0..count).map(|number| properties(number).map_err(failed)).collect()
}

fn properties(number: i32) -> Result<Properties, DriverError> {
    let device = result::device::get(number)?;
    // SAFETY: the device was just returned by the driver.
    let bytes = unsafe { result::device::total_mem(device) }?;
    let (major, minor) = capability(device)?;
    let name = result::device::get_name(device)?;
    let description = format!("{name} (CUDA, compute capability {major}.{minor}, {} MiB)", bytes >> 20);
    Ok(Properties { number, description })
}

/// Returns the version of a device's instruction set.
fn capability(device: sys::CUdevice) -> Result<(i32, i32), DriverError> {
    use CUdevice_attribute::{
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR as MAJOR,
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR as MINOR,
    };
    // SAFETY: the device was returned by the driver.
    let attribute = |name| unsafe { result::device::get_attribute(device, name) };
    Ok((attribute(MAJOR)?, attribute(MINOR)?))
}

/// Returns the driver's text of an error.
fn told(error: DriverError) -> String {
    let text = error.error_string().map(CStr::to_string_lossy).unwrap_or_default();
    format!("{text} ({:?})", error.0)
}

/// Context and stream of a device. They are released with the last buffer or program.
struct Context {
    name: String,
    device: sys::CUdevice,
    context: sys::CUcontext,
    stream: CUstream,
}

// SAFETY: the driver allows any thread to use a context and its stream.
unsafe impl Send for Context {}
// SAFETY: as above; the driver locks its own state.
unsafe impl Sync for Context {}

impl Context {
    /// Lets the calling thread use the context.
    fn enter(&self) -> Result<(), Error> {
        // SAFETY: the context is retained as long as this value.
        unsafe { result::ctx::set_current(self.context) }.map_err(|error| self.failed(error, 0))
    }

    fn failed(&self, error: DriverError, bytes: usize) -> Error {
        let device = self.name.clone();
        match error.0 {
            CUresult::CUDA_ERROR_OUT_OF_MEMORY => {
                Error::Memory { device, bytes: bytes as u64, remedy: "ask for smaller or fewer blocks" }
            }
            _ => Error::Lost { device, message: told(error) },
        }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // A device that is lost refuses; nothing else can be done then.
        // SAFETY: nobody uses the stream and the context any more, which were made by `Driver::open`.
        unsafe {
            let _ = result::ctx::set_current(self.context);
            let _ = result::stream::destroy(self.stream);
            let _ = result::primary_ctx::release(self.device);
        }
    }
}

/// Device that was opened, and its queue.
pub(super) struct Driver {
    context: Arc<Context>,
    architecture: String,
    /// Sources that were compiled.
    modules: Mutex<HashMap<&'static str, Arc<Module>>>,
}

impl Driver {
    /// Opens a device.
    ///
    /// # Errors
    /// [`Error::Lost`] if the driver refuses, [`Error::Memory`].
    pub(super) fn open(name: &str, number: i32) -> Result<Driver, Error> {
        let failed = |error: DriverError| Error::Lost { device: name.to_owned(), message: told(error) };
        let device = result::device::get(number).map_err(failed)?;
        let (major, minor) = capability(device).map_err(failed)?;
        // SAFETY: the device was just returned by the driver. The context is released by `Context`.
        let context = unsafe { result::primary_ctx::retain(device) }.map_err(failed)?;
        let stream = || {
            // SAFETY: the context is retained.
            unsafe { result::ctx::set_current(context) }?;
            result::stream::create(result::stream::StreamKind::NonBlocking)
        };
        let stream = stream().map_err(|error| {
            // SAFETY: it was retained here, and nothing uses it.
            let _ = unsafe { result::primary_ctx::release(device) };
            failed(error)
        })?;
        let context = Arc::new(Context { name: name.to_owned(), device, context, stream });
        Ok(Driver { context, architecture: format!("compute_{major}{minor}"), modules: Mutex::default() })
    }

    /// Returns the compiled passes of a source.
    fn module(&self, source: Source<'_>) -> Result<Arc<Module>, Error> {
        let (file, text) = match source {
            Source::Fir => ("fir.cu", include_str!("fir.cu")),
            Source::Fft => ("fft.cu", include_str!("fft.cu")),
            Source::Sar => ("sar.cu", include_str!("sar.cu")),
            Source::Text(_) => unreachable!("the device refuses shaders"),
        };
        let mut modules = self.modules.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(module) = modules.get(file) {
            return Ok(Arc::clone(module));
        }
        let options = CompileOptions {
            options: vec![format!("--gpu-architecture={}", self.architecture)],
            name: Some(file.into()),
            ..CompileOptions::default()
        };
        let text = [include_str!("arguments.cuh"), text].concat();
        let compiled = compile_ptx_with_opts(text, options).map_err(|error| Error::Lost {
            device: self.context.name.clone(),
            message: format!("{file} cannot be compiled: {}", compiler_message(&error)),
        })?;
        let image = CString::new(compiled.to_src()).unwrap_or_default();
        self.context.enter()?;
        // SAFETY: the image is a text with a zero at its end, as the driver asks for.
        let loaded = unsafe { result::module::load_data(image.as_ptr().cast()) };
        let module = loaded.map_err(|error| self.context.failed(error, 0))?;
        let module = Arc::new(Module { context: Arc::clone(&self.context), module });
        modules.insert(file, Arc::clone(&module));
        Ok(module)
    }
}

fn compiler_message(error: &CompileError) -> String {
    match error {
        CompileError::CompileError { log, .. } => log.to_string_lossy().into_owned(),
        other => format!("{other:?}"),
    }
}

/// Compiled source.
struct Module {
    context: Arc<Context>,
    module: CUmodule,
}

// SAFETY: the driver allows any thread to use a module.
unsafe impl Send for Module {}
// SAFETY: as above.
unsafe impl Sync for Module {}

impl Drop for Module {
    fn drop(&mut self) {
        if self.context.enter().is_ok() {
            // SAFETY: programs of the module hold it, so there are none left; commands in flight hold programs.
            let _ = unsafe { result::module::unload(self.module) };
        }
    }
}

/// Compiled pass.
pub(super) struct Program {
    /// Source that has the function: it stays loaded as long as it can be launched.
    _module: Arc<Module>,
    function: CUfunction,
    group: u32,
}

// SAFETY: the driver allows any thread to launch a function.
unsafe impl Send for Program {}
// SAFETY: as above.
unsafe impl Sync for Program {}

/// Memory of the device, or pinned memory of the host.
pub(super) struct Buffer {
    context: Arc<Context>,
    address: Address,
    bytes: usize,
    /// True while the card has memory of the host.
    is_lent: bool,
}

#[derive(Clone, Copy)]
enum Address {
    Device(CUdeviceptr),
    Host(*mut u8),
}

// SAFETY: the memory belongs to the buffer alone, which lends it by the rules of references.
unsafe impl Send for Buffer {}
// SAFETY: shared references only read.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// Returns the address that the card uses.
    fn device_address(&self) -> CUdeviceptr {
        match self.address {
            Address::Device(address) => address,
            // Host and cards have one address space on 64-bit systems (unified virtual addressing).
            Address::Host(address) => address as CUdeviceptr,
        }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if self.context.enter().is_err() {
            // The device is lost, and its memory with it.
            return;
        }
        // SAFETY: the memory was allocated by `allocate`, and the buffer is its only owner. Commands that use it are done, or
        // failed, when the stream is.
        let _ = unsafe {
            let _ = result::stream::synchronize(self.context.stream);
            match self.address {
                Address::Device(address) => result::free_sync(address),
                Address::Host(address) => result::free_host(address.cast()),
            }
        };
    }
}

/// Command that is to be submitted.
enum Command {
    Copy { from: CUdeviceptr, to: CUdeviceptr, bytes: usize },
    Launch { function: CUfunction, arguments: Arguments, grid: (u32, u32), group: u32 },
}

/// Argument of each pass (arguments.cuh).
#[repr(C)]
#[derive(Clone, Copy)]
struct Arguments {
    buffers: [CUdeviceptr; BUFFERS_MAX],
    parameters: [u32; PARAMETERS_MAX],
}

/// Commands that are collected to be submitted together.
#[derive(Default)]
pub(super) struct Commands(Vec<Command>);

// SAFETY: addresses and functions of the driver, which any thread may use.
unsafe impl Send for Commands {}

/// Mark behind commands: a message comes when the card has passed it.
pub(super) struct Fence {
    passed: Receiver<()>,
    has_passed: bool,
}

impl Card for Driver {
    type Buffer = Buffer;
    type Program = Program;
    type Commands = Commands;
    type Fence = Fence;

    fn name(&self) -> &str {
        &self.context.name
    }

    fn limits(&self) -> Limits {
        Limits { buffer_bytes: BUFFER_BYTES_MAX, groups: GROUPS_MAX, shares_memory: false }
    }

    fn available_bytes(&self) -> Option<u64> {
        self.context.enter().ok()?;
        result::mem_get_info().ok().map(|(free, _)| free as u64)
    }

    fn allocate(&self, bytes: usize, access: Access) -> Result<Buffer, Error> {
        let context = Arc::clone(&self.context);
        context.enter()?;
        // SAFETY: the context is current. The memory is freed by the buffer.
        let allocated = unsafe {
            match access {
                Access::Device | Access::Uniform => result::malloc_sync(bytes).map(Address::Device),
                Access::Upload | Access::Download => {
                    result::malloc_host(bytes, 0).map(|address| Address::Host(address.cast()))
                }
            }
        };
        let address = allocated.map_err(|error| context.failed(error, bytes))?;
        // SAFETY: the memory has that many bytes, and nothing refers to it yet.
        let cleared = unsafe {
            match address {
                Address::Device(address) => result::memset_d8_sync(address, 0, bytes),
                Address::Host(address) => {
                    address.write_bytes(0, bytes);
                    Ok(())
                }
            }
        };
        let buffer = Buffer { context, address, bytes, is_lent: false };
        cleared.map_err(|error| buffer.context.failed(error, bytes)).map(|()| buffer)
    }

    fn program(&self, pass: &Pass<'_>) -> Result<Program, Error> {
        assert!(
            pass.bindings.len() <= BUFFERS_MAX && pass.parameters <= PARAMETERS_MAX,
            "arguments of a pass"
        );
        assert!(!pass.bindings.contains(&Binding::Uniform), "passes of this crate have parameters instead");
        let module = self.module(pass.source)?;
        let entry = CString::new(pass.entry).unwrap_or_default();
        self.context.enter()?;
        // SAFETY: the module is loaded, and stays so as long as the program.
        let function = unsafe { result::module::get_function(module.module, entry) };
        let function = function.map_err(|error| self.context.failed(error, 0))?;
        Ok(Program { _module: module, function, group: pass.group })
    }

    fn write(&self, buffer: &Buffer, bytes: &[u8]) -> Result<(), Error> {
        assert!(bytes.len() <= buffer.bytes, "the beginning of a buffer");
        self.context.enter()?;
        // Commands that were submitted before are carried out before.
        // SAFETY: the buffer has that many bytes; the call returns when they are copied.
        let written = unsafe {
            result::stream::synchronize(self.context.stream)
                .and_then(|()| result::memcpy_htod_sync(buffer.device_address(), bytes))
        };
        written.map_err(|error| self.context.failed(error, 0))
    }

    fn commands(&self) -> Result<Commands, Error> {
        Ok(Commands::default())
    }

    fn copy(
        &self,
        commands: &mut Commands,
        from: (&Buffer, usize),
        to: (&Buffer, usize),
        bytes: usize,
    ) -> Result<(), Error> {
        assert!(from.1 + bytes <= from.0.bytes && to.1 + bytes <= to.0.bytes, "copies stay within buffers");
        let address = |(buffer, offset): (&Buffer, usize)| buffer.device_address() + offset as CUdeviceptr;
        commands.0.push(Command::Copy { from: address(from), to: address(to), bytes });
        Ok(())
    }

    fn launch(
        &self,
        commands: &mut Commands,
        program: &Program,
        buffers: &[&Buffer],
        parameters: &[u32],
        invocations: usize,
    ) -> Result<(), Error> {
        let mut arguments = Arguments { buffers: [0; BUFFERS_MAX], parameters: [0; PARAMETERS_MAX] };
        for (argument, buffer) in arguments.buffers.iter_mut().zip(buffers) {
            *argument = buffer.device_address();
        }
        arguments.parameters[..parameters.len()].copy_from_slice(parameters);
        let groups = u32::try_from(invocations.div_ceil(program.group as usize)).unwrap_or(u32::MAX).max(1);
        let rows = groups.div_ceil(GROUPS_MAX);
        assert!(rows <= ROWS_MAX, "passes count invocations with 32 bits");
        let grid = (groups.div_ceil(rows), rows);
        commands.0.push(Command::Launch {
            function: program.function,
            arguments,
            grid,
            group: program.group,
        });
        Ok(())
    }

    fn submit(&self, commands: Commands, lent: &mut [&mut Buffer]) -> Result<Fence, Error> {
        self.context.enter()?;
        lent.iter_mut().for_each(|buffer| buffer.is_lent = true);
        let stream = self.context.stream;
        for command in commands.0 {
            let submitted = match command {
                Command::Copy { from, to, bytes } => {
                    // SAFETY: the ranges lie within buffers, which the session keeps until the fence is passed.
                    unsafe { sys::cuMemcpyAsync(to, from, bytes, stream) }.result()
                }
                Command::Launch { function, mut arguments, grid, group } => {
                    let mut pointers = [(&raw mut arguments).cast::<c_void>()];
                    // SAFETY: the function has one argument of this layout, which the driver copies. It stays within its
                    // buffers, whose sizes its kernel has computed, and the session keeps these until the fence is passed.
                    unsafe {
                        result::launch_kernel(
                            function,
                            (grid.0, grid.1, 1),
                            (group, 1, 1),
                            0,
                            stream,
                            &mut pointers,
                        )
                    }
                }
            };
            submitted.map_err(|error| self.context.failed(error, 0))?;
        }
        let (sender, passed) = sync_channel::<()>(1);
        let sender = Box::into_raw(Box::new(sender));
        // SAFETY: the driver calls the function once, with the sender that the function then owns.
        let asked = unsafe { result::stream::launch_host_function(stream, tell, sender.cast()) };
        asked.map_err(|error| {
            // SAFETY: the driver has refused, so it does not call the function, and the sender has no other owner.
            drop(unsafe { Box::from_raw(sender) });
            self.context.failed(error, 0)
        })?;
        Ok(Fence { passed, has_passed: false })
    }

    fn wait(&self, fence: &mut Fence, limit: Duration) -> Result<bool, Error> {
        if !fence.has_passed {
            match fence.passed.recv_timeout(limit) {
                Ok(()) => fence.has_passed = true,
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
            }
            // A device that fails may never send the message, or send it behind commands that failed.
            self.context.enter()?;
            // SAFETY: the stream is there as long as the context.
            match unsafe { sys::cuStreamQuery(self.context.stream) }.result() {
                Ok(()) | Err(DriverError(CUresult::CUDA_ERROR_NOT_READY)) => {}
                Err(error) => return Err(self.context.failed(error, 0)),
            }
        }
        Ok(fence.has_passed)
    }

    fn take_back(&self, buffer: &mut Buffer) -> Result<(), Error> {
        buffer.is_lent = false;
        Ok(())
    }

    fn bytes<'a>(&self, buffer: &'a Buffer) -> &'a [u8] {
        match buffer.address {
            // SAFETY: the memory has that many bytes, was zeroed, and lasts as long as the buffer. The card does not have it,
            // since the fence behind the commands that use it was passed before it was taken back.
            Address::Host(address) if !buffer.is_lent => unsafe {
                std::slice::from_raw_parts(address, buffer.bytes)
            },
            Address::Host(_) | Address::Device(_) => &[],
        }
    }

    fn bytes_mut<'a>(&self, buffer: &'a mut Buffer) -> &'a mut [u8] {
        match buffer.address {
            // SAFETY: as in `bytes`, and the buffer is borrowed alone.
            Address::Host(address) if !buffer.is_lent => unsafe {
                std::slice::from_raw_parts_mut(address, buffer.bytes)
            },
            Address::Host(_) | Address::Device(_) => &mut [],
        }
    }
}

/// Tells that the card has passed a fence, and frees the sender.
unsafe extern "C" fn tell(sender: *mut c_void) {
    // SAFETY: `submit` gave the driver this pointer, for one call.
    let sender = unsafe { Box::from_raw(sender.cast::<SyncSender<()>>()) };
    // Nobody waits any more if the session was dropped. The channel has room, so this does not wait.
    let _ = sender.try_send(());
}
