//! Cost of the operating system's paths on a machine, under each I/O architecture.
//!
//! The numbers are those of the description's `costs`. What a cost for a byte does to data is executed: a copy and a
//! checksum pass over the bytes in the caches, and the cycles include the time that they stall on an idle memory.

use crate::server::hardware::Work;
use bywash_execute::machine::Path;
use bywash_model::{Architecture, Description};

/// System calls that submit I/O, by their numbers.
pub struct Submission;

impl Submission {
    /// sendfile(2).
    pub const SENDFILE: u64 = 71;

    /// Returns true if programs make the call themselves where they initiate I/O at user level: reads and writes, sends
    /// and receives, and waits for descriptors.
    pub fn is_at_user_level(call: u64) -> bool {
        // read to pwritev, sendfile; ppoll, pselect6, epoll_pwait; sendto, recvfrom, sendmsg, recvmsg.
        matches!(call, 63..=71 | 72 | 73 | 22 | 206 | 207 | 211 | 212)
    }
}

/// Costs of the operating system's paths, in cycles.
#[derive(Clone, Copy, Debug)]
pub struct PathCosts {
    /// Cost of a system call.
    trap: u64,
    /// Cost of a submission: by a system call, what is left of it without the trap.
    submit: u64,
    /// Cost of an interrupt, or of finding a completion.
    pub interrupt: u64,
    /// Cost of a change of the thread.
    switch: u64,
    /// Cost of TCP for a byte on the host's processors; `None` if the interfaces' processors do it.
    pub tcp: Option<f64>,
    /// Cost of a request to a disk on the host's processors, and of each of its bytes.
    file_system: Work,
    /// Cost of a copy for a byte.
    pub copy: f64,
    /// True if the host computes checksums.
    pub checksums: bool,
    /// True if programs initiate I/O themselves.
    initiates: bool,
    /// True if devices transfer data to and from the program's memory.
    pub transfers: bool,
    /// True if disks pass data to interfaces directly.
    pub is_direct: bool,
}

impl PathCosts {
    /// Returns the costs of a description under an architecture.
    pub fn new(description: &Description, architecture: Architecture) -> PathCosts {
        let work = description.workload();
        let (costs, mechanisms) = (work.costs, work.mechanisms_of(architecture));
        let is_active = architecture.is_active();
        let cycles = |cycles: f64| cycles.round().max(0.0) as u64;
        PathCosts {
            trap: cycles(costs.trap.0),
            submit: cycles(if mechanisms.initiation {
                costs.doorbell.0
            } else {
                costs.call.0 - costs.trap.0
            }),
            interrupt: cycles(if mechanisms.notification { costs.poll.0 } else { costs.interrupt.0 }),
            switch: cycles(if mechanisms.notification { 0.0 } else { costs.switch.0 }),
            tcp: (!is_active).then_some(costs.tcp.0),
            file_system: if is_active { Work::default() } else { Work::file_system(&costs) },
            copy: costs.system.0,
            checksums: !description.machine.interfaces.checksums,
            initiates: mechanisms.initiation,
            transfers: mechanisms.transfer,
            is_direct: architecture == Architecture::Direct,
        }
    }

    /// Returns the cost of a path that does nothing to data.
    pub fn path(&self, path: Path) -> u64 {
        match path {
            Path::Entry { call } if self.initiates && Submission::is_at_user_level(call) => 0,
            Path::Entry { .. } => self.trap,
            Path::Switch { .. } => self.switch,
            _ => 0,
        }
    }

    /// Returns the cost of a submission to a disk or an interface.
    pub fn submission(&self, is_disk: bool, bytes: u64) -> u64 {
        let file_system = if is_disk { self.file_system.cycles(bytes) } else { 0.0 };
        self.submit + file_system.round() as u64
    }
}
