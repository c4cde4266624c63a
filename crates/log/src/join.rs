//! Joining: finds out what recovery needs to find a file again, and gives the file a number in the log.
//!
//! Only regular files of ext4 and XFS are logged. Their identity is the file system's UUID and the file's handle, which
//! differs between inodes that had the same number. An extended attribute says which log may have records of the file.

pub use crate::claim::CLAIM;
use crate::claim::claim;
use crate::commit::Log;
use crate::layout::{FileNumber, HANDLE_MAX, Identity, PATH_MAX};
use crate::shared::{Entry, LOG_PATH_MAX};
use crate::sys::{self, Errno};
use bywash_syscall::call;
use core::ffi::c_int;

/// Types of file systems that are logged (statfs(2)).
const EXT4: i64 = 0xef53;
const XFS: i64 = 0x5846_5342;
/// EXT4_IOC_GETFSUUID (linux/fs/ext4/ext4.h): fills in a structure of two numbers and sixteen bytes.
const EXT4_IOC_GETFSUUID: usize = 0x8008_662c;
/// XFS_IOC_FSGEOMETRY (xfs_fs.h): fills in a structure (xfs_fsop_geom) of eight 32-bit numbers, four of 64 bits, the UUID,
/// and more.
const XFS_IOC_FSGEOMETRY: usize = 0x8100_587e;
/// Offset of the UUID in that structure, in bytes.
const XFS_UUID: usize = 8 * 4 + 4 * 8;

/// Identity of a file, with the memory that it needs.
#[derive(Debug)]
pub struct Described {
    filesystem: [u8; 16],
    boot: [u8; 16],
    mount: u64,
    inode: u64,
    handle_type: i32,
    handle: [u8; HANDLE_MAX],
    handle_length: usize,
    path: [u8; PATH_MAX + 1],
    path_length: usize,
}

impl Described {
    /// Describes the file of a descriptor.
    ///
    /// # Errors
    /// ENOTSUP if its kind, its file system or the kernel lacks something, or if the kernel makes each write to it durable by
    /// itself; ENAMETOOLONG if its path is too long; ESTALE if
    /// the path does not lead to it, since the name was removed that it was opened by; another error number of the kernel's.
    pub fn of_descriptor(fd: c_int) -> Result<Described, Errno> {
        let status = sys::status(fd)?;
        if status.mode & libc::S_IFMT != libc::S_IFREG || status.links == 0 || is_synchronous(fd)? {
            return Err(libc::ENOTSUP);
        }
        let (handle_type, handle, handle_length) = handle(fd)?;
        let mut path = [0; PATH_MAX + 1];
        let path_length = path_of(fd, &mut path)?;
        // SAFETY: the path is a C string, since the byte behind it is zero.
        let named =
            unsafe { sys::identity_at(libc::AT_FDCWD, path.as_ptr().cast(), libc::AT_SYMLINK_NOFOLLOW) };
        if named != sys::identity(fd) {
            return Err(libc::ESTALE);
        }
        Ok(Described {
            filesystem: filesystem(fd)?,
            boot: boot_id()?,
            mount: sys::mount_id(fd)?,
            inode: status.inode,
            handle_type,
            handle,
            handle_length,
            path,
            path_length,
        })
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &[u8] {
        &self.path[..self.path_length]
    }

    /// Returns the identity, whose number in the log [`Log::join`] fills in.
    pub fn identity(&self) -> Identity<'_> {
        Identity {
            file: FileNumber { slot: 0, incarnation: 0 },
            epoch: 0,
            filesystem: self.filesystem,
            boot: self.boot,
            mount: self.mount,
            inode: self.inode,
            handle_type: self.handle_type,
            handle: &self.handle[..self.handle_length],
            path: self.path(),
        }
    }
}

/// Lets a file join the log, before its first sync by the kernel: claims it for the log and writes its identity.
///
/// # Errors
/// EBUSY if another log claims the file whose records may be live; otherwise as [`Described::of_descriptor`] and [`Log::join`].
pub fn join(log: &Log, entry: &'static Entry, fd: c_int, described: &Described) -> Result<(), Errno> {
    let lock = log.lock_entry(entry).ok_or(libc::EDEADLK)?;
    let mut name = [0; LOG_PATH_MAX];
    claim(fd, log.shared().id(), log.shared().name(&mut name).ok_or(libc::EPROTO)?)?;
    log.join(&lock, entry, &described.identity())
}

