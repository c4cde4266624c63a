//! A device under test, and the calls by which a case uses it.

use crate::command::{Command, CommandError, Completion};
use crate::device::Device;
use crate::segment::{MemoryOwner, Segment};
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Greatest time that any wait may take.
const LIMIT: Duration = Duration::from_secs(60);

/// Device under test, and the resources that it uses.
///
/// A case needs a device of at least 1 MiB that contains zeros, and whose depth is 52 or more.
pub struct Subject {
    /// The device.
    pub device: Box<dyn Device>,
    /// Offset of a border inside the device, in bytes; random commands are concentrated around it.
    pub seam: u64,
    /// Resources that the device uses, dropped after it.
    pub made_of: Vec<Box<dyn Send>>,
}

/// Page-aligned memory of a test.
pub struct Area {
    base: *mut u8,
    layout: Layout,
}

// SAFETY: memory that belongs to this value alone, and is accessed by copying only.
unsafe impl Send for Area {}
// SAFETY: accesses copy bytes; a test that writes during a command's read does so on purpose.
unsafe impl Sync for Area {}

impl Area {
    /// Allocates `bytes` zero bytes.
    pub fn new(bytes: usize) -> Arc<Area> {
        let layout = Layout::from_size_align(bytes.max(1), 4096).unwrap();
        // SAFETY: the layout has at least one byte, as `alloc_zeroed` requires.
        Arc::new(Area { base: unsafe { alloc_zeroed(layout) }, layout })
    }

    /// Allocates memory with the contents `bytes`.
    pub fn holding(bytes: &[u8]) -> Arc<Area> {
        let area = Area::new(bytes.len());
        area.put(0, bytes);
        area
    }

    /// Returns the address of the first byte.
    pub fn base(&self) -> *mut u8 {
        self.base
    }

    /// Returns `bytes` bytes of the area from byte `at` on. All commands of this suite own the area that they use.
    pub fn segment(&self, at: usize, bytes: usize) -> Segment {
        assert!(at + bytes <= self.layout.size());
        // SAFETY: within this area, which every command here owns.
        unsafe { Segment::new(self.base.add(at), bytes) }
    }

    /// Copies `bytes` into the area, from byte `at` on.
    pub fn put(&self, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= self.layout.size());
        // SAFETY: the assertion above keeps the range within the area; `bytes` is another object.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.base.add(at), bytes.len()) };
    }

    /// Copies `bytes` bytes out of the area, from byte `at` on.
    pub fn get(&self, at: usize, bytes: usize) -> Vec<u8> {
        assert!(at + bytes <= self.layout.size());
        let mut out = vec![0; bytes];
        // SAFETY: the assertion above keeps the range within the area; `out` is new.
        unsafe { std::ptr::copy_nonoverlapping(self.base.add(at), out.as_mut_ptr(), bytes) };
        out
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        // SAFETY: `new` allocated the memory with the same layout.
        unsafe { dealloc(self.base, self.layout) };
    }
}

impl fmt::Debug for Area {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} bytes of memory", self.layout.size())
    }
}

impl fmt::Debug for Subject {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "a device under test: {}", self.device.description())
    }
}

impl Subject {
    /// Makes a subject of a device without a border inside.
    pub fn new(device: Box<dyn Device>, made_of: Vec<Box<dyn Send>>) -> Subject {
        Subject { device, seam: 0, made_of }
    }

    /// Returns the size of the device, in bytes.
    pub fn bytes(&self) -> u64 {
        self.device.geometry().bytes
    }

    /// Returns the size of a block, in bytes.
    pub fn block(&self) -> usize {
        self.device.geometry().block as usize
    }

    /// Submits a command to a device that has room for it.
    pub fn submit(&mut self, command: Command<'_>, owner: &Arc<Area>) {
        let owner: MemoryOwner = owner.clone();
        self.device.submit(command.owner(owner)).expect("not so many are in flight");
    }

    /// Polls until no command is in flight, and returns all completions.
    pub fn finish(&mut self) -> Vec<Completion> {
        let (mut all, end) = (Vec::new(), Instant::now() + LIMIT);
        while self.device.in_flight() > 0 {
            self.device.reap(&mut |done| all.push(done));
            assert!(Instant::now() < end, "{} commands are stuck", self.device.in_flight());
        }
        all
    }

    /// Carries out one command and returns its result.
    pub fn run(&mut self, command: Command<'_>, owner: &Arc<Area>) -> Result<(), CommandError> {
        self.submit(command, owner);
        let done = self.finish();
        assert_eq!(done.len(), 1);
        done[0].result
    }

    /// Writes `bytes` at `offset`, and waits until they are written.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) {
        let area = Area::holding(bytes);
        assert_eq!(self.run(Command::write(1, offset, &[area.segment(0, bytes.len())]), &area), Ok(()));
    }

    /// Reads `bytes` bytes at `offset`, and waits for them.
    pub fn read(&mut self, offset: u64, bytes: usize) -> Vec<u8> {
        let area = Area::new(bytes);
        assert_eq!(self.run(Command::read(2, offset, &[area.segment(0, bytes)]), &area), Ok(()));
        area.get(0, bytes)
    }
}

/// Returns pseudo-random bytes that are determined by `number`.
pub fn pattern(number: u64, bytes: usize) -> Vec<u8> {
    let mut state = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_ne_bytes()
    };
    (0..bytes.div_ceil(8)).flat_map(|_| next()).take(bytes).collect()
}
