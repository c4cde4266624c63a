//! The machine of a server: processors, memory, interconnect, network interfaces and disks.
//!
//! Counts, speeds and rates are required. The optional fields describe delays, overheads and the behaviour of
//! parts under contention. The simulator uses all of them; the model uses only those that change mean rates
//! and delays. A description that omits optional fields gets parts without such behaviour: no latency, no
//! packets, memory that never limits the throughput.

use crate::units::{Frequency, Rate, Size, Time};
use serde::{Deserialize, Serialize};

/// Machine of a server: its processors, the interconnect, and its devices. Counts may be fractions in a
/// sweep.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// Processors that run programs and the operating system.
    pub processors: Processors,
    /// Memory and the memory bus. Without a description of memory, nothing ever waits for memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Memory>,
    /// Interconnect between processors, memory and devices.
    pub interconnect: Interconnect,
    /// Network interfaces.
    pub interfaces: Interfaces,
    /// Disks, each with its controller.
    pub disks: Disks,
}

/// Processors of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Processors {
    /// Number of processors.
    pub count: f64,
    /// Clock frequency of each processor, in cycles per second.
    pub speed: Frequency,
}

/// Memory with the bus between memory, the processors' caches and the bridge to the devices, and those
/// caches.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Memory {
    /// Bandwidth of the memory bus, in bytes per second.
    pub rate: Rate,
    /// Number of banks. The simulator accesses a random bank for each block of at least [`Memory::BLOCK`]
    /// bytes.
    #[serde(default = "one")]
    pub banks: f64,
    /// Access latency of a bank: time until its first byte, in seconds.
    #[serde(default)]
    pub latency: Time,
    /// Size of each processor's first-level cache, in bytes.
    #[serde(default)]
    pub l1: Size,
    /// Size of each processor's second-level cache, in bytes.
    #[serde(default)]
    pub l2: Size,
    /// Time to load a line of 64 bytes from the second-level cache into the first, in seconds.
    #[serde(default, rename = "l2-latency")]
    pub l2_latency: Time,
    /// Size of each processor's write buffer, in bytes: data written but not yet in memory. A processor whose
    /// buffer is full stalls.
    #[serde(default, rename = "write-buffer")]
    pub write_buffer: Size,
    /// Number of cache lines of 64 bytes that a processor fetches at a time when it passes over data. With 1 the
    /// processor stalls at each line, as one that executes in order does.
    #[serde(default = "sixteen")]
    pub misses: f64,
    /// True if a modified line that another processor or a device accesses is first written back to memory, and
    /// then read from there (three phases); false if the processor that modified it supplies it.
    #[serde(default, rename = "three-phase")]
    pub three_phase: bool,
    /// Part of memory that caches files in a replay, in bytes. With 0, every read is served by a disk.
    #[serde(default, rename = "file-cache")]
    pub file_cache: Size,
}

impl Memory {
    /// Least size of the blocks in which the simulator accesses memory, in bytes.
    pub const BLOCK: f64 = 1024.0;
}

fn sixteen() -> f64 {
    Memory::BLOCK / 64.0
}

fn one() -> f64 {
    1.0
}

/// Returns true for the clock frequency of a processor that a device does not have.
fn is_absent(processor: &Frequency) -> bool {
    processor.0 == 0.0
}

/// Topology of an interconnect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Topology {
    /// Each part has its own link in each direction: a transfer waits only for transfers over the same links.
    #[default]
    Switch,
    /// A bus: one transfer at a time.
    Bus,
}

/// Interconnect of a machine: a bus or a switch.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Interconnect {
    /// Bandwidth of the bus, or of each link of a switch, in bytes per second.
    pub rate: Rate,
    /// Topology: bus or switch.
    #[serde(default)]
    pub shape: Topology,
    /// Latency of the first byte of a transfer, in seconds.
    #[serde(default)]
    pub latency: Time,
    /// Payload of a packet (of a burst, on a bus), in bytes. With 0, a transfer is one packet.
    #[serde(default)]
    pub packet: Size,
    /// Header bytes that each packet adds to its payload.
    #[serde(default)]
    pub overhead: Size,
    /// Arbitration time of each packet or burst, in seconds.
    #[serde(default)]
    pub arbitration: Time,
    /// Bandwidth between a switch and memory, in bytes per second, where it exceeds one link because several
    /// devices' links end there. With 0, the bandwidth is that of one link.
    #[serde(default)]
    pub host: Rate,
    /// Number of blocks that the bridge to memory has in flight at a time, in each direction. With 1, a
    /// transfer occupies the interconnect while it waits for memory.
    #[serde(default = "one")]
    pub pending: f64,
}

