//! What a server is made of.
//!
//! The model needs counts, speeds and rates. What else is here says how the parts behave when several want them at a
//! time: the simulator's business. Whoever leaves it out gets parts that have no such behaviour: no latency, no packets,
//! memory that never binds.

use crate::units::{Frequency, Rate, Size, Time};
use serde::{Deserialize, Serialize};

/// A server: processors, what joins its parts, and its devices. Counts may be fractions in a sweep.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// The processors that run programs and the operating system.
    pub processors: Processors,
    /// Memory and the bus to it; without it, memory is never waited for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Memory>,
    /// What joins processors and devices.
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
    /// How many.
    pub count: f64,
    /// How fast each is.
    pub speed: Frequency,
}

/// Memory, the bus between it, the processors' caches and the bridge to the devices, and those caches.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Memory {
    /// What passes the bus in a second.
    pub rate: Rate,
    /// Banks; blocks of [`Memory::BLOCK`] bytes lie in them in turn.
    #[serde(default = "one")]
    pub banks: f64,
    /// How long a bank takes before the first byte.
    #[serde(default)]
    pub latency: Time,
    /// A processor's first cache.
    #[serde(default)]
    pub l1: Size,
    /// A processor's second cache.
    #[serde(default)]
    pub l2: Size,
    /// What a line of 64 bytes takes out of the second cache into the first.
    #[serde(default, rename = "l2-latency")]
    pub l2_latency: Time,
    /// What a processor may have written and not yet brought to memory before it waits.
    #[serde(default, rename = "write-buffer")]
    pub write_buffer: Size,
    /// What of memory keeps files, in a replay; nothing: every read goes to a disk.
    #[serde(default, rename = "file-cache")]
    pub file_cache: Size,
}

impl Memory {
    /// Memory is asked for so many bytes at a time.
    pub const BLOCK: f64 = 1024.0;
}

fn one() -> f64 {
    1.0
}

/// How devices are joined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Shape {
    /// Each part has its own link each way: what goes to the same part waits, nothing else does.
    #[default]
    Switch,
    /// One transfer at a time, of whomever.
    Bus,
}

/// A bus or a switch.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Interconnect {
    /// What passes in a second: the bus, or each link of a switch.
    pub rate: Rate,
    /// Which of the two.
    #[serde(default)]
    pub shape: Shape,
    /// How long the first byte is under way.
    #[serde(default)]
    pub latency: Time,
    /// Bytes of a packet (of a burst, on a bus); nothing: as large as what is moved.
    #[serde(default)]
    pub packet: Size,
    /// Bytes that each packet has besides.
    #[serde(default)]
    pub overhead: Size,
    /// Time to decide who is next, for each burst.
    #[serde(default)]
    pub arbitration: Time,
    /// What passes in a second between a switch and memory, if that is more than a link: the links of several devices.
    #[serde(default)]
    pub host: Rate,
    /// Blocks that the bridge to memory has under way at a time, each way. With one, whoever waits for memory keeps the
    /// interconnect.
    #[serde(default = "one")]
    pub pending: f64,
}

/// Network interfaces of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Interfaces {
    /// How many.
    pub count: f64,
    /// What each moves in a second, each way.
    pub rate: Rate,
    /// The processor in each, used by active and direct servers.
    pub processor: Frequency,
    /// Whether they compute checksums, so that the host need not read what it sends.
    #[serde(default)]
    pub checksums: bool,
}

/// Disks of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Disks {
    /// How many.
    pub count: f64,
    /// What each moves in a second; where it neither turns nor is flash, with everything that takes time counted in.
    pub rate: Rate,
    /// The processor in each controller, used by active and direct servers.
    pub processor: Frequency,
    /// The controller's own memory: it reads ahead so far in what is read in order.
    #[serde(default)]
    pub cache: Size,
    /// Parts of that memory, one for each of so many readers in order.
    #[serde(default = "one")]
    pub segments: f64,
    /// How it finds its place, if it turns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rotating: Option<Rotating>,
    /// How it answers, if it is flash.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flash: Option<Flash>,
}

