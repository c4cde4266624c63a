//! Start and end of a process: reads settings from the environment and claims the record to count into.
//!
//! If a setting is missing or wrong here, the library serves nothing and the program runs as without it.

use crate::{durability, memory, signals};
use bywash_file::state::{self, Hooks, Settings};
use bywash_file::threads::{self, Thread};
use bywash_file::{hazards, process};
use bywash_session::settings::{self, Setting};
use bywash_session::{Record, Session};
use core::cell::UnsafeCell;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU32, AtomicUsize};

/// Entry for the dynamic loader, which calls [`begin`] before `main` and before the executable's constructors
/// (`.init_array`). Constructors of linked libraries and the executable's `.preinit_array` run earlier, and
/// may already have made file calls, changed the environment or started threads.
#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: unsafe extern "C" fn(c_int, *const *const c_char, *const *const c_char) = begin;

/// Entry for the dynamic loader, which calls [`end`] at exit(3) and when `main` returns.
#[used]
#[unsafe(link_section = ".fini_array")]
static END: extern "C" fn() = end;

/// Copy of a path from the environment, because the program may change its environment.
struct KeptBytes<const N: usize> {
    /// The copy, with a zero byte behind it.
    bytes: UnsafeCell<[u8; N]>,
    /// Length of the copy, in bytes; 0 until it is complete.
    length: AtomicUsize,
}
// SAFETY: `keep`, which is called once, writes the bytes before it stores their length, and readers look at
// the length first (`get`).
unsafe impl<const N: usize> Sync for KeptBytes<N> {}

static SESSION: KeptBytes<256> = KeptBytes::new();
static ONLY: KeptBytes<4096> = KeptBytes::new();
static EXCEPT: KeptBytes<4096> = KeptBytes::new();
static THREAD_KEY: AtomicU32 = AtomicU32::new(0);

impl<const N: usize> KeptBytes<N> {
    const fn new() -> KeptBytes<N> {
        KeptBytes { bytes: UnsafeCell::new([0; N]), length: AtomicUsize::new(0) }
    }

    /// Copies `value`; returns `None` if it is too long.
    ///
    /// # Safety
    /// Must be called once.
    unsafe fn keep(&'static self, value: &[u8]) -> Option<&'static [u8]> {
        if value.len() >= N {
            return None;
        }
        if value.is_empty() {
            // The bytes are zero already, so their page need not be touched.
            return Some(&[]);
        }
        // SAFETY: the caller promises that this is the only call, and nobody reads the bytes before their length
        // is stored.
        let bytes = unsafe { &mut *self.bytes.get() };
        bytes[..value.len()].copy_from_slice(value);
        // SYNC: kept-bytes (release; `get` acquires).
        self.length.store(value.len(), Release);
        self.get().map(|bytes| &bytes[..value.len()])
    }

    /// Returns the copy and its zero byte; `None` until it is complete, and if it is empty.
    fn get(&'static self) -> Option<&'static [u8]> {
        // SYNC: kept-bytes (acquire).
        let length = self.length.load(Acquire);
        // SAFETY: a length that is not 0 is less than `N`, and was stored behind the last write of the bytes,
        // which never change from then on.
        (length != 0).then(|| unsafe { core::slice::from_raw_parts(self.bytes.get().cast(), length + 1) })
    }
}

/// Reads the settings from the environment, starts the data path, and claims a record if a session counts
/// calls.
///
/// # Safety
/// The arguments are those that the dynamic loader passes to a constructor.
unsafe extern "C" fn begin(
    _count: c_int,
    _arguments: *const *const c_char,
    environment: *const *const c_char,
) {
    let environment = Environment(environment);
    if environment.is_on(&settings::OFF) {
        return;
    }
    // SAFETY: the loader calls this function once.
    let Some(settings) = (unsafe { read_settings(&environment) }) else { return };
    let hooks = Hooks {
        on_set_up: set_up,
        on_register: thread_begins,
        handlers_ready: signals::still_ready,
        memory_bytes: memory::allowance,
    };
    let is_counted = settings.wants_files;
    let record = is_counted.then(claim_record).flatten();
    // SAFETY: the loader calls this function once, and nobody else calls `process::begin`.
    unsafe { process::begin(settings, record, hooks) };
    if let Some(path) = environment.text(&settings::LOG).filter(|path| !path.is_empty()) {
        let run = environment.text(&settings::LOG_COUNTS).filter(|path| !path.is_empty());
        // SAFETY: the loader calls this function once.
        unsafe { durability::begin(path, run) };
    }
    if is_counted {
        // The tables are set up now, so that calls are counted from the first one on.
        state::wake();
    }
}

/// Checks the limits and creates the key by which the end of a thread is noticed. Returns false if no file is
/// to be served.
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

/// Reports the usage per file at the end of the process.
pub extern "C" fn end() {
    if state::is_ready() {
        bywash_file::table::report_usage();
    }
}

/// Environment in the form that the loader passes to constructors.
struct Environment(*const *const c_char);

impl Environment {
    fn get(&self, setting: &Setting) -> Option<&'static [u8]> {
        self.text(setting).map(CStr::to_bytes)
    }

    fn text(&self, setting: &Setting) -> Option<&'static CStr> {
        let mut at = self.0;
        // SAFETY: the loader passes a list of C strings that ends with a null; a constructor of a linked
        // library that has changed the environment has left such a list. The strings are used only during
        // `begin`. A thread that changes the environment meanwhile breaks the condition of setenv(3) and its
        // kin, which are not safe while another thread reads it, as constructors of any library do.
        unsafe {
            while !at.is_null() && !(*at).is_null() {
                if let Some(value) = value_of(*at, setting.variable.as_bytes()) {
                    return Some(CStr::from_ptr(value));
                }
                at = at.add(1);
            }
        }
        None
    }

