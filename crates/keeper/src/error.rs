//! Failures of the keeper and of the commands for logs. Each message names the log or the file, the reason and the remedy.

use bywash_log::layout::Damage;
use bywash_log::read::Corruption;
use std::io;
use std::path::{Path, PathBuf};

/// A failure.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A system call failed.
    #[error("cannot {what} '{}': {source}", .path.display())]
    Io {
        /// The step, as a verb.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The kernel's reason.
        source: io::Error,
    },

    /// No log is there.
    #[error("there is no log '{path}'; make one with `bywash log create {path}`", path = .0.display())]
    Missing(PathBuf),

    /// The file holds something else.
    #[error("'{path}' is no log; make one with `bywash log create`", path = .0.display())]
    NotALog(PathBuf),

    /// The superblock was written by another version.
    #[error("log '{}' has version {version} of the layout; use the bywash that made it", .path.display())]
    Version {
        /// The log.
        path: PathBuf,
        /// Version in the superblock.
        version: u32,
    },

    /// Both superblocks are damaged.
    #[error(
        "both superblocks of log '{}' are damaged ({damage:?}): nothing was written. Restore the log, or remove it if \
         its records are not needed", .path.display()
    )]
    Superblock {
        /// The log.
        path: PathBuf,
        /// Damage of the better one.
        damage: Damage,
    },

    /// Batches are damaged.
    #[error(
        "log '{}' is corrupt: {corruption}; nothing was written. Restore the log, or remove it with rm if its records \
         are not needed", .path.display()
    )]
    Corrupt {
        /// The log.
        path: PathBuf,
        /// The damage.
        corruption: Corruption,
    },

    /// Records name a file that the table of files does not have.
    #[error(
        "log '{}' is corrupt: records name file {slot}, which is not in its table; nothing was written. Restore the \
         log, or remove it with rm if its records are not needed", .path.display()
    )]
    UnknownFile {
        /// The log.
        path: PathBuf,
        /// Number of the file.
        slot: u32,
    },

    /// A keeper or another command has the log.
    #[error("log '{path}' is in use by a keeper or another command; wait until it has ended", path = .0.display())]
    InUse(PathBuf),

    /// Programs append to a log whose keeper was killed.
    #[error(
        "programs still append to log '{path}', whose keeper was killed; end them (they run under `bywash run --log`), and \
         try again", path = .0.display()
    )]
    Orphaned(PathBuf),

    /// Somebody else owns the log.
    #[error("log '{}' belongs to user {owner}; run this as that user{}", .path.display(), if *.or_root { ", or as root" } else { "" })]
    Owner {
        /// The log.
        path: PathBuf,
        /// Owner's user id.
        owner: u32,
        /// True if root may do it, too.
        or_root: bool,
    },

    /// Others than the owner can write the log, so its records are nobody's.
    #[error(
        "log '{path}' can be written by others than its owner, who could forge records; take that right from group and others \
         (chmod(1), or `bywash volume permit`), and check the log", path = .0.display()
    )]
    WritableByOthers(PathBuf),

    /// The owner in the superblock is not the owner of the file.
    #[error("log '{}' was made for user {stated} and belongs to user {owner}; `chown {stated}` it", .path.display())]
    OtherOwner {
        /// The log.
        path: PathBuf,
        /// User id in the superblock.
        stated: u32,
        /// User id of the file's owner.
        owner: u32,
    },

    /// A log file that forgets.
    #[error(
        "'{}' lies in memory ({what}), which a power failure empties: nothing committed there is durable; name a place \
         on a disk, or give --volatile for a benchmark", .path.display()
    )]
    Volatile {
        /// The log.
        path: PathBuf,
        /// Kind of the memory.
        what: &'static str,
    },

    /// A file system that does not overwrite in place.
    #[error("'{}' lies on {what}, which writes each block to a new place; name a place on ext4 or XFS, or a partition", .path.display())]
    CopyOnWrite {
        /// The log.
        path: PathBuf,
        /// Kind of the file system.
        what: &'static str,
    },

    /// No direct I/O.
    #[error("'{}' cannot be written directly (O_DIRECT: {source}); name a place on ext4 or XFS, or a partition", .path.display())]
    NotDirect {
        /// The log.
        path: PathBuf,
        /// The kernel's reason.
        source: io::Error,
    },

    /// The block device is mounted or otherwise in use.
    #[error("'{path}' is mounted or used otherwise; unmount it first", path = .0.display())]
    DeviceBusy(PathBuf),

    /// The device or the file holds other data.
    #[error("'{path}' holds other data; name another place{hint}", path = .path.display(), hint = if *.is_device { ", or give --force to overwrite the device" } else { "" })]
    Occupied {
        /// The file or device.
        path: PathBuf,
        /// True for a block device or a volume.
        is_device: bool,
    },

    /// The log has live records.
    #[error("log '{}' has {records} live records; `bywash log recover` writes them into their files first", .path.display())]
    Live {
        /// The log.
        path: PathBuf,
        /// Number of records.
        records: u64,
    },

    /// Neither a regular file nor a block device.
    #[error("'{path}' is neither a regular file nor a block device; name one, or a file that does not exist yet", path = .0.display())]
    Kind(PathBuf),

    /// Too small for a log.
    #[error("{bytes} bytes are too few for a log; give at least {least}")]
    TooSmall {
        /// Size as given.
        bytes: u64,
        /// Least size.
        least: u64,
    },

    /// A file cannot be recovered.
    #[error("{problem}\nbywash: nothing was written to it, and the log keeps its records")]
    File {
        /// The problem, with the file's path and the remedy.
        problem: crate::problem::Problem,
    },

    /// Recovery was ended from outside.
    #[error("recovery of log '{path}' was interrupted; run it again", path = .0.display())]
    Interrupted(PathBuf),

    /// The keeper reported a failure.
    #[error("the keeper of log '{}' says: {message}", .path.display())]
    Keeper {
        /// The log.
        path: PathBuf,
        /// Message of the keeper.
        message: String,
    },

    /// The log file failed while programs used the log.
    #[error("log '{}' has failed ({source}); all files were made durable by the kernel", .path.display())]
    Failed {
        /// The log.
        path: PathBuf,
        /// The kernel's reason.
        source: io::Error,
    },

    /// Files could not be made durable at the end, so the log keeps their records.
    #[error("{files} files could not be made durable; log '{}' keeps their records, see `bywash log status`", .path.display())]
    NotEmptied {
        /// The log.
        path: PathBuf,
        /// Number of files.
        files: usize,
    },

    /// The socket's folder cannot be trusted.
    #[error("'{}' is not a folder of user {owner} alone, where the keeper's socket should be; remove it or repair its owner and mode", .path.display())]
    Runtime {
        /// The folder.
        path: PathBuf,
        /// User id of the log's owner.
        owner: u32,
    },

    /// The name of a log on a volume makes no sense.
    #[error("'{}' names no log on a volume: {reason}; write volume:[SOCKET/]NAME[,path=channel|mapped]", .path.display())]
    VolumeName {
        /// The name.
        path: PathBuf,
        /// The reason.
        reason: &'static str,
    },

    /// The volume cannot be used.
    #[error("cannot use '{}' as a log: {source}", .path.display())]
    Volume {
        /// The log.
        path: PathBuf,
        /// The client's reason.
        source: Box<bywash_client::Error>,
    },

    /// The file whose locks count for a log on a volume belongs to somebody else.
    #[error("'{}' is not a file of user {owner}, who owns the log's volume; have its owner or root remove it", .path.display())]
    Locks {
        /// The file.
        path: PathBuf,
        /// User id of the volume's owner.
        owner: u32,
    },

    /// The socket cannot be made.
    #[error(transparent)]
    Socket(#[from] bywash_link::Error),
}

impl Error {
    /// Returns the failure of a step on a file.
    pub(crate) fn io(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
        let path = path.to_owned();
        move |source| Error::Io { what, path, source }
    }

    /// Returns the failure of a step on a file whose reason is an error number.
    pub(crate) fn number(what: &'static str, path: &Path) -> impl FnOnce(i32) -> Error {
        let failed = Error::io(what, path);
        move |number| failed(io::Error::from_raw_os_error(number))
    }
}
