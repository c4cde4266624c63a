//! io_uring: reads of the block device and commands of the generic character device, with and without polling.
//!
//! A ring that polls submits in one call and looks for completions in a second one, when the disk has certainly completed
//! the reads. So nothing of the kernel's polling is counted; an empty call is counted as well, so that the host can take the
//! second one off.

use super::kernel::{disk_name, open, sleeps};
use super::{BLOCK, FAST, Memory, Offsets, SLOW, WARM_UP, absent_unless, failed, keep, mark, series, settle};
use crate::error::{Attempt, Error};
use io_uring::{EnterFlags, IoUring, cqueue, opcode, squeue, types};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::PathBuf;

/// Depths at which each ring reads.
const DEPTHS: [usize; 2] = [1, 32];
/// Greatest depth.
const DEPTH_MAX: usize = 32;
/// Number of registered memory and of the registered file.
const REGISTERED: u16 = 0;
const FILE: types::Fixed = types::Fixed(0);

/// Reads by each kind of ring.
pub fn run(operations: usize) -> Result<(), Error> {
    for disk in [FAST, SLOW] {
        let name = format!("io_uring, fixed, {disk}");
        absent_unless(&name, blocks(disk, false, operations, &name))?;
    }
    absent_unless(IOPOLL, blocks(FAST, true, operations, IOPOLL))?;
    for is_fixed in [true, false] {
        for is_polled in [true, false] {
            let name = passthrough_name(is_fixed, is_polled);
            absent_unless(&name, passthrough(is_fixed, is_polled, operations, &name))?;
        }
    }
    Ok(())
}

const IOPOLL: &str = "io_uring IOPOLL, fixed";

fn passthrough_name(is_fixed: bool, is_polled: bool) -> String {
    let polled = if is_polled { " IOPOLL" } else { "" };
    format!("io_uring passthrough{polled}{}", if is_fixed { ", fixed" } else { "" })
}

fn blocks(disk: &str, is_polled: bool, operations: usize, name: &str) -> Result<(), Error> {
    let mut builder = IoUring::builder();
    if is_polled {
        builder.setup_iopoll();
    }
    let ring: IoUring = builder.build(DEPTH_MAX as u32).map_err(|error| failed("io_uring", error))?;
    let mut reader = Reader::new(ring, open(disk)?, is_polled, BLOCK as i32)?;
    let entry = |to: *mut u8, offset| {
        opcode::ReadFixed::new(FILE, to, BLOCK as u32, REGISTERED).offset(offset).build()
    };
    reader.run(operations, name, entry)
}

/// Command to the kernel's driver: `struct nvme_uring_cmd` of linux/nvme_ioctl.h.
#[repr(C)]
struct PassthroughCommand {
    opcode: u8,
    flags: u8,
    reserved: u16,
    namespace: u32,
    words_2_and_3: [u32; 2],
    metadata: u64,
    address: u64,
    metadata_bytes: u32,
    bytes: u32,
    words_10_to_15: [u32; 6],
    timeout_ms: u32,
    reserved_2: u32,
}

const _: () = assert!(size_of::<PassthroughCommand>() == 72);

/// NVME_URING_CMD_IO: `_IOWR('N', 0x80, struct nvme_uring_cmd)`.
const PASSTHROUGH: u32 = 0xc048_4e80;
/// Size of a block of the disks, as a power of two.
const BLOCK_SHIFT: u32 = 9;
/// Opcode of a read.
const READ: u8 = 2;

impl PassthroughCommand {
    fn read(to: *mut u8, offset: u64) -> PassthroughCommand {
        let first = offset >> BLOCK_SHIFT;
        let count = (BLOCK >> BLOCK_SHIFT) as u32;
        PassthroughCommand {
            opcode: READ,
            flags: 0,
            reserved: 0,
            namespace: 1,
            words_2_and_3: [0; 2],
            metadata: 0,
            address: to as u64,
            metadata_bytes: 0,
            bytes: BLOCK as u32,
            words_10_to_15: [first as u32, (first >> 32) as u32, count - 1, 0, 0, 0],
            timeout_ms: 0,
            reserved_2: 0,
        }
    }

    #[expect(unsafe_code, reason = "the kernel reads the structure as bytes")]
    fn bytes(self) -> [u8; 80] {
        let mut bytes = [0; 80];
        // SAFETY: the structure has no padding, as the sum of its fields' sizes above says, and the array is longer.
        unsafe { bytes.as_mut_ptr().cast::<PassthroughCommand>().write_unaligned(self) };
        bytes
    }
}

fn passthrough(is_fixed: bool, is_polled: bool, operations: usize, name: &str) -> Result<(), Error> {
    let mut builder = IoUring::<squeue::Entry128, cqueue::Entry32>::builder();
    if is_polled {
        builder.setup_iopoll();
    }
    let ring = builder.build(DEPTH_MAX as u32).map_err(|error| failed("io_uring", error))?;
    // The generic character device of nvme0n1 is ng0n1.
    let path = PathBuf::from("/dev").join(disk_name(FAST)?.replacen("nvme", "ng", 1));
    let file = File::options().read(true).write(true).open(&path).doing("open", &path)?;
    let mut reader = Reader::new(ring, file, is_polled, 0)?;
    let entry = |to: *mut u8, offset| {
        let command = PassthroughCommand::read(to, offset).bytes();
        let entry = opcode::UringCmd80::new(FILE, PASSTHROUGH).cmd(command);
        entry.buf_index(is_fixed.then_some(REGISTERED)).build()
    };
    reader.run(operations, name, entry)
}