/// Returns type, bytes and length of a file's handle.
///
/// # Errors
/// ENOTSUP, EOVERFLOW or another error number of name_to_handle_at(2).
pub fn handle(fd: c_int) -> Result<(i32, [u8; HANDLE_MAX], usize), Errno> {
    #[repr(C)]
    struct Handle {
        length: u32,
        kind: i32,
        bytes: [u8; HANDLE_MAX],
    }
    let mut handle = Handle { length: HANDLE_MAX as u32, kind: 0, bytes: [0; HANDLE_MAX] };
    let mut mount = 0i32;
    let arguments = [
        fd as usize,
        c"".as_ptr() as usize,
        (&raw mut handle) as usize,
        (&raw mut mount) as usize,
        libc::AT_EMPTY_PATH as usize,
        0,
    ];
    // SAFETY: the handle has the room that its length states, and both targets are local variables.
    sys::answer(unsafe { call(libc::SYS_name_to_handle_at as usize, arguments) })?;
    Ok((handle.kind, handle.bytes, (handle.length as usize).min(HANDLE_MAX)))
}

/// Returns true if files of the descriptor's file system can be logged.
pub fn is_logged_filesystem(fd: c_int) -> bool {
    matches!(sys::filesystem_type(fd), Ok(EXT4 | XFS))
}

/// Returns true if every write to the file of a descriptor is durable when it returns, because of the file's attribute
/// (chattr +S) or its mount (mount -o sync): a commit would be older than a later write, and replay would undo that.
fn is_synchronous(fd: c_int) -> Result<bool, Errno> {
    const FS_SYNC_FL: libc::c_ulong = 0x8;
    let mut flags: libc::c_ulong = 0;
    // SAFETY: the request writes a number of at most this size.
    unsafe { sys::ioctl(fd, libc::FS_IOC_GETFLAGS as usize, (&raw mut flags) as usize)? };
    Ok(flags & FS_SYNC_FL != 0 || sys::mount_flags(fd)? & libc::ST_SYNCHRONOUS != 0)
}

/// Returns the UUID of the file system of a descriptor.
///
/// # Errors
/// ENOTSUP for file systems other than ext4 and XFS; another error number of the kernel's (ENOTTY: Linux before 6.0).
pub fn filesystem(fd: c_int) -> Result<[u8; 16], Errno> {
    match sys::filesystem_type(fd)? {
        EXT4 => {
            #[repr(C)]
            struct Uuid {
                length: u32,
                flags: u32,
                bytes: [u8; 16],
            }
            let mut uuid = Uuid { length: 16, flags: 0, bytes: [0; 16] };
            // SAFETY: the request fills in a structure of this layout, whose room for bytes its length states.
            unsafe { sys::ioctl(fd, EXT4_IOC_GETFSUUID, (&raw mut uuid) as usize)? };
            Ok(uuid.bytes)
        }
        XFS => {
            let mut geometry = [0u8; 256];
            // SAFETY: the request fills in a structure of 256 bytes, as its number says.
            unsafe { sys::ioctl(fd, XFS_IOC_FSGEOMETRY, geometry.as_mut_ptr() as usize)? };
            let mut uuid = [0; 16];
            uuid.copy_from_slice(&geometry[XFS_UUID..XFS_UUID + 16]);
            Ok(uuid)
        }
        _ => Err(libc::ENOTSUP),
    }
}

/// Returns the boot id of the kernel.
///
/// # Errors
/// The kernel's error number; EPROTO if the id cannot be parsed.
pub fn boot_id() -> Result<[u8; 16], Errno> {
    let fd = sys::open(c"/proc/sys/kernel/random/boot_id", libc::O_RDONLY | libc::O_CLOEXEC)?;
    let mut text = [0u8; 36];
    // SAFETY: the target is a local array.
    let read = unsafe { sys::read_at(fd, text.as_mut_ptr(), text.len(), 0) };
    sys::close(fd);
    read?;
    let mut id = [0; 16];
    let mut digits = text.iter().filter(|byte| **byte != b'-').map(|byte| (*byte as char).to_digit(16));
    for byte in &mut id {
        let (Some(Some(high)), Some(Some(low))) = (digits.next(), digits.next()) else {
            return Err(libc::EPROTO);
        };
        *byte = (high << 4 | low) as u8;
    }
    Ok(id)
}

/// Writes the path of a descriptor into `to`; returns its length.
fn path_of(fd: c_int, to: &mut [u8; PATH_MAX + 1]) -> Result<usize, Errno> {
    let mut name = [0u8; 32];
    let length = sys::descriptor_path(fd, &mut name);
    let arguments =
        [libc::AT_FDCWD as isize as usize, name.as_ptr() as usize, to.as_mut_ptr() as usize, to.len(), 0, 0];
    debug_assert!(name[length] == 0, "the name ends in a zero byte");
    // SAFETY: `name` ends in a zero byte, and the length of `to` is passed along.
    let read = sys::answer(unsafe { call(libc::SYS_readlinkat as usize, arguments) })?;
    if read > PATH_MAX { Err(libc::ENAMETOOLONG) } else { Ok(read) }
}
