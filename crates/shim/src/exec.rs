//! Execution of programs, in place of this one or as a child.
//!
//! Before the program is replaced, the kernel must have all state that outlives it: positions, usage counts
//! and ignored signals. Then the program's file is examined ([`bywash_executable`]): a program that cannot
//! start with this library preloaded gets an environment whose `LD_PRELOAD` does not name the library. The
//! file is examined only if the environment names the library, so a process that has removed it pays nothing.
//!
//! All this also runs in children of vfork, on the parent's memory. So the code allocates nothing, writes
//! only to the stack, and leaves no descriptor or mapping behind.

use crate::durability::unseen;
use crate::{masks, real, signals, start};
use bywash_executable::{Finding, Target, examine, preload};
use bywash_file::table;
use bywash_session::Session;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr;
use libc::pid_t;

/// Argument list or environment, which ends with a null.
type List = *const *const c_char;

/// Beginning of the variable that names preloaded libraries.
const VARIABLE: &[u8] = b"LD_PRELOAD=";
/// Size of the buffer for `LD_PRELOAD` without this library, in bytes; a longer value is passed on unchanged.
const PRELOAD_BYTES: usize = 4096;

unsafe extern "C" {
    /// The program's environment (environ(7)).
    static environ: List;
}

/// Gives positions, usage counts and signal state to the kernel and the session, before the program is
/// replaced.
fn before_exec() {
    table::share_all();
    table::report_usage();
    signals::before_exec();
}

/// Returns the calling process's environment.
fn own_environment() -> List {
    // SAFETY: the C library defines this word; the program changes it only as environ(7) allows.
    unsafe { environ }
}

/// Returns the index and the value of the variable in `environment` that begins with `name` (including `=`).
///
/// # Safety
/// `environment` is a list of C strings that ends with a null, or null itself.
unsafe fn find(environment: List, name: &[u8]) -> Option<(usize, &'static [u8])> {
    if environment.is_null() {
        return None;
    }
    // SAFETY: the caller promises a list of C strings; `length` counts those before its null.
    unsafe {
        (0..length(environment)).map(|index| (index, CStr::from_ptr(*environment.add(index)).to_bytes()))
    }
    .find_map(|(index, text)| Some((index, text.strip_prefix(name)?)))
}

/// Returns the number of strings in a list.
///
/// # Safety
/// The list ends with a null.
unsafe fn length(list: List) -> usize {
    // SAFETY: the caller promises a null at the end, which is the last word that is read.
    unsafe { (0..).take_while(|index| !(*list.add(*index)).is_null()).count() }
}

/// Calls `then` with `count` words on the stack, or with `None` if `count` exceeds [`WORDS_MAX`].
fn with_words<R>(count: usize, then: impl FnOnce(Option<&mut [*const c_char]>) -> R) -> R {
    #[inline(never)]
    fn with_array<const N: usize, R>(
        count: usize,
        then: impl FnOnce(Option<&mut [*const c_char]>) -> R,
    ) -> R {
        then(Some(&mut [ptr::null(); N][..count]))
    }
    match count {
        0..=128 => with_array::<128, R>(count, then),
        129..=1024 => with_array::<1024, R>(count, then),
        1025..=WORDS_MAX => with_array::<WORDS_MAX, R>(count, then),
        _ => then(None),
    }
}

/// Greatest number of words of an environment that is changed, and of an argument list written out in a call.
const WORDS_MAX: usize = 16_384;

