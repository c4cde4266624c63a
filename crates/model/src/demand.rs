//! Busy time of each resource of a machine for one byte served: the paper's t_c and t_a, per byte.
//!
//! A byte that is served moves from memory or a disk to the network, or in the opposite direction. Let m be
//! the share of the bytes that pass a disk, and let x/c be the time for x units on a resource that processes
//! c units per second:
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
//! The table omits the processors' costs per I/O operation. `call`, `interrupt` and `switch` for I/O through
//! the kernel, `doorbell` and `poll` for I/O that bypasses the kernel, are divided by the bytes of a request
//! and added to the row of the processors ([`Workload::io_overhead_per_byte`]); the paper's costs per byte
//! already include them. So is `access`, which a request to a disk costs whatever its size, in the row of whoever runs the
//! file system. r is the payload rate at the host's end of the interconnect, packet overhead
//! subtracted ([`crate::machine::Interconnect::host_payload_rate`]). r_d follows from seeks or from flash
//! where the description gives those ([`crate::machine::Disks::rate_of`]).
//!
//! Source: Carrera et al., Section 3, equations for t_c and t_a and their form for the Web server, with the
//! misprints corrected (a stray term in the third line of t_c, a misplaced max in t_a). The column for
//! user-level I/O is not from the paper: the host keeps TCP and the file system, and saves the other work of
//! the operating system, namely copies and crossings into the kernel. This column is an upper bound on the
//! gain, because part of that work may remain.
//!
//! Called by [`crate::bound()`], [`crate::closed`] and [`crate::sweep`].

use crate::machine::Machine;
use crate::units::Frequency;
use crate::work::{Request, Workload};
use serde::{Deserialize, Serialize};

/// I/O architecture of a server: the division of work between host, kernel and devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Architecture {
    #[default]
    /// The host runs TCP and the file system, and the kernel copies the data.
    Conventional,
    /// The host runs TCP and the file system; requests, data and completions bypass the kernel.
    UserLevel,
    /// Network interfaces run TCP, disk controllers run the file system.
    Active,
    /// Like [`Architecture::Active`], but data moves from disk to interface without being stored in memory.
    Direct,
}

impl Architecture {
    /// All architectures, ordered from most to least work left to the host.
    pub const ALL: [Architecture; 4] =
        [Architecture::Conventional, Architecture::UserLevel, Architecture::Active, Architecture::Direct];

    /// Name of the architecture, as descriptions and the command line write it.
    pub fn name(self) -> &'static str {
        match self {
            Architecture::Conventional => "conventional",
            Architecture::UserLevel => "user-level",
            Architecture::Active => "active",
            Architecture::Direct => "direct",
        }
    }

    /// Returns true if devices run TCP and the file system.
    pub fn is_active(self) -> bool {
        matches!(self, Architecture::Active | Architecture::Direct)
    }
}

/// Resource of a machine that may limit the throughput.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Resource {
    /// The host's processors.
    Processors,
    /// The interconnect between processors, memory and devices.
    Interconnect,
    /// The wires of the network interfaces, each direction on its own.
    Interfaces,
    /// The processors of the network interfaces.
    InterfaceProcessors,
    /// The disks.
    Disks,
    /// The processors of the disk controllers.
    DiskProcessors,
}

impl Resource {
    /// All resources, in the order of the arrays in [`Demand`].
    pub const ALL: [Resource; 6] = [
        Resource::Processors,
        Resource::Interconnect,
        Resource::Interfaces,
        Resource::InterfaceProcessors,
        Resource::Disks,
        Resource::DiskProcessors,
    ];

    /// Name of the resource, for output.
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

/// Busy time that one byte served causes at each resource. Arrays are in the order of [`Resource::ALL`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Demand {
    /// Busy time of one unit (one processor, one interface, one disk) if it did all the work alone, in
    /// seconds per byte.
    pub seconds: [f64; 6],
    /// Number of units of each resource.
    pub units: [f64; 6],
}

/// Shares of a served byte that pass the disks and the network, and the program's cycles for that byte.
struct ByteShares {
    /// Bytes read from or written to a disk, per byte served.
    disk: f64,
    /// Bytes received from the network, per byte served. `outward` counts the bytes sent.
    inward: f64,
    outward: f64,
    /// Processor cycles of the program per byte served, in addition to those of [`crate::work::Costs`].
    compute: f64,
}

