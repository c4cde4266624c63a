//! Memory: its bus, its banks, the processors' write buffers, and the passes of processors over data.
//!
//! ```text
//!     processor reads a block         in its cache ── no time, or the latency of the second-level cache
//!                                     else ── stall: [write-back by the owner] ── latency of each line ── bus
//!     processor overwrites a block    in its cache ── no time
//!                                     else ── write buffer: [write-back by the owner] ── bus
//!     replaced modified block                 write buffer: bus
//!     device reads or writes          [write-back by the owner] ── bus
//! ```
//!
//! Each access to memory holds a random bank from the access latency on until its last byte has passed the bus.
//! A processor has as many lines in flight as the description's `misses`; with one, it stalls for each line.
//! A block in the write buffer holds a slot until it has passed the bus; a processor that finds no slot stalls.
//! All the time between the beginning and the end of a pass is a stall of the processor.

use super::{LINE_BYTES, at_least_one};
use crate::engine::{Access, Caches, Movement, Net, Op, Register, Script, ServiceTime, Station, Time};
use crate::server::buffers::{Pass, Regions};
use crate::server::script::ScriptBuilder;
use bywash_model::machine::Memory;

/// Stations of memory, and its speeds.
pub struct MemoryParts {
    bus: Station,
    banks: Station,
    bank_count: u32,
    latency: Time,
    /// Seconds per byte on the bus.
    byte: f64,
    /// Seconds per byte by which the latency of single lines exceeds the latency of a whole block.
    per_line: f64,
    /// Seconds per byte to load lines from the second-level cache.
    line: f64,
    l1: f64,
    l2: f64,
    is_three_phase: bool,
    /// Scripts that move one block of a device into memory and out of memory, indexed by the direction.
    pub blocks: [Script; 2],
    /// Stations of the write buffers' slots; scripts that carry out of a slot what a write fetched, and what an
    /// access replaced.
    posted: Option<Posted>,
}

struct Posted {
    slots: Station,
    write: Script,
    replaced: Script,
}

/// Scripts that move single lines between memory and the cache of the processor in [`Register::Processor`]. The bytes
/// of each movement are in the registers; [`Op::Note`] tells when the processor goes on.
#[derive(Clone, Copy, Debug)]
pub struct LineScripts {
    /// A line comes, for which the processor waits, and a modified one that it replaced goes to the write buffer.
    pub fetch: Script,
    /// A line comes that a store needs: the processor waits until the write buffer has room.
    pub store: Script,
    /// Other caches are told to drop their copies of a line.
    pub upgrade: Script,
    /// A modified line goes to memory by the write buffer.
    pub write_back: Script,
}

/// Bytes of an address on the memory bus.
const ADDRESS_BYTES: f64 = 8.0;

/// Bytes of an access to memory.
#[derive(Clone, Copy)]
enum Amount {
    /// The job's current block.
    Block,
    /// Bytes of a movement by the job's last [`Op::Touch`].
    Moved(Movement),
}

impl Amount {
    fn time(self, fixed: Time, seconds_per_byte: f64) -> ServiceTime {
        match self {
            Amount::Block => ServiceTime::Block(fixed, seconds_per_byte * 1e12),
            Amount::Moved(movement) => ServiceTime::Moved(movement, fixed, seconds_per_byte * 1e12),
        }
    }
}

