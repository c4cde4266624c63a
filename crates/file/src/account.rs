//! A thread's account of warming: what it may cost, out of what has been gained.
//!
//! Before reads are served from a mapping somebody has to ask which pages are cached, map a window, and take a
//! page fault for each group of sixteen pages, which costs as much as one to fifteen reads by the kernel. Nobody
//! knows whether the pages will be read again. So each thread pays for these steps out of an account:
//!
//! ```text
//!   a read by the kernel            + 1/64 of its time
//!   a read from a mapping           + the time of a read by the kernel, less that of a read from a mapping
//!   a step of warming               - its time, and half of it more for what taking it down costs
//!   at the beginning                + the time of some reads by the kernel (`Settings::advance_reads`)
//! ```
//!
//! All times are cycles of the time-stamp counter, measured in this thread on this machine; there is no
//! constant of a machine in it.
//!
//! Invariant: a step begins only while the account is above zero. So whatever a program reads, and however
//! short it runs, all warming of a thread costs at most 1/64 of the time of its reads by the kernel, beside
//! what was gained, and the advance and one step in all.

use crate::groups::VISITS_MAX;
use crate::process;
use core::cell::Cell;

/// Reads by the kernel whose time a thread may spend on warming before it has gained anything, where nothing
/// else is asked for: enough for some hundred KiB.
pub const DEFAULT_ADVANCE_READS: u64 = 32;
/// Part of the time of each read by the kernel that may be spent.
const SHARE_SHIFT: u32 = 6;
/// Largest credit and largest price of one step, in reads by the kernel.
const CREDIT_READS_MAX: u64 = 4096;
const STEP_READS_MAX: u64 = 16;
/// One read by the kernel in so many is timed, and one from a mapping.
const READS_PER_SAMPLE: u32 = 32;
const MAPPED_READS_PER_SAMPLE: u32 = 64;
/// Reads from a mapping of which more are timed, and one in how many.
const FIRST_MAPPED_READS: u32 = 64;
const FIRST_MAPPED_READS_PER_SAMPLE: u32 = 4;
/// Reads by the kernel that are timed at the beginning, one after the other. The least of them is the first estimate,
/// from which the advance is reckoned: the very first read of a file is slower than those that follow.
const FIRST_SAMPLES: u32 = 4;
/// Visits of a group before it is warmed, until gain and price are known.
const FIRST_VISITS: u8 = 4;
/// Groups that are warmed in one step, if all of them are due: in fewer each costs more, in more hardly less.
const GROUPS_TOGETHER_MIN: usize = 8;
const GROUPS_TOGETHER_MAX: usize = 32;
/// Cycles beyond which a time is taken for wrong (a counter that went backwards).
const CYCLES_MAX: u64 = 1 << 40;

/// The account of one thread; zeroes are a valid one.
pub struct Account {
    credit_cycles: Cell<i64>,
    /// Time of a read by the kernel, as a moving mean; 0: none was timed yet.
    read_cycles: Cell<u64>,
    /// Time of a read from a mapping, likewise.
    mapped_cycles: Cell<u64>,
    /// Time that a read from a mapping gains.
    gain_cycles: Cell<u64>,
    /// When the read under way was given to the kernel; 0: it is not timed.
    began: Cell<u64>,
    reads: Cell<u32>,
    /// Those whose share has been added.
    added: Cell<u32>,
    mapped_reads: Cell<u32>,
    /// Reads from a mapping before the next one that is timed.
    untimed_left: Cell<u32>,
    /// Reads from a mapping from the last one that was timed to the next one; 0: none was timed yet.
    interval: Cell<u32>,
    /// Reads by the kernel that were timed, up to [`FIRST_SAMPLES`].
    samples: Cell<u32>,
    /// Price of warming one group, as a moving mean; 0: none was warmed yet.
    group_cycles: Cell<u64>,
    /// Reads that gain what it costs to warm a group; 0: not known yet.
    visits: Cell<u8>,
}

/// The time-stamp counter.
#[inline(always)]
pub fn now() -> u64 {
    // SAFETY: every x86-64 processor has the instruction; a program that forbids it to itself is left alone by
    // the library (`process::step_aside`).
    unsafe { core::arch::x86_64::_rdtsc() }
}

impl Account {
    /// Forgets everything: another thread begins.
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

    /// Whether a step of warming may begin.
    #[inline(always)]
    pub fn can_pay(&self) -> bool {
        self.credit_cycles.get() > 0
    }

