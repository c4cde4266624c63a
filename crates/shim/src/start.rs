//! The beginning and end of a process: settings from the environment, the record to count into.
//!
//! Whatever is missing or wrong here, the program runs as it always did: the library then serves nothing.

use crate::signals;
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
    if environment.get(b"BYWASH_OFF").is_some_and(|value| value != b"0" && !value.is_empty()) {
        return;
    }
    let Some(settings) = read_settings(&environment) else { return };
    let record = claim_record();
    if has_address_limit() {
        return;
    }
    note_file_size_limit();
    // SAFETY: creates a key whose destructor has the right type.
    unsafe {
        let mut key = 0;
        if libc::pthread_key_create(&raw mut key, Some(thread_ends)) != 0 {
            return;
        }
        THREAD_KEY.store(key, Relaxed);
    }
    let hooks = Hooks { on_register: thread_begins, handlers_ready: signals::still_ready };
    // SAFETY: called once, before main.
    unsafe { process::begin(settings, record, hooks) };
}

/// The process ends: what it leaves behind must be right.
pub extern "C" fn end() {
    if process::is_ready() {
        bywash_file::table::settle_times();
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
                let text = CStr::from_ptr(*at).to_bytes();
                if let Some(value) = text.strip_prefix(name).and_then(|rest| rest.strip_prefix(b"=")) {
                    return Some(value);
                }
                at = at.add(1);
            }
        }
        None
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

/// What the environment asks for. A list of paths that is too long to be kept switches the library off,
/// rather than serving files that were to be left alone.
fn read_settings(environment: &Environment) -> Option<Settings> {
    let mut settings = Settings::new(memory_bytes());
    if let Some(bytes) = environment.bytes(b"BYWASH_THRESHOLD") {
        settings.threshold = bytes as usize;
    }
    if let Some(writes) = environment.bytes(b"BYWASH_HOT_WRITES") {
        settings.hot_writes = writes.min(u64::from(u32::MAX)) as u32;
    }
    if let Some(bytes) = environment.bytes(b"BYWASH_WINDOWS") {
        settings.windows_bytes = bytes;
    }
    settings.only = ONLY.keep(environment.get(b"BYWASH_ONLY").unwrap_or_default())?;
    settings.except = EXCEPT.keep(environment.get(b"BYWASH_EXCEPT").unwrap_or_default())?;
    settings.wants_files = SESSION
        .keep(environment.get(b"BYWASH_SESSION").unwrap_or_default())
        .is_some_and(|path| !path.is_empty());
    Some(settings)
}

/// A record for this process, if there is a session and it has one left.
pub fn claim_record() -> Option<Record> {
    // SAFETY: `begin` has written it, with a zero at the end.
    let path = unsafe { CStr::from_ptr(SESSION.0.get().cast::<c_char>()) };
    if path.is_empty() {
        return None;
    }
    let record = Session::open(path).ok()?.claim()?;
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

fn memory_bytes() -> u64 {
    // SAFETY: zeroes are a valid value, which the call overwrites.
    unsafe {
        let mut info: libc::sysinfo = core::mem::zeroed();
        libc::sysinfo(&raw mut info);
        info.totalram * u64::from(info.mem_unit)
    }
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
