//! A flow that runs: its ends are opened, each part is moved in a thread, and in the end sinks are committed or marked.
//!
//! Invariant: a sink gets its name when everything of the flow has succeeded, and not before. Called by
//! [`crate::Flow::start`], in a thread of the flow's own.

use crate::control::Control;
use crate::datagram::{self, Accounting, Ledger, Place as DatagramEnd, Rate, RelayOptions};
use crate::end::storage::Manner;
use crate::end::{self, Opened, Opening, Sink, Source};
use crate::error::Error;
use crate::facts::Kind;
use crate::flow::Flow;
use crate::mover::{self, Blocks, Job, Stop};
use crate::pace::Pace;
use crate::part::{self, Part, Place};
use crate::plan::{Mover, Plan};
use crate::report::{Counts, Failed, Fallback, Piece, Report};
use crate::serve;
use crate::spec::{Endpoint, Stage};
use crate::stage::{Chain, Compressing, Decompressing, Filter, Hashing, Limiting, Pacing, Program, Teeing};
use crate::sys;
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

/// What a stream writes into the page cache before what is behind it goes out again.
const STREAM_CACHE_BYTES: u64 = 256 << 20;

/// Runs a flow from its beginning to its end.
pub(crate) fn run(flow: &Flow, plans: &[Plan], control: &Control) -> Result<Report, Failed> {
    match serve::gate(flow)? {
        None => one(flow, plans, None, control),
        Some(gate) => measured(control, |report| serve::serve(&gate, flow, plans, control, report)),
    }
}

/// Runs a flow whose source may have been opened already, as a connection.
pub(crate) fn one(
    flow: &Flow,
    plans: &[Plan],
    accepted: Option<OwnedFd>,
    control: &Control,
) -> Result<Report, Failed> {
    measured(control, |report| whole(flow, plans, accepted, control, report))
}

/// Does something that a report is to tell of.
fn measured(
    control: &Control,
    what: impl FnOnce(&mut Report) -> Result<(), Error>,
) -> Result<Report, Failed> {
    sys::mask_broken_pipe();
    let mut report = Report::default();
    let (begin, before) = (Instant::now(), sys::thread_time());
    let outcome = what(&mut report);
    report.seconds = begin.elapsed().as_secs_f64();
    report.cpu_seconds += (sys::thread_time() - before).as_secs_f64();
    report.bytes = control.moved();
    report.whole = outcome.is_ok();
    match outcome {
        Ok(()) => Ok(report),
        Err(error) => Err(Failed { error, report: Box::new(report) }),
    }
}

/// One part of a flow, with everything opened.
struct Line<'a> {
    part: &'a Part<'a>,
    plan: &'a Plan,
    source: Source,
    sink: Sink,
    chain: Chain,
    is_progress: bool,
}

/// What a line has come to.
struct Done<'a> {
    line: Line<'a>,
    piece: Piece,
    outcome: Result<(), Error>,
    /// It comes from a program of which not everything was wanted.
    is_cut: bool,
    time: Duration,
}

