//! The beginning and end of a process: settings from the environment, the record to count into.
//!
//! Whatever is missing or wrong here, the program runs as it always did: the library then serves nothing.

use crate::{memory, signals};
use bywash_file::process::{self, Hooks, Settings};
use bywash_file::threads::{self, Thread};
use bywash_session::{Record, Session};
use core::cell::UnsafeCell;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// The C library calls this before `main`, and before the constructors of the program.
#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: unsafe extern "C" fn(c_int, *const *const c_char, *const *const c_char) = begin;

/// The C library calls this at `exit`.
#[used]
#[unsafe(link_section = ".fini_array")]
static END: extern "C" fn() = end;

/// A path out of the environment, kept because the program may change its environment.
struct Kept<const N: usize>(UnsafeCell<[u8; N]>);
// SAFETY: written once, by `begin`.
unsafe impl<const N: usize> Sync for Kept<N> {}

static SESSION: Kept<256> = Kept(UnsafeCell::new([0; 256]));
static ONLY: Kept<4096> = Kept(UnsafeCell::new([0; 4096]));
static EXCEPT: Kept<4096> = Kept(UnsafeCell::new([0; 4096]));
static THREAD_KEY: AtomicU32 = AtomicU32::new(0);

impl<const N: usize> Kept<N> {
    /// Keeps `value` and a zero after it; `None` when it is too long.
    fn keep(&'static self, value: &[u8]) -> Option<&'static [u8]> {
        if value.len() >= N {
            return None;
        }
        if value.is_empty() {
            // It is empty already, and its memory need not be touched.
            return Some(&[]);
        }
        // SAFETY: `begin` alone writes, before anybody reads.
        let cells = unsafe { &mut *self.0.get() };
        cells[..value.len()].copy_from_slice(value);
        Some(&cells[..value.len()])
    }
}

unsafe extern "C" fn begin(
    _count: c_int,
    _arguments: *const *const c_char,
    environment: *const *const c_char,
) {
    let environment = Environment(environment);
    if environment.is_on(b"BYWASH_OFF") {
        return;
    }
    let Some(settings) = read_settings(&environment) else { return };
    let hooks = Hooks {
        on_set_up: set_up,
        on_register: thread_begins,
        handlers_ready: signals::still_ready,
        memory_bytes: memory::allowance,
    };
    let is_counted = settings.wants_files;
    let record = is_counted.then(claim_record).flatten();
    // SAFETY: called once, before main.
    unsafe { process::begin(settings, record, hooks) };
    if is_counted {
        // Calls are counted from the first one on.
        process::wake();
    }
}

/// Looks at limits, and makes what each thread needs. False when no file is to be served.
fn set_up() -> bool {
    if has_address_limit() {
        return false;
    }
    note_file_size_limit();
    let mut key = 0;
    // SAFETY: creates a key whose destructor has the right type.
    let made = unsafe { libc::pthread_key_create(&raw mut key, Some(thread_ends)) == 0 };
    THREAD_KEY.store(key, Relaxed);
    made
}

/// The process ends: what it leaves behind must be right.
pub extern "C" fn end() {
    if process::is_ready() {
        bywash_file::table::report_usage();
    }
}

/// The program's environment at its start.
struct Environment(*const *const c_char);

impl Environment {
    fn get(&self, name: &[u8]) -> Option<&'static [u8]> {
        let mut at = self.0;
        // SAFETY: `begin` got a list of C strings that ends with a null; they live as long as the process,
        // unless the program changes them, which it has not yet had a chance to do.
        unsafe {
            while !at.is_null() && !(*at).is_null() {
                if let Some(value) = value_of(*at, name) {
                    return Some(CStr::from_ptr(value).to_bytes());
                }
                at = at.add(1);
            }
        }
        None
    }

    /// Returns true if a variable is set to anything but the empty word and `0`.
    fn is_on(&self, name: &[u8]) -> bool {
        self.get(name).is_some_and(|value| value != b"0" && !value.is_empty())
    }

    /// A number of bytes, also with K, M, G or T (powers of 1024) behind it.
    fn bytes(&self, name: &[u8]) -> Option<u64> {
        let text = core::str::from_utf8(self.get(name)?).ok()?;
        let shift = match text.bytes().last()?.to_ascii_uppercase() {
            b'K' => 10,
            b'M' => 20,
            b'G' => 30,
            b'T' => 40,
            _ => 0,
        };
        let digits = if shift == 0 { text } else { &text[..text.len() - 1] };
        digits.parse::<u64>().ok()?.checked_mul(1 << shift)
    }
}

