//! 23 streams of 64 KiB reads, by pread(2) of as many threads, by io_uring and by libaio: everything that the processor does
//! from the first read until the last one has completed, for each read.

use super::kernel::{open, pread_once};
use super::{
    DISK_BYTES, FAST, Memory, STREAM_BLOCK, STREAMS, WARM_UP, absent_unless, failed, keep, mark, series,
};
use crate::error::Error;
use io_uring::{IoUring, opcode, types};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// Number of reads of each thread in a round.
pub const READS: usize = 16;
/// Names of the series.
const PREAD: &str = "streams, pread";
const IO_URING: &str = "streams, io_uring";
const LIBAIO: &str = "streams, libaio";

/// Reads 23 streams by each path.
pub fn run(operations: usize) -> Result<(), Error> {
    let rounds = rounds(operations);
    absent_unless(PREAD, pread(rounds.div_ceil(READS)))?;
    absent_unless(IO_URING, io_uring(rounds))?;
    absent_unless(LIBAIO, libaio(rounds))
}

/// Returns the number of rounds, in each of which every stream has a read.
pub fn rounds(operations: usize) -> usize {
    operations.div_ceil(4)
}

/// Returns the offset of read `number` of a stream. Each stream has its own part of the disk, from whose end it begins again.
pub fn offset(stream: usize, number: usize) -> u64 {
    let part = DISK_BYTES as usize / STREAMS / STREAM_BLOCK;
    ((stream * part + number % part) * STREAM_BLOCK) as u64
}

fn pread(rounds: usize) -> Result<(), Error> {
    let (file, memory) = (open(FAST)?, Memory::new(STREAMS * STREAM_BLOCK)?);
    let (barrier, has_failed) = (Barrier::new(STREAMS + 1), AtomicBool::new(false));
    let warm_up = 2;
    series(PREAD)?;
    thread::scope(|scope| {
        for stream in 0..STREAMS {
            let (file, memory, barrier, has_failed) = (&file, &memory, &barrier, &has_failed);
            scope.spawn(move || {
                for round in 0..warm_up + rounds {
                    barrier.wait();
                    for number in 0..READS {
                        let offset = offset(stream, round * READS + number);
                        let moved = pread_once(file, memory.at(stream * STREAM_BLOCK), STREAM_BLOCK, offset);
                        if moved != STREAM_BLOCK as isize {
                            has_failed.store(true, Ordering::Relaxed);
                        }
                    }
                    barrier.wait();
                }
            });
        }
        for round in 0..warm_up + rounds {
            mark::start();
            barrier.wait();
            barrier.wait();
            mark::stop();
            if round < warm_up {
                mark::give_up();
            } else {
                mark::keep();
            }
        }
    });
    if has_failed.load(Ordering::Relaxed) {
        return Err(failed("pread", "a read was short"));
    }
    memory.check_read(0..STREAMS * STREAM_BLOCK)
}

#[expect(unsafe_code, reason = "the kernel keeps what is registered, and entries name it")]
fn io_uring(rounds: usize) -> Result<(), Error> {
    let (file, memory) = (open(FAST)?, Memory::new(STREAMS * STREAM_BLOCK)?);
    let ring = IoUring::new(STREAMS.next_power_of_two() as u32);
    let mut ring = ring.map_err(|error| failed("io_uring", error))?;
    let pages = [libc::iovec { iov_base: memory.at(0).cast(), iov_len: memory.bytes }];
    ring.submitter().register_files(&[file.as_raw_fd()]).map_err(|error| failed("io_uring", error))?;
    // SAFETY: the memory is dropped after the ring, which has its pages pinned.
    unsafe { ring.submitter().register_buffers(&pages) }.map_err(|error| failed("io_uring", error))?;
    series(IO_URING)?;
    for round in 0..WARM_UP + rounds {
        mark::start();
        for stream in 0..STREAMS {
            let to = memory.at(stream * STREAM_BLOCK);
            let read = opcode::ReadFixed::new(types::Fixed(0), to, STREAM_BLOCK as u32, 0);
            let entry = read.offset(offset(stream, round)).build();
            // SAFETY: the memory is registered, as long as the ring, and no other read into this part of it is in flight.
            let pushed = unsafe { ring.submission().push(&entry) };
            pushed.map_err(|_| failed("a ring", "it is full"))?;
        }
        ring.submit_and_wait(STREAMS).map_err(|error| failed("io_uring", error))?;
        let whole = ring.completion().filter(|read| read.result() == STREAM_BLOCK as i32).count();
        mark::stop();
        if whole != STREAMS {
            return Err(failed("io_uring", "a read was short"));
        }
        keep(round, false);
    }
    drop(ring);
    memory.check_read(0..STREAMS * STREAM_BLOCK)
}

