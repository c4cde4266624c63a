//! Engine of io_uring: a ring with one registered file and a table of registered buffers. Called by the
//! engine.
//!
//! Invariant: every entry that was pushed is counted until its completion has been seen, and no memory that
//! the kernel may use is freed before. The ring has an entry for each slot, so its submission queue is never
//! full. [`Ring::kick`] submits all entries that were pushed since its last call.
//!
//! Requests of a passed file carry the number of the holder's credentials, which are registered with the
//! ring. The worker threads of io_uring use these credentials, and not those of the submitting thread.

use super::holder::FileUser;
use super::job::{IoRequest, Transfer};
use crate::error::Error;
use crate::region::{PinnedRegion, RegionId, RingPinning};
use crate::segment::Segment;
use io_uring::{IoUring, Probe, opcode, squeue, types};
use std::collections::VecDeque;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;

/// Index of the device's file in the table of registered files.
const FILE: types::Fixed = types::Fixed(0);
/// Number of entries in the table of registered buffers.
const BUFFERS_MAX: usize = 256;
/// Index of the registered buffer that is the device's bounce memory.
pub(super) const BOUNCE: u16 = 0;

/// Instance of io_uring for one file.
pub(super) struct Ring {
    ring: IoUring,
    /// Slots whose entries were pushed but not submitted, in order.
    queued: VecDeque<u16>,
    /// Number of entries that were submitted and have not completed.
    in_flight: usize,
    /// Slots whose requests cannot be submitted, with a negative errno(3).
    failed: VecDeque<(u16, i32)>,
    /// The errno(3) for which the kernel refused a submission; nothing is submitted any more.
    dead: Option<i32>,
    buffers: Buffers,
    /// Number of the credentials that requests are carried out with; 0 for those of the submitting thread.
    personality: u16,
}

/// Table of registered buffers: each region occupies one.
struct Buffers {
    /// Error for which the kernel refused registered buffers, if it did.
    unavailable: Option<std::io::Error>,
    free: Vec<u16>,
    regions: Vec<RegionEntry>,
}

/// Entry of the table of regions, used or unused.
#[derive(Default)]
struct RegionEntry {
    turn: u32,
    region: Option<Registered>,
}

struct Registered {
    buffer: u16,
    memory: Arc<PinnedRegion>,
}

impl Ring {
    /// Makes a ring for up to `depth` requests at a time on `file`, with the rights of `holder`. `bounce` is
    /// the address and size of the device's bounce memory.
    ///
    /// # Errors
    /// A message in words, if io_uring is not available, too old, or does not accept the file or the
    /// credentials.
    pub(super) fn new(
        file: RawFd,
        depth: usize,
        bounce: (*mut u8, usize),
        holder: Option<&FileUser>,
    ) -> Result<Ring, String> {
        let ring = IoUring::new(depth.next_power_of_two() as u32).map_err(why_none)?;
        let mut probe = Probe::new();
        let needed = [opcode::Read::CODE, opcode::Write::CODE, opcode::Fsync::CODE, opcode::Fallocate::CODE];
        let is_known = ring.submitter().register_probe(&mut probe);
        if is_known.is_err() || needed.iter().any(|code| !probe.is_supported(*code)) {
            return Err("io_uring of this kernel is too old: 5.6 is needed".into());
        }
        ring.submitter()
            .register_files(&[file])
            .map_err(|error| format!("io_uring does not take the file: {error}"))?;
        let personality = holder.map_or(Ok(0), |holder| personality_of(holder, &ring))?;
        let buffers = Buffers::new(&ring, bounce);
        Ok(Ring {
            ring,
            queued: VecDeque::with_capacity(depth),
            in_flight: 0,
            failed: VecDeque::with_capacity(depth),
            dead: None,
            buffers,
            personality,
        })
    }

    /// Pushes a request, which the next [`Ring::kick`] submits.
    pub(super) fn start(&mut self, slot: u16, job: IoRequest) {
        if let Some(error) = self.dead {
            return self.failed.push_back((slot, -error));
        }
        let entry =
            entry_of(self.buffers.offer(job)).personality(self.personality).user_data(u64::from(slot));
        // SAFETY: the request's memory stays mapped until it completes: `Segment::new` requires that, and
        // `File::drop` waits.
        match unsafe { self.ring.submission().push(&entry) } {
            Ok(()) => self.queued.push_back(slot),
            // Not reached, since there are as many entries as slots; the command fails instead of getting
            // lost.
            Err(_) => self.failed.push_back((slot, -libc::EBUSY)),
        }
    }

    /// Submits the entries that were pushed.
    pub(super) fn kick(&mut self) {
        while !self.queued.is_empty() && self.dead.is_none() {
            match self.ring.submit() {
                Ok(0) => return,
                Ok(count) => {
                    let count = count.min(self.queued.len());
                    self.queued.drain(..count);
                    self.in_flight += count;
                }
                // The next call tries again.
                Err(error) if is_passing(&error) => return,
                Err(error) => self.die(error.raw_os_error().unwrap_or(libc::EIO)),
            }
        }
    }

