//! Greatest amount of memory that this process may use, by its control groups and the machine (cgroups(7)).
//!
//! `bywash_file` asks once, before the limit on all mappings is first applied. A limit that cannot be read
//! counts as none.

use bywash_file::sys;

/// Directory at which the control groups are mounted.
const ROOT: &[u8] = b"/sys/fs/cgroup";
/// Greatest length of a path to a limit, in bytes.
const PATH_BYTES: usize = 512;
/// Number of groups that are read, from the process's own upwards.
const DEPTH_MAX: usize = 16;

/// Returns the number of bytes of memory that the process may use.
pub fn allowance() -> u64 {
    let mut text = [0u8; 2048];
    let groups = read(b"/proc/self/cgroup\0", &mut text);
    groups.split(|byte| *byte == b'\n').filter_map(limit_of).min().unwrap_or(u64::MAX).min(machine())
}

/// Returns the limit of a group, in bytes, that a line of /proc/self/cgroup names: `0::/path` (version 2) or
/// `N:...memory...:/path`.
fn limit_of(line: &[u8]) -> Option<u64> {
    let mut parts = line.splitn(3, |byte| *byte == b':');
    let (number, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
    if controllers.split(|byte| *byte == b',').any(|name| name == b"memory") {
        return lowest(b"/memory", path, b"/memory.limit_in_bytes\0");
    }
    if number == b"0" && controllers.is_empty() { lowest(b"", path, b"/memory.max\0") } else { None }
}

/// Returns the lowest limit of a group and of the groups above it, in bytes.
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

/// Parses a limit in bytes; `None` for `max`, which means no limit.
fn number(text: &[u8]) -> Option<u64> {
    core::str::from_utf8(text).ok()?.trim().parse().ok()
}

/// Reads the beginning of a file, whose path ends with a zero byte; returns nothing if that fails.
fn read<'a>(path: &[u8], to: &'a mut [u8]) -> &'a [u8] {
    const AT_FDCWD: usize = libc::AT_FDCWD as usize;
    const FLAGS: usize = (libc::O_RDONLY | libc::O_CLOEXEC) as usize;
    debug_assert!(path.ends_with(&[0]));
    // SAFETY: the path ends with a zero byte, the length of `to` is passed along, and the descriptor is
    // closed here.
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
    // SAFETY: all zeroes are a valid `sysinfo`, which the call overwrites.
    unsafe {
        let mut info: libc::sysinfo = core::mem::zeroed();
        libc::sysinfo(&raw mut info);
        info.totalram * u64::from(info.mem_unit)
    }
}
