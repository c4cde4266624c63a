//! A user-level driver of NVMe controllers: a namespace as a block device, without the kernel on the data path.
//!
//! VFIO hands the controller to the process: its registers are mapped, its completions wake a descriptor, and the IOMMU
//! lets it access only memory that was mapped for it. The driver resets and enables the controller, makes its queues, and
//! implements [`Device`]: commands are written to a submission queue, and the controller moves their data between
//! its namespace and registered memory without a copy.
//!
//! ```no_run
//! use bywash_device::{Command, Device, Segment};
//! use bywash_nvme::{Address, Nvme, Options, Sysfs, Vfio};
//!
//! let address: Address = "0000:00:04.0".parse()?;
//! // Takes the controller from the kernel; refused if one of its disks is mounted.
//! let bound = Sysfs::new().bind(&address)?;
//! let mut device = Nvme::open(Vfio::open(&address)?, &Options::default())?;
//! let mut block = vec![0; device.geometry().block as usize];
//! // SAFETY: the memory lives until the command has completed, below, and nothing else accesses it before.
//! let segments = [unsafe { Segment::new(block.as_mut_ptr(), block.len()) }];
//! device.submit(Command::read(7, 0, &segments)).expect("nothing else is in flight");
//! while device.in_flight() > 0 {
//!     device.reap(&mut |completion| println!("{:?}", completion.result));
//! }
//! drop(device);
//! Sysfs::new().restore(&bound)?;
//! # Ok::<_, bywash_nvme::Error>(())
//! ```
//!
//! The names are those of the *NVM Express Base Specification* 2.0 and of the *NVM Command Set Specification* 1.0, beside
//! which this crate can be read: `registers`, `queue`, `command`, `completion`, `identify` and `data` have the layouts,
//! `controller` the sequence of reset and set-up, `device` the commands; `virtualization` and `secondary` rule the secondary
//! controllers behind virtual functions, and `probe` tells what these leave to their holders.
//!
//! # Guarantees
//!
//! **Those of every [`Device`]** (the rules of `bywash_device`), whose conformance suite this device passes.
//!
//! **Memory.** The controller reaches the driver's own queues and bounce buffers, and memory that a user has registered,
//! and nothing else: the IOMMU rejects other accesses. Data of commands in registered memory is not copied; other memory
//! is copied through bounce buffers. Memory is mapped by the device's [`Pinner`], on whichever thread may wait for that, and
//! stays mapped until the pinned region is dropped. A group without an IOMMU is refused.
//!
//! **Failures.** A command that takes longer than [`Options::timeout`] is aborted; if that does not end it, the controller
//! is reset and every command in flight is repeated, none of them lost and none completed twice. All commands can be
//! repeated, since a device orders overlapping commands. A command that was repeated three times fails with ETIMEDOUT.
//! When a controller is removed, all commands fail with ENODEV. A controller that cannot be stopped is cut off from
//! memory before its commands fail.
//!
//! **Compare and write** is atomic with regard to other commands of the same device and of the devices that share its
//! controller: another function that writes the same namespace may come between.
//!
//! **Several threads.** [`queues`](bywash_device::queues) gives each thread a device with a pair of queues and an interrupt of its own,
//! if the controller has as many; else they take turns. They share the controller and its resets, and nothing that a read
//! touches; a write claims the units of 4 KiB that it touches, which it shares with other writes, so that a compare and write
//! can have them alone.
//!
//! **Limits.** Logical blocks of 512 and 4096 bytes; formats with metadata or end-to-end protection are refused. One
//! thread uses a device. Physical region pages describe memory up to 2 MiB per command of the controller; longer commands
//! are carried out in parts.
//!
//! It was tried on emulated controllers only (QEMU's), and on a controller in software.
//!
//! # Contents
//!
//! - [`Nvme`], [`Options`], [`Stats`], [`Event`], [`ResetReason`]: the device; [`TransferId`]: a read or write that was
//!   prepared with [`Nvme::prepare`], which takes a third of the instructions of a command
//! - [`Vfio`], [`Function`]: the PCI function that a device drives
//! - [`Sysfs`], [`PciController`], [`KernelDisk`], [`Address`], [`Bound`]: controllers of the machine, taking them and
//!   giving them back
//! - [`DEVICE_KIND`]: the device on a command line, `NAME=nvme:ADDRESS`; with `vfs=N` the devices `NAME.NAMESPACE` of its
//!   virtual functions, each of which can be handed to another process ([`Grantable`](bywash_device::Grantable)), which
//!   drives it by [`Vfio::from_descriptors`]
//! - [`carried_out_commands`]: the admin commands by which the holder of a controller could harm users of others
//! - [`Verifier`]: whether each block of a namespace can be read
//! - [`Error`]: every error of this crate
//! - `testing`, with the feature of that name: a controller in software, which misbehaves on demand
//!
//! [`Device`]: bywash_device::Device
//! [`Pinner`]: bywash_device::Pinner

#![deny(unsafe_code)]

mod command;
mod completion;
mod controller;
mod data;
mod device;
mod dma;
mod error;
mod event;
mod function;
mod identify;
mod iova;
mod kernel;
mod pci;
mod probe;
mod queue;
mod registers;
mod secondary;
mod spec;
#[cfg(feature = "testing")]
pub mod testing;
mod verify;
mod vfio;
mod virtual_functions;
mod virtualization;

pub use device::{DEPTH_MAX, Nvme, Options, QUEUES_MAX, Stats, TransferId};
pub use error::Error;
pub use event::{Event, ResetReason};
pub use function::Function;
pub use pci::{Address, Bound, KernelDisk, PciController, Sysfs};
pub use probe::carried_out_commands;
pub use spec::DEVICE_KIND;
pub use verify::{FailedRange, Verifier, VerifyEnd, VerifyMethod, VerifyReport};
pub use vfio::Vfio;
