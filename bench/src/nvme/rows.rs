//! Rows: instructions of a path of ours against those of a path of the kernel, or against a goal.

use super::Stage;
use super::counted::{Counted, FirstCut, Kind, Sample};
use super::inside::{STREAM_READS, STREAMS};
use crate::campaign::Declared;
use crate::engine::{Metric, Runs};
use crate::error::Error;
use crate::number::grouped;
use crate::row::Row;
use crate::statistics::Summary;

/// Goals in instructions: of the driver with one read at a time, and with 32; through the channel, client and server; of the
/// server of a disk that is exported by vhost-user-blk.
const GOAL_ONE: f64 = 90.0;
const GOAL_MANY: f64 = 60.0;
const GOAL_CHANNEL: f64 = 600.0;
const GOAL_VHOST: f64 = 1500.0;
/// Goal in instructions of a direct grant through the client library.
const GOAL_DIRECT: f64 = 120.0;
/// Goal of the ratio of pread's instructions to the driver's, with 23 streams: 98 % fewer.
const GOAL_STREAMS: f64 = 50.0;
/// Depth of the cases with several reads at a time.
const DEPTH: usize = 32;

/// Path of the kernel: its name in rows, the series and the kind of its samples.
struct Peer {
    name: &'static str,
    series: &'static str,
    kind: Kind,
    /// True if an empty call is taken off: the path needs one call where two were counted.
    is_less_a_call: bool,
}

const fn peer(name: &'static str, series: &'static str, kind: Kind) -> Peer {
    Peer { name, series, kind, is_less_a_call: false }
}

const fn polled(name: &'static str, series: &'static str) -> Peer {
    Peer { name, series, kind: Kind::Any, is_less_a_call: true }
}

const ONE: [Peer; 9] = [
    peer("pread, O_DIRECT, asleep meanwhile", "pread, slow", Kind::Slept),
    peer("pread, O_DIRECT, complete before sleep", "pread, fast", Kind::Awake),
    peer("io_uring, fixed buffer and file, asleep meanwhile", "io_uring, fixed, slow; 1", Kind::Slept),
    peer("io_uring, fixed buffer and file, complete before sleep", "io_uring, fixed, fast; 1", Kind::Awake),
    polled("io_uring IOPOLL, fixed buffer and file", "io_uring IOPOLL, fixed; 1"),
    peer("io_uring passthrough, fixed buffer and file", "io_uring passthrough, fixed; 1", Kind::Any),
    peer("io_uring passthrough, fixed file", "io_uring passthrough; 1", Kind::Any),
    polled("io_uring passthrough IOPOLL, fixed buffer and file", "io_uring passthrough IOPOLL, fixed; 1"),
    polled("io_uring passthrough IOPOLL, fixed file", "io_uring passthrough IOPOLL; 1"),
];

const MANY: [Peer; 4] = [
    peer("io_uring, fixed buffer and file", "io_uring, fixed, fast; 32", Kind::Any),
    polled("io_uring IOPOLL, fixed buffer and file", "io_uring IOPOLL, fixed; 32"),
    polled("io_uring passthrough IOPOLL, fixed buffer and file", "io_uring passthrough IOPOLL, fixed; 32"),
    polled("io_uring passthrough IOPOLL, fixed file", "io_uring passthrough IOPOLL; 32"),
];

const STREAM_PEERS: [(Peer, usize); 3] = [
    (peer("pread, O_DIRECT, 23 threads", "streams, pread", Kind::Any), STREAMS * STREAM_READS),
    (peer("io_uring, fixed buffer and file", "streams, io_uring", Kind::Any), STREAMS),
    (peer("libaio", "streams, libaio", Kind::Any), STREAMS),
];

