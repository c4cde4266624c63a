//! What a process has once: settings, the record it counts into, the lock; and how it begins, forks and
//! steps aside.
//!
//! Everything that a forked child must not believe lies in memory that the kernel wipes in the child
//! (MADV_WIPEONFORK), so that even a fork that we never saw leaves the child with empty tables: it goes to
//! the kernel with everything. [`reset_child`] then makes the child a first-class process again.

use crate::lock::Lock;
use crate::{open_file, policy, table, threads, window};
use bywash_session::{Counter, Record};
use bywash_sync::{AtomicBool, AtomicU8, AtomicU64, Ordering, Ordering::Relaxed, prepare_fences};
use core::cell::UnsafeCell;

/// The lock over pools and windows.
pub static LOCK: Lock = Lock::new();

/// How the data path is to behave.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// The largest request served from a mapping, in bytes.
    pub threshold: usize,
    /// Writes of a page by the kernel between two fsyncs, on average, before it is written through a mapping
    /// (where a device stands behind it).
    pub hot_writes: u32,
    /// Bound on the bytes of all mappings.
    pub windows_bytes: u64,
    /// Paths (prefixes, separated by colons) that are served; empty: all.
    pub only: &'static [u8],
    /// Paths (prefixes, separated by colons) that are not served.
    pub except: &'static [u8],
    /// Whether usage is collected file by file.
    pub wants_files: bool,
}

impl Settings {
    /// What holds when nothing is said: mappings up to `memory_bytes`, all files.
    pub const fn new(memory_bytes: u64) -> Settings {
        Settings {
            threshold: policy::DEFAULT_THRESHOLD,
            hot_writes: policy::DEFAULT_HOT_WRITES,
            windows_bytes: memory_bytes,
            only: b"",
            except: b"",
            wants_files: false,
        }
    }

    /// Whether a file of this absolute path is to be served.
    pub fn covers(&self, path: &[u8]) -> bool {
        let named = |list: &[u8]| {
            list.split(|byte| *byte == b':').any(|prefix| !prefix.is_empty() && is_below(path, prefix))
        };
        (self.only.is_empty() || named(self.only)) && !named(self.except)
    }
}

/// Whether `path` is `prefix` or below it, by whole names.
fn is_below(path: &[u8], prefix: &[u8]) -> bool {
    let prefix = prefix.strip_suffix(b"/").unwrap_or(prefix);
    path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
}

/// What the data path needs of the library around it.
#[derive(Clone, Copy)]
pub struct Hooks {
    /// Called in each thread that gets a record; answers for [`threads::unregister`] being called when the
    /// thread ends.
    pub on_register: fn(&'static threads::Thread),
    /// Whether SIGBUS and SIGSEGV reach [`crate::copy::resume_after_fault`]; asked before a window is mapped.
    pub handlers_ready: fn() -> bool,
}

/// Written only while the process has one thread that knows of us: at the start and in a forked child.
struct Once<T>(UnsafeCell<T>);
// SAFETY: see the type.
unsafe impl<T> Sync for Once<T> {}

static SETTINGS: Once<Settings> = Once(UnsafeCell::new(Settings::new(0)));
static RECORD: Once<Option<Record>> = Once(UnsafeCell::new(None));
static HOOKS: Once<Option<Hooks>> = Once(UnsafeCell::new(None));
/// RLIMIT_FSIZE: no write may reach beyond.
static FILE_SIZE_MAX: AtomicU64 = AtomicU64::new(u64::MAX);
static READY: AtomicBool = AtomicBool::new(false);
static WANTS_FILES: AtomicBool = AtomicBool::new(false);
/// One page that a child finds wiped: 1 here, 0 there.
static ALIVE: bywash_sync::AtomicPtr<AtomicU8> = bywash_sync::AtomicPtr::new(core::ptr::null_mut());

/// The settings.
#[inline(always)]
pub fn settings() -> &'static Settings {
    // SAFETY: see `Once`.
    unsafe { &*SETTINGS.0.get() }
}

