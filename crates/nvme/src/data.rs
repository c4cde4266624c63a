//! Data pointers: the memory that a command moves data to or from, as the controller reads it. Pure.
//!
//! ```text
//!   PRP (physical region pages, Base Specification 2.0, section 4.1.1), pages of 4096 bytes:
//!     one page      │ first page, with offset │ 0                            │
//!     two pages     │ first page, with offset │ second page                  │
//!     more          │ first page, with offset │ list ──► second, third, ...  │
//!   SGL (scatter/gather list, section 4.1.2):
//!     one piece     │ address                 │ length, data block           │
//!     more          │ list ──► data blocks    │ length of list, last segment │
//! ```
//!
//! Physical region pages describe memory in which only the first piece begins, and only the last one ends, in the middle
//! of a page. Scatter/gather lists describe any memory, and few controllers have them. A list is one page, which belongs
//! to the command's slot.

use crate::dma::PAGE;

/// Greatest number of entries of a list of physical region pages: one page.
pub const PRP_LIST_MAX: usize = PAGE / 8;
/// Greatest number of bytes that one command moves by physical region pages, wherever in a page its memory begins.
pub const PRP_BYTES_MAX: usize = PRP_LIST_MAX * PAGE;
/// Size of a descriptor of a scatter/gather list, in bytes.
const DESCRIPTOR_BYTES: usize = 16;

/// Contiguous piece of memory, as the controller addresses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Controller's address of the first byte.
    pub address: u64,
    /// Length, in bytes; at least one.
    pub bytes: usize,
}

/// Data pointer of a command (DPTR).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataPointer {
    /// The two words of the field.
    pub words: [u64; 2],
    /// True for a scatter/gather list, false for physical region pages.
    pub is_sgl: bool,
}

/// Returns true if physical region pages can describe these pieces, and every part of them that leaves out pages at the
/// beginning or the end.
pub fn fits_prp(pieces: impl Iterator<Item = Piece>) -> bool {
    let mut end_of_last = None;
    for Piece { address, bytes } in pieces {
        let begins_well = match end_of_last {
            // The first address has to be a multiple of four bytes.
            None => address.is_multiple_of(4),
            Some(end) => is_page(end) && is_page(address),
        };
        if !begins_well {
            return false;
        }
        end_of_last = Some(address + bytes as u64);
    }
    true
}

/// Describes pieces for which [`fits_prp`] returned true, of at most [`PRP_BYTES_MAX`] bytes together, by physical
/// region pages. The entries of the list are passed to `write` (index, value); `list` is the list's address.
#[inline]
pub fn prp(pieces: impl Iterator<Item = Piece>, list: u64, mut write: impl FnMut(usize, u64)) -> DataPointer {
    let (mut pages, mut first, mut second) = (0usize, 0, 0);
    for Piece { address, bytes } in pieces {
        let end = address + bytes as u64;
        let mut at = address;
        while at < end {
            match pages {
                0 => first = at,
                1 => second = at,
                // The second page moves to the list when there is a third.
                2 => {
                    write(0, second);
                    write(1, at);
                }
                _ => write(pages - 1, at),
            }
            pages += 1;
            at = (at & !(PAGE as u64 - 1)) + PAGE as u64;
        }
    }
    debug_assert!(pages <= 1 + PRP_LIST_MAX, "the list has one page");
    let second = if pages > 2 { list } else { second };
    DataPointer { words: [first, second], is_sgl: false }
}

/// Describes pieces, at most 256 of less than 4 GiB each, by a scatter/gather list. The words of the list are passed to
/// `write` (index of the word, value); `list` is the list's address.
pub fn sgl(pieces: impl Iterator<Item = Piece>, list: u64, mut write: impl FnMut(usize, u64)) -> DataPointer {
    let (mut count, mut only) = (0usize, [0, 0]);
    for Piece { address, bytes } in pieces {
        // Type 0h in the last byte: a data block.
        only = [address, bytes as u64];
        write(2 * count, only[0]);
        write(2 * count + 1, only[1]);
        count += 1;
    }
    debug_assert!(count * DESCRIPTOR_BYTES <= PAGE, "the list has one page");
    let words = if count == 1 {
        only
    } else {
        // Type 3h in the upper half of the last byte: the last segment of the list.
        [list, (count * DESCRIPTOR_BYTES) as u64 | 0x30 << 56]
    };
    DataPointer { words, is_sgl: true }
}

