//! The preloaded library `libbywash_shim.so`: exports one function for each libc call that affects a file's
//! data path.
//!
//! A call is served at user level if [`bywash_file::table`] can serve it. Otherwise the library tells the
//! table what the call changes (a position, a size, a descriptor) and calls the C library's own function.
//! This crate makes no decision about data: it is the list of calls and of the meaning of each for the table.
//!
//! - `data`: `read`, `write` and similar calls
//! - `descriptors`: `open`, `close`, `dup`, `fcntl`, ...
//! - `contents`: `lseek`, `ftruncate`, `fsync`, `sendfile`, ...
//! - `names`: `rename`, `link`, `unlink`, ...
//! - `attributes`: `chmod`, `chown`, `setxattr`, ...
//! - `mappings`: `mmap`
//! - `asynchronous`: `aio_write`, `io_setup`, ...
//! - `claims`: files that belong to the log of another run
//! - `durability`: commits to the log of `bywash run --log`
//! - `processes`: `fork`, `vfork`, limits and filters
//! - `exec`: `execve`, `posix_spawn` and similar calls; takes the library out for programs that it cannot
//!   serve
//! - `syscalls`: `syscall`
//! - `signals`: the fault handler, and the program's own handlers behind it
//! - `masks`: the signal mask that the program believes in
//! - `jumps`: `longjmp` and contexts, and the copies and masks that they leave
//! - `streams`: standard I/O on top of a descriptor
//! - `memory`: greatest amount of memory that the process may use
//! - `start`: start and end of a process
//! - `lookups`: `dlsym`
//! - `aliases`: further names of the C library's functions
//! - `real`: the C library's own functions
//! - `freestanding`: parts that the standard library would otherwise provide
//!
//! Every exported function has the name, arguments and meaning of the libc function that it replaces, and the
//! same safety contract.
#![allow(clippy::missing_safety_doc)]
#![no_std]

mod passing_on;

mod aliases;
mod asynchronous;
mod attributes;
mod claims;
mod contents;
mod data;
mod descriptors;
mod durability;
mod exec;
mod freestanding;
mod jumps;
mod lookups;
mod mappings;
mod masks;
mod memory;
mod names;
mod processes;
mod real;
mod signals;
mod start;
mod streams;
mod syscalls;
