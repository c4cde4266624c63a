//! System calls of committing, made by instruction: they do not pass through the preloaded functions again, and leave the
//! program's `errno` alone.

use bywash_syscall::call;
use core::ffi::CStr;
use core::sync::atomic::AtomicU32;
use libc::c_int;

/// Error number of the kernel's, positive (errno(3)).
pub type Errno = i32;

/// Tells the kernel's result from its error number.
pub(crate) fn answer(value: isize) -> Result<usize, Errno> {
    usize::try_from(value).map_err(|_| (-value) as Errno)
}

/// Parts of statx(2)'s result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// Device number of the file's file system.
    pub device: u64,
    /// Inode number.
    pub inode: u64,
    /// Time of creation, in nanoseconds; `None` if the file system keeps none.
    pub born: Option<u64>,
    /// Number of names.
    pub links: u64,
    /// Type and permissions.
    pub mode: u32,
    /// Device number of a device file.
    pub rdev: u64,
    /// Size in bytes.
    pub size: u64,
}

impl Status {
    /// Returns what tells a file from all others: device and inode number, or a device's number and zero.
    pub fn identity(&self) -> (u64, u64) {
        let is_device = self.mode & libc::S_IFMT == libc::S_IFBLK;
        if is_device { (self.rdev, 0) } else { (self.device, self.inode) }
    }

    /// Returns the identity of the inode among all that had its number ([`identity`](identity())).
    pub fn key(&self) -> Option<(u64, u64, u64)> {
        self.born.map(|born| (self.device, self.inode, born))
    }
}

/// Returns the status of the file of a descriptor, without its times: Linux 6.13 gives a file whose times were asked for new
/// ones with its next write, which then takes half as long again.
///
/// # Errors
/// The kernel's error number.
pub fn status(fd: c_int) -> Result<Status, Errno> {
    let wanted = libc::STATX_TYPE
        | libc::STATX_MODE
        | libc::STATX_NLINK
        | libc::STATX_INO
        | libc::STATX_SIZE
        | libc::STATX_BTIME;
    // SAFETY: the path is a C string.
    let found = unsafe { statx(fd, c"".as_ptr(), libc::AT_EMPTY_PATH, wanted)? };
    Ok(Status {
        born: (found.stx_mask & libc::STATX_BTIME != 0).then(|| nanoseconds(found.stx_btime)),
        device: libc::makedev(found.stx_dev_major, found.stx_dev_minor),
        inode: found.stx_ino,
        links: found.stx_nlink.into(),
        mode: found.stx_mode.into(),
        rdev: libc::makedev(found.stx_rdev_major, found.stx_rdev_minor),
        size: found.stx_size,
    })
}

/// Calls statx(2) for the fields `wanted`.
///
/// # Safety
/// If the path is readable, it is a C string.
unsafe fn statx(
    at: c_int,
    path: *const core::ffi::c_char,
    flags: c_int,
    wanted: u32,
) -> Result<libc::statx, Errno> {
    // SAFETY: the kernel checks the path, and the structure, for which all zeroes are valid, is a local variable.
    unsafe {
        let mut found: libc::statx = core::mem::zeroed();
        let arguments =
            [at as usize, path as usize, flags as usize, wanted as usize, (&raw mut found) as usize, 0];
        answer(call(libc::SYS_statx as usize, arguments))?;
        Ok(found)
    }
}

/// Identity of an inode among all that had its number, from statx(2): device, inode number, and time of creation in
/// nanoseconds.
///
/// # Errors
/// The kernel's error number; ENOTSUP if the file system keeps no time of creation.
pub fn identity(fd: c_int) -> Result<(u64, u64, u64), Errno> {
    identity_and_size(fd).map(|(identity, _)| identity)
}

/// Returns the [`identity`] and the size in bytes of the file of a descriptor.
///
/// # Errors
/// Those of [`identity`].
pub fn identity_and_size(fd: c_int) -> Result<((u64, u64, u64), u64), Errno> {
    // SAFETY: the path is a C string.
    unsafe { described(fd, c"".as_ptr(), libc::AT_EMPTY_PATH) }
}

