//! Table of system calls: number, name and handler.

use super::{Caller, Failure, Served, Stop, System};
use crate::errno::Errno;

/// Handler of a call.
type Handler = fn(&mut System, &Caller) -> Served;

/// System call.
struct Row {
    /// Number (`asm-generic/unistd.h`, as RISC-V has it).
    number: u64,
    /// Name.
    name: &'static str,
    /// Handler; `None` for a call that is not served.
    handler: Option<Handler>,
}

/// Serves a call by its row.
pub(super) fn serve(system: &mut System, caller: &Caller) -> Served {
    match row(caller.number) {
        Some(Row { handler: Some(handler), .. }) => handler(system, caller),
        found => Err(Stop::Failed(Failure::UnknownCall {
            number: caller.number,
            name: found.map_or("unknown", |row| row.name),
            function: system.function_of(caller.thread),
        })),
    }
}

/// Returns the name of a system call of RISC-V Linux by its number; `unknown` for one that is not in the table.
pub fn call_name(number: u64) -> &'static str {
    row(number).map_or("unknown", |row| row.name)
}

/// Returns whether a system call is served.
pub fn is_served(number: u64) -> bool {
    row(number).is_some_and(|row| row.handler.is_some())
}

/// Returns the row of a call.
fn row(number: u64) -> Option<&'static Row> {
    CALLS.binary_search_by_key(&number, |row| row.number).ok().and_then(|index| CALLS.get(index))
}

/// Declares the table; a row without a handler is a call that is known and not served.
macro_rules! calls {
    ($($number:literal $name:ident $(=> $handler:expr)?;)*) => {
        &[$(Row { number: $number, name: stringify!($name), handler: calls!(@ $($handler)?) }),*]
    };
    (@) => { None };
    (@ $handler:expr) => { Some($handler) };
}

/// Handler of calls that have no effect here and succeed.
fn succeed(_: &mut System, _: &Caller) -> Served {
    Ok(0)
}

/// Handler of calls that a kernel without them refuses; programs then use others.
fn absent(_: &mut System, _: &Caller) -> Served {
    Err(Errno::ENOSYS.into())
}

