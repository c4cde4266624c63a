//! Decides from a program's file whether the preloaded library can be loaded into the program.
//!
//! The library is a 64-bit one for glibc's dynamic loader. Preloaded into anything else it does nothing at
//! best; at worst the program does not start. So a program's file is looked at before the program is
//! executed, and where [`Reason::forbids_preloading`] says so, the library is taken out of the program's
//! `LD_PRELOAD`.
//!
//! ```
//! use bywash_executable::{Reason, Target, examine};
//!
//! assert!(examine(&Target::Path(c"/proc/self/exe"), b"").is_none());
//! // AddressSanitizer wants to be the first library of all:
//! let found = examine(&Target::Path(c"/proc/self/exe"), b"/usr/lib/libasan.so.8").unwrap();
//! assert_eq!(found.reason, Reason::AddressSanitizer);
//! ```
//!
//! - [`target`]: which file the kernel would execute: by path, by search through `PATH`, by descriptor
//! - [`mod@file`]: kind of a file: ELF (elf(5)), script (execve(2)), anything else
//! - [`preload`]: the entries of `LD_PRELOAD` (ld.so(8))
//!
//! Every function may be called in a child of vfork and in a signal handler: none allocates, touches `errno`
//! or takes a lock, and system calls are made directly. One look costs an access(2), an openat(2), one to
//! five pread(2) of 1 KiB and a close(2); nothing but the stack is used, less than 8 KiB of it.

#![no_std]
#![forbid(unsafe_code)]

pub mod file;
pub mod preload;
pub mod target;

pub use target::{Target, examine};

/// Bytes of a program's path that a [`Finding`] keeps.
pub const PROGRAM_BYTES: usize = 448;

/// Why a program cannot be served by the preloaded library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Reason {
    /// Has no dynamic loader, which alone reads `LD_PRELOAD`.
    Static = 1,
    /// Is started by musl's dynamic loader, which does not have glibc's functions.
    Musl = 2,
    /// Is started by a dynamic loader that is not glibc's.
    OtherLoader = 3,
    /// Is a 32-bit program.
    ThirtyTwoBits = 4,
    /// Is made for another processor.
    OtherMachine = 5,
    /// Has AddressSanitizer in a library, which refuses to start behind any other library.
    AddressSanitizer = 6,
}

impl Reason {
    /// Every reason.
    pub const ALL: [Reason; 6] = [
        Reason::Static,
        Reason::Musl,
        Reason::OtherLoader,
        Reason::ThirtyTwoBits,
        Reason::OtherMachine,
        Reason::AddressSanitizer,
    ];

    /// Returns true if the library must be removed from the program's `LD_PRELOAD`. A program without a loader never
    /// reads that variable, and may pass it on to programs that can be served.
    pub const fn forbids_preloading(self) -> bool {
        !matches!(self, Reason::Static)
    }

    /// The reason in words, to be put in parentheses behind a program's path.
    pub const fn words(self) -> &'static str {
        match self {
            Reason::Static => "statically linked",
            Reason::Musl => "musl loader; the library needs glibc's",
            Reason::OtherLoader => "another dynamic loader than glibc's",
            Reason::ThirtyTwoBits => "a 32-bit program; the library is 64-bit",
            Reason::OtherMachine => "made for another processor",
            Reason::AddressSanitizer => "AddressSanitizer has to be the first library",
        }
    }

    /// The number by which a session keeps the reason.
    pub const fn number(self) -> u32 {
        self as u32
    }

    /// The reason of a [`Reason::number`].
    pub fn from_number(number: u32) -> Option<Reason> {
        Reason::ALL.into_iter().find(|reason| reason.number() == number)
    }
}

/// A program that the library cannot serve.
#[derive(Clone, Debug)]
pub struct Finding {
    /// Why not.
    pub reason: Reason,
    program: [u8; PROGRAM_BYTES],
    length: usize,
}

impl Finding {
    /// Path of the file that the reason is about (of a script: its interpreter), cut at the end when it is
    /// longer than [`PROGRAM_BYTES`]; empty when the kernel does not tell it.
    pub fn program(&self) -> &[u8] {
        &self.program[..self.length]
    }
}
