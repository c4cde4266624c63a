//! Programs that are executed: in the place of this one, or as a child.
//!
//! Before the program is replaced, whatever this process leaves behind must be as the kernel would have it.
//! Then the file is looked at ([`bywash_executable`]): a program that cannot start with this library in front
//! of it gets an environment whose `LD_PRELOAD` is without it. The file is looked at only where the
//! environment names the library, so a process that took it out pays nothing.
//!
//! All of this happens in children of vfork too, on the parent's memory: nothing is allocated, nothing but
//! the stack is written, and no descriptor or mapping is left behind.

use crate::{masks, real, signals, start};
use bywash_executable::{Finding, Target, examine, preload};
use bywash_file::table;
use bywash_session::Session;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr;
use libc::pid_t;

/// An argument list or an environment, ending with a null.
type List = *const *const c_char;

const VARIABLE: &[u8] = b"LD_PRELOAD=";
/// Room for `LD_PRELOAD` without this library; a longer one is passed on as it is.
const PRELOAD_BYTES: usize = 4096;

unsafe extern "C" {
    /// The program's environment (environ(7)).
    static environ: List;
}

/// Before the program is replaced: what it leaves behind must be as the kernel would have it.
fn before_exec() {
    table::share_all();
    table::report_usage();
    signals::before_exec();
}

/// The calling process's environment.
fn own_environment() -> List {
    // SAFETY: a word of the C library's, which it and the program set.
    unsafe { environ }
}

/// Value of a variable in `environment`.
///
/// # Safety
/// `environment` is a list of C strings that ends with a null, or null itself.
unsafe fn find(environment: List, name: &[u8]) -> Option<(usize, &'static [u8])> {
    if environment.is_null() {
        return None;
    }
    // SAFETY: promised by the caller.
    unsafe {
        (0..length(environment)).map(|index| (index, CStr::from_ptr(*environment.add(index)).to_bytes()))
    }
    .find_map(|(index, text)| Some((index, text.strip_prefix(name)?)))
}

/// Number of strings in a list.
///
/// # Safety
/// The list ends with a null.
unsafe fn length(list: List) -> usize {
    // SAFETY: promised by the caller; the null is the last one that is read.
    unsafe { (0..).take_while(|index| !(*list.add(*index)).is_null()).count() }
}

/// Calls `then` with `count` words on the stack, or with `None` when they are more than [`WORDS_MAX`].
fn with_words<R>(count: usize, then: impl FnOnce(Option<&mut [*const c_char]>) -> R) -> R {
    #[inline(never)]
    fn of<const N: usize, R>(count: usize, then: impl FnOnce(Option<&mut [*const c_char]>) -> R) -> R {
        then(Some(&mut [ptr::null(); N][..count]))
    }
    match count {
        0..=128 => of::<128, R>(count, then),
        129..=1024 => of::<1024, R>(count, then),
        1025..=WORDS_MAX => of::<WORDS_MAX, R>(count, then),
        _ => then(None),
    }
}

/// Longest environment that is changed, and longest list of arguments written out in a call, in words.
const WORDS_MAX: usize = 16_384;

/// Executes by `execute`, which gets the environment for the program and answers -1 when there is no such
/// program, or else (of a spawned one) its process id. `replaces`: the calling process becomes the program.
///
/// # Safety
/// As the C library's function that `execute` calls.
unsafe fn execute(
    target: &Target<'_>,
    environment: List,
    execute: impl FnOnce(List) -> pid_t,
    replaces: bool,
) -> pid_t {
    // SAFETY: the program's promise for its environment.
    let Some((place, preloaded)) = (unsafe { find(environment, VARIABLE) }) else {
        return execute(environment);
    };
    if !preload::has_library(preloaded) {
        return execute(environment);
    }
    let Some(finding) = examine(target, preloaded) else { return execute(environment) };
    // An exec that succeeds does not come back, so its note is made before it.
    // SAFETY: no arguments, no errors.
    let noted = replaces.then(|| note(&finding, unsafe { libc::getpid() })).flatten();
    let result = if finding.reason.forbids_preloading() {
        // SAFETY: the list that was looked through above.
        unsafe { without_library(environment, place, preloaded, execute) }
    } else {
        execute(environment)
    };
    match noted {
        Some(index) => retract(index),
        None if !replaces && result > 0 => drop(note(&finding, result)),
        None => {}
    }
    result
}

