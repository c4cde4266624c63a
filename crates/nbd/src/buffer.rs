//! Memory for payloads, a pool of it, and the limit of what clients make the server use.
//!
//! ```text
//!   Pool ──take──► Buffer ──lend──► LentBuffer ──commands──► device
//!     ▲             │  ▲                │
//!     └────give─────┘  └───take_back────┘   only when no command has the memory any more
//! ```
//!
//! Invariant: a [`Buffer`] is the only owner of its memory, so its bytes can be borrowed. A [`LentBuffer`] gives
//! nobody its bytes: each command that uses them owns the memory, too, and the buffer comes back only when all
//! these owners are gone. Called by `engine` and `connection`.

#![expect(unsafe_code, reason = "commands of devices refer to their memory by address")]

use bywash_device::{Command, CommandError, Device, Operation, QueueFull, Segment};
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::Range;
use std::sync::Arc;

/// Alignment of all memory, in bytes: every device takes it without copying.
const PAGE: usize = 4096;
/// Sizes of the buffers that the pool keeps, in bytes.
const CLASSES: [usize; 5] = [4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20];
/// Greatest amount of memory that the pool keeps for later, in bytes.
const KEPT_MAX: usize = 8 << 20;

/// Initialised, page-aligned memory of this process.
#[derive(Debug)]
struct Pages {
    base: *mut u8,
    layout: Layout,
}

// SAFETY: the memory belongs to this value alone; its bytes are only accessed through `Buffer`, which owns it
// alone, and by commands of devices, which promise no synchronisation.
unsafe impl Send for Pages {}
// SAFETY: a shared reference gives out the address only.
unsafe impl Sync for Pages {}

impl Pages {
    fn new(bytes: usize) -> Pages {
        // Not reached: callers pass at most `PAYLOAD_MAX`, which fits into the address space.
        let layout = Layout::from_size_align(bytes.max(1), PAGE).expect("a size of a payload");
        // SAFETY: the layout has at least one byte, as `alloc_zeroed` requires.
        let base = unsafe { alloc_zeroed(layout) };
        if base.is_null() {
            handle_alloc_error(layout);
        }
        Pages { base, layout }
    }

    /// Describes a part of the memory for a command.
    ///
    /// # Safety
    /// The command owns the memory, or is over before the call that carries it out returns; and no reference
    /// points into the part until then.
    ///
    /// # Panics
    /// If the range is not within the memory.
    unsafe fn segment(&self, range: Range<usize>) -> Segment {
        assert!(range.start <= range.end && range.end <= self.layout.size());
        // SAFETY: the range is within the memory, as checked; the caller promises the rest.
        unsafe { Segment::new(self.base.wrapping_add(range.start), range.end - range.start) }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: `new` allocated the memory with the same layout, and nobody frees it twice.
        unsafe { dealloc(self.base, self.layout) };
    }
}

/// Memory that nobody else uses.
#[derive(Debug)]
pub(crate) struct Buffer(Arc<Pages>);

impl Buffer {
    /// Allocates zeroed memory.
    pub(crate) fn new(bytes: usize) -> Buffer {
        Buffer(Arc::new(Pages::new(bytes)))
    }

    /// Returns the size, in bytes.
    pub(crate) fn len(&self) -> usize {
        self.0.layout.size()
    }

    /// Borrows the bytes.
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: the memory has as many initialised bytes; this value is its only owner, so no command and no
        // other reference uses it while the borrow lasts.
        unsafe { std::slice::from_raw_parts(self.0.base, self.0.layout.size()) }
    }

    /// Borrows the bytes to be written.
    #[inline]
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: the memory has as many initialised bytes; this value is its only owner and is borrowed
        // exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.0.base, self.0.layout.size()) }
    }

    /// Carries out a command with a part of this memory at once, if the device can; see
    /// [`Device::carry_out`].
    #[inline]
    pub(crate) fn carry_out(
        &mut self,
        device: &mut dyn Device,
        operation: Operation,
        offset: u64,
        range: Range<usize>,
    ) -> Option<Result<(), CommandError>> {
        // SAFETY: the device uses the memory during this call only, in which this value is borrowed
        // exclusively.
        let segments = unsafe { [self.0.segment(range)] };
        device.carry_out(&Command::new(0, operation, offset, 0, &segments))
    }

    /// Makes the memory available to commands.
    pub(crate) fn lend(self) -> LentBuffer {
        LentBuffer(self.0)
    }
}

/// Memory that commands in flight use.
#[derive(Clone, Debug)]
pub(crate) struct LentBuffer(Arc<Pages>);

impl LentBuffer {
    /// Submits a command that uses a part of this memory. Returns false if the device has as many commands in
    /// flight as it takes.
    pub(crate) fn submit(
        &self,
        device: &mut dyn Device,
        token: u64,
        operation: Operation,
        offset: u64,
        range: Range<usize>,
    ) -> bool {
        // SAFETY: the command owns the memory until it has completed. Nobody borrows the bytes before, since
        // `take_back` finds that owner.
        let segments = unsafe { [self.0.segment(range)] };
        let command = Command::new(token, operation, offset, 0, &segments).owner(self.0.clone());
        !matches!(device.submit(command), Err(QueueFull(_)))
    }

    /// Returns the memory to its only owner; `None` if a command still has it, in which case the memory is
    /// freed after that.
    pub(crate) fn take_back(mut self) -> Option<Buffer> {
        Arc::get_mut(&mut self.0).is_some().then_some(Buffer(self.0))
    }
}

