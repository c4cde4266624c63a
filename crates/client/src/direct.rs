//! The hardware behind a volume, which the server has handed to this client alone: an NVMe controller's function, driven
//! by the driver of `bywash-nvme` in this process.
//!
//! ```text
//!     request ──► grant: right, alignment, bounds ──► submission queue of the function ──► completion queue
//!                                                          data: arena of this client, mapped for the function
//! ```
//!
//! Invariant: a request is within the volume, since its range was checked against the grant before; the hardware limits
//! it to the namespace, and the IOMMU limits it to memory of this process. Once the grant is revoked or the server is
//! gone, the function is given up: no request completes after that, and those in flight fail.
//!
//! Called by `volume`, whose threads take turns, and by `queue`, whose one thread has it to itself.

use crate::error::Error;
use crate::options::VolumePath;
use crate::request::{RequestHeader, name};
use crate::session::Grant;
use bywash_channel::BufferAllocator;
use bywash_device::{
    Command, CommandError, Device, MemoryOwner, Operation, PinnedRegion, Region, RegionId, Segment,
};
use bywash_link::ProcessGeneration;
use bywash_nvme::{Address, Nvme, Options, TransferId, Vfio};
use bywash_protocol::layout::{FUA, Opcode};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::fmt;
use std::mem::ManuallyDrop;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// Number of polls for a completion before a thread sleeps.
pub(crate) const SPINS: u32 = 2000;
/// Number of polls after which the grant is looked at.
const LOOK_EVERY: u32 = 64;
/// Greatest time that a thread sleeps before it looks at the grant again.
const SLEEP: Timespec = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };

/// Function that the server has granted, as it describes it.
#[derive(Debug)]
pub(crate) struct GrantedFunction {
    pub(crate) address: String,
    pub(crate) namespace: u32,
    /// Offset of the volume in the namespace, in bytes.
    pub(crate) offset: u64,
    /// True if the server grants the function to trusted users only.
    pub(crate) needs_trust: bool,
    pub(crate) descriptors: Vec<OwnedFd>,
}

/// Settings of the driver of a granted function.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DriverSettings {
    /// Greatest number of requests in flight.
    pub(crate) depth: usize,
    /// Time after which a command of the controller is aborted.
    pub(crate) timeout: Duration,
}

/// Hardware behind a volume.
pub(crate) struct Direct {
    /// Not dropped in a forked child, whose parent has the hardware.
    device: ManuallyDrop<Nvme<Vfio>>,
    address: Address,
    offset: u64,
    needs_trust: bool,
    /// Arena whose memory the function accesses, if it can be mapped for it.
    arena: Option<(RegionId, Arc<PinnedRegion>)>,
    /// Reason why no arena could be mapped.
    why_copied: Option<String>,
    maker: ProcessGeneration,
}

impl Direct {
    /// Resets the controller of a granted function, and makes the volume's device.
    ///
    /// # Errors
    /// [`Error::ProtocolViolation`] if it is no function with room for `bytes` bytes in blocks of `block`; [`Error::Io`]
    /// if the kernel or the controller refuses something.
    pub(crate) fn open(
        function: GrantedFunction,
        bytes: u64,
        block: u32,
        settings: DriverSettings,
    ) -> Result<Direct, Error> {
        let GrantedFunction { address, namespace, offset, needs_trust, descriptors } = function;
        let broken =
            |error: &dyn fmt::Display| Error::broken(format!("it granted the function {address}: {error}"));
        let parsed: Address = address.parse().map_err(|error| broken(&error))?;
        let failed = |error: bywash_nvme::Error| {
            Error::io(format!("drive the function {address}"), std::io::Error::other(error.to_string()))
        };
        let options = Options {
            namespace: Some(namespace),
            depth: settings.depth.min(bywash_nvme::DEPTH_MAX),
            timeout: settings.timeout,
            ..Options::default()
        };
        let function = Vfio::from_descriptors(&parsed, descriptors).map_err(failed)?;
        let mut device = Nvme::open(function, &options).map_err(failed)?;
        device.silence().map_err(failed)?;
        let geometry = device.geometry();
        let has_room = offset.checked_add(bytes).is_some_and(|end| end <= geometry.bytes);
        if !has_room || geometry.block != block || !offset.is_multiple_of(block.into()) {
            let what = format!(
                "its namespace has {} bytes in blocks of {}, and the volume {bytes} in blocks of {block} from {offset} on",
                geometry.bytes, geometry.block
            );
            return Err(broken(&what));
        }
        Ok(Direct {
            device: ManuallyDrop::new(device),
            address: parsed,
            offset,
            needs_trust,
            arena: None,
            why_copied: None,
            maker: ProcessGeneration::current(),
        })
    }

