//! The planner: chooses the movers of a flow from facts about its ends and machine and from the user's
//! options.
//!
//! Invariant: nothing here calls the kernel, so that the same inputs always give the same plan. For each pair
//! of ends there is one list of movers, best first, as measured by `bywash bench flow`. If several of them
//! may be best depending on the machine, they take turns ([`Plan::trial`]); otherwise the first usable one
//! moves the data. If the kernel refuses a mover at the first byte, the next one takes over. Called by
//! [`crate::Flow::plan`].

use crate::error::Error;
use crate::facts::{Facts, Kind};
use crate::movers::{MOVERS, MoverRow};
use bywash_options::among;
use bywash_quantity::Bytes;
use serde::Serialize;
use std::str::FromStr;

pub use crate::movers::Mover;

impl FromStr for Mover {
    type Err = Error;

    fn from_str(text: &str) -> Result<Mover, Error> {
        Mover::named(text).ok_or_else(|| {
            let names: Vec<&str> = MOVERS.iter().map(MoverRow::name).collect();
            Error::Usage(format!("there is no mover '{text}'{}", among(text, &names)))
        })
    }
}

/// Options of the user beyond the two ends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FlowOptions {
    /// Mover that the user forces; `None` if the planner chooses.
    pub(crate) via: Option<Mover>,
    /// True if pages of the source may be sent by reference: as they are when they are sent, not as they were
    /// when they were read.
    pub(crate) by_reference: bool,
    /// Block size in bytes, within [`BLOCK_BYTES`]; `None` if the planner chooses.
    pub(crate) block: Option<usize>,
    /// True if the data must be durable on the sink's device before the flow succeeds.
    pub(crate) sync: bool,
    /// True if datagrams are sent at the highest rate without loss, which is measured first.
    pub(crate) finds_rate: bool,
    /// Kind of cost by which movers that take turns are compared.
    pub(crate) prefer: Prefer,
}

/// Kind of cost by which movers are compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Prefer {
    /// Elapsed time.
    #[default]
    Time,
    /// Processor time of the flow's thread.
    Cpu,
}

impl FromStr for Prefer {
    type Err = Error;

    fn from_str(text: &str) -> Result<Prefer, Error> {
        match text {
            "time" => Ok(Prefer::Time),
            "cpu" => Ok(Prefer::Cpu),
            _ => Err(Error::Usage(format!("nobody knows how to prefer '{text}'; give time or cpu"))),
        }
    }
}

/// Plan of one part of a flow: the movers to use, their reasons, and the promises about the data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Plan {
    /// Text of the source.
    pub source: String,
    /// Text of the sink.
    pub sink: String,
    /// Number of bytes that the source has; `None` if unknown.
    pub source_bytes: Option<u64>,
    /// Movers that can move this data, best first; never empty.
    pub movers: Vec<RankedMover>,
    /// Movers among [`Plan::movers`] that take turns over the first pieces until the cheapest is known; empty
    /// if the first one that the kernel accepts moves everything.
    pub trial: Vec<Mover>,
    /// Movers that cannot or should not move this data, with the reasons.
    pub others: Vec<RankedMover>,
    /// Block size of the first mover, in bytes.
    pub block: usize,
    /// True if holes of the source become holes of the sink.
    pub keeps_holes: bool,
    /// Promises about the data.
    pub promises: Promises,
}

/// A mover, and the reason for its place in the plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RankedMover {
    /// The mover that the reason is about.
    pub mover: Mover,
    /// Advantage of the mover, or the reason why it is not used.
    pub why: String,
    /// Block size of this mover, in bytes.
    pub block: usize,
}

/// Promises of a plan about the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Promises {
    /// True if the sink gets what the source held when it was read.
    pub by_value: bool,
    /// True if the data arrives in order.
    pub ordered: bool,
    /// True if any loss of data makes the flow fail.
    pub lossless: bool,
    /// True if the data is durable on the device when the flow succeeds.
    pub durable: bool,
}

