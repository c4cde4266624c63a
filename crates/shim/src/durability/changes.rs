//! Changes of a file that notes do not tell. Replay would write older records over them, so a file with live records is
//! made durable and its records dead before the change, and its next sync is the kernel's.

use super::descriptors::{self, Target};
use super::{kernel_fsync, may_write_log};
use bywash_log::commit::Log;
use bywash_log::join::CLAIM;
#[cfg(feature = "mutants")]
use bywash_log::mutants;
use bywash_log::robust::Locked;
use bywash_log::shared::Entry;
use bywash_log::sys::{self, Errno, Undisturbed};
use core::ffi::{c_char, c_int};
use core::sync::atomic::Ordering::{Acquire, Relaxed};

/// Time between a truncation and its log, in ns, in builds with faults.
#[cfg(feature = "mutants")]
const TRUNCATION_LATE_NS: u32 = 20_000_000;

/// Change of a file that has begun: the file's lock, held until the change was made. Dropped, it makes the next sync the
/// kernel's.
pub struct Change {
    entry: &'static Entry,
    lock: Option<Locked<'static>>,
    /// Dropped behind the lock.
    _undisturbed: Undisturbed,
}

impl Drop for Change {
    fn drop(&mut self) {
        self.entry.want_kernel();
    }
}

impl Change {
    /// Begins a change of the file of `entry`, to which `fd` leads.
    ///
    /// # Errors
    /// EIO or another error number: the file could not be made durable, so it must not be changed.
    pub fn begin(log: &Log, entry: &'static Entry, fd: c_int) -> Result<Change, Errno> {
        let undisturbed = Undisturbed::begin();
        let begun = if may_write_log(log) || entry.oldest.load(Relaxed) == 0 {
            log.begin_change(entry, || kernel_fsync(fd) == 0)
        } else {
            Err(libc::EROFS)
        };
        let lock = match begun {
            Ok(lock) => lock,
            Err(_) => Some(unclaim(log, entry, fd)?),
        };
        Ok(Change { entry, lock, _undisturbed: undisturbed })
    }

    /// Begins a change of the file of a descriptor; `None` if it has no records in a log.
    ///
    /// # Errors
    /// Those of [`Change::begin`].
    pub fn of_descriptor(fd: c_int) -> Result<Option<Change>, Errno> {
        let Some(log) = super::log() else { return Ok(None) };
        let Some(entry) = descriptors::look(log, fd).entry else { return Ok(None) };
        Change::begin(log, entry, fd).map(Some)
    }

    /// Begins a change of the file at a path, with flags of statx(2); `None` if it has no records in a log.
    ///
    /// # Errors
    /// Those of [`Change::begin`], and those of opening the file.
    ///
    /// # Safety
    /// If the path is readable, it is a C string.
    pub unsafe fn of_path(at: c_int, path: *const c_char, flags: c_int) -> Result<Option<Change>, Errno> {
        let Some(log) = super::log() else { return Ok(None) };
        // SAFETY: the caller promises the path.
        let Some(named) = (unsafe { Named::find(log, at, path, flags) })? else { return Ok(None) };
        Change::begin(log, named.entry, named.fd).map(Some)
    }

    /// Makes every sync of the file the kernel's for good.
    pub fn for_good(&self) {
        self.entry.want_kernel_for_good();
    }

    /// Lets the file leave the log, since it is no longer where its identity says.
    pub fn leave(&self, log: &Log) {
        let left = self.lock.as_ref().map(|lock| log.leave(lock, self.entry));
        if left != Some(Ok(())) {
            // The number stays the file's, but no record of it will be live.
            self.for_good();
        }
    }
}

impl Change {
    /// Gives up the entry of the file, which has left the log and has no name any more.
    pub fn give_up(mut self, log: &Log) {
        if let Some(lock) = self.lock.take() {
            log.give_up(lock, self.entry);
        }
    }
}

