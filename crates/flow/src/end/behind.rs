//! Keeps the page cache from filling with what is written once and not read again: what was written is given to the
//! device while more comes, and its pages go when it has it.

use crate::sys::{self, WriteBack};
use rustix::fs::Advice;
use std::num::NonZeroU64;
use std::os::fd::BorrowedFd;

/// What of a sink has been given to the device.
#[derive(Debug)]
pub(crate) struct Behind {
    /// Where writing began, or the last window ended.
    from: u64,
    /// The window that the device is writing.
    under_way: Option<(u64, u64)>,
    /// Bytes that may go into the page cache before this begins.
    grace: u64,
}

/// What of a source has been read and goes out of the page cache.
#[derive(Debug)]
pub(crate) struct Trail {
    from: u64,
}

impl Trail {
    /// Begins at `position`.
    pub(crate) fn new(position: u64) -> Trail {
        Trail { from: position }
    }

    /// It has been read up to `position`.
    pub(crate) fn read(&mut self, source: BorrowedFd<'_>, position: u64) {
        if let Some(length) = NonZeroU64::new(position.saturating_sub(self.from))
            && length.get() >= WINDOW_BYTES
        {
            let _ = rustix::fs::fadvise(source, self.from, Some(length), Advice::DontNeed);
            self.from = position;
        }
    }
}

/// Given to the device at a time. At most two such windows are dirty or being written.
const WINDOW_BYTES: u64 = 16 << 20;

impl Behind {
    /// Begins at `position`, after `grace` bytes.
    pub(crate) fn new(position: u64, grace: u64) -> Behind {
        Behind { from: position, under_way: None, grace }
    }

    /// It has been written up to `position`.
    pub(crate) fn written(&mut self, sink: BorrowedFd<'_>, position: u64) {
        if position.saturating_sub(self.from) < self.grace.max(WINDOW_BYTES) {
            return;
        }
        self.grace = 0;
        let window = (self.from, position - self.from);
        // A file system that cannot keeps its pages; nothing is wrong with the data.
        let _ = sys::write_back(sink, window.0, window.1, WriteBack::Begin);
        if let Some((from, length)) = self.under_way.replace(window) {
            let _ = sys::write_back(sink, from, length, WriteBack::Finish);
            let _ = rustix::fs::fadvise(sink, from, NonZeroU64::new(length), Advice::DontNeed);
        }
        self.from = position;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::fd::AsFd;

    #[test]
    fn the_page_cache_keeps_little() {
        // On a disk: memory has nowhere to write its pages to.
        let mut file = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let mut behind = Behind::new(0, 0);
        let block = vec![7u8; 1 << 20];
        for number in 1..=96 {
            file.write_all(&block).unwrap();
            behind.written(file.as_fd(), number << 20);
        }
        let kept = sys::cached_pages(file.as_fd(), 96 << 20).unwrap() * 4096;
        assert!(kept <= 3 * WINDOW_BYTES, "{kept} bytes are kept");
    }
}
