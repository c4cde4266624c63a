//! Resource that limits a server: each resource in turn is made faster by a tenth, and the one that raises the
//! throughput most binds.
//!
//! A resource that is busy for all of the time does not always bind: a bus that waits for memory is busy, and a
//! faster bus would wait for the same time. Nor must the resource that binds be busy for all of the time: threads
//! wait for each resource in turn. The rule therefore looks at the throughput and not at the busy times. It does
//! not favour any resource: of time that a processor stalls on memory, a faster memory saves a tenth, and a faster
//! processor nothing.
//!
//! The papers' figures and the command call it.

use super::simulate::{Error, Options, simulate};
use crate::many;
use bywash_model::machine::Machine;
use bywash_model::{Architecture, Description};
use serde::Serialize;

/// Factor by which each resource is made faster.
pub const FASTER: f64 = 1.1;

/// Gain of throughput with a faster resource.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Gain {
    /// Name of the resource.
    pub resource: &'static str,
    /// Throughput with the faster resource, relative to that of the description, less 1.
    pub gain: f64,
    /// Uncertainty of `gain`, with 95 % confidence.
    pub half_width: f64,
}

/// A resource, and the change that makes it faster by [`FASTER`].
type Change = (&'static str, fn(&mut Machine));

/// Resources that can be made faster.
const CHANGES: [Change; 7] = [
    ("processors", |machine| machine.processors.speed.0 *= FASTER),
    ("memory", |machine| {
        if let Some(memory) = &mut machine.memory {
            memory.rate.0 *= FASTER;
            memory.latency.0 /= FASTER;
        }
    }),
    ("interconnect", |machine| {
        let it = &mut machine.interconnect;
        (it.rate.0, it.host.0) = (it.rate.0 * FASTER, it.host.0 * FASTER);
        (it.latency.0, it.arbitration.0) = (it.latency.0 / FASTER, it.arbitration.0 / FASTER);
    }),
    ("interfaces", |machine| machine.interfaces.rate.0 *= FASTER),
    ("interface processors", |machine| machine.interfaces.processor.0 *= FASTER),
    ("disks", |machine| {
        machine.disks.rate.0 *= FASTER;
        if let Some(rotating) = &mut machine.disks.rotating {
            rotating.seek.0 /= FASTER;
            rotating.track.0 /= FASTER;
            rotating.turn.0 /= FASTER;
        }
        if let Some(flash) = &mut machine.disks.flash {
            flash.latency.0 /= FASTER;
            flash.write.0 /= FASTER;
        }
    }),
    ("disk processors", |machine| machine.disks.processor.0 *= FASTER),
];

/// Simulates `description` with each resource made faster, and returns the gains, largest first. Resources that
/// nothing of the description uses are left out.
///
/// # Errors
/// Same as [`simulate`].
pub fn gains(
    description: &Description,
    architecture: Architecture,
    options: &Options,
) -> Result<Vec<Gain>, Error> {
    let is_used = |(name, change): &&Change| {
        let mut changed = description.machine;
        change(&mut changed);
        changed != description.machine && (architecture.is_active() || !name.ends_with(" processors"))
    };
    let mut machines = vec![("", description.machine)];
    machines.extend(CHANGES.iter().filter(is_used).map(|(name, change)| {
        let mut machine = description.machine;
        change(&mut machine);
        (*name, machine)
    }));
    let reports = many::each(&machines, |(_, machine)| {
        simulate(&Description { machine: *machine, ..*description }, architecture, options, &mut |_| true)
    });
    let mut throughputs = Vec::new();
    for report in reports {
        throughputs.push(report?.throughput);
    }
    let before = throughputs[0];
    let mut gains: Vec<Gain> = machines[1..]
        .iter()
        .zip(&throughputs[1..])
        .map(|((resource, _), after)| {
            let ratio = after.mean / before.mean;
            let relative = (after.half_width / after.mean).hypot(before.half_width / before.mean);
            Gain { resource, gain: ratio - 1.0, half_width: ratio * relative }
        })
        .collect();
    gains.sort_by(|one, other| other.gain.total_cmp(&one.gain));
    Ok(gains)
}
