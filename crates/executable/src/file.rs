//! Kind of an open file, as execve(2) and the dynamic loader see it.
//!
//! Every number in the file may be wrong: offsets are used with pread(2) alone, tables are read up to a
//! stated number of entries, and what cannot be read means that nothing is known.

use crate::Reason;
use crate::preload::{file_name, is_address_sanitizer};
use bywash_syscall::Descriptor;

/// Bytes read at a time; the ELF header, the program headers and the loader's path usually fit.
const WINDOW_BYTES: usize = 1024;
/// Bytes of a script's first line that the kernel looks at (BINPRM_BUF_SIZE).
const SCRIPT_BYTES: usize = 256;
/// Program headers and dynamic entries that are looked at; files have some dozens of each.
const ENTRIES_MAX: u64 = 256;
/// Bytes of a library's or a loader's path that are looked at.
const NAME_BYTES: usize = 256;

/// Kind of a file that is to be executed.
// Nothing allocates here, and there is one of these at a time.
#[allow(clippy::large_enum_variant)]
#[derive(Debug, PartialEq, Eq)]
pub enum Kind {
    /// A program that the library can be preloaded into, or a file of which nothing is known.
    Servable,
    /// A program that the library cannot serve.
    Unserved(Reason),
    /// A script; its interpreter counts.
    Script(Interpreter),
}

/// Path of a script's interpreter, with a zero byte behind it.
#[derive(Debug, PartialEq, Eq)]
pub struct Interpreter(pub(crate) [u8; SCRIPT_BYTES]);

/// Looks at an open file.
pub fn kind(file: &Descriptor) -> Kind {
    let mut window = Window {
        file,
        head: [0; WINDOW_BYTES],
        head_length: 0,
        bytes: [0; WINDOW_BYTES],
        start: 0,
        length: 0,
    };
    // A file that cannot be read (a folder, a disk that fails) tells nothing.
    window.head_length = file.read_at(&mut window.head, 0).unwrap_or(0);
    let head = window.up_to(0, SCRIPT_BYTES);
    if head.starts_with(b"#!") {
        return interpreter(&head[2..]).map_or(Kind::Servable, Kind::Script);
    }
    if !head.starts_with(b"\x7fELF") {
        return Kind::Servable;
    }
    elf(&mut window).map_or(Kind::Servable, Kind::Unserved)
}

fn interpreter(line: &[u8]) -> Option<Interpreter> {
    let line = line.split(|byte| matches!(byte, b'\n' | 0)).next()?;
    let path = line.split(|byte| matches!(byte, b' ' | b'\t')).find(|word| !word.is_empty())?;
    let mut kept = [0; SCRIPT_BYTES];
    kept[..path.len()].copy_from_slice(path);
    Some(Interpreter(kept))
}

/// Why an ELF file cannot be served, if the file tells.
fn elf(window: &mut Window<'_>) -> Option<Reason> {
    const CLASS_32: u8 = 1;
    const LITTLE_ENDIAN: u8 = 1;
    const EM_386: u16 = 3;
    const EM_X86_64: u16 = 62;
    let head: [u8; 64] = window.exactly(0)?;
    let machine = u16::from_le_bytes([head[18], head[19]]);
    if head[5] != LITTLE_ENDIAN || (machine != EM_X86_64 && machine != EM_386) {
        return Some(Reason::OtherMachine);
    }
    if head[4] == CLASS_32 {
        return Some(Reason::ThirtyTwoBits);
    }
    let headers = Table {
        offset: word(&head, 32),
        entry_bytes: u64::from(u16::from_le_bytes([head[54], head[55]])),
        entries: u64::from(u16::from_le_bytes([head[56], head[57]])),
    };
    let Some(loader) = headers.find(window, ProgramHeader::INTERPRETER) else {
        return Some(Reason::Static);
    };
    let name_bytes = usize::try_from(loader.bytes).unwrap_or(NAME_BYTES).min(NAME_BYTES);
    let path = window.up_to(loader.offset, name_bytes);
    let path = path.split(|byte| *byte == 0).next()?;
    if !path.is_empty()
        && let Some(reason) = loader_refusal(path)
    {
        return Some(reason);
    }
    let first = first_library(window, &headers)?;
    let name = window.up_to(first, NAME_BYTES).split(|byte| *byte == 0).next()?;
    is_address_sanitizer(name).then_some(Reason::AddressSanitizer)
}