/// Network interfaces of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Interfaces {
    /// Number of network interfaces.
    pub count: f64,
    /// Bandwidth of each interface in each direction, in bytes per second.
    pub rate: Rate,
    /// Clock frequency of the processor in each interface, which active and direct servers need. With 0, the
    /// interfaces have none.
    #[serde(default, skip_serializing_if = "is_absent")]
    pub processor: Frequency,
    /// True if the interfaces compute checksums, so that the host need not read the data that it sends.
    #[serde(default)]
    pub checksums: bool,
}

/// Disks of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Disks {
    /// Number of disks.
    pub count: f64,
    /// Transfer rate of each disk, in bytes per second. If neither `rotating` nor `flash` is given, the rate
    /// is a mean that already includes the time for positioning.
    pub rate: Rate,
    /// Clock frequency of the processor in each disk controller, which active and direct servers need. With 0,
    /// the controllers have none.
    #[serde(default, skip_serializing_if = "is_absent")]
    pub processor: Frequency,
    /// Size of each controller's cache, in bytes. The controller reads ahead for sequential readers until the
    /// reader's segment is full.
    #[serde(default)]
    pub cache: Size,
    /// Number of segments of the cache. Each sequential reader uses one segment. The controllers of active and
    /// direct servers know the files, and give each reader a segment.
    #[serde(default = "one")]
    pub segments: f64,
    /// Greatest number of bytes that the host requests from the controller of a rotating disk in one command.
    /// On a bus, the commands of several requests take turns. With 0, a request is one command.
    #[serde(default)]
    pub command: Size,
    /// Positioning times of a rotating disk. With both this and `flash`, the model ignores `flash`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rotating: Option<Rotating>,
    /// Latency and parallelism of a flash drive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flash: Option<Flash>,
}

/// Positioning times of a rotating disk.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Rotating {
    /// Fixed time of each access, also without a movement of the arm, in seconds.
    pub seek: Time,
    /// Additional seek time per track of distance, in seconds.
    #[serde(default)]
    pub track: Time,
    /// Number of tracks over which the requests are spread.
    #[serde(default = "one")]
    pub tracks: f64,
    /// Bytes on a track. Sequential accesses switch the track behind them. With 0, a file stays on one track.
    #[serde(default, rename = "track-size")]
    pub track_size: Size,
    /// Duration of one rotation, in seconds.
    #[serde(default)]
    pub turn: Time,
    /// Order in which queued commands are served.
    #[serde(default)]
    pub order: DiskScheduling,
}

/// Order in which a disk serves queued commands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DiskScheduling {
    /// First come, first served.
    #[default]
    Arrival,
    /// The next command in the direction in which the arm moves.
    Elevator,
}

/// Latency and parallelism of an NVMe flash drive.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Flash {
    /// Median read latency, in seconds.
    pub latency: Time,
    /// Standard deviation of the logarithm of the latency. With 0 the latency is constant; with 0.5, one read
    /// in a hundred takes more than three times the median.
    #[serde(default)]
    pub spread: f64,
    /// Number of channels: accesses that the drive serves at a time.
    #[serde(default = "one")]
    pub channels: f64,
    /// Median latency of a write into the drive's buffer, in seconds. With 0, a write takes as long as a
    /// read.
    #[serde(default)]
    pub write: Time,
    /// Number of queue pairs.
    #[serde(default = "one")]
    pub queues: f64,
    /// Depth of a queue pair: greatest number of commands in flight.
    #[serde(default = "many")]
    pub depth: f64,
}

fn many() -> f64 {
    1024.0
}

const MIB: f64 = 1048576.0;

impl Machine {
    /// Returns the machine of the paper's Tables II and III: one processor, four interfaces, four disks.
    pub fn carrera_2003() -> Machine {
        let processor = Frequency(300e6);
        Machine {
            processors: Processors { count: 1.0, speed: Frequency(1.5e9) },
            memory: None,
            interconnect: Interconnect::ideal(Rate(2.0 * 1024.0 * MIB)),
            interfaces: Interfaces { count: 4.0, rate: Rate(116.0 * MIB), processor, checksums: false },
            disks: Disks {
                count: 4.0,
                rate: Rate(6.7 * MIB),
                processor,
                cache: Size(0.0),
                segments: 1.0,
                command: Size(0.0),
                rotating: None,
                flash: None,
            },
        }
    }
}

