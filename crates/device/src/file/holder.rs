//! User on whose behalf a passed file is written: file systems ask the thread that writes, and not the descriptor, whether
//! it may go into their reserve and past quotas.
//!
//! Invariant: only threads made for that purpose become a holder's, and they stay so until they end. Only the identity for
//! files changes (fsuid, fsgid, groups); the real, effective and saved user stay the process's own, or a holder could send
//! the thread signals and trace it.

use crate::error::Error;
use rustix::io::Errno;
use rustix::thread::{CapabilitySet, CapabilitySets, Gid, capabilities, set_capabilities, set_thread_groups};
use std::thread;

/// User, group and further groups whose rights count where a file is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Number of the user.
    pub uid: u32,
    /// Number of the user's group.
    pub gid: u32,
    /// Numbers of the further groups that the user is in.
    pub groups: Vec<u32>,
}

/// Capabilities that a thread needs to become another user's.
const CHANGE_USER: CapabilitySet = CapabilitySet::SETUID.union(CapabilitySet::SETGID);
/// Argument with which setfsuid(2) and setfsgid(2) change nothing and return what is set.
const UNCHANGED: u32 = u32::MAX;

impl Holder {
    /// Makes the calling thread write files as the holder, without any capability. In a process that may not change users
    /// the thread keeps the process's own, which has no more rights than any ordinary user.
    ///
    /// # Errors
    /// The kernel refuses what the thread has the capabilities for.
    pub(super) fn take_over_thread(&self) -> Result<(), Error> {
        let failed = |error: Errno| Error::io(format!("write as user {}", self.uid), error);
        let has = capabilities(None).map_err(failed)?.effective;
        if has.contains(CHANGE_USER) {
            let groups: Vec<Gid> = self.groups.iter().map(|group| Gid::from_raw(*group)).collect();
            // By the system call itself: the C library's function changes all threads.
            set_thread_groups(&groups).map_err(failed)?;
            // SAFETY: numbers alone; both are the calling thread's, in the C library's functions too.
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

    /// Calls a function in a thread of its own that has become the holder's.
    ///
    /// # Errors
    /// Those of [`Holder::take_over_thread`], and that there is no thread.
    pub(super) fn call<T: Send>(&self, call: impl FnOnce() -> T + Send) -> Result<T, Error> {
        thread::scope(|scope| {
            let thread = thread::Builder::new()
                .name("holder".into())
                .spawn_scoped(scope, || self.take_over_thread().map(|()| call()))
                .map_err(|error| Error::io("start a thread", error))?;
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The line of a thread's status behind a name.
    fn of_thread(name: &str) -> String {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        status.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned()
    }

    #[test]
    fn a_thread_has_the_holders_rights_and_no_others_change() {
        let holder = Holder { uid: 4711, gid: 4712, groups: vec![4713, 4714] };
        let before = ["Uid:", "Gid:", "Groups:", "CapEff:"].map(of_thread);
        let there = holder.call(|| ["Uid:", "Gid:", "Groups:", "CapEff:", "CapPrm:"].map(of_thread)).unwrap();
        let [user, group, groups, effective, permitted] = there;
        assert_eq!((effective.as_str(), permitted.as_str()), ("0000000000000000", "0000000000000000"));
        if rustix::process::geteuid().is_root() {
            // The real, effective and saved ones, and the one for files.
            assert_eq!((user.as_str(), group.as_str()), ("0\t0\t0\t4711", "0\t0\t0\t4712"));
            assert_eq!(groups, "4713 4714");
        } else {
            assert_eq!((user, group, groups), (before[0].clone(), before[1].clone(), before[2].clone()));
        }
        assert_eq!(["Uid:", "Gid:", "Groups:", "CapEff:"].map(of_thread), before);
    }
}