/// Returns the [`identity`] of the file at a path that the program passed, with flags of statx(2).
///
/// # Errors
/// The kernel's error number, also for a bad address; ENOTSUP if the file system keeps no time of creation.
///
/// # Safety
/// If the path is readable, it is a C string.
pub unsafe fn identity_at(
    at: c_int,
    path: *const core::ffi::c_char,
    flags: c_int,
) -> Result<(u64, u64, u64), Errno> {
    // SAFETY: the caller promises the path.
    unsafe { described(at, path, flags) }.map(|(identity, _)| identity)
}

/// Returns identity and size of a file.
///
/// # Safety
/// Same as [`identity_at`].
unsafe fn described(
    at: c_int,
    path: *const core::ffi::c_char,
    flags: c_int,
) -> Result<((u64, u64, u64), u64), Errno> {
    let wanted = libc::STATX_INO | libc::STATX_BTIME | libc::STATX_SIZE;
    // SAFETY: the caller promises the path.
    let found = unsafe { statx(at, path, flags, wanted)? };
    if found.stx_mask & wanted != wanted {
        return Err(libc::ENOTSUP);
    }
    let device = libc::makedev(found.stx_dev_major, found.stx_dev_minor);
    Ok(((device, found.stx_ino, nanoseconds(found.stx_btime)), found.stx_size))
}

/// Returns permissions and owner (user, group) of the file at a path that the program passed, with flags of statx(2).
///
/// # Errors
/// The kernel's error number, also for a bad address.
///
/// # Safety
/// If the path is readable, it is a C string.
pub unsafe fn access_at(
    at: c_int,
    path: *const core::ffi::c_char,
    flags: c_int,
) -> Result<(u16, u32, u32), Errno> {
    let wanted = libc::STATX_MODE | libc::STATX_UID | libc::STATX_GID;
    // SAFETY: the caller promises the path.
    let found = unsafe { statx(at, path, flags, wanted)? };
    Ok((found.stx_mode, found.stx_uid, found.stx_gid))
}

/// Returns the [`identity`] of a folder and the time of its last change (ctime), in nanoseconds; `None` if the descriptor leads
/// to no folder, or the file system keeps no such times.
pub fn folder(fd: c_int) -> Option<((u64, u64, u64), u64)> {
    let wanted = libc::STATX_TYPE | libc::STATX_INO | libc::STATX_BTIME | libc::STATX_CTIME;
    // SAFETY: the path is a C string.
    let found = unsafe { statx(fd, c"".as_ptr(), libc::AT_EMPTY_PATH, wanted).ok()? };
    let is_folder = u32::from(found.stx_mode) & libc::S_IFMT == libc::S_IFDIR;
    let device = libc::makedev(found.stx_dev_major, found.stx_dev_minor);
    (is_folder && found.stx_mask & wanted == wanted)
        .then(|| ((device, found.stx_ino, nanoseconds(found.stx_btime)), nanoseconds(found.stx_ctime)))
}

/// Returns a time as nanoseconds.
fn nanoseconds(time: libc::statx_timestamp) -> u64 {
    (time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec.into())
}

/// Returns the id of the mount through which a descriptor was opened: the unique one (Linux 6.8), or one that may be used
/// again after unmounting.
///
/// # Errors
/// The kernel's error number.
pub fn mount_id(fd: c_int) -> Result<u64, Errno> {
    const STATX_MNT_ID_UNIQUE: u32 = 0x4000;
    // SAFETY: the path is a C string.
    let found =
        unsafe { statx(fd, c"".as_ptr(), libc::AT_EMPTY_PATH, libc::STATX_MNT_ID | STATX_MNT_ID_UNIQUE)? };
    Ok(found.stx_mnt_id)
}

/// Returns the type of the file system of a descriptor (statfs(2)).
///
/// # Errors
/// The kernel's error number.
pub fn filesystem_type(fd: c_int) -> Result<i64, Errno> {
    // struct statfs of x86-64: fifteen words, of which the first is the type and the eleventh the flags.
    statfs(fd).map(|words| words[0])
}

/// Returns the flags of the mount through which a descriptor was opened (ST_RDONLY and others, statfs(2)).
///
/// # Errors
/// The kernel's error number.
pub(crate) fn mount_flags(fd: c_int) -> Result<u64, Errno> {
    statfs(fd).map(|words| words[10] as u64)
}

fn statfs(fd: c_int) -> Result<[i64; 15], Errno> {
    let mut words = [0i64; 15];
    // SAFETY: the kernel writes a struct statfs of 120 bytes, which is the size of the array.
    let result =
        unsafe { call(libc::SYS_fstatfs as usize, [fd as usize, words.as_mut_ptr() as usize, 0, 0, 0, 0]) };
    answer(result).map(|_| words)
}

