//! Programs: reading of static ELF executables, loading them, and the stack with which they start.
//!
//! Sources: System V ABI, chapters 4 and 5 (ELF), the RISC-V ELF psABI, and elf(5) and getauxval(3) of Linux
//! for the auxiliary vector.
//!
//! A file may be hostile: every offset and length is checked, and an error names what was wrong.

mod field;
mod image;
mod stack;
mod symbols;

pub use image::{Image, Loaded, Segment};
pub use stack::{Arguments, STACK_LIMIT};
pub use symbols::{Symbol, Symbols};

use crate::memory::{Fault, MapError};

/// Reason for which a program cannot be loaded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ElfError {
    /// The file does not begin as an ELF file does.
    #[error("the file is no ELF file: it does not begin with 7f 45 4c 46; is it a script or an archive?")]
    NoElf,
    /// The file ends before something that it should contain.
    #[error("the file has {length} bytes, and {part} would be at {offset} to {end}; was it cut short?")]
    CutShort {
        /// Part of the file.
        part: &'static str,
        /// Offset of the part, in bytes.
        offset: u64,
        /// Offset of the part's end, in bytes.
        end: u64,
        /// Length of the file, in bytes.
        length: u64,
    },
    /// The file is for another machine or system, or of another kind.
    #[error(
        "{field} is {found}, and must be {wanted}; compile the program for riscv64 and link it statically"
    )]
    Unsuitable {
        /// Field of the ELF header.
        field: &'static str,
        /// Its value.
        found: u64,
        /// Value of programs that can be loaded.
        wanted: &'static str,
    },
    /// The program needs a dynamic linker.
    #[error("the program needs the dynamic linker {0}; link it statically (-static)")]
    Dynamic(String),
    /// A segment is not possible.
    #[error("segment {index} {reason}")]
    Segment {
        /// Number of the program header, from 0.
        index: usize,
        /// Defect, as the end of a message.
        reason: &'static str,
    },
    /// The program has no segment to load.
    #[error("the program has no segment to load (PT_LOAD)")]
    NoSegments,
    /// The entry is in no executable segment.
    #[error("the entry {0:#x} is in no executable segment")]
    Entry(u64),
    /// Arguments and environment are larger than the stack permits.
    #[error(
        "arguments and environment need {needed} bytes, and the stack has room for {limit}; pass fewer or enlarge the stack"
    )]
    Arguments {
        /// Length of what goes on the stack, in bytes.
        needed: u64,
        /// Greatest length, in bytes.
        limit: u64,
    },
    /// An argument or a variable contains a zero byte.
    #[error("an argument or a variable of the environment contains a zero byte: {0:?}")]
    ZeroByte(String),
    /// A segment or the stack cannot be mapped.
    #[error("cannot map the program: {0}")]
    Map(#[from] MapError),
    /// A segment or the stack cannot be filled.
    #[error("cannot fill the program's memory: {0}")]
    Memory(#[from] Fault),
}