    /// A read is given to the kernel.
    #[inline]
    pub fn begin_kernel_read(&self) {
        let reads = self.reads.get();
        self.reads.set(reads.wrapping_add(1));
        if reads.is_multiple_of(READS_PER_SAMPLE) || self.samples.get() < FIRST_SAMPLES {
            self.began.set(now());
        }
    }

    /// The kernel has served a read. The share of those that were not timed comes with the next one that is: little
    /// is done behind a system call, where the processor's predictions are the worst.
    #[inline(always)]
    pub fn end_kernel_read(&self) {
        if self.began.get() != 0 {
            self.end_sample();
        }
    }

    #[cold]
    fn end_sample(&self) {
        let cycles = now().wrapping_sub(self.began.replace(0));
        self.sample(cycles, process::settings().advance_reads);
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

    /// A read from a mapping begins. Answers when, if it is timed, and else 0.
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
        // What those since the last one that was timed have gained.
        self.add(self.gain_cycles.get() * u64::from(self.interval.replace(times)));
        self.untimed_left.set(times - 1);
        now()
    }

    /// A read was served from a mapping; `began` is the answer of [`Account::begin_mapped_read`].
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

    /// The gain of a mapped read is known when both ways have been timed. A copy that is slower gains nothing.
    fn note_gain(&self) {
        if self.mapped_cycles.get() != 0 {
            self.gain_cycles.set(self.read_cycles.get().saturating_sub(self.mapped_cycles.get()));
            self.note_visits();
        }
    }

    fn note_visits(&self) {
        if self.gain_cycles.get() != 0 && self.group_cycles.get() != 0 {
            let visits = self.group_cycles.get().div_ceil(self.gain_cycles.get());
            self.visits.set(visits.min(VISITS_MAX.into()) as u8);
        }
    }

    /// Reads of a group by the kernel after which warming it has come to pay: as many from a mapping would have
    /// gained its price.
    #[inline(always)]
    pub fn visits_to_warm(&self) -> u8 {
        match self.visits.get() {
            0 => FIRST_VISITS,
            visits => visits,
        }
    }

    /// As [`Account::visits_to_warm`], of visits that are so many reads each.
    pub fn visits_to_warm_by(&self, reads: u64) -> u8 {
        u64::from(self.visits_to_warm()).div_ceil(reads.max(1)) as u8
    }

    #[inline(always)]
    fn add(&self, cycles: u64) {
        // An advance above the bound stays.
        let credit = self.credit_cycles.get();
        let most = ((self.read_cycles.get() * CREDIT_READS_MAX) as i64).max(credit);
        self.credit_cycles.set((credit + cycles as i64).min(most));
    }

    /// Adds the share of so many reads by the kernel.
    pub fn add_kernel_reads(&self, reads: u64) {
        self.add((self.read_cycles.get() >> SHARE_SHIFT) * reads);
    }

    /// Returns how many groups a step may warm by what has been saved, from a few, of which each costs less together,
    /// up to as many as make a difference.
    pub fn groups_to_warm(&self) -> usize {
        let credit = self.credit_cycles.get().max(0) as u64;
        let payable = credit.checked_div(self.group_cycles.get()).unwrap_or(0) as usize;
        payable.clamp(GROUPS_TOGETHER_MIN, GROUPS_TOGETHER_MAX)
    }

    /// A step of warming that began at `began` has ended; `groups` were warmed in it.
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

/// A mean of few times, of which the first ones are the slowest: it falls by half of the difference, and else moves
/// as [`moved`].
fn settled(mean: u64, sample: u64) -> u64 {
    if mean > sample { sample + (mean - sample) / 2 } else { moved(mean, sample) }
}

/// A moving mean of times. One sample moves it by an eighth of the difference, and upwards by a thirty-second of the
/// mean at most: interruptions and cold reads hardly count. `mean` is 0 before the first sample.
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

    /// Reads from a mapping, whose times are as sampled before.
    fn read_from_mapping(account: &Account, reads: u32) {
        (0..reads).for_each(|_| {
            account.begin_mapped_read();
        });
    }

    /// Steps of `price` that are paid for while the kernel serves `reads` reads of 1,000 cycles.
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
        // A hundred reads have gained 800 cycles each, four fifths of what they cost by the kernel.
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
        // Nor does one that went on for long because it warmed much.
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
        // Eight groups at 1,000 cycles each and half as much again.
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
        // The first one is slow, and the advance is reckoned from the others.
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
