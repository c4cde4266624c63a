//! Faults in memory whose pages can vanish: an access to a page that is not there any more finds zeros instead of ending
//! this process.
//!
//! Reserved huge pages (hugetlbfs) are given back when their frontend punches a hole into the file or shortens it. The next
//! access then needs a free page, and without one the kernel sends SIGBUS to the thread. No seal prevents that: those that
//! QEMU sets forbid to add any. So a handler of this signal maps private memory in place of the missing page, and notes
//! that the range is broken. The access is repeated there; what it reads or writes matters to the frontend alone, which is
//! disconnected.
//!
//! ```text
//!   access ──► no page ──► SIGBUS ──► in a watched range? ──► zeros mapped there, range broken ──► access again
//!                                        └─ no ──► the action that the signal had before
//! ```
//!
//! Invariant: a range is watched from before the first access to its mapping until after the last one. The handler uses
//! atomics and mmap(2), and nothing else. Called by `memory`.

#![expect(unsafe_code, reason = "a handler of a signal, and memory at an address of the frontend's mapping")]

use bywash_sync::{AtomicBool, AtomicUsize, Ordering};
use std::ffi::c_void;
use std::sync::{Mutex, OnceLock, PoisonError};

/// Greatest number of ranges that are watched in this process: 8 of 64 guests.
const RANGES_MAX: usize = 512;

/// Ranges that are watched. A free one has the length 0.
static RANGES: [Range; RANGES_MAX] = [const { Range::free() }; RANGES_MAX];
/// Held while a range is taken or freed, so that two threads do not take the same.
static TAKING: Mutex<()> = Mutex::new(());
/// Action of SIGBUS before the handler was installed; the error of installing it.
static BEFORE: OnceLock<Result<libc::sigaction, i32>> = OnceLock::new();

/// A range of addresses.
#[derive(Debug)]
struct Range {
    start: AtomicUsize,
    /// Length in bytes; 0 if the range is free. Written last, and read first.
    bytes: AtomicUsize,
    /// Size of a page, in bytes.
    page: AtomicUsize,
    /// True once a page was missing.
    is_broken: AtomicBool,
}

impl Range {
    const fn free() -> Range {
        Range {
            start: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            page: AtomicUsize::new(0),
            is_broken: AtomicBool::new(false),
        }
    }

    /// Returns the address of the page that contains `address`, and its size; `None` if it lies in another range.
    fn page_of(&self, address: usize) -> Option<(usize, usize)> {
        // SYNC: watched-range; the length is there after the other values.
        let bytes = self.bytes.load(Ordering::Acquire);
        let (start, page) = (self.start.load(Ordering::Relaxed), self.page.load(Ordering::Relaxed));
        let offset = address.checked_sub(start).filter(|offset| *offset < bytes && page > 0)?;
        Some((address - offset % page, page))
    }
}

/// A range that is watched until this value is dropped.
#[derive(Debug)]
pub(crate) struct Watched(&'static Range);

impl Watched {
    /// Watches a range of whole pages of `page` bytes, which the caller has mapped and unmaps only after this value was
    /// dropped.
    ///
    /// # Errors
    /// The reason, as text, if the handler cannot be installed, or [`RANGES_MAX`] ranges are watched already.
    pub(crate) fn new(start: usize, bytes: usize, page: usize) -> Result<Watched, String> {
        if let Err(number) = BEFORE.get_or_init(install) {
            let error = std::io::Error::from_raw_os_error(*number);
            return Err(format!("faults in its memory cannot be handled: {error}"));
        }
        let _taking = TAKING.lock().unwrap_or_else(PoisonError::into_inner);
        let free = RANGES.iter().find(|range| range.bytes.load(Ordering::Relaxed) == 0);
        let range = free.ok_or_else(|| {
            format!("{RANGES_MAX} regions of huge pages are mapped already; disconnect other guests first")
        })?;
        range.start.store(start, Ordering::Relaxed);
        range.page.store(page, Ordering::Relaxed);
        range.is_broken.store(false, Ordering::Relaxed);
        // SYNC: watched-range
        range.bytes.store(bytes, Ordering::Release);
        Ok(Watched(range))
    }

    /// Returns true if a page was missing. The memory's contents mean nothing any more.
    pub(crate) fn is_broken(&self) -> bool {
        self.0.is_broken.load(Ordering::Relaxed)
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let _taking = TAKING.lock().unwrap_or_else(PoisonError::into_inner);
        self.0.bytes.store(0, Ordering::Release);
    }
}

/// Installs the handler, and returns the action that the signal had before.
fn install() -> Result<libc::sigaction, i32> {
    // SAFETY: all zeros are a valid `sigaction`, of plain numbers and a null handler.
    let (mut action, mut before): (libc::sigaction, libc::sigaction) = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handle as extern "C" fn(i32, *mut libc::siginfo_t, *mut c_void) as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    // SAFETY: both pointers are to values of this function, and the handler has the signature of SA_SIGINFO.
    match unsafe { libc::sigaction(libc::SIGBUS, &action, &mut before) } {
        0 => Ok(before),
        _ => Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EINVAL)),
    }
}