/// System calls in the order of their numbers.
#[rustfmt::skip]
const CALLS: &[Row] = calls! {
    0 io_setup;
    5 setxattr;
    8 getxattr => |_, _| Err(Errno::EOPNOTSUPP.into());
    9 lgetxattr => |_, _| Err(Errno::EOPNOTSUPP.into());
    10 fgetxattr => |_, _| Err(Errno::EOPNOTSUPP.into());
    17 getcwd => System::getcwd;
    19 eventfd2 => System::eventfd;
    20 epoll_create1 => System::epoll_create;
    21 epoll_ctl => System::epoll_ctl;
    22 epoll_pwait => System::epoll_pwait;
    23 dup => System::dup;
    24 dup3 => System::dup3;
    25 fcntl => System::fcntl;
    26 inotify_init1;
    29 ioctl => System::ioctl;
    32 flock => System::flock;
    33 mknodat;
    34 mkdirat => System::mkdirat;
    35 unlinkat => System::unlinkat;
    36 symlinkat => System::symlinkat;
    37 linkat => System::linkat;
    39 umount2;
    40 mount;
    43 statfs => System::statfs;
    44 fstatfs => System::fstatfs;
    45 truncate => System::truncate;
    46 ftruncate => System::ftruncate;
    47 fallocate => System::fallocate;
    48 faccessat => System::faccessat;
    49 chdir => System::chdir;
    50 fchdir => System::fchdir;
    51 chroot;
    52 fchmod => System::fchmod;
    53 fchmodat => System::fchmodat;
    54 fchownat => System::fchownat;
    55 fchown => System::fchown;
    56 openat => System::openat;
    57 close => System::close;
    59 pipe2 => System::pipe2;
    61 getdents64 => System::getdents64;
    62 lseek => System::lseek;
    63 read => System::read;
    64 write => System::write;
    65 readv => System::readv;
    66 writev => System::writev;
    67 pread64 => System::pread64;
    68 pwrite64 => System::pwrite64;
    69 preadv => System::preadv;
    70 pwritev => System::pwritev;
    71 sendfile => System::sendfile;
    72 pselect6 => System::pselect6;
    73 ppoll => System::ppoll;
    74 signalfd4;
    75 vmsplice;
    76 splice;
    77 tee;
    78 readlinkat => System::readlinkat;
    79 newfstatat => System::newfstatat;
    80 fstat => System::fstat;
    81 sync => System::sync;
    82 fsync => System::fsync;
    83 fdatasync => System::fsync;
    84 sync_file_range => System::fsync;
    85 timerfd_create => System::timerfd_create;
    86 timerfd_settime => System::timerfd_settime;
    87 timerfd_gettime => System::timerfd_gettime;
    88 utimensat => System::utimensat;
    90 capget;
    93 exit => System::exit;
    94 exit_group => System::exit_group;
    95 waitid => |_, _| Err(Errno::ECHILD.into());
    96 set_tid_address => System::set_tid_address;
    97 unshare;
    98 futex => System::futex;
    99 set_robust_list => System::set_robust_list;
    100 get_robust_list;
    101 nanosleep => System::nanosleep;
    102 getitimer => System::getitimer;
    103 setitimer => System::setitimer;
    107 timer_create;
    113 clock_gettime => System::clock_gettime;
    114 clock_getres => System::clock_getres;
    115 clock_nanosleep => System::clock_nanosleep;
    117 ptrace;
    118 sched_setparam => succeed;
    119 sched_setscheduler => succeed;
    120 sched_getscheduler => succeed;
    121 sched_getparam => System::sched_getparam;
    122 sched_setaffinity => succeed;
    123 sched_getaffinity => System::sched_getaffinity;
    124 sched_yield => System::sched_yield;
    125 sched_get_priority_max => succeed;
    126 sched_get_priority_min => succeed;
    129 kill => System::kill;
    130 tkill => System::tkill;
    131 tgkill => System::tgkill;
    132 sigaltstack => System::sigaltstack;
    133 rt_sigsuspend => System::rt_sigsuspend;
    134 rt_sigaction => System::rt_sigaction;
    135 rt_sigprocmask => System::rt_sigprocmask;
    136 rt_sigpending => System::rt_sigpending;
    137 rt_sigtimedwait => System::rt_sigtimedwait;
    138 rt_sigqueueinfo;
    139 rt_sigreturn => System::rt_sigreturn;
    140 setpriority => succeed;
    141 getpriority => |_, _| Ok(20);
    144 setgid => succeed;
    146 setuid => succeed;
    153 times => System::times;
    154 setpgid => succeed;
    155 getpgid => |_, _| Ok(1);
    156 getsid => |_, _| Ok(1);
    157 setsid => |_, _| Err(Errno::EPERM.into());
    158 getgroups => succeed;
    160 uname => System::uname;
    163 getrlimit => System::getrlimit;
    164 setrlimit => succeed;
    165 getrusage => System::getrusage;
    166 umask => System::umask;
    167 prctl => System::prctl;
    168 getcpu => System::getcpu;
    169 gettimeofday => System::gettimeofday;
    172 getpid => |_, _| Ok(1);
    173 getppid => |_, _| Ok(0);
    174 getuid => succeed;
    175 geteuid => succeed;
    176 getgid => succeed;
    177 getegid => succeed;
    178 gettid => |_, caller| Ok(caller.thread.0.into());
    179 sysinfo => System::sysinfo;
    198 socket => System::socket;
    199 socketpair => System::socketpair;
    200 bind => System::bind;
    201 listen => System::listen;
    202 accept => System::accept;
    203 connect => System::connect;
    204 getsockname => System::getsockname;
    205 getpeername => System::getpeername;
    206 sendto => System::sendto;
    207 recvfrom => System::recvfrom;
    208 setsockopt => System::setsockopt;
    209 getsockopt => System::getsockopt;
    210 shutdown => System::shutdown;
    211 sendmsg => System::sendmsg;
    212 recvmsg => System::recvmsg;
    213 readahead => succeed;
    214 brk => System::brk;
    215 munmap => System::munmap;
    216 mremap => System::mremap;
    220 clone => System::clone_thread;
    221 execve => System::execve;
    222 mmap => System::mmap;
    223 fadvise64 => succeed;
    226 mprotect => System::mprotect;
    227 msync => System::msync;
    228 mlock => succeed;
    229 munlock => succeed;
    230 mlockall => succeed;
    231 munlockall => succeed;
    232 mincore;
    233 madvise => System::madvise;
    242 accept4 => System::accept;
    243 recvmmsg;
    258 riscv_hwprobe => absent;
    259 riscv_flush_icache => succeed;
    260 wait4 => |_, _| Err(Errno::ECHILD.into());
    261 prlimit64 => System::prlimit64;
    266 clock_adjtime;
    267 syncfs => System::sync;
    269 sendmmsg;
    276 renameat2 => System::renameat2;
    277 seccomp;
    278 getrandom => System::getrandom;
    279 memfd_create;
    281 execveat => System::execve;
    283 membarrier => System::membarrier;
    285 copy_file_range => |_, _| Err(Errno::EOPNOTSUPP.into());
    286 preadv2;
    287 pwritev2;
    291 statx => System::statx;
    293 rseq => absent;
    425 io_uring_setup => absent;
    434 pidfd_open;
    435 clone3 => absent;
    436 close_range => System::close_range;
    437 openat2 => absent;
    439 faccessat2 => System::faccessat;
    441 epoll_pwait2 => absent;
    449 futex_waitv => absent;
    452 fchmodat2 => absent;
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_order_and_found_by_number() {
        assert!(CALLS.windows(2).all(|pair| pair[0].number < pair[1].number));
        assert_eq!((call_name(63), call_name(64), call_name(9999)), ("read", "write", "unknown"));
        assert!(is_served(98) && !is_served(74) && !is_served(9999));
    }
}
