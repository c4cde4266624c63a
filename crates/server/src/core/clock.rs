//! Nanoseconds since the core began, read once a round; where only rings are looked at, when there is something in one.

use std::time::Instant;

#[derive(Debug)]
pub(crate) struct Clock {
    began: Instant,
    now: u64,
    is_old: bool,
}

impl Clock {
    pub(crate) fn new() -> Clock {
        Clock { began: Instant::now(), now: 0, is_old: false }
    }

    /// Reads it.
    #[inline]
    pub(crate) fn read(&mut self) -> u64 {
        // 584 years.
        self.now = self.began.elapsed().as_nanos() as u64;
        self.is_old = false;
        self.now
    }

    /// What it said last.
    #[inline]
    pub(crate) fn now(&self) -> u64 {
        self.now
    }

    /// What it said last does not say any more when something begins.
    #[inline]
    pub(crate) fn let_age(&mut self) {
        self.is_old = true;
    }

    /// What it said last, or says now if that is old.
    #[inline]
    pub(crate) fn fresh(&mut self) -> u64 {
        if self.is_old { self.read() } else { self.now }
    }
}