fn whole(
    flow: &Flow,
    plans: &[Plan],
    accepted: Option<OwnedFd>,
    control: &Control,
    report: &mut Report,
) -> Result<(), Error> {
    let parts = part::cut(&flow.source, &flow.stages, &flow.sink);
    let manner = manner(flow, &parts, plans);
    if let [part] = parts.as_slice()
        && part.stages.is_empty()
        && let Some(from) = datagram::place(&flow.source, flow.wishes.via, Rate::Unlimited)
        && let Some(to) = datagram::place(&flow.sink, flow.wishes.via, manner.rate)
    {
        return pass_on(part, &plans[0], &from, &to, control, report);
    }
    let mut programs = Vec::new();
    let ends = both_ends(flow, accepted, &manner, control)?;
    let mut lines = open(flow, ends, &parts, plans, &manner, &mut programs, control)?;
    if let Some(total) = lines[0].total() {
        control.expect(total);
    }
    let first = lines.remove(0);
    let mut done: Vec<Done<'_>> = thread::scope(|scope| {
        let others: Vec<_> = lines.into_iter().map(|line| scope.spawn(|| in_thread(line, control))).collect();
        let first = line(first, control);
        let others = others.into_iter().map(|other| match other.join() {
            Ok(done) => done,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        std::iter::once(first).chain(others).collect()
    });
    let mut outcome = verdict(&mut done);
    // What comes from a program is the part behind the one that goes to it.
    for (program, behind) in programs.iter_mut().zip(&done[1..]) {
        if outcome.is_ok() {
            outcome = program.finish(behind.is_cut, control);
        }
        report.cpu_seconds += program.time().as_secs_f64();
    }
    let plain =
        |endpoint: &&Endpoint| matches!(endpoint, Endpoint::Udp(end) if !end.sequenced && !end.reliable);
    report.notes.extend([&flow.source, &flow.sink].into_iter().filter(plain).map(|endpoint| {
        format!("{endpoint}: what was lost on the way is not known; 'sequenced' at both ends tells it")
    }));
    let mut sinks = Vec::new();
    for Done { line, piece, time, .. } in &mut done {
        report.pieces.push(piece.clone());
        report.hashes.extend(line.chain.0.iter().filter_map(|stage| stage.hash()));
        if !line.is_progress {
            report.cpu_seconds += time.as_secs_f64();
        }
        line.source.tell_position();
        sinks.extend(line.chain.0.iter_mut().filter_map(|stage| stage.sink()));
        sinks.push(&mut line.sink);
    }
    conclude(outcome, sinks, control, report)
}

/// Passes datagrams on from one end to the other, each as it is.
fn pass_on(
    part: &Part<'_>,
    plan: &Plan,
    from: &DatagramEnd,
    to: &DatagramEnd,
    control: &Control,
    report: &mut Report,
) -> Result<(), Error> {
    if part.rate.is_some() {
        return Err(Error::Usage(
            "what is passed on goes as fast as it comes: pace it where it is sent".into(),
        ));
    }
    let ledger = Ledger::default();
    let limit = Some(part.limit).filter(|limit| *limit != u64::MAX);
    let options = RelayOptions { idle: from.idle(), limit };
    let outcome = datagram::open_relay(from, to, options, ledger.clone()).and_then(|relay| relay(control));
    let account = ledger.read();
    report.pieces.push(Piece {
        source: plan.source.clone(),
        sink: plan.sink.clone(),
        mover: account.engine.map_or(plan.movers[0].mover, datagram::Engine::mover),
        block: plan.block,
        bytes: control.moved(),
        holes: 0,
        copies: mover::copies(plan.movers[0].mover, Kind::Udp, Kind::Udp),
        zerocopy_sends: 0,
        zerocopy_copied: 0,
        datagrams: vec![account],
        fallbacks: Vec::new(),
    });
    outcome
}

/// Commits all sinks, or marks them.
fn conclude(
    outcome: Result<(), Error>,
    sinks: Vec<&mut Sink>,
    control: &Control,
    report: &mut Report,
) -> Result<(), Error> {
    match outcome.and_then(|()| control.check()) {
        Ok(()) => sinks.into_iter().try_for_each(Sink::commit),
        Err(error) => {
            // A disk that is full does not keep half of what did not fit.
            let keeps = control.moved() > 0 && !is_of_space(&error);
            let kept: Vec<PathBuf> =
                if keeps { sinks.into_iter().filter_map(Sink::keep_partial).collect() } else { Vec::new() };
            report.partial = kept.into_iter().next_back();
            Err(error)
        }
    }
}

fn is_of_space(error: &Error) -> bool {
    let of_space = [Errno::NOSPC, Errno::DQUOT, Errno::FBIG];
    matches!(error, Error::Io { source, .. }
        if of_space.iter().any(|errno| source.raw_os_error() == Some(errno.raw_os_error())))
}