    /// Marks the ring as dead after the kernel refused a submission, perhaps by a policy: what is not
    /// submitted fails.
    fn die(&mut self, error: i32) {
        self.dead = Some(error);
        self.failed.extend(self.queued.drain(..).map(|slot| (slot, -error)));
    }

    /// Reaps a completion: the slot, and the number of bytes or a negative errno(3).
    pub(super) fn next(&mut self) -> Option<(u16, i32)> {
        if let Some(failed) = self.failed.pop_front() {
            return Some(failed);
        }
        let entry = self.ring.completion().next()?;
        self.in_flight -= 1;
        Some((entry.user_data() as u16, entry.result()))
    }

    /// Prepares the descriptor for sleeping; see [`Device::arm`](crate::Device::arm).
    pub(super) fn arm(&mut self) -> bool {
        self.kick();
        !self.queued.is_empty() || !self.failed.is_empty() || !self.ring.completion().is_empty()
    }

    /// Returns the descriptor that becomes readable when a request completes.
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        // SAFETY: the ring's descriptor stays open as long as the ring, which the result borrows.
        unsafe { BorrowedFd::borrow_raw(self.ring.as_raw_fd()) }
    }

    /// Cancels the requests in flight and waits for them. Returns false if the kernel refuses to wait, so
    /// that it may still use memory.
    pub(super) fn end(&mut self) -> bool {
        // Requests that cannot be cancelled complete by themselves.
        let _ = self.ring.submitter().register_sync_cancel(None, types::CancelBuilder::any());
        self.in_flight += self.queued.drain(..).count();
        while self.in_flight > 0 {
            let waited = match self.dead {
                None => self.ring.submit_and_wait(1).map(|_| ()),
                Some(error) => Err(std::io::Error::from_raw_os_error(error)),
            };
            self.in_flight -= self.ring.completion().count().min(self.in_flight);
            match waited {
                Err(error) if !is_passing(&error) => return self.in_flight == 0,
                Err(_) => std::thread::yield_now(),
                Ok(()) => {}
            }
        }
        // The kernel frees a ring some time after it was closed. The file is unregistered at once, so that
        // its next user need not wait for that.
        let _ = self.ring.submitter().unregister_files();
        let _ = self.ring.submitter().unregister_buffers();
        if self.personality != 0 {
            let _ = self.ring.submitter().unregister_personality(self.personality);
        }
        true
    }

    /// Returns an explanation as the error if memory cannot be registered.
    pub(super) fn registers(&self) -> Result<(), String> {
        match &self.buffers.unavailable {
            None => Ok(()),
            Some(error) => Err(format!("io_uring takes no buffers beforehand ({error})")),
        }
    }

    /// Returns the registered buffer of `region`, if the region is registered and contains the whole segment.
    pub(super) fn buffer_of(&self, region: RegionId, segment: &Segment) -> Option<u16> {
        let place = self.buffers.regions.get(region.index as usize)?;
        let known = place.region.as_ref().filter(|_| place.turn == region.generation)?;
        known.memory.offset_of(segment.base(), segment.bytes()).map(|_| known.buffer)
    }

    /// Registers memory that another ring has registered. The kernel only counts a reference to that
    /// registration and looks up no pages. Returns `None` for memory that was not pinned for io_uring.
    ///
    /// # Errors
    /// [`Error::Io`] if the kernel refuses, [`Error::Regions`] if the table is full.
    pub(super) fn register(&mut self, memory: &Arc<PinnedRegion>) -> Result<Option<RegionId>, Error> {
        let Some(other) = memory.pinning::<RingPinning>().and_then(RingPinning::ring) else {
            return Ok(None);
        };
        let buffers = &mut self.buffers;
        if let Some(error) = &buffers.unavailable {
            let source = error.raw_os_error().map_or(error.kind().into(), std::io::Error::from_raw_os_error);
            return Err(Error::io("register memory with io_uring", source));
        }
        let buffer = buffers.free.pop().ok_or(Error::Regions { most: BUFFERS_MAX - 1 })?;
        let flags = types::CloneBuffersFlags::DST_REPLACE;
        let submitter = self.ring.submitter();
        let cloned = submitter.register_buffers_clone_offset(other, 0, buffer.into(), 1, flags);
        if let Err(error) = cloned {
            buffers.free.push(buffer);
            return Err(Error::io("refer to memory that another ring of io_uring has registered", error));
        }
        let free = buffers.regions.iter().position(|place| place.region.is_none());
        let index = free.unwrap_or_else(|| {
            // The table stays bounded: there is at most one entry for each buffer.
            buffers.regions.push(RegionEntry::default());
            buffers.regions.len() - 1
        });
        let place = &mut buffers.regions[index];
        place.region = Some(Registered { buffer, memory: memory.clone() });
        Ok(Some(RegionId { index: index as u32, generation: place.turn }))
    }

    /// Unregisters a region. Requests with its buffer that the kernel does not have yet may fail with EFAULT;
    /// they are then started again without the buffer.
    pub(super) fn unregister(&mut self, region: RegionId) {
        self.kick();
        let Some(place) = self.buffers.regions.get_mut(region.index as usize) else { return };
        if place.turn != region.generation {
            return;
        }
        if let Some(known) = place.region.take() {
            place.turn = place.turn.wrapping_add(1);
            self.buffers.remove(&self.ring, &known);
        }
    }
}