/// Smallest durable copy, in bytes, for which bypassing the page cache is worth its setup.
const DIRECT_BYTES_MIN: u64 = 8 << 20;
/// Smallest copy, in bytes, that may reach the kernel's limit of dirty pages, so that `dontcache` may be the
/// faster mover.
const DONTCACHE_BYTES_MIN: u64 = 512 << 20;
/// Smallest copy, in bytes, in which movers take turns; a shorter one ends before turns could tell anything.
const RACE_BYTES_MIN: u64 = 16 << 20;
/// Smallest copy, in bytes, in which movers that bypass the page cache take turns, since their turns are
/// long.
const RACE_BYTES_MIN_QUEUED: u64 = 512 << 20;
/// Fraction of a source in the page cache, 0 to 1, from which on `direct` reads the source through the page
/// cache.
const CACHED_MIN: f64 = 0.5;
const MIB: usize = 1 << 20;
/// Accepted block sizes, in bytes.
pub const BLOCK_BYTES: std::ops::RangeInclusive<usize> = 512..=4 * MIB;

/// Makes the plan of one part of a flow.
///
/// # Errors
/// [`Error::Usage`] if the block size is out of range, a rate is to be found for a sink without datagrams, or
/// no mover fits the two ends; [`Error::Unfit`] if the forced mover cannot move this data.
pub(crate) fn plan(facts: &Facts, options: &FlowOptions) -> Result<Plan, Error> {
    if let Some(block) = options.block
        && !BLOCK_BYTES.contains(&block)
    {
        return Err(Error::Usage(format!(
            "blocks of {} cannot be: give {} to {}",
            Bytes(block as u64),
            Bytes(*BLOCK_BYTES.start() as u64),
            Bytes(*BLOCK_BYTES.end() as u64)
        )));
    }
    if options.finds_rate && !facts.sink.kind.is_datagrams() {
        return Err(Error::Usage(format!(
            "a rate without loss is found for datagrams, and {} is none of them; give a rate, or none",
            facts.sink.name
        )));
    }
    let ranked = ranking(facts, options);
    let choice = |mover: Mover, why: String| {
        let block = options.block.unwrap_or_else(|| block_for(mover, facts));
        RankedMover { mover, why, block }
    };
    let mut movers = Vec::new();
    let mut others = Vec::new();
    for (mover, why) in &ranked {
        match obstacle(*mover, facts, options) {
            None => movers.push(choice(*mover, (*why).into())),
            Some(why) => others.push(choice(*mover, why)),
        }
    }
    for mover in Mover::all().filter(|mover| ranked.iter().all(|known| known.0 != *mover)) {
        let why = obstacle(mover, facts, options).unwrap_or_else(|| "never the better one here".into());
        others.push(choice(mover, why));
    }
    if let Some(via) = options.via {
        movers = vec![choice(via, forced(via, &movers, &others, facts, options)?)];
        others.retain(|other| other.mover != via);
    }
    let Some(first) = movers.first() else {
        return Err(Error::Usage(format!(
            "nothing moves data from {} to {}",
            facts.source.name, facts.sink.name
        )));
    };
    let block = first.block;
    let promises = promises(first.mover, facts, options);
    let trial = trial(&movers, facts, options);
    Ok(Plan {
        source: facts.source.name.clone(),
        sink: facts.sink.name.clone(),
        source_bytes: facts.source.size,
        movers,
        trial,
        others,
        block,
        keeps_holes: facts.source.has_holes && facts.sink.kind == Kind::File && !facts.sink.appends,
        promises,
    })
}

fn forced(
    via: Mover,
    movers: &[RankedMover],
    others: &[RankedMover],
    facts: &Facts,
    options: &FlowOptions,
) -> Result<String, Error> {
    if movers.iter().any(|choice| choice.mover == via) || obstacle(via, facts, options).is_none() {
        return Ok("it was asked for".into());
    }
    let reason = others.iter().find(|choice| choice.mover == via).map(|choice| choice.why.clone());
    Err(Error::Unfit { mover: via, reason: reason.unwrap_or_default() })
}

