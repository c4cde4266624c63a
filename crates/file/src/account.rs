//! Budget of a thread for warming, paid out of the time that mapped reads have saved.
//!
//! Before reads can be served from a mapping, a thread must ask the kernel which pages are cached, map a
//! window, and take a page fault for each group of sixteen pages. Warming a group costs as much as one to
//! fifteen reads by the kernel, and nobody knows whether the pages will be read again. So each thread pays
//! for warming out of an account:
//!
//! ```text
//!   a read by the kernel            + 1/64 of its time
//!   a read from a mapping           + the time of a read by the kernel, less that of a read from a mapping
//!   a step of warming               - its time, and half of it more for what taking it down costs
//!   at the beginning                + the time of some reads by the kernel (`Settings::advance_reads`)
//! ```
//!
//! All times are cycles of the time-stamp counter, measured in this thread. No constant depends on the
//! machine.
//!
//! Invariant: a step begins only while the credit is above zero. So all warming of a thread costs at most
//! 1/64 of the time of its reads by the kernel, plus the time that mapped reads have saved, plus the advance
//! and one step, whatever the program reads and however short it runs.

use crate::groups::VISITS_MAX;
use crate::state;
use core::cell::Cell;

/// Share of the time of each read by the kernel that is added to the credit, as a right shift (1/64).
const SHARE_SHIFT: u32 = 6;
/// Largest credit of an account, in reads by the kernel.
const CREDIT_READS_MAX: u64 = 4096;
/// Largest price that a step is charged for each group that it warmed, in reads by the kernel.
const STEP_READS_MAX: u64 = 16;
/// Number of reads by the kernel of which one is timed.
const READS_PER_SAMPLE: u32 = 32;
/// Number of reads from a mapping of which one is timed, after the first [`FIRST_MAPPED_READS`].
const MAPPED_READS_PER_SAMPLE: u32 = 64;
/// Number of reads from a mapping at the beginning that are timed more often.
const FIRST_MAPPED_READS: u32 = 64;
/// Number of those first reads from a mapping of which one is timed.
const FIRST_MAPPED_READS_PER_SAMPLE: u32 = 4;
/// Number of reads by the kernel at the beginning that are all timed. The shortest of them is the first
/// estimate, from which the advance is computed: the very first read of a file is slower than those that
/// follow.
const FIRST_SAMPLES: u32 = 4;
/// Number of visits after which a group is warmed while the saving or the price is not known yet.
const FIRST_VISITS: u8 = 4;
/// Least number of groups that one step warms if all of them are due; in smaller steps each group costs more.
const GROUPS_TOGETHER_MIN: usize = 8;
/// Greatest number of groups that one step warms; larger steps make each group hardly cheaper.
const GROUPS_TOGETHER_MAX: usize = 32;
/// Number of cycles from which a measured time is discarded as wrong (a counter that went backwards).
const CYCLES_MAX: u64 = 1 << 40;

/// Account of one thread. All zeroes are a valid account, as of a thread that has read nothing.
pub struct Account {
    /// Cycles that the thread may spend on warming; zero or less: none.
    credit_cycles: Cell<i64>,
    /// Time of a read by the kernel in cycles, as a moving mean; 0: not measured yet.
    read_cycles: Cell<u64>,
    /// Time of a read from a mapping in cycles, as a moving mean; 0: not measured yet.
    mapped_cycles: Cell<u64>,
    /// Time that a read from a mapping saves over one by the kernel, in cycles; 0 if it saves none.
    gain_cycles: Cell<u64>,
    /// Time-stamp counter when the read that is timed was passed to the kernel; 0: no read is being timed.
    began: Cell<u64>,
    /// Number of reads passed to the kernel, wrapping.
    reads: Cell<u32>,
    /// Value of `reads` up to which the share of the reads has been added to the credit.
    added: Cell<u32>,
    /// Number of reads from a mapping up to the next one that is timed, saturating.
    mapped_reads: Cell<u32>,
    /// Number of reads from a mapping before the next one that is timed.
    untimed_left: Cell<u32>,
    /// Number of reads from a mapping between the last timed one and the next; 0: none was timed yet.
    interval: Cell<u32>,
    /// Number of reads by the kernel that were timed, up to [`FIRST_SAMPLES`].
    samples: Cell<u32>,
    /// Price of warming one group in cycles, as a moving mean; 0: no group was warmed yet.
    group_cycles: Cell<u64>,
    /// Number of mapped reads that save the price of warming a group; 0: not known yet.
    visits: Cell<u8>,
}

