//! Stations of a machine, and the operations that move data through them, block by block.
//!
//! - `memory`: the memory bus, banks, write buffers, and the passes of processors over data
//! - `interconnect`: the bus with its masters, or the switch, and the bridge to memory
//! - `disk`: disks with their controllers, and the split of requests into commands
//! - `work`: processor cycles of a request
//!
//! The processors are one station whose servers are numbered, because each has its own cache. A job that holds a
//! processor computes, stalls (it waits for memory in a pass over data), or spins; a processor that no job holds
//! is idle.

mod disk;
mod interconnect;
mod memory;
mod work;

pub use disk::DiskAccess;
pub use memory::LineScripts;
pub use work::Work;

use super::buffers::{Buffer, Pass, Regions};
use super::script::ScriptBuilder;
use crate::engine::{Net, Op, Register, ServiceTime, Station, Time};
use bywash_model::Architecture;
use bywash_model::machine::{Machine, Memory};
use bywash_model::work::Workload;
use disk::DiskParts;
use interconnect::InterconnectParts;
use memory::MemoryParts;

/// Stations of a machine, and the speeds of its parts.
pub struct Hardware {
    /// Station of the processors.
    pub processors: Station,
    /// Duration of a processor's cycle, in seconds.
    pub cycle: f64,
    memory: Option<MemoryParts>,
    /// Regions of memory.
    pub regions: Regions,
    interconnect: InterconnectParts,
    wire_out: Station,
    wire_in: Station,
    wire_seconds_per_byte: f64,
    interface_processors: Station,
    /// Disks.
    pub disks: DiskParts,
    disk_processors: Station,
    /// Duration of a cycle of the processors in interfaces and in disks, in seconds.
    device_cycles: [f64; 2],
    /// Number of interfaces, and number of disks.
    pub counts: [u32; 2],
    /// Rows of equal stations for the report: name, first station, number of stations.
    pub rows: Vec<(&'static str, Station, u32)>,
}

/// Size of a cache line, in bytes.
const LINE_BYTES: f64 = 64.0;

/// Kind of device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Device {
    /// A network interface.
    Interface,
    /// A disk.
    Disk,
}

impl Device {
    fn register(self) -> Register {
        match self {
            Device::Interface => Register::Interface,
            Device::Disk => Register::Disk,
        }
    }
}

/// Direction of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From a device into memory.
    IntoMemory,
    /// From memory to a device.
    OutOfMemory,
}

/// Rounds a count to the nearest integer, at least 1 and at most a million: a machine has no fractions of
/// parts.
pub fn at_least_one(count: f64) -> u32 {
    count.round().clamp(1.0, 1e6) as u32
}

/// Returns the size of the blocks in which a request of `bytes` bytes moves: a power of two, at least a block
/// of memory, and such that a request has about 64 blocks at most.
pub fn block_of(bytes: f64) -> u32 {
    ((bytes / 64.0).clamp(Memory::BLOCK, 16.0 * 1048576.0) as u32).next_power_of_two()
}