/// Calls ioctl(2).
///
/// # Errors
/// The kernel's error number.
///
/// # Safety
/// `argument` is what the request expects.
pub unsafe fn ioctl(fd: c_int, request: usize, argument: usize) -> Result<usize, Errno> {
    // SAFETY: the caller promises the argument.
    answer(unsafe { call(libc::SYS_ioctl as usize, [fd as usize, request, argument, 0, 0, 0]) })
}

/// Returns the first sixteen bytes of an extended attribute; `None` if the file has none of this name.
///
/// # Errors
/// The kernel's error number; ERANGE if it is shorter, or longer than any claim.
pub fn attribute(fd: c_int, name: &CStr) -> Result<Option<[u8; 16]>, Errno> {
    let mut value = [0u8; 16 + 4096];
    match read_attribute(fd, name, &mut value) {
        Ok(length) => value[..length].first_chunk().copied().map(Some).ok_or(libc::ERANGE),
        Err(libc::ENODATA) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Reads an extended attribute (fgetxattr(2)), and returns its length. Without room for a byte the length alone is told.
///
/// # Errors
/// The kernel's error number; ENODATA if there is none, ERANGE if it is longer than `to`.
pub(crate) fn read_attribute(fd: c_int, name: &CStr, to: &mut [u8]) -> Result<usize, Errno> {
    let arguments = [fd as usize, name.as_ptr() as usize, to.as_mut_ptr() as usize, to.len(), 0, 0];
    // SAFETY: the name is a C string, and the length of the target is passed along.
    answer(unsafe { call(libc::SYS_fgetxattr as usize, arguments) })
}

/// Reads an extended attribute of the file at a path (getxattr(2)), as [`read_attribute`].
///
/// # Errors
/// Those of [`read_attribute`].
pub(crate) fn read_attribute_at(path: &CStr, name: &CStr, to: &mut [u8]) -> Result<usize, Errno> {
    let arguments =
        [path.as_ptr() as usize, name.as_ptr() as usize, to.as_mut_ptr() as usize, to.len(), 0, 0];
    // SAFETY: path and name are C strings, and the length of the target is passed along.
    answer(unsafe { call(libc::SYS_getxattr as usize, arguments) })
}

/// Sets an extended attribute.
///
/// # Errors
/// The kernel's error number.
pub fn set_attribute(fd: c_int, name: &CStr, value: &[u8]) -> Result<(), Errno> {
    let arguments = [fd as usize, name.as_ptr() as usize, value.as_ptr() as usize, value.len(), 0, 0];
    // SAFETY: the name is a C string, and the length of the value is passed along.
    answer(unsafe { call(libc::SYS_fsetxattr as usize, arguments) }).map(|_| ())
}

/// Removes an extended attribute; one that is not there counts as removed.
///
/// # Errors
/// The kernel's error number.
pub fn remove_attribute(fd: c_int, name: &CStr) -> Result<(), Errno> {
    // SAFETY: the name is a C string.
    let removed =
        unsafe { call(libc::SYS_fremovexattr as usize, [fd as usize, name.as_ptr() as usize, 0, 0, 0, 0]) };
    match answer(removed) {
        Ok(_) | Err(libc::ENODATA) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Writes the path /proc/self/fd/N of a descriptor into `to`, which is all zero; returns its length.
pub fn descriptor_path(fd: c_int, to: &mut [u8; 32]) -> usize {
    const PREFIX: &[u8] = b"/proc/self/fd/";
    to[..PREFIX.len()].copy_from_slice(PREFIX);
    let digits = (1..10).take_while(|count| fd as u32 / 10u32.pow(*count) != 0).count() + 1;
    let mut rest = fd as u32;
    for place in (0..digits).rev() {
        to[PREFIX.len() + place] = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    PREFIX.len() + digits
}

/// Returns the time of the real-time clock, in nanoseconds since 1970, as files' times are.
pub fn now() -> Option<u64> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the C library writes a timespec, a local variable, without a system call where it can (vdso(7)).
    let answer = unsafe { libc::clock_gettime(libc::CLOCK_REALTIME, &raw mut time) };
    (answer == 0).then(|| (time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64))
}

/// Returns the time of the monotonic clock, in nanoseconds. It is read without a system call where the kernel lets programs
/// do so (vdso(7)), which leaves `errno` alone.
pub fn monotonic_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the C library writes a timespec, a local variable. The clock is always there.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    (time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64)
}

/// Calls open(2).
///
/// # Errors
/// The kernel's error number.
pub fn open(path: &CStr, flags: c_int) -> Result<c_int, Errno> {
    let arguments = [libc::AT_FDCWD as isize as usize, path.as_ptr() as usize, flags as usize, 0, 0, 0];
    // SAFETY: `path` is a C string.
    answer(unsafe { call(libc::SYS_openat as usize, arguments) }).map(|fd| fd as c_int)
}

/// Calls close(2); its errors tell nothing of interest for a descriptor that was only read or written by offsets.
pub fn close(fd: c_int) {
    // SAFETY: the call has integer arguments only; callers own the descriptor.
    unsafe { call(libc::SYS_close as usize, [fd as usize, 0, 0, 0, 0, 0]) };
}

/// Calls fcntl(2).
///
/// # Errors
/// The kernel's error number.
pub fn fcntl(fd: c_int, command: c_int, argument: usize) -> Result<c_int, Errno> {
    // SAFETY: all callers pass commands whose argument is a number.
    answer(unsafe { call(libc::SYS_fcntl as usize, [fd as usize, command as usize, argument, 0, 0, 0]) })
        .map(|value| value as c_int)
}

/// Takes a lock of the open file description on the byte at `offset` (F_OFD_SETLK, fcntl(2)); `kind` is F_RDLCK or
/// F_WRLCK.
///
/// # Errors
/// EAGAIN if another description has a lock in the way; another error number of the kernel's.
pub(crate) fn set_lock(fd: c_int, kind: c_int, offset: i64) -> Result<(), Errno> {
    lock_command(fd, libc::F_OFD_SETLK, kind, offset).map(|_| ())
}

/// Returns true if another description has a lock in the way of one of this kind (F_OFD_GETLK).
///
/// # Errors
/// The kernel's error number.
pub(crate) fn is_locked(fd: c_int, kind: c_int, offset: i64) -> Result<bool, Errno> {
    lock_command(fd, libc::F_OFD_GETLK, kind, offset).map(|found| found != libc::F_UNLCK)
}

/// Calls fcntl(2) with a lock on one byte, and returns the kind of lock that the kernel leaves in the structure.
fn lock_command(fd: c_int, command: c_int, kind: c_int, offset: i64) -> Result<c_int, Errno> {
    let mut lock = libc::flock {
        l_type: kind as i16,
        l_whence: libc::SEEK_SET as i16,
        l_start: offset,
        l_len: 1,
        l_pid: 0,
    };
    let arguments = [fd as usize, command as usize, (&raw mut lock) as usize, 0, 0, 0];
    // SAFETY: both commands take a structure of this type, which is a local variable.
    answer(unsafe { call(libc::SYS_fcntl as usize, arguments) })?;
    Ok(lock.l_type.into())
}

/// Calls pread(2).
///
/// # Errors
/// The kernel's error number.
///
/// # Safety
/// `to` is writable for `length` bytes, and nobody holds a reference to them.
pub unsafe fn read_at(fd: c_int, to: *mut u8, length: usize, offset: u64) -> Result<usize, Errno> {
    // SAFETY: the caller promises the memory.
    answer(unsafe {
        call(libc::SYS_pread64 as usize, [fd as usize, to as usize, length, offset as usize, 0, 0])
    })
}

/// Writes all bytes at an offset.
///
/// # Errors
/// The kernel's error number; EIO if the log file ends.
pub fn write_all_at(fd: c_int, mut bytes: &[u8], mut offset: u64) -> Result<(), Errno> {
    while !bytes.is_empty() {
        let arguments = [fd as usize, bytes.as_ptr() as usize, bytes.len(), offset as usize, 0, 0];
        // SAFETY: the kernel reads the bytes, whose length is passed along.
        match answer(unsafe { call(libc::SYS_pwrite64 as usize, arguments) }) {
            Ok(0) => return Err(libc::EIO),
            Ok(written) => {
                bytes = &bytes[written..];
                offset += written as u64;
            }
            Err(libc::EINTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Maps a file shared, for reading and writing.
///
/// # Errors
/// The kernel's error number.
pub fn map_shared(fd: c_int, length: usize) -> Result<*mut u8, Errno> {
    map(length, libc::MAP_SHARED, fd, libc::PROT_READ | libc::PROT_WRITE)
}

/// Maps the first page of a file without any access, to keep its open file description.
///
/// # Errors
/// The kernel's error number.
pub(crate) fn map_reserved(fd: c_int) -> Result<*mut u8, Errno> {
    map(4096, libc::MAP_SHARED, fd, libc::PROT_NONE)
}

/// Maps private memory.
///
/// # Errors
/// The kernel's error number.
pub fn map_private(length: usize) -> Result<*mut u8, Errno> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    map(length, flags, -1, libc::PROT_READ | libc::PROT_WRITE)
}

/// Maps a file shared, for reading.
///
/// # Errors
/// The kernel's error number.
pub(crate) fn map_readable(fd: c_int, length: usize) -> Result<*mut u8, Errno> {
    map(length, libc::MAP_SHARED, fd, libc::PROT_READ)
}

/// Reserves addresses at which nothing can be read or written.
///
/// # Errors
/// The kernel's error number.
pub(crate) fn map_nothing(length: usize) -> Result<*mut u8, Errno> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    map(length, flags, -1, libc::PROT_NONE)
}

/// Maps a file shared at an address, for reading and writing.
///
/// # Errors
/// The kernel's error number.
///
/// # Safety
/// The caller has reserved the addresses for it ([`map_nothing`]).
pub(crate) unsafe fn map_shared_at(fd: c_int, at: *mut u8, length: usize) -> Result<(), Errno> {
    let (flags, protection) = (libc::MAP_SHARED | libc::MAP_FIXED, libc::PROT_READ | libc::PROT_WRITE);
    let arguments = [at as usize, length, protection as usize, flags as usize, fd as usize, 0];
    // SAFETY: the caller owns the addresses.
    answer(unsafe { call(libc::SYS_mmap as usize, arguments) }).map(|_| ())
}

fn map(length: usize, flags: c_int, fd: c_int, protection: c_int) -> Result<*mut u8, Errno> {
    let arguments = [0, length, protection as usize, flags as usize, fd as isize as usize, 0];
    // SAFETY: the kernel chooses the address, so no other mapping is replaced.
    answer(unsafe { call(libc::SYS_mmap as usize, arguments) }).map(|address| address as *mut u8)
}

/// Connects to the Unix socket at a path.
///
/// # Errors
/// The kernel's error number; ENAMETOOLONG for a long path.
pub(crate) fn connect(path: &CStr) -> Result<c_int, Errno> {
    // SAFETY: all zeroes are a valid address.
    let mut address: libc::sockaddr_un = unsafe { core::mem::zeroed() };
    let path = path.to_bytes_with_nul();
    if path.len() > address.sun_path.len() {
        return Err(libc::ENAMETOOLONG);
    }
    address.sun_family = libc::AF_UNIX as u16;
    for (to, from) in address.sun_path.iter_mut().zip(path) {
        *to = *from as core::ffi::c_char;
    }
    let kind = (libc::SOCK_STREAM | libc::SOCK_CLOEXEC) as usize;
    // SAFETY: the call has integer arguments only.
    let fd = answer(unsafe { call(libc::SYS_socket as usize, [libc::AF_UNIX as usize, kind, 0, 0, 0, 0]) })?;
    let length = size_of_val(&address.sun_family) + path.len();
    // SAFETY: the address is a local variable, and has the length that is passed along.
    let connected =
        unsafe { call(libc::SYS_connect as usize, [fd, (&raw const address) as usize, length, 0, 0, 0]) };
    match answer(connected) {
        Ok(_) => Ok(fd as c_int),
        Err(error) => {
            close(fd as c_int);
            Err(error)
        }
    }
}

/// Sends a short message over a socket.
///
/// # Errors
/// The kernel's error number; EIO if not all of it was sent.
pub(crate) fn send(socket: c_int, bytes: &[u8]) -> Result<(), Errno> {
    let arguments =
        [socket as usize, bytes.as_ptr() as usize, bytes.len(), libc::MSG_NOSIGNAL as usize, 0, 0];
    // SAFETY: the kernel reads the bytes, whose length is passed along.
    let sent = answer(unsafe { call(libc::SYS_sendto as usize, arguments) })?;
    if sent == bytes.len() { Ok(()) } else { Err(libc::EIO) }
}

/// Receives bytes from a socket until `to` is full.
///
/// # Errors
/// The kernel's error number; EPIPE if the other side closes the socket before.
pub(crate) fn receive_exactly(socket: c_int, mut to: &mut [u8]) -> Result<(), Errno> {
    while !to.is_empty() {
        let arguments = [socket as usize, to.as_mut_ptr() as usize, to.len(), 0, 0, 0];
        // SAFETY: the kernel writes at most as many bytes as `to` has.
        match answer(unsafe { call(libc::SYS_recvfrom as usize, arguments) }) {
            Ok(0) => return Err(libc::EPIPE),
            Ok(count) => to = &mut to[count..],
            Err(libc::EINTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Receives one byte with the descriptors that are attached to it (SCM_RIGHTS); returns how many there are.
///
/// # Errors
/// The kernel's error number; EPIPE if the other side closes the socket.
pub(crate) fn receive_descriptors<const MAX: usize>(
    socket: c_int,
    descriptors: &mut [c_int; MAX],
) -> Result<usize, Errno> {
    /// Control data: a header, and room for descriptors behind it.
    #[repr(C)]
    struct Control<const MAX: usize> {
        header: libc::cmsghdr,
        descriptors: [c_int; MAX],
    }
    let mut byte = 0u8;
    let mut part = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    // SAFETY: all zeroes are valid for both structures.
    let (mut control, mut message): (Control<MAX>, libc::msghdr) = unsafe { core::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = (&raw mut control).cast();
    message.msg_controllen = size_of::<Control<MAX>>();
    let received = loop {
        let arguments =
            [socket as usize, (&raw mut message) as usize, libc::MSG_CMSG_CLOEXEC as usize, 0, 0, 0];
        // SAFETY: the message names local variables with their sizes.
        match answer(unsafe { call(libc::SYS_recvmsg as usize, arguments) }) {
            Err(libc::EINTR) => {}
            received => break received?,
        }
    };
    if received == 0 {
        return Err(libc::EPIPE);
    }
    let has_rights = message.msg_controllen >= size_of::<libc::cmsghdr>()
        && control.header.cmsg_level == libc::SOL_SOCKET
        && control.header.cmsg_type == libc::SCM_RIGHTS;
    let bytes = control.header.cmsg_len.saturating_sub(size_of::<libc::cmsghdr>());
    let count = if has_rights { (bytes / size_of::<c_int>()).min(MAX) } else { 0 };
    descriptors[..count].copy_from_slice(&control.descriptors[..count]);
    Ok(count)
}

/// Waits until `word` is no longer `value`, somebody wakes, or `nanoseconds` (less than a second) have passed.
pub fn wait(word: &AtomicU32, value: u32, nanoseconds: u32) {
    let limit = [0i64, i64::from(nanoseconds)];
    let arguments = [
        word.as_ptr() as usize,
        libc::FUTEX_WAIT as usize,
        value as usize,
        (&raw const limit) as usize,
        0,
        0,
    ];
    // SAFETY: the word and the limit are readable; a futex of shared memory.
    unsafe { call(libc::SYS_futex as usize, arguments) };
}

/// Wakes all that wait for `word`.
pub fn wake(word: &AtomicU32) {
    let arguments = [word.as_ptr() as usize, libc::FUTEX_WAKE as usize, i32::MAX as usize, 0, 0, 0];
    // SAFETY: the word is readable; a futex of shared memory.
    unsafe { call(libc::SYS_futex as usize, arguments) };
}

/// Keeps all signals away from the calling thread until it is dropped, so that no handler runs while a lock is held.
pub struct Undisturbed(u64);

impl Undisturbed {
    /// Blocks all signals of the calling thread.
    pub fn begin() -> Undisturbed {
        Undisturbed(change_mask(libc::SIG_BLOCK, u64::MAX))
    }
}

impl Drop for Undisturbed {
    fn drop(&mut self) {
        change_mask(libc::SIG_SETMASK, self.0);
    }
}

fn change_mask(how: c_int, set: u64) -> u64 {
    let mut before = 0u64;
    let arguments = [how as usize, (&raw const set) as usize, (&raw mut before) as usize, 8, 0, 0];
    // SAFETY: both sets have the eight bytes that the size says.
    unsafe { call(libc::SYS_rt_sigprocmask as usize, arguments) };
    before
}
