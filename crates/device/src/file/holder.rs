//! User whose rights count when a passed file is written. File systems check the writing thread, and not the
//! descriptor, when a write uses their reserved blocks or exceeds a quota.
//!
//! Invariant: only threads made for that purpose take on a holder's identity, and they keep it until they
//! end. Only the file system identity changes (fsuid, fsgid, groups). The real, effective and saved user stay
//! the process's own; otherwise the holder could send the thread signals and trace it.

use crate::error::Error;
use rustix::io::Errno;
use rustix::thread::{CapabilitySet, CapabilitySets, Gid, capabilities, set_capabilities, set_thread_groups};
use std::thread;

/// User, group and supplementary groups whose rights count when a file is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileUser {
    /// User ID.
    pub uid: u32,
    /// Group ID.
    pub gid: u32,
    /// Supplementary group IDs.
    pub groups: Vec<u32>,
}

/// Capabilities that a thread needs in order to change its file system user and its groups.
const CHANGE_USER: CapabilitySet = CapabilitySet::SETUID.union(CapabilitySet::SETGID);
/// Argument with which setfsuid(2) and setfsgid(2) change nothing and return the current value.
const UNCHANGED: u32 = u32::MAX;

impl FileUser {
    /// Gives the calling thread the holder's file system identity, and drops all its capabilities. If the
    /// process may not change users, the thread keeps the process's user, and only loses its capabilities.
    ///
    /// # Errors
    /// [`Error::Io`] if a system call fails, or if the kernel did not change the identity although the thread
    /// has the capabilities.
    pub(super) fn assume(&self) -> Result<(), Error> {
        let failed = |error: Errno| Error::io(format!("write as user {}", self.uid), error);
        let has = capabilities(None).map_err(failed)?.effective;
        if has.contains(CHANGE_USER) {
            let groups: Vec<Gid> = self.groups.iter().map(|group| Gid::from_raw(*group)).collect();
            // The system call itself changes this thread only; the C library's setgroups(3) would change all
            // threads.
            set_thread_groups(&groups).map_err(failed)?;
            // SAFETY: the arguments are plain numbers; the C library's functions, too, change the calling
            // thread only.
            let is_set = unsafe {
                libc::setfsgid(self.gid);
                libc::setfsuid(self.uid);
                (libc::setfsgid(UNCHANGED) as u32, libc::setfsuid(UNCHANGED) as u32) == (self.gid, self.uid)
            };
            if !is_set {
                return Err(failed(Errno::INVAL));
            }
        }
        let none = CapabilitySet::empty();
        set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })
            .map_err(failed)
    }

    /// Calls a function on a new thread that has the holder's identity.
    ///
    /// # Errors
    /// Same as [`FileUser::assume`]; also [`Error::Io`] if the thread cannot be started.
    pub(super) fn call<T: Send>(&self, call: impl FnOnce() -> T + Send) -> Result<T, Error> {
        thread::scope(|scope| {
            let thread = thread::Builder::new()
                .name("holder".into())
                .spawn_scoped(scope, || self.assume().map(|()| call()))
                .map_err(|error| Error::io("start a thread", error))?;
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the rest of the line that begins with `name` in the calling thread's /proc status.
    fn of_thread(name: &str) -> String {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        status.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned()
    }

    #[test]
    fn a_thread_has_the_holders_rights_and_no_others_change() {
        let holder = FileUser { uid: 4711, gid: 4712, groups: vec![4713, 4714] };
        let before = ["Uid:", "Gid:", "Groups:", "CapEff:"].map(of_thread);
        let there = holder.call(|| ["Uid:", "Gid:", "Groups:", "CapEff:", "CapPrm:"].map(of_thread)).unwrap();
        let [user, group, groups, effective, permitted] = there;
        assert_eq!((effective.as_str(), permitted.as_str()), ("0000000000000000", "0000000000000000"));
        if rustix::process::geteuid().is_root() {
            // The real, effective and saved IDs, and the file system ID.
            assert_eq!((user.as_str(), group.as_str()), ("0\t0\t0\t4711", "0\t0\t0\t4712"));
            assert_eq!(groups, "4713 4714");
        } else {
            assert_eq!((user, group, groups), (before[0].clone(), before[1].clone(), before[2].clone()));
        }
        assert_eq!(["Uid:", "Gid:", "Groups:", "CapEff:"].map(of_thread), before);
    }
}
