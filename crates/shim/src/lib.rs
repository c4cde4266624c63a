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
//! - `processes`: `fork`, `vfork`, `exec`, `posix_spawn`, `syscall`, limits and filters
//! - `signals`: the fault handler, and the program's own handlers beside it
//! - `streams`: standard I/O on top of a descriptor
//! - `start`: the beginning and end of a process
//! - `real`: the C library's own functions
//!
//! Every exported function has the name, arguments and meaning of the libc function it stands before; its
//! safety contract is that function's.
#![allow(clippy::missing_safety_doc)]
#![cfg_attr(test, allow(dead_code))]

mod passing_on;

mod contents;
mod data;
mod descriptors;
mod processes;
mod real;
mod signals;
mod start;
mod streams;