impl MemoryParts {
    /// Adds the scripts that move blocks to `net`. `slots` are the stations of the write buffers' slots.
    pub fn new(
        net: &mut Net,
        memory: &Memory,
        bus: Station,
        banks: Station,
        slots: Option<Station>,
    ) -> MemoryParts {
        let nothing = net.script(Vec::new());
        // A block's lines, less those that are fetched together with the first one.
        let lines_alone = (1.0 / (LINE_BYTES * memory.misses.max(1.0)) - 1.0 / Memory::BLOCK).max(0.0);
        let mut parts = MemoryParts {
            bus,
            banks,
            bank_count: at_least_one(memory.banks),
            latency: Time::from_seconds(memory.latency.0),
            byte: 1.0 / memory.rate.0,
            per_line: memory.latency.0 * lines_alone,
            line: memory.l2_latency.0 / LINE_BYTES,
            l1: memory.l1.0,
            l2: memory.l2.0,
            is_three_phase: memory.three_phase,
            blocks: [nothing; 2],
            posted: None,
        };
        let mut into = ScriptBuilder::default();
        parts.access(&mut into, Amount::Block);
        let mut out = ScriptBuilder::default();
        parts.moved(&mut out, Movement::WrittenBack);
        parts.access(&mut out, Amount::Block);
        parts.blocks = [net.script(into.ops), net.script(out.ops)];
        parts.posted = slots.map(|slots| {
            let mut script = |movements: &[Movement]| {
                let mut script = ScriptBuilder::default();
                movements.iter().for_each(|movement| parts.moved(&mut script, *movement));
                script.add(Op::Free(slots));
                net.script(script.ops)
            };
            let write = script(&[Movement::WrittenBack, Movement::Fetched]);
            Posted { slots, write, replaced: script(&[Movement::Replaced]) }
        });
        parts
    }

    /// Adds the scripts that move lines to `net`. `slots` are the stations of the write buffers of the single
    /// processors, if they have some.
    pub fn line_scripts(&self, net: &mut Net, slots: Option<Station>) -> LineScripts {
        let slots = slots.map(|slots| slots.in_register(Register::Processor));
        let mut entry = |fill: &dyn Fn(&mut ScriptBuilder)| {
            let mut script = ScriptBuilder::default();
            fill(&mut script);
            net.entry(script.ops)
        };
        // What moves by the write buffer occupies a slot of it, and a processor that finds none waits.
        let buffered = |script: &mut ScriptBuilder, movements: &[Movement]| match slots {
            Some(slots) => {
                script.add(Op::Seize(slots));
                script.add(Op::Note);
                movements.iter().for_each(|movement| self.moved(script, *movement));
                script.add(Op::Free(slots));
            }
            None => {
                movements.iter().for_each(|movement| self.moved(script, *movement));
                script.add(Op::Note);
            }
        };
        let fetch = entry(&|script| {
            self.moved(script, Movement::WrittenBack);
            self.moved(script, Movement::Fetched);
            let nothing = script.jump(Op::JumpUnlessMoved { movement: Movement::Replaced, to: 0 });
            buffered(script, &[Movement::Replaced]);
            let end = script.jump(Op::Jump { to: 0 });
            script.land(nothing);
            script.add(Op::Note);
            script.land(end);
        });
        LineScripts {
            fetch,
            store: entry(&|script| {
                buffered(script, &[Movement::WrittenBack, Movement::Fetched, Movement::Replaced]);
            }),
            upgrade: entry(&|script| {
                script
                    .add(Op::Use { station: self.bus, time: ServiceTime::fixed(ADDRESS_BYTES * self.byte) });
                script.add(Op::Note);
            }),
            write_back: entry(&|script| buffered(script, &[Movement::WrittenBack])),
        }
    }

    /// Returns the time that an idle memory takes to move a line.
    pub fn idle_line(&self) -> Time {
        self.latency + Time::from_seconds(LINE_BYTES * self.byte)
    }

    /// Returns the empty caches of `processors` processors.
    pub fn caches(&self, processors: u32, regions: &Regions) -> Caches {
        let block = self.latency.seconds() / Memory::BLOCK + self.byte;
        let caches = Caches::new(processors, self.l2, regions.sectors());
        let caches = caches.with_idle_memory(block + self.per_line, block);
        if self.is_three_phase { caches } else { caches.with_intervention() }
    }