/// What the whole has come to: the first failure that is not only a consequence of another one.
fn verdict(done: &mut [Done<'_>]) -> Result<(), Error> {
    let mut outcome = Ok(());
    for one in done {
        match std::mem::replace(&mut one.outcome, Ok(())) {
            Ok(()) => {}
            Err(error) if matches!(outcome, Ok(()) | Err(Error::Cancelled)) => outcome = Err(error),
            Err(_) => {}
        }
    }
    outcome
}

/// How sinks are written.
fn manner(flow: &Flow, parts: &[Part<'_>], plans: &[Plan]) -> Manner {
    let source = match &flow.source {
        Endpoint::File(file) => rustix::fs::stat(&file.path).ok(),
        _ => None,
    };
    let is_file = source.as_ref().is_some_and(|stat| end::storage::kind_of(stat) == Kind::File);
    let unchanged = parts.len() == 1
        && parts[0].stages.iter().all(|stage| !matches!(stage, Stage::Compress { .. } | Stage::Decompress));
    let has_holes = plans[0].keeps_holes;
    let fixed = parts.last().and_then(|part| part.rate).map_or(Rate::Unlimited, Rate::Fixed);
    Manner {
        via: flow.wishes.via,
        rate: if flow.wishes.finds_rate { Rate::Auto } else { fixed },
        source_mode: source.filter(|_| is_file && unchanged).map(|stat| stat.st_mode),
        sync: flow.wishes.sync,
        skips_zeros: has_holes && unchanged && !parts[0].stages.is_empty(),
        behind_after: (!is_file).then_some(STREAM_CACHE_BYTES),
    }
}

/// Opens the two ends of the whole: first the one that waits for somebody, then the one that others would wait for.
fn both_ends(
    flow: &Flow,
    accepted: Option<OwnedFd>,
    manner: &Manner,
    control: &Control,
) -> Result<(Opened<Source>, Opened<Sink>), Error> {
    if let Some(socket) = accepted {
        let sink = Opening::new(&flow.sink, control)?;
        return Ok((Opened::BothWays(socket), end::sink(sink, manner, control)?));
    }
    let (source, sink) = (Opening::new(&flow.source, control)?, Opening::new(&flow.sink, control)?);
    if sink.waits() && !source.waits() {
        let sink = end::sink(sink, manner, control)?;
        return Ok((end::source(source, flow.wishes.via, control)?, sink));
    }
    let source = end::source(source, flow.wishes.via, control)?;
    Ok((source, end::sink(sink, manner, control)?))
}

/// Opens everything.
fn open<'a>(
    flow: &Flow,
    (source, sink): (Opened<Source>, Opened<Sink>),
    parts: &'a [Part<'a>],
    plans: &'a [Plan],
    manner: &Manner,
    programs: &mut Vec<Program>,
    control: &Control,
) -> Result<Vec<Line<'a>>, Error> {
    let mut back = None;
    // What each part reads from and writes to, but for the two ends of the whole.
    let mut feeds: Vec<OwnedFd> = Vec::new();
    let mut results: Vec<OwnedFd> = Vec::new();
    for part in &parts[..parts.len() - 1] {
        let Place::Program(command) = part.sink else { continue };
        let (program, feed, result) = Program::start(command)?;
        programs.push(program);
        feeds.push(feed);
        results.push(result);
    }
    if let (Opened::BothWays(here), Opened::BothWays(there), false, [part]) =
        (&source, &sink, flow.one_way, parts)
        && part.stages.is_empty()
    {
        let twice =
            |socket: &OwnedFd| socket.try_clone().map_err(|error| Error::io("use a socket both ways", error));
        back = Some((twice(there)?, twice(here)?));
    }
    let mut source = Some(match source {
        Opened::OneWay(source) => source,
        Opened::BothWays(socket) => Source::Descriptor(end::reading(socket, Kind::Stream, &plans[0].source)),
    });
    let last = &plans[plans.len() - 1];
    let mut sink = Some(match sink {
        Opened::OneWay(sink) => sink,
        Opened::BothWays(socket) => Sink::Descriptor(end::writing(socket, Kind::Stream, &last.sink, manner)),
    });
    let (mut feeds, mut results) = (feeds.into_iter(), results.into_iter());
    let mut lines = Vec::new();
    for (part, plan) in parts.iter().zip(plans) {
        let program_result = |result| Source::Descriptor(end::reading(result, Kind::Pipe, &plan.source));
        let program_feed = |feed| Sink::Descriptor(end::writing(feed, Kind::Pipe, &plan.sink, manner));
        let from = if lines.is_empty() { source.take() } else { results.next().map(program_result) };
        let to = feeds.next().map(program_feed).or_else(|| sink.take());
        let (Some(from), Some(to)) = (from, to) else { continue };
        let chain = chain(part, manner, control)?;
        lines.push(Line { part, plan, source: from, sink: to, chain, is_progress: lines.is_empty() });
    }
    if let Some((there, here)) = back {
        lines.push(Line {
            part: &parts[0],
            plan: &plans[0],
            source: Source::Descriptor(end::reading(there, Kind::Stream, &plans[0].sink)),
            sink: Sink::Descriptor(end::writing(here, Kind::Stream, &plans[0].source, manner)),
            chain: Chain::default(),
            is_progress: false,
        });
    }
    Ok(lines)
}

