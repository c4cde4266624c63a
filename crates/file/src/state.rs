//! State of the data path in this process: settings, hooks, counters, the lock, and whether files get a data
//! path.
//!
//! Every other module may use this one, which uses none of their tables. [`crate::process`] starts the data
//! path, sets its tables up, and stops it.

use crate::lock::Lock;
use crate::policy;
use crate::sys::{self, Advice};
use bywash_session::Record;
use bywash_sync::{AtomicBool, AtomicPtr, AtomicU8, AtomicU64, Ordering, Ordering::Relaxed, prepare_fences};
use core::cell::UnsafeCell;

/// Default of [`Settings::advance_reads`]: number of reads by the kernel whose time a thread may spend on
/// warming before mapped reads have saved any. Enough to warm some hundred KiB.
pub const DEFAULT_ADVANCE_READS: u64 = 32;

/// Lock over pools and windows.
pub static LOCK: Lock = Lock::new();

/// Settings of the data path.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Length of the largest request that is served from a mapping, in bytes.
    pub threshold: usize,
    /// True if files on file systems in memory (tmpfs) are also written through their mappings.
    pub writes: bool,
    /// Number of reads by the kernel whose time a thread may spend on warming in advance
    /// ([`crate::account`]).
    pub advance_reads: u64,
    /// Greatest number of bytes of all mappings together, which bounds the file pages that this process keeps
    /// resident; `None`: a quarter of [`Hooks::memory_bytes`].
    pub resident_bytes: Option<u64>,
    /// Path prefixes that are served, separated by colons; empty: all.
    pub only: &'static [u8],
    /// Path prefixes that are not served, separated by colons.
    pub except: &'static [u8],
    /// True if usage is counted per file.
    pub wants_files: bool,
    /// True if `read`, `write` and `lseek` may keep positions at user level. Calls that the library does not
    /// see (by instruction, or by another process) then find an outdated position in the kernel.
    pub positions_at_user_level: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings::new()
    }
}

impl Settings {
    /// Creates the default settings: all files, reads only.
    pub const fn new() -> Settings {
        Settings {
            threshold: policy::DEFAULT_THRESHOLD,
            writes: false,
            advance_reads: DEFAULT_ADVANCE_READS,
            resident_bytes: None,
            only: b"",
            except: b"",
            wants_files: false,
            positions_at_user_level: false,
        }
    }

    /// Returns true if the file with this absolute path is to be served.
    pub fn covers(&self, path: &[u8]) -> bool {
        let named = |list: &[u8]| {
            list.split(|byte| *byte == b':').any(|prefix| !prefix.is_empty() && is_below(path, prefix))
        };
        (self.only.is_empty() || named(self.only)) && !named(self.except)
    }
}

/// Returns true if `path` is `prefix` or below it, comparing whole names.
fn is_below(path: &[u8], prefix: &[u8]) -> bool {
    let prefix = prefix.strip_suffix(b"/").unwrap_or(prefix);
    path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
}

/// Functions of the surrounding library that the data path calls.
#[derive(Clone, Copy)]
pub struct Hooks {
    /// Called once, before the tables are set up; returns false if a limit forbids data paths.
    pub on_set_up: fn() -> bool,
    /// Called in each thread that gets a record; arranges that [`crate::hazards::unregister`] is called when
    /// the thread ends.
    pub on_register: fn(),
    /// Returns true if SIGBUS and SIGSEGV reach [`crate::copy::resume_after_fault`]; called before a window
    /// is mapped.
    pub handlers_ready: fn() -> bool,
    /// Returns the number of bytes of memory that the process may use; called once, before the limit on
    /// mappings is first applied.
    pub memory_bytes: fn() -> u64,
}

// These static variables lie in `.data` and not on pages of their own, because a process writes pages of `.data` at
// its start anyway.

/// Value that [`begin`] stores, and that nobody reads before [`BEGUN`] is set.
struct Once<T>(UnsafeCell<T>);
// SAFETY: `begin` writes the value once, before it sets `BEGUN`, and readers look at `BEGUN` first (`get`).
// Later `set_record` alone writes a value, in a process of one thread.
unsafe impl<T: Sync> Sync for Once<T> {}