/// Returns the cases.
pub fn cases() -> Vec<Declared<Stage>> {
    let head = |case: &str| Row::head("nvme/read", case, "");
    vec![
        Declared::new(head("4 KiB, one at a time: driver alone"), |stage: &Stage, head| {
            let counted = stage.counted()?;
            let ours = driver(counted, "driver; 1", 1)?;
            let goal = limit(head, &ours, "a goal of 90 instructions", GOAL_ONE);
            let peers = ONE.iter().map(|peer| against(head, &ours, &kernel(counted, peer, 1), None));
            Ok(std::iter::once(goal).chain(peers).collect())
        }),
        Declared::new(head("4 KiB, 32 at a time: driver alone"), |stage: &Stage, head| {
            let counted = stage.counted()?;
            let ours = driver(counted, "driver; 32", DEPTH)?;
            let goal = limit(head, &ours, "a goal of 60 instructions", GOAL_MANY);
            let peers = MANY.iter().map(|peer| against(head, &ours, &kernel(counted, peer, DEPTH), None));
            Ok(std::iter::once(goal).chain(peers).collect())
        }),
        Declared::new(head("4 KiB, one at a time: driver alone, by commands"), |stage: &Stage, head| {
            let counted = stage.counted()?;
            let ours = driver(counted, "driver, commands; 1", 1)?;
            Ok(vec![against(head, &ours, &kernel(counted, &ONE[0], 1), None)])
        }),
        Declared::new(head("4 KiB, 32 at a time: driver alone, by commands"), |stage: &Stage, head| {
            let counted = stage.counted()?;
            let ours = driver(counted, "driver, commands; 32", DEPTH)?;
            Ok(vec![against(head, &ours, &kernel(counted, &MANY[0], DEPTH), None)])
        }),
        Declared::new(head("4 KiB, one at a time: channel, client and server"), |stage: &Stage, head| {
            through_channel(stage.counted()?, head, 1)
        }),
        Declared::new(head("4 KiB, 32 at a time: channel, client and server"), |stage: &Stage, head| {
            through_channel(stage.counted()?, head, DEPTH)
        }),
        Declared::new(head("4 KiB, one at a time: vhost-user-blk, server"), |stage: &Stage, head| {
            by_export(stage.counted()?, head, 1)
        }),
        Declared::new(head("4 KiB, 32 at a time: vhost-user-blk, server"), |stage: &Stage, head| {
            by_export(stage.counted()?, head, DEPTH)
        }),
        Declared::new(head("4 KiB, one at a time: direct grant, client library"), |stage: &Stage, head| {
            let ours = ours(stage.counted()?.samples("direct; 1", Kind::Any)?, 1)?;
            Ok(vec![limit(head, &ours, "a goal of 120 instructions", GOAL_DIRECT)])
        }),
        Declared::new(head("4 KiB, 32 at a time: direct grant, client library"), |stage: &Stage, head| {
            let ours = ours(stage.counted()?.samples("direct; 32", Kind::Any)?, DEPTH)?;
            Ok(vec![limit(head, &ours, "a goal of 120 instructions", GOAL_DIRECT)])
        }),
        Declared::new(head("4 KiB, one at a time: direct grant, by requests"), |stage: &Stage, head| {
            let counted = stage.counted()?;
            let ours = ours(counted.samples("direct, requests; 1", Kind::Any)?, 1)?;
            Ok(vec![against(head, &ours, &kernel(counted, &ONE[0], 1), None)])
        }),
        Declared::new(head("4 KiB, 32 at a time: direct grant, by requests"), |stage: &Stage, head| {
            let counted = stage.counted()?;
            let ours = ours(counted.samples("direct, requests; 32", Kind::Any)?, DEPTH)?;
            Ok(vec![against(head, &ours, &kernel(counted, &MANY[0], DEPTH), None)])
        }),
        Declared::new(head("23 streams of 64 KiB: driver alone"), |stage: &Stage, head| {
            let counted = stage.counted()?;
            Ok(streams(counted, head, &driver(counted, "streams, driver", STREAMS)?))
        }),
        Declared::new(head("23 streams of 64 KiB: direct grant, client library"), |stage: &Stage, head| {
            let counted = stage.counted()?;
            let ours = ours(counted.samples("streams, direct", Kind::Any)?, STREAMS)?;
            Ok(streams(counted, head, &ours))
        }),
    ]
}

/// Returns the rows of 23 streams by a path of ours.
fn streams(counted: &Counted, head: &Row, ours: &Runs<Sample>) -> Vec<Row> {
    let row = |(at, (peer, count)): (usize, &(Peer, usize))| {
        let goal = (at == 0).then_some(GOAL_STREAMS);
        against(head, ours, &kernel(counted, peer, *count), goal)
    };
    STREAM_PEERS.iter().enumerate().map(row).collect()
}

/// Returns the samples of our driver, if it made no system call and copied nothing.
fn driver(counted: &Counted, series: &str, count: usize) -> Result<Runs<Sample>, Error> {
    check_copied(counted, "driver")?;
    ours(counted.samples(series, Kind::Any)?, count)
}

fn check_copied(counted: &Counted, name: &str) -> Result<(), Error> {
    match counted.copied(name) {
        Some(0) => Ok(()),
        Some(bytes) => Err(Error::failed("bywash", format!("has copied {bytes} bytes"))),
        None => Err(Error::failed("bywash", "has not told how much it has copied".into())),
    }
}