fn is_page(address: u64) -> bool {
    address.is_multiple_of(PAGE as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LIST: u64 = 0xabc0_0000;

    fn pieces(given: &[(u64, usize)]) -> impl Iterator<Item = Piece> {
        given.iter().map(|&(address, bytes)| Piece { address, bytes })
    }

    /// Reads a data pointer as a controller does, and returns the address of each byte.
    fn addresses(pointer: DataPointer, list: &[u64; 512], bytes: usize) -> Vec<u64> {
        let mut all = Vec::new();
        if pointer.is_sgl {
            let is_list = pointer.words[1] >> 60 == 3;
            let count = if is_list { pointer.words[1] as u32 as usize / 16 } else { 1 };
            for index in 0..count {
                let [address, length] =
                    if is_list { [list[2 * index], list[2 * index + 1]] } else { pointer.words };
                assert_eq!(length >> 56, 0, "a data block");
                all.extend(address..address + length);
            }
            return all;
        }
        // Section 4.1.1: the first entry has an offset; the second is a list if more than two pages are needed.
        let room = PAGE - (pointer.words[0] % PAGE as u64) as usize;
        all.extend(pointer.words[0]..pointer.words[0] + room.min(bytes) as u64);
        let pages = bytes.saturating_sub(room).div_ceil(PAGE);
        for listed in list.iter().take(pages) {
            let entry = if pages == 1 { pointer.words[1] } else { *listed };
            assert!(is_page(entry), "{entry:#x}");
            all.extend(entry..entry + PAGE.min(bytes - all.len()) as u64);
        }
        assert!(pages < 2 || pointer.words[1] == LIST);
        all
    }

    fn expected(given: &[(u64, usize)]) -> Vec<u64> {
        given.iter().flat_map(|&(address, bytes)| address..address + bytes as u64).collect()
    }

    #[test]
    fn golden_pointers() {
        let mut list = [0; 512];
        let pointer = prp(pieces(&[(0x1200, 512)]), LIST, |index, value| list[index] = value);
        assert_eq!(pointer.words, [0x1200, 0]);
        let pointer = prp(pieces(&[(0x1200, 4096)]), LIST, |index, value| list[index] = value);
        assert_eq!(pointer.words, [0x1200, 0x2000]);
        let pointer = prp(pieces(&[(0x1e00, 512), (0x9000, 4096), (0x5000, 512)]), LIST, |index, value| {
            list[index] = value
        });
        assert_eq!((pointer.words, &list[..2]), ([0x1e00, LIST], [0x9000, 0x5000].as_slice()));
        let pointer = sgl(pieces(&[(0x1201, 512)]), LIST, |index, value| list[index] = value);
        assert_eq!((pointer.words, pointer.is_sgl), ([0x1201, 512], true));
        let pointer = sgl(pieces(&[(0x1201, 512), (7, 3)]), LIST, |index, value| list[index] = value);
        assert_eq!(
            (pointer.words, &list[..4]),
            ([LIST, 0x3000_0000_0000_0020], [0x1201, 512, 7, 3].as_slice())
        );
    }

    #[test]
    fn pages_describe_only_what_is_in_whole_pages_inside() {
        for (given, fits) in [
            ([].as_slice(), true),
            (&[(0x1004, 10)], true),
            (&[(0x1002, 512)], false),
            (&[(0x1004, 0xffc), (0x4000, 0x1000), (0x8000, 1)], true),
            (&[(0x1004, 0xff8), (0x4000, 0x1000)], false),
            (&[(0x1000, 0x1000), (0x4004, 0x1000)], false),
            (&[(0x1000, 0x1000), (0x4000, 0x800), (0x6000, 0x1000)], false),
        ] {
            assert_eq!(fits_prp(pieces(given)), fits, "{given:x?}");
        }
    }

    #[test]
    fn the_longest_list_has_one_page() {
        let mut most = 0;
        let given = [(0x1ffc, 4), (0x10_0000, PRP_BYTES_MAX - 4)];
        prp(pieces(&given), LIST, |index, _| most = most.max(index));
        assert_eq!(most, PRP_LIST_MAX - 1);
    }

    proptest! {
        #[test]
        fn pages_are_the_bytes_in_order(
            offset in 0u64..1024, first in 1usize..30_000, more in prop::collection::vec((1u64..1 << 30, 1usize..6), 0..6), last in 0usize..4096,
        ) {
            let start = 0x7000_0000 + offset * 4;
            // All but the last piece end at a page.
            let mut given = vec![(start, first)];
            if !more.is_empty() {
                given[0].1 = (first + start as usize).next_multiple_of(PAGE) - start as usize;
                given.extend(more.iter().map(|&(page, count)| (page * PAGE as u64, count * PAGE)));
                let end = given.last_mut().unwrap();
                end.1 -= last;
            }
            prop_assert!(fits_prp(pieces(&given)));
            let (mut list, bytes) = ([0; 512], given.iter().map(|piece| piece.1).sum());
            let pointer = prp(pieces(&given), LIST, |index, value| list[index] = value);
            prop_assert!(addresses(pointer, &list, bytes) == expected(&given));
        }

        #[test]
        fn lists_are_the_bytes_in_order(given in prop::collection::vec((0u64..1 << 48, 1usize..5000), 1..17)) {
            let mut list = [0; 512];
            let bytes = given.iter().map(|piece| piece.1).sum();
            let pointer = sgl(pieces(&given), LIST, |index, value| list[index] = value);
            prop_assert!(addresses(pointer, &list, bytes) == expected(&given));
        }
    }
}
