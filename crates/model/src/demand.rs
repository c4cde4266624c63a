//! How long each resource of a machine is busy for one byte that is served: the paper's t_c and t_a, for a byte.
//!
//! A byte that is served comes from memory or a disk and goes to the network, or the other way. With m the share that
//! passes a disk, and writing x/c for x units on something that does c of them in a second:
//!
//! ```text
//!                        conventional            user-level             active                direct
//!     processors         (8.35+0.15+1.5m)/hs_h   (0.15+3.8+1.5m)/hs_h   0.15/hs_h             0.15/hs_h
//!     interconnect       (1+m)/r                 (1+m)/r                (1+m)/r               1/r
//!     interfaces         1/(n r_n)               1/(n r_n)              1/(n r_n)             1/(n r_n)
//!     their processors   -                       -                      3.8/(n s_n)           3.8/(n s_n)
//!     disks              m/(d r_d)               m/(d r_d)              m/(d r_d)             m/(d r_d)
//!     their processors   -                       -                      1.5m/(d s_d)          1.5m/(d s_d)
//! ```
//!
//! What a byte of a request costs each time that a device is asked is added to the processors: `call`, `interrupt` and
//! `switch` through the kernel, `doorbell` and `poll` past it, over the bytes of a request ([`Workload::handling`]); the
//! paper's costs for a byte have them in them. r is what passes at the host's end with its packets
//! ([`crate::machine::Interconnect::host_payload_rate`]), r_d follows from seeks or from flash where those are described
//! ([`crate::machine::Disks::rate_of`]).
//!
//! Source: Carrera et al., Section 3, equations for t_c and t_a and their form for the Web server, with the misprints put
//! right (a stray term in the third line of t_c, a misplaced max in t_a). The column for user-level I/O is ours: the host
//! keeps TCP and the file system, and what is left out is what the operating system does besides, which is copies and
//! crossings. It is a bound: some of that may stay.
//!
//! Called by [`crate::bound()`], [`crate::closed`] and [`crate::sweep`].

use crate::machine::Machine;
use crate::work::{Request, Workload};
use serde::{Deserialize, Serialize};

/// How the I/O of a server is built.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Architecture {
    #[default]
    /// The host runs everything, and the kernel copies.
    Conventional,
    /// The host runs everything; requests, data and completions pass the kernel by.
    UserLevel,
    /// Interfaces run TCP, disk controllers run the file system.
    Active,
    /// Active, and data goes from disk to interface without a stop in memory.
    Direct,
}

impl Architecture {
    /// All, in the order of what they leave to the host.
    pub const ALL: [Architecture; 4] =
        [Architecture::Conventional, Architecture::UserLevel, Architecture::Active, Architecture::Direct];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Architecture::Conventional => "conventional",
            Architecture::UserLevel => "user-level",
            Architecture::Active => "active",
            Architecture::Direct => "direct",
        }
    }

    /// Whether devices run TCP and the file system.
    pub fn is_active(self) -> bool {
        matches!(self, Architecture::Active | Architecture::Direct)
    }
}

/// What can be busy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Resource {
    /// The host's processors.
    Processors,
    /// What joins everything.
    Interconnect,
    /// The wires of the network interfaces.
    Interfaces,
    /// The processors of the network interfaces.
    InterfaceProcessors,
    /// The disks.
    Disks,
    /// The processors of the disk controllers.
    DiskProcessors,
}

impl Resource {
    /// All, in the order of a [`Demand`].
    pub const ALL: [Resource; 6] = [
        Resource::Processors,
        Resource::Interconnect,
        Resource::Interfaces,
        Resource::InterfaceProcessors,
        Resource::Disks,
        Resource::DiskProcessors,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Resource::Processors => "processors",
            Resource::Interconnect => "interconnect",
            Resource::Interfaces => "interfaces",
            Resource::InterfaceProcessors => "interface processors",
            Resource::Disks => "disks",
            Resource::DiskProcessors => "disk processors",
        }
    }
}

/// Seconds that one unit of each resource is busy for a byte served if it did all the work alone, in the order of
/// [`Resource::ALL`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Demand {
    /// Of one processor, one interface, one disk.
    pub seconds: [f64; 6],
    /// How many there are of each.
    pub units: [f64; 6],
}

/// What of a byte that is served passes where.
struct Passage {
    /// Through a disk.
    disk: f64,
    /// Into the machine from the network, and out of it to the network.
    inward: f64,
    outward: f64,
    /// Processor cycles of the program beside those of [`crate::work::Costs`].
    compute: f64,
}

impl Passage {
    fn of(work: &Workload) -> Passage {
        let bytes = work.request_bytes();
        let sent = Passage { disk: 0.0, inward: 0.0, outward: 1.0, compute: 0.0 };
        match work.request {
            Request::Web { miss, .. } => Passage { disk: miss.0, ..sent },
            Request::Video { .. } => Passage { disk: 1.0, ..sent },
            Request::Streams { writes, .. } => {
                Passage { disk: 1.0, inward: writes.0, outward: 1.0 - writes.0, compute: 0.0 }
            }
            Request::Blocks { .. } => Passage { disk: 1.0, outward: 0.0, ..sent },
            Request::Database { miss, log, compute, .. } => {
                Passage { disk: miss.0 + log.0 / bytes, outward: 0.0, compute: compute.0 / bytes, ..sent }
            }
            Request::Dynamic { compute, data, .. } => {
                Passage { disk: data.0 / bytes, compute: compute.0 / bytes, ..sent }
            }
        }
    }

    fn network(&self) -> f64 {
        self.inward + self.outward
    }
}

impl Demand {
    /// Of `work` on `machine`.
    pub fn of(machine: &Machine, work: &Workload, architecture: Architecture) -> Demand {
        let passage = Passage::of(work);
        let costs = &work.costs;
        let network = passage.network();
        let on_host = costs.server.0 + passage.compute + work.handling(architecture);
        let protocols = costs.tcp.0 * network + costs.file_system.0 * passage.disk;
        let cycles = if architecture.is_active() { on_host } else { on_host + protocols };
        // What a program makes has to pass memory.
        let is_handed_on = architecture == Architecture::Direct
            && matches!(work.request, Request::Web { .. } | Request::Video { .. } | Request::Streams { .. });
        let crossings = if is_handed_on { network.max(passage.disk) } else { network + passage.disk };
        let on_devices = if architecture.is_active() { 1.0 } else { 0.0 };
        let (bytes_at_once, in_order) = work.disk_access();
        let readers = if in_order { work.load.threads / machine.disks.count } else { 0.0 };
        let (interfaces, disks) = (&machine.interfaces, &machine.disks);
        Demand {
            seconds: [
                cycles / machine.processors.speed.0,
                crossings / machine.interconnect.host_payload_rate(),
                // Each way has the wire for itself.
                passage.inward.max(passage.outward) / interfaces.rate.0,
                on_devices * costs.tcp.0 * network / interfaces.processor.0,
                // Nothing at a time takes no time.
                if passage.disk > 0.0 { passage.disk / disks.rate_of(bytes_at_once, readers) } else { 0.0 },
                on_devices * costs.file_system.0 * passage.disk / disks.processor.0,
            ],
            units: [
                machine.processors.count,
                1.0,
                interfaces.count,
                interfaces.count,
                disks.count,
                disks.count,
            ],
        }
    }
}
