//! Execution of a flow: opens its ends, moves each part in a thread, then commits the sinks or keeps partial
//! files.
//!
//! Invariant: a sink file gets its name only after the whole flow has succeeded. Called by
//! [`crate::flow`] and, for each connection, by [`crate::serve`].

use crate::assembly::{self, Assembly, Joint};
use crate::control::Control;
use crate::datagram::{self, DatagramEndpoint, Ledger, Rate, RelayOptions};
use crate::description::Description;
use crate::end::{Connected, Sink};
use crate::endpoint::{Direction, Endpoint};
use crate::error::Error;
use crate::facts::Kind;
use crate::mover;
use crate::part::{self, Part};
use crate::plan::Plan;
use crate::report::{Failed, Piece, Report};
use crate::sys;
use crate::transfer::FinishedTransfer;
use rustix::io::Errno;
use std::path::PathBuf;
use std::thread;
use std::time::Instant;

/// Runs a flow once. `accepted` is the source, if it is a connection that was already
/// accepted.
pub(crate) fn run(
    flow: &Description,
    plans: &[Plan],
    accepted: Option<Connected>,
    control: &Control,
) -> Result<Report, Failed> {
    measured(control, |report| whole(flow, plans, accepted, control, report))
}

/// Runs `what` and fills its duration, processor time, bytes and success into the report.
pub(crate) fn measured(
    control: &Control,
    what: impl FnOnce(&mut Report) -> Result<(), Error>,
) -> Result<Report, Failed> {
    sys::block_sigpipe();
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
    flow: &Description,
    plans: &[Plan],
    accepted: Option<Connected>,
    control: &Control,
    report: &mut Report,
) -> Result<(), Error> {
    let parts = part::cut(&flow.source, &flow.stages, &flow.sink);
    let settings = assembly::sink_settings(flow, &parts, plans);
    if let [part] = parts.as_slice()
        && part.stages.is_empty()
        && let Some(from) =
            flow.source.kind.datagrams(Direction::Receive, flow.options.via, Rate::Unlimited)?
        && let Some(to) = flow.sink.kind.datagrams(Direction::Send, flow.options.via, settings.rate)?
    {
        return pass_on(part, &plans[0], &from, &to, control, report)
            .and_then(|dropped| nothing_dropped(flow, dropped));
    }
    let ends = assembly::both_ends(flow, accepted, &settings, control)?;
    let assembly = Assembly { flow, parts: &parts, plans, settings: &settings, control };
    let (mut transfers, mut joints) = assembly.transfers(ends)?;
    if let Some(total) = flow.expect_size.or(transfers[0].total()) {
        control.set_total(total);
    }
    let first = transfers.remove(0);
    let mut done: Vec<FinishedTransfer<'_>> = thread::scope(|scope| {
        let others: Vec<_> =
            transfers.into_iter().map(|transfer| scope.spawn(|| transfer.run(control))).collect();
        let first = first.run(control);
        let others = others.into_iter().map(|other| match other.join() {
            Ok(done) => done,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        std::iter::once(first).chain(others).collect()
    });
    let mut outcome = verdict(&mut done);
    // Part `n` feeds joint `n`, and part `n + 1` reads its output.
    for (joint, behind) in joints.iter_mut().zip(&done[1..]) {
        match joint {
            Joint::Program(program) => {
                if outcome.is_ok() {
                    outcome = program.finish(behind.is_unread, control);
                }
                report.cpu_seconds += program.time().as_secs_f64();
            }
            Joint::Device(account) => {
                report.hashes.extend(account.hash());
                report.accelerations.push(account.acceleration());
            }
        }
    }
    outcome = outcome
        .and_then(|()| nothing_dropped(flow, done.iter().map(FinishedTransfer::dropped).sum()))
        .and_then(|()| expected(flow, control))
        .and_then(|()| done.iter_mut().try_for_each(|one| one.finish(control)));
    let plain = |endpoint: &&Endpoint| endpoint.kind.unnumbered_datagrams().is_some();
    report.notes.extend([&flow.source, &flow.sink].into_iter().filter(plain).map(|endpoint| {
        format!("{endpoint}: what was lost on the way is not known; 'sequenced' at both ends tells it")
    }));
    for one in &mut done {
        report.pieces.push(one.piece());
        let FinishedTransfer { transfer, time, .. } = one;
        report.live_streams.extend(transfer.live_streams());
        report.presentations.extend(transfer.sinks().filter_map(|sink| sink.presentation()));
        report.hashes.extend(transfer.chain.0.iter().filter_map(|stage| stage.hash()));
        if !transfer.is_progress {
            report.cpu_seconds += time.as_secs_f64();
        }
        transfer.source.restore_offset();
    }
    let sinks = done.iter_mut().flat_map(|one| one.transfer.sinks()).collect();
    let outcome = conclude(outcome, sinks, control, report);
    done.iter_mut().for_each(|one| one.set_linger(outcome.is_ok()));
    outcome
}

/// Checks that the kernel dropped no plain datagrams.
///
/// # Errors
/// [`Error::Lost`] if `dropped` is not 0 and the source is neither `sequenced` nor `lossy`.
fn nothing_dropped(flow: &Description, dropped: u64) -> Result<(), Error> {
    match flow.source.kind.unnumbered_datagrams() {
        Some(datagrams) if dropped > 0 && !datagrams.tolerates_drops => Err(Error::Lost(format!(
            "{}: the kernel dropped {dropped} datagrams that were not fetched in time; send slower, say 'sequenced' at both ends, or 'lossy' here if that does not matter",
            flow.source
        ))),
        Some(_) | None => Ok(()),
    }
}

/// Checks that the source gave as many bytes as the user expects.
///
/// # Errors
/// [`Error::Data`] if it gave more or fewer.
fn expected(flow: &Description, control: &Control) -> Result<(), Error> {
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

/// Relays datagrams from one end to the other without a change. Returns the number of datagrams that the
/// kernel dropped before they were received.
fn pass_on(
    part: &Part<'_>,
    plan: &Plan,
    from: &DatagramEndpoint,
    to: &DatagramEndpoint,
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

/// Commits all sinks if the flow succeeded, else keeps what they have as partial files.
fn conclude(
    outcome: Result<(), Error>,
    sinks: Vec<&mut Sink>,
    control: &Control,
    report: &mut Report,
) -> Result<(), Error> {
    match outcome.and_then(|()| control.check()) {
        // Every sink is committed, even if the commit of another one fails.
        Ok(()) => sinks.into_iter().map(Sink::commit).fold(Ok(()), Result::and),
        Err(error) => {
            // After an error of space no partial file is kept, so that the disk does not stay full.
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

/// Returns the result of the whole flow: the first error other than a cancellation, else the cancellation.
fn verdict(done: &mut [FinishedTransfer<'_>]) -> Result<(), Error> {
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