impl Interconnect {
    /// Returns a switch of the given rate without latency, packets, overhead or arbitration.
    pub fn ideal(rate: Rate) -> Interconnect {
        let (latency, packet, overhead) = (Time(0.0), Size(0.0), Size(0.0));
        let (shape, arbitration, host, pending) = (Topology::Switch, Time(0.0), Rate(0.0), 1.0);
        Interconnect { rate, shape, latency, packet, overhead, arbitration, host, pending }
    }

    /// Returns the payload bandwidth of the bus or of a link, in bytes per second: packet overhead and
    /// arbitration subtracted.
    pub fn payload_rate(&self) -> f64 {
        if self.packet.0 <= 0.0 {
            return self.rate.0;
        }
        let packet = (self.packet.0 + self.overhead.0) / self.rate.0 + self.arbitration.0;
        self.packet.0 / packet
    }

    /// Returns the payload bandwidth of the host's end of the interconnect, in bytes per second.
    pub fn host_payload_rate(&self) -> f64 {
        if self.host.0 > 0.0 {
            Interconnect { rate: self.host, ..*self }.payload_rate()
        } else {
            self.payload_rate()
        }
    }
}

impl Disks {
    /// Returns the throughput of one disk, in bytes per second, for accesses of `bytes` bytes by `readers`
    /// sequential readers. `readers` is 0 for random accesses.
    pub fn rate_of(&self, bytes: f64, readers: f64) -> f64 {
        let at_once = self.access_bytes(bytes, readers);
        match (self.rotating, self.flash) {
            // A controller that reads ahead for one reader moves the head once.
            (Some(_), _) if self.cache.0 > 0.0 && readers > 0.0 && readers <= 1.0 => self.rate.0,
            (Some(rotating), _) => at_once / (rotating.positioning() + at_once / self.rate.0),
            (None, Some(flash)) => (flash.channels * at_once / flash.mean().max(1e-12)).min(self.rate.0),
            (None, None) => self.rate.0,
        }
    }

    /// Returns the bytes that one disk access moves if each of `readers` sequential readers requests `bytes`
    /// at a time.
    pub fn access_bytes(&self, bytes: f64, readers: f64) -> f64 {
        bytes.max(self.read_ahead(readers))
    }

    /// Returns the bytes read ahead for each of `readers` sequential readers: one segment of the cache, or 0
    /// if the readers outnumber the segments.
    pub fn read_ahead(&self, readers: f64) -> f64 {
        let segments = self.segments.max(1.0);
        if readers > 0.0 && readers <= segments { self.cache.0 / segments } else { 0.0 }
    }
}

impl Disks {
    /// Returns the disks of an active or direct server with `readers` sequential readers each. Controllers of
    /// rotating disks then know the files: they divide their cache among the readers, and need no commands from
    /// the host.
    pub fn with_files(&self, readers: f64) -> Disks {
        if self.rotating.is_none() {
            return *self;
        }
        Disks { segments: self.segments.max(readers.ceil()), command: Size(0.0), ..*self }
    }

    /// Returns the bytes that one positioning of a disk's head serves of requests of `bytes` bytes: on a bus,
    /// the commands of `threads` threads for the same disk take turns.
    pub fn command_bytes(&self, bytes: f64, shape: Topology, threads: f64) -> f64 {
        let takes_turns = shape == Topology::Bus && self.rotating.is_some() && threads > self.count;
        if takes_turns && self.command.0 > 0.0 { bytes.min(self.command.0) } else { bytes }
    }
}

impl Rotating {
    /// Returns the mean time until the first byte, in seconds: a seek over a third of the tracks and half a
    /// rotation.
    pub fn positioning(&self) -> f64 {
        let tracks = if self.tracks > 1.0 { self.tracks / 3.0 } else { 0.0 };
        self.seek.0 + self.track.0 * tracks + self.turn.0 / 2.0
    }
}

impl Flash {
    /// Returns the mean read latency, in seconds. The latency has a lognormal distribution, so its mean
    /// exceeds its median.
    pub fn mean(&self) -> f64 {
        self.latency.0 * (self.spread * self.spread / 2.0).exp()
    }
}