/// What a disk does before it reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Rotating {
    /// To move at all.
    pub seek: Time,
    /// To move by one track.
    #[serde(default)]
    pub track: Time,
    /// Tracks over which the requests are spread.
    #[serde(default = "one")]
    pub tracks: f64,
    /// One turn.
    #[serde(default)]
    pub turn: Time,
    /// Who is next.
    #[serde(default)]
    pub order: Order,
}

/// Who is next at a disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// Who came first.
    #[default]
    Arrival,
    /// Who is next in the direction in which the arm moves.
    Elevator,
}

/// What an NVMe drive does before it reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Flash {
    /// Median of what a read takes.
    pub latency: Time,
    /// Standard deviation of the logarithm of that: 0 is always the same, 0.5 has one in a hundred above three times it.
    #[serde(default)]
    pub spread: f64,
    /// Reads that can go on at a time.
    #[serde(default = "one")]
    pub channels: f64,
    /// Median of what a write takes, into the drive's own buffer; nothing: as a read.
    #[serde(default)]
    pub write: Time,
    /// Pairs of queues.
    #[serde(default = "one")]
    pub queues: f64,
    /// Requests that a pair takes.
    #[serde(default = "many")]
    pub depth: f64,
}

fn many() -> f64 {
    1024.0
}

const MIB: f64 = 1048576.0;

impl Machine {
    /// The machine of the paper's Tables II and III: one processor, four interfaces, four disks.
    pub fn of_2003() -> Machine {
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
                rotating: None,
                flash: None,
            },
        }
    }
}

impl Interconnect {
    /// Of that rate, with nothing that costs besides.
    pub fn ideal(rate: Rate) -> Interconnect {
        let (latency, packet, overhead) = (Time(0.0), Size(0.0), Size(0.0));
        let (shape, arbitration, host, pending) = (Shape::Switch, Time(0.0), Rate(0.0), 1.0);
        Interconnect { rate, shape, latency, packet, overhead, arbitration, host, pending }
    }

    /// Bytes a second that arrive of what is moved, packets counted in.
    pub fn payload_rate(&self) -> f64 {
        if self.packet.0 <= 0.0 {
            return self.rate.0;
        }
        let packet = (self.packet.0 + self.overhead.0) / self.rate.0 + self.arbitration.0;
        self.packet.0 / packet
    }

    /// The same of the host's end.
    pub fn host_payload_rate(&self) -> f64 {
        if self.host.0 > 0.0 {
            Interconnect { rate: self.host, ..*self }.payload_rate()
        } else {
            self.payload_rate()
        }
    }
}

impl Disks {
    /// What one disk moves in a second if it is asked for `bytes` at a time, by so many who read in order (none: anywhere).
    pub fn rate_of(&self, bytes: f64, readers: f64) -> f64 {
        let at_once = self.at_once(bytes, readers);
        match (self.rotating, self.flash) {
            (Some(rotating), _) => at_once / (rotating.positioning() + at_once / self.rate.0),
            (None, Some(flash)) => (flash.channels * at_once / flash.mean().max(1e-12)).min(self.rate.0),
            (None, None) => self.rate.0,
        }
    }

    /// Bytes of one access, of so many readers in order who ask for `bytes` at a time.
    pub fn at_once(&self, bytes: f64, readers: f64) -> f64 {
        bytes.max(self.read_ahead(readers))
    }

    /// What is read ahead for each of so many who read in order: its segment, if there is one for everybody.
    pub fn read_ahead(&self, readers: f64) -> f64 {
        let segments = self.segments.max(1.0);
        if readers > 0.0 && readers <= segments { self.cache.0 / segments } else { 0.0 }
    }
}

impl Rotating {
    /// Seconds before the first byte, on the average: a third of the tracks, half a turn.
    pub fn positioning(&self) -> f64 {
        let tracks = if self.tracks > 1.0 { self.tracks / 3.0 } else { 0.0 };
        self.seek.0 + self.track.0 * tracks + self.turn.0 / 2.0
    }
}

impl Flash {
    /// Mean seconds of a read: of a lognormal distribution, above its median.
    pub fn mean(&self) -> f64 {
        self.latency.0 * (self.spread * self.spread / 2.0).exp()
    }
}