impl<T> Once<T> {
    /// Returns the value, or `None` if the data path has not begun.
    #[inline(always)]
    fn get(&self) -> Option<&T> {
        // SYNC: begun (acquire).
        // SAFETY: `begin` has stored the value before it set `BEGUN`, and does not write it again. No caller
        // keeps a reference to the record, the one value that is replaced later.
        BEGUN.load(Ordering::Acquire).then(|| unsafe { &*self.0.get() })
    }
}

/// True if the data path has begun. Threads that constructors of other libraries have started may use this crate
/// before.
#[unsafe(link_section = ".data")]
static BEGUN: AtomicBool = AtomicBool::new(false);
/// Settings of a process whose data path has not begun.
static DEFAULTS: Settings = Settings::new();

#[unsafe(link_section = ".data")]
static SETTINGS: Once<Settings> = Once(UnsafeCell::new(Settings::new()));
#[unsafe(link_section = ".data")]
static RECORD: Once<Option<Record>> = Once(UnsafeCell::new(None));
#[unsafe(link_section = ".data")]
static HOOKS: Once<Option<Hooks>> = Once(UnsafeCell::new(None));
/// Function that sets up the tables; see [`wake`].
#[unsafe(link_section = ".data")]
static SET_UP: Once<Option<fn() -> bool>> = Once(UnsafeCell::new(None));
/// Limit on the size of written files in bytes (RLIMIT_FSIZE).
#[unsafe(link_section = ".data")]
static FILE_SIZE_MAX: AtomicU64 = AtomicU64::new(u64::MAX);
/// State: the data path has not begun, or has stopped for good.
const ASIDE: u8 = 0;
/// State: nothing is set up, because no file was opened yet that could be served.
const DORMANT: u8 = 1;
/// State: files get data paths.
const READY: u8 = 2;
#[unsafe(link_section = ".data")]
static STATE: AtomicU8 = AtomicU8::new(ASIDE);
#[unsafe(link_section = ".data")]
static WANTS_FILES: AtomicBool = AtomicBool::new(false);
/// Page that holds 1 here, and 0 in a forked child, where the kernel wipes it.
static ALIVE: AtomicPtr<AtomicU8> = AtomicPtr::new(core::ptr::null_mut());

/// Stores the settings, and makes the data path dormant: [`wake`] calls `set_up` at the first call that could
/// be served. Other threads may use this crate meanwhile.
///
/// # Safety
/// Must be called once.
pub(crate) unsafe fn begin(settings: Settings, record: Option<Record>, hooks: Hooks, set_up: fn() -> bool) {
    // SAFETY: the caller promises that this is the only call, and nobody reads the values before `BEGUN` is set.
    unsafe {
        *SETTINGS.0.get() = settings;
        *RECORD.0.get() = record;
        *HOOKS.0.get() = Some(hooks);
        *SET_UP.0.get() = Some(set_up);
    }
    // SYNC: begun (release; `Once::get` acquires).
    BEGUN.store(true, Ordering::Release);
    WANTS_FILES.store(settings.wants_files, Relaxed);
    // The fences are prepared here, because membarrier(2) takes milliseconds once there are threads.
    prepare_fences();
    STATE.store(DORMANT, Ordering::Release);
}

/// Returns true if new files may get a data path, and sets up the tables if they are not set up yet.
#[inline]
pub fn wake() -> bool {
    match STATE.load(Ordering::Acquire) {
        READY => true,
        DORMANT => SET_UP.get().copied().flatten().is_some_and(|set_up| set_up()),
        _ => false,
    }
}

/// Ends the set-up: files get data paths if it was `prepared`, and else none for good. Returns false also if
/// the process has stepped aside meanwhile.
pub(crate) fn end_set_up(prepared: bool) -> bool {
    let next = if prepared { READY } else { ASIDE };
    STATE.compare_exchange(DORMANT, next, Ordering::SeqCst, Relaxed).is_ok() && prepared
}