/// Makes the records of a file dead without a mark, because none can be written: recovery refuses a file that no log claims.
/// Returns the file's lock, under which it was made durable; its syncs are the kernel's for good.
///
/// # Errors
/// EIO if the file is not durable.
pub fn unclaim(log: &Log, entry: &'static Entry, fd: c_int) -> Result<Locked<'static>, Errno> {
    let lock = log.lock_entry(entry).ok_or(libc::EDEADLK)?;
    entry.want_kernel_for_good();
    sys::remove_attribute(fd, CLAIM).map_err(|_| libc::EIO)?;
    if kernel_fsync(fd) == 0 { Ok(lock) } else { Err(libc::EIO) }
}

/// File of the log that a path leads to, with a descriptor of it.
pub struct Named {
    /// Entry of the file.
    pub entry: &'static Entry,
    /// Descriptor of the file.
    pub fd: c_int,
    is_opened_here: bool,
}

impl Named {
    /// Finds the file; `None` if it has no entry.
    ///
    /// # Errors
    /// Those of opening the file.
    ///
    /// # Safety
    /// If the path is readable, it is a C string.
    pub unsafe fn find(
        log: &Log,
        at: c_int,
        path: *const c_char,
        flags: c_int,
    ) -> Result<Option<Named>, Errno> {
        // SAFETY: the caller promises the path. If it leads nowhere, the call that follows reports it.
        let Ok(key) = (unsafe { sys::identity_at(at, path, flags) }) else { return Ok(None) };
        let Some(entry) = log.shared().find(key) else { return Ok(None) };
        // Closing a descriptor takes the process's locks of the file away (fcntl(2), F_SETLK). So one is opened only if the
        // process has none; without one it has no locks either.
        if let Some(fd) = descriptors::leading_to(log, entry).or_else(|| any_descriptor(key)) {
            return Ok(Some(Named { entry, fd, is_opened_here: false }));
        }
        let no_follow = if flags & libc::AT_SYMLINK_NOFOLLOW != 0 { libc::O_NOFOLLOW } else { 0 };
        let open = |access: c_int| {
            let how = access | no_follow | libc::O_CLOEXEC | libc::O_NONBLOCK;
            let arguments = [at as isize as usize, path as usize, how as usize, 0, 0, 0];
            // SAFETY: the caller promises the path.
            unsafe { bywash_file::sys::call(libc::SYS_openat as usize, arguments) }
        };
        let fd = match open(libc::O_RDONLY) {
            error if error < 0 => open(libc::O_WRONLY),
            fd => fd,
        };
        if fd < 0 {
            return Err(-fd as Errno);
        }
        let fd = fd as c_int;
        let named = Named { entry, fd, is_opened_here: true };
        // The name may lead to another file meanwhile.
        if sys::identity(fd) == Ok(key) { Ok(Some(named)) } else { Err(libc::ESTALE) }
    }

    /// Returns true if the file has lost its last name.
    pub fn is_unlinked(&self) -> bool {
        sys::status(self.fd).is_ok_and(|status| status.links == 0)
    }
}

impl Drop for Named {
    fn drop(&mut self) {
        if self.is_opened_here {
            sys::close(self.fd);
        }
    }
}

/// Returns a descriptor of this process, noted or not, that leads to a file and can be synced. Descriptors are looked at up
/// to the highest that was noted, and some beyond.
fn any_descriptor(key: (u64, u64, u64)) -> Option<c_int> {
    const BEYOND: c_int = 16;
    let highest = descriptors::known().last().unwrap_or(0);
    (0..=highest + BEYOND).find(|fd| {
        sys::identity(*fd) == Ok(key) && bywash_file::sys::status_flags(*fd) & libc::O_PATH as isize == 0
    })
}

/// Lets every file leave the log that lies on the file system of a folder, which gets another name with all that is below
/// it. The log does not know which files those are.
pub fn leave_all(log: &Log, folder: c_int) {
    let Ok(device) = sys::status(folder).map(|status| status.device) else { return };
    let is_joined =
        |entry: &&'static Entry| entry.slot.load(Acquire) != 0 && entry.key[0].load(Relaxed) == device;
    for entry in log.shared().entries().iter().filter(is_joined) {
        let _undisturbed = Undisturbed::begin();
        let sync = || {
            // SAFETY: the call has an integer argument only.
            unsafe {
                bywash_file::sys::call(libc::SYS_syncfs as usize, [folder as usize, 0, 0, 0, 0, 0]) == 0
            }
        };
        let left = match log.begin_change(entry, sync) {
            Ok(Some(lock)) => log.leave(&lock, entry),
            Ok(None) => Ok(()),
            Err(error) => Err(error),
        };
        if left.is_err() {
            // Recovery will ask for the file, if it has live records.
            entry.want_kernel_for_good();
        }
    }
}

/// Demands that the next sync of the file of a descriptor is the kernel's.
pub fn want_kernel(fd: c_int) {
    if let Some(log) = super::log()
        && let Some(entry) = descriptors::look(log, fd).entry
    {
        entry.want_kernel();
    }
}

/// Demands that the next sync of the file at a path is the kernel's, with flags of statx(2).
///
/// # Safety
/// If the path is readable, it is a C string.
pub unsafe fn want_kernel_at(at: c_int, path: *const c_char, flags: c_int) {
    let Some(log) = super::log() else { return };
    // SAFETY: the caller promises the path.
    let key = unsafe { sys::identity_at(at, path, flags) };
    if let Some(entry) = key.ok().and_then(|key| log.shared().find(key)) {
        entry.want_kernel();
    }
}

/// Makes a change of the file of a descriptor by `kernel`.
#[inline]
pub fn changing<T: From<i8>>(fd: c_int, kernel: impl FnOnce() -> T) -> T {
    if super::log().is_none() {
        return kernel();
    }
    #[cfg(feature = "mutants")]
    if mutants::is_chosen(mutants::Mutant::TruncationLate) {
        let result = kernel();
        mutants::pause(TRUNCATION_LATE_NS);
        return Change::of_descriptor(fd).map_or_else(super::failed, |_| result);
    }
    match Change::of_descriptor(fd) {
        Err(error) => super::failed(error),
        Ok(change) => {
            let result = kernel();
            if change.is_none() {
                changed_late(fd);
            }
            result
        }
    }
}

/// Makes a change of the file at a path by `kernel`; flags are those of statx(2).
///
/// # Safety
/// If the path is readable, it is a C string.
#[inline]
pub unsafe fn changing_at<T: From<i8>>(
    at: c_int,
    path: *const c_char,
    flags: c_int,
    kernel: impl FnOnce() -> T,
) -> T {
    if super::log().is_none() {
        return kernel();
    }
    // SAFETY: the caller promises the path.
    match unsafe { Change::of_path(at, path, flags) } {
        Err(error) => super::failed(error),
        Ok(_change) => kernel(),
    }
}

/// Brings bytes into the file of a descriptor by `kernel`, which may wait for whoever sends them.
#[inline]
pub fn filling<T: From<i8>>(fd: c_int, kernel: impl FnOnce() -> T) -> T {
    if super::log().is_none() {
        return kernel();
    }
    if let Err(error) = Change::of_descriptor(fd) {
        return super::failed(error);
    }
    super::unseen::durable_by_themselves(fd);
    let result = kernel();
    want_kernel(fd);
    result
}

/// Makes the records dead that came up during a change of a file that had no entry when it began.
fn changed_late(fd: c_int) {
    if let Some(log) = super::log()
        && let Target { entry: Some(entry), .. } = descriptors::look(log, fd)
    {
        entry.want_kernel();
        // If this fails, so does the next sync.
        drop(Change::begin(log, entry, fd));
    }
}
