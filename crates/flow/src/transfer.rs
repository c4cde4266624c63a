//! A transfer: one part of a flow with its ends open and its stages built, and the loop that moves its data.
//!
//! Called by [`crate::run`], for each transfer in a thread of its own.

use crate::control::Control;
use crate::datagram::{Accounting, Ledger};
use crate::end::{self, Sink, Source};
use crate::error::Error;
use crate::facts::Kind;
use crate::mover::{self, Blocks, Job, RaceResult, Stop};
use crate::movers::Mover;
use crate::part::{Part, PartEnd};
use crate::plan::{Plan, Prefer, RankedMover};
use crate::rate_limiter::RateLimiter;
use crate::report::{Counts, Fallback, Piece, Share};
use crate::stage::Chain;
use crate::sys;
use crate::timing::LiveStream;
use std::time::Duration;

/// One part of a flow with its ends open, or the reverse direction between two sockets.
pub(crate) struct Transfer<'a> {
    pub(crate) part: &'a Part<'a>,
    pub(crate) plan: &'a Plan,
    pub(crate) source: Source,
    pub(crate) sink: Sink,
    pub(crate) chain: Chain,
    /// True if the bytes moved here count as the flow's progress.
    pub(crate) is_progress: bool,
    /// True for the reverse direction, from the plan's sink to its source.
    pub(crate) is_reverse: bool,
    /// Counters of a datagram source, set once that source has been closed.
    pub(crate) closed_ledger: Option<Ledger>,
    /// True if the sink's stream is ended as soon as the source has ended, as for each direction between two
    /// sockets; false if it is ended after the whole flow has succeeded.
    pub(crate) ends_early: bool,
    /// Kind of cost by which movers that take turns are compared.
    pub(crate) compared_by: Prefer,
}

/// A transfer after its thread has ended, with the result.
pub(crate) struct FinishedTransfer<'a> {
    pub(crate) transfer: Transfer<'a>,
    result: MoverResult,
    pub(crate) outcome: Result<(), Error>,
    /// True if the source is a program whose output was not read to its end.
    pub(crate) is_unread: bool,
    /// Processor time of the transfer's thread.
    pub(crate) time: Duration,
}

/// Mover that moved the data of a transfer, and its counters.
struct MoverResult {
    mover: Mover,
    block: usize,
    counts: Counts,
    shares: Vec<Share>,
    fallbacks: Vec<Fallback>,
    /// Number of times that the processor copied each byte.
    copies: u32,
}

impl FinishedTransfer<'_> {
    /// Ends the stream of every sink and waits until the data on its way has arrived, unless the transfer has
    /// done so already.
    ///
    /// # Errors
    /// The first error of a sink, with the sink's name: see [`crate::block_io::Output::finish`].
    pub(crate) fn finish(&mut self, control: &Control) -> Result<(), Error> {
        match self.transfer.ends_early {
            true => Ok(()),
            false => self.transfer.sinks().try_for_each(|sink| sink.output().finish(control)),
        }
    }

    /// Returns the number of datagrams from the source that the kernel is known to have dropped.
    pub(crate) fn dropped(&self) -> u64 {
        self.transfer.closed_ledger.as_ref().map_or(0, |ledger| ledger.read().kernel_drops)
    }

    /// Decides how connections are closed: in order, or by a reset that the peer sees as an error.
    pub(crate) fn set_linger(&mut self, in_order: bool) {
        self.transfer.source.set_linger(in_order);
        self.transfer.sinks().for_each(|sink| sink.set_linger(in_order));
    }

    /// Takes the result of the transfer for the report; complete once [`FinishedTransfer::finish`] has run.
    pub(crate) fn piece(&mut self) -> Piece {
        let (mover, block) = (self.result.mover, self.result.block);
        let way = std::mem::replace(&mut self.result, MoverResult::new(mover, block));
        self.transfer.piece(way)
    }
}

impl MoverResult {
    fn new(mover: Mover, block: usize) -> MoverResult {
        MoverResult {
            mover,
            block,
            counts: Counts::default(),
            shares: Vec::new(),
            fallbacks: Vec::new(),
            copies: 0,
        }
    }
}

impl<'a> Transfer<'a> {
    /// Returns the number of bytes that will be moved, if it is known.
    pub(crate) fn total(&self) -> Option<u64> {
        let limit = Some(self.part.limit).filter(|limit| *limit != u64::MAX);
        let size = match &self.source {
            Source::Descriptor(source) => source.left(),
            _ => None,
        };
        match (size, limit) {
            (Some(size), Some(limit)) => Some(size.min(limit)),
            (size, limit) => size.or(limit),
        }
    }

