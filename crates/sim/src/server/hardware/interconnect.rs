//! The interconnect between memory and the devices: a bus with masters, or a switch with links.
//!
//! ```text
//!     bus                                          switch
//!     device ── port ──┐                           device ── link ──┐
//!     device ── port ──┼── bus ── bridge           device ── link ──┼── host's link ── bridge
//!     device ── port ──┘                           device ── link ──┘        each in both directions
//! ```
//!
//! Each device is one master of a bus: it has one burst at a time there, which its port grants to one of its
//! transfers. After a burst the master queues behind the other waiting masters, which is a round robin. A burst
//! is a block of the simulation; the description's packets and arbitration add the time of shorter bursts to it.
//!
//! A bridge that holds one block occupies the bus, or the host's link of a switch, until the block has passed
//! both this and memory. A busy memory therefore slows the interconnect down, and a device has one transfer
//! at a time. A bridge that holds several blocks lets other transfers pass meanwhile, also those of the same
//! device.

use super::memory::MemoryParts;
use super::{Device, Direction, at_least_one};
use crate::engine::{Access, Net, Op, Register, Script, ServiceTime, Station, Time};
use crate::server::buffers::{Buffer, Regions};
use crate::server::script::ScriptBuilder;
use bywash_model::machine::{Machine, Topology};

/// Stations of the interconnect, and its speeds.
pub struct InterconnectParts {
    joint: InterconnectStations,
    /// Bridge to memory, if it holds several blocks.
    bridge: Option<Bridge>,
    /// Seconds per byte on the interconnect, packet overhead included: on the bus or a device's link, and at
    /// the host's end.
    link_seconds_per_byte: f64,
    host_seconds_per_byte: f64,
    latency: Time,
}

/// Interconnect: one bus, or one link in each direction for each part.
enum InterconnectStations {
    Bus {
        bus: Station,
        /// Ports of the interfaces and of the disks.
        ports: [Station; 2],
    },
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
    /// The device's port or link.
    own: Station,
}

impl InterconnectStations {
    fn links(&self, device: Device, way: Direction) -> Links {
        match self {
            InterconnectStations::Bus { bus, ports } => {
                Links { shared: *bus, own: ports[device as usize].in_register(device.register()) }
            }
            InterconnectStations::Switch { host, interfaces, disks } => {
                let of_device = if device == Device::Disk { disks } else { interfaces };
                // Data out of memory uses the link into the device.
                let into_device = usize::from(way == Direction::IntoMemory);
                let own = of_device[into_device].in_register(device.register());
                Links { shared: host[way as usize], own }
            }
        }
    }

    fn is_switch(&self) -> bool {
        matches!(self, InterconnectStations::Switch { .. })
    }
}

/// Bridge to memory that holds several blocks.
struct Bridge {
    /// Slots of the bridge, indexed by [`Direction`].
    slots: [Station; 2],
    /// Scripts that move a block which has a slot, indexed by [`Device`] and [`Direction`].
    blocks: [[Script; 2]; 2],
}

