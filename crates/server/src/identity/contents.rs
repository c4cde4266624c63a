//! Recognises what a device seems to hold, by the magic numbers at the beginning or end of file systems and
//! similar formats.
//!
//! The offsets and magic numbers are those of the formats' specifications, and blkid(8) uses the same. Any
//! other contents except zeros are called data.

/// Size of the part at a device's end that is searched, in bytes: backup partition tables and RAID metadata
/// are there.
pub(super) const TAIL_BYTES: u64 = 1 << 20;

/// Formats: name, offset of the magic number from the device's beginning, and magic number.
const HEADS: [(&str, usize, &[u8]); 22] = [
    ("LUKS", 0, b"LUKS\xba\xbe"),
    ("XFS", 0, b"XFSB"),
    ("ext2, ext3 or ext4", 1024 + 56, &[0x53, 0xef]),
    ("btrfs", 0x10040, b"_BHRfS_M"),
    ("F2FS", 1024, &[0x10, 0x20, 0xf5, 0xf2]),
    ("EROFS", 1024, &[0xe2, 0xe1, 0xf5, 0xe0]),
    ("NTFS", 3, b"NTFS    "),
    ("exFAT", 3, b"EXFAT   "),
    ("SquashFS", 0, b"hsqs"),
    ("ISO 9660", 32769, b"CD001"),
    ("LVM", 512 + 24, b"LVM2 001"),
    ("LVM", 24, b"LVM2 001"),
    ("swap", 4096 - 10, b"SWAPSPACE2"),
    ("RAID", 4096, &[0xfc, 0x4e, 0x2b, 0xa9]),
    ("RAID", 0, &[0xfc, 0x4e, 0x2b, 0xa9]),
    ("bcache", 4096 + 24, &[0xc6, 0x85, 0x73, 0xf6, 0x4e, 0x1a, 0x45, 0xca]),
    ("bcachefs", 4096 + 24, &[0xc6, 0x85, 0x73, 0xf6, 0x66, 0xce, 0x90, 0xa9]),
    ("ZFS", 128 << 10, &[0x0c, 0xb1, 0xba, 0x00]),
    ("qcow2", 0, b"QFI\xfb"),
    ("GPT", 512, b"EFI PART"),
    ("GPT", 4096, b"EFI PART"),
    // FAT file systems have this boot signature too, behind their own header.
    ("MBR or FAT", 510, &[0x55, 0xaa]),
];

/// Returns the name of what a device seems to hold, given its first and its last MiB; `None` if both contain
/// only zeros.
pub(super) fn name(head: &[u8], tail: &[u8]) -> Option<&'static str> {
    let found = HEADS.iter().find(|(_, at, magic)| head.get(*at..*at + magic.len()) == Some(*magic));
    if let Some((name, ..)) = found {
        return Some(name);
    }
    let last = |block: usize| tail.len().checked_sub(block).and_then(|at| tail.get(at..));
    if [512, 4096].into_iter().filter_map(last).any(|block| block.starts_with(b"EFI PART")) {
        return Some("GPT");
    }
    (!is_zero(head) || !is_zero(tail)).then_some("data")
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_format_is_named_and_zeros_are_nothing() {
        let zeros = vec![0; 1 << 20];
        assert_eq!(name(&zeros, &zeros), None);
        assert_eq!(name(&zeros, &[]), None);
        for (wanted, at, magic) in HEADS {
            let mut head = zeros.clone();
            head[at..at + magic.len()].copy_from_slice(magic);
            assert_eq!(name(&head, &zeros), Some(wanted));
        }
        let mut tail = zeros.clone();
        tail[(1 << 20) - 512..][..8].copy_from_slice(b"EFI PART");
        assert_eq!(name(&zeros, &tail), Some("GPT"));
        tail[(1 << 20) - 512] = 1;
        assert_eq!(name(&zeros, &tail), Some("data"));
        let mut head = zeros.clone();
        head[700_000] = 1;
        assert_eq!(name(&head, &zeros), Some("data"));
    }
}