impl Buffers {
    fn new(ring: &IoUring, (bounce, bytes): (*mut u8, usize)) -> Buffers {
        let made = ring.submitter().register_buffers_sparse(BUFFERS_MAX as u32);
        let unavailable = made.and_then(|()| set(ring, BOUNCE, bounce, bytes)).err();
        Buffers { unavailable, free: (1..BUFFERS_MAX as u16).collect(), regions: Vec::new() }
    }

    /// Returns the request, without its registered buffer if there are none.
    #[inline]
    fn offer(&self, mut job: IoRequest) -> IoRequest {
        if let (Some(_), IoRequest::Read(transfer) | IoRequest::Write { transfer, .. }) =
            (&self.unavailable, &mut job)
        {
            transfer.buffer = None;
        }
        job
    }

    /// Removes a region's buffer. The kernel unpins the pages when the last request that uses them has
    /// completed.
    fn remove(&mut self, ring: &IoUring, known: &Registered) {
        // Removing fails only for lack of memory; the buffer's next user then replaces the registration.
        let _ = set(ring, known.buffer, std::ptr::null_mut(), 0);
        self.free.push(known.buffer);
    }
}

/// Registers memory as entry `buffer` of the table; no bytes make the entry empty.
fn set(ring: &IoUring, buffer: u16, base: *mut u8, bytes: usize) -> std::io::Result<()> {
    let vector = libc::iovec { iov_base: base.cast(), iov_len: bytes };
    // SAFETY: registered memory stays mapped: `PinnedRegion` keeps a region's owner, and `File::drop` frees
    // the bounce memory only after `end` has waited for all requests.
    unsafe { ring.submitter().register_buffers_update(buffer.into(), &[vector], None) }
}

/// Registers a holder's credentials with a ring and returns their number.
fn personality_of(holder: &FileUser, ring: &IoUring) -> Result<u16, String> {
    let registered = holder.call(|| ring.submitter().register_personality());
    registered
        .map_err(|error| error.to_string())?
        .map_err(|error| format!("io_uring does not take credentials: {error}"))
}

fn entry_of(job: IoRequest) -> squeue::Entry {
    match job {
        IoRequest::Read(transfer) => read(transfer),
        IoRequest::Write { transfer, durable } => write(transfer, if durable { libc::RWF_DSYNC } else { 0 }),
        IoRequest::Sync => opcode::Fsync::new(FILE).flags(types::FsyncFlags::DATASYNC).build(),
        IoRequest::Allocate { how, offset, bytes } => {
            opcode::Fallocate::new(FILE, bytes).offset(offset).mode(how.bits() as i32).build()
        }
        IoRequest::Discard { .. } | IoRequest::ZeroOut { .. } => {
            unreachable!("an ioctl is carried out by a thread")
        }
    }
}

fn read(Transfer { segments, count, offset, buffer }: Transfer) -> squeue::Entry {
    if count > 1 {
        return opcode::Readv::new(FILE, segments.cast(), count).offset(offset).build();
    }
    // SAFETY: a transfer has at least one segment, in a slot that stays unchanged until the request
    // completes.
    let segment = unsafe { *segments };
    let bytes = segment.bytes() as u32;
    match buffer {
        Some(buffer) => opcode::ReadFixed::new(FILE, segment.base(), bytes, buffer).offset(offset).build(),
        None => opcode::Read::new(FILE, segment.base(), bytes).offset(offset).build(),
    }
}

fn write(Transfer { segments, count, offset, buffer }: Transfer, flags: i32) -> squeue::Entry {
    if count > 1 {
        return opcode::Writev::new(FILE, segments.cast(), count).offset(offset).rw_flags(flags).build();
    }
    // SAFETY: a transfer has at least one segment, in a slot that stays unchanged until the request
    // completes.
    let segment = unsafe { *segments };
    let (base, bytes) = (segment.base().cast_const(), segment.bytes() as u32);
    match buffer {
        Some(buffer) => {
            opcode::WriteFixed::new(FILE, base, bytes, buffer).offset(offset).rw_flags(flags).build()
        }
        None => opcode::Write::new(FILE, base, bytes).offset(offset).rw_flags(flags).build(),
    }
}

/// Returns true if the same call may succeed later: a signal interrupted it, or the kernel lacks resources.
fn is_passing(error: &std::io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY))
}

fn why_none(error: std::io::Error) -> String {
    let hint = match error.raw_os_error() {
        Some(libc::ENOSYS) => ": the kernel was built without it, or a seccomp filter hides it",
        Some(libc::EPERM) => ": see /proc/sys/kernel/io_uring_disabled, or a seccomp filter refuses it",
        Some(libc::ENOMEM) => ": raise the limit of locked memory (ulimit -l)",
        _ => "",
    };
    format!("there is no io_uring: {error}{hint}")
}
