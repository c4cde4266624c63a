//! What a server is made of.

use crate::units::{Frequency, Rate};
use serde::{Deserialize, Serialize};

/// A server: processors, what joins its parts, and its devices. Counts may be fractions in a sweep.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// The processors that run programs and the operating system.
    pub processors: Processors,
    /// What joins processors and devices.
    pub interconnect: Interconnect,
    /// Network interfaces.
    pub interfaces: Devices,
    /// Disks, each with its controller.
    pub disks: Devices,
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

/// A bus or a switch.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Interconnect {
    /// What passes in a second.
    pub rate: Rate,
}

/// Devices of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Devices {
    /// How many.
    pub count: f64,
    /// What each moves in a second (of a disk: seeks counted in; of an interface: each way).
    pub rate: Rate,
    /// The processor in each, used by active and direct servers.
    pub processor: Frequency,
}

const MIB: f64 = 1048576.0;

impl Machine {
    /// The machine of the paper's Tables II and III: one processor, four interfaces, four disks.
    pub fn of_2003() -> Machine {
        Machine {
            processors: Processors { count: 1.0, speed: Frequency(1.5e9) },
            interconnect: Interconnect { rate: Rate(2.0 * 1024.0 * MIB) },
            interfaces: Devices { count: 4.0, rate: Rate(116.0 * MIB), processor: Frequency(300e6) },
            disks: Devices { count: 4.0, rate: Rate(6.7 * MIB), processor: Frequency(300e6) },
        }
    }
}