impl InterconnectParts {
    /// Adds the stations of the interconnect of `machine`, with rows for the report by `row`.
    pub fn new(
        net: &mut Net,
        machine: &Machine,
        memory: Option<&MemoryParts>,
        row: &mut impl FnMut(&mut Net, &'static str, u32, u32) -> Station,
    ) -> InterconnectParts {
        let interconnect = &machine.interconnect;
        let [interfaces, disks] = [machine.interfaces.count, machine.disks.count].map(at_least_one);
        let joint = match interconnect.shape {
            Topology::Bus => InterconnectStations::Bus {
                bus: row(net, "interconnect", 1, 1),
                ports: [row(net, "interface ports", interfaces, 1), row(net, "disk ports", disks, 1)],
            },
            Topology::Switch => InterconnectStations::Switch {
                host: [row(net, "link into memory", 1, 1), row(net, "link out of memory", 1, 1)],
                interfaces: [
                    row(net, "links to interfaces", interfaces, 1),
                    row(net, "links from interfaces", interfaces, 1),
                ],
                disks: [row(net, "links to disks", disks, 1), row(net, "links from disks", disks, 1)],
            },
        };
        let pending = at_least_one(interconnect.pending);
        let host = ServiceTime::per_block_byte(1.0 / interconnect.host_payload_rate());
        let link = ServiceTime::per_block_byte(1.0 / interconnect.payload_rate());
        let bridge = memory.filter(|_| pending > 1).map(|memory| {
            let names = ["bridge into memory", "bridge out of memory"];
            let slots = names.map(|name| row(net, name, 1, pending));
            let blocks = [Device::Interface, Device::Disk].map(|device| {
                [Direction::IntoMemory, Direction::OutOfMemory].map(|way| {
                    let mut block = ScriptBuilder::default();
                    let Links { shared, own } = joint.links(device, way);
                    if way == Direction::OutOfMemory {
                        memory.device_block(&mut block, true);
                    }
                    block.add(Op::Use { station: shared, time: host });
                    if joint.is_switch() {
                        block.add(Op::Use { station: own, time: link });
                    }
                    if way == Direction::IntoMemory {
                        memory.device_block(&mut block, false);
                    }
                    block.add(Op::Free(slots[way as usize]));
                    net.script(block.ops)
                })
            });
            Bridge { slots, blocks }
        });
        InterconnectParts {
            joint,
            bridge,
            link_seconds_per_byte: 1.0 / interconnect.payload_rate(),
            host_seconds_per_byte: 1.0 / interconnect.host_payload_rate(),
            latency: Time::from_seconds(interconnect.latency.0),
        }
    }

    /// Returns the bus, or the host's link out of memory, over which commands reach the devices.
    pub fn command_link(&self) -> Station {
        self.joint.links(Device::Disk, Direction::OutOfMemory).shared
    }

    /// Adds the transfer of all bytes of the request between a device and `buffer` in memory.
    pub fn move_data(
        &self,
        script: &mut ScriptBuilder,
        memory: Option<(&MemoryParts, &Regions)>,
        device: Device,
        way: Direction,
        buffer: Buffer,
    ) {
        let Links { shared, own } = self.joint.links(device, way);
        let access = match way {
            Direction::IntoMemory => Access::DeviceWrite,
            Direction::OutOfMemory => Access::DeviceRead,
        };
        let touch = memory.map(|(_, regions)| regions.touch(access, buffer, false));
        // The latency of the first byte occupies no link.
        self.first_byte(script);
        if let Some(Bridge { slots, blocks }) = &self.bridge {
            let loop_at = script.here();
            script.add(Op::Seize(slots[way as usize]));
            touch.into_iter().for_each(|touch| script.add(touch));
            script.add(Op::Fork { script: blocks[device as usize][way as usize] });
            script.add(Op::NextBlock { to: loop_at });
            script.add(Op::Join);
            return;
        }
        script.add(Op::Seize(own));
        script.add(Op::Work { station: own, time: ServiceTime::per_byte(self.link_seconds_per_byte) });
        let loop_at = script.here();
        let time = ServiceTime::per_block_byte(self.host_seconds_per_byte);
        match (memory, touch) {
            (Some((memory, _)), Some(touch)) => {
                script.add(Op::Seize(shared));
                script.add(touch);
                script.add(Op::Fork { script: memory.blocks[way as usize] });
                script.add(Op::Work { station: shared, time });
                script.add(Op::Delay(time));
                script.add(Op::Join);
                script.add(Op::Free(shared));
            }
            _ => script.add(Op::Use { station: shared, time }),
        }
        script.add(Op::NextBlock { to: loop_at });
        script.add(Op::Free(own));
    }

    /// Adds the transfer of all bytes of the request from one device to another, without memory.
    pub fn move_direct(&self, script: &mut ScriptBuilder, from: Device) {
        self.first_byte(script);
        match &self.joint {
            InterconnectStations::Bus { bus, .. } => {
                let port = self.joint.links(from, Direction::IntoMemory).own;
                script.add(Op::Seize(port));
                script
                    .add(Op::Work { station: port, time: ServiceTime::per_byte(self.link_seconds_per_byte) });
                let loop_at = script.here();
                script.add(Op::Use {
                    station: *bus,
                    time: ServiceTime::per_block_byte(self.link_seconds_per_byte),
                });
                script.add(Op::NextBlock { to: loop_at });
                script.add(Op::Free(port));
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
}
