//! Somebody else, for attacks across users.

use std::thread;

/// Does something as another user, which need not exist and is in no group but its own: in a thread of its own, since the
/// rest of this process stays who it is. None: this process is not root's, and cannot be somebody else.
pub fn as_user<T: Send>(uid: u32, act: impl FnOnce() -> T + Send) -> Option<T> {
    // SAFETY: a question about this process.
    if unsafe { libc::geteuid() } != 0 {
        return None;
    }
    let become_and_act = || {
        // SAFETY: the kernel's own calls change the caller's thread alone, and are given numbers, and a list that is empty.
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
