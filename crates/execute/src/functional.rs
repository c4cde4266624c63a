//! Machine for correct results: instructions take a fixed time, devices have fixed latencies, and the
//! operating system's work takes a fixed time for each call.

use std::collections::VecDeque;

use bywash_cpu::memory::{
    Access, AtomicOperation, Counter, Entry, Fault, FenceKind, Memory, Reservation, Space,
};
use bywash_cpu::{Blocks, Exit, Hart};

use crate::clock::Time;
use crate::machine::{Continuation, Device, Direction, Event, Machine, Request, Tag, ThreadId, Work};

/// Latencies of a [`Functional`] machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Latencies {
    /// Time of an instruction.
    pub instruction: Time,
    /// Time of the work of one system call or interrupt.
    pub call: Time,
    /// Time of a disk's read or write.
    pub disk: Time,
    /// Time in which data passes an interface and reaches its other end.
    pub interface: Time,
}

impl Default for Latencies {
    /// Returns 1 ns, 200 ns, 100 us and 20 us.
    fn default() -> Latencies {
        Latencies {
            instruction: Time::from_nanoseconds(1),
            call: Time::from_nanoseconds(200),
            disk: Time::from_nanoseconds(100_000),
            interface: Time::from_nanoseconds(20_000),
        }
    }
}

/// Machine without caches, bus or queues at devices: each device completes its requests after a fixed latency
/// in the order of their submission.
///
/// Processors take turns of [`TURN_INSTRUCTIONS`] instructions; a machine with one processor takes turns of
/// [`SINGLE_TURN_INSTRUCTIONS`]. The processor whose time is the earliest runs first.
#[derive(Clone, Debug)]
pub struct Functional {
    /// Latencies.
    latencies: Latencies,
    /// Time of each processor.
    clocks: Vec<Time>,
    /// Processors that had a thread at the latest event.
    was_occupied: Vec<bool>,
    /// Time of the latest event.
    time: Time,
    /// Time until which the processor that runs may run.
    turn_end: Time,
    /// Requests in flight, for each device and direction, in the order of their completion.
    in_flight: [VecDeque<(Time, Tag)>; 4],
}

/// Number of instructions that a processor executes before the others follow.
pub const TURN_INSTRUCTIONS: u64 = 2_000;
/// Number of instructions that a machine's only processor executes at most in one go.
pub const SINGLE_TURN_INSTRUCTIONS: u64 = 1_000_000;
/// Ticks of the real-time clock that programs can read, per second (`timebase-frequency`).
pub const TIMEBASE_HERTZ: u64 = 10_000_000;

impl Functional {
    /// Makes a machine with a number of processors, at least 1.
    pub fn new(processors: usize, latencies: Latencies) -> Functional {
        let processors = processors.max(1);
        // A processor must come forward by each instruction.
        let instruction = latencies.instruction.max(Time::from_picoseconds(1));
        Functional {
            latencies: Latencies { instruction, ..latencies },
            clocks: vec![Time::ZERO; processors],
            was_occupied: vec![false; processors],
            time: Time::ZERO,
            turn_end: Time::ZERO,
            in_flight: Default::default(),
        }
    }

    /// Returns the queue with the earliest completion, and its time.
    fn earliest_completion(&self) -> Option<(Time, usize)> {
        let heads = self.in_flight.iter().enumerate();
        heads.filter_map(|(queue, requests)| requests.front().map(|&(at, _)| (at, queue))).min()
    }
}

impl Machine for Functional {
    fn processors(&self) -> usize {
        self.clocks.len()
    }

    fn now(&self, processor: usize) -> Time {
        self.clocks[processor]
    }

    fn time(&self) -> Time {
        self.time
    }

