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

/// Resource that can be made faster.
struct Change {
    resource: &'static str,
    /// Beginnings of the names of the resource's stations. Without names the resource is always examined.
    stations: &'static [&'static str],
    /// Makes the resource faster by [`FASTER`].
    apply: fn(&mut Machine),
}

const fn change(
    resource: &'static str,
    stations: &'static [&'static str],
    apply: fn(&mut Machine),
) -> Change {
    Change { resource, stations, apply }
}

/// Share of the time that a resource must work to be examined. If it works for a smaller share of the time, all
/// requests together gain less than a hundredth by its tenth.
const WORKING_MIN: f64 = 0.1;

/// Resources that can be made faster.
const CHANGES: [Change; 7] = [
    change("processors", &[], |machine| machine.processors.speed.0 *= FASTER),
    change("memory", &["memory"], |machine| {
        if let Some(memory) = &mut machine.memory {
            memory.rate.0 *= FASTER;
            memory.latency.0 /= FASTER;
        }
    }),
    change("interconnect", &[], |machine| {
        let it = &mut machine.interconnect;
        (it.rate.0, it.host.0) = (it.rate.0 * FASTER, it.host.0 * FASTER);
        (it.latency.0, it.arbitration.0) = (it.latency.0 / FASTER, it.arbitration.0 / FASTER);
    }),
    change("interfaces", &["interfaces"], |machine| machine.interfaces.rate.0 *= FASTER),
    change("interface processors", &["interface processors"], |machine| {
        machine.interfaces.processor.0 *= FASTER
    }),
    change("disks", &["disks", "disk transfers"], |machine| {
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
    change("disk processors", &["disk processors"], |machine| machine.disks.processor.0 *= FASTER),
];

/// Simulates `description` with each resource made faster, and returns the gains, largest first. Resources that
/// work for less than a tenth of the time are left out, except the processors and the interconnect.
///
/// # Errors
/// Same as [`simulate`].
pub fn gains(
    description: &Description,
    architecture: Architecture,
    options: &Options,
) -> Result<Vec<Gain>, Error> {
    let report = simulate(description, architecture, options, &mut |_| true)?;
    let before = report.throughput;
    let is_examined = |change: &&Change| {
        let mut works = report.resources.iter().filter(|row| row.working >= WORKING_MIN);
        change.stations.is_empty()
            || works.any(|row| change.stations.iter().any(|name| row.name.starts_with(name)))
    };
    let machines: Vec<(&'static str, Machine)> = CHANGES
        .iter()
        .filter(is_examined)
        .map(|change| {
            let mut machine = description.machine;
            (change.apply)(&mut machine);
            (change.resource, machine)
        })
        .collect();
    let reports = many::each(&machines, |(_, machine)| {
        simulate(&Description { machine: *machine, ..*description }, architecture, options, &mut |_| true)
    });
    let mut throughputs = Vec::new();
    for report in reports {
        throughputs.push(report?.throughput);
    }
    let mut gains: Vec<Gain> = machines
        .iter()
        .zip(&throughputs)
        .map(|((resource, _), after)| {
            let ratio = after.mean / before.mean;
            let relative = (after.half_width / after.mean).hypot(before.half_width / before.mean);
            Gain { resource, gain: ratio - 1.0, half_width: ratio * relative }
        })
        .collect();
    gains.sort_by(|one, other| other.gain.total_cmp(&one.gain));
    Ok(gains)
}

#[cfg(test)]
mod tests {
    use super::super::simulate::Stop;
    use super::*;
    use bywash_model::Workload;

    /// The server of Tables II and III is bound by its processor as a conventional one, and by its disks as an
    /// active one; the model says so too.
    #[test]
    fn the_resource_that_binds_gains_a_tenth_and_others_little() {
        let description = Description::new(Machine::carrera_2003(), Workload::web(0.1));
        let options = Options::default().stop(Stop::Requests(40_000));
        for (architecture, wanted) in
            [(Architecture::Conventional, "processors"), (Architecture::Active, "disks")]
        {
            let gains = gains(&description, architecture, &options).unwrap();
            assert_eq!(gains[0].resource, wanted, "{gains:?}");
            assert!((gains[0].gain - 0.1).abs() < 0.02, "{gains:?}");
            assert!(gains[1..].iter().all(|gain| gain.gain < 0.03), "{gains:?}");
        }
    }
}