/// Returns the processor's time-stamp counter, in cycles.
#[inline(always)]
pub fn now() -> u64 {
    // SAFETY: every x86-64 processor has RDTSC; a program that forbids the instruction to itself is left
    // alone by the library (`process::step_aside`).
    unsafe { core::arch::x86_64::_rdtsc() }
}

impl Account {
    /// Resets the account to zeroes, for a new thread.
    pub fn reset(&self) {
        self.credit_cycles.set(0);
        let cycles =
            [&self.read_cycles, &self.mapped_cycles, &self.gain_cycles, &self.began, &self.group_cycles];
        for cell in cycles {
            cell.set(0);
        }
        let counts =
            [&self.reads, &self.added, &self.mapped_reads, &self.untimed_left, &self.interval, &self.samples];
        for cell in counts {
            cell.set(0);
        }
        self.visits.set(0);
    }

    /// Returns true if a step of warming may begin, that is if the credit is above zero.
    #[inline(always)]
    pub fn can_pay(&self) -> bool {
        self.credit_cycles.get() > 0
    }

    /// Notes that a read is passed to the kernel, and starts to time it if it is a sample.
    #[inline]
    pub fn begin_kernel_read(&self) {
        let reads = self.reads.get();
        self.reads.set(reads.wrapping_add(1));
        if reads.is_multiple_of(READS_PER_SAMPLE) || self.samples.get() < FIRST_SAMPLES {
            self.began.set(now());
        }
    }

    /// Notes that the kernel has served a read. The share of reads that are not timed is added with the next
    /// timed read: right after a system call the processor predicts badly, so little is done there.
    #[inline(always)]
    pub fn end_kernel_read(&self) {
        if self.began.get() != 0 {
            self.end_sample();
        }
    }

    #[cold]
    fn end_sample(&self) {
        let cycles = now().wrapping_sub(self.began.replace(0));
        self.sample(cycles, state::settings().advance_reads);
        let reads = self.reads.get().wrapping_sub(self.added.replace(self.reads.get()));
        self.add_kernel_reads(reads.into());
    }

    fn sample(&self, cycles: u64, advance_reads: u64) {
        if cycles >= CYCLES_MAX {
            return;
        }
        let (samples, before) = (self.samples.get(), self.read_cycles.get());
        if samples >= FIRST_SAMPLES {
            self.read_cycles.set(moved(before, cycles));
            self.note_gain();
            return;
        }
        let least = if samples == 0 { cycles.max(1) } else { before.min(cycles.max(1)) };
        self.read_cycles.set(least);
        self.samples.set(samples + 1);
        if samples + 1 == FIRST_SAMPLES {
            let advance = least.saturating_mul(advance_reads).min(CYCLES_MAX) as i64;
            self.credit_cycles.set(self.credit_cycles.get() + advance);
        }
    }

    /// Notes that a read from a mapping begins. Returns the time-stamp counter if the read is timed, else 0.
    #[inline(always)]
    pub fn begin_mapped_read(&self) -> u64 {
        match self.untimed_left.get() {
            0 => self.begin_mapped_sample(),
            left => {
                self.untimed_left.set(left - 1);
                0
            }
        }
    }

    #[cold]
    fn begin_mapped_sample(&self) -> u64 {
        let reads = self.mapped_reads.get();
        let times =
            if reads < FIRST_MAPPED_READS { FIRST_MAPPED_READS_PER_SAMPLE } else { MAPPED_READS_PER_SAMPLE };
        self.mapped_reads.set(reads.saturating_add(times));
        // Adds what the reads since the last timed one have saved.
        self.add(self.gain_cycles.get() * u64::from(self.interval.replace(times)));
        self.untimed_left.set(times - 1);
        now()
    }

    /// Notes that a read was served from a mapping; `began` is the value of [`Account::begin_mapped_read`].
    #[inline(always)]
    pub fn earn(&self, began: u64) {
        if began != 0 {
            self.sample_mapped(now().wrapping_sub(began));
        }
    }

    #[cold]
    fn sample_mapped(&self, cycles: u64) {
        if cycles < CYCLES_MAX {
            let mean = if self.mapped_reads.get() < FIRST_MAPPED_READS { settled } else { moved };
            self.mapped_cycles.set(mean(self.mapped_cycles.get(), cycles));
            self.note_gain();
        }
    }