/// The record that this process counts into.
#[inline]
pub fn record() -> Option<Record> {
    // SAFETY: see `Once`.
    unsafe { *RECORD.0.get() }
}

/// Notes the limit on the size of files that the process writes, in bytes.
pub fn set_file_size_max(bytes: u64) {
    FILE_SIZE_MAX.store(bytes, Relaxed);
}

#[inline(always)]
pub(crate) fn file_size_max() -> u64 {
    FILE_SIZE_MAX.load(Relaxed)
}

#[inline(always)]
pub(crate) fn wants_files() -> bool {
    WANTS_FILES.load(Relaxed)
}

pub(crate) fn hooks() -> Option<Hooks> {
    // SAFETY: see `Once`.
    unsafe { *HOOKS.0.get() }
}

pub(crate) fn handlers_ready() -> bool {
    hooks().is_some_and(|hooks| (hooks.handlers_ready)())
}

/// Adds to a counter of the calling thread.
pub fn count(counter: Counter, more: u64) {
    if let Some(thread) = threads::known() {
        thread.count(counter, more);
    }
}

/// Begins: from here on files get data paths. False when memory for the tables cannot be had; then the
/// kernel serves everything.
///
/// # Safety
/// To be called once, before the process has other threads that make file calls.
pub unsafe fn begin(settings: Settings, record: Option<Record>, hooks: Hooks) -> bool {
    // SAFETY: promised by the caller.
    unsafe {
        *SETTINGS.0.get() = settings;
        *RECORD.0.get() = record;
        *HOOKS.0.get() = Some(hooks);
    }
    WANTS_FILES.store(settings.wants_files, Relaxed);
    crate::copy::prepare();
    prepare_fences();
    let prepared = threads::prepare()
        && window::prepare()
        && open_file::prepare()
        && table::prepare()
        && prepare_alive();
    READY.store(prepared, Ordering::Release);
    prepared
}

fn prepare_alive() -> bool {
    let Some(page) = crate::sys::map_memory(4096) else { return false };
    if !crate::sys::advise(page, 4096, crate::sys::Advice::WipeOnFork) {
        return false;
    }
    ALIVE.store(page.cast(), Relaxed);
    set_alive();
    true
}

fn set_alive() {
    // SAFETY: the page was mapped by `prepare_alive` and stays.
    unsafe { (*ALIVE.load(Relaxed)).store(1, Relaxed) };
}

/// Whether new files may get a data path.
pub fn is_ready() -> bool {
    READY.load(Ordering::Acquire)
}

/// Whether this is a forked child that nobody told so yet.
pub fn is_unnoticed_child() -> bool {
    // SAFETY: as in `set_alive`; asked only once the process is ready.
    is_ready() && unsafe { (*ALIVE.load(Relaxed)).load(Relaxed) == 0 }
}

/// Makes a forked child a process of its own: empty tables, inherited descriptors as candidates with a
/// shared position, a record of its own.
///
/// # Safety
/// The caller is the only thread of a forked child.
pub unsafe fn reset_child(record: Option<Record>) {
    LOCK.reset_child();
    threads::reset_child();
    window::reset_child();
    open_file::reset_child();
    // SAFETY: one thread.
    unsafe { *RECORD.0.get() = record };
    prepare_fences();
    set_alive();
    table::reset_child();
}

/// Gives up all data paths for good, because the process begins something that they cannot live with
/// (a seccomp filter, an address-space limit, an io_uring of its own).
pub fn step_aside() {
    if READY.swap(false, Ordering::AcqRel) {
        table::forget_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_are_whole_names() {
        let settings = Settings { only: b"/var/lib:/srv/", except: b"/var/lib/dpkg", ..Settings::new(0) };
        for (path, covered) in [
            (&b"/var/lib/db"[..], true),
            (b"/var/lib", true),
            (b"/var/library", false),
            (b"/srv/x", true),
            (b"/var/lib/dpkg/status", false),
            (b"/home", false),
        ] {
            assert_eq!(settings.covers(path), covered, "{path:?}");
        }
        assert!(Settings::new(0).covers(b"/anything"));
    }
}
