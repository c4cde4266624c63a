//! The interface of all devices.

use crate::chunks::Chunks;
use crate::command::{Command, Done, Failure, Full};
use crate::error::Error;
use crate::region::{Pinned, RegionId};
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// What a device is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Its size.
    pub bytes: u64,
    /// Bytes of a logical block, 512 or more: offsets and lengths are multiples of it, and it is never torn.
    pub block: u32,
    /// Bytes of which multiples are carried out best.
    pub optimal: u32,
    /// Most bytes of a command.
    pub transfer_max: u64,
    /// Whether it may be read and written.
    pub access: Access,
}

/// What may be done with a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// It is only read.
    Read,
    /// It is only written: nothing of what is there is ever told, not even by comparing.
    Write,
    /// Both.
    ReadWrite,
}

/// Something that can be read and written, with many commands under way. What may be relied on is in
/// [the crate's rules](crate#rules).
///
/// It has one user, who is its only thread at a time. No call waits, but for dropping it, and none of `submit`, `poll`
/// and `arm` allocates.
pub trait Device: Send {
    /// What it is like. It stays so.
    fn geometry(&self) -> Geometry;

    /// Takes a command, which may begin now or with the next [`Device::poll`] or [`Device::arm`]. A command that
    /// cannot be carried out is taken as well, and fails.
    ///
    /// # Errors
    /// Gives the command back while as many are under way as the device is deep.
    fn submit<'a>(&mut self, command: Command<'a>) -> Result<(), Full<'a>>;

    /// Carries a command out before it returns, as if it had been submitted and were given out right now, where that is
    /// all that the device would do with it. Nothing keeps its memory any longer, so it needs no owner. None: nothing was
    /// done, and the command is to be submitted.
    fn carry_out(&mut self, _: &Command<'_>) -> Option<Result<(), Failure>> {
        None
    }

    /// Gives what is done to `done`, in any order; answers how many that were.
    fn poll(&mut self, done: &mut dyn FnMut(Done)) -> usize;

    /// For those who want to sleep: after `false` the [`Device::descriptor`] becomes readable when something is done.
    /// `true`: something is done already, or can be found out by polling alone. What made the descriptor readable is
    /// taken away by the next call of this, and by polling until nothing is done.
    fn arm(&mut self) -> bool;

    /// What becomes readable when something is done, after [`Device::arm`]. None where there is nothing but polling.
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;

    /// Most commands that can be under way.
    fn depth(&self) -> usize;

    /// Commands that were submitted and not given out as done.
    fn under_way(&self) -> usize;

    /// The medium, where it is memory that others can map. None where there is no such memory, or where they would get
    /// around what the device makes of it.
    fn chunks(&self) -> Option<&Chunks> {
        None
    }

    /// The same, to renew some of it.
    fn chunks_mut(&mut self) -> Option<&mut Chunks> {
        None
    }

    /// Returns whether commands take less time whose memory was registered.
    fn registers(&self) -> bool {
        false
    }

    /// Prepares for commands whose spans are of `memory`, in microseconds, whatever its size. None: there is nothing to be
    /// gained.
    ///
    /// # Errors
    /// [`Error::Io`] if the kernel does not take it (before Linux 6.13), [`Error::Regions`] if too much is registered;
    /// commands can use the memory all the same.
    fn register(&mut self, _memory: &Arc<Pinned>) -> Result<Option<RegionId>, Error> {
        Ok(None)
    }

    /// Forgets a region. Commands under way keep their own; the memory is let go of by whoever drops it last.
    fn unregister(&mut self, _region: RegionId) {}

    /// How commands are carried out, in words, and why not in a better way.
    fn explain(&self) -> String;
}

impl<D: Device + ?Sized> Device for Box<D> {
    fn geometry(&self) -> Geometry {
        (**self).geometry()
    }

    fn submit<'a>(&mut self, command: Command<'a>) -> Result<(), Full<'a>> {
        (**self).submit(command)
    }

    fn carry_out(&mut self, command: &Command<'_>) -> Option<Result<(), Failure>> {
        (**self).carry_out(command)
    }

    fn poll(&mut self, done: &mut dyn FnMut(Done)) -> usize {
        (**self).poll(done)
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

    fn under_way(&self) -> usize {
        (**self).under_way()
    }

    fn chunks(&self) -> Option<&Chunks> {
        (**self).chunks()
    }

    fn chunks_mut(&mut self) -> Option<&mut Chunks> {
        (**self).chunks_mut()
    }

    fn registers(&self) -> bool {
        (**self).registers()
    }

    fn register(&mut self, memory: &Arc<Pinned>) -> Result<Option<RegionId>, Error> {
        (**self).register(memory)
    }

    fn unregister(&mut self, region: RegionId) {
        (**self).unregister(region);
    }

    fn explain(&self) -> String {
        (**self).explain()
    }
}