/// Returns the movers that are candidates between these two ends, best first, each with its advantage.
fn ranking(facts: &Facts, options: &FlowOptions) -> Vec<(Mover, &'static str)> {
    use Mover::*;
    let (source, sink) = (&facts.source, &facts.sink);
    if source.kind.is_datagrams() || sink.kind.is_datagrams() {
        return vec![
            (XdpRedirect, "frames never leave the kernel: the most of them for the least work"),
            (Ring, "many frames out of shared memory"),
            (Offload, "many datagrams pass the kernel as one"),
            (Batch, "many datagrams a call"),
            (
                Xdp,
                "past the kernel's packets: the better one where the card writes into the shared memory itself",
            ),
            (Single, "always possible"),
        ];
    }
    if facts.first_stage.is_some() {
        return vec![(Buffer, "a stage sees every byte")];
    }
    if source.kind.is_storage() && sink.kind.is_storage() {
        return between_files(facts, options);
    }
    let by_ring =
        (Uring, "a block is read while the one before is sent, and the source may change while it travels");
    if source.kind.is_storage() && options.by_reference {
        let pages = [(Sendfile, "pages go out as they are"), (Splice, "pages go out as they are")];
        let blocks =
            [(by_ring.0, "several blocks in flight, which on one machine costs less than pages in pieces")];
        let last = [(Buffer, "always possible")];
        let is_local = sink.kind == Kind::Stream && sink.is_local;
        let [first, second] = if is_local { [&blocks[..], &pages] } else { [&pages[..], &blocks] };
        return [first, second, &last].concat();
    }
    match (source.kind.is_stream(), sink.kind) {
        (true, Kind::File | Kind::Block) if source.kind == Kind::Stream => vec![
            (Buffer, "large writes into the page cache, out of a warm buffer"),
            (Splice, "pages pass through the kernel, and through no program"),
        ],
        (true, kind) if kind.is_stream() || kind.is_storage() => vec![
            (Splice, "pages pass through the kernel, and through no program"),
            (Buffer, "always possible"),
            (Uring, "several blocks in flight"),
        ],
        (false, Kind::Stream) if source.kind.is_storage() => vec![
            by_ring,
            (Buffer, "one copy out of the page cache, and the source may change while it travels"),
            (Zerocopy, "not copied where the network card can fetch it"),
        ],
        _ => vec![(Buffer, "one copy, and the source may change while it travels")],
    }
}

fn between_files(facts: &Facts, options: &FlowOptions) -> Vec<(Mover, &'static str)> {
    use Mover::*;
    let sink = &facts.sink;
    let mut ranked = vec![(Reflink, "nothing is copied: the two share their blocks until one is written")];
    let size = facts.source.size.unwrap_or(u64::MAX);
    let through_cache = [
        (CopyRange, "page cache to page cache, inside the kernel"),
        (Splice, "page cache to page cache, the kernel's own pages"),
        (Buffer, "page cache to page cache, through a warm buffer"),
        (Sendfile, "page cache to page cache, inside the kernel"),
    ];
    let large = size >= DIRECT_BYTES_MIN;
    let past_cache = [
        (
            Direct,
            "durable is what has reached the device, and this goes there at once, several blocks at a time",
        ),
        (Dontcache, "the device writes while blocks come, and the page cache stays as it is"),
    ];
    if options.sync && large {
        ranked.extend(past_cache);
        ranked.extend(through_cache);
    } else if size >= DONTCACHE_BYTES_MIN && sink.kind == Kind::File && !sink.appends {
        ranked.extend(through_cache);
        ranked.push((
            Dontcache,
            "the device writes while blocks come, which is faster where the page cache is full",
        ));
        ranked.push((past_cache[0].0, "for what is to be durable"));
    } else {
        ranked.extend(through_cache);
        ranked.extend(past_cache.map(|(mover, _)| (mover, "for what is to be durable or large")));
    }
    ranked
}