/// Handles SIGBUS.
extern "C" fn handle(signal: i32, about: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes a pointer to information on the signal (SA_SIGINFO).
    let (code, address) = unsafe { ((*about).si_code, (*about).si_addr() as usize) };
    let watched = RANGES.iter().find_map(|range| Some((range, range.page_of(address)?)));
    if let Some((range, (page, bytes))) = watched.filter(|_| code == libc::BUS_ADRERR) {
        range.is_broken.store(true, Ordering::Relaxed);
        let flags = libc::MAP_FIXED | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the page lies in a mapping whose user watches it, and keeps it until it watches it no more. No reference
        // points there, and its former contents are gone. The mapping is unmapped as a whole, with this page.
        let mapped = unsafe { libc::mmap(page as *mut c_void, bytes, access, flags, -1, 0) };
        if mapped != libc::MAP_FAILED {
            return;
        }
    }
    pass_on(signal, about, context);
}

/// Does what the signal did before this handler was installed.
fn pass_on(signal: i32, about: *mut libc::siginfo_t, context: *mut c_void) {
    // A signal that comes while the handler is being installed finds no action, and the default one.
    let before = BEFORE.get().and_then(|before| before.as_ref().ok());
    match before.map(|before| (before.sa_sigaction, before.sa_flags & libc::SA_SIGINFO != 0)) {
        Some((handler, true)) if handler != libc::SIG_DFL && handler != libc::SIG_IGN => {
            // SAFETY: the address is that of a handler with this signature, which was installed by sigaction(2) with
            // SA_SIGINFO. The arguments are those of the kernel.
            let handler: extern "C" fn(i32, *mut libc::siginfo_t, *mut c_void) =
                unsafe { std::mem::transmute(handler) };
            handler(signal, about, context);
        }
        Some((handler, false)) if handler != libc::SIG_DFL && handler != libc::SIG_IGN => {
            // SAFETY: the address is that of a handler with this signature, installed without SA_SIGINFO.
            let handler: extern "C" fn(i32) = unsafe { std::mem::transmute(handler) };
            handler(signal);
        }
        // The access is repeated, and the default action ends the process.
        // SAFETY: sets the default action, which needs no handler.
        _ => drop(unsafe { libc::signal(signal, libc::SIG_DFL) }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
    use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
    use std::ptr;

    const PAGE: usize = 4096;

    /// A file that is shortened under its mapping has no pages there, as huge pages that are not there any more.
    #[test]
    fn a_missing_page_reads_as_zeros_and_breaks_its_range_alone() {
        let file = memfd_create("test", MemfdFlags::CLOEXEC).unwrap();
        let map = |bytes: usize| {
            ftruncate(&file, bytes as u64).unwrap();
            let access = ProtFlags::READ | ProtFlags::WRITE;
            // SAFETY: a new mapping at an address that the kernel chooses.
            unsafe { mmap(ptr::null_mut(), bytes, access, MapFlags::SHARED, &file, 0) }.unwrap().cast::<u8>()
        };
        let (one, other) = (map(4 * PAGE), map(4 * PAGE));
        let watched = [one, other].map(|start| Watched::new(start.addr(), 4 * PAGE, PAGE).unwrap());
        // SAFETY: the byte lies in one of the two mappings, which this test alone uses.
        let read = |at: *mut u8| unsafe { at.read_volatile() };
        // SAFETY: as above.
        let write = |at: *mut u8| unsafe { at.write_volatile(7) };
        write(one.wrapping_add(PAGE));
        write(one.wrapping_add(3 * PAGE));
        ftruncate(&file, 2 * PAGE as u64).unwrap();
        assert_eq!((read(one.wrapping_add(PAGE)), watched[0].is_broken()), (7, false));
        assert_eq!((read(one.wrapping_add(3 * PAGE)), watched[0].is_broken()), (0, true));
        write(one.wrapping_add(3 * PAGE + 5));
        assert_eq!(read(one.wrapping_add(3 * PAGE + 5)), 7);
        assert!(!watched[1].is_broken());
        assert_eq!(read(other.wrapping_add(PAGE)), 7);
        // Writing alone is enough, and each page is a fault of its own.
        write(one.wrapping_add(2 * PAGE));
        assert_eq!(read(one.wrapping_add(2 * PAGE)), 7);
        drop(watched);
        for start in [one, other] {
            // SAFETY: the mapping is not used any more.
            unsafe { munmap(start.cast(), 4 * PAGE) }.unwrap();
        }
    }

    #[test]
    fn ranges_are_found_by_their_addresses() {
        let range = Range::free();
        assert_eq!(range.page_of(0), None);
        range.start.store(0x1000_0000, Ordering::Relaxed);
        range.page.store(0x20_0000, Ordering::Relaxed);
        range.bytes.store(0x40_0000, Ordering::Relaxed);
        for (address, page) in [
            (0xfff_ffff, None),
            (0x1000_0000, Some(0x1000_0000)),
            (0x101f_ffff, Some(0x1000_0000)),
            (0x1020_0000, Some(0x1020_0000)),
            (0x103f_ffff, Some(0x1020_0000)),
            (0x1040_0000, None),
        ] {
            assert_eq!(range.page_of(address), page.map(|page| (page, 0x20_0000)), "{address:#x}");
        }
    }
}
