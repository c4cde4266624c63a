//! Starts a program exactly as this process was started, takes signals one by one, and dies of a signal.
//!
//! The standard library's `Command` empties the signal mask and resets SIGPIPE in the program it starts. A
//! program under bywash must not be able to tell that it was not started directly, so this module calls fork
//! and execvpe(3) itself. Invariant: until [`Image::exec`] or [`Image::spawn`], this process has one thread
//! and has changed neither signal mask nor dispositions, except those that [`Progress`] remembers and the
//! child undoes. Called by the supervisor and by `bywash run`.

#![allow(unsafe_code)]

use super::environment::Variable;
use rustix::process::{DumpableBehavior, Pid};
use std::ffi::{CString, OsStr, OsString};
use std::io::{self, Read as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::ptr;

/// Arguments and environment for execve(2).
pub struct Image {
    arguments: Vec<CString>,
    environment: Vec<CString>,
}

impl Image {
    /// Makes the image of `program`, with this process's environment changed by `variables`.
    pub fn new(program: &[OsString], variables: &[Variable]) -> Image {
        let kept = std::env::vars_os().filter(|(name, _)| variables.iter().all(|(set, _)| name != set));
        let set = variables.iter().filter_map(|(name, value)| Some((OsString::from(name), value.clone()?)));
        Image {
            arguments: program.iter().map(|argument| c_string(argument)).collect(),
            environment: kept
                .chain(set)
                .map(|(name, value)| c_string(&[name.as_os_str(), &value].join(OsStr::new("="))))
                .collect(),
        }
    }

    /// Replaces this process by the program. Returns only if that fails, with the reason.
    pub fn exec(&self) -> io::Error {
        let [arguments, environment] = [&self.arguments, &self.environment].map(|strings| {
            strings.iter().map(|string| string.as_ptr()).chain([ptr::null()]).collect::<Vec<_>>()
        });
        // SAFETY: both arrays hold pointers to C strings that live in `self`, and end with a null pointer.
        unsafe {
            libc::execvpe(arguments[0], arguments.as_ptr(), environment.as_ptr());
        }
        io::Error::last_os_error()
    }

    /// Starts the program as a child, with the signal mask and dispositions from before `watch`.
    ///
    /// # Errors
    /// [`Failed::Fork`] if pipe(2) or fork(2) fails, and [`Failed::Start`] if the program could not be
    /// executed.
    pub fn spawn(&self, watch: &ExitWatch) -> Result<Pid, Failed> {
        let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
            .map_err(|error| Failed::Fork(error.into()))?;
        // SAFETY: this process has one thread, so the child may call any function that this process may call.
        match unsafe { libc::fork() } {
            -1 => Err(Failed::Fork(io::Error::last_os_error())),
            0 => self.exec_in_child(watch, &writer),
            child => {
                drop(writer);
                let mut code = [0; 4];
                if std::fs::File::from(reader).read_exact(&mut code).is_ok() {
                    // SAFETY: the child is this process's own and is ending; a null pointer requests no
                    // status.
                    unsafe { libc::waitpid(child, ptr::null_mut(), 0) };
                    return Err(Failed::Start(io::Error::from_raw_os_error(i32::from_ne_bytes(code))));
                }
                // fork returns a positive number to the parent.
                Pid::from_raw(child).ok_or_else(|| Failed::Fork(io::ErrorKind::InvalidData.into()))
            }
        }
    }

    /// Runs the child's half of [`Image::spawn`]. The pipe closes when the program starts, and carries the
    /// error number if it does not.
    fn exec_in_child(&self, watch: &ExitWatch, writer: &OwnedFd) -> ! {
        watch.undo();
        let code = self.exec().raw_os_error().unwrap_or(libc::EINVAL).to_ne_bytes();
        // SAFETY: `code` is four bytes on the stack, valid for the write; _exit ends the child without
        // running the exit handlers of the parent.
        unsafe {
            libc::write(writer.as_raw_fd(), code.as_ptr().cast(), code.len());
            libc::_exit(crate::error::EXIT_OWN_FAILURE)
        }
    }
}

/// Failure of [`Image::spawn`].
pub enum Failed {
    /// The kernel created no process or pipe.
    Fork(io::Error),
    /// The program could not be executed.
    Start(io::Error),
}

/// Signals that a supervisor has blocked and takes one by one, from [`Progress::begin`] on.
pub struct ExitWatch {
    taken: libc::sigset_t,
    mask_before: libc::sigset_t,
    /// Signals of the set that were ignored when this process started; the child ignores them again.
    ignored_before: Vec<i32>,
}

/// A signal that has arrived.
pub struct Arrival {
    /// Signal number.
    pub signal: i32,
    /// Process that sent the signal by kill(2) or the like; `None` if the kernel sent it (for a terminal, a
    /// timer).
    pub sender: Option<i32>,
}

impl ExitWatch {
    /// Blocks `signals` and SIGCHLD, so that [`Progress::next`] receives them. Includes signals that were
    /// ignored: the program, which starts with them ignored, may have installed handlers by the time they
    /// arrive.
    pub fn begin(signals: &[i32]) -> io::Result<ExitWatch> {
        let mut taken = MaybeUninit::uninit();
        let mut mask_before = MaybeUninit::uninit();
        // SAFETY: sigemptyset and pthread_sigmask initialise the sets before they are read; SIG_DFL installs
        // no handler that could run.
        unsafe {
            libc::sigemptyset(taken.as_mut_ptr());
            let all = || signals.iter().copied().chain([libc::SIGCHLD]);
            for signal in all() {
                libc::sigaddset(taken.as_mut_ptr(), signal);
            }
            let error = libc::pthread_sigmask(libc::SIG_BLOCK, taken.as_ptr(), mask_before.as_mut_ptr());
            if error != 0 {
                return Err(io::Error::from_raw_os_error(error));
            }
            let ignored_before: Vec<i32> = all().filter(|signal| ignored(*signal)).collect();
            for signal in &ignored_before {
                // Otherwise the kernel may discard the signal, and with SIGCHLD the child's status.
                libc::signal(*signal, libc::SIG_DFL);
            }
            let (taken, mask_before) = (taken.assume_init(), mask_before.assume_init());
            Ok(ExitWatch { taken, mask_before, ignored_before })
        }
    }

    /// Waits for the next signal of the set.
    pub fn next(&self) -> io::Result<Arrival> {
        loop {
            let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
            // SAFETY: both pointers are to values that this function or `self` owns; all zeros is a valid
            // siginfo_t.
            let (signal, info) =
                unsafe { (libc::sigwaitinfo(&raw const self.taken, info.as_mut_ptr()), info.assume_init()) };
            if signal > 0 {
                // Codes of signals that a process sent (SI_USER, SI_QUEUE, SI_TKILL, ...) are not positive;
                // the kernel's own codes are (sigaction(2)).
                // SAFETY: for codes that are not positive, the kernel has filled in the sender.
                let sender = (info.si_code <= 0).then(|| unsafe { info.si_pid() });
                return Ok(Arrival { signal, sender });
            }
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
    }

    /// Restores the mask and the dispositions from before, in the child, before it executes the program.
    fn undo(&self) {
        // SAFETY: pthread_sigmask has initialised the mask; SIG_IGN installs no handler that could run.
        unsafe {
            for signal in &self.ignored_before {
                libc::signal(*signal, libc::SIG_IGN);
            }
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.mask_before, ptr::null_mut());
        }
    }
}

/// Returns true if `signal` is ignored in this process.
pub fn ignored(signal: i32) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: the call only reads the disposition; all zeros is a valid sigaction if the kernel refuses the
    // number.
    unsafe {
        libc::sigaction(signal, ptr::null(), action.as_mut_ptr());
        action.assume_init().sa_sigaction == libc::SIG_IGN
    }
}

