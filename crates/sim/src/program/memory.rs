//! Memory as a processor sees it while it executes a program: the program's memory behind the processor's caches.

use super::caches::{Found, Kind, LINE_BYTES, Miss, ProcessorCaches};
use super::profile::Profile;
use bywash_cpu::memory::{
    Access, AtomicOperation, Counter, Entry, Fault, FenceKind, Memory, Reservation, Space,
};
use bywash_execute::TIMEBASE_HERTZ;
use std::collections::VecDeque;

/// Memory of a processor during one run of a hart.
///
/// Each instruction takes a cycle. An access that the second level serves adds cycles; one that other caches or memory
/// serve is a [`Miss`], takes effect in the program's memory at once, and stops the hart, so that the machine can
/// let the processor wait.
pub struct ProcessorMemory<'a> {
    /// Memory of the program.
    pub space: &'a mut Space,
    /// Caches of the processor.
    pub caches: &'a mut ProcessorCaches,
    /// Misses that the machine has to perform.
    pub misses: &'a mut VecDeque<Miss>,
    /// Profile that is told of the instructions.
    pub profile: Option<&'a mut Profile>,
    /// Cycles that an access to the second level adds.
    pub second_cycles: u64,
    /// Cycles that were added so far.
    pub stalls: u64,
    /// Line of the latest instruction.
    pub code_line: &'a mut u64,
    /// Clock of the processor when the hart began to run.
    pub clock: Clock,
    /// Number of instructions that the hart had retired then.
    pub retired: u64,
    /// True if iterations of a loop that waits are counted instead of executed, where that makes no difference.
    pub counts_iterations: bool,
    /// Number of accesses so far that the first level did not serve.
    pub slow_accesses: u64,
    /// Number of such accesses at the end of the latest iteration of a loop that waits, if there was one.
    pub slow_before: Option<u64>,
    /// True if the hart shall stop.
    pub is_stopped: bool,
    /// Number of added cycles at which the hart shall stop.
    pub stalls_max: u64,
}

/// Clock of a processor: whole cycles since a moment of the simulation.
#[derive(Clone, Copy, Debug, Default)]
pub struct Clock {
    /// Moment from which the cycles count, in picoseconds.
    pub origin: u64,
    /// Number of cycles since.
    pub cycles: u64,
    /// Clock frequency, in cycles per second.
    pub hertz: u64,
}

impl Clock {
    /// Returns the moment after so many more cycles, in picoseconds.
    #[inline]
    pub fn after(&self, cycles: u64) -> u64 {
        let cycles = self.cycles + cycles;
        let picoseconds = match cycles.checked_mul(PICOSECONDS) {
            Some(product) => product / self.hertz,
            None => {
                let product = u128::from(cycles) * u128::from(PICOSECONDS);
                u64::try_from(product / u128::from(self.hertz)).unwrap_or(u64::MAX)
            }
        };
        self.origin.saturating_add(picoseconds)
    }

    /// Returns the number of cycles from now to a moment, rounded up.
    pub fn cycles_until(&self, moment: u64) -> u64 {
        self.cycles_in(moment.saturating_sub(self.after(0)))
    }

    /// Returns the number of cycles in a time of so many picoseconds, rounded up.
    #[inline]
    pub fn cycles_in(&self, picoseconds: u64) -> u64 {
        match picoseconds.checked_mul(self.hertz) {
            Some(product) => product.div_ceil(PICOSECONDS),
            None => {
                let product = u128::from(picoseconds) * u128::from(self.hertz);
                u64::try_from(product.div_ceil(u128::from(PICOSECONDS))).unwrap_or(u64::MAX)
            }
        }
    }

    /// Sets the moment, from which cycles count anew.
    pub fn set(&mut self, moment: u64) {
        (self.origin, self.cycles) = (moment, 0);
    }
}

/// Number of picoseconds in a second.
const PICOSECONDS: u64 = 1_000_000_000_000;

