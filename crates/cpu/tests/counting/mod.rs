//! Memory that wraps a space and counts: the simplest model of time, which shows how models see a program.

#![allow(dead_code)] // Each test uses a part.

use bywash_cpu::memory::{
    Access, AtomicOperation, Counter, Entry, Fault, FenceKind, Memory, Reservation, Space,
};

use super::system::HasSpace;

/// Space with a direct-mapped cache of lines for instructions and data together, whose misses cost 20 cycles.
pub struct Counting {
    pub space: Space,
    pub instructions: u64,
    pub loads: u64,
    pub stores: u64,
    pub atomics: u64,
    pub fences: u64,
    pub misses: u64,
    /// Stop is asked for at every so many accesses; 0: never.
    pub stop_every: u64,
    lines: Vec<u64>,
}

const LINES: usize = 512;
const LINE_SHIFT: u32 = 6;

impl Counting {
    pub fn new(space: Space) -> Counting {
        Counting {
            space,
            instructions: 0,
            loads: 0,
            stores: 0,
            atomics: 0,
            fences: 0,
            misses: 0,
            stop_every: 0,
            lines: vec![u64::MAX; LINES],
        }
    }

    fn touch(&mut self, address: u64) {
        let line = address >> LINE_SHIFT;
        let slot = &mut self.lines[line as usize % LINES];
        if *slot != line {
            *slot = line;
            self.misses += 1;
        }
    }
}

impl HasSpace for Counting {
    fn space(&mut self) -> &mut Space {
        &mut self.space
    }
}

impl Memory for Counting {
    const IS_TIMED: bool = true;

    fn fetch(&mut self, address: u64) -> Result<u16, Fault> {
        self.space.fetch(address)
    }

    fn load(&mut self, access: Access) -> Result<u64, Fault> {
        self.loads += 1;
        self.touch(access.address);
        self.space.load(access)
    }

    fn store(&mut self, access: Access, value: u64) -> Result<(), Fault> {
        self.stores += 1;
        self.touch(access.address);
        self.space.store(access, value)
    }

    fn atomic(&mut self, access: Access, operation: AtomicOperation, operand: u64) -> Result<u64, Fault> {
        self.atomics += 1;
        self.touch(access.address);
        self.space.atomic(access, operation, operand)
    }

    fn load_reserved(&mut self, access: Access) -> Result<(u64, Reservation), Fault> {
        self.loads += 1;
        self.touch(access.address);
        self.space.load_reserved(access)
    }

    fn store_conditional(
        &mut self,
        access: Access,
        reservation: Option<Reservation>,
        value: u64,
    ) -> Result<bool, Fault> {
        self.stores += 1;
        self.touch(access.address);
        self.space.store_conditional(access, reservation, value)
    }

    fn release(&mut self, reservation: Reservation) {
        self.space.release(reservation);
    }

    fn code_version(&self) -> u64 {
        self.space.code_version()
    }

    fn enter(&mut self, entry: Entry) {
        self.instructions += u64::from(entry.instructions);
        let last = (entry.address + u64::from(entry.bytes) - 1) >> LINE_SHIFT;
        for line in entry.address >> LINE_SHIFT..=last {
            self.touch(line << LINE_SHIFT);
        }
    }

    fn fence(&mut self, _: FenceKind, _: u32) {
        self.fences += 1;
    }

    fn stop(&mut self) -> bool {
        self.stop_every != 0 && (self.loads + self.stores).is_multiple_of(self.stop_every)
    }

    fn counter(&mut self, counter: Counter, retired: u64) -> u64 {
        match counter {
            Counter::Retired => retired,
            Counter::Cycle | Counter::Time => retired + 20 * self.misses,
        }
    }
}
