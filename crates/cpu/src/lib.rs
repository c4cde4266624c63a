//! Interpreter of RV64GC: runs programs for RISC-V Linux, instruction by instruction, on any host and with
//! the same result on each.
//!
//! ```
//! use bywash_cpu::memory::{Permissions, Space};
//! use bywash_cpu::{Blocks, Exit, Hart, Register, disassemble};
//!
//! // a0 = 6 · 7, then a call of the operating system, which is the caller.
//! let program = [0x0060_0513, 0x0070_0593, 0x02b5_0533, 0x0000_0073_u32];
//! let bytes: Vec<u8> = program.iter().flat_map(|bits| bits.to_le_bytes()).collect();
//! let mut space = Space::new(1 << 20);
//! space.map(0x1_0000, 0x1000, Permissions::READ | Permissions::EXECUTE)?;
//! space.initialise(0x1_0000, &bytes)?;
//!
//! let mut hart = Hart::new(0x1_0000);
//! let mut blocks = Blocks::new();
//! assert_eq!(hart.run(&mut space, &mut blocks, 1_000), Exit::EnvironmentCall);
//! assert_eq!((hart.x(Register::R10), hart.retired), (42, 4));
//! assert_eq!(disassemble(0x1_0008, program[2]), "mul a0, a0, a1");
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```
//!
//! - [`Hart`]: the registers of a hardware thread, and the interpreter that runs it for a number of
//!   instructions; [`Exit`]: why it stopped
//! - [`memory`]: the trait [`Memory`](memory::Memory), which a model of caches and time implements around
//!   another memory, and [`Space`](memory::Space), flat memory with pages and permissions
//! - [`Blocks`]: decoded instructions, which harts of one memory share
//! - [`decode`]: the table of instructions, from which decoder, disassembler and tests are made
//! - [`float`]: floating-point arithmetic in integers
//! - [`elf`]: loading of static executables, their first stack, and the functions of a program for profiles
//!
//! Instruction set: RV64IMAFDC with Zicsr and Zifencei of the unprivileged specification 20191213, in user
//! mode. Loads and stores may be misaligned, atomic operations may not. System calls are the caller's:
//! [`Exit::EnvironmentCall`] returns to it.
//!
//! Invariant: a run depends on nothing but the hart and the memory. There is no clock, no thread, no unsafe
//! code and no host arithmetic whose result could differ. Which of several harts runs, and for how long, is
//! the caller's decision.

#![forbid(unsafe_code)]

mod block;
pub mod decode;
pub mod elf;
pub mod float;
mod hart;
pub mod memory;
mod register;

pub use block::{BLOCK_INSTRUCTIONS, Blocks};
pub use decode::disassemble;
pub use hart::{Exit, Hart};
pub use register::Register;