    /// Computes the saving of a mapped read once both kinds of read have been timed. A mapped read that is
    /// slower than one by the kernel saves nothing.
    fn note_gain(&self) {
        if self.mapped_cycles.get() != 0 {
            self.gain_cycles.set(self.read_cycles.get().saturating_sub(self.mapped_cycles.get()));
            self.note_visits();
        }
    }

    /// Computes the number of mapped reads that pay for warming a group, once saving and price are known.
    fn note_visits(&self) {
        if self.gain_cycles.get() != 0 && self.group_cycles.get() != 0 {
            let visits = self.group_cycles.get().div_ceil(self.gain_cycles.get());
            self.visits.set(visits.min(VISITS_MAX.into()) as u8);
        }
    }

    /// Returns the number of reads of a group by the kernel after which the group is warmed: as many mapped
    /// reads would have saved the price of warming it.
    #[inline(always)]
    pub fn visits_to_warm(&self) -> u8 {
        match self.visits.get() {
            0 => FIRST_VISITS,
            visits => visits,
        }
    }

    /// Like [`Account::visits_to_warm`], but for visits that stand for `reads` reads each.
    pub fn visits_to_warm_by(&self, reads: u64) -> u8 {
        u64::from(self.visits_to_warm()).div_ceil(reads.max(1)) as u8
    }

    #[inline(always)]
    fn add(&self, cycles: u64) {
        // A credit above the bound, which the advance can be, is not cut.
        let credit = self.credit_cycles.get();
        let most = ((self.read_cycles.get() * CREDIT_READS_MAX) as i64).max(credit);
        self.credit_cycles.set((credit + cycles as i64).min(most));
    }

    /// Adds the share of the time of `reads` reads by the kernel to the credit.
    pub fn add_kernel_reads(&self, reads: u64) {
        self.add((self.read_cycles.get() >> SHARE_SHIFT) * reads);
    }

    /// Returns the number of groups that the credit can pay for, from `GROUPS_TOGETHER_MIN` (fewer cost more
    /// each) to `GROUPS_TOGETHER_MAX` (more are hardly cheaper).
    pub fn groups_to_warm(&self) -> usize {
        let credit = self.credit_cycles.get().max(0) as u64;
        let payable = credit.checked_div(self.group_cycles.get()).unwrap_or(0) as usize;
        payable.clamp(GROUPS_TOGETHER_MIN, GROUPS_TOGETHER_MAX)
    }

    /// Charges a step of warming that began at `began` (see [`now`]) and warmed `groups` groups.
    pub fn pay_since(&self, began: u64, groups: u64) {
        self.pay(now().wrapping_sub(began), groups);
    }

    fn pay(&self, cycles: u64, groups: u64) {
        let most = self.read_cycles.get() * STEP_READS_MAX * groups.max(1);
        let price = (cycles.min(CYCLES_MAX) / 2 * 3).min(most);
        self.credit_cycles.set(self.credit_cycles.get() - price as i64);
        if let Some(each) = price.checked_div(groups) {
            self.group_cycles.set(settled(self.group_cycles.get(), each));
            self.note_visits();
        }
    }
}

/// Moving mean of few times, of which the first are the slowest: moves down by half of the difference, and up
/// like [`moved`].
fn settled(mean: u64, sample: u64) -> u64 {
    if mean > sample { sample + (mean - sample) / 2 } else { moved(mean, sample) }
}

