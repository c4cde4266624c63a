//! Stack with which a program starts: arguments, environment and auxiliary vector.
//!
//! ```text
//!     high addresses
//!     name of the program's file, environment, arguments (texts with zero bytes), 16 random bytes
//!     auxiliary vector: pairs of type and value, AT_NULL last
//!     0
//!     addresses of the environment's texts
//!     0
//!     addresses of the arguments' texts
//!     number of arguments          <- sp, a multiple of 16
//!     low addresses
//! ```

use super::{ElfError, Loaded};
use crate::hart::Hart;
use crate::memory::{PAGE_BYTES, Permissions, Space};
use crate::register::Register;

/// Greatest length of arguments, environment and auxiliary vector together, in bytes, whatever the stack's
/// length.
pub const STACK_LIMIT: u64 = 1 << 20;

/// Arguments of a program, and what the auxiliary vector tells it beside its own headers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arguments {
    /// Arguments; the first is the program's name by convention.
    pub arguments: Vec<Vec<u8>>,
    /// Variables of the environment, each `name=value`.
    pub environment: Vec<Vec<u8>>,
    /// Name of the program's file (AT_EXECFN).
    pub file_name: Vec<u8>,
    /// Random bytes (AT_RANDOM), from which the C library makes its stack canary.
    pub random: [u8; 16],
    /// Number of the user (AT_UID, AT_EUID).
    pub user: u32,
    /// Number of the group (AT_GID, AT_EGID).
    pub group: u32,
}

impl Arguments {
    /// Makes arguments of texts, with an empty environment and random bytes that are zero.
    pub fn new<T: AsRef<str>>(arguments: &[T]) -> Arguments {
        let arguments: Vec<Vec<u8>> = arguments.iter().map(|argument| argument.as_ref().into()).collect();
        Arguments {
            file_name: arguments.first().cloned().unwrap_or_default(),
            arguments,
            environment: Vec::new(),
            random: [0; 16],
            user: 0,
            group: 0,
        }
    }

    /// Maps a stack that ends at `top`, writes the arguments to it, and returns a hart at the program's
    /// entry.
    ///
    /// `top` and `length` are multiples of [`PAGE_BYTES`].
    ///
    /// # Errors
    ///
    /// [`ElfError::Arguments`] if they need more than a quarter of the stack or [`STACK_LIMIT`];
    /// [`ElfError::ZeroByte`]; and
    /// [`ElfError::Map`] and [`ElfError::Memory`] if the stack cannot be mapped and written.
    pub fn start(&self, loaded: &Loaded, space: &mut Space, top: u64, length: u64) -> Result<Hart, ElfError> {
        self.check(length)?;
        space.map(top.wrapping_sub(length), length, Permissions::READ | Permissions::WRITE)?;
        let mut writer = Writer { space, address: top };
        // The last eight bytes of the stack are zero, as under Linux.
        writer.address -= 8;
        let file_name = writer.push_text(&self.file_name)?;
        let environment = writer.push_texts(&self.environment)?;
        let arguments = writer.push_texts(&self.arguments)?;
        let random = writer.push(&self.random)?;
        let mut words = vec![arguments.len() as u64];
        words.extend(arguments);
        words.push(0);
        words.extend(environment);
        words.push(0);
        words.extend(
            self.auxiliary_vector(loaded, file_name, random)
                .into_iter()
                .flat_map(|(kind, value)| [kind, value]),
        );
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        writer.address = (writer.address - bytes.len() as u64) & !15;
        let sp = writer.address;
        writer.space.write(sp, &bytes)?;
        let mut hart = Hart::new(loaded.entry);
        hart.set_x(Register::R2, sp);
        Ok(hart)
    }

    /// Checks the arguments' length and that their texts end where they seem to.
    fn check(&self, stack_length: u64) -> Result<(), ElfError> {
        let texts = || self.arguments.iter().chain(&self.environment).chain([&self.file_name]);
        if let Some(text) = texts().find(|text| text.contains(&0)) {
            return Err(ElfError::ZeroByte(String::from_utf8_lossy(text).into_owned()));
        }
        let limit = (stack_length / 4).min(STACK_LIMIT);
        // Each text has a zero byte and an address; half a page is enough for the auxiliary vector and what
        // is around it.
        let needed = texts().map(|text| text.len() as u64 + 9).sum::<u64>() + PAGE_BYTES / 2;
        if needed > limit { Err(ElfError::Arguments { needed, limit }) } else { Ok(()) }
    }

    /// Returns the auxiliary vector as pairs of type and value.
    fn auxiliary_vector(&self, loaded: &Loaded, file_name: u64, random: u64) -> Vec<(u64, u64)> {
        let (user, group) = (u64::from(self.user), u64::from(self.group));
        vec![
            (auxiliary::HWCAP, HARDWARE),
            (auxiliary::PAGESZ, PAGE_BYTES),
            (auxiliary::CLKTCK, 100),
            (auxiliary::PHDR, loaded.headers),
            (auxiliary::PHENT, loaded.header_bytes),
            (auxiliary::PHNUM, loaded.header_count),
            (auxiliary::BASE, 0),
            (auxiliary::FLAGS, 0),
            (auxiliary::ENTRY, loaded.entry),
            (auxiliary::UID, user),
            (auxiliary::EUID, user),
            (auxiliary::GID, group),
            (auxiliary::EGID, group),
            (auxiliary::SECURE, 0),
            (auxiliary::RANDOM, random),
            (auxiliary::EXECFN, file_name),
            (auxiliary::NULL, 0),
        ]
    }
}

/// Letters of the extensions A, C, D, F, I and M as bits (AT_HWCAP).
const HARDWARE: u64 = 1 | 1 << 2 | 1 << 3 | 1 << 5 | 1 << 8 | 1 << 12;

/// Types of the auxiliary vector's entries (`linux/auxvec.h`).
#[allow(missing_docs)]
mod auxiliary {
    pub const NULL: u64 = 0;
    pub const PHDR: u64 = 3;
    pub const PHENT: u64 = 4;
    pub const PHNUM: u64 = 5;
    pub const PAGESZ: u64 = 6;
    pub const BASE: u64 = 7;
    pub const FLAGS: u64 = 8;
    pub const ENTRY: u64 = 9;
    pub const UID: u64 = 11;
    pub const EUID: u64 = 12;
    pub const GID: u64 = 13;
    pub const EGID: u64 = 14;
    pub const HWCAP: u64 = 16;
    pub const CLKTCK: u64 = 17;
    pub const SECURE: u64 = 23;
    pub const RANDOM: u64 = 25;
    pub const EXECFN: u64 = 31;
}

/// Writer that goes from high to low addresses.
struct Writer<'a> {
    /// Memory.
    space: &'a mut Space,
    /// Address of what was written last.
    address: u64,
}

impl Writer<'_> {
    /// Writes bytes below the last ones and returns their address.
    fn push(&mut self, bytes: &[u8]) -> Result<u64, ElfError> {
        self.address -= bytes.len() as u64;
        self.space.write(self.address, bytes)?;
        Ok(self.address)
    }

    /// Writes a text with its zero byte.
    fn push_text(&mut self, text: &[u8]) -> Result<u64, ElfError> {
        self.push(&[0])?;
        self.push(text)
    }

    /// Writes texts and returns their addresses.
    fn push_texts(&mut self, texts: &[Vec<u8>]) -> Result<Vec<u64>, ElfError> {
        // The last is written first, so that they are in order.
        let mut addresses =
            texts.iter().rev().map(|text| self.push_text(text)).collect::<Result<Vec<u64>, _>>()?;
        addresses.reverse();
        Ok(addresses)
    }
}