/// Executes a program by `execute`, which gets the environment for the program and returns -1 if it fails, or
/// for a spawned program its process id. `replaces`: the calling process becomes the program.
///
/// # Safety
/// `environment` is null or a list of C strings that ends with a null.
unsafe fn execute(
    target: &Target<'_>,
    environment: List,
    execute: impl FnOnce(List) -> pid_t,
    replaces: bool,
) -> pid_t {
    // SAFETY: the caller promises that the environment is null or a valid list.
    let Some((place, preloaded)) = (unsafe { find(environment, VARIABLE) }) else {
        unseen::passes_descriptors();
        return execute(environment);
    };
    // SAFETY: the caller promises that the environment is null or a valid list.
    if !preload::has_library(preloaded) || unsafe { leaves_log(environment) } {
        unseen::passes_descriptors();
    }
    if !preload::has_library(preloaded) {
        return execute(environment);
    }
    let Some(finding) = examine(target, preloaded) else { return execute(environment) };
    if finding.reason.forbids_preloading() {
        unseen::passes_descriptors();
    }
    // The note is made before the call, because an exec that succeeds does not return.
    // SAFETY: the call has no arguments and cannot fail.
    let noted = replaces.then(|| note(&finding, unsafe { libc::getpid() })).flatten();
    let result = if finding.reason.forbids_preloading() {
        // SAFETY: `find` returned `place` as an index into this list, which the caller promises to be valid.
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

/// Returns true if a program with this environment uses no log.
///
/// # Safety
/// `environment` is null or a list of C strings that ends with a null.
unsafe fn leaves_log(environment: List) -> bool {
    // SAFETY: the caller promises the list.
    unsafe { find(environment, b"BYWASH_LOG=").is_none_or(|(_, path)| path.is_empty()) }
}

/// Leaves the files of descriptors to the kernel that a shell with this process's environment writes without the library.
pub fn before_shell() {
    // SAFETY: the program keeps its environment valid.
    let is_logged = unsafe {
        let environment = own_environment();
        find(environment, VARIABLE).is_some_and(|(_, value)| preload::has_library(value))
            && !leaves_log(environment)
    };
    if !is_logged {
        unseen::passes_descriptors();
    }
}

/// Calls `then` with a copy of `environment` in which this library is removed from the value `preloaded` of
/// the string at `place`; a variable that becomes empty is removed.
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
    // SAFETY: the caller promises a list that ends with a null.
    let count = unsafe { length(environment) } + 1;
    with_words(count, |words| {
        let Some(words) = words else { return then(environment) };
        // SAFETY: the list has `count` words, including its null.
        words.copy_from_slice(unsafe { core::slice::from_raw_parts(environment, count) });
        if kept == 0 {
            words.copy_within(place + 1.., place);
        } else {
            words[place] = text.as_ptr().cast();
        }
        then(words.as_ptr())
    })
}

/// Notes in the session that a program is executed without the library; returns the index of the note, or
/// `None` if there is no session.
fn note(finding: &Finding, pid: pid_t) -> Option<u32> {
    let path = start::session_path()?;
    // SAFETY: the call has no arguments and cannot fail.
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

/// Runs `work` and restores the program's `errno` afterwards.
fn keeping_errno<R>(work: impl FnOnce() -> R) -> R {
    // SAFETY: the location is the C library's `errno` of this thread, which is always valid.
    let kept = unsafe { *libc::__errno_location() };
    let result = work();
    // SAFETY: the location is the C library's `errno` of this thread, which is always valid.
    unsafe { *libc::__errno_location() = kept };
    result
}

/// Replaces the calling process's program by `exec`, and restores the signal state if that fails.
///
/// # Safety
/// Same as [`execute`].
unsafe fn replace(target: &Target<'_>, environment: List, exec: impl FnOnce(List) -> c_int) -> c_int {
    before_exec();
    // SAFETY: the caller keeps the contract of `execute`.
    let result = unsafe { execute(target, environment, exec, true) };
    signals::exec_failed();
    result
}

/// Returns a path or name of the program as a C string; empty for a null pointer, which the kernel refuses.
///
/// # Safety
/// `pointer` is null or a C string.
unsafe fn text<'a>(pointer: *const c_char) -> &'a CStr {
    // SAFETY: the caller promises that a pointer which is not null is a C string.
    if pointer.is_null() { c"" } else { unsafe { CStr::from_ptr(pointer) } }
}

/// Returns the target for a program that is searched for in the directories of `PATH`.
///
/// # Safety
/// `file` is null or a C string.
unsafe fn name<'a>(file: *const c_char) -> Target<'a> {
    // SAFETY: the caller promises the name; the program keeps its environment valid.
    unsafe { Target::Name(text(file), find(environ, b"PATH=").map(|(_, value)| value)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn execve(path: *const c_char, arguments: List, environment: List) -> c_int {
    // SAFETY: the program keeps the contract of the C library's function that it called.
    unsafe {
        replace(&Target::Path(text(path)), environment, |environment| {
            real::execve(path, arguments, environment)
        })
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn execv(path: *const c_char, arguments: List) -> c_int {
    // SAFETY: the program keeps the contract of the C library's function that it called.
    unsafe { execve(path, arguments, own_environment()) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn execvp(file: *const c_char, arguments: List) -> c_int {
    // SAFETY: the program keeps the contract of the C library's function that it called.
    unsafe { execvpe(file, arguments, own_environment()) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn execvpe(file: *const c_char, arguments: List, environment: List) -> c_int {
    // SAFETY: the program keeps the contract of the C library's function that it called.
    unsafe { replace(&name(file), environment, |environment| real::execvpe(file, arguments, environment)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fexecve(fd: c_int, arguments: List, environment: List) -> c_int {
    // SAFETY: the program keeps the contract of the C library's function that it called.
    let exec = |environment| unsafe { real::fexecve(fd, arguments, environment) };
    if fd < 0 {
        return exec(environment);
    }
    // SAFETY: the program keeps the contract of `fexecve`; its descriptor is not negative.
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
    // SAFETY: the program keeps the contract of the C library's function that it called.
    let exec = |environment| unsafe { real::execveat(at, path, arguments, environment, flags) };
    if at < 0 && at != libc::AT_FDCWD {
        before_exec();
        let result = exec(environment);
        signals::exec_failed();
        return result;
    }
    // SAFETY: the program keeps the contract of `execveat`; `at` is its descriptor or means the working
    // directory.
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
    // SAFETY: the program keeps the contract of the C library's function that it called.
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
    // SAFETY: the program keeps the contract of the C library's function that it called.
    unsafe {
        spawn(&name(file), environment, pid, |pid, environment| {
            real::posix_spawnp(pid, file, actions, attributes, arguments, environment)
        })
    }
}

/// Starts a child, by `start`, with the environment that its program needs. A relative path is examined from
/// this process's working directory; if the child first changes to another directory, the program is usually
/// not found there and is then started with the environment unchanged.
///
/// # Safety
/// Same as posix_spawn(3).
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
    // SAFETY: the caller keeps the contract of posix_spawn, which includes a valid environment.
    unsafe { execute(target, environment.cast(), begin, false) };
    if error == 0 && !pid.is_null() {
        // SAFETY: the caller passes a variable for the process id, which is not null.
        unsafe { *pid = child };
    }
    error
}

/// Variable arguments of a call: five in registers, which the stub has stored, the others on the stack.
#[derive(Clone, Copy)]
struct Written {
    registers: *const *const c_char,
    stack: *const *const c_char,
}

impl Written {
    const IN_REGISTERS: usize = 5;

    /// Returns argument `index`, counted behind the first one.
    ///
    /// # Safety
    /// The call has at least `index + 1` arguments behind its first one.
    unsafe fn at(self, index: usize) -> *const c_char {
        // SAFETY: the caller promises that the argument exists; the stub has stored both parts.
        unsafe {
            match index.checked_sub(Self::IN_REGISTERS) {
                None => *self.registers.add(index),
                Some(index) => *self.stack.add(index),
            }
        }
    }

    /// Calls `exec` with the arguments as a list, and with the environment that follows their null or the
    /// process's own.
    ///
    /// # Safety
    /// A null is among the arguments, and an environment follows it if `has_environment`.
    unsafe fn with_list(self, exec: impl FnOnce(List, List) -> c_int, has_environment: bool) -> c_int {
        // SAFETY: the caller promises the null, behind which only an environment that exists is read.
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

/// `name => body;` exports `name`, whose arguments behind the first one are written out in the call, as
/// `body(first, registers, stack)`.
macro_rules! written_out {
    ($($(#[$doc:meta])* $name:ident => $body:ident;)*) => {
        $(
            $(#[$doc])*
            #[unsafe(no_mangle)]
            #[unsafe(naked)]
            pub unsafe extern "C" fn $name() {
                // Five pushes store the arguments in registers as an array below the return address, and
                // leave the stack aligned for a call.
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
    // SAFETY: the program keeps the contract of `execl`; the stub passes the addresses of the call's
    // arguments.
    unsafe {
        Written { registers, stack }.with_list(|list, environment| execve(path, list, environment), false)
    }
}

unsafe extern "C" fn exec_name(file: *const c_char, registers: List, stack: List) -> c_int {
    // SAFETY: the program keeps the contract of `execlp`; the stub passes the addresses of the call's
    // arguments.
    unsafe {
        Written { registers, stack }.with_list(|list, environment| execvpe(file, list, environment), false)
    }
}

unsafe extern "C" fn exec_environment(path: *const c_char, registers: List, stack: List) -> c_int {
    // SAFETY: the program keeps the contract of `execle`; the stub passes the addresses of the call's
    // arguments.
    unsafe {
        Written { registers, stack }.with_list(|list, environment| execve(path, list, environment), true)
    }
}