    /// Moves all data. If that fails, the whole flow is cancelled.
    pub(crate) fn run(mut self, control: &Control) -> FinishedTransfer<'a> {
        sys::block_sigpipe();
        let before = sys::thread_time();
        let mut way = MoverResult::new(self.plan.movers[0].mover, self.plan.block);
        let outcome = match self.move_data(control, &mut way) {
            // A program may close its input early; its exit status, checked later, tells whether that was an
            // error. A device does so when nothing takes its output any more.
            Err(Error::Io { source, .. })
                if source.kind() == std::io::ErrorKind::BrokenPipe && self.part.sink.is_within() =>
            {
                Ok(())
            }
            Ok(()) if self.ends_early || self.feeds_device() => self.sink.output().finish(control),
            other => other,
        };
        if outcome.is_err() {
            control.cancel();
        }
        let kind = |end, named| if matches!(end, PartEnd::Device(_)) { Kind::Accelerator } else { named };
        let (from, to) = (kind(self.part.source, self.source.kind()), kind(self.part.sink, self.sink.kind()));
        way.copies = mover::copies(way.mover, from, to);
        let is_cut = self.close_inner_ends();
        self.close_datagram_source();
        FinishedTransfer {
            transfer: self,
            result: way,
            outcome,
            is_unread: is_cut,
            time: sys::thread_time() - before,
        }
    }

    /// Returns all sinks that the transfer writes to: those of `tee:` stages and its own.
    pub(crate) fn sinks(&mut self) -> impl Iterator<Item = &mut Sink> {
        self.chain.0.iter_mut().filter_map(|stage| stage.sink()).chain([&mut self.sink])
    }

    /// Returns the accounts of live streams, from the source to the sinks.
    pub(crate) fn live_streams(&mut self) -> Vec<LiveStream> {
        let mut streams: Vec<LiveStream> = self.source.input().live().into_iter().collect();
        streams.extend(self.chain.0.iter().filter_map(|stage| stage.live()));
        streams.extend(self.sinks().filter_map(|sink| sink.output().live()));
        streams
    }

    fn feeds_device(&self) -> bool {
        matches!(self.part.sink, PartEnd::Device(_))
    }

    /// Closes the ends within the flow, so that a program reads the end of its input, and that what another
    /// program or a device still gives is not waited for. Returns true if output of a program was left unread.
    fn close_inner_ends(&mut self) -> bool {
        if self.part.sink.is_within() {
            self.sink = Sink::Other(Box::new(end::Null));
        }
        let is_cut = matches!(self.part.source, PartEnd::Program(_)) && !self.source.is_at_end();
        if is_cut || matches!(self.part.source, PartEnd::Device(_)) {
            self.source = Source::Other(Box::new(end::Null));
        }
        is_cut
    }

    fn piece(&mut self, way: MoverResult) -> Piece {
        let datagrams = self.accountings();
        let engine = datagrams.first().and_then(|account| account.engine);
        let (from, to) = (self.plan.source.clone(), self.plan.sink.clone());
        let (source, sink) = if self.is_reverse { (to, from) } else { (from, to) };
        Piece {
            source,
            sink,
            mover: engine.map_or(way.mover, |engine| engine.mover()),
            block: way.block,
            bytes: way.counts.bytes,
            holes: way.counts.holes,
            copies: way.copies,
            zerocopy_sends: way.counts.zerocopy_sends,
            zerocopy_copied: way.counts.zerocopy_copied,
            datagrams,
            shares: way.shares,
            fallbacks: way.fallbacks,
        }
    }

    /// Closes a datagram source and keeps its counters, which are complete then.
    fn close_datagram_source(&mut self) {
        if let Source::Datagrams(_, ledger) = &self.source {
            self.closed_ledger = Some(ledger.clone());
            self.source = Source::Other(Box::new(end::Null));
        }
    }

    /// Reads the counters of the ends that carry datagrams, the source first.
    fn accountings(&mut self) -> Vec<Accounting> {
        let mut ledgers: Vec<Ledger> = self.closed_ledger.iter().cloned().collect();
        if let Sink::Datagrams(_, ledger) = &self.sink {
            ledgers.push(ledger.clone());
        }
        ledgers.iter().map(Ledger::read).collect()
    }

    /// Moves all data by the first mover of the plan that the kernel accepts, or by movers that take turns.
    fn move_data(&mut self, control: &Control, way: &mut MoverResult) -> Result<(), Error> {
        // Datagram sinks limit the rate themselves.
        let rate = self.part.rate.filter(|_| !matches!(self.sink, Sink::Datagrams(..)));
        let is_forced = self.plan.movers.len() == 1;
        let mut job = Job {
            control,
            counts: &mut way.counts,
            block: self.plan.block,
            left: self.part.limit,
            turn: u64::MAX,
            rate_limiter: rate.map(|rate| RateLimiter::new(Some(rate))),
            keeps_holes: false,
            is_progress: self.is_progress,
            is_forced,
            data_until: 0,
            buffer: None,
            pipe: None,
        };
        let (Source::Descriptor(from), Sink::Descriptor(to), true) =
            (&mut self.source, &mut self.sink, self.chain.is_empty())
        else {
            let mut blocks = Blocks { job: &mut job, chain: &mut self.chain };
            return mover::through(&mut blocks, &mut self.source, &mut self.sink);
        };
        job.keeps_holes = self.plan.keeps_holes && to.may_have_holes();
        let trial: Vec<&RankedMover> =
            self.plan.movers.iter().filter(|choice| self.plan.trial.contains(&choice.mover)).collect();
        let mut has_raced = false;
        for choice in &self.plan.movers {
            if self.plan.trial.contains(&choice.mover) {
                if std::mem::replace(&mut has_raced, true) {
                    continue;
                }
                let RaceResult { is_over, shares, fallbacks } =
                    mover::take_turns(&trial, self.compared_by, &mut job, from, to)?;
                way.mover = shares.first().map_or(choice.mover, |share| share.mover);
                way.block = job.block;
                way.shares = shares;
                way.fallbacks.extend(fallbacks);
                if is_over {
                    return Ok(());
                }
                continue;
            }
            (way.mover, way.block, job.block) = (choice.mover, choice.block, choice.block);
            match mover::run(choice.mover, &mut job, from, to) {
                Ok(()) => return Ok(()),
                Err(Stop::Failed(error)) => return Err(error),
                Err(Stop::Refused(reason)) if is_forced => {
                    return Err(Error::Unfit { mover: choice.mover, reason });
                }
                Err(Stop::Refused(why)) => way.fallbacks.push(Fallback { mover: choice.mover, why }),
            }
        }
        Err(Error::Unfit { mover: way.mover, reason: "nor does any other".into() })
    }
}