    /// Returns true if a variable is set to a value other than the empty string and `0`.
    fn is_on(&self, setting: &Setting) -> bool {
        self.get(setting).is_some_and(|value| value != b"0" && !value.is_empty())
    }

    /// Returns the value of a variable that is a size; `None` if it is not set or no size.
    fn size(&self, setting: &Setting) -> Option<u64> {
        bywash_quantity::size(core::str::from_utf8(self.get(setting)?).ok()?).ok()
    }
}

/// Returns the value in `text`, of the form `NAME=VALUE`, if it has this name. Reads up to the first byte in
/// which the names differ, because every process compares each of its variables.
///
/// # Safety
/// `text` is a C string, and `name` contains no zero byte.
unsafe fn value_of(text: *const c_char, name: &[u8]) -> Option<*const c_char> {
    // SAFETY: the caller promises a C string; a byte is read only behind bytes that are not zero.
    unsafe {
        for (index, byte) in name.iter().enumerate() {
            if *text.add(index) as u8 != *byte {
                return None;
            }
        }
        (*text.add(name.len()) as u8 == b'=').then(|| text.add(name.len() + 1))
    }
}

/// Reads the settings from the environment. Returns `None` if a list of paths is too long to be copied: the
/// library then serves nothing, instead of serving files that the list excludes.
///
/// # Safety
/// Must be called once.
unsafe fn read_settings(environment: &Environment) -> Option<Settings> {
    let mut settings = Settings::new();
    if let Some(bytes) = environment.size(&settings::THRESHOLD) {
        settings.threshold = bytes as usize;
    }
    settings.writes = environment.is_on(&settings::WRITES);
    if let Some(reads) = environment.size(&settings::ADVANCE) {
        settings.advance_reads = reads;
    }
    settings.resident_bytes = environment.size(&settings::RESIDENT);
    settings.positions_at_user_level = environment.get(&settings::POSITIONS) == Some(b"user");
    let value = |setting| environment.get(setting).unwrap_or_default();
    // SAFETY: the caller promises that this is the only call of this function, and nothing else keeps values.
    unsafe {
        settings.only = ONLY.keep(value(&settings::ONLY))?;
        settings.except = EXCEPT.keep(value(&settings::EXCEPT))?;
        settings.wants_files = SESSION.keep(value(&settings::SESSION)).is_some_and(|path| !path.is_empty());
    }
    Some(settings)
}

/// Returns the path of the session, if the process belongs to one.
pub fn session_path() -> Option<&'static CStr> {
    CStr::from_bytes_with_nul(SESSION.get()?).ok()
}

/// Claims a record for this process; returns `None` if there is no session, or no free record in it.
pub fn claim_record() -> Option<Record> {
    let record = Session::open(session_path()?).ok()?.claim()?;
    let mut program = [0u8; 448];
    // SAFETY: the calls write to local variables, and the length of the buffer is passed along.
    let (length, time) = unsafe {
        let length = libc::readlink(c"/proc/self/exe".as_ptr(), program.as_mut_ptr().cast(), program.len());
        let mut time: libc::timespec = core::mem::zeroed();
        libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time);
        (length, time)
    };
    let started_ns = time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64;
    // SAFETY: the call has no arguments and cannot fail.
    let (pid, parent) = unsafe { (libc::getpid(), libc::getppid()) };
    record.describe(pid as u32, parent as u32, started_ns, &program[..length.max(0) as usize]);
    Some(record)
}

/// Returns true if the address space is limited, because the library's mappings would count against the
/// limit.
fn has_address_limit() -> bool {
    // SAFETY: the call writes the limit to a local variable.
    unsafe {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        libc::getrlimit(libc::RLIMIT_AS, &raw mut limit) == 0 && limit.rlim_cur != libc::RLIM_INFINITY
    }
}

/// Stores the limit on the size of files, because the library must not write where the kernel would refuse
/// it.
pub fn note_file_size_limit() {
    // SAFETY: the call writes the limit to a local variable.
    unsafe {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        if libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) == 0 {
            state::set_file_size_max(limit.rlim_cur);
        }
    }
}

/// Has [`thread_ends`] called with the thread's record when the calling thread, which has one now, ends.
fn thread_begins() {
    let record = threads::word() as *const c_void;
    // SAFETY: `set_up` created the key before a thread gets a record; the value is only passed back at its
    // end.
    unsafe { libc::pthread_setspecific(THREAD_KEY.load(Relaxed), record) };
}

unsafe extern "C" fn thread_ends(thread: *mut c_void) {
    // SAFETY: `thread_begins` stored the address of a thread's record, which is never unmapped. The
    // comparison below leaves out a forked child, in which the record is not this thread's any more.
    let thread = unsafe { &*thread.cast::<Thread>() };
    if threads::word() == core::ptr::from_ref(thread) as usize {
        hazards::unregister(thread);
    }
}
