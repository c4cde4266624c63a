//! Jobs by io_uring: one file, which is registered, and a table of registered buffers.
//!
//! Invariant: what was pushed is counted until its completion was seen, and nothing that the kernel may still use is
//! freed before. The ring has an entry for each command that the device is deep, so it is never full; entries are
//! handed over together, by [`Ring::kick`].
//!
//! A passed file's requests carry the number of their holder's credentials, which are registered with the ring and go with
//! it: workers of io_uring use those, and not the ones of any thread.

use super::holder::Holder;
use super::job::{Job, Transfer};
use crate::error::Error;
use crate::region::{Pinned, RegionId};
use crate::span::Span;
use io_uring::{IoUring, Probe, opcode, squeue, types};
use std::collections::VecDeque;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;

/// The registered file.
const FILE: types::Fixed = types::Fixed(0);
/// Registered buffers that there can be.
const BUFFERS_MAX: usize = 256;
/// The buffer that the device's own memory is.
pub(super) const BOUNCE: u16 = 0;

/// io_uring, set up for one file.
pub(super) struct Ring {
    ring: IoUring,
    /// Entries that the kernel has not been given yet, in order.
    queued: VecDeque<u16>,
    /// Entries that the kernel has and that have not come back.
    under_way: usize,
    /// Jobs that the kernel could not be given at all.
    failed: VecDeque<(u16, i32)>,
    /// Why it takes nothing any more: an errno(3).
    dead: Option<i32>,
    buffers: Buffers,
    /// Number of the credentials that requests are carried out with; 0: those of the thread that hands them over.
    personality: u16,
}

/// Registered memory: each region is one buffer.
struct Buffers {
    /// Why there is none.
    unavailable: Option<std::io::Error>,
    free: Vec<u16>,
    regions: Vec<Place>,
}

/// Where a region is registered, if there is one here.
#[derive(Default)]
struct Place {
    turn: u32,
    region: Option<Registered>,
}

struct Registered {
    buffer: u16,
    memory: Arc<Pinned>,
}