impl Hardware {
    /// Adds the stations of `machine` to `net`, for requests of `work` under `architecture`.
    pub fn new(net: &mut Net, machine: &Machine, work: &Workload, architecture: Architecture) -> Hardware {
        let mut rows = Vec::new();
        let mut row = |net: &mut Net, name: &'static str, count: u32, servers: u32| {
            let first = if count == 1 { net.station(name, servers) } else { net.row(name, count, servers) };
            rows.push((name, first, count));
            first
        };
        let counts = [at_least_one(machine.interfaces.count), at_least_one(machine.disks.count)];
        let processor_count = at_least_one(machine.processors.count);
        let processors = row(net, "processors", 1, processor_count);
        net.numbered(processors);
        let regions = Regions::new(work);
        let memory = machine.memory.map(|memory| {
            let bus = row(net, "memory bus", 1, 1);
            let banks = row(net, "memory banks", at_least_one(memory.banks), 1);
            let slots = (memory.write_buffer.0 / Memory::BLOCK).floor() as u32;
            let slots = (slots > 0).then(|| row(net, "write buffers", 1, slots * processor_count));
            MemoryParts::new(net, &memory, bus, banks, slots)
        });
        if let Some(memory) = &memory {
            net.caches(memory.caches(processor_count, &regions));
        }
        let interconnect = InterconnectParts::new(net, machine, memory.as_ref(), &mut row);
        let wire_out = row(net, "interfaces, out", counts[0], 1);
        let wire_in = row(net, "interfaces, in", counts[0], 1);
        let interface_processors = row(net, "interface processors", counts[0], 1);
        let readers = architecture.is_active().then(|| work.load.threads / machine.disks.count);
        let disks = DiskParts::new(net, machine, interconnect.command_link(), readers, &mut row);
        let disk_processors = row(net, "disk processors", counts[1], 1);
        Hardware {
            processors,
            cycle: 1.0 / machine.processors.speed.0,
            memory,
            regions,
            interconnect,
            wire_out,
            wire_in,
            wire_seconds_per_byte: 1.0 / machine.interfaces.rate.0,
            interface_processors,
            disks,
            disk_processors,
            device_cycles: [1.0 / machine.interfaces.processor.0, 1.0 / machine.disks.processor.0],
            counts,
            rows,
        }
    }

    /// Adds the scripts that move lines between memory and the processors' caches, of a machine whose memory is
    /// described, and returns them with the time that an idle memory takes for a line.
    pub fn line_scripts(&mut self, net: &mut Net, machine: &Machine) -> Option<(LineScripts, Time)> {
        let (memory, description) = (self.memory.as_ref()?, machine.memory.as_ref()?);
        let processors = at_least_one(machine.processors.count);
        let lines = (description.write_buffer.0 / LINE_BYTES).floor() as u32;
        let slots = (lines > 0).then(|| net.row("write buffer", processors, lines));
        self.rows.extend(slots.map(|slots| ("write buffers of lines", slots, processors)));
        Some((memory.line_scripts(net, slots), memory.idle_line()))
    }

    /// Adds `cycles` processor cycles per byte of the request, in which the processor makes `pass`. The cycles
    /// include the stalls of the pass if nothing else uses memory. The job must occupy the processor.
    pub fn work_with_pass(&self, script: &mut ScriptBuilder, cycles: f64, pass: Pass) {
        let Some(memory) = self.memory.as_ref().filter(|_| pass != Pass::default()) else {
            return self.compute(script, ServiceTime::per_byte(cycles * self.cycle));
        };
        memory.pass(script, &self.regions, pass, self.processors);
        let second = memory.second_level_time(&self.regions, pass);
        self.compute(script, ServiceTime::Rest((cycles * self.cycle - second).max(0.0) * 1e12));
    }

    /// Adds computing for `time` by the processor, which the job must occupy.
    pub fn compute(&self, script: &mut ScriptBuilder, time: ServiceTime) {
        script.add(Op::Work { station: self.processors, time });
        script.add(Op::Delay(time));
    }

    /// Adds the transfer of all bytes of the request between a device and `buffer` in memory.
    pub fn move_data(&self, script: &mut ScriptBuilder, device: Device, way: Direction, buffer: Buffer) {
        let memory = self.memory.as_ref().map(|memory| (memory, &self.regions));
        self.interconnect.move_data(script, memory, device, way, buffer);
    }

    /// Adds the transfer of all bytes of the request from one device to another, without memory.
    pub fn move_direct(&self, script: &mut ScriptBuilder, from: Device) {
        self.interconnect.move_direct(script, from);
    }

    /// Adds the work of the processor in a device.
    pub fn device_work(&self, script: &mut ScriptBuilder, device: Device, work: Work) {
        let (row, cycle) = match device {
            Device::Interface => (self.interface_processors, self.device_cycles[0]),
            Device::Disk => (self.disk_processors, self.device_cycles[1]),
        };
        if work != Work::default() {
            let station = row.in_register(device.register());
            script.add(Op::Use { station, time: work.time(cycle) });
        }
    }

    /// Adds the transfer of all bytes of the request to the network.
    pub fn send(&self, script: &mut ScriptBuilder) {
        self.wire(script, self.wire_out);
    }

    /// Adds the transfer of all bytes of the request from the network.
    pub fn receive(&self, script: &mut ScriptBuilder) {
        self.wire(script, self.wire_in);
    }

    fn wire(&self, script: &mut ScriptBuilder, row: Station) {
        let time = ServiceTime::per_byte(self.wire_seconds_per_byte);
        script.add(Op::Use { station: row.in_register(Register::Interface), time });
    }

    /// Adds an access to the disk of the job.
    pub fn access_disk(&self, script: &mut ScriptBuilder, access: DiskAccess) {
        let readers = access.readers / f64::from(self.counts[1]);
        self.disks.enter(script);
        self.disks.work(script, access, readers);
        self.disks.leave(script);
    }
}
