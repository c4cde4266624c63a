//! Keeps data that is moved once from filling the page cache: written data is given to the device while more
//! arrives, and its pages are dropped once they are clean; pages of a source are dropped after they were
//! read. Called by [`super::descriptor_source`] and [`super::descriptor_sink`].

use crate::sys::{self, WriteBack};
use rustix::fs::Advice;
use std::num::NonZeroU64;
use std::os::fd::BorrowedFd;

/// Writeback and dropping of the pages of a sink, window by window.
#[derive(Debug)]
pub(crate) struct WriteBehind {
    /// Offset at which the window that is being filled begins.
    from: u64,
    /// Window that the device is writing: offset and length, in bytes.
    in_flight: Option<(u64, u64)>,
    /// Bytes that may stay in the page cache before the first writeback; 0 once it has begun.
    grace: u64,
}

/// Dropping of the pages of a source after they were read.
#[derive(Debug)]
pub(crate) struct ReadBehind {
    from: u64,
}

impl ReadBehind {
    /// Starts at the offset `position`.
    pub(crate) fn new(position: u64) -> ReadBehind {
        ReadBehind { from: position }
    }

    /// Records that the source has been read up to `position`, and drops the pages behind it, a window at a
    /// time.
    pub(crate) fn read(&mut self, source: BorrowedFd<'_>, position: u64) {
        if let Some(length) = NonZeroU64::new(position.saturating_sub(self.from))
            && length.get() >= WINDOW_BYTES
        {
            let _ = rustix::fs::fadvise(source, self.from, Some(length), Advice::DontNeed);
            self.from = position;
        }
    }
}

/// Size of a window, in bytes. At most two windows are dirty or in writeback at a time.
const WINDOW_BYTES: u64 = 16 << 20;

impl WriteBehind {
    /// Starts at the offset `position`. The first `grace` bytes stay in the page cache until more is written.
    pub(crate) fn new(position: u64, grace: u64) -> WriteBehind {
        WriteBehind { from: position, in_flight: None, grace }
    }

    /// Records that the sink has been written up to `position`. After a full window its writeback is started,
    /// and the window before it is waited for and dropped.
    pub(crate) fn written(&mut self, sink: BorrowedFd<'_>, position: u64) {
        if position.saturating_sub(self.from) < self.grace.max(WINDOW_BYTES) {
            return;
        }
        self.grace = 0;
        let window = (self.from, position - self.from);
        // Errors are ignored: a file system without this call keeps its pages, and the data is not affected.
        let _ = sys::write_back(sink, window.0, window.1, WriteBack::Begin);
        if let Some((from, length)) = self.in_flight.replace(window) {
            let _ = sys::write_back(sink, from, length, WriteBack::Wait);
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
        // The file is on a disk, since pages of tmpfs have no device to be written to.
        let mut file = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let mut behind = WriteBehind::new(0, 0);
        let block = vec![7u8; 1 << 20];
        for number in 1..=96 {
            file.write_all(&block).unwrap();
            behind.written(file.as_fd(), number << 20);
        }
        let kept = sys::cached_pages(file.as_fd(), 96 << 20).unwrap() * 4096;
        assert!(kept <= 3 * WINDOW_BYTES, "{kept} bytes are kept");
    }
}