    /// Returns the path of requests to the function.
    pub(crate) fn path(&self) -> VolumePath {
        VolumePath::Direct {
            function: self.address.to_string(),
            needs_trust: self.needs_trust,
            why_copied: self.why_copied.clone(),
        }
    }

    /// Returns false in a forked child, which must not use the hardware of its parent.
    #[inline(always)]
    pub(crate) fn is_here(&self) -> bool {
        self.maker.is_here()
    }

    /// Maps an arena for the function, unless that was tried, so that data in it is not copied. Where the kernel refuses,
    /// for example because of its limit of locked memory, data is copied by the driver, and the path tells why.
    pub(crate) fn map_arena(&mut self, buffers: &BufferAllocator) {
        if self.arena.is_some() || self.why_copied.is_some() {
            return;
        }
        let Some((base, bytes)) = buffers.arena() else { return };
        let owner: MemoryOwner = Arc::new(buffers.clone());
        // SAFETY: the allocator keeps the arena mapped for reading and writing, and no reference points into it, since its
        // contents are copied or borrowed only while no request has them.
        let region = unsafe { Region::new(base, bytes, owner) };
        let Some(pinner) = self.device.pinner() else { return };
        let mapped = region.pin(&*pinner).map(Arc::new).and_then(|pinned| {
            let number = self.device.register(&pinned)?;
            Ok(number.map(|number| (number, pinned)))
        });
        match mapped {
            Ok(arena) => self.arena = arena,
            Err(error) => self.why_copied = Some(error.to_string()),
        }
    }

    /// Submits a request with `bytes` bytes of memory at `memory`, if it takes memory. Its completion has `token`.
    /// Returns false if as many requests are in flight as the driver takes.
    ///
    /// # Safety
    /// The memory is valid for reading and writing, and nothing else accesses it, until the request has completed or this
    /// value was dropped.
    #[inline]
    pub(crate) unsafe fn submit(
        &mut self,
        token: u64,
        shape: &RequestHeader,
        memory: *mut u8,
        bytes: usize,
    ) -> bool {
        // SAFETY: the caller keeps the memory until the command has completed.
        let segments = [unsafe { Segment::new(memory, bytes) }];
        let operation = match shape.opcode {
            Opcode::Read => Operation::Read,
            Opcode::Write if shape.flags & FUA != 0 => Operation::WriteDurable,
            Opcode::Write => Operation::Write,
            Opcode::Discard => Operation::Discard,
            Opcode::WriteZeroes => Operation::WriteZeroes,
            Opcode::CompareAndWrite => Operation::CompareAndWrite,
            // The callers carry out requests of several ranges otherwise.
            Opcode::Flush | Opcode::ReadRanges | Opcode::WriteRanges => Operation::Flush,
        };
        let (segments, region): (&[Segment], _) = match operation.moves_data() {
            true => (&segments, self.arena.as_ref().map(|arena| arena.0)),
            false => (&[], None),
        };
        let command = Command::new(token, operation, self.offset + shape.offset, shape.length, segments);
        self.device.submit(command.region(region)).is_ok()
    }

    /// Prepares a read or write of the `bytes` bytes at `memory`; `None` if they are not in the arena that is mapped for the
    /// function, or if one command of the controller does not suffice.
    ///
    /// # Safety
    /// The memory is valid for reading and writing, and nothing else accesses it, while a request by the transfer is in flight.
    pub(crate) unsafe fn prepare(
        &mut self,
        is_write: bool,
        memory: *mut u8,
        bytes: usize,
    ) -> Option<TransferId> {
        let operation = if is_write { Operation::Write } else { Operation::Read };
        let (region, _) = self.arena.as_ref()?;
        // SAFETY: the caller keeps the memory while a command is in flight.
        let segment = unsafe { Segment::new(memory, bytes) };
        self.device.prepare(operation, *region, segment)
    }

    /// Submits a prepared request at an offset of the volume, like [`Direct::submit`]. Returns false if it is in flight, if as
    /// many requests are in flight as the driver takes, or in a forked child.
    #[inline(always)]
    pub(crate) fn submit_transfer(&mut self, transfer: TransferId, token: u64, offset: u64) -> bool {
        self.is_here() && self.device.submit_transfer(transfer, token, self.offset + offset)
    }

