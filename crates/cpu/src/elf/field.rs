//! Fields of an ELF file, which are little-endian and read with a check of their bounds.

use super::ElfError;

/// Returns a part of a file.
///
/// # Errors
///
/// [`ElfError::CutShort`]: the file ends before the part.
pub(super) fn part<'a>(
    file: &'a [u8],
    offset: u64,
    length: u64,
    part: &'static str,
) -> Result<&'a [u8], ElfError> {
    let end = offset.saturating_add(length);
    let cut_short = ElfError::CutShort { part, offset, end, length: file.len() as u64 };
    let range = usize::try_from(offset).ok().zip(usize::try_from(end).ok());
    range.and_then(|(offset, end)| file.get(offset..end)).ok_or(cut_short)
}

/// Returns a number of `count` bytes (1 to 8) of a record; zeros stand for what is behind the record.
pub(super) fn number(record: &[u8], offset: usize, count: usize) -> u64 {
    let mut bytes = [0; 8];
    for (to, from) in bytes[..count].iter_mut().zip(record.iter().skip(offset)) {
        *to = *from;
    }
    u64::from_le_bytes(bytes)
}

/// Greatest length of a name, in bytes; longer ones are cut. So a hostile file cannot make many long names of
/// a few bytes.
const NAME_LIMIT: usize = 512;

/// Returns the name at an offset of a table, up to its zero byte or [`NAME_LIMIT`]; `None` if the table ends
/// before.
pub(super) fn name(table: &[u8], offset: u64) -> Option<String> {
    let rest = table.get(usize::try_from(offset).ok()?..)?;
    let longest = &rest[..rest.len().min(NAME_LIMIT)];
    let end = longest.iter().position(|&byte| byte == 0);
    let bytes = match end {
        Some(end) => &longest[..end],
        None if longest.len() == NAME_LIMIT => longest,
        None => return None,
    };
    Some(String::from_utf8_lossy(bytes).into_owned())
}
