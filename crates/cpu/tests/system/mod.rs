//! System calls that a static program of the C library needs, and cross compiler and QEMU where they are
//! installed.
//!
//! This is no operating system: no files, no threads, no signals. It is as much as the tests' programs call.

#![allow(dead_code)] // Each test uses a part.

use std::path::{Path, PathBuf};

use bywash_cpu::elf::{Arguments, Image, Loaded};
use bywash_cpu::memory::{Memory, PAGE_BYTES, Permissions, Space};
use bywash_cpu::{Blocks, Exit, Hart, Register};
pub use bywash_support::riscv::*;

/// End of a program's run.
#[derive(Debug, PartialEq, Eq)]
pub struct Outcome {
    pub output: Vec<u8>,
    pub errors: Vec<u8>,
    pub status: u64,
    pub retired: u64,
}

/// Process in an address space.
pub struct Process {
    pub hart: Hart,
    pub output: Vec<u8>,
    pub errors: Vec<u8>,
    heap_start: u64,
    heap_end: u64,
}

const STACK_TOP: u64 = 0x3f_ffff_f000;
const STACK_BYTES: u64 = 8 << 20;
const EBADF: u64 = 9;
const ENOMEM: u64 = 12;
const EFAULT: u64 = 14;
const EINVAL: u64 = 22;
const ENOTTY: u64 = 25;
const ENOENT: u64 = 2;
const ENOSYS: u64 = 38;

impl Process {
    /// Loads a program.
    pub fn new(file: &[u8], arguments: &[&str], space: &mut Space) -> (Process, Loaded) {
        let image = Image::parse(file).unwrap();
        let loaded = image.load(space, 0x10_0000_0000).unwrap();
        let mut start = Arguments::new(arguments);
        start.random = *b"0123456789abcdef";
        let hart = start.start(&loaded, space, STACK_TOP, STACK_BYTES).unwrap();
        (
            Process {
                hart,
                output: Vec::new(),
                errors: Vec::new(),
                heap_start: loaded.end,
                heap_end: loaded.end,
            },
            loaded,
        )
    }

    /// Serves a system call; returns the exit status if the process has ended.
    pub fn call(&mut self, space: &mut Space) -> Option<u64> {
        let argument = |number: u32| self.hart.x(Register::new(10 + number));
        let (a0, a1, a2, a3) = (argument(0), argument(1), argument(2), argument(3));
        let result = match self.hart.x(Register::R17) {
            29 => error(ENOTTY),      // ioctl
            56 | 78 => error(ENOENT), // openat, readlinkat
            57 | 62 => error(EBADF),  // close, lseek
            64 => self.write(space, a0, a1, a2),
            66 => self.write_vector(space, a0, a1, a2),
            79 | 80 => self.status_of(space, if self.hart.x(Register::R17) == 79 { a2 } else { a1 }),
            93 | 94 => return Some(a0),
            96 | 172 | 178 => 1, // set_tid_address, getpid, gettid
            98 => 0,             // futex
            99 => 0,             // set_robust_list
            113 => {
                // clock_gettime: time is the number of instructions.
                let time = [self.hart.retired / 1_000_000_000, self.hart.retired % 1_000_000_000];
                let bytes: Vec<u8> = time.iter().flat_map(|word| word.to_le_bytes()).collect();
                space.write(a1, &bytes).map_or(error(EFAULT), |()| 0)
            }
            134 | 135 => 0, // rt_sigaction, rt_sigprocmask
            179 => {
                // sysinfo: 1 GiB of memory, in units of one byte.
                let mut information = [0; 112];
                information[32..40].copy_from_slice(&(1_u64 << 30).to_le_bytes());
                information[104] = 1;
                space.write(a0, &information).map_or(error(EFAULT), |()| 0)
            }
            214 => self.set_break(space, a0),
            215 => space.unmap(a0, round_up(a1)).map_or(error(EINVAL), |()| 0),
            222 => map(space, a0, a1, a2, a3),
            226 => space.protect(a0, round_up(a1), permissions(a2)).map_or(error(ENOMEM), |()| 0),
            258 | 293 => error(ENOSYS), // riscv_hwprobe, rseq
            261 => {
                // prlimit64: no limit, but for the stack.
                if a3 != 0 {
                    let limits: Vec<u8> =
                        [STACK_BYTES, u64::MAX].iter().flat_map(|word| word.to_le_bytes()).collect();
                    space.write(a3, &limits).unwrap();
                }
                0
            }
            278 => {
                space.write(a0, &vec![0x5a; a1 as usize]).unwrap(); // getrandom
                a1
            }
            number => panic!("the test's system does not have the call {number}"),
        };
        self.hart.set_x(Register::R10, result);
        None
    }

