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
    /// Whether files in memory (tmpfs) are also written through their mappings.
    pub writes: bool,
    /// Reads by the kernel whose time a thread may spend on warming in advance ([`crate::account`]).
    pub advance_reads: u64,
    /// Bound on the bytes of all mappings, and so on what of files is resident for this process's sake; if none is
    /// said, a quarter of [`Hooks::memory_bytes`].
    pub resident_bytes: Option<u64>,
    /// Paths (prefixes, separated by colons) that are served; empty: all.
    pub only: &'static [u8],
    /// Paths (prefixes, separated by colons) that are not served.
    pub except: &'static [u8],
    /// Whether usage is collected file by file.
    pub wants_files: bool,
    /// Whether `read`, `write` and `lseek` may move positions at user level, where calls that the library
    /// does not see (by instruction, by another process) find the kernel's position behind.
    pub positions_at_user_level: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings::new()
    }
}

impl Settings {
    /// Settings that hold when nothing is said: all files, reads only.
    pub const fn new() -> Settings {
        Settings {
            threshold: policy::DEFAULT_THRESHOLD,
            writes: false,
            advance_reads: crate::account::DEFAULT_ADVANCE_READS,
            resident_bytes: None,
            only: b"",
            except: b"",
            wants_files: false,
            positions_at_user_level: false,
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
    /// Called once, when the tables are set up; false if a limit forbids data paths.
    pub on_set_up: fn() -> bool,
    /// Called in each thread that gets a record; answers for [`threads::unregister`] being called when the
    /// thread ends.
    pub on_register: fn(&'static threads::Thread),
    /// Whether SIGBUS and SIGSEGV reach [`crate::copy::resume_after_fault`]; asked before a window is mapped.
    pub handlers_ready: fn() -> bool,
    /// Bytes of memory that the process may use; asked once, before the first window is mapped.
    pub memory_bytes: fn() -> u64,
}

// What is written at every start lies among data that is written then anyway, and not on a page of its own.

/// Written only while the process has one thread that knows of us: at the start and in a forked child.
struct Once<T>(UnsafeCell<T>);
// SAFETY: see the type.
unsafe impl<T> Sync for Once<T> {}

#[unsafe(link_section = ".data")]
static SETTINGS: Once<Settings> = Once(UnsafeCell::new(Settings::new()));
#[unsafe(link_section = ".data")]
static RECORD: Once<Option<Record>> = Once(UnsafeCell::new(None));
#[unsafe(link_section = ".data")]
static HOOKS: Once<Option<Hooks>> = Once(UnsafeCell::new(None));
/// RLIMIT_FSIZE: no write may reach beyond.
#[unsafe(link_section = ".data")]
static FILE_SIZE_MAX: AtomicU64 = AtomicU64::new(u64::MAX);
/// Not begun, or stepped aside for good.
const ASIDE: u8 = 0;
/// Nothing is set up, for there has been no file that could be served.
const DORMANT: u8 = 1;
/// Files get data paths.
const READY: u8 = 2;
#[unsafe(link_section = ".data")]
static STATE: AtomicU8 = AtomicU8::new(ASIDE);
#[unsafe(link_section = ".data")]
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

/// Bound on the bytes of all mappings.
pub(crate) fn resident_max() -> u64 {
    /// What the hook answered, and one more; 0: not asked yet.
    static ALLOWED: AtomicU64 = AtomicU64::new(0);
    if let Some(bytes) = settings().resident_bytes {
        return bytes;
    }
    if ALLOWED.load(Relaxed) == 0 {
        let bytes = hooks().map_or(0, |hooks| (hooks.memory_bytes)());
        ALLOWED.store((bytes / SHARE_OF_MEMORY).saturating_add(1), Relaxed);
    }
    ALLOWED.load(Relaxed) - 1
}

/// One part in so many of the memory that the process may use is mapped at most.
const SHARE_OF_MEMORY: u64 = 4;

/// Adds to a counter of the calling thread.
pub fn count(counter: Counter, more: u64) {
    if let Some(thread) = threads::known() {
        thread.count(counter, more);
    }
}

/// Begins: from the first call on that could be served, files get data paths. Costs one system call; the rest
/// is for [`wake`], since most processes never make such a call.
///
/// # Safety
/// To be called once, before the process has other threads that make file calls.
pub unsafe fn begin(settings: Settings, record: Option<Record>, hooks: Hooks) {
    // SAFETY: promised by the caller.
    unsafe {
        *SETTINGS.0.get() = settings;
        *RECORD.0.get() = record;
        *HOOKS.0.get() = Some(hooks);
    }
    WANTS_FILES.store(settings.wants_files, Relaxed);
    // Here, because it takes the kernel milliseconds once there are threads.
    prepare_fences();
    STATE.store(DORMANT, Ordering::Release);
}

/// Whether new files may get a data path, for which everything is set up if it has not been yet.
#[inline]
pub fn wake() -> bool {
    match STATE.load(Ordering::Acquire) {
        READY => true,
        DORMANT => set_up(),
        _ => false,
    }
}

/// Sets up the tables. False when another thread is doing so, and when memory cannot be had or a limit
/// forbids it; then the kernel serves everything for good. A child forked in the middle finds the lock held
/// and stays with the kernel.
#[cold]
fn set_up() -> bool {
    let Some(_held) = LOCK.try_hold() else { return false };
    let Some(hooks) = hooks().filter(|_| STATE.load(Relaxed) == DORMANT) else { return is_ready() };
    let prepared = (hooks.on_set_up)()
        && threads::RECORDS.prepare()
        && window::POOL.prepare()
        && open_file::POOL.prepare()
        && table::KNOWN.prepare()
        && table::TABLE.prepare()
        && prepare_alive();
    crate::copy::prepare();
    let next = if prepared { READY } else { ASIDE };
    // It may have stepped aside meanwhile.
    let is_set_up = STATE.compare_exchange(DORMANT, next, Ordering::SeqCst, Relaxed).is_ok() && prepared;
    if is_set_up {
        table::after_set_up();
    }
    is_set_up
}

/// Every pool, for what concerns all of them.
macro_rules! for_each_pool {
    ($method:ident) => {
        (
            threads::RECORDS.$method(),
            window::POOL.$method(),
            open_file::POOL.$method(),
            table::KNOWN.$method(),
            table::TABLE.$method(),
        )
    };
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

/// Whether everything is set up and files may have a data path.
#[inline(always)]
pub fn is_ready() -> bool {
    STATE.load(Ordering::Acquire) == READY
}

/// Whether nothing is set up yet, and can be.
#[inline]
pub(crate) fn is_dormant() -> bool {
    STATE.load(Ordering::SeqCst) == DORMANT
}

/// Whether no file has or will get a data path in this process.
pub fn is_aside() -> bool {
    STATE.load(Ordering::Acquire) == ASIDE
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
    for_each_pool!(reset_child);
    threads::reset_child();
    window::reset_child();
    open_file::reset_child();
    // SAFETY: one thread.
    unsafe {
        if record.is_some() || (*RECORD.0.get()).is_some() {
            *RECORD.0.get() = record;
        }
    }
    prepare_fences();
    set_alive();
    table::reset_child();
}

/// Gives up all data paths for good, because the process begins something that they cannot live with
/// (a seccomp filter, an address-space limit, an io_uring of its own).
pub fn step_aside() {
    if STATE.swap(ASIDE, Ordering::AcqRel) == READY {
        table::forget_all();
    }
}

/// Steps aside, and leaves next to nothing behind that would count as memory of the program's: before its
/// memory is locked. Answers what is left of the tables, where each part begins and its bytes.
pub fn step_aside_and_shrink() -> [(*mut u8, usize); 5] {
    step_aside();
    for_each_pool!(trim);
    for_each_pool!(usable).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_are_whole_names() {
        let settings = Settings { only: b"/var/lib:/srv/", except: b"/var/lib/dpkg", ..Settings::new() };
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
        assert!(Settings::new().covers(b"/anything"));
    }
}
