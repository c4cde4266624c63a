//! Executable: its headers and segments, and their loading.

use super::field::{name, number, part};
use super::{ElfError, Symbols};
use crate::memory::{ADDRESS_LIMIT, PAGE_BYTES, Permissions, Space};

/// Static executable of RISC-V Linux: at fixed addresses (ET_EXEC), or at any (static PIE, ET_DYN).
#[derive(Clone, Debug)]
pub struct Image<'a> {
    /// Bytes of the file.
    file: &'a [u8],
    /// Address of the first instruction.
    entry: u64,
    /// True if the program can be loaded at any address.
    is_position_independent: bool,
    /// Segments to load, by address.
    segments: Vec<Segment>,
    /// Offset of the program headers in the file, in bytes.
    header_offset: u64,
    /// Number of program headers.
    header_count: u64,
}

/// Part of a program that is loaded to consecutive addresses (PT_LOAD).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Offset of the contents in the file, in bytes.
    pub offset: u64,
    /// Length of the contents in the file, in bytes.
    pub file_length: u64,
    /// Address of the first byte.
    pub address: u64,
    /// Length in memory, in bytes; zeros follow the contents.
    pub length: u64,
    /// Permitted accesses.
    pub permissions: Permissions,
}

/// Program in memory, as its start needs to know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loaded {
    /// Difference between addresses in memory and in the file, in bytes.
    pub base: u64,
    /// Address of the first instruction.
    pub entry: u64,
    /// Address of the program headers (AT_PHDR); 0 if no segment contains them.
    pub headers: u64,
    /// Number of program headers (AT_PHNUM).
    pub header_count: u64,
    /// Length of a program header (AT_PHENT), in bytes.
    pub header_bytes: u64,
    /// End of the segments, at the beginning of a page; the heap grows from here (brk(2)).
    pub end: u64,
}

/// Length of the ELF header, in bytes.
const FILE_HEADER_BYTES: u64 = 64;
/// Length of a program header, in bytes.
const PROGRAM_HEADER_BYTES: u64 = 56;
/// Greatest number of program headers; programs have around ten.
const PROGRAM_HEADER_LIMIT: u64 = 128;
/// Number of the machine RISC-V (EM_RISCV).
const MACHINE: u64 = 243;
/// Type of an executable at fixed addresses (ET_EXEC).
const FIXED: u64 = 2;
/// Type of an executable at any address (ET_DYN).
const DYNAMIC: u64 = 3;
/// Type of the header of a segment that is loaded (PT_LOAD).
const LOAD: u64 = 1;
/// Type of the header that names the dynamic linker (PT_INTERP).
const INTERPRETER: u64 = 3;