/// Moving mean of times. A sample moves the mean by an eighth of the difference, and up by at most 1/32 of
/// the mean, so that interrupted and cold reads hardly count. `mean` is 0 before the first sample.
fn moved(mean: u64, sample: u64) -> u64 {
    match mean {
        0 => sample.max(1),
        mean if sample > mean => mean + ((sample - mean) / 8).min(mean / 32 + 1),
        mean => (mean - (mean - sample) / 8).max(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::DEFAULT_ADVANCE_READS;

    fn account() -> Account {
        Account {
            credit_cycles: Cell::new(0),
            read_cycles: Cell::new(0),
            mapped_cycles: Cell::new(0),
            gain_cycles: Cell::new(0),
            began: Cell::new(0),
            reads: Cell::new(0),
            added: Cell::new(0),
            mapped_reads: Cell::new(0),
            untimed_left: Cell::new(0),
            interval: Cell::new(0),
            samples: Cell::new(0),
            group_cycles: Cell::new(0),
            visits: Cell::new(0),
        }
    }

    /// Makes `reads` reads from a mapping without timing them.
    fn read_from_mapping(account: &Account, reads: u32) {
        (0..reads).for_each(|_| {
            account.begin_mapped_read();
        });
    }

    /// Returns the number of steps of `price` cycles that the account pays for during `reads` reads by the
    /// kernel of 1,000 cycles.
    fn steps(account: &Account, reads: u32, price: u64) -> u64 {
        let mut steps = 0;
        for _ in 0..reads {
            if account.can_pay() {
                account.pay(price, 1);
                steps += 1;
            }
            account.sample(1000, DEFAULT_ADVANCE_READS);
            account.add_kernel_reads(1);
        }
        steps
    }

    #[test]
    fn warming_that_gains_nothing_costs_a_sixty_fourth_and_the_advance() {
        for (reads, price) in [(10, 800), (1000, 8000), (100_000, 8000), (100_000, 100)] {
            let account = account();
            let spent = steps(&account, reads, price) * price / 2 * 3;
            let bound = u64::from(reads) * 1000 / 64 + DEFAULT_ADVANCE_READS * 1000 + price;
            assert!(spent <= bound, "{reads} reads: {spent} of {bound}");
        }
    }

    #[test]
    fn what_gains_pays_for_more() {
        let account = account();
        let _ = steps(&account, 1000, 8000);
        assert!(!account.can_pay());
        account.sample_mapped(200);
        read_from_mapping(&account, 100);
        // A hundred reads have saved 800 cycles each, four fifths of what they cost by the kernel.
        account.pay(1000 * STEP_READS_MAX, 1);
        account.pay(1000 * STEP_READS_MAX, 1);
        assert!(account.can_pay());
    }

    #[test]
    fn a_copy_that_is_slower_than_the_kernel_pays_for_nothing() {
        let account = account();
        let _ = steps(&account, 1000, 8000);
        account.sample_mapped(1100);
        read_from_mapping(&account, 10_000);
        assert!(!account.can_pay());
    }

    #[test]
    fn one_interrupted_step_does_not_stop_all_that_follow() {
        let account = account();
        (0..FIRST_SAMPLES).for_each(|_| account.sample(1000, DEFAULT_ADVANCE_READS));
        account.pay(CYCLES_MAX - 1, 1);
        assert!(account.can_pay());
        // One long step that warmed several groups does not use up the credit for good either.
        account.pay(CYCLES_MAX - 1, 4);
        assert!(!account.can_pay());
        account.add_kernel_reads(64 * 4 * STEP_READS_MAX);
        assert!(account.can_pay());
    }

    #[test]
    fn a_group_is_due_when_its_reads_would_have_gained_its_price() {
        let account = account();
        (0..FIRST_SAMPLES).for_each(|_| account.sample(1000, DEFAULT_ADVANCE_READS));
        assert_eq!((account.visits_to_warm(), account.groups_to_warm()), (FIRST_VISITS, GROUPS_TOGETHER_MIN));
        account.sample_mapped(500);
        // Eight groups cost 1,000 cycles each, and half as much again.
        account.pay(8000, 8);
        assert_eq!((account.visits_to_warm(), account.visits_to_warm_by(16)), (3, 1));
        account.add_kernel_reads(64 * 100);
        assert_eq!(account.groups_to_warm(), GROUPS_TOGETHER_MAX);
        (0..8).for_each(|_| account.pay(1_000_000, 1));
        assert!(account.visits_to_warm() > 3 && account.groups_to_warm() < GROUPS_TOGETHER_MAX);
    }

    #[test]
    fn slow_reads_hardly_count() {
        let account = account();
        // The first read is slow, so the advance is computed from the others.
        account.sample(1_000_000, DEFAULT_ADVANCE_READS);
        (1..FIRST_SAMPLES).for_each(|_| account.sample(1000, DEFAULT_ADVANCE_READS));
        assert_eq!(account.credit_cycles.get(), 1000 * DEFAULT_ADVANCE_READS as i64);
        account.sample(900_000, DEFAULT_ADVANCE_READS);
        assert!(account.read_cycles.get() < 1050);
        (0..100).for_each(|_| account.sample(2000, DEFAULT_ADVANCE_READS));
        assert!((1900..=2000).contains(&account.read_cycles.get()));
        (0..100).for_each(|_| account.sample(500, DEFAULT_ADVANCE_READS));
        assert!((500..600).contains(&account.read_cycles.get()));
    }
}
