//! Device `gpu`: kernels on graphics cards, by Vulkan.
//!
//! `gpu:0` is the first adapter, and `gpu` the same one. Cards with memory of their own come first, and a driver that computes
//! on the processor (Mesa's lavapipe) last.
//!
//! # Kernels from files
//!
//! [`Kernel::Shader`] is a compute shader in WGSL. Each invocation computes a unit: it reads `INPUT_BYTES` bytes of the
//! input, and writes `OUTPUT_BYTES` bytes of the output, which the shader names in constants, multiples of 4:
//!
//! ```wgsl
#![doc = include_str!("../examples/scale.wgsl")]
//! ```
//!
//! The entry point is `main`, and the only one. There may be more invocations than units. The buffers may be longer than the
//! block, so `arrayLength` tells nothing. Input must not end in the middle of a unit.

mod adapters;
mod causes;
mod driver;
mod shader;
mod watch;

use crate::card::shader::ShaderKernel;
use crate::card::{self, Card, scene, session};
use crate::device::{Device, Found, Session, SessionOptions};
use crate::error::Error;
use crate::kernel::{Kernel, Sar};
use crate::sar::{Former, SarOptions};
use driver::Driver;
use std::path::Path;
use std::sync::Arc;

/// Name of the first device, and beginning of the others' names.
pub(crate) const NAME: &str = "gpu";

/// Adapter that was opened.
pub struct Gpu {
    driver: Arc<Driver>,
    description: String,
}

impl Gpu {
    /// Opens an adapter by its number in the list of all.
    ///
    /// # Errors
    /// [`Error::Parameter`] if there is no adapter of this number, with the reason if there is none at all; [`Error::Lost`] if
    /// its driver refuses.
    pub fn open(number: usize) -> Result<Gpu, Error> {
        let name = name(number);
        let adapters = adapters::all().map_err(|[reason, remedy]| {
            Error::Parameter(format!("there is no device '{name}': {reason}: {remedy}"))
        })?;
        let count = adapters.len();
        let Some(adapter) = adapters.into_iter().nth(number) else {
            let last = self::name(count - 1);
            return Err(Error::Parameter(format!("there is no device '{name}': the last one is {last}")));
        };
        let driver = Driver::open(&name, &adapter.global, adapter.id)?;
        Ok(Gpu { driver: Arc::new(driver), description: adapter.description() })
    }

    /// Lets kernels compute in memory of the device's own, as cards do, even if the device could use the host's. Blocks are
    /// then copied to and from that memory by the device.
    ///
    /// # Panics
    /// If a session of the device has begun.
    #[must_use]
    pub fn with_separate_memory(mut self) -> Gpu {
        self.driver_mut().separate_memory();
        self
    }

    /// Lowers the greatest size of the device's buffers, in bytes.
    ///
    /// # Panics
    /// If a session of the device has begun.
    #[must_use]
    pub fn with_buffers_of(mut self, bytes: usize) -> Gpu {
        self.driver_mut().limit_buffers(bytes);
        self
    }

    /// Begins an image that the device forms, part by part.
    ///
    /// # Errors
    /// Those of [`Former::new`]; [`Error::Unsupported`] if a row or column does not fit the device's buffers.
    pub fn former(&self, sar: &Sar, options: &SarOptions) -> Result<Former, Error> {
        scene::former(&self.driver, sar, options)
    }

    fn driver_mut(&mut self) -> &mut Driver {
        Arc::get_mut(&mut self.driver).expect("a device that no session uses yet")
    }

    fn shader(&self, path: &Path, options: &SessionOptions) -> Result<Session, Error> {
        let shader = shader::read(path)?;
        let layout = shader.layout(&*self.driver);
        session::start(&self.driver, layout, options, |_| {
            ShaderKernel::new(&*self.driver, &shader).map_err(|error| match error {
                // The device's own compiler refuses it, and says why.
                Error::Lost { message, .. } => Error::Kernel { path: path.to_owned(), message },
                error => error,
            })
        })
    }
}

impl Device for Gpu {
    fn name(&self) -> String {
        self.driver.name().into()
    }

    fn description(&self) -> String {
        self.description.clone()
    }

    fn memory_bytes(&self) -> Option<u64> {
        self.driver.available_bytes()
    }

    fn session(&self, kernel: &Kernel, options: &SessionOptions) -> Result<Session, Error> {
        kernel.check()?;
        options.check()?;
        match kernel {
            Kernel::Shader(path) => self.shader(path, options),
            kernel => card::session(&self.driver, kernel, options),
        }
    }
}

/// Returns all adapters.
///
/// # Errors
/// Reason and remedy if there is none.
pub(crate) fn survey() -> Result<Vec<Found>, [&'static str; 2]> {
    let found = |(number, adapter): (usize, &adapters::Adapter)| Found {
        name: name(number),
        description: adapter.description(),
        uses_processor: adapter.uses_processor(),
    };
    Ok(adapters::all()?.iter().enumerate().map(found).collect())
}

/// Returns the name of the adapter of a number.
fn name(number: usize) -> String {
    format!("{NAME}:{number}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Output;
    use crate::kernel::Fft;
    use std::time::{Duration, Instant};

    /// Limit of a wait.
    const WAIT: Duration = Duration::from_secs(10);

    #[test]
    fn a_lost_device_ends_its_sessions() {
        // A machine without an adapter has nothing to lose.
        let Ok(gpu) = Gpu::open(0) else { return };
        let kernel = Kernel::Fft(Fft { size: 64, is_inverse: false });
        let Session { mut input, mut output } = gpu.session(&kernel, &SessionOptions::default()).unwrap();
        let mut give = || -> Result<(), Error> {
            let Some(buffer) = input.buffer(WAIT)? else { return Ok(()) };
            let bytes = buffer.len();
            input.submit(bytes)
        };
        give().unwrap();
        assert_eq!(output.next(WAIT).unwrap(), Output::Block);
        gpu.driver.lose();
        let begin = Instant::now();
        let error = loop {
            assert!(begin.elapsed() < WAIT, "a session goes on without its device");
            if let Err(error) = give().and_then(|()| output.next(WAIT).map(|_| ())) {
                break error;
            }
        };
        assert!(matches!(&error, Error::Lost { device, .. } if device == "gpu:0"), "{error}");
        assert!(matches!(output.next(WAIT), Err(Error::Lost { .. })));
        let again = gpu.session(&kernel, &SessionOptions::default()).map(drop);
        assert!(matches!(again, Err(Error::Lost { .. })), "{again:?}");
    }
}
