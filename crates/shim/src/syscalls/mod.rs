//! `syscall`: a call that a program makes by number has the same effect as the call by name.
//!
//! One table ([`calls`]) holds the effect of each call.

mod calls;

use crate::durability::{self, changes, unseen};
use crate::processes::{self, notice_child};
use crate::{attributes, contents, data, descriptors, exec, mappings, masks, names, real, signals, start};
use bywash_file::{process, table};
use calls::Effect;
use core::ffi::{c_int, c_long, c_uint, c_void};

/// Numbers that the crate `libc` does not know yet.
const SETXATTRAT: c_long = 463;
const REMOVEXATTRAT: c_long = 466;
const FILE_SETATTR: c_long = 469;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn syscall(
    number: c_long,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> c_long {
    // SAFETY: the program keeps the contract of the system call of this number.
    let kernel = || unsafe { real::syscall(number, a, b, c, d, e, f) };
    match calls::effect(number) {
        Effect::Nothing => kernel(),
        // SAFETY: the program keeps the contract of the system call, which is that of the function.
        Effect::ByName => unsafe { by_name(number, [a, b, c, d, e, f]) }.unwrap_or_else(kernel),
        Effect::Descriptor => {
            let made = kernel();
            table::made(made as c_int);
            unseen::made(made as c_int);
            made
        }
        Effect::Pair => {
            let pair = if number == libc::SYS_socketpair { d } else { a };
            let result = kernel();
            // SAFETY: the kernel has written both descriptors if the call succeeded.
            unsafe { descriptors::made_pair(pair as *const c_int, result as c_int) };
            result
        }
        Effect::Shares => {
            const SHARES_MORE: usize = (libc::CLONE_FILES | libc::CLONE_VM) as usize;
            table::share_all();
            if number == libc::SYS_clone && a & SHARES_MORE != 0 {
                process::step_aside();
                unseen::begins_to_write_unseen();
            }
            let result = kernel();
            if result == 0 {
                // A call that forks returns 0 in the child.
                if matches!(number, libc::SYS_fork | libc::SYS_clone) && a & SHARES_MORE == 0 {
                    durability::reset_child();
                }
                notice_child();
            } else if number == libc::SYS_pidfd_getfd {
                table::made(result as c_int);
                unseen::made(result as c_int);
            }
            result
        }
        Effect::StepsAside => {
            process::step_aside();
            if number == libc::SYS_seccomp {
                durability::stop();
            } else {
                unseen::begins_to_write_unseen();
            }
            let result = kernel();
            if result == 0 {
                notice_child();
            }
            result
        }
        Effect::Mask if number == libc::SYS_rt_sigtimedwait => masks::shown(kernel),
        // SAFETY: the program keeps the contract of the system call of this number.
        Effect::Mask => unsafe { masks::by_number(number, [a, b, c, d, e, f]) }.unwrap_or_else(kernel),
    }
}

/// Runs a preparation for a call that the kernel serves by number.
fn none_behind(prepare: impl FnOnce()) -> Option<c_long> {
    prepare();
    None
}

/// Makes a call by the library's function of its name; returns `None` if the kernel must serve the call by
/// number.
///
/// # Safety
/// The arguments are those of the call of this number.
unsafe fn by_name(number: c_long, [a, b, c, d, e, f]: [usize; 6]) -> Option<c_long> {
    let fd = a as c_int;
    // The library's functions take a count as an int. A count that is no int becomes the largest, which the
    // kernel refuses.
    let count = c_int::try_from(c).unwrap_or(c_int::MAX);
    // SAFETY: the caller promises the arguments of the call of this number.
    let answer = unsafe {
        match number {
            libc::SYS_read => data::read(fd, b as *mut c_void, c) as c_long,
            libc::SYS_write => data::write(fd, b as *const c_void, c) as c_long,
            libc::SYS_pread64 => data::pread(fd, b as *mut c_void, c, d as i64) as c_long,
            libc::SYS_pwrite64 => data::pwrite(fd, b as *const c_void, c, d as i64) as c_long,
            libc::SYS_readv => data::readv(fd, b as _, count) as c_long,
            libc::SYS_writev => data::writev(fd, b as _, count) as c_long,
            libc::SYS_preadv => data::preadv(fd, b as _, count, d as i64) as c_long,
            libc::SYS_pwritev => data::pwritev(fd, b as _, count, d as i64) as c_long,
            libc::SYS_preadv2 => data::preadv2(fd, b as _, count, d as i64, f as c_int) as c_long,
            libc::SYS_pwritev2 => data::pwritev2(fd, b as _, count, d as i64, f as c_int) as c_long,
            libc::SYS_lseek => contents::lseek(fd, b as i64, c as c_int),
            libc::SYS_open => descriptors::open(a as _, b as c_int, c as u32).into(),
            libc::SYS_openat => descriptors::openat(fd, b as _, c as c_int, d as u32).into(),
            libc::SYS_creat => descriptors::creat(a as _, b as u32).into(),
            libc::SYS_memfd_create => descriptors::memfd_create(a as _, b as c_uint).into(),
            libc::SYS_close => descriptors::close(fd).into(),
            libc::SYS_close_range => descriptors::close_range(a as c_uint, b as c_uint, c as c_int).into(),
            libc::SYS_dup => descriptors::dup(fd).into(),
            libc::SYS_dup2 => descriptors::dup2(fd, b as c_int).into(),
            libc::SYS_dup3 => descriptors::dup3(fd, b as c_int, c as c_int).into(),
            libc::SYS_fcntl => descriptors::fcntl(fd, b as c_int, c).into(),
            libc::SYS_ioctl => descriptors::ioctl(fd, b as u64, c).into(),
            libc::SYS_sendmsg => descriptors::sendmsg(fd, b as _, c as c_int) as c_long,
            libc::SYS_recvmsg => descriptors::recvmsg(fd, b as _, c as c_int) as c_long,
            libc::SYS_sendmmsg => descriptors::sendmmsg(fd, b as _, c as c_uint, d as c_int).into(),
            libc::SYS_recvmmsg => descriptors::recvmmsg(fd, b as _, c as c_uint, d as c_int, e as _).into(),
            libc::SYS_ftruncate => contents::ftruncate(fd, b as i64).into(),
            libc::SYS_truncate => contents::truncate(a as _, b as i64).into(),
            libc::SYS_fallocate => contents::fallocate(fd, b as c_int, c as i64, d as i64).into(),
            libc::SYS_fadvise64 => {
                // The function returns the error, where the system call sets `errno`.
                match contents::posix_fadvise(fd, b as i64, c as i64, d as c_int) {
                    0 => 0,
                    error => {
                        *libc::__errno_location() = error;
                        -1
                    }
                }
            }
            libc::SYS_sendfile => contents::sendfile(fd, b as c_int, c as _, d) as c_long,
            libc::SYS_splice => contents::splice(fd, b as _, c as c_int, d as _, e, f as c_uint) as c_long,
            libc::SYS_copy_file_range => {
                contents::copy_file_range(fd, b as _, c as c_int, d as _, e, f as c_uint) as c_long
            }
            libc::SYS_mmap => {
                mappings::mmap(a as _, b, c as c_int, d as c_int, e as c_int, f as i64) as c_long
            }
            libc::SYS_rename => names::rename(a as _, b as _).into(),
            libc::SYS_renameat => names::renameat(fd, b as _, c as c_int, d as _).into(),
            libc::SYS_renameat2 => names::renameat2(fd, b as _, c as c_int, d as _, e as c_uint).into(),
            libc::SYS_link => names::link(a as _, b as _).into(),
            libc::SYS_linkat => names::linkat(fd, b as _, c as c_int, d as _, e as c_int).into(),
            libc::SYS_unlink => names::unlink(a as _).into(),
            libc::SYS_unlinkat => names::unlinkat(fd, b as _, c as c_int).into(),
            libc::SYS_chmod => attributes::chmod(a as _, b as u32).into(),
            libc::SYS_fchmod => attributes::fchmod(fd, b as u32).into(),
            libc::SYS_fchmodat => attributes::fchmodat(fd, b as _, c as u32, 0).into(),
            libc::SYS_fchmodat2 => attributes::fchmodat(fd, b as _, c as u32, d as c_int).into(),
            libc::SYS_chown => attributes::chown(a as _, b as u32, c as u32).into(),
            libc::SYS_lchown => attributes::lchown(a as _, b as u32, c as u32).into(),
            libc::SYS_fchown => attributes::fchown(fd, b as u32, c as u32).into(),
            libc::SYS_fchownat => attributes::fchownat(fd, b as _, c as u32, d as u32, e as c_int).into(),
            libc::SYS_setxattr => attributes::setxattr(a as _, b as _, c as _, d, e as c_int).into(),
            libc::SYS_lsetxattr => attributes::lsetxattr(a as _, b as _, c as _, d, e as c_int).into(),
            libc::SYS_fsetxattr => attributes::fsetxattr(fd, b as _, c as _, d, e as c_int).into(),
            libc::SYS_removexattr => attributes::removexattr(a as _, b as _).into(),
            libc::SYS_lremovexattr => attributes::lremovexattr(a as _, b as _).into(),
            libc::SYS_fremovexattr => attributes::fremovexattr(fd, b as _).into(),
            SETXATTRAT | REMOVEXATTRAT | FILE_SETATTR => {
                let result = real::syscall(number, a, b, c, d, e, f);
                let flags = if number == FILE_SETATTR { e } else { c } as c_int;
                changes::want_kernel_at(
                    fd,
                    b as _,
                    flags & (libc::AT_EMPTY_PATH | libc::AT_SYMLINK_NOFOLLOW),
                );
                result
            }
            libc::SYS_openat2 => descriptors::openat2(fd, b as _, c as _, d),
            libc::SYS_io_setup => return none_behind(unseen::begins_to_write_unseen),
            libc::SYS_fsync => contents::fsync(fd).into(),
            libc::SYS_fdatasync => contents::fdatasync(fd).into(),
            libc::SYS_syncfs => contents::syncfs(fd).into(),
            libc::SYS_sync => {
                contents::sync();
                0
            }
            libc::SYS_unshare => processes::unshare(a as c_int).into(),
            libc::SYS_prctl => processes::prctl(a as c_int, b, c, d, e).into(),
            libc::SYS_mlockall => processes::mlockall(a as c_int).into(),
            libc::SYS_setrlimit => processes::setrlimit(a as c_uint, b as _).into(),
            libc::SYS_prlimit64 => processes::prlimit(a as c_int, b as c_uint, c as _, d as _).into(),
            libc::SYS_execve => exec::execve(a as _, b as _, c as _).into(),
            libc::SYS_execveat => exec::execveat(fd, b as _, c as _, d as _, e as c_int).into(),
            libc::SYS_exit_group => {
                start::end();
                return None;
            }
            libc::SYS_rt_sigaction => {
                if signals::concerns(a as c_int, b) {
                    // The program sets the handler of a fault signal below the C library.
                    process::step_aside();
                    signals::withdraw();
                }
                return None;
            }
            // sync_file_range makes nothing durable, and its function would add nothing to it.
            _ => return None,
        }
    };
    Some(answer)
}