/// Buffers that are free to be used again, and the amount of memory that is in use.
#[derive(Debug)]
pub(crate) struct Pool {
    free: [Vec<Buffer>; CLASSES.len()],
    kept_bytes: usize,
    used_bytes: usize,
    used_bytes_max: usize,
    limit_bytes: usize,
    /// Number of times that memory was given back, which wraps around.
    returns: u64,
}

impl Pool {
    /// Makes an empty pool, from which clients can take `limit_bytes` bytes together.
    pub(crate) fn new(limit_bytes: usize) -> Pool {
        Pool {
            free: Default::default(),
            kept_bytes: 0,
            used_bytes: 0,
            used_bytes_max: 0,
            limit_bytes,
            returns: 0,
        }
    }

    /// Takes a buffer of at least `bytes` bytes for a client that has `held` bytes already, and adds to them.
    /// `None` if the client has to wait until it, or another one, has given buffers back.
    #[inline]
    pub(crate) fn take(&mut self, bytes: usize, held: &mut usize) -> Option<Buffer> {
        let class = CLASSES.iter().position(|class| *class >= bytes);
        let size = class.map_or(bytes.next_multiple_of(PAGE), |class| CLASSES[class]);
        let fits = *held + size <= CLIENT_MAX && self.used_bytes + size <= self.limit_bytes;
        // Each client can always have one request of moderate size, whatever the others do.
        if !(fits || (*held == 0 && size <= GUARANTEED)) {
            return None;
        }
        *held += size;
        self.used_bytes += size;
        self.used_bytes_max = self.used_bytes_max.max(self.used_bytes);
        let kept = class.and_then(|class| self.free[class].pop());
        if let Some(buffer) = kept {
            self.kept_bytes -= size;
            return Some(buffer);
        }
        Some(Buffer::new(size))
    }

    /// Gives a buffer back that a client has taken.
    #[inline]
    pub(crate) fn give(&mut self, buffer: Buffer, held: &mut usize) {
        let size = buffer.len();
        self.forget(size, held);
        let class = CLASSES.iter().position(|class| *class == size);
        if let Some(class) = class.filter(|_| self.kept_bytes + size <= KEPT_MAX) {
            self.kept_bytes += size;
            self.free[class].push(buffer);
        }
    }

    /// Accounts for `bytes` bytes that were freed otherwise.
    pub(crate) fn forget(&mut self, bytes: usize, held: &mut usize) {
        *held -= bytes;
        self.used_bytes -= bytes;
        self.returns = self.returns.wrapping_add(1);
    }

    /// Returns a number that changes whenever memory is given back.
    pub(crate) fn returns(&self) -> u64 {
        self.returns
    }

    /// Returns the greatest amount of memory that was in use at the same time, in bytes.
    pub(crate) fn used_bytes_max(&self) -> usize {
        self.used_bytes_max
    }
}

/// Greatest amount of memory that one client can use, in bytes: as much as the longest request.
const CLIENT_MAX: usize = crate::layout::PAYLOAD_MAX as usize;
/// Amount of memory that a client without requests in flight can always use, in bytes.
const GUARANTEED: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use bywash_device::{Memory, MemoryOptions};

    #[test]
    fn memory_comes_back_when_no_command_has_it() {
        let mut options = MemoryOptions::new(1 << 20);
        options.latency_ns = 1;
        let mut device = Memory::new(options).unwrap();
        let mut buffer = Buffer::new(8192);
        buffer.bytes_mut().fill(7);
        assert_eq!(buffer.carry_out(&mut device, Operation::Write, 0, 0..512), None);
        let lent = buffer.lend();
        assert!(lent.submit(&mut device, 1, Operation::Write, 0, 4096..8192));
        assert!(lent.clone().take_back().is_none(), "the command and the clone have it");
        while device.in_flight() > 0 {
            device.reap(&mut |completion| assert_eq!(completion.result, Ok(())));
        }
        let buffer = lent.take_back().expect("no command has it");
        assert_eq!(buffer.bytes(), [7; 8192]);
    }

    #[test]
    fn a_client_waits_beyond_its_share_but_always_has_one_request() {
        let mut pool = Pool::new(40 << 20);
        let (mut first, mut second, mut third) = (0, 0, 0);
        let large = pool.take(32 << 20, &mut first).unwrap();
        assert_eq!((large.len(), first), (32 << 20, 32 << 20));
        assert!(pool.take(1, &mut first).is_none(), "its share is used up");
        assert!(pool.take(32 << 20, &mut second).is_none(), "the limit of all would be exceeded");
        let others: Vec<_> = (0..8).map(|_| pool.take(1 << 20, &mut second).unwrap()).collect();
        assert!(pool.take(4096, &mut second).is_none());
        let one = pool.take(1 << 20, &mut third).unwrap();
        assert!(pool.take(1, &mut third).is_none());
        pool.give(one, &mut third);
        others.into_iter().for_each(|buffer| pool.give(buffer, &mut second));
        pool.give(large, &mut first);
        assert_eq!((first, second, third, pool.used_bytes), (0, 0, 0, 0));
        assert!(pool.kept_bytes <= KEPT_MAX && pool.kept_bytes > 0);
        assert_eq!(pool.used_bytes_max(), 41 << 20);
    }

    #[test]
    fn sizes_are_rounded_up_to_classes() {
        let mut pool = Pool::new(1 << 30);
        for (bytes, size) in
            [(1, 4096), (4096, 4096), (4097, 16 << 10), (1 << 20, 1 << 20), ((1 << 20) + 1, (1 << 20) + 4096)]
        {
            let mut held = 0;
            let buffer = pool.take(bytes, &mut held).unwrap();
            assert_eq!((buffer.len(), held), (size, size), "{bytes}");
            pool.give(buffer, &mut held);
        }
    }
}