/// Read of libaio: `struct iocb` of linux/aio_abi.h.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct ControlBlock {
    data: u64,
    key: u32,
    flags: u32,
    opcode: u16,
    priority: i16,
    file: u32,
    buffer: u64,
    bytes: u64,
    offset: i64,
    reserved: u64,
    more_flags: u32,
    eventfd: u32,
}

/// Completion of libaio: `struct io_event` of linux/aio_abi.h.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct AioEvent {
    data: u64,
    block: u64,
    result: i64,
    result_2: i64,
}

const _: () = assert!(size_of::<ControlBlock>() == 64 && size_of::<AioEvent>() == 32);

/// A context of libaio, by system calls.
struct Aio(libc::c_ulong);

impl Aio {
    #[expect(unsafe_code, reason = "a system call that the C library does not have")]
    fn new() -> Result<Aio, Error> {
        let mut context: libc::c_ulong = 0;
        // SAFETY: the call writes the number of the context.
        let made = unsafe { libc::syscall(libc::SYS_io_setup, STREAMS, &raw mut context) };
        if made == 0 { Ok(Aio(context)) } else { Err(failed("io_setup", std::io::Error::last_os_error())) }
    }

    /// Submits the reads, and waits for all of them. Returns the number of those that were whole.
    #[expect(unsafe_code, reason = "system calls that the C library does not have")]
    #[inline(always)]
    fn read(&self, blocks: &mut [ControlBlock; STREAMS], events: &mut [AioEvent; STREAMS]) -> usize {
        let pointers: [*mut ControlBlock; STREAMS] = std::array::from_fn(|at| &raw mut blocks[at]);
        // SAFETY: the blocks describe memory and a file that the caller keeps until all reads have completed.
        let submitted = unsafe { libc::syscall(libc::SYS_io_submit, self.0, STREAMS, pointers.as_ptr()) };
        if submitted != STREAMS as libc::c_long {
            return 0;
        }
        let none = std::ptr::null::<libc::timespec>();
        // SAFETY: the call writes at most so many events.
        let count = unsafe {
            libc::syscall(libc::SYS_io_getevents, self.0, STREAMS, STREAMS, events.as_mut_ptr(), none)
        };
        let count = usize::try_from(count).unwrap_or(0);
        events[..count].iter().filter(|event| event.result == STREAM_BLOCK as i64).count()
    }
}

impl Drop for Aio {
    #[expect(unsafe_code, reason = "a system call that the C library does not have")]
    fn drop(&mut self) {
        // SAFETY: the call ends the context that `new` has made.
        let _ = unsafe { libc::syscall(libc::SYS_io_destroy, self.0) };
    }
}

fn libaio(rounds: usize) -> Result<(), Error> {
    let (file, memory): (File, Memory) = (open(FAST)?, Memory::new(STREAMS * STREAM_BLOCK)?);
    let aio = Aio::new()?;
    series(LIBAIO)?;
    for round in 0..WARM_UP + rounds {
        mark::start();
        // Opcode 0 is a read (IOCB_CMD_PREAD).
        let mut blocks: [ControlBlock; STREAMS] = std::array::from_fn(|stream| ControlBlock {
            file: file.as_raw_fd() as u32,
            buffer: memory.at(stream * STREAM_BLOCK) as u64,
            bytes: STREAM_BLOCK as u64,
            offset: offset(stream, round) as i64,
            ..ControlBlock::default()
        });
        let mut events = [AioEvent::default(); STREAMS];
        let whole = aio.read(&mut blocks, &mut events);
        mark::stop();
        if whole != STREAMS {
            return Err(failed("libaio", "a read was not whole"));
        }
        keep(round, false);
    }
    drop(aio);
    memory.check_read(0..STREAMS * STREAM_BLOCK)
}
