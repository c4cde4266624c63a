//! Starting a program exactly as this process was started, taking signals in turn, dying of one.
//!
//! The standard library's `Command` empties the signal mask and resets SIGPIPE in what it starts. A program
//! under bywash must not be able to tell that it was not started directly, so this module calls fork and
//! execvpe(3) itself. Invariant: until [`Image::exec`] or [`Image::spawn`] this process has one thread and
//! has changed neither mask nor dispositions, except what [`Watch`] remembers and the child undoes.
//! Called by the supervisor and by `bywash run`.

#![allow(unsafe_code)]

use super::environment::Variable;
use rustix::process::{DumpableBehavior, Pid};
use std::ffi::{CString, OsStr, OsString};
use std::io::{self, Read as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::ptr;

/// What execve(2) takes: arguments and environment.
pub struct Image {
    arguments: Vec<CString>,
    environment: Vec<CString>,
}

impl Image {
    /// `program` in this process's environment, changed by `variables`.
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

    /// Becomes the program. Comes back only if that fails, with the reason.
    pub fn exec(&self) -> io::Error {
        let [arguments, environment] = [&self.arguments, &self.environment].map(|strings| {
            strings.iter().map(|string| string.as_ptr()).chain([ptr::null()]).collect::<Vec<_>>()
        });
        // SAFETY: both arrays are of C strings that live in `self` and end with a null pointer.
        unsafe {
            libc::execvpe(arguments[0], arguments.as_ptr(), environment.as_ptr());
        }
        io::Error::last_os_error()
    }

    /// Starts the program as a child that has the signal mask and dispositions from before `watch`.
    ///
    /// # Errors
    /// Why there is no child: [`Failed::Start`] if the program could not be executed.
    pub fn spawn(&self, watch: &Watch) -> Result<Pid, Failed> {
        let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
            .map_err(|error| Failed::Fork(error.into()))?;
        // SAFETY: this process has one thread, so the child may do whatever this process may.
        match unsafe { libc::fork() } {
            -1 => Err(Failed::Fork(io::Error::last_os_error())),
            0 => self.exec_in_child(watch, &writer),
            child => {
                drop(writer);
                let mut code = [0; 4];
                if std::fs::File::from(reader).read_exact(&mut code).is_ok() {
                    // SAFETY: waits for our own child, which is ending; no status is asked for.
                    unsafe { libc::waitpid(child, ptr::null_mut(), 0) };
                    return Err(Failed::Start(io::Error::from_raw_os_error(i32::from_ne_bytes(code))));
                }
                // fork answers the parent with a positive number.
                Pid::from_raw(child).ok_or_else(|| Failed::Fork(io::ErrorKind::InvalidData.into()))
            }
        }
    }

    /// The child's half of [`Image::spawn`]: the pipe closes when the program starts, and carries the error
    /// if it does not.
    fn exec_in_child(&self, watch: &Watch, writer: &OwnedFd) -> ! {
        watch.undo();
        let code = self.exec().raw_os_error().unwrap_or(libc::EINVAL).to_ne_bytes();
        // SAFETY: writes four bytes from the stack, then ends the child without running what the parent
        // wants to run at its own exit.
        unsafe {
            libc::write(writer.as_raw_fd(), code.as_ptr().cast(), code.len());
            libc::_exit(crate::cli::EXIT_OWN_FAILURE)
        }
    }
}

/// Why [`Image::spawn`] made no child.
pub enum Failed {
    /// The kernel gave no process or pipe.
    Fork(io::Error),
    /// The program could not be executed.
    Start(io::Error),
}

/// The signals that a supervisor takes in turn, from [`Watch::begin`] on.
pub struct Watch {
    taken: libc::sigset_t,
    mask_before: libc::sigset_t,
    /// Those of them that were ignored when this process started, which the child inherits.
    ignored_before: Vec<i32>,
}

/// One signal that came.
pub struct Arrival {
    /// Its number.
    pub signal: i32,
    /// The process that sent it with kill(2) or alike; none if the kernel sent it (for a terminal, a timer).
    pub sender: Option<i32>,
}

impl Watch {
    /// Blocks `signals` and SIGCHLD, so that [`Watch::next`] gets them. Those that were ignored are taken too:
    /// the program, which starts with them ignored, may have installed handlers of its own by the time they come.
    pub fn begin(signals: &[i32]) -> io::Result<Watch> {
        let mut taken = MaybeUninit::uninit();
        let mut mask_before = MaybeUninit::uninit();
        // SAFETY: sigemptyset and pthread_sigmask initialise the sets before they are read; the default
        // disposition is no handler.
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
                // Else the kernel may throw the signal away, and with SIGCHLD the child's status.
                libc::signal(*signal, libc::SIG_DFL);
            }
            let (taken, mask_before) = (taken.assume_init(), mask_before.assume_init());
            Ok(Watch { taken, mask_before, ignored_before })
        }
    }

    /// Waits for the next of the signals.
    pub fn next(&self) -> io::Result<Arrival> {
        loop {
            let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
            // SAFETY: both pointers are to values of ours; all zeroes is a valid siginfo_t.
            let (signal, info) =
                unsafe { (libc::sigwaitinfo(&raw const self.taken, info.as_mut_ptr()), info.assume_init()) };
            if signal > 0 {
                // SI_USER, SI_QUEUE, SI_TKILL, ...: not positive; the kernel's own codes are (sigaction(2)).
                // SAFETY: for these codes the kernel has filled in the sender.
                let sender = (info.si_code <= 0).then(|| unsafe { info.si_pid() });
                return Ok(Arrival { signal, sender });
            }
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
    }

    /// Gives the mask and the dispositions back as they were: in the child, before it executes the program.
    fn undo(&self) {
        // SAFETY: the mask is one that pthread_sigmask filled in; ignoring is no handler.
        unsafe {
            for signal in &self.ignored_before {
                libc::signal(*signal, libc::SIG_IGN);
            }
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.mask_before, ptr::null_mut());
        }
    }
}