/// The stages of a part, ready to take blocks.
fn chain(part: &Part<'_>, manner: &Manner, control: &Control) -> Result<Chain, Error> {
    let mut chain = Chain::default();
    for stage in &part.stages {
        let filter: Box<dyn Filter> = match stage {
            Stage::Hash { algorithm, expect } => Box::new(Hashing::new(*algorithm, expect.clone())),
            Stage::Tee(endpoint) => {
                Box::new(Teeing(match end::sink(Opening::new(endpoint, control)?, manner, control)? {
                    Opened::OneWay(sink) => sink,
                    Opened::BothWays(socket) => {
                        Sink::Descriptor(end::writing(socket, Kind::Stream, &endpoint.to_string(), manner))
                    }
                }))
            }
            Stage::Limit(bytes) => Box::new(Limiting(*bytes)),
            Stage::Rate(rate) => Box::new(Pacing(Pace::new(Some(*rate)))),
            Stage::Compress { level } => Box::new(Compressing::new(*level)?),
            Stage::Decompress => Box::new(Decompressing::new()?),
            // It has cut the flow.
            Stage::Exec(_) => continue,
        };
        chain.0.push(filter);
    }
    Ok(chain)
}

impl Line<'_> {
    /// The accounts of ends of datagrams; a source's is complete when it has gone.
    fn accounts(&mut self) -> Vec<Accounting> {
        let mut ledgers = Vec::new();
        if let Source::Datagrams(_, ledger) = &self.source {
            ledgers.push(ledger.clone());
            self.source = Source::Other(Box::new(end::Nowhere));
        }
        if let Sink::Datagrams(_, ledger) = &self.sink {
            ledgers.push(ledger.clone());
        }
        ledgers.iter().map(Ledger::read).collect()
    }

    /// Bytes that will be moved, where that is known.
    fn total(&self) -> Option<u64> {
        let limit = Some(self.part.limit).filter(|limit| *limit != u64::MAX);
        let size = match &self.source {
            Source::Descriptor(reading) => reading.left(),
            _ => None,
        };
        match (size, limit) {
            (Some(size), Some(limit)) => Some(size.min(limit)),
            (size, limit) => size.or(limit),
        }
    }
}