/// Returns the movers that take turns, in the plan's order. All of them keep the same promises and leave both
/// ends where the next mover continues; only their cost on this machine is unknown. For streams, `uring`
/// takes no part, since the processor time of its kernel threads does not count as that of the flow's thread.
fn trial(movers: &[RankedMover], facts: &Facts, options: &FlowOptions) -> Vec<Mover> {
    use Mover::{Buffer, CopyRange, Direct, Dontcache, Splice};
    let (source, sink) = (&facts.source, &facts.sink);
    let size = source.size.unwrap_or(0);
    let is_stream = source.kind.is_stream() && source.size.is_none() && !options.sync;
    let have_positions = source.kind.is_storage() && sink.kind.is_storage();
    if sink.appends || !(is_stream || have_positions && size >= RACE_BYTES_MIN) {
        return Vec::new();
    }
    let is_long = size >= RACE_BYTES_MIN_QUEUED;
    let may = |mover: Mover| match mover {
        _ if is_stream => matches!(mover, Splice | Buffer),
        // A durable copy through the page cache pays at its end, in fdatasync(2), which no turn measures.
        _ if options.sync => matches!(mover, Direct | Dontcache) && is_long,
        Splice | CopyRange | Buffer => true,
        Dontcache => size >= DONTCACHE_BYTES_MIN,
        Direct => is_long && options.prefer == Prefer::Cpu,
        _ => false,
    };
    let trial: Vec<Mover> = movers.iter().map(|choice| choice.mover).filter(|mover| may(*mover)).collect();
    if trial.len() > 1 { trial } else { Vec::new() }
}

/// Returns the reason why `mover` cannot move this data; `None` if it can.
fn obstacle(mover: Mover, facts: &Facts, options: &FlowOptions) -> Option<String> {
    let (source, sink) = (&facts.source, &facts.sink);
    let files = source.kind == Kind::File && sink.kind == Kind::File;
    let datagrams = source.kind.is_datagrams() || sink.kind.is_datagrams();
    let no = |reason: &str| Some(reason.to_owned());
    if mover.is_of_datagrams() != datagrams {
        return no(if datagrams { "it moves streams, and this is datagrams" } else { "it moves datagrams" });
    }
    if let Some(stage) = facts.first_stage.as_ref().filter(|_| mover != Mover::Buffer && !datagrams) {
        return Some(format!("{stage} sees every byte"));
    }
    match mover {
        Mover::Reflink | Mover::CopyRange if !files => no("it works between files alone"),
        Mover::Reflink if !same_file_system(facts) => no("the two are on different file systems"),
        Mover::Reflink if sink.appends => no("blocks are shared whole, and the sink is appended to"),
        Mover::Reflink => match &sink.file_system {
            Some(system) if system.reflinks => None,
            Some(system) => Some(format!("files of {} cannot share blocks", system.name)),
            None => no("the file system is not known"),
        },
        Mover::CopyRange if !same_file_system(facts) => no("the two are on different file systems"),
        Mover::CopyRange | Mover::Splice | Mover::Sendfile if sink.appends => {
            no("the kernel refuses it for a sink that is appended to")
        }
        Mover::Sendfile if !source.kind.is_storage() => no("it reads from files and block devices alone"),
        Mover::Splice | Mover::Sendfile if !(is_descriptor(source.kind) && is_descriptor(sink.kind)) => {
            no("one of the ends is not a descriptor of the kernel's")
        }
        Mover::Splice | Mover::Sendfile
            if source.kind.is_storage() && sink.kind.is_stream() && !options.by_reference =>
        {
            no(
                "it sends what the pages hold when they leave, not what they held when they were read (--by reference)",
            )
        }
        Mover::Dontcache => dontcache_obstacle(facts),
        Mover::Direct => direct_obstacle(facts),
        Mover::Uring | Mover::Zerocopy if sink.kind != Kind::Stream => no("it sends into sockets alone"),
        Mover::Uring if !is_descriptor(source.kind) => no("the source is not a descriptor of the kernel's"),
        Mover::Uring => facts.machine.io_uring.clone().err(),
        Mover::XdpRedirect if !(source.kind == Kind::Ethernet && sink.kind == Kind::Ethernet) => {
            no("it passes frames on between two Ethernet devices, without a change to what is in them")
        }
        Mover::Ring | Mover::Xdp if source.kind == Kind::Udp || sink.kind == Kind::Udp => {
            no("it is for Ethernet frames")
        }
        Mover::XdpRedirect if facts.is_limited => {
            no("the kernel passes frames on before they are counted, and there is a limit")
        }
        Mover::Xdp | Mover::XdpRedirect => facts.machine.xdp.clone().err(),
        Mover::Offload if source.kind == Kind::Ethernet || sink.kind == Kind::Ethernet => no("it is for UDP"),
        _ => None,
    }
}