    /// Returns the seconds per byte for which a pass loads data from the second-level cache into the first: the
    /// first holds it only if all buffers of the pass fit there.
    pub fn second_level_time(&self, regions: &Regions, pass: Pass) -> f64 {
        if regions.bytes_at_once(pass) > self.l1 { self.line } else { 0.0 }
    }

    /// Adds a pass over all bytes of the request by a processor, one of `processors`, which the job occupies.
    pub fn pass(&self, script: &mut ScriptBuilder, regions: &Regions, pass: Pass, processors: Station) {
        script.add(Op::BeginStall);
        let loop_at = script.here();
        if let Some(buffer) = pass.reads {
            script.add(regions.touch(Access::Read, buffer, true));
            self.wait(script);
            let second = self.second_level_time(regions, pass);
            if second > 0.0 {
                script.add(Op::Delay(Amount::Moved(Movement::Found).time(Time(0), second)));
            }
        }
        if let Some(buffer) = pass.writes {
            script.add(regions.touch(Access::Write, buffer, self.posted.is_none()));
            match &self.posted {
                Some(Posted { slots, write, .. }) => {
                    let found = script.jump(Op::JumpUnlessMoved { movement: Movement::Fetched, to: 0 });
                    script.add(Op::Seize(*slots));
                    script.add(Op::Send { script: *write });
                    script.land(found);
                    self.replaced(script);
                }
                None => self.wait(script),
            }
        }
        script.add(Op::NextBlock { to: loop_at });
        script.add(Op::EndStall(processors));
    }

    /// Adds the movements of the last access, for which the processor waits.
    fn wait(&self, script: &mut ScriptBuilder) {
        let found = script.jump(Op::JumpUnlessMoved { movement: Movement::Fetched, to: 0 });
        self.moved(script, Movement::WrittenBack);
        if self.per_line > 0.0 {
            script.add(Op::Delay(Amount::Moved(Movement::Fetched).time(Time(0), self.per_line)));
        }
        self.moved(script, Movement::Fetched);
        self.replaced(script);
        script.land(found);
    }

    /// Adds the write-back of what the last access replaced in the cache.
    fn replaced(&self, script: &mut ScriptBuilder) {
        match &self.posted {
            Some(Posted { slots, replaced, .. }) => {
                let nothing = script.jump(Op::JumpUnlessMoved { movement: Movement::Replaced, to: 0 });
                script.add(Op::Seize(*slots));
                script.add(Op::Send { script: *replaced });
                script.land(nothing);
            }
            None => self.moved(script, Movement::Replaced),
        }
    }

    /// Adds the access to memory for a movement, if there is one.
    fn moved(&self, script: &mut ScriptBuilder, movement: Movement) {
        let nothing = script.jump(Op::JumpUnlessMoved { movement, to: 0 });
        self.access(script, Amount::Moved(movement));
        script.land(nothing);
    }

    /// Adds the access of a device to its current block, in the direction of `blocks`.
    pub fn device_block(&self, script: &mut ScriptBuilder, is_out: bool) {
        if is_out {
            self.moved(script, Movement::WrittenBack);
        }
        self.access(script, Amount::Block);
    }

    /// Adds one access: the bank finds the data, which then passes the bus.
    fn access(&self, script: &mut ScriptBuilder, amount: Amount) {
        let pass = Op::Use { station: self.bus, time: amount.time(Time(0), self.byte) };
        if self.latency.0 == 0 {
            script.add(pass);
            return;
        }
        let bank = if self.bank_count > 1 {
            script.add(Op::Pick { register: Register::Bank, count: self.bank_count });
            self.banks.in_register(Register::Bank)
        } else {
            self.banks
        };
        script.add(Op::Seize(bank));
        script.add(Op::Work { station: bank, time: amount.time(self.latency, self.byte) });
        script.add(Op::Delay(ServiceTime::Fixed(self.latency)));
        script.add(pass);
        script.add(Op::Free(bank));
    }
}