fn ours(samples: Vec<Sample>, count: usize) -> Result<Runs<Sample>, Error> {
    let calls = Summary::of(&samples.iter().map(|sample| sample.calls).collect::<Vec<_>>());
    if calls.is_none_or(|calls| calls.median > 0.0) {
        return Err(Error::failed("bywash", "has made system calls".into()));
    }
    let samples = samples.into_iter().map(|sample| sample.divided(count)).collect();
    Ok(Runs { name: "bywash".into(), samples: Ok(samples) })
}

fn through_channel(counted: &Counted, head: &Row, depth: usize) -> Result<Vec<Row>, Error> {
    check_copied(counted, "channel")?;
    let ours = ours(counted.with_server(&format!("channel; {depth}"), FirstCut::LeftOut)?, depth)?;
    // Other programs run while the client sleeps, and the kernel wakes it: neither is counted.
    let row = limit(head, &ours, "a goal of 600 instructions", GOAL_CHANNEL);
    Ok(vec![row])
}

/// Returns the row of the server of an exported disk. The frontend belongs to a virtual machine, and is not counted.
fn by_export(counted: &Counted, head: &Row, depth: usize) -> Result<Vec<Row>, Error> {
    let samples = counted.with_server(&format!("vhost-user; {depth}"), FirstCut::Counted)?;
    let part = |sample: Sample| Sample { user: 0.0, kernel: 0.0, ..sample }.divided(depth);
    let ours = Runs { name: "bywash".into(), samples: Ok(samples.into_iter().map(part).collect()) };
    Ok(vec![limit(head, &ours, "a goal of 1,500 instructions", GOAL_VHOST)])
}

/// Returns the samples of a path of the kernel.
fn kernel(counted: &Counted, peer: &Peer, count: usize) -> Runs<Sample> {
    let samples = counted.samples(peer.series, peer.kind).and_then(|mut samples| {
        if peer.is_less_a_call {
            let path = peer.series.split(';').next().unwrap_or_default();
            let empty = counted.samples(&format!("{path}; an empty call"), Kind::Any)?;
            let [user, kernel] =
                [median(&empty, |sample| sample.user), median(&empty, |sample| sample.kernel)];
            for sample in &mut samples {
                sample.user -= user;
                sample.kernel -= kernel;
                sample.calls -= 1.0;
            }
        }
        Ok(samples.into_iter().map(|sample| sample.divided(count)).collect())
    });
    Runs { name: peer.name.into(), samples }
}

fn median(samples: &[Sample], figure: impl Fn(&Sample) -> f64) -> f64 {
    Summary::of(&samples.iter().map(figure).collect::<Vec<_>>()).map_or(0.0, |summary| summary.median)
}

fn metric() -> Metric<'static, Sample> {
    Metric::cost("instructions", "instr/op", Sample::all)
}

fn against(head: &Row, ours: &Runs<Sample>, peer: &Runs<Sample>, goal: Option<f64>) -> Row {
    let row = metric().row(head, ours, peer, goal);
    let Some(note) = parts(peer) else { return row };
    Row { note: format!("it: {note}"), ..row }
}

fn limit(head: &Row, ours: &Runs<Sample>, name: &str, limit: f64) -> Row {
    let row = metric().row_of_limit(head, ours, name, limit, 1.0);
    Row { note: parts(ours).unwrap_or_default(), ..row }
}

/// Returns a path's instructions by whose they are, each as the median with the quartiles.
fn parts(runs: &Runs<Sample>) -> Option<String> {
    let samples = runs.samples.as_ref().ok()?;
    let part = |name: &str, figure: fn(&Sample) -> f64| {
        let all = Summary::of(&samples.iter().map(figure).collect::<Vec<_>>())?;
        let [median, low, high] = [all.median, all.low, all.high].map(|value| grouped(value.round() as u64));
        Some(match (median == "0" && high == "0", low == high) {
            (true, _) => format!("{name} 0"),
            (false, true) => format!("{name} {median}"),
            (false, false) => format!("{name} {median} ({low}-{high})"),
        })
    };
    let has_server = samples.iter().any(|sample| sample.server > 0.0);
    let mut all = vec![part(if has_server { "client" } else { "user" }, |sample| sample.user)?];
    if has_server {
        all.push(part("server", |sample| sample.server)?);
    }
    all.push(part("kernel", |sample| sample.kernel)?);
    let calls = Summary::of(&samples.iter().map(|sample| sample.calls).collect::<Vec<_>>())?;
    all.push(
        format!("system calls {:.3}", calls.median).trim_end_matches('0').trim_end_matches('.').to_owned(),
    );
    Some(all.join(", "))
}