    fn next(&mut self, occupied: &[bool], alarm: Option<Time>) -> Event {
        for (processor, &is_occupied) in occupied.iter().enumerate() {
            if !self.was_occupied[processor] || !is_occupied {
                self.clocks[processor] = self.clocks[processor].max(self.time);
            }
            self.was_occupied[processor] = is_occupied;
        }
        let runner = (0..self.clocks.len()).filter(|&processor| occupied[processor]);
        let runner = runner.map(|processor| (self.clocks[processor], processor)).min();
        let completion = self.earliest_completion();
        let due = [completion.map(|(at, _)| at), alarm].into_iter().flatten().min();
        if let Some((at, processor)) = runner.filter(|&(at, _)| due.is_none_or(|due| at < due)) {
            self.time = self.time.max(at);
            self.turn_end = due.unwrap_or(Time::MAX);
            return Event::Run { processor };
        }
        let Some(due) = due else { return Event::Nothing };
        self.time = self.time.max(due);
        // An idle processor serves the interrupt, or else the one that is behind the others.
        let processor =
            (0..self.clocks.len()).min_by_key(|&processor| (occupied[processor], self.clocks[processor]));
        let processor = processor.unwrap_or(0);
        match completion.filter(|&(at, _)| at == due) {
            Some((_, queue)) => match self.in_flight[queue].pop_front() {
                Some((_, tag)) => Event::Completion { tag, processor },
                None => Event::Nothing,
            },
            None => Event::Alarm { processor },
        }
    }

    fn run(&mut self, processor: usize, hart: &mut Hart, space: &mut Space, blocks: &mut Blocks) -> Exit {
        let limit = if self.clocks.len() == 1 { SINGLE_TURN_INSTRUCTIONS } else { TURN_INSTRUCTIONS };
        let instruction = self.latencies.instruction.picoseconds();
        let left = self.turn_end.since(self.clocks[processor]).picoseconds();
        let budget = left.div_ceil(instruction).clamp(1, limit);
        let before = hart.retired;
        let mut memory = Clocked { space, start: self.clocks[processor], retired: before, instruction };
        let exit = hart.run(&mut memory, blocks, budget);
        let passed = (hart.retired - before).saturating_mul(instruction);
        self.clocks[processor] = self.clocks[processor] + Time::from_picoseconds(passed);
        exit
    }

    fn work(
        &mut self,
        processor: usize,
        _thread: Option<ThreadId>,
        work: &[Work],
        _space: &mut Space,
    ) -> Continuation {
        if !work.is_empty() {
            self.clocks[processor] = self.clocks[processor] + self.latencies.call;
        }
        Continuation::Immediate
    }

    fn submit(&mut self, processor: Option<usize>, tag: Tag, request: Request) {
        let now = processor.map_or(self.time, |processor| self.clocks[processor].max(self.time));
        let (queue, latency) = match request {
            Request::Disk { direction: Direction::In, .. } => (0, self.latencies.disk),
            Request::Disk { direction: Direction::Out, .. } => (1, self.latencies.disk),
            Request::Interface { direction: Direction::In, .. } => (2, self.latencies.interface),
            Request::Interface { direction: Direction::Out, .. } => (3, self.latencies.interface),
        };
        debug_assert_eq!(queue < 2, request.device() == Device::Disk);
        let queue = &mut self.in_flight[queue];
        // Processors are not exactly at the same time; the order is that of submission.
        let at = queue.back().map_or(Time::ZERO, |&(at, _)| at).max(now + latency);
        queue.push_back((at, tag));
    }
}

/// Memory of a processor, whose counters are those of the machine.
struct Clocked<'a> {
    /// Memory.
    space: &'a mut Space,
    /// Time of the processor when its hart began to run.
    start: Time,
    /// Number of instructions that the hart had retired then.
    retired: u64,
    /// Time of an instruction, in picoseconds.
    instruction: u64,
}

