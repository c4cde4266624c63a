//! The interface that all devices implement. Called by the user of a device: a server, or a tool that reads a
//! label.

use crate::chunks::Chunks;
use crate::command::{Command, CommandError, Completion, QueueFull};
use crate::error::Error;
use crate::region::{PinnedRegion, Pinner, RegionId};
use bywash_protocol::Access;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// Size, block size, limits and access mode of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Size of the device, in bytes; a multiple of `block`.
    pub bytes: u64,
    /// Size of a logical block, in bytes; at least 512. Offsets and lengths are multiples of it; a block is
    /// never torn.
    pub block: u32,
    /// Preferred size of commands, in bytes: multiples of it are carried out most efficiently.
    pub optimal: u32,
    /// Greatest length of a command that moves data, in bytes.
    pub transfer_max: u64,
    /// Greatest length of a command that discards or writes zeros, in bytes.
    pub range_max: u64,
    /// Greatest number of segments in a command.
    pub segments_max: usize,
    /// Access mode: reading, writing or both.
    pub access: Access,
}

/// A block device that carries out many commands at a time. [The crate's rules](crate#rules) say what users
/// may rely on.
///
/// A device is used by one thread at a time; several threads use as many of its [queues](crate::queues). No call blocks except dropping the device; `submit`, `reap` and
/// `arm` allocate nothing.
pub trait Device: Send {
    /// Returns the device's size, limits and access mode. Only [`Device::refresh`] changes the size, and nothing the
    /// others.
    fn geometry(&self) -> Geometry;

    /// Looks at the size of what the device stands for, takes it over if it has changed, and returns the geometry. Commands
    /// in flight are not affected. Most devices keep the size that they were opened with.
    fn refresh(&mut self) -> Geometry {
        self.geometry()
    }

    /// Submits a command. The device begins it now or during the next [`Device::reap`] or [`Device::arm`]. An
    /// invalid command is accepted as well; its completion reports the failure.
    ///
    /// # Errors
    /// [`QueueFull`] with the command if as many commands are in flight as [`Device::depth`].
    fn submit<'a>(&mut self, command: Command<'a>) -> Result<(), QueueFull<'a>>;

    /// Carries out a command synchronously, if the device can do so at once. The effect is the same as
    /// submitting the command and reaping its completion. The command needs no owner, since its memory is not
    /// used after the call. Returns `None` if nothing was done; the command is then to be submitted.
    fn carry_out(&mut self, _: &Command<'_>) -> Option<Result<(), CommandError>> {
        None
    }

    /// Passes the completions of all commands that have completed to `done`, in any order, and returns their
    /// number.
    fn reap(&mut self, done: &mut dyn FnMut(Completion)) -> usize;

    /// Prepares the [`Device::descriptor`] for sleeping. After `false` the descriptor becomes readable as
    /// soon as a command completes. `true` means that the user has to poll instead of sleeping: a completion
    /// is ready, or only polling finds it. The descriptor may stay readable until the user has reaped all
    /// completions and called `arm` again.
    fn arm(&mut self) -> bool;

    /// Returns the descriptor that becomes readable when a command completes, after [`Device::arm`] returned
    /// false. `None` if the device can only be polled.
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;

    /// Returns the greatest number of commands that can be in flight.
    fn depth(&self) -> usize;

    /// Returns the number of commands in flight: submitted, and their completions not yet reaped.
    fn in_flight(&self) -> usize;

    /// Returns the device's memory if other processes can map it. `None` if the medium is not memory, or must
    /// not be mapped, for example because that would bypass the latency and bandwidth that the device
    /// simulates.
    fn chunks(&self) -> Option<&Chunks> {
        None
    }

    /// Like [`Device::chunks`], but mutable, so that chunks can be replaced.
    fn chunks_mut(&mut self) -> Option<&mut Chunks> {
        None
    }

    /// Returns what pins memory for this device, always the same; `None` if commands do not take less time when their
    /// memory is registered.
    fn pinner(&self) -> Option<Arc<dyn Pinner>> {
        None
    }

    /// Registers `memory`, so that commands with segments in it take less time. Registering takes
    /// microseconds, whatever the size. Returns `None` if the device gains nothing from registering this memory, for
    /// example because another device's [`Pinner`] has pinned it.
    ///
    /// # Errors
    /// [`Error::Io`] if the kernel refuses (Linux before 6.13), [`Error::Regions`] if too many regions are
    /// registered. Commands can use the memory in both cases.
    fn register(&mut self, _memory: &Arc<PinnedRegion>) -> Result<Option<RegionId>, Error> {
        Ok(None)
    }

    /// Unregisters a region. Commands in flight keep their reference to it; the memory is unpinned when the last
    /// reference is dropped, so whoever must not wait for that keeps one and drops it elsewhere.
    fn unregister(&mut self, _region: RegionId) {}

    /// Makes `count` more queues of the device, each of which another thread can use; all or, if the device has only one,
    /// none. The queues share the device's depth. [`queues`](crate::queues) makes queues of any device.
    ///
    /// # Errors
    /// [`Error::Io`] or [`Error::Unfit`] if something that the queues need cannot be had.
    fn more_queues(&mut self, _count: usize) -> Result<Vec<Box<dyn Device>>, Error> {
        Ok(Vec::new())
    }

    /// Describes in words how commands are carried out, and why not in a faster way.
    fn description(&self) -> String;
}

impl<D: Device + ?Sized> Device for Box<D> {
    fn geometry(&self) -> Geometry {
        (**self).geometry()
    }

    fn refresh(&mut self) -> Geometry {
        (**self).refresh()
    }

    fn submit<'a>(&mut self, command: Command<'a>) -> Result<(), QueueFull<'a>> {
        (**self).submit(command)
    }

    fn carry_out(&mut self, command: &Command<'_>) -> Option<Result<(), CommandError>> {
        (**self).carry_out(command)
    }

    fn reap(&mut self, done: &mut dyn FnMut(Completion)) -> usize {
        (**self).reap(done)
    }

    fn arm(&mut self) -> bool {
        (**self).arm()
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        (**self).descriptor()
    }

    fn depth(&self) -> usize {
        (**self).depth()
    }

    fn in_flight(&self) -> usize {
        (**self).in_flight()
    }

    fn chunks(&self) -> Option<&Chunks> {
        (**self).chunks()
    }

    fn chunks_mut(&mut self) -> Option<&mut Chunks> {
        (**self).chunks_mut()
    }

    fn pinner(&self) -> Option<Arc<dyn Pinner>> {
        (**self).pinner()
    }

    fn register(&mut self, memory: &Arc<PinnedRegion>) -> Result<Option<RegionId>, Error> {
        (**self).register(memory)
    }

    fn unregister(&mut self, region: RegionId) {
        (**self).unregister(region);
    }

    fn more_queues(&mut self, count: usize) -> Result<Vec<Box<dyn Device>>, Error> {
        (**self).more_queues(count)
    }

    fn description(&self) -> String {
        (**self).description()
    }
}