impl Ring {
    /// For jobs on `file`, `depth` at most at a time, by the rights of `holder`; `bounce` is the device's own memory.
    ///
    /// # Errors
    /// Why there is none, in words.
    pub(super) fn new(
        file: RawFd,
        depth: usize,
        bounce: (*mut u8, usize),
        holder: Option<&Holder>,
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
            under_way: 0,
            failed: VecDeque::with_capacity(depth),
            dead: None,
            buffers,
            personality,
        })
    }

    /// Begins a job, with the next [`Ring::kick`].
    pub(super) fn start(&mut self, slot: u16, job: Job) {
        if let Some(error) = self.dead {
            return self.failed.push_back((slot, -error));
        }
        let entry =
            entry_of(self.buffers.offer(job)).personality(self.personality).user_data(u64::from(slot));
        // SAFETY: the memory is there until the job is done, as `Span::new` asks and `File::drop` sees to.
        match unsafe { self.ring.submission().push(&entry) } {
            Ok(()) => self.queued.push_back(slot),
            // There are as many entries as slots: not reached, and still no reason to lose a command.
            Err(_) => self.failed.push_back((slot, -libc::EBUSY)),
        }
    }

    /// Hands over what was begun.
    pub(super) fn kick(&mut self) {
        while !self.queued.is_empty() && self.dead.is_none() {
            match self.ring.submit() {
                Ok(0) => return,
                Ok(count) => {
                    let count = count.min(self.queued.len());
                    self.queued.drain(..count);
                    self.under_way += count;
                }
                // Next time.
                Err(error) if is_passing(&error) => return,
                Err(error) => self.die(error.raw_os_error().unwrap_or(libc::EIO)),
            }
        }
    }

    /// The kernel takes nothing any more, for reasons of policy perhaps: what it has not got fails.
    fn die(&mut self, error: i32) {
        self.dead = Some(error);
        self.failed.extend(self.queued.drain(..).map(|slot| (slot, -error)));
    }

    /// A job that is done, and what became of it.
    pub(super) fn next(&mut self) -> Option<(u16, i32)> {
        if let Some(failed) = self.failed.pop_front() {
            return Some(failed);
        }
        let entry = self.ring.completion().next()?;
        self.under_way -= 1;
        Some((entry.user_data() as u16, entry.result()))
    }

    /// See [`Device::arm`](crate::Device::arm).
    pub(super) fn arm(&mut self) -> bool {
        self.kick();
        !self.queued.is_empty() || !self.failed.is_empty() || !self.ring.completion().is_empty()
    }

    /// What is readable when something is done.
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        // SAFETY: the ring's descriptor, which lives as long as the ring.
        unsafe { BorrowedFd::borrow_raw(self.ring.as_raw_fd()) }
    }

    /// Calls back what is under way and waits for it. False: the kernel could not be asked, and may still use memory.
    pub(super) fn end(&mut self) -> bool {
        // What cannot be called back comes by itself.
        let _ = self.ring.submitter().register_sync_cancel(None, types::CancelBuilder::any());
        self.under_way += self.queued.drain(..).count();
        while self.under_way > 0 {
            let waited = match self.dead {
                None => self.ring.submit_and_wait(1).map(|_| ()),
                Some(error) => Err(std::io::Error::from_raw_os_error(error)),
            };
            self.under_way -= self.ring.completion().count().min(self.under_way);
            match waited {
                Err(error) if !is_passing(&error) => return self.under_way == 0,
                Err(_) => std::thread::yield_now(),
                Ok(()) => {}
            }
        }
        // The kernel takes a ring apart some time after it was closed: the file is free for its next user before.
        let _ = self.ring.submitter().unregister_files();
        let _ = self.ring.submitter().unregister_buffers();
        if self.personality != 0 {
            let _ = self.ring.submitter().unregister_personality(self.personality);
        }
        true
    }

    /// Whether memory can be registered, and why not.
    pub(super) fn registers(&self) -> Result<(), String> {
        match &self.buffers.unavailable {
            None => Ok(()),
            Some(error) => Err(format!("io_uring takes no buffers beforehand ({error})")),
        }
    }

    /// The buffer that a span is of: of the region that its command names.
    pub(super) fn buffer_of(&self, region: RegionId, span: &Span) -> Option<u16> {
        let place = self.buffers.regions.get(region.index as usize)?;
        let known = place.region.as_ref().filter(|_| place.turn == region.turn)?;
        known.memory.place_of(span.base(), span.bytes()).map(|_| known.buffer)
    }

    /// Registers memory that another ring has, which has a reference to it counted and none of its pages looked at.
    pub(super) fn register(&mut self, memory: &Arc<Pinned>) -> Result<RegionId, Error> {
        let buffers = &mut self.buffers;
        if let Some(error) = &buffers.unavailable {
            let source = error.raw_os_error().map_or(error.kind().into(), std::io::Error::from_raw_os_error);
            return Err(Error::io("register memory with io_uring", source));
        }
        let buffer = buffers.free.pop().ok_or(Error::Regions { most: BUFFERS_MAX - 1 })?;
        let flags = types::CloneBuffersFlags::DST_REPLACE;
        let submitter = self.ring.submitter();
        let cloned = submitter.register_buffers_clone_offset(memory.ring(), 0, buffer.into(), 1, flags);
        if let Err(error) = cloned {
            buffers.free.push(buffer);
            return Err(Error::io("refer to memory that another ring of io_uring has registered", error));
        }
        let free = buffers.regions.iter().position(|place| place.region.is_none());
        let index = free.unwrap_or_else(|| {
            // At most one for each buffer.
            buffers.regions.push(Place::default());
            buffers.regions.len() - 1
        });
        let place = &mut buffers.regions[index];
        place.region = Some(Registered { buffer, memory: memory.clone() });
        Ok(RegionId { index: index as u32, turn: place.turn })
    }

    /// Forgets a region. A job with it that the kernel has not got yet may fail (EFAULT), and is to be begun without.
    pub(super) fn unregister(&mut self, region: RegionId) {
        self.kick();
        let Some(place) = self.buffers.regions.get_mut(region.index as usize) else { return };
        if place.turn != region.turn {
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

    /// The job, without a registered buffer where there are none.
    #[inline]
    fn offer(&self, mut job: Job) -> Job {
        if let (Some(_), Job::Read(transfer) | Job::Write { transfer, .. }) = (&self.unavailable, &mut job) {
            transfer.buffer = None;
        }
        job
    }

    /// The kernel lets go of the pages when the last job with them is done.
    fn remove(&mut self, ring: &IoUring, known: &Registered) {
        // To take a buffer away fails for want of memory alone; it would be replaced by the next one.
        let _ = set(ring, known.buffer, std::ptr::null_mut(), 0);
        self.free.push(known.buffer);
    }
}

/// Makes a registered buffer of memory, or of nothing.
fn set(ring: &IoUring, buffer: u16, base: *mut u8, bytes: usize) -> std::io::Result<()> {
    let vector = libc::iovec { iov_base: base.cast(), iov_len: bytes };
    // SAFETY: the memory is mapped as long as it is registered: a region's owner is kept as long, and the device's own
    // memory is freed after the ring.
    unsafe { ring.submitter().register_buffers_update(buffer.into(), &[vector], None) }
}

/// Registers a holder's credentials with a ring, where they stay as long as it is there.
fn personality_of(holder: &Holder, ring: &IoUring) -> Result<u16, String> {
    let registered = holder.call(|| ring.submitter().register_personality());
    registered
        .map_err(|error| error.to_string())?
        .map_err(|error| format!("io_uring does not take credentials: {error}"))
}

fn entry_of(job: Job) -> squeue::Entry {
    match job {
        Job::Read(transfer) => read(transfer),
        Job::Write { transfer, durable } => write(transfer, if durable { libc::RWF_DSYNC } else { 0 }),
        Job::Sync => opcode::Fsync::new(FILE).flags(types::FsyncFlags::DATASYNC).build(),
        Job::Allocate { how, offset, bytes } => {
            opcode::Fallocate::new(FILE, bytes).offset(offset).mode(how.bits() as i32).build()
        }
        Job::Discard { .. } | Job::ZeroOut { .. } => unreachable!("an ioctl is carried out by a thread"),
    }
}

fn read(Transfer { spans, count, offset, buffer }: Transfer) -> squeue::Entry {
    if count > 1 {
        return opcode::Readv::new(FILE, spans.cast(), count).offset(offset).build();
    }
    // SAFETY: a transfer has at least one span, of the slot that it is of.
    let span = unsafe { *spans };
    let bytes = span.bytes() as u32;
    match buffer {
        Some(buffer) => opcode::ReadFixed::new(FILE, span.base(), bytes, buffer).offset(offset).build(),
        None => opcode::Read::new(FILE, span.base(), bytes).offset(offset).build(),
    }
}

fn write(Transfer { spans, count, offset, buffer }: Transfer, flags: i32) -> squeue::Entry {
    if count > 1 {
        return opcode::Writev::new(FILE, spans.cast(), count).offset(offset).rw_flags(flags).build();
    }
    // SAFETY: as in `read`.
    let span = unsafe { *spans };
    let (base, bytes) = (span.base().cast_const(), span.bytes() as u32);
    match buffer {
        Some(buffer) => {
            opcode::WriteFixed::new(FILE, base, bytes, buffer).offset(offset).rw_flags(flags).build()
        }
        None => opcode::Write::new(FILE, base, bytes).offset(offset).rw_flags(flags).build(),
    }
}

/// Whether the same call may succeed next time: a signal came, or the kernel is short of memory.
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
