//! Room for windows: creates and maps the windows of a file, and releases idle ones of any file for them.
//!
//! Both the number of windows and the total of mapped bytes are limited ([`state::resident_max`]). Finding a
//! window to release means a look at all of them, so most attempts are refused ([`window::wish`]) and the
//! kernel serves the request.

use super::OpenFile;
use crate::state;
use crate::threads;
use crate::window::{self, MAPPING_BYTES_MIN, Window};
use bywash_session::Counter;
use bywash_sync::{Ordering, Ordering::Relaxed};

impl OpenFile {
    /// Creates a window of this file without a mapping; `None` if no window or no memory is free. The caller
    /// holds the lock, and its hazard names the file.
    pub(super) fn create_window(&self, index: u64, shift: u32) -> Option<&'static Window> {
        let window = window::take_free().or_else(|| {
            self.evict_one(window::wish()?, |_| true)?;
            window::take_free()
        })?;
        window::assign(window, self.address(), index, shift)
    }

    /// Maps a window so that the bytes of the file up to `end` (exclusive, within its size) are covered; a
    /// window that is mapped already is mapped anew and larger. Returns false if that is not possible now. The
    /// caller holds the lock, and its hazard names the file.
    pub(super) fn map(&self, window: &Window, fd: i32, end: u64) -> bool {
        let wanted = (self.size().max(end) - window.start()).next_power_of_two().max(MAPPING_BYTES_MIN);
        let length = wanted.min(1 << window.shift()) as usize;
        window::unmap(window)
            && self.make_room(length as u64)
            && self.is_behind(fd)
            && window::map(window, fd, length, self.maps_writes())
    }

    /// Releases idle windows until `length` more bytes may be mapped; returns false if not enough are idle.
    fn make_room(&self, length: u64) -> bool {
        let most = state::resident_max();
        let fits = || window::mapped_total() + length <= most;
        if length > most || fits() {
            return length <= most;
        }
        let Some(now) = window::wish() else { return false };
        while !fits() {
            if self.evict_one(now, |window| window.mapped.load(Relaxed) != 0).is_none() {
                return false;
            }
        }
        true
    }

    /// Releases the least recently used window, of any file, among those that `would_do` accepts. The caller's
    /// hazard names this file.
    fn evict_one(&self, now: u32, would_do: fn(&Window) -> bool) -> Option<()> {
        let idlest = window::idlest(now, would_do)?;
        // SAFETY: a window in use names an open file of the pool, which is never unmapped.
        let owner = unsafe { &*(idlest.owner() as *const OpenFile) };
        let destroy = if core::ptr::eq(owner, self) { window::destroy_held } else { window::destroy };
        owner.drop_window(idlest, destroy).then(|| threads::count(Counter::WindowsEvicted, 1))
    }

    /// Removes one window from the file; returns true if it was destroyed. The caller holds the lock, and
    /// chooses the `destroy` that suits its hazard.
    fn drop_window(&self, window: &'static Window, destroy: fn(&'static Window) -> bool) -> bool {
        let address = core::ptr::from_ref(window).cast_mut();
        for slot in &self.windows {
            if slot.load(Relaxed) == address {
                slot.store(core::ptr::null_mut(), Ordering::Release);
            }
        }
        let gone = destroy(window);
        if !gone {
            self.leaves_over();
        }
        gone
    }
}