    /// Gives a transfer back. Returns false if a request by it is in flight.
    pub(crate) fn release(&mut self, transfer: TransferId) -> bool {
        self.device.release(transfer)
    }

    /// Returns the number of requests that can be submitted besides those in flight and those by transfers.
    pub(crate) fn room(&self) -> usize {
        self.device.room()
    }

    /// Returns token and result of a request that has completed; `None` if there is none.
    #[inline(always)]
    pub(crate) fn reap_one(&mut self) -> Option<(u64, Result<(), CommandError>)> {
        self.device.reap_one()
    }

    /// Carries out one request, like [`Direct::submit`], and waits for its end. `look` tells whether the grant still
    /// holds; if not, the function is given up.
    ///
    /// # Errors
    /// The error of `look`; the outer result is that of the device otherwise.
    ///
    /// # Safety
    /// The memory is valid for reading and writing, and nothing else accesses it, during this call. Nothing else is in
    /// flight.
    pub(crate) unsafe fn carry_out(
        &mut self,
        shape: &RequestHeader,
        memory: *mut u8,
        bytes: usize,
        look: impl Fn() -> Result<(), Error>,
    ) -> Result<Result<(), CommandError>, Error> {
        look()?;
        // SAFETY: the caller keeps the memory during this call, which ends only when the command has completed.
        if !unsafe { self.submit(0, shape, memory, bytes) } {
            return Ok(Err(CommandError::TooManySegments));
        }
        let mut polls = 0u32;
        loop {
            if let Some((_, result)) = self.reap_one() {
                return Ok(result);
            }
            polls = polls.wrapping_add(1);
            if polls.is_multiple_of(LOOK_EVERY)
                && let Err(error) = look()
            {
                self.give_up();
                while self.reap_one().is_some() {}
                return Err(error);
            }
            match polls >= SPINS && !self.arm() {
                true => self.sleep(),
                false => std::hint::spin_loop(),
            }
        }
    }

    /// Prepares the descriptor for a sleep: it becomes readable when a request completes. The first call enables interrupts.
    /// Returns true if the caller has to poll instead, since a completion is there or there are no interrupts.
    pub(crate) fn arm(&mut self) -> bool {
        !self.is_here() || self.device.arm()
    }

    /// Returns the descriptor to sleep on, if the function has interrupts.
    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.device.descriptor()
    }

    /// Sleeps until a completion comes, but not long.
    fn sleep(&self) {
        match self.descriptor() {
            // A signal wakes the thread as well, and it looks again.
            Some(descriptor) => drop(poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], Some(&SLEEP))),
            None => std::thread::sleep(Duration::from_micros(50)),
        }
    }

    /// Gives the function up: all requests in flight fail, and later ones.
    pub(crate) fn give_up(&mut self) {
        self.device.give_up();
    }
}

impl Drop for Direct {
    fn drop(&mut self) {
        if self.is_here() {
            // SAFETY: nothing uses the device after this, the only place that drops it.
            unsafe { ManuallyDrop::drop(&mut self.device) };
        }
    }
}

impl fmt::Debug for Direct {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "the function {}", self.address)
    }
}

/// Makes the error of a request that the hardware has failed, as the server makes it for requests over the channel.
#[cold]
pub(crate) fn failed(grant: &Grant, shape: &RequestHeader, error: CommandError) -> Error {
    let (what, volume) = (name(shape.opcode), grant.name.clone());
    if let Err(over) = grant.check_revoked().and_then(|()| grant.session.check_server_now()) {
        return over;
    }
    let RequestHeader { offset, length, .. } = *shape;
    match error {
        CommandError::Mismatch => Error::CompareFailed { volume },
        CommandError::OutOfRange => Error::OutOfBounds { volume, offset, length, bytes: grant.bytes },
        CommandError::ReadOnly | CommandError::WriteOnly => {
            Error::Denied { volume, access: grant.access, what }
        }
        CommandError::Unaligned | CommandError::TooLong | CommandError::TooManySegments => {
            Error::Malformed { what, volume }
        }
        CommandError::Io(number) => match rustix::io::Errno::from_raw_os_error(number) {
            rustix::io::Errno::NOSPC => Error::NoSpace { what, volume },
            rustix::io::Errno::OPNOTSUPP => Error::NotSupported { what, volume },
            rustix::io::Errno::TIMEDOUT => Error::DeviceTimedOut { what, volume },
            _ => Error::DeviceFailed { what, volume },
        },
        _ => Error::DeviceFailed { what, volume },
    }
}