    fn write(&mut self, space: &mut Space, descriptor: u64, address: u64, length: u64) -> u64 {
        let mut bytes = vec![0; length as usize];
        space.read(address, &mut bytes).unwrap();
        if descriptor == 2 { &mut self.errors } else { &mut self.output }.extend(bytes);
        length
    }

    fn write_vector(&mut self, space: &mut Space, descriptor: u64, vector: u64, count: u64) -> u64 {
        let mut total = 0;
        for number in 0..count {
            let mut entry = [0; 16];
            space.read(vector + 16 * number, &mut entry).unwrap();
            let word = |at| u64::from_le_bytes(entry[at..at + 8].try_into().unwrap());
            total += self.write(space, descriptor, word(0), word(8));
        }
        total
    }

    /// Writes the state of a pipe or terminal: a character device.
    fn status_of(&mut self, space: &mut Space, address: u64) -> u64 {
        let mut status = [0; 128];
        status[16..20].copy_from_slice(&0o020_620_u32.to_le_bytes());
        space.write(address, &status).unwrap();
        0
    }

    fn set_break(&mut self, space: &mut Space, wanted: u64) -> u64 {
        if wanted >= self.heap_start {
            let (mapped, needed) = (round_up(self.heap_end), round_up(wanted));
            if needed > mapped {
                space.map(mapped, needed - mapped, Permissions::READ | Permissions::WRITE).unwrap();
            } else if needed < mapped {
                space.unmap(needed, mapped - needed).unwrap();
            }
            self.heap_end = wanted;
        }
        self.heap_end
    }
}

/// Maps anonymous memory.
fn map(space: &mut Space, address: u64, length: u64, protection: u64, flags: u64) -> u64 {
    const FIXED: u64 = 0x10;
    const ANONYMOUS: u64 = 0x20;
    assert_ne!(flags & ANONYMOUS, 0, "the test's system maps no files");
    let length = round_up(length);
    let start =
        if flags & FIXED != 0 { Some(address) } else { space.highest_free(length, 0x1_0000, 0x3f_0000_0000) };
    match start {
        Some(start) => space.map(start, length, permissions(protection)).map_or(error(ENOMEM), |()| start),
        None => error(ENOMEM),
    }
}

fn permissions(protection: u64) -> Permissions {
    let bit = |bit, permission| if protection & bit != 0 { permission } else { Permissions::NONE };
    bit(1, Permissions::READ) | bit(2, Permissions::WRITE) | bit(4, Permissions::EXECUTE)
}

fn round_up(length: u64) -> u64 {
    length.div_ceil(PAGE_BYTES) * PAGE_BYTES
}

fn error(number: u64) -> u64 {
    number.wrapping_neg()
}

/// Memory that wraps a space, as a process sees it.
pub trait HasSpace: Memory {
    fn space(&mut self) -> &mut Space;
}

impl HasSpace for Space {
    fn space(&mut self) -> &mut Space {
        self
    }
}

/// Runs a program to its end.
pub fn run<M: HasSpace>(
    file: &[u8],
    arguments: &[&str],
    memory: &mut M,
    blocks: &mut Blocks,
    slice: u64,
) -> Outcome {
    let (mut process, loaded) = Process::new(file, arguments, memory.space());
    loop {
        match process.hart.run(memory, blocks, slice) {
            Exit::EnvironmentCall => {
                if let Some(status) = process.call(memory.space()) {
                    let Process { hart, output, errors, .. } = process;
                    return Outcome { output, errors, status, retired: hart.retired };
                }
            }
            Exit::Budget | Exit::Stop => {}
            other => {
                let symbols = Image::parse(file).unwrap().symbols(&loaded).unwrap();
                let at = symbols.symbol_of(process.hart.pc).map(|symbol| symbol.name.clone());
                panic!(
                    "{other:x?} in {at:?}, after {} and {:?}",
                    process.hart.retired,
                    String::from_utf8_lossy(&process.output)
                );
            }
        }
    }
}

/// Folder with the sources of the tests' programs.
pub fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs")
}

/// Compiles a program and returns its file.
pub fn compile(compiler: &Path, source: &Path, target: &Path, options: &[&str]) -> Vec<u8> {
    let options: Vec<String> = options.iter().map(|option| option.to_string()).collect();
    build(compiler, &[source.into()], &options, target);
    std::fs::read(target).unwrap()
}