fn is_descriptor(kind: Kind) -> bool {
    kind.is_storage() || kind.is_stream() || kind == Kind::Null
}

fn same_file_system(facts: &Facts) -> bool {
    let device = |system: &Option<crate::facts::FileSystem>| system.as_ref().map(|system| system.device);
    device(&facts.source.file_system).is_some_and(|one| device(&facts.sink.file_system) == Some(one))
}

fn dontcache_obstacle(facts: &Facts) -> Option<String> {
    if !(facts.source.kind.is_storage() && facts.sink.kind.is_storage()) {
        return Some("it works between files and block devices alone".into());
    }
    match &facts.sink.file_system {
        Some(system) if !system.dontcache => Some(format!("{} does not take RWF_DONTCACHE", system.name)),
        _ => None,
    }
}

fn direct_obstacle(facts: &Facts) -> Option<String> {
    if !(facts.source.kind.is_storage() && facts.sink.kind.is_storage()) {
        return Some("it works between files and block devices alone".into());
    }
    if facts.sink.appends {
        return Some("whole blocks are written, and the sink is appended to".into());
    }
    if let Err(reason) = &facts.machine.io_uring {
        return Some(reason.clone());
    }
    match &facts.sink.file_system {
        Some(system) if system.direct_alignment.is_none() => Some(format!("{} has no O_DIRECT", system.name)),
        _ => None,
    }
}

/// Returns true if `direct` should read a source of `size` bytes past the page cache, which holds
/// `cached_bytes` bytes of it.
pub(crate) fn reads_direct(cached_bytes: u64, size: u64) -> bool {
    (cached_bytes as f64) < size as f64 * CACHED_MIN
}

fn block_for(mover: Mover, facts: &Facts) -> usize {
    match mover {
        // A large block keeps the kernel's own loop running; a limited one lets the flow be cancelled in
        // between.
        Mover::Reflink => 1 << 30,
        Mover::CopyRange => 16 * MIB,
        Mover::Sendfile if facts.sink.kind.is_storage() => 16 * MIB,
        Mover::Splice => facts.machine.pipe_bytes_max.min(MIB),
        _ => MIB,
    }
}