impl ProcessorMemory<'_> {
    /// Accesses a line that is not the most recently used of its set.
    #[inline(never)]
    fn access(&mut self, line: u64, kind: Kind) {
        match self.caches.access(line, kind) {
            Found::First => return,
            Found::Second => {
                self.stalls += self.second_cycles;
                self.is_stopped |= self.stalls >= self.stalls_max;
            }
            Found::Beyond => {
                self.misses.push_back(Miss { line, kind });
                self.is_stopped = true;
            }
        }
        self.slow_accesses += 1;
    }

    /// Accesses the lines of an access.
    #[inline(always)]
    fn touch(&mut self, access: Access, kind: Kind, is_at_once: bool) {
        let line = access.address / LINE_BYTES;
        if !is_at_once {
            self.access(line, kind);
        }
        if access.address % LINE_BYTES + access.width.bytes() > LINE_BYTES {
            self.access(line + 1, kind);
        }
    }
}

impl Memory for ProcessorMemory<'_> {
    const IS_TIMED: bool = true;

    fn fetch(&mut self, address: u64) -> Result<u16, Fault> {
        self.space.fetch(address)
    }

    #[inline(always)]
    fn load(&mut self, access: Access) -> Result<u64, Fault> {
        let value = self.space.load(access)?;
        let is_at_once = self.caches.loads_at_once(access.address / LINE_BYTES);
        self.touch(access, Kind::Load, is_at_once);
        Ok(value)
    }

    #[inline(always)]
    fn store(&mut self, access: Access, value: u64) -> Result<(), Fault> {
        self.space.store(access, value)?;
        let is_at_once = self.caches.stores_at_once(access.address / LINE_BYTES);
        self.touch(access, Kind::Store, is_at_once);
        Ok(())
    }

    fn atomic(&mut self, access: Access, operation: AtomicOperation, operand: u64) -> Result<u64, Fault> {
        let old = self.space.atomic(access, operation, operand)?;
        self.touch(access, Kind::Atomic, false);
        Ok(old)
    }

    fn load_reserved(&mut self, access: Access) -> Result<(u64, Reservation), Fault> {
        let found = self.space.load_reserved(access)?;
        self.touch(access, Kind::Load, false);
        Ok(found)
    }

    fn store_conditional(
        &mut self,
        access: Access,
        reservation: Option<Reservation>,
        value: u64,
    ) -> Result<bool, Fault> {
        let has_stored = self.space.store_conditional(access, reservation, value)?;
        if has_stored {
            self.touch(access, Kind::Atomic, false);
        }
        Ok(has_stored)
    }

    fn release(&mut self, reservation: Reservation) {
        self.space.release(reservation);
    }

    #[inline(always)]
    fn code_version(&self) -> u64 {
        self.space.code_version()
    }

    #[inline(always)]
    fn enter(&mut self, entry: Entry) {
        let (first, last) =
            (entry.address / LINE_BYTES, (entry.address + u64::from(entry.bytes) - 1) / LINE_BYTES);
        let mut line = first;
        if *self.code_line == first {
            line += 1;
        }
        while line <= last {
            if !self.caches.fetches_at_once(line) {
                self.access(line, Kind::Fetch);
            }
            line += 1;
        }
        *self.code_line = last;
        if let Some(profile) = &mut self.profile {
            profile.enter(entry);
        }
    }

    /// Counts iterations if the latest one had all its lines in the first level: then each further one finds them there as
    /// well, and leaves each set in the order of use in which it was.
    fn repeat(&mut self, entry: Entry, iterations: u64) -> bool {
        let before = self.slow_before.replace(self.slow_accesses);
        let is_steady = self.counts_iterations && before == Some(self.slow_accesses);
        if let Some(profile) = self.profile.as_mut().filter(|_| is_steady) {
            profile.repeat(entry, iterations);
        }
        is_steady
    }

    fn fence(&mut self, kind: FenceKind, position: u32) {
        self.space.fence(kind, position);
    }

    #[inline(always)]
    fn stop(&mut self) -> bool {
        self.is_stopped
    }

    fn counter(&mut self, counter: Counter, retired: u64) -> u64 {
        let moment = self.clock.after(retired.saturating_sub(self.retired) + self.stalls);
        let since_start = Clock { origin: 0, cycles: 0, hertz: self.clock.hertz };
        match counter {
            Counter::Cycle => since_start.cycles_in(moment),
            Counter::Time => Clock { hertz: TIMEBASE_HERTZ, ..since_start }.cycles_in(moment),
            Counter::Retired => retired,
        }
    }
}
