//! What each kind of file system promises, as far as the data path depends on it.

/// Facts about a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    /// Its name.
    pub name: &'static str,
    /// Nothing stands behind the page cache.
    pub memory_only: bool,
    /// A read sees each write of the same file whole or not at all.
    pub reads_atomic: bool,
}

/// The file systems that are served, by the f_type of statfs(2). Not in the list, and so the kernel's
/// alone: network, FUSE and stacked file systems, where a mapping and `read` need not agree, and the
/// virtual ones.
pub fn kind(magic: u64) -> Option<Kind> {
    const EXT: u64 = 0xef53;
    const XFS: u64 = 0x5846_5342;
    const TMPFS: u64 = 0x0102_1994;
    const BTRFS: u64 = 0x9123_683e;
    let kind = |name, memory_only, reads_atomic| Kind { name, memory_only, reads_atomic };
    match magic {
        EXT => Some(kind("ext4", false, false)),
        XFS => Some(kind("xfs", false, true)),
        TMPFS => Some(kind("tmpfs", true, false)),
        BTRFS => Some(kind("btrfs", false, true)),
        _ => None,
    }
}
