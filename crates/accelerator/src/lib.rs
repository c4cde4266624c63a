//! Devices that compute on data as it passes from a source to a sink.
//!
//! A [`Device`] is a processor or a card: it has memory, and runs [`Kernel`]s. A [`Session`] is one kernel at work
//! on one stream of bytes. It lends buffers of the device's own memory, which the caller fills with input; while the device
//! computes, the caller fills the next one, and takes finished output out of other buffers, by another thread if it likes. So nothing is
//! copied between the caller's memory and the device's, and transfer, computing and storage overlap.
//!
//! ```
//! use bywash_accelerator::{Cpu, Device, Kernel, Output, SessionOptions};
//! use std::time::Duration;
//!
//! let mut session = Cpu.session(&Kernel::Sha256, &SessionOptions::default())?;
//! if let Some(memory) = session.input.buffer(Duration::ZERO)? {
//!     memory[..3].copy_from_slice(b"abc");
//! }
//! session.input.submit(3)?;
//! session.input.finish()?;
//! let mut blocks = Vec::new();
//! loop {
//!     match session.output.next(Duration::from_secs(1))? {
//!         Output::Block => blocks.push(session.output.block().to_vec()),
//!         Output::None => {}
//!         Output::End => break,
//!     }
//! }
//! // The bytes, and then their digest.
//! assert_eq!(blocks[0], b"abc");
//! assert_eq!(blocks[1][..4], [0xba, 0x78, 0x16, 0xbf]);
//! # Ok::<(), bywash_accelerator::Error>(())
//! ```
//!
//! - [`device`]: the interface of devices and sessions
//! - [`kernel`]: what a device computes, and how its input and output are laid out
//! - [`cpu`]: the processor as a device
//! - `gpu`: graphics cards as devices, by Vulkan (feature `gpu`)
//! - [`devices`]: the devices of this machine, by name
//! - [`sar`]: image formation of a synthetic-aperture radar, with a simulator and measures of focus
//! - [`Error`]: reasons of failures

#![deny(unsafe_code)]

#[cfg(feature = "gpu")]
mod card;
pub mod cpu;
#[cfg(feature = "cuda")]
pub mod cuda;
pub mod device;
pub mod devices;
mod error;
#[cfg(feature = "gpu")]
pub mod gpu;
pub mod kernel;
mod memory;
pub mod sar;
mod vector;

pub use cpu::Cpu;
#[cfg(feature = "cuda")]
pub use cuda::Cuda;
pub use device::{Device, Output, Session, SessionInput, SessionOptions, SessionOutput, Statistics};
pub use error::Error;
#[cfg(feature = "gpu")]
pub use gpu::Gpu;
pub use kernel::Kernel;