/// Ignores SIGPIPE from here on: a write to a pipe without a reader fails instead of killing this process,
/// which has to pass the program's exit status on.
pub fn survive_broken_pipes() {
    // SAFETY: SIG_IGN installs no handler that could run.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
}

/// Dies of `signal`, as the program did, without a second core dump. Returns an exit status only if the
/// process survives the signal.
pub fn die_of(signal: i32) -> i32 {
    // A failure is ignored: one core dump too many is better than a wrong end.
    let _ = rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable);
    // SAFETY: SIG_DFL installs no handler; sigemptyset initialises the set before it is read; the signal goes
    // to this process only.
    unsafe {
        let mut set = MaybeUninit::uninit();
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), signal);
        libc::signal(signal, libc::SIG_DFL);
        libc::raise(signal);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, set.as_ptr(), ptr::null_mut());
    }
    // The process is still alive, because the first process of a container does not die of signals. The
    // status is the one that a shell would report.
    128 + signal
}

/// Sends `signal` to `pid`. An error is ignored: a process that is gone needs no signal.
pub fn send(pid: Pid, signal: i32) {
    // SAFETY: `pid` is a child that was not reaped yet, or this process itself, so the number belongs to no
    // other process.
    unsafe { libc::kill(pid.as_raw_nonzero().get(), signal) };
}

/// Opens /dev/null at the numbers of standard descriptors that are closed, so that no file of this command
/// gets such a number. The descriptors close on exec, so the program finds them closed.
pub fn reserve_standard_descriptors() -> io::Result<Vec<OwnedFd>> {
    let mut reserved = Vec::new();
    loop {
        let null = rustix::fs::open(
            "/dev/null",
            rustix::fs::OFlags::RDWR | rustix::fs::OFlags::CLOEXEC,
            rustix::fs::Mode::empty(),
        )?;
        if null.as_raw_fd() > 2 {
            return Ok(reserved);
        }
        reserved.push(null);
    }
}

fn c_string(text: &OsStr) -> CString {
    // Arguments and variables came from the kernel as C strings and so contain no zero byte; the strings that
    // bywash adds consist of these, of paths and of numbers.
    CString::new(text.as_bytes()).unwrap_or_default()
}