/// Whether `signal` is ignored in this process.
pub fn ignored(signal: i32) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: only asks; all zeroes is a valid sigaction, should the kernel refuse the number.
    unsafe {
        libc::sigaction(signal, ptr::null(), action.as_mut_ptr());
        action.assume_init().sa_sigaction == libc::SIG_IGN
    }
}

/// From here on a write to a pipe that nobody reads is an error, not a death: the program's exit status has
/// to be passed on after it.
pub fn survive_broken_pipes() {
    // SAFETY: ignoring is no handler.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
}

/// Dies of `signal`, as the program did, and leaves no second core dump.
pub fn die_of(signal: i32) -> i32 {
    // If the kernel refuses, a core dump too many is better than a wrong end.
    let _ = rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable);
    // SAFETY: the default disposition is no handler; the set is initialised before it is read; the signal
    // is sent to this process itself.
    unsafe {
        let mut set = MaybeUninit::uninit();
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), signal);
        libc::signal(signal, libc::SIG_DFL);
        libc::raise(signal);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, set.as_ptr(), ptr::null_mut());
    }
    // Still here: the first process of a container does not die of signals. What a shell would say:
    128 + signal
}

/// Sends `signal` to `pid`. A process that is gone needs no signal.
pub fn send(pid: Pid, signal: i32) {
    // SAFETY: a signal to a process whose status this process has not taken yet, so its number is no other's.
    unsafe { libc::kill(pid.as_raw_nonzero().get(), signal) };
}

/// Opens /dev/null in place of standard descriptors that are closed, so that no file of ours gets such a
/// number; closed again in the program, as it would have found them.
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
    // Arguments and variables came from the kernel as C strings and have no zero byte inside; what bywash
    // adds is made of those, of paths and of numbers.
    CString::new(text.as_bytes()).unwrap_or_default()
}
