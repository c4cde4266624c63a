//! The preloaded library `libbywash_recorder.so`: notes start and end of each call that `bywash run` would
//! intercept, and of those in which a thread waits.
//!
//! Each exported function has the name, arguments and meaning of the libc function that it replaces, and the
//! same safety contract. It reads the time-stamp counter, calls the C library's own function, reads the
//! counter again, and adds the call to the recording ([`bywash_session::recording`]): no system call, no lock,
//! no allocation. System calls are made only for the first call on a descriptor (to learn its file), for each
//! chunk of the recording, and to look at the thread's processor time before and after a long gap or call.
//!
//! Nothing else changes: data, results and `errno` are the C library's. Without the variable
//! `BYWASH_RECORDING`, or without the memory that it names, calls are passed on and nothing is noted.
//!
//! Not seen: calls that the C library makes itself (`fread`, `getline`), calls by instruction, and programs
//! without the C library. `bywash run` does not see them either.
//!
//! - `calls`: the exported functions
//! - `note`: a call's times, and the recording's memory
//! - `descriptors`: the file behind each descriptor
//! - `thread`: the thread's word of thread-local storage
//! - `real`: the C library's own functions
//! - `start`: start and end of a process
//! - `freestanding`: parts that the standard library would otherwise provide
#![allow(clippy::missing_safety_doc)]
#![no_std]

mod calls;
mod descriptors;
mod freestanding;
mod note;
mod real;
mod start;
mod thread;
