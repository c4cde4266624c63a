//! A flow that runs: its ends are opened, each part is moved in a thread, and in the end sinks are committed or marked.
//!
//! Invariant: a sink gets its name when everything of the flow has succeeded, and not before. Called by
//! [`crate::Flow::start`], in a thread of the flow's own.

use crate::assembly::{self, Assembly};
use crate::control::Control;
use crate::datagram::{self, Ledger, Place as DatagramEnd, Rate, RelayOptions};
use crate::end::{Connected, Sink};
use crate::error::Error;
use crate::facts::Kind;
use crate::flow::Flow;
use crate::line::Done;
use crate::mover;
use crate::part::{self, Part};
use crate::plan::Plan;
use crate::report::{Failed, Piece, Report};
use crate::serve;
use crate::spec::Endpoint;
use crate::sys;
use rustix::io::Errno;
use std::path::PathBuf;
use std::thread;
use std::time::Instant;

/// Runs a flow from its beginning to its end.
pub(crate) fn run(flow: &Flow, plans: &[Plan], control: &Control) -> Result<Report, Failed> {
    match serve::gate(flow, control)? {
        None => one(flow, plans, None, control),
        Some(gate) => measured(control, |report| serve::serve(&gate, flow, plans, control, report)),
    }
}

/// Runs a flow whose source may have been opened already, as a connection.
pub(crate) fn one(
    flow: &Flow,
    plans: &[Plan],
    accepted: Option<Connected>,
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

fn whole(
    flow: &Flow,
    plans: &[Plan],
    accepted: Option<Connected>,
    control: &Control,
    report: &mut Report,
) -> Result<(), Error> {
    let parts = part::cut(&flow.source, &flow.stages, &flow.sink);
    let manner = assembly::manner(flow, &parts, plans);
    if let [part] = parts.as_slice()
        && part.stages.is_empty()
        && let Some(from) = datagram::place(&flow.source, true, flow.wishes.via, Rate::Unlimited)?
        && let Some(to) = datagram::place(&flow.sink, false, flow.wishes.via, manner.rate)?
    {
        return pass_on(part, &plans[0], &from, &to, control, report)
            .and_then(|dropped| nothing_dropped(flow, dropped));
    }
    let ends = assembly::both_ends(flow, accepted, &manner, control)?;
    let assembly = Assembly { flow, parts: &parts, plans, manner: &manner, control };
    let (mut lines, mut programs) = assembly.lines(ends)?;
    if let Some(total) = flow.expect_size.or(lines[0].total()) {
        control.expect(total);
    }
    let first = lines.remove(0);
    let mut done: Vec<Done<'_>> = thread::scope(|scope| {
        let others: Vec<_> = lines.into_iter().map(|line| scope.spawn(|| line.go(control))).collect();
        let first = first.go(control);
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
    outcome = outcome
        .and_then(|()| nothing_dropped(flow, done.iter().map(Done::dropped).sum()))
        .and_then(|()| expected(flow, control))
        .and_then(|()| done.iter_mut().try_for_each(|one| one.see_off(control)));
    let plain =
        |endpoint: &&Endpoint| matches!(endpoint, Endpoint::Udp(end) if !end.sequenced && !end.reliable);
    report.notes.extend([&flow.source, &flow.sink].into_iter().filter(plain).map(|endpoint| {
        format!("{endpoint}: what was lost on the way is not known; 'sequenced' at both ends tells it")
    }));
    for one in &mut done {
        report.pieces.push(one.piece());
        let Done { line, time, .. } = one;
        report.hashes.extend(line.chain.0.iter().filter_map(|stage| stage.hash()));
        if !line.is_progress {
            report.cpu_seconds += time.as_secs_f64();
        }
        line.source.tell_position();
    }
    let sinks = done.iter_mut().flat_map(|one| one.line.sinks()).collect();
    let outcome = conclude(outcome, sinks, control, report);
    done.iter_mut().for_each(|one| one.let_go(outcome.is_ok()));
    outcome
}

/// # Errors
/// [`Error::Lost`] when the kernel is known to have dropped plain datagrams, unless the user said `lossy`.
fn nothing_dropped(flow: &Flow, dropped: u64) -> Result<(), Error> {
    match &flow.source {
        Endpoint::Udp(end) if dropped > 0 && !end.sequenced && !end.lossy => Err(Error::Lost(format!(
            "{}: the kernel dropped {dropped} datagrams that were not fetched in time; send slower, say 'sequenced' at both ends, or 'lossy' here if that does not matter",
            flow.source
        ))),
        _ => Ok(()),
    }
}

/// # Errors
/// [`Error::Data`] when the source has given more or fewer bytes than the user expects.
fn expected(flow: &Flow, control: &Control) -> Result<(), Error> {
    let (came, source) = (control.moved(), &flow.source);
    match flow.expect_size {
        Some(size) if came < size => Err(Error::Data(format!(
            "{source} ended after {came} bytes, and {size} were expected: the sender was killed or had no more"
        ))),
        Some(size) if came > size => {
            Err(Error::Data(format!("{source} has more than the {size} bytes that were expected")))
        }
        _ => Ok(()),
    }
}

/// Passes datagrams on from one end to the other, each as it is. Answers how many the kernel has dropped before.
fn pass_on(
    part: &Part<'_>,
    plan: &Plan,
    from: &DatagramEnd,
    to: &DatagramEnd,
    control: &Control,
    report: &mut Report,
) -> Result<u64, Error> {
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
    let dropped = account.kernel_drops;
    let mover = account.engine.map_or(plan.movers[0].mover, datagram::Engine::mover);
    report.pieces.push(Piece {
        source: plan.source.clone(),
        sink: plan.sink.clone(),
        mover,
        block: plan.block,
        bytes: control.moved(),
        holes: 0,
        copies: mover::copies(mover, Kind::Udp, Kind::Udp),
        zerocopy_sends: 0,
        zerocopy_copied: 0,
        datagrams: vec![account],
        shares: Vec::new(),
        fallbacks: Vec::new(),
    });
    outcome.map(|()| dropped)
}

/// Commits all sinks, or marks them.
fn conclude(
    outcome: Result<(), Error>,
    sinks: Vec<&mut Sink>,
    control: &Control,
    report: &mut Report,
) -> Result<(), Error> {
    match outcome.and_then(|()| control.check()) {
        // Each of them, whatever becomes of another one.
        Ok(()) => sinks.into_iter().map(Sink::commit).fold(Ok(()), Result::and),
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
