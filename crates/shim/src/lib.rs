//! The preloaded library `libbywash_shim.so`: one function for each libc call that a file's data path has
//! to know of.
//!
//! A call is served at user level if [`bywash_file::table`] can, and otherwise made with the C library's own
//! function, after whatever the kernel has to know first. Nothing here decides anything about data: this
//! crate is the list of calls and of what each means for the table.
//!
//! - `data`: `read`, `write` and their kin
//! - `descriptors`: `open`, `close`, `dup`, `fcntl`, ...
//! - `contents`: `lseek`, `ftruncate`, `fsync`, `sendfile`, ...
//! - `processes`: `fork`, `vfork`, limits and filters
//! - `exec`: `execve`, `posix_spawn` and their kin: programs that the library cannot serve go without it
//! - `syscalls`: `syscall`
//! - `signals`: the fault handler, and the program's own handlers beside it
//! - `masks`: the signal mask as the program sees it
//! - `jumps`: `longjmp`, contexts, and what they leave in the middle
//! - `streams`: standard I/O on top of a descriptor
//! - `memory`: how much the process may use
//! - `start`: the beginning and end of a process
//! - `lookups`: `dlsym`
//! - `aliases`: the second names of the C library's functions
//! - `real`: the C library's own functions
//! - `freestanding`: what a library without the standard library has to bring along
//!
//! Every exported function has the name, arguments and meaning of the libc function it stands before; its
//! safety contract is that function's.
#![allow(clippy::missing_safety_doc)]
#![cfg_attr(test, allow(dead_code))]
// Cargo compiles what it tests for unwinding, which only the standard library can do; that copy is not the one that is
// preloaded.
#![cfg_attr(panic = "abort", no_std)]

mod passing_on;

mod aliases;
mod contents;
mod data;
mod descriptors;
mod exec;
#[cfg(panic = "abort")]
mod freestanding;
mod jumps;
mod lookups;
mod masks;
mod memory;
mod processes;
mod real;
mod signals;
mod start;
mod streams;
mod syscalls;