impl ByteShares {
    fn new(work: &Workload) -> ByteShares {
        let bytes = work.request_bytes();
        let sent = ByteShares { disk: 0.0, inward: 0.0, outward: 1.0, compute: 0.0 };
        match work.request {
            Request::Web { miss, .. } => ByteShares { disk: miss.0, ..sent },
            Request::Video { .. } => ByteShares { disk: 1.0, ..sent },
            Request::Streams { writes, .. } => {
                ByteShares { disk: 1.0, inward: writes.0, outward: 1.0 - writes.0, compute: 0.0 }
            }
            Request::Blocks { .. } => ByteShares { disk: 1.0, outward: 0.0, ..sent },
            Request::Database { miss, log, compute, .. } => {
                ByteShares { disk: miss.0 + log.0 / bytes, outward: 0.0, compute: compute.0 / bytes, ..sent }
            }
            Request::Dynamic { compute, data, .. } => {
                ByteShares { disk: data.0 / bytes, compute: compute.0 / bytes, ..sent }
            }
        }
    }

    fn network(&self) -> f64 {
        self.inward + self.outward
    }
}

/// Error for an architecture whose work would be done by processors that the devices do not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the {devices} have no processor, on which {} servers run {work}: give machine.{devices}.processor, or choose \
     conventional or user-level",
    architecture.name()
)]
pub struct MissingProcessor {
    /// Architecture that needs the processors.
    pub architecture: Architecture,
    /// Devices without a processor, as descriptions name them: interfaces or disks.
    pub devices: &'static str,
    /// Work that the architecture leaves to these processors.
    pub work: &'static str,
}

/// Returns the time of `cycles` cycles on a device's processor, in seconds: infinite if there are cycles and no
/// processor.
fn on_processor(cycles: f64, processor: Frequency) -> f64 {
    if cycles > 0.0 { cycles / processor.0 } else { 0.0 }
}

impl Demand {
    /// Checks that the devices have the processors that `architecture` needs for `work`.
    ///
    /// # Errors
    /// [`MissingProcessor`] if interfaces or disks would have to compute and have no processor.
    pub fn check(
        machine: &Machine,
        work: &Workload,
        architecture: Architecture,
    ) -> Result<(), MissingProcessor> {
        let [_, _, _, interfaces, _, disks] = Demand::new(machine, work, architecture).seconds;
        match (interfaces.is_finite(), disks.is_finite()) {
            (false, _) => Err(MissingProcessor { architecture, devices: "interfaces", work: "TCP" }),
            (_, false) => Err(MissingProcessor { architecture, devices: "disks", work: "the file system" }),
            _ => Ok(()),
        }
    }

    /// Computes the demand of `work` on `machine` under `architecture`. The demand of devices' processors that
    /// are needed and missing is infinite; [`Demand::check`] tells of those.
    pub fn new(machine: &Machine, work: &Workload, architecture: Architecture) -> Demand {
        let passage = ByteShares::new(work);
        let costs = &work.costs;
        let network = passage.network();
        let on_host = costs.server.0 + passage.compute + work.io_overhead_per_byte(architecture);
        let file_system = costs.file_system.0 * passage.disk
            + costs.access.0 * work.disk_operations() / work.request_bytes();
        let protocols = work.tcp().0 * network + file_system;
        let cycles = if architecture.is_active() { on_host } else { on_host + protocols };
        // Only stored data can move from disk to interface directly. Data that a program generates passes
        // memory.
        let is_handed_on = architecture == Architecture::Direct
            && matches!(work.request, Request::Web { .. } | Request::Video { .. } | Request::Streams { .. });
        let crossings = if is_handed_on { network.max(passage.disk) } else { network + passage.disk };
        let on_devices = if architecture.is_active() { 1.0 } else { 0.0 };
        let (bytes_at_once, in_order) = work.disk_access();
        let readers = if in_order { work.load.threads / machine.disks.count } else { 0.0 };
        let (interfaces, disks) = (&machine.interfaces, machine.disks);
        let disks = if architecture.is_active() { disks.with_files(readers) } else { disks };
        let bytes_at_once = disks.command_bytes(bytes_at_once, machine.interconnect.shape, work.load.threads);
        Demand {
            seconds: [
                cycles / machine.processors.speed.0,
                crossings / machine.interconnect.host_payload_rate(),
                // The wire is full duplex: the busier direction decides.
                passage.inward.max(passage.outward) / interfaces.rate.0,
                on_processor(on_devices * work.tcp().0 * network, interfaces.processor),
                // A workload without disk accesses has an access size of 0, for which `rate_of` is not
                // defined.
                if passage.disk > 0.0 { passage.disk / disks.rate_of(bytes_at_once, readers) } else { 0.0 },
                on_processor(on_devices * file_system, disks.processor),
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
