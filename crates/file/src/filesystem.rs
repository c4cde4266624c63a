//! Guarantees of each kind of file system that the data path depends on.

/// Guarantees of one kind of file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileSystem {
    /// Name of the file system, as in /proc/filesystems (all of ext2, ext3 and ext4: "ext4").
    pub name: &'static str,
    /// True if files exist only in the page cache, without a device behind it.
    pub memory_only: bool,
    /// True if the kernel makes reads atomic: a read sees each write of the same file whole or not at all.
    pub reads_atomic: bool,
}

/// Returns the guarantees of the file system with this `f_type` of statfs(2); `None` if the data path does
/// not serve it. Network, FUSE and stacked file systems are not served, because a mapping and `read` need not
/// agree there, and neither are virtual file systems.
pub fn kind(magic: u64) -> Option<FileSystem> {
    const EXT: u64 = 0xef53;
    const XFS: u64 = 0x5846_5342;
    const TMPFS: u64 = 0x0102_1994;
    const BTRFS: u64 = 0x9123_683e;
    let kind = |name, memory_only, reads_atomic| FileSystem { name, memory_only, reads_atomic };
    match magic {
        EXT => Some(kind("ext4", false, false)),
        XFS => Some(kind("xfs", false, true)),
        TMPFS => Some(kind("tmpfs", true, false)),
        BTRFS => Some(kind("btrfs", false, true)),
        _ => None,
    }
}