/// Returns the value in `text`, `NAME=VALUE`, if it has that name. Reads no further than the names differ: every
/// process does this for each of its variables.
///
/// # Safety
/// `text` is a C string; `name` has no zero byte in it.
unsafe fn value_of(text: *const c_char, name: &[u8]) -> Option<*const c_char> {
    // SAFETY: promised by the caller; a byte is read only behind bytes that are not zero.
    unsafe {
        for (index, byte) in name.iter().enumerate() {
            if *text.add(index) as u8 != *byte {
                return None;
            }
        }
        (*text.add(name.len()) as u8 == b'=').then(|| text.add(name.len() + 1))
    }
}

/// Reads the settings from the environment. A list of paths that is too long switches the library off, rather than
/// serving files that were to be left alone.
fn read_settings(environment: &Environment) -> Option<Settings> {
    let mut settings = Settings::new();
    if let Some(bytes) = environment.bytes(b"BYWASH_THRESHOLD") {
        settings.threshold = bytes as usize;
    }
    settings.writes = environment.is_on(b"BYWASH_WRITES");
    if let Some(reads) = environment.bytes(b"BYWASH_ADVANCE") {
        settings.advance_reads = reads;
    }
    settings.resident_bytes = environment.bytes(b"BYWASH_RESIDENT");
    settings.positions_at_user_level = environment.get(b"BYWASH_POSITIONS") == Some(b"user");
    settings.only = ONLY.keep(environment.get(b"BYWASH_ONLY").unwrap_or_default())?;
    settings.except = EXCEPT.keep(environment.get(b"BYWASH_EXCEPT").unwrap_or_default())?;
    settings.wants_files = SESSION
        .keep(environment.get(b"BYWASH_SESSION").unwrap_or_default())
        .is_some_and(|path| !path.is_empty());
    Some(settings)
}

/// Path of the session, if there is one.
pub fn session_path() -> Option<&'static CStr> {
    // SAFETY: `begin` has written it, with a zero at the end.
    let path = unsafe { CStr::from_ptr(SESSION.0.get().cast::<c_char>()) };
    (!path.is_empty()).then_some(path)
}

/// A record for this process, if there is a session and it has one left.
pub fn claim_record() -> Option<Record> {
    let record = Session::open(session_path()?).ok()?.claim()?;
    let mut program = [0u8; 448];
    // SAFETY: plain calls; the buffer has the length that is passed.
    let (length, time) = unsafe {
        let length = libc::readlink(c"/proc/self/exe".as_ptr(), program.as_mut_ptr().cast(), program.len());
        let mut time: libc::timespec = core::mem::zeroed();
        libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time);
        (length, time)
    };
    let started_ns = time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64;
    // SAFETY: no arguments, no errors.
    let (pid, parent) = unsafe { (libc::getpid(), libc::getppid()) };
    record.describe(pid as u32, parent as u32, started_ns, &program[..length.max(0) as usize]);
    Some(record)
}

/// Our mappings would count against the program's limit.
fn has_address_limit() -> bool {
    // SAFETY: the call writes the limit.
    unsafe {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        libc::getrlimit(libc::RLIMIT_AS, &raw mut limit) == 0 && limit.rlim_cur != libc::RLIM_INFINITY
    }
}

/// No write of ours may go where the kernel would refuse one.
pub fn note_file_size_limit() {
    // SAFETY: the call writes the limit.
    unsafe {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        if libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) == 0 {
            process::set_file_size_max(limit.rlim_cur);
        }
    }
}

fn thread_begins(thread: &'static Thread) {
    // SAFETY: the key was created by `begin`; the value is only passed back.
    unsafe { libc::pthread_setspecific(THREAD_KEY.load(Relaxed), core::ptr::from_ref(thread).cast()) };
}

unsafe extern "C" fn thread_ends(thread: *mut c_void) {
    // SAFETY: `thread_begins` stored a thread's record, which stays mapped. In a forked child the record is
    // not this thread's any more.
    let thread = unsafe { &*thread.cast::<Thread>() };
    if threads::word() == core::ptr::from_ref(thread) as usize {
        threads::unregister(thread);
    }
}