/// Gives no file a data path any more; returns true if files got data paths before.
pub(crate) fn step_aside() -> bool {
    STATE.swap(ASIDE, Ordering::AcqRel) == READY
}

/// Replaces the record of a forked child.
///
/// # Safety
/// The calling thread must be the only thread of the process.
pub(crate) unsafe fn set_record(record: Option<Record>) {
    // SAFETY: the caller promises that this is the only thread, so nobody reads the record meanwhile.
    unsafe {
        if record.is_some() || (*RECORD.0.get()).is_some() {
            *RECORD.0.get() = record;
        }
    }
}

/// Returns the settings: the default ones before the data path has begun.
#[inline(always)]
pub fn settings() -> &'static Settings {
    SETTINGS.get().unwrap_or(&DEFAULTS)
}

/// Returns true if the data path has begun: the library is not switched off.
#[inline(always)]
pub fn has_begun() -> bool {
    BEGUN.load(Ordering::Acquire)
}

/// Returns the record that this process counts into, if it has one.
#[inline]
pub fn record() -> Option<Record> {
    RECORD.get().copied().flatten()
}

/// Stores the limit on the size of files that the process writes, in bytes (RLIMIT_FSIZE).
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
    HOOKS.get().copied().flatten()
}

pub(crate) fn handlers_ready() -> bool {
    hooks().is_some_and(|hooks| (hooks.handlers_ready)())
}

/// Returns the greatest number of bytes of all mappings together.
pub(crate) fn resident_max() -> u64 {
    /// Limit from the hook in bytes, plus one; 0: the hook was not called yet.
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

/// Divisor of the memory that the process may use: at most this part of it is mapped.
const SHARE_OF_MEMORY: u64 = 4;

/// Prepares the page by which [`is_unnoticed_child`] tells a forked child; returns false if the kernel refuses
/// it.
pub(crate) fn prepare_alive() -> bool {
    let Some(page) = sys::map_memory(4096) else { return false };
    if !sys::advise(page, 4096, Advice::WipeOnFork) {
        return false;
    }
    ALIVE.store(page.cast(), Relaxed);
    set_alive();
    true
}

/// Notes that this process is no forked child, or one that has been reset. [`prepare_alive`] has succeeded.
pub(crate) fn set_alive() {
    // SAFETY: `prepare_alive` mapped the page, which is never unmapped, and callers run after it.
    unsafe { (*ALIVE.load(Relaxed)).store(1, Relaxed) };
}

/// Returns true if everything is set up and files may have a data path.
#[inline(always)]
pub fn is_ready() -> bool {
    STATE.load(Ordering::Acquire) == READY
}

/// Returns true if nothing is set up yet and the set-up is still possible.
#[inline]
pub(crate) fn is_dormant() -> bool {
    STATE.load(Ordering::SeqCst) == DORMANT
}

/// Returns true if no file has or will get a data path in this process.
pub fn is_aside() -> bool {
    STATE.load(Ordering::Acquire) == ASIDE
}

/// Returns true if this process is a forked child in which [`crate::process::reset_child`] has not run yet.
pub fn is_unnoticed_child() -> bool {
    // SAFETY: the process is ready, so `prepare_alive` has mapped the page, which is never unmapped.
    is_ready() && unsafe { (*ALIVE.load(Relaxed)).load(Relaxed) == 0 }
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

    #[test]
    fn the_defaults_that_help_and_guide_state_are_those_of_the_library() {
        use bywash_session::settings::{ADVANCE, POSITIONS, THRESHOLD};
        let size = |text: Option<&str>| bywash_quantity::size(text.unwrap_or_default()).unwrap_or_default();
        let settings = Settings::new();
        assert_eq!(size(THRESHOLD.default), settings.threshold as u64);
        assert_eq!(size(ADVANCE.default), settings.advance_reads);
        assert_eq!(POSITIONS.default == Some("user"), settings.positions_at_user_level);
    }
}
