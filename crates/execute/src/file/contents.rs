//! Contents of a file, in pages; a page that was never written is a hole of zeros.

use std::collections::BTreeMap;

use crate::errno::Errno;

/// Length of a page of a file, in bytes.
pub const FILE_PAGE_BYTES: u64 = 4096;
/// Greatest length of a file, in bytes (that of ext4).
const LENGTH_LIMIT: u64 = 16 << 40;

/// Bytes of a file.
#[derive(Clone, Debug, Default)]
pub struct Contents {
    /// Length in bytes.
    length: u64,
    /// Pages by their number.
    pages: BTreeMap<u64, Box<[u8]>>,
}

impl Contents {
    /// Returns the length in bytes.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Returns the memory that the pages occupy, in bytes.
    pub fn bytes_in_use(&self) -> u64 {
        self.pages.len() as u64 * FILE_PAGE_BYTES
    }

    /// Returns the first offset at or behind another one at which there is data, or a hole.
    pub fn next(&self, offset: u64, data: bool) -> Option<u64> {
        if offset >= self.length {
            return None;
        }
        let mut page = offset / FILE_PAGE_BYTES;
        if data {
            let (&found, _) = self.pages.range(page..).next()?;
            return Some(offset.max(found * FILE_PAGE_BYTES)).filter(|&at| at < self.length);
        }
        while self.pages.contains_key(&page) {
            page += 1;
        }
        Some(offset.max(page * FILE_PAGE_BYTES).min(self.length))
    }

    /// Reads bytes, and returns their number.
    pub(super) fn read(&self, offset: u64, bytes: &mut [u8]) -> usize {
        let available = self.length.saturating_sub(offset).min(bytes.len() as u64) as usize;
        for (at, start, part) in parts(offset, available) {
            let target = &mut bytes[start..start + part];
            let within = (at % FILE_PAGE_BYTES) as usize;
            match self.pages.get(&(at / FILE_PAGE_BYTES)) {
                Some(page) => target.copy_from_slice(&page[within..within + part]),
                None => target.fill(0),
            }
        }
        available
    }

    /// Writes bytes, and returns the memory of new pages; they may have `free` bytes.
    pub(super) fn write(&mut self, offset: u64, bytes: &[u8], free: u64) -> Result<u64, Errno> {
        let end =
            offset.checked_add(bytes.len() as u64).filter(|&end| end <= LENGTH_LIMIT).ok_or(Errno::EFBIG)?;
        let missing = parts(offset, bytes.len())
            .filter(|(at, _, _)| !self.pages.contains_key(&(at / FILE_PAGE_BYTES)))
            .count() as u64
            * FILE_PAGE_BYTES;
        if missing > free {
            return Err(Errno::ENOSPC);
        }
        for (at, start, part) in parts(offset, bytes.len()) {
            let page = self.pages.entry(at / FILE_PAGE_BYTES);
            let page = page.or_insert_with(|| vec![0; FILE_PAGE_BYTES as usize].into());
            let within = (at % FILE_PAGE_BYTES) as usize;
            page[within..within + part].copy_from_slice(&bytes[start..start + part]);
        }
        if !bytes.is_empty() {
            self.length = self.length.max(end);
        }
        Ok(missing)
    }

    /// Sets the length, and returns the memory of removed pages.
    pub(super) fn set_length(&mut self, length: u64) -> Result<u64, Errno> {
        if length > LENGTH_LIMIT {
            return Err(Errno::EFBIG);
        }
        self.length = length;
        let removed = self.pages.split_off(&length.div_ceil(FILE_PAGE_BYTES));
        if let Some(page) = self.pages.get_mut(&(length / FILE_PAGE_BYTES)) {
            page[(length % FILE_PAGE_BYTES) as usize..].fill(0);
        }
        Ok(removed.len() as u64 * FILE_PAGE_BYTES)
    }
}

/// Returns the parts of a range in each page: offset in the file, offset in the buffer, length.
fn parts(offset: u64, length: usize) -> impl Iterator<Item = (u64, usize, usize)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let at = offset + done as u64;
        let part = (length - done).min((FILE_PAGE_BYTES - at % FILE_PAGE_BYTES) as usize);
        let start = done;
        done += part;
        (part > 0).then_some((at, start, part))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_behind_a_shortened_end_are_zeros() {
        let mut contents = Contents::default();
        contents.write(4090, b"0123456789", u64::MAX).unwrap();
        contents.set_length(4093).unwrap();
        contents.set_length(4200).unwrap();
        let mut bytes = [9; 12];
        assert_eq!(contents.read(4090, &mut bytes), 12);
        assert_eq!(&bytes, b"012\0\0\0\0\0\0\0\0\0");
        assert_eq!(contents.read(5000, &mut bytes), 0);
    }

    #[test]
    fn data_and_holes_are_found() {
        let mut contents = Contents::default();
        contents.write(3 * FILE_PAGE_BYTES, b"x", u64::MAX).unwrap();
        assert_eq!((contents.next(0, true), contents.next(0, false)), (Some(3 * FILE_PAGE_BYTES), Some(0)));
        assert_eq!(contents.next(3 * FILE_PAGE_BYTES, false), Some(3 * FILE_PAGE_BYTES + 1));
        assert_eq!(contents.next(3 * FILE_PAGE_BYTES + 1, true), None);
    }
}