/// A ring with its memory and its file.
struct Reader<S: squeue::EntryMarker, C: cqueue::EntryMarker> {
    ring: IoUring<S, C>,
    memory: Memory,
    is_polled: bool,
    /// Result of a read.
    result: i32,
    _file: File,
}

impl<S: squeue::EntryMarker, C: cqueue::EntryMarker + Into<cqueue::Entry>> Reader<S, C> {
    #[expect(unsafe_code, reason = "the kernel keeps what is registered")]
    fn new(ring: IoUring<S, C>, file: File, is_polled: bool, result: i32) -> Result<Reader<S, C>, Error> {
        let memory = Memory::new(DEPTH_MAX * BLOCK)?;
        let pages = [libc::iovec { iov_base: memory.at(0).cast(), iov_len: memory.bytes }];
        ring.submitter().register_files(&[file.as_raw_fd()]).map_err(|error| failed("io_uring", error))?;
        // SAFETY: the memory is dropped after the ring, which has its pages pinned.
        unsafe { ring.submitter().register_buffers(&pages) }.map_err(|error| failed("io_uring", error))?;
        Ok(Reader { ring, memory, is_polled, result, _file: file })
    }

    fn run(&mut self, operations: usize, name: &str, entry: impl Fn(*mut u8, u64) -> S) -> Result<(), Error> {
        let mut offsets = Offsets::new();
        // Before a series is announced: the kernel may not have the path.
        self.read(&offsets.some(1), &entry)?;
        mark::give_up();
        if self.is_polled {
            self.count_empty_calls(operations, name)?;
        }
        for depth in DEPTHS {
            series(&format!("{name}; {depth}"))?;
            for number in 0..WARM_UP + operations.div_ceil(depth) {
                let (some, before) = (offsets.some(depth), sleeps());
                self.read(&some, &entry)?;
                keep(number, sleeps() != before);
            }
        }
        self.memory.check_read(0..DEPTH_MAX * BLOCK)
    }

    /// Reads a block at each of the offsets, and counts that.
    #[inline(always)]
    fn read(&mut self, offsets: &[u64], entry: impl Fn(*mut u8, u64) -> S) -> Result<(), Error> {
        mark::start();
        self.push(offsets, entry)?;
        if self.is_polled {
            self.enter(offsets.len(), 0, EnterFlags::empty())?;
            mark::stop();
            settle();
            mark::start();
            self.enter(0, offsets.len(), EnterFlags::GETEVENTS)?;
        } else {
            self.enter(offsets.len(), offsets.len(), EnterFlags::GETEVENTS)?;
        }
        let (mut count, mut wrong) = (0, None);
        for completion in self.ring.completion() {
            let result = completion.into().result();
            count += 1;
            if result != self.result {
                wrong = Some(result);
            }
        }
        mark::stop();
        match wrong {
            Some(result) if result < 0 => Err(failed("a read", std::io::Error::from_raw_os_error(-result))),
            Some(result) => Err(failed("a read", format!("its result is {result}"))),
            None if count != offsets.len() => {
                Err(failed("a ring", format!("it has completed {count} reads")))
            }
            None => Ok(()),
        }
    }

    #[expect(unsafe_code, reason = "entries name registered memory")]
    #[inline(always)]
    fn push(&mut self, offsets: &[u64], entry: impl Fn(*mut u8, u64) -> S) -> Result<(), Error> {
        let mut submissions = self.ring.submission();
        for (at, offset) in offsets.iter().enumerate() {
            let entry = entry(self.memory.at(at * BLOCK), *offset);
            // SAFETY: the memory is registered, as long as the ring, and no other read into this part of it is in flight.
            if unsafe { submissions.push(&entry) }.is_err() {
                return Err(failed("a ring", "it is full"));
            }
        }
        Ok(())
    }

    /// Calls io_uring_enter(2).
    #[expect(unsafe_code, reason = "a system call with an optional pointer, which is null")]
    #[inline(always)]
    fn enter(&self, submitted: usize, completed: usize, flags: EnterFlags) -> Result<(), Error> {
        // SAFETY: without a pointer the call accesses the ring alone.
        let entered = unsafe {
            self.ring.submitter().enter::<libc::sigset_t>(
                submitted as u32,
                completed as u32,
                flags.bits(),
                None,
            )
        };
        entered.map(|_| ()).map_err(|error| failed("io_uring_enter", error))
    }

    fn count_empty_calls(&mut self, operations: usize, name: &str) -> Result<(), Error> {
        series(&format!("{name}; an empty call"))?;
        for number in 0..WARM_UP + operations.min(100) {
            mark::start();
            self.enter(0, 0, EnterFlags::empty())?;
            mark::stop();
            keep(number, false);
        }
        Ok(())
    }
}
