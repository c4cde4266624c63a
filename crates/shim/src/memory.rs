//! Memory that this process may use, by its control group and the machine (cgroups(7)).
//!
//! Read once, when the first file is mapped. A file that cannot be read sets no limit.

use bywash_file::sys;

/// Folder at which Linux systems mount the control groups.
const ROOT: &[u8] = b"/sys/fs/cgroup";
const PATH_BYTES: usize = 512;
/// Groups above the process's own that are looked at.
const DEPTH_MAX: usize = 16;

/// Bytes of memory that the process may use.
pub fn allowance() -> u64 {
    let mut text = [0u8; 2048];
    let groups = read(b"/proc/self/cgroup\0", &mut text);
    groups.split(|byte| *byte == b'\n').filter_map(limit_of).min().unwrap_or(u64::MAX).min(machine())
}

/// The limit that a line of /proc/self/cgroup leads to: `0::/path` (version 2) or `N:...memory...:/path`.
fn limit_of(line: &[u8]) -> Option<u64> {
    let mut parts = line.splitn(3, |byte| *byte == b':');
    let (number, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
    if controllers.split(|byte| *byte == b',').any(|name| name == b"memory") {
        return lowest(b"/memory", path, b"/memory.limit_in_bytes\0");
    }
    if number == b"0" && controllers.is_empty() { lowest(b"", path, b"/memory.max\0") } else { None }
}

/// The lowest limit of a group and of those above it.
fn lowest(hierarchy: &[u8], group: &[u8], file: &[u8]) -> Option<u64> {
    let mut group = group.strip_suffix(b"/").unwrap_or(group);
    let mut least = None;
    for _ in 0..DEPTH_MAX {
        let mut path = [0u8; PATH_BYTES];
        let mut length = 0;
        for part in [ROOT, hierarchy, group, file] {
            path.get_mut(length..length + part.len())?.copy_from_slice(part);
            length += part.len();
        }
        let mut text = [0u8; 32];
        let limit = number(read(&path[..length], &mut text));
        least = [least, limit].into_iter().flatten().min();
        match group.iter().rposition(|byte| *byte == b'/') {
            Some(end) => group = &group[..end],
            None => break,
        }
    }
    least
}

/// A limit in bytes; `max` is none.
fn number(text: &[u8]) -> Option<u64> {
    core::str::from_utf8(text).ok()?.trim().parse().ok()
}

/// The beginning of a file, whose path ends with a zero byte; nothing if it cannot be read.
fn read<'a>(path: &[u8], to: &'a mut [u8]) -> &'a [u8] {
    const AT_FDCWD: usize = libc::AT_FDCWD as usize;
    const FLAGS: usize = (libc::O_RDONLY | libc::O_CLOEXEC) as usize;
    debug_assert!(path.ends_with(&[0]));
    // SAFETY: the path ends with a zero byte, and `to` has the length that is passed; the descriptor is ours.
    let length = unsafe {
        let fd = sys::call(libc::SYS_openat as usize, [AT_FDCWD, path.as_ptr() as usize, FLAGS, 0, 0, 0]);
        if fd < 0 {
            return b"";
        }
        let length =
            sys::call(libc::SYS_read as usize, [fd as usize, to.as_mut_ptr() as usize, to.len(), 0, 0, 0]);
        sys::call(libc::SYS_close as usize, [fd as usize, 0, 0, 0, 0, 0]);
        length
    };
    &to[..usize::try_from(length).unwrap_or(0)]
}

fn machine() -> u64 {
    // SAFETY: zeroes are a valid value, which the call overwrites.
    unsafe {
        let mut info: libc::sysinfo = core::mem::zeroed();
        libc::sysinfo(&raw mut info);
        info.totalram * u64::from(info.mem_unit)
    }
}