fn promises(mover: Mover, facts: &Facts, options: &FlowOptions) -> Promises {
    let sends_pages = matches!(mover, Mover::Splice | Mover::Sendfile)
        && facts.source.kind.is_storage()
        && facts.sink.kind.is_stream();
    let datagrams = facts.source.kind.is_datagrams() || facts.sink.kind.is_datagrams();
    let loses = datagrams || facts.source.is_lossy || facts.sink.is_lossy || facts.drops_units;
    Promises { by_value: !sends_pages, ordered: !datagrams, lossless: !loses, durable: options.sync }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::{End, FileSystem, Machine};

    fn system(name: &str, device: u64) -> FileSystem {
        FileSystem {
            name: name.into(),
            device,
            reflinks: matches!(name, "xfs" | "btrfs"),
            dontcache: name != "tmpfs",
            direct_alignment: (name != "tmpfs").then_some(512),
        }
    }

    fn end(kind: Kind, on: Option<FileSystem>) -> End {
        let size = kind.is_storage().then_some(1 << 30);
        End { size, file_system: on, ..End::new(format!("{kind:?}"), kind) }
    }

    fn facts(source: End, sink: End) -> Facts {
        let machine = Machine { io_uring: Ok(()), xdp: Ok(()), pipe_bytes_max: 1 << 20 };
        Facts { source, sink, first_stage: None, is_limited: false, drops_units: false, machine }
    }

    fn file(name: &str, device: u64) -> End {
        end(Kind::File, Some(system(name, device)))
    }

    fn small(name: &str, device: u64) -> End {
        End { size: Some(1 << 20), ..file(name, device) }
    }

    fn chosen(facts: &Facts, options: &FlowOptions) -> Mover {
        plan(facts, options).unwrap_or_else(|error| panic!("{error}")).movers[0].mover
    }

    /// Tests the first mover of the plan for pairs of ends and options.
    #[test]
    fn the_table() {
        let nothing = FlowOptions::default();
        let sync = FlowOptions { sync: true, ..FlowOptions::default() };
        let reference = FlowOptions { by_reference: true, ..FlowOptions::default() };
        let stream = || end(Kind::Stream, None);
        let pipe = || end(Kind::Pipe, None);
        for (source, sink, options, mover) in [
            (file("xfs", 1), file("xfs", 1), &nothing, Mover::Reflink),
            (file("xfs", 1), file("xfs", 1), &sync, Mover::Reflink),
            (file("xfs", 1), file("xfs", 2), &nothing, Mover::Splice),
            (file("xfs", 1), file("tmpfs", 2), &nothing, Mover::Splice),
            (file("ext4", 1), file("ext4", 1), &nothing, Mover::CopyRange),
            (End { size: Some(256 << 20), ..file("ext4", 1) }, file("ext4", 1), &nothing, Mover::CopyRange),
            (file("ext4", 1), end(Kind::Block, Some(system("the device", 9))), &nothing, Mover::Splice),
            (small("ext4", 1), file("ext4", 1), &nothing, Mover::CopyRange),
            (small("ext4", 1), file("tmpfs", 2), &nothing, Mover::Splice),
            (small("ext4", 1), file("ext4", 1), &sync, Mover::CopyRange),
            (file("ext4", 1), file("ext4", 1), &sync, Mover::Direct),
            (file("tmpfs", 2), file("ext4", 1), &sync, Mover::Direct),
            (file("tmpfs", 1), file("tmpfs", 1), &sync, Mover::CopyRange),
            (file("ext4", 1), end(Kind::Block, Some(system("the device", 9))), &sync, Mover::Direct),
            (file("ext4", 1), stream(), &nothing, Mover::Uring),
            (file("ext4", 1), stream(), &reference, Mover::Sendfile),
            (file("ext4", 1), End { is_local: true, ..stream() }, &reference, Mover::Uring),
            (file("ext4", 1), pipe(), &nothing, Mover::Buffer),
            (file("ext4", 1), pipe(), &reference, Mover::Sendfile),
            (stream(), file("ext4", 1), &nothing, Mover::Buffer),
            (pipe(), file("ext4", 1), &nothing, Mover::Splice),
            (stream(), stream(), &nothing, Mover::Splice),
            (pipe(), pipe(), &nothing, Mover::Splice),
            (pipe(), stream(), &nothing, Mover::Splice),
            (end(Kind::Generated, None), file("ext4", 1), &nothing, Mover::Buffer),
            (file("ext4", 1), end(Kind::Memory, None), &nothing, Mover::Buffer),
            (end(Kind::Memory, None), stream(), &nothing, Mover::Buffer),
            (end(Kind::Quic, None), file("ext4", 1), &nothing, Mover::Buffer),
            (file("ext4", 1), end(Kind::Udp, None), &nothing, Mover::Offload),
            (end(Kind::Udp, None), end(Kind::Udp, None), &nothing, Mover::Offload),
            (end(Kind::Ethernet, None), end(Kind::Ethernet, None), &nothing, Mover::XdpRedirect),
        ] {
            let name = format!("{} to {} with {options:?}", source.name, sink.name);
            assert_eq!(chosen(&facts(source, sink), options), mover, "{name}");
        }
    }

    /// Tests which movers take turns for pairs of ends and options.
    #[test]
    fn the_table_of_races() {
        use Mover::{Buffer, CopyRange, Direct, Dontcache, Splice};
        let nothing = FlowOptions::default();
        let sync = FlowOptions { sync: true, ..FlowOptions::default() };
        let cpu = FlowOptions { prefer: Prefer::Cpu, ..FlowOptions::default() };
        let via = FlowOptions { via: Some(Buffer), ..FlowOptions::default() };
        let middle = |name, device| End { size: Some(16 << 20), ..file(name, device) };
        for (source, sink, options, trial) in [
            (middle("ext4", 1), file("ext4", 1), &nothing, vec![CopyRange, Splice, Buffer]),
            (middle("tmpfs", 1), file("ext4", 2), &nothing, vec![Splice, Buffer]),
            (file("ext4", 1), file("ext4", 1), &nothing, vec![CopyRange, Splice, Buffer, Dontcache]),
            (file("tmpfs", 1), file("tmpfs", 1), &nothing, vec![CopyRange, Splice, Buffer]),
            (file("xfs", 1), file("xfs", 1), &nothing, vec![CopyRange, Splice, Buffer, Dontcache]),
            (file("ext4", 1), file("xfs", 2), &sync, vec![Direct, Dontcache]),
            (file("ext4", 1), file("xfs", 2), &cpu, vec![Splice, Buffer, Dontcache, Direct]),
            (middle("ext4", 1), file("xfs", 2), &sync, vec![]),
            (small("ext4", 1), file("ext4", 1), &nothing, vec![]),
            (file("ext4", 1), file("ext4", 1), &via, vec![]),
            (file("ext4", 1), end(Kind::Stream, None), &nothing, vec![]),
            (file("ext4", 1), end(Kind::Pipe, None), &nothing, vec![]),
            (end(Kind::Stream, None), file("ext4", 1), &nothing, vec![Buffer, Splice]),
            (end(Kind::Stream, None), end(Kind::Stream, None), &nothing, vec![Splice, Buffer]),
            (end(Kind::Pipe, None), file("ext4", 1), &nothing, vec![Splice, Buffer]),
            (end(Kind::Pipe, None), file("ext4", 1), &via, vec![]),
            (end(Kind::Pipe, None), end(Kind::Null, None), &nothing, vec![]),
            (end(Kind::Quic, None), file("ext4", 1), &nothing, vec![]),
        ] {
            let name = format!("{} to {} with {options:?}", source.name, sink.name);
            assert_eq!(plan(&facts(source, sink), options).unwrap().trial, trial, "{name}");
        }
        let mut appends = facts(file("ext4", 1), file("ext4", 1));
        appends.sink.appends = true;
        assert_eq!(plan(&appends, &nothing).unwrap().trial, []);
        let looked_at = Facts { first_stage: Some("hash".into()), ..facts(file("ext4", 1), file("ext4", 1)) };
        assert_eq!(plan(&looked_at, &nothing).unwrap().trial, []);
    }

    #[test]
    fn what_stands_in_the_way_is_told() {
        let here = |change: fn(&mut Facts)| {
            let mut facts = facts(file("ext4", 1), file("ext4", 1));
            change(&mut facts);
            facts
        };
        let small = here(|facts| facts.source.size = Some(1 << 20));
        let no_ring = here(|facts| facts.machine.io_uring = Err("no io_uring".into()));
        let appends = here(|facts| facts.sink.appends = true);
        let looked_at = here(|facts| facts.first_stage = Some("hash:sha256".into()));
        let sync = FlowOptions { sync: true, ..FlowOptions::default() };
        assert_eq!(chosen(&small, &sync), Mover::CopyRange);
        assert_eq!(chosen(&no_ring, &sync), Mover::Dontcache);
        assert_eq!(chosen(&appends, &FlowOptions::default()), Mover::Buffer);
        assert_eq!(chosen(&looked_at, &sync), Mover::Buffer);
        let why = |facts: &Facts, mover| {
            let plan = plan(facts, &sync).unwrap();
            plan.others
                .iter()
                .find(|other| other.mover == mover)
                .map(|other| other.why.clone())
                .unwrap_or_default()
        };
        assert!(why(&no_ring, Mover::Direct).contains("no io_uring"));
        assert!(why(&looked_at, Mover::Splice).contains("hash:sha256 sees every byte"));
        assert!(why(&small, Mover::Reflink).contains("cannot share blocks"));
    }

    #[test]
    fn what_may_be_lost_is_told() {
        let lossless = |change: fn(&mut Facts)| {
            let mut facts = facts(file("ext4", 1), end(Kind::Stream, None));
            change(&mut facts);
            plan(&facts, &FlowOptions::default()).unwrap().promises.lossless
        };
        assert!(lossless(|_| {}));
        assert!(!lossless(|facts| facts.source.is_lossy = true));
        assert!(!lossless(|facts| facts.sink.is_lossy = true));
        assert!(!lossless(|facts| facts.drops_units = true));
        assert!(!lossless(|facts| facts.sink.kind = Kind::Udp));
    }

    #[test]
    fn every_mover_is_in_every_plan_once() {
        for kinds in [(Kind::File, Kind::File), (Kind::Stream, Kind::Stream), (Kind::Udp, Kind::File)] {
            let made = plan(&facts(end(kinds.0, None), end(kinds.1, None)), &FlowOptions::default()).unwrap();
            let mut all: Vec<Mover> =
                made.movers.iter().chain(&made.others).map(|choice| choice.mover).collect();
            all.sort_by_key(|mover| mover.to_string());
            let mut wanted: Vec<Mover> = Mover::all().collect();
            wanted.sort_by_key(|mover| mover.to_string());
            assert_eq!(all, wanted);
        }
    }

    #[test]
    fn a_mover_that_is_asked_for_is_taken_or_refused() {
        let files = facts(file("ext4", 1), file("ext4", 1));
        let via = |mover| FlowOptions { via: Some(mover), ..FlowOptions::default() };
        assert_eq!(chosen(&files, &via(Mover::Sendfile)), Mover::Sendfile);
        let refused = plan(&files, &via(Mover::Zerocopy)).unwrap_err().to_string();
        assert!(refused.contains("zerocopy cannot move this flow: it sends into sockets alone"), "{refused}");
    }

    #[test]
    fn names_are_read_as_they_are_written() {
        for mover in Mover::all() {
            assert_eq!(mover.to_string().parse::<Mover>().unwrap(), mover);
        }
        assert!("cp".parse::<Mover>().is_err());
    }

    #[test]
    fn the_table_of_movers_of_frames() {
        use Kind::{Ethernet, Stream, Udp};
        use Mover::{Batch, Offload, Ring, Xdp, XdpRedirect};
        for (source, sink, is_limited, is_allowed, via, expected) in [
            (Ethernet, Ethernet, false, true, None, Some(XdpRedirect)),
            (Ethernet, Ethernet, true, true, None, Some(Ring)),
            (Ethernet, Ethernet, false, false, None, Some(Ring)),
            (Ethernet, Stream, false, true, None, Some(Ring)),
            (Stream, Ethernet, false, true, Some(Xdp), Some(Xdp)),
            (Stream, Ethernet, false, false, Some(Xdp), None),
            (Stream, Ethernet, false, true, Some(XdpRedirect), None),
            (Ethernet, Ethernet, true, true, Some(XdpRedirect), None),
            (Ethernet, Udp, false, true, None, Some(Batch)),
            (Ethernet, Udp, false, true, Some(XdpRedirect), None),
            (Udp, Ethernet, false, true, Some(Xdp), None),
            (Udp, Udp, false, true, None, Some(Offload)),
        ] {
            let mut facts = facts(end(source, None), end(sink, None));
            facts.is_limited = is_limited;
            if !is_allowed {
                facts.machine.xdp = Err("not allowed".into());
            }
            let plan = plan(&facts, &FlowOptions { via, ..FlowOptions::default() });
            let first = plan.ok().map(|plan| plan.movers[0].mover);
            assert_eq!(first, expected, "{source:?} {sink:?} {is_limited} {is_allowed} {via:?}");
        }
    }
}