/// As [`line`], in a thread of its own.
fn in_thread<'a>(one: Line<'a>, control: &Control) -> Done<'a> {
    sys::mask_broken_pipe();
    let before = sys::thread_time();
    let mut done = line(one, control);
    done.time = sys::thread_time() - before;
    done
}

/// Moves everything of one part. When it fails, the others are called off.
fn line<'a>(mut line: Line<'a>, control: &Control) -> Done<'a> {
    let mut counts = Counts::default();
    let mut fallbacks = Vec::new();
    let mut mover = line.plan.movers[0].mover;
    let moved = line.run(control, &mut counts, &mut mover, &mut fallbacks);
    let outcome = match moved {
        // A program that has read enough has ended its input, and is asked later whether all is well.
        Err(Error::Io { source, .. })
            if source.kind() == std::io::ErrorKind::BrokenPipe
                && matches!(line.part.sink, Place::Program(_)) =>
        {
            Ok(())
        }
        Ok(()) => line.sink.output().finish(control),
        other => other,
    };
    if outcome.is_err() {
        control.cancel();
    }
    let kinds = (line.source.kind(), line.sink.kind());
    if matches!(line.part.sink, Place::Program(_)) {
        // The end of its input is that nobody has it any more.
        line.sink = Sink::Other(Box::new(end::Nowhere));
    }
    let is_cut = matches!(line.part.source, Place::Program(_)) && !line.source.is_at_end();
    if is_cut {
        // A limit was reached, and the program goes on: so it hears that nobody reads it any more.
        line.source = Source::Other(Box::new(end::Nowhere));
    }
    let datagrams = line.accounts();
    if let Some(engine) = datagrams.first().and_then(|account| account.engine) {
        mover = engine.mover();
    }
    let piece = Piece {
        source: line.plan.source.clone(),
        sink: line.plan.sink.clone(),
        mover,
        block: line.plan.block,
        bytes: counts.bytes,
        holes: counts.holes,
        copies: mover::copies(mover, kinds.0, kinds.1),
        zerocopy_sends: counts.zerocopy_sends,
        zerocopy_copied: counts.zerocopy_copied,
        datagrams,
        fallbacks,
    };
    Done { line, piece, outcome, is_cut, time: Duration::ZERO }
}

impl Line<'_> {
    /// Moves by the first mover of the plan that the kernel goes along with.
    fn run(
        &mut self,
        control: &Control,
        counts: &mut Counts,
        mover: &mut Mover,
        fallbacks: &mut Vec<Fallback>,
    ) -> Result<(), Error> {
        let mut job = Job {
            control,
            counts,
            block: self.plan.block,
            left: self.part.limit,
            pace: self
                .part
                .rate
                .filter(|_| !matches!(self.sink, Sink::Datagrams(..)))
                .map(|rate| Pace::new(Some(rate))),
            keeps_holes: false,
            is_progress: self.is_progress,
            is_forced: self.plan.movers.len() == 1,
            data_until: 0,
        };
        let (Source::Descriptor(from), Sink::Descriptor(to), true) =
            (&mut self.source, &mut self.sink, self.chain.is_empty())
        else {
            let mut blocks = Blocks { job: &mut job, chain: &mut self.chain };
            return mover::through(&mut blocks, &mut self.source, &mut self.sink);
        };
        job.keeps_holes = self.plan.keeps_holes && to.may_have_holes();
        for choice in &self.plan.movers {
            *mover = choice.mover;
            match mover::run(choice.mover, &mut job, from, to) {
                Ok(()) => return Ok(()),
                Err(Stop::Failed(error)) => return Err(error),
                Err(Stop::Unfit(reason)) if self.plan.movers.len() == 1 => {
                    return Err(Error::Unfit { mover: choice.mover, reason });
                }
                Err(Stop::Unfit(why)) => fallbacks.push(Fallback { mover: choice.mover, why }),
            }
        }
        Err(Error::Unfit { mover: *mover, reason: "nor does any other".into() })
    }
}