impl<'a> Image<'a> {
    /// Reads the headers of an executable.
    ///
    /// # Errors
    ///
    /// All of [`ElfError`] up to [`ElfError::Entry`]: the file is no static executable for 64-bit RISC-V, or
    /// its headers contradict each other or the file's length.
    pub fn parse(file: &'a [u8]) -> Result<Image<'a>, ElfError> {
        if !file.starts_with(b"\x7fELF") {
            return Err(ElfError::NoElf);
        }
        let header = part(file, 0, FILE_HEADER_BYTES, "the ELF header")?;
        let is_position_independent = check_kind(header)?;
        let (header_offset, header_count) = (number(header, 32, 8), number(header, 56, 2));
        let headers =
            part(file, header_offset, header_count * PROGRAM_HEADER_BYTES, "the table of program headers")?;
        let mut segments = Vec::new();
        for (index, header) in headers.chunks_exact(PROGRAM_HEADER_BYTES as usize).enumerate() {
            match number(header, 0, 4) {
                LOAD => segments.extend(segment(file, header, index)?),
                INTERPRETER => {
                    let linker =
                        part(file, number(header, 8, 8), number(header, 32, 8), "the dynamic linker's name")?;
                    return Err(ElfError::Dynamic(
                        name(linker, 0).unwrap_or("without a readable name".into()),
                    ));
                }
                _ => {}
            }
        }
        check_order(&segments)?;
        let entry = number(header, 24, 8);
        let is_executable = |segment: &Segment| {
            segment.permissions.permit(crate::memory::AccessKind::Fetch)
                && (segment.address..segment.address + segment.length).contains(&entry)
        };
        if !segments.iter().any(is_executable) {
            return Err(ElfError::Entry(entry));
        }
        Ok(Image { file, entry, is_position_independent, segments, header_offset, header_count })
    }

    /// Returns the segments to load, by address.
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// Returns whether the program can be loaded at any address (static PIE).
    pub fn is_position_independent(&self) -> bool {
        self.is_position_independent
    }

    /// Maps and fills the program's segments. A program for any address is loaded at `base`, a multiple of
    /// [`PAGE_BYTES`]; one for fixed addresses ignores it.
    ///
    /// # Errors
    ///
    /// [`ElfError::Map`] and [`ElfError::Memory`]: the segments do not fit below [`ADDRESS_LIMIT`] or the
    /// memory's limit.
    pub fn load(&self, space: &mut Space, base: u64) -> Result<Loaded, ElfError> {
        let base = if self.is_position_independent { base } else { 0 };
        let mut end = 0;
        for segment in &self.segments {
            let first = round_down(segment.address).saturating_add(base);
            end = round_up(segment.address + segment.length).saturating_add(base);
            // Segments may share a page; it has the permissions of both.
            map_segment(space, first, end, segment.permissions)?;
        }
        for segment in &self.segments {
            let contents = part(self.file, segment.offset, segment.file_length, "the contents of a segment")?;
            space.initialise(segment.address + base, contents)?;
        }
        Ok(Loaded {
            base,
            entry: self.entry + base,
            headers: self.address_of_headers().map_or(0, |address| address + base),
            header_count: self.header_count,
            header_bytes: PROGRAM_HEADER_BYTES,
            end,
        })
    }

    /// Returns the names and addresses of the program's functions. A file without a table of symbols has
    /// none.
    ///
    /// # Errors
    ///
    /// [`ElfError::CutShort`]: the tables are not in the file.
    pub fn symbols(&self, loaded: &Loaded) -> Result<Symbols, ElfError> {
        Symbols::read(self.file, loaded.base)
    }

    /// Returns the address at which a segment has the program headers.
    fn address_of_headers(&self) -> Option<u64> {
        let end = self.header_offset + self.header_count * PROGRAM_HEADER_BYTES;
        let segment = self.segments.iter().find(|segment| {
            segment.offset <= self.header_offset && end <= segment.offset + segment.file_length
        })?;
        Some(segment.address + (self.header_offset - segment.offset))
    }
}

/// Checks that a file is an executable of this machine, and returns whether it can be loaded at any address.
fn check_kind(header: &[u8]) -> Result<bool, ElfError> {
    let kind = number(header, 16, 2);
    for (field, found, wanted, is_right) in [
        ("the class (EI_CLASS)", number(header, 4, 1), "2 (64 bits)", number(header, 4, 1) == 2),
        ("the byte order (EI_DATA)", number(header, 5, 1), "1 (little-endian)", number(header, 5, 1) == 1),
        ("the machine (e_machine)", number(header, 18, 2), "243 (RISC-V)", number(header, 18, 2) == MACHINE),
        ("the type (e_type)", kind, "2 or 3 (executable)", kind == FIXED || kind == DYNAMIC),
        (
            "the length of a program header (e_phentsize)",
            number(header, 54, 2),
            "56",
            number(header, 54, 2) == PROGRAM_HEADER_BYTES,
        ),
        (
            "the number of program headers (e_phnum)",
            number(header, 56, 2),
            "1 to 128",
            (1..=PROGRAM_HEADER_LIMIT).contains(&number(header, 56, 2)),
        ),
    ] {
        if !is_right {
            return Err(ElfError::Unsuitable { field, found, wanted });
        }
    }
    Ok(kind == DYNAMIC)
}

/// Reads and checks the header of a segment; an empty one is none.
fn segment(file: &[u8], header: &[u8], index: usize) -> Result<Option<Segment>, ElfError> {
    let flags = number(header, 4, 4);
    let permission = |bit, permission| if flags & bit != 0 { permission } else { Permissions::NONE };
    let segment = Segment {
        offset: number(header, 8, 8),
        file_length: number(header, 32, 8),
        address: number(header, 16, 8),
        length: number(header, 40, 8),
        permissions: permission(4, Permissions::READ)
            | permission(2, Permissions::WRITE)
            | permission(1, Permissions::EXECUTE),
    };
    let refuse = |reason| Err(ElfError::Segment { index, reason });
    if segment.file_length > segment.length {
        return refuse("has more bytes in the file than in memory (p_filesz > p_memsz)");
    }
    if segment.address.checked_add(segment.length).is_none_or(|end| end > ADDRESS_LIMIT - PAGE_BYTES) {
        return refuse("ends above the addresses of user programs (p_vaddr + p_memsz)");
    }
    if segment.address % PAGE_BYTES != segment.offset % PAGE_BYTES {
        return refuse("has other offsets within a page in the file and in memory (p_offset, p_vaddr)");
    }
    part(file, segment.offset, segment.file_length, "the contents of a segment")?;
    Ok((segment.length != 0).then_some(segment))
}

/// Checks that there are segments, and that they are in order and do not overlap.
fn check_order(segments: &[Segment]) -> Result<(), ElfError> {
    if segments.is_empty() {
        return Err(ElfError::NoSegments);
    }
    for (index, pair) in segments.windows(2).enumerate() {
        if pair[0].address + pair[0].length > pair[1].address {
            let reason = "of those to load begins before the end of the one before it (p_vaddr)";
            return Err(ElfError::Segment { index: index + 1, reason });
        }
    }
    Ok(())
}

/// Maps a segment's pages. Its first page may be the last of the segment before it, and then gets both's
/// permissions.
fn map_segment(space: &mut Space, first: u64, end: u64, permissions: Permissions) -> Result<(), ElfError> {
    let mut first = first;
    if let Some(before) = space.permissions(first) {
        space.protect(first, PAGE_BYTES, before | permissions)?;
        first += PAGE_BYTES;
    }
    if first < end {
        space.map(first, end - first, permissions)?;
    }
    Ok(())
}

/// Returns the beginning of an address's page.
fn round_down(address: u64) -> u64 {
    address / PAGE_BYTES * PAGE_BYTES
}

/// Returns the beginning of the first page at or behind an address below [`ADDRESS_LIMIT`].
fn round_up(address: u64) -> u64 {
    address.div_ceil(PAGE_BYTES) * PAGE_BYTES
}
