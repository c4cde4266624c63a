//! Profile of a program: instructions and stalls by the address of the code.

use bywash_cpu::memory::Entry;
use std::collections::BTreeMap;

/// Number of instructions between two samples.
const SAMPLE_INSTRUCTIONS: i64 = 499;
/// Greatest number of addresses that a profile distinguishes.
const ADDRESSES_MAX: usize = 1 << 16;

/// Instructions and stalls at an address of code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// Number of instructions, of which every 499th is sampled.
    pub instructions: u64,
    /// Time for which processors waited for memory, in picoseconds.
    pub stalled: u64,
}

/// Profile of a program.
#[derive(Clone, Debug, Default)]
pub struct Profile {
    shares: BTreeMap<u64, Share>,
    /// Instructions until the next sample.
    left: i64,
}

impl Profile {
    /// Counts the instructions of an entry.
    #[inline(always)]
    pub fn enter(&mut self, entry: Entry) {
        self.left -= i64::from(entry.instructions);
        if self.left < 0 {
            self.sample(entry.address);
        }
    }

    /// Counts the instructions of so many equal entries.
    pub fn repeat(&mut self, entry: Entry, times: u64) {
        self.left -= i64::from(entry.instructions) * times as i64;
        if self.left < 0 {
            self.sample(entry.address);
        }
    }

    #[inline(never)]
    fn sample(&mut self, address: u64) {
        while self.left < 0 {
            self.left += SAMPLE_INSTRUCTIONS;
            if let Some(share) = self.share(address) {
                share.instructions += SAMPLE_INSTRUCTIONS as u64;
            }
        }
    }

    /// Counts a wait for memory at an address of code, in picoseconds.
    pub fn stall(&mut self, address: u64, picoseconds: u64) {
        if let Some(share) = self.share(address) {
            share.stalled += picoseconds;
        }
    }

    fn share(&mut self, address: u64) -> Option<&mut Share> {
        if self.shares.len() >= ADDRESSES_MAX && !self.shares.contains_key(&address) {
            return None;
        }
        Some(self.shares.entry(address).or_default())
    }

    /// Returns the shares by address, in order.
    pub fn shares(&self) -> impl Iterator<Item = (u64, Share)> {
        self.shares.iter().map(|(address, share)| (*address, *share))
    }
}