/// Calls `then` with `environment`, in which the value `preloaded` at `place` is without this library.
///
/// # Safety
/// `environment` is a list of C strings that ends with a null, with a string at `place`.
unsafe fn without_library<R>(
    environment: List,
    place: usize,
    preloaded: &[u8],
    then: impl FnOnce(List) -> R,
) -> R {
    let mut text = [0u8; VARIABLE.len() + PRELOAD_BYTES];
    text[..VARIABLE.len()].copy_from_slice(VARIABLE);
    let room = VARIABLE.len()..VARIABLE.len() + PRELOAD_BYTES - 1;
    let Some(kept) = preload::without_library(preloaded, &mut text[room]) else { return then(environment) };
    // SAFETY: promised by the caller.
    let count = unsafe { length(environment) } + 1;
    with_words(count, |words| {
        let Some(words) = words else { return then(environment) };
        // SAFETY: `count` words were counted, the null among them.
        words.copy_from_slice(unsafe { core::slice::from_raw_parts(environment, count) });
        if kept == 0 {
            words.copy_within(place + 1.., place);
        } else {
            words[place] = text.as_ptr().cast();
        }
        then(words.as_ptr())
    })
}

/// Notes in the session, if there is one, that a program is executed without the library.
fn note(finding: &Finding, pid: pid_t) -> Option<u32> {
    let path = start::session_path()?;
    // SAFETY: no arguments, no errors.
    let (own, parent) = unsafe { (libc::getpid(), libc::getppid()) };
    let parent = if pid == own { parent } else { own };
    keeping_errno(|| {
        Session::note_unserved(path, pid as u32, parent as u32, finding.program(), finding.reason.number())
    })
}

fn retract(index: u32) {
    if let Some(path) = start::session_path() {
        keeping_errno(|| Session::retract(path, index));
    }
}

/// Leaves the program's `errno` as it was before `work`.
fn keeping_errno<R>(work: impl FnOnce() -> R) -> R {
    // SAFETY: the C library's own errno of this thread.
    let kept = unsafe { *libc::__errno_location() };
    let result = work();
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = kept };
    result
}

/// The calling process replaces its program.
///
/// # Safety
/// As [`execute`].
unsafe fn replace(target: &Target<'_>, environment: List, exec: impl FnOnce(List) -> c_int) -> c_int {
    before_exec();
    // SAFETY: promised by the caller.
    let result = unsafe { execute(target, environment, exec, true) };
    signals::exec_failed();
    result
}

/// A path or name of the program's; a null pointer is the kernel's to refuse.
unsafe fn text<'a>(pointer: *const c_char) -> &'a CStr {
    // SAFETY: the program's promise for this argument.
    if pointer.is_null() { c"" } else { unsafe { CStr::from_ptr(pointer) } }
}