impl Memory for Clocked<'_> {
    const IS_TIMED: bool = false;

    fn repeat(&mut self, entry: Entry, iterations: u64) -> bool {
        self.space.repeat(entry, iterations)
    }

    fn fetch(&mut self, address: u64) -> Result<u16, Fault> {
        self.space.fetch(address)
    }

    #[inline(always)]
    fn load(&mut self, access: Access) -> Result<u64, Fault> {
        self.space.load(access)
    }

    #[inline(always)]
    fn store(&mut self, access: Access, value: u64) -> Result<(), Fault> {
        self.space.store(access, value)
    }

    fn atomic(&mut self, access: Access, operation: AtomicOperation, operand: u64) -> Result<u64, Fault> {
        self.space.atomic(access, operation, operand)
    }

    fn load_reserved(&mut self, access: Access) -> Result<(u64, Reservation), Fault> {
        self.space.load_reserved(access)
    }

    fn store_conditional(
        &mut self,
        access: Access,
        reservation: Option<Reservation>,
        value: u64,
    ) -> Result<bool, Fault> {
        self.space.store_conditional(access, reservation, value)
    }

    fn release(&mut self, reservation: Reservation) {
        self.space.release(reservation);
    }

    #[inline(always)]
    fn code_version(&self) -> u64 {
        self.space.code_version()
    }

    fn enter(&mut self, entry: Entry) {
        self.space.enter(entry);
    }

    fn fence(&mut self, kind: FenceKind, position: u32) {
        self.space.fence(kind, position);
    }

    fn counter(&mut self, counter: Counter, retired: u64) -> u64 {
        let passed = retired.saturating_sub(self.retired).saturating_mul(self.instruction);
        let now = self.start + Time::from_picoseconds(passed);
        match counter {
            Counter::Cycle => now.nanoseconds(),
            Counter::Time => {
                (u128::from(now.picoseconds()) * u128::from(TIMEBASE_HERTZ) / 1_000_000_000_000) as u64
            }
            Counter::Retired => retired,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Location;
    use bywash_cpu::memory::Permissions;

    fn read(bytes: u64) -> Request {
        Request::Disk {
            direction: Direction::In,
            file: 1,
            position: 0,
            offset: 0,
            bytes,
            memory: Location::System,
        }
    }

    #[test]
    fn devices_complete_in_the_order_of_submission_and_before_later_instructions() {
        let mut machine = Functional::new(2, Latencies::default());
        assert_eq!(machine.next(&[false, false], None), Event::Nothing);
        machine.submit(Some(0), Tag(1), read(4096));
        machine.submit(Some(1), Tag(2), read(4096));
        // An endless loop: jal x0, 0.
        let mut space = Space::new(1 << 16);
        space.map(0x1000, 0x1000, Permissions::READ | Permissions::EXECUTE).unwrap();
        space.initialise(0x1000, &0x0000_006f_u32.to_le_bytes()).unwrap();
        let (mut hart, mut blocks) = (Hart::new(0x1000), Blocks::new());
        let disk = Latencies::default().disk;
        let mut turns = 0;
        loop {
            match machine.next(&[true, false], Some(Time::from_nanoseconds(250_000))) {
                Event::Run { processor: 0 } => {
                    assert_eq!(machine.run(0, &mut hart, &mut space, &mut blocks), Exit::Budget);
                    turns += 1;
                }
                event => {
                    // The idle processor serves the interrupt.
                    assert_eq!(event, Event::Completion { tag: Tag(1), processor: 1 });
                    break;
                }
            }
        }
        assert_eq!((machine.time(), machine.now(0)), (disk, disk));
        assert_eq!((hart.retired, turns), (100_000, 50));
        assert_eq!(machine.next(&[true, false], None), Event::Completion { tag: Tag(2), processor: 1 });
        let alarm = Some(Time::from_nanoseconds(100_001));
        assert_eq!(machine.next(&[true, false], alarm), Event::Run { processor: 0 });
        machine.run(0, &mut hart, &mut space, &mut blocks);
        assert_eq!(machine.next(&[true, false], alarm), Event::Alarm { processor: 1 });
    }

    #[test]
    fn a_processor_without_a_thread_begins_at_the_present() {
        let mut machine = Functional::new(2, Latencies::default());
        let alarm = Some(Time::from_nanoseconds(7));
        assert_eq!(machine.next(&[false, false], alarm), Event::Alarm { processor: 0 });
        assert_eq!(machine.next(&[false, true], None), Event::Run { processor: 1 });
        assert_eq!(machine.now(1), Time::from_nanoseconds(7));
    }
}
