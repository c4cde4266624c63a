//! Running code as another user, for attacks across users.

use std::thread;

/// Runs `act` as another user, who need not exist and has no supplementary groups, on a thread of its own;
/// the rest of the process keeps its credentials. `None`: this process is not root, and cannot change its
/// user.
pub fn as_user<T: Send>(uid: u32, act: impl FnOnce() -> T + Send) -> Option<T> {
    // SAFETY: geteuid(2) has no preconditions.
    if unsafe { libc::geteuid() } != 0 {
        return None;
    }
    let become_and_act = || {
        // SAFETY: the raw system calls change the credentials of this thread alone; their arguments are
        // numbers and an empty list.
        let refused = unsafe {
            libc::syscall(libc::SYS_setgroups, 0, std::ptr::null::<u32>()) != 0
                || libc::syscall(libc::SYS_setresgid, uid, uid, uid) != 0
                || libc::syscall(libc::SYS_setresuid, uid, uid, uid) != 0
        };
        assert!(!refused, "{}", std::io::Error::last_os_error());
        act()
    };
    thread::scope(|scope| match scope.spawn(become_and_act).join() {
        Ok(done) => Some(done),
        Err(panic) => std::panic::resume_unwind(panic),
    })
}