/// A program that is looked for in the folders of `PATH`.
unsafe fn name<'a>(file: *const c_char) -> Target<'a> {
    // SAFETY: the program's promise for this argument and its environment.
    unsafe { Target::Name(text(file), find(environ, b"PATH=").map(|(_, value)| value)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn execve(path: *const c_char, arguments: List, environment: List) -> c_int {
    // SAFETY: as the program promised for this function; the same throughout this file.
    unsafe {
        replace(&Target::Path(text(path)), environment, |environment| {
            real::execve(path, arguments, environment)
        })
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn execv(path: *const c_char, arguments: List) -> c_int {
    // SAFETY: as `execve`.
    unsafe { execve(path, arguments, own_environment()) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn execvp(file: *const c_char, arguments: List) -> c_int {
    // SAFETY: as `execve`.
    unsafe { execvpe(file, arguments, own_environment()) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn execvpe(file: *const c_char, arguments: List, environment: List) -> c_int {
    // SAFETY: as `execve`.
    unsafe { replace(&name(file), environment, |environment| real::execvpe(file, arguments, environment)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fexecve(fd: c_int, arguments: List, environment: List) -> c_int {
    // SAFETY: as `execve`.
    let exec = |environment| unsafe { real::fexecve(fd, arguments, environment) };
    if fd < 0 {
        return exec(environment);
    }
    // SAFETY: as `execve`; the descriptor is the program's.
    unsafe { replace(&Target::File(fd), environment, exec) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn execveat(
    at: c_int,
    path: *const c_char,
    arguments: List,
    environment: List,
    flags: c_int,
) -> c_int {
    // SAFETY: as `execve`.
    let exec = |environment| unsafe { real::execveat(at, path, arguments, environment, flags) };
    if at < 0 && at != libc::AT_FDCWD {
        before_exec();
        let result = exec(environment);
        signals::exec_failed();
        return result;
    }
    // SAFETY: as `execve`; the descriptor is the program's, or stands for the working directory.
    unsafe {
        let path = text(path);
        let itself = path.is_empty() && flags & libc::AT_EMPTY_PATH != 0;
        let target = if itself { Target::File(at) } else { Target::In(at, path) };
        replace(&target, environment, exec)
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_spawn(
    pid: *mut pid_t,
    path: *const c_char,
    actions: *const c_void,
    attributes: *const c_void,
    arguments: *const *mut c_char,
    environment: *const *mut c_char,
) -> c_int {
    // SAFETY: as `execve`.
    unsafe {
        spawn(&Target::Path(text(path)), environment, pid, |pid, environment| {
            real::posix_spawn(pid, path, actions, attributes, arguments, environment)
        })
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_spawnp(
    pid: *mut pid_t,
    file: *const c_char,
    actions: *const c_void,
    attributes: *const c_void,
    arguments: *const *mut c_char,
    environment: *const *mut c_char,
) -> c_int {
    // SAFETY: as `execve`.
    unsafe {
        spawn(&name(file), environment, pid, |pid, environment| {
            real::posix_spawnp(pid, file, actions, attributes, arguments, environment)
        })
    }
}

/// Starts a child with the environment that its program needs. A path that is relative to a folder which the
/// child changes to first is looked at from this process's folder, and so usually not found.
///
/// # Safety
/// As posix_spawn(3).
unsafe fn spawn(
    target: &Target<'_>,
    environment: *const *mut c_char,
    pid: *mut pid_t,
    start: impl FnOnce(*mut pid_t, *const *mut c_char) -> c_int,
) -> c_int {
    table::share_all();
    let (mut error, mut child) = (0, 0);
    let begin = |environment: List| {
        error = masks::shown(|| start(&raw mut child, environment.cast()));
        if error == 0 { child } else { -1 }
    };
    // SAFETY: promised by the caller.
    unsafe { execute(target, environment.cast(), begin, false) };
    if error == 0 && !pid.is_null() {
        // SAFETY: the program's own variable for the process id.
        unsafe { *pid = child };
    }
    error
}

/// Arguments that stand in a call: five in registers, the others on the stack.
#[derive(Clone, Copy)]
struct Written {
    registers: *const *const c_char,
    stack: *const *const c_char,
}

impl Written {
    const IN_REGISTERS: usize = 5;

    /// # Safety
    /// The call has at least `index + 1` arguments behind its first one.
    unsafe fn at(self, index: usize) -> *const c_char {
        // SAFETY: promised by the caller.
        unsafe {
            match index.checked_sub(Self::IN_REGISTERS) {
                None => *self.registers.add(index),
                Some(index) => *self.stack.add(index),
            }
        }
    }

    /// Calls `exec` with the arguments as a list, and what stands behind their null.
    ///
    /// # Safety
    /// A null is among the arguments.
    unsafe fn with_list(self, exec: impl FnOnce(List, List) -> c_int, has_environment: bool) -> c_int {
        // SAFETY: the null is the last one that is read, but for the environment that execle has behind it.
        unsafe {
            let count = (0..).take_while(|index| !self.at(*index).is_null()).count();
            let environment = if has_environment { self.at(count + 1).cast() } else { own_environment() };
            with_words(count + 1, |words| {
                let Some(words) = words else {
                    *libc::__errno_location() = libc::E2BIG;
                    return -1;
                };
                for (index, word) in words[..count].iter_mut().enumerate() {
                    *word = self.at(index);
                }
                exec(words.as_ptr(), environment)
            })
        }
    }
}

/// `name => body;`: exports `name`, whose arguments behind the first one stand in the call, as
/// `body(first, registers, stack)`.
macro_rules! written_out {
    ($($(#[$doc:meta])* $name:ident => $body:ident;)*) => {
        $(
            $(#[$doc])*
            #[unsafe(no_mangle)]
            #[unsafe(naked)]
            pub unsafe extern "C" fn $name() {
                // Five pushes put the arguments in registers in a row, below the return address, and leave the
                // stack aligned for a call.
                core::arch::naked_asm!(
                    "push r9", "push r8", "push rcx", "push rdx", "push rsi",
                    "mov rsi, rsp",
                    "lea rdx, [rsp + 48]",
                    "call {body}",
                    "add rsp, 40",
                    "ret",
                    body = sym $body,
                )
            }
        )*
    };
}

written_out! {
    /// execl(3).
    execl => exec_path;
    /// execlp(3).
    execlp => exec_name;
    /// execle(3).
    execle => exec_environment;
}

unsafe extern "C" fn exec_path(path: *const c_char, registers: List, stack: List) -> c_int {
    // SAFETY: as `execve`; the stub passes where the call's arguments are.
    unsafe {
        Written { registers, stack }.with_list(|list, environment| execve(path, list, environment), false)
    }
}

unsafe extern "C" fn exec_name(file: *const c_char, registers: List, stack: List) -> c_int {
    // SAFETY: as `exec_path`.
    unsafe {
        Written { registers, stack }.with_list(|list, environment| execvpe(file, list, environment), false)
    }
}

unsafe extern "C" fn exec_environment(path: *const c_char, registers: List, stack: List) -> c_int {
    // SAFETY: as `exec_path`.
    unsafe {
        Written { registers, stack }.with_list(|list, environment| execve(path, list, environment), true)
    }
}
