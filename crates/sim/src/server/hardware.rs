//! Stations of a machine, and the operations that move data through them, block by block.
//!
//! A bridge that holds one block occupies the bus, or the host's link of a switch, until the block has passed
//! both this and memory. A busy memory therefore slows the interconnect down, and a device has one transfer
//! at a time. A bridge that holds several blocks lets other transfers pass meanwhile, also those of the same
//! device. While processors copy, they wait for memory block by block.

use super::caches::Pass;
use super::script::ScriptBuilder;
use crate::engine::{Arm, Net, Op, Register, Script, ServiceTime, Station, Time};
use bywash_model::machine::{DiskScheduling, Disks, Interconnect, Machine, Memory, Topology};

/// Stations of a machine, and the speeds of its parts.
pub struct Hardware {
    /// Station of the processors.
    pub processors: Station,
    /// Duration of a processor's cycle, in seconds.
    pub cycle: f64,
    memory: Option<MemoryParts>,
    /// Bridge to memory, if it holds several blocks.
    bridge: Option<Bridge>,
    joint: InterconnectStations,
    /// Seconds per byte on the interconnect, packet overhead included: on the bus or a device's link, and at
    /// the host's end.
    link_seconds_per_byte: f64,
    host_seconds_per_byte: f64,
    latency: Time,
    wire_out: Station,
    wire_in: Station,
    wire_seconds_per_byte: f64,
    interface_processors: Station,
    disks: DiskParts,
    disk_processors: Station,
    /// Duration of a cycle of the processors in interfaces and in disks, in seconds.
    device_cycles: [f64; 2],
    /// Number of interfaces, and number of disks.
    pub counts: [u32; 2],
    /// Rows of equal stations for the report: name, first station, number of stations.
    pub rows: Vec<(&'static str, Station, u32)>,
}

struct MemoryParts {
    bus: Station,
    banks: Station,
    bank_count: u32,
    latency: Time,
    byte: f64,
    line: f64,
    /// Script that moves one block from or to memory.
    block: Script,
    /// Stations of the write buffers' slots, and the script that moves one block out of a slot while its
    /// processor goes on.
    posted: Option<(Station, Script)>,
}

/// Interconnect: one bus, or one link in each direction for each part.
enum InterconnectStations {
    Bus(Station),
    Switch {
        /// Links into memory and out of memory.
        host: [Station; 2],
        /// Links into the interfaces and out of the interfaces.
        interfaces: [Station; 2],
        /// Links into the disks and out of the disks.
        disks: [Station; 2],
    },
}

/// Stations that data passes between a device and memory.
struct Links {
    /// The host's link, or the bus.
    shared: Station,
    /// The device's link, on a switch.
    own: Option<Station>,
}

impl InterconnectStations {
    fn links(&self, device: Device, way: Direction) -> Links {
        match self {
            InterconnectStations::Bus(bus) => Links { shared: *bus, own: None },
            InterconnectStations::Switch { host, interfaces, disks } => {
                let of_device = if device == Device::Disk { disks } else { interfaces };
                // Data out of memory uses the link into the device.
                let into_device = usize::from(way == Direction::IntoMemory);
                let own = of_device[into_device].in_register(device.register());
                Links { shared: host[way as usize], own: Some(own) }
            }
        }
    }
}

/// Bridge to memory that holds several blocks.
struct Bridge {
    /// Slots of the bridge, indexed by [`Direction`].
    slots: [Station; 2],
    /// Scripts that move a block which has a slot, indexed by [`Device`] and [`Direction`].
    blocks: [[Script; 2]; 2],
}

struct DiskParts {
    description: Disks,
    /// Arms of rotating disks, or channels of flash.
    work: Station,
    /// Link over which a flash drive transfers its data.
    media: Option<Station>,
    queues: Option<Station>,
}

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
    /// Adds the stations of `machine` to `net`.
    pub fn new(net: &mut Net, machine: &Machine) -> Hardware {
        let mut rows = Vec::new();
        let mut row = |net: &mut Net, name: &'static str, count: u32, servers: u32| {
            let first = if count == 1 { net.station(name, servers) } else { net.row(name, count, servers) };
            rows.push((name, first, count));
            first
        };
        let counts = [at_least_one(machine.interfaces.count), at_least_one(machine.disks.count)];
        let processors = row(net, "processors", 1, at_least_one(machine.processors.count));
        let memory = machine.memory.map(|memory| {
            let bus = row(net, "memory bus", 1, 1);
            let banks = row(net, "memory banks", at_least_one(memory.banks), 1);
            let slots = (memory.write_buffer.0 / Memory::BLOCK).floor() as u32;
            let buffer = (slots > 0)
                .then(|| row(net, "write buffers", 1, slots * at_least_one(machine.processors.count)));
            MemoryParts::new(net, &memory, bus, banks, buffer)
        });
        let joint = match machine.interconnect.shape {
            Topology::Bus => InterconnectStations::Bus(row(net, "interconnect", 1, 1)),
            Topology::Switch => InterconnectStations::Switch {
                host: [row(net, "link into memory", 1, 1), row(net, "link out of memory", 1, 1)],
                interfaces: [
                    row(net, "links to interfaces", counts[0], 1),
                    row(net, "links from interfaces", counts[0], 1),
                ],
                disks: [row(net, "links to disks", counts[1], 1), row(net, "links from disks", counts[1], 1)],
            },
        };
        let pending = at_least_one(machine.interconnect.pending);
        let host_seconds_per_byte = 1.0 / machine.interconnect.host_payload_rate();
        let link_seconds_per_byte = 1.0 / machine.interconnect.payload_rate();
        let bridge = memory.as_ref().filter(|_| pending > 1).map(|memory| {
            let names = ["bridge into memory", "bridge out of memory"];
            let slots = names.map(|name| row(net, name, 1, pending));
            let blocks = [Device::Interface, Device::Disk].map(|device| {
                [Direction::IntoMemory, Direction::OutOfMemory].map(|way| {
                    let mut block = ScriptBuilder::default();
                    let links = joint.links(device, way);
                    if way == Direction::OutOfMemory {
                        memory.access(&mut block);
                    }
                    block.add(Op::Use {
                        station: links.shared,
                        time: ServiceTime::per_block_byte(host_seconds_per_byte),
                    });
                    if let Some(own) = links.own {
                        block.add(Op::Use {
                            station: own,
                            time: ServiceTime::per_block_byte(link_seconds_per_byte),
                        });
                    }
                    if way == Direction::IntoMemory {
                        memory.access(&mut block);
                    }
                    block.add(Op::Free(slots[way as usize]));
                    net.script(block.ops)
                })
            });
            Bridge { slots, blocks }
        });
        let wire_out = row(net, "interfaces, out", counts[0], 1);
        let wire_in = row(net, "interfaces, in", counts[0], 1);
        let interface_processors = row(net, "interface processors", counts[0], 1);
        let disks = DiskParts {
            description: machine.disks,
            work: row(
                net,
                "disks",
                counts[1],
                machine.disks.flash.map_or(1, |flash| at_least_one(flash.channels)),
            ),
            media: machine.disks.flash.map(|_| row(net, "disk transfers", counts[1], 1)),
            queues: machine
                .disks
                .flash
                .map(|flash| row(net, "disk queues", counts[1], at_least_one(flash.queues * flash.depth))),
        };
        disks.give_arms(net, counts[1]);
        let disk_processors = row(net, "disk processors", counts[1], 1);
        let Interconnect { latency, .. } = machine.interconnect;
        Hardware {
            processors,
            cycle: 1.0 / machine.processors.speed.0,
            memory,
            bridge,
            joint,
            link_seconds_per_byte,
            host_seconds_per_byte,
            latency: Time::from_seconds(latency.0),
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

    /// Returns the seconds for which a copy, a read or a checksum of `bytes` bytes occupies the processor if
    /// memory is otherwise idle.
    pub fn pass_time(&self, pass: Pass, bytes: f64) -> f64 {
        let Some(memory) = &self.memory else { return 0.0 };
        let blocks = (bytes / f64::from(block_of(bytes))).ceil();
        let waited = pass.waited + if memory.posted.is_none() { pass.posted } else { 0.0 };
        waited * (blocks * memory.latency.seconds() + bytes * memory.byte)
            + pass.l2_share * bytes / LINE * memory.line
    }

    /// Adds a pass of a processor over all bytes of the request. The job must occupy the processor.
    pub fn pass(&self, script: &mut ScriptBuilder, pass: Pass) {
        let Some(memory) = &self.memory else { return };
        let mut waited = pass.waited;
        if pass.posted > 0.0 {
            match memory.posted {
                Some((buffer, posted)) => {
                    let loop_at = script.here();
                    script.add(Op::Seize(buffer));
                    script.add(Op::Send { script: posted });
                    script.add(Op::NextBlock { to: loop_at });
                }
                None => waited += pass.posted,
            }
        }
        // The simulation has only complete crossings.
        for _ in 0..waited.round() as u32 {
            let loop_at = script.here();
            memory.access(script);
            script.add(Op::NextBlock { to: loop_at });
        }
        if pass.l2_share * memory.line > 0.0 {
            script.add(Op::Delay(ServiceTime::per_byte(pass.l2_share * memory.line / LINE)));
        }
    }

    /// Adds the transfer of all bytes of the request between a device and memory.
    pub fn move_data(&self, script: &mut ScriptBuilder, device: Device, way: Direction) {
        let Links { shared, own } = self.joint.links(device, way);
        if let Some(Bridge { slots, blocks }) = &self.bridge {
            self.first_byte(script);
            let loop_at = script.here();
            script.add(Op::Seize(slots[way as usize]));
            script.add(Op::Fork { script: blocks[device as usize][way as usize] });
            script.add(Op::NextBlock { to: loop_at });
            script.add(Op::Join);
            return;
        }
        // The latency of the first byte occupies no link.
        self.first_byte(script);
        if let Some(own) = own {
            script.add(Op::Seize(own));
            script.add(Op::Work { station: own, time: ServiceTime::per_byte(self.link_seconds_per_byte) });
        }
        let loop_at = script.here();
        let time = ServiceTime::per_block_byte(self.host_seconds_per_byte);
        match &self.memory {
            Some(memory) => {
                script.add(Op::Seize(shared));
                script.add(Op::Fork { script: memory.block });
                script.add(Op::Work { station: shared, time });
                script.add(Op::Delay(time));
                script.add(Op::Join);
                script.add(Op::Free(shared));
            }
            None => script.add(Op::Use { station: shared, time }),
        }
        script.add(Op::NextBlock { to: loop_at });
        if let Some(own) = own {
            script.add(Op::Free(own));
        }
    }

    /// Adds the transfer of all bytes of the request from one device to another, without memory.
    pub fn move_direct(&self, script: &mut ScriptBuilder, from: Device) {
        self.first_byte(script);
        match &self.joint {
            InterconnectStations::Bus(bus) => {
                let loop_at = script.here();
                script.add(Op::Use {
                    station: *bus,
                    time: ServiceTime::per_block_byte(self.link_seconds_per_byte),
                });
                script.add(Op::NextBlock { to: loop_at });
            }
            InterconnectStations::Switch { interfaces, disks, .. } => {
                let [disk_in, disk_out] = disks.map(|link| link.in_register(Register::Disk));
                let [interface_in, interface_out] =
                    interfaces.map(|link| link.in_register(Register::Interface));
                // Disks come first in either direction: a job that has an interface's link never waits for a
                // disk's link, so no deadlock is possible.
                let (disk, interface) = match from {
                    Device::Disk => (disk_out, interface_in),
                    Device::Interface => (disk_in, interface_out),
                };
                let time = ServiceTime::per_byte(self.link_seconds_per_byte);
                if self.bridge.is_some() {
                    script.add(Op::Use { station: disk, time });
                    script.add(Op::Use { station: interface, time });
                    return;
                }
                script.add(Op::Seize(disk));
                script.add(Op::Work { station: disk, time });
                script.add(Op::Use { station: interface, time });
                script.add(Op::Free(disk));
            }
        }
    }

    fn first_byte(&self, script: &mut ScriptBuilder) {
        if self.latency.0 > 0 {
            script.add(Op::Delay(ServiceTime::Fixed(self.latency)));
        }
    }

    /// Adds the work of the processor in a device: `cycles` cycles per byte of the request.
    pub fn device_work(&self, script: &mut ScriptBuilder, device: Device, cycles: f64) {
        let (row, cycle) = match device {
            Device::Interface => (self.interface_processors, self.device_cycles[0]),
            Device::Disk => (self.disk_processors, self.device_cycles[1]),
        };
        if cycles > 0.0 {
            let time = ServiceTime::per_byte(cycles * cycle);
            script.add(Op::Use { station: row.in_register(device.register()), time });
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

    /// Adds the disk's access to the bytes of the request. A read that finds nothing read ahead covers more
    /// bytes if the disk reads ahead for the `readers` sequential readers of all disks.
    pub fn disk_work(&self, script: &mut ScriptBuilder, bytes: f64, readers: f64, writes: bool) {
        let readers = readers / f64::from(self.counts[1]);
        self.disks.work(script, bytes, readers, writes);
    }

    /// Adds the entry of a request into the drive's queues, up to [`Hardware::leave_disk`].
    pub fn enter_disk(&self, script: &mut ScriptBuilder) {
        // A slot of a queue pair counts no work: queues limit the throughput only by being full.
        if let Some(queues) = self.disks.queues {
            script.add(Op::Seize(queues.in_register(Register::Disk)));
        }
    }

    /// Adds the completion of a request by the drive, which frees its slot in the queues.
    pub fn leave_disk(&self, script: &mut ScriptBuilder) {
        if let Some(queues) = self.disks.queues {
            script.add(Op::Free(queues.in_register(Register::Disk)));
        }
    }
}

/// Size of a cache line, in bytes.
const LINE: f64 = 64.0;

impl MemoryParts {
    fn new(
        net: &mut Net,
        memory: &Memory,
        bus: Station,
        banks: Station,
        buffer: Option<Station>,
    ) -> MemoryParts {
        let nothing = net.script(Vec::new());
        let mut parts = MemoryParts {
            bus,
            banks,
            bank_count: at_least_one(memory.banks),
            latency: Time::from_seconds(memory.latency.0),
            byte: 1.0 / memory.rate.0,
            line: memory.l2_latency.0,
            block: nothing,
            posted: None,
        };
        let mut block = ScriptBuilder::default();
        parts.access(&mut block);
        parts.block = net.script(block.ops.clone());
        parts.posted = buffer.map(|buffer| {
            block.add(Op::Free(buffer));
            (buffer, net.script(block.ops))
        });
        parts
    }

    /// Adds the access to one block: its bank finds the block, which then passes the bus.
    fn access(&self, script: &mut ScriptBuilder) {
        let pass = Op::Use { station: self.bus, time: ServiceTime::per_block_byte(self.byte) };
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
        script.add(Op::Work { station: bank, time: ServiceTime::Block(self.latency, self.byte * 1e12) });
        script.add(Op::Delay(ServiceTime::Fixed(self.latency)));
        script.add(pass);
        script.add(Op::Free(bank));
    }
}

impl DiskParts {
    fn give_arms(&self, net: &mut Net, count: u32) {
        let Some(rotating) = self.description.rotating else { return };
        let time = |time: bywash_model::units::Time| Time::from_seconds(time.0);
        let arm = Arm::new(time(rotating.seek), time(rotating.track), time(rotating.turn));
        let arm = if rotating.order == DiskScheduling::Elevator { arm.elevator() } else { arm };
        (0..count).for_each(|number| net.arm(Net::in_row(self.work, number), arm));
    }

    fn work(&self, script: &mut ScriptBuilder, bytes: f64, readers: f64, writes: bool) {
        let Disks { rate, rotating, flash, .. } = self.description;
        let station = self.work.in_register(Register::Disk);
        let ahead = self.description.read_ahead(readers);
        let reads_ahead = !writes && ahead > bytes;
        let has_it = reads_ahead.then(|| script.jump(Op::ReadAhead { most: ahead as u32, to: 0 }));
        match (rotating, flash) {
            (Some(rotating), _) => {
                script.add(Op::Pick { register: Register::Other, count: at_least_one(rotating.tracks) });
                let time = if reads_ahead {
                    ServiceTime::Arm(Time::from_seconds(ahead / rate.0), 0.0)
                } else {
                    ServiceTime::Arm(Time(0), 1e12 / rate.0)
                };
                script.add(Op::Use { station, time });
            }
            (None, Some(flash)) => {
                let median = if writes && flash.write.0 > 0.0 { flash.write.0 } else { flash.latency.0 };
                script.add(Op::Use { station, time: ServiceTime::LogNormal(median, flash.spread) });
            }
            (None, None) => script.add(Op::Use { station, time: ServiceTime::per_byte(1.0 / rate.0) }),
        }
        if let Some(has_it) = has_it {
            script.land(has_it);
        }
        if let Some(media) = self.media {
            let time = ServiceTime::per_byte(1.0 / rate.0);
            script.add(Op::Use { station: media.in_register(Register::Disk), time });
        }
    }
}