/// Why a program that is started by this dynamic loader cannot be served.
pub(crate) fn loader_refusal(path: &[u8]) -> Option<Reason> {
    match file_name(path) {
        b"ld-linux-x86-64.so.2" => None,
        name if is_musl(name) => Some(Reason::Musl),
        _ => Some(Reason::OtherLoader),
    }
}

/// Returns true if a file of this name is musl's dynamic loader, which may also be executed itself.
pub(crate) fn is_musl(name: &[u8]) -> bool {
    name.starts_with(b"ld-musl-")
}

/// Offset of the name of the first library that the program needs. A sanitizer that has to come first is
/// linked so that it does.
fn first_library(window: &mut Window<'_>, headers: &Table) -> Option<u64> {
    const DT_NULL: u64 = 0;
    const DT_NEEDED: u64 = 1;
    const DT_STRTAB: u64 = 5;
    let dynamic = headers.find(window, ProgramHeader::DYNAMIC)?;
    let (mut needed, mut strings) = (None, None);
    for index in 0..(dynamic.bytes / 16).min(ENTRIES_MAX) {
        let entry: [u8; 16] = window.exactly(dynamic.offset.checked_add(index * 16)?)?;
        match word(&entry, 0) {
            DT_NULL => break,
            DT_NEEDED => needed = needed.or(Some(word(&entry, 8))),
            DT_STRTAB => strings = Some(word(&entry, 8)),
            _ => {}
        }
        if needed.is_some() && strings.is_some() {
            break;
        }
    }
    let address = strings?.checked_add(needed?)?;
    headers.offset_of(window, address)
}

/// One program header.
#[derive(Clone, Copy)]
struct ProgramHeader {
    kind: u32,
    offset: u64,
    address: u64,
    bytes: u64,
}

impl ProgramHeader {
    const LOADED: u32 = 1;
    const DYNAMIC: u32 = 2;
    const INTERPRETER: u32 = 3;
}

/// The program headers.
struct Table {
    offset: u64,
    entry_bytes: u64,
    entries: u64,
}

impl Table {
    fn at(&self, window: &mut Window<'_>, index: u64) -> Option<ProgramHeader> {
        let entry: [u8; 56] = window.exactly(self.offset.checked_add(index * self.entry_bytes)?)?;
        Some(ProgramHeader {
            kind: u32::from_le_bytes([entry[0], entry[1], entry[2], entry[3]]),
            offset: word(&entry, 8),
            address: word(&entry, 16),
            bytes: word(&entry, 32),
        })
    }

    fn find(&self, window: &mut Window<'_>, kind: u32) -> Option<ProgramHeader> {
        let mut all = (0..self.entries.min(ENTRIES_MAX)).map_while(|index| self.at(window, index));
        all.find(|header| header.kind == kind)
    }

    /// Offset in the file of what is loaded to `address`.
    fn offset_of(&self, window: &mut Window<'_>, address: u64) -> Option<u64> {
        let mut all = (0..self.entries.min(ENTRIES_MAX)).map_while(|index| self.at(window, index));
        all.find_map(|header| {
            let within = address.checked_sub(header.address).filter(|within| *within < header.bytes)?;
            (header.kind == ProgramHeader::LOADED).then_some(header.offset.checked_add(within)?)
        })
    }
}

/// The beginning of the file, which is come back to, and the part that was read last.
struct Window<'a> {
    file: &'a Descriptor,
    head: [u8; WINDOW_BYTES],
    head_length: usize,
    bytes: [u8; WINDOW_BYTES],
    start: u64,
    length: usize,
}

impl Window<'_> {
    /// The `most` bytes (at most [`WINDOW_BYTES`]) from `at` on, or those that there are.
    fn up_to(&mut self, at: u64, most: usize) -> &[u8] {
        let end = at.saturating_add(most as u64);
        if end <= self.head_length as u64 || at == 0 {
            return &self.head[(at as usize)..self.head_length.min(end as usize)];
        }
        if at < self.start || end > self.start + self.length as u64 {
            self.start = at;
            self.length = self.file.read_at(&mut self.bytes, at).unwrap_or(0);
        }
        let from = (at - self.start) as usize;
        &self.bytes[from..self.length.min(from + most)]
    }

    fn exactly<const N: usize>(&mut self, at: u64) -> Option<[u8; N]> {
        self.up_to(at, N).try_into().ok()
    }
}

/// The little-endian word at `at`, which lies in `bytes`.
fn word(bytes: &[u8], at: usize) -> u64 {
    bytes[at..at + 8].iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte))
}
