//! Asymptotic throughput bound of a server: T = N / max over all resources of the busy time for N bytes. The
//! command, the web page, [`crate::sweep`] and [`crate::figures`] call it.

use crate::demand::{Architecture, Demand, Resource};
use crate::machine::Machine;
use crate::work::Workload;
use serde::Serialize;

/// Upper bound on the throughput of a server, with the resource that causes the bound.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Bound {
    /// Greatest possible throughput, in bytes per second.
    pub throughput: f64,
    /// Resource that is busy all the time at this throughput: the bottleneck.
    pub binding: Resource,
    /// Utilisation of each resource at this throughput, 0 to 1, in the order of [`Resource::ALL`].
    pub utilisation: [f64; 6],
}

/// Computes the bound of `machine` under `work` and `architecture`.
pub fn bound(machine: &Machine, work: &Workload, architecture: Architecture) -> Bound {
    from_demand(&Demand::new(machine, work, architecture))
}

/// Computes the bound from a demand. The first of several equally busy resources binds.
pub fn from_demand(demand: &Demand) -> Bound {
    let mut busy = [0.0; 6];
    for (busy, (seconds, units)) in busy.iter_mut().zip(demand.seconds.iter().zip(&demand.units)) {
        *busy = if *seconds > 0.0 { seconds / units } else { 0.0 };
    }
    let (mut most, mut longest) = (0, busy[0]);
    for (at, busy) in busy.iter().enumerate().skip(1) {
        if *busy > longest {
            (most, longest) = (at, *busy);
        }
    }
    let throughput = 1.0 / longest;
    Bound { throughput, binding: Resource::ALL[most], utilisation: busy.map(|busy| busy * throughput) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::{Share, Size};
    use crate::work::Request;

    const MIB: f64 = 1048576.0;

    #[test]
    fn the_paper_s_default_point() {
        let at = |architecture| bound(&Machine::carrera_2003(), &Workload::web(0.1), architecture);
        let (now, then) = (at(Architecture::Conventional), at(Architecture::Active));
        assert!((now.throughput / MIB - 165.4).abs() < 0.05, "{now:?}");
        assert!((then.throughput / MIB - 268.0).abs() < 0.05, "{then:?}");
        assert_eq!((now.binding, then.binding), (Resource::Processors, Resource::Disks));
        assert_eq!(now.utilisation[0], 1.0);
        assert!(now.utilisation.iter().all(|busy| (0.0..=1.0).contains(busy)));
    }

    #[test]
    fn each_structure_leaves_less_to_the_host() {
        for request in [
            Request::Web { file: Size(16384.0), miss: Share(0.1) },
            Request::Video { file: Size(1e9) },
            Request::Streams { block: Size(65536.0), writes: Share(0.3) },
            Request::Dynamic { page: Size(8192.0), compute: crate::units::Cycles(1e5), data: Size(4096.0) },
        ] {
            let work = Workload::new(request);
            let busy =
                Architecture::ALL.map(|one| Demand::new(&Machine::carrera_2003(), &work, one).seconds[0]);
            assert!(busy.windows(2).all(|two| two[0] >= two[1]), "{request:?}: {busy:?}");
        }
    }

    #[test]
    fn streams_in_and_out_share_no_wire() {
        let work = |writes| Workload::new(Request::Streams { block: Size(65536.0), writes: Share(writes) });
        let wire =
            |writes| Demand::new(&Machine::carrera_2003(), &work(writes), Architecture::Direct).seconds[2];
        assert!(wire(0.5) < wire(0.0) && wire(0.0) == wire(1.0));
    }
}
