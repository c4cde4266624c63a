//! Simulated Linux for RISC-V: runs unmodified, statically linked programs above an interpreter, with the same
//! result on every host.
//!
//! ```
//! use bywash_execute::{End, Execution, FileSystem, Functional, Latencies, Program, Progress};
//!
//! # fn executable() -> Vec<u8> {
//! #     // write(1, "hello\n", 6); exit(0);
//! #     let code = [
//! #         0x0010_0513, 0x0000_0597, 0x0205_8593, 0x0060_0613, 0x0400_0893, 0x0000_0073_u32, 0x0000_0513,
//! #         0x05d0_0893, 0x0000_0073,
//! #     ];
//! #     let (start, length) = (0x1_0000, 120 + 36 + 6);
//! #     let file = [0x0001_0102_464c_457f, 0, 2 | 243 << 16 | 1 << 32, start + 120, 64, 0, 64 << 32 | 56 << 48, 1];
//! #     let segment = [1 | 5 << 32, 0, start, start, length, length, 0x1000_u64];
//! #     let mut bytes: Vec<u8> = file.iter().chain(&segment).flat_map(|word| word.to_le_bytes()).collect();
//! #     bytes.extend(code.iter().flat_map(|word| word.to_le_bytes()));
//! #     bytes.extend(b"hello\n");
//! #     bytes
//! # }
//! let mut files = FileSystem::new(64 << 20);
//! files.add_file("/data/numbers", b"3 1 2")?;
//! let program = Program::new(["hello", "numbers"]).files(files).folder("/data").seed(1);
//! // The bytes of a file that `riscv64-linux-gnu-gcc -static` has made.
//! let file = executable();
//! let mut execution = Execution::new(&file, program, Functional::new(2, Latencies::default()))?;
//! let end = loop {
//!     match execution.run()? {
//!         Progress::Ended(end) => break end,
//!         Progress::Input => execution.input(b"", true),
//!         Progress::Idle => panic!("all threads wait for each other"),
//!         _ => {}
//!     }
//! };
//! assert_eq!(end, End::Exited(0));
//! assert_eq!(execution.output(), [(1, b"hello\n".to_vec())]);
//! assert_eq!(execution.retired(), 9);
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```
//!
//! - [`Execution`]: a [`Program`] that runs on a machine; its input, output and clients
//! - [`machine`]: the trait [`Machine`](machine::Machine) with the processors and devices below the operating
//!   system, and the terms in which costs are told; [`Functional`]: a machine with fixed latencies
//! - [`System`]: the operating system as a state machine, of one process with threads
//! - [`FileSystem`]: files in memory, filled from the host's folders, and the export of what was written
//! - [`clients`]: clients that put a load on a program, check its responses and measure them
//! - [`CallRecord`]: a finished call, for traces
//! - inside: `address_space`, `thread`, `signal`, `descriptor`, `pipe`, `socket`, `poll`, `page_cache`
//!
//! A program ends, waits, or stops with a [`Failure`] that names the system call it would need. Hostile arguments
//! of calls are errors of the call, and everything is bounded.
//!
//! Invariant: a run depends on nothing but the program, its files, input and clients, the seed and the machine.
//! There is no clock of the host, no thread, no address and no unsafe code.

#![forbid(unsafe_code)]

mod address_space;
pub mod clients;
mod clock;
mod descriptor;
mod errno;
mod execution;
mod file;
mod functional;
pub mod machine;
mod page_cache;
mod pipe;
mod poll;
mod random;
mod signal;
mod socket;
mod system;
mod thread;

pub use clock::Time;
pub use errno::Errno;
pub use execution::{
    CACHE_PAGES, Client, Connection, ExecuteError, Execution, FILE_BYTES, MEMORY_BYTES, Program, Progress,
};
pub use file::{FileSystem, ImportError};
pub use functional::{Functional, Latencies, SINGLE_TURN_INSTRUCTIONS, TIMEBASE_HERTZ, TURN_INSTRUCTIONS};
pub use system::{CallRecord, End, Failure, System, call_name, is_served};
