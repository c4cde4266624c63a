//! One part of a flow with everything opened, and moving it.
//!
//! Called by [`crate::run`], for each part in a thread of its own.

use crate::control::Control;
use crate::datagram::{Accounting, Ledger};
use crate::end::{self, Sink, Source};
use crate::error::Error;
use crate::mover::{self, Blocks, Job, Stop};
use crate::pace::Pace;
use crate::part::{Part, Place};
use crate::plan::{Mover, Plan};
use crate::report::{Counts, Fallback, Piece};
use crate::stage::Chain;
use crate::sys;
use std::time::Duration;

/// One part of a flow, with everything opened.
pub(crate) struct Line<'a> {
    pub(crate) part: &'a Part<'a>,
    pub(crate) plan: &'a Plan,
    pub(crate) source: Source,
    pub(crate) sink: Sink,
    pub(crate) chain: Chain,
    /// Whether what it moves is the flow's progress.
    pub(crate) is_progress: bool,
    /// Whether it goes from the plan's sink to its source.
    pub(crate) is_back: bool,
}

/// What a line has come to.
pub(crate) struct Done<'a> {
    pub(crate) line: Line<'a>,
    pub(crate) piece: Piece,
    pub(crate) outcome: Result<(), Error>,
    /// It comes from a program of which not everything was wanted.
    pub(crate) is_cut: bool,
    /// Processor time of its thread.
    pub(crate) time: Duration,
}

/// By which mover, and what it has counted.
struct Way {
    mover: Mover,
    counts: Counts,
    fallbacks: Vec<Fallback>,
}

impl<'a> Line<'a> {
    /// Bytes that will be moved, where that is known.
    pub(crate) fn total(&self) -> Option<u64> {
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

    /// Moves everything. When it fails, the others are called off.
    pub(crate) fn go(mut self, control: &Control) -> Done<'a> {
        sys::mask_broken_pipe();
        let before = sys::thread_time();
        let mut way =
            Way { mover: self.plan.movers[0].mover, counts: Counts::default(), fallbacks: Vec::new() };
        let outcome = match self.run(control, &mut way) {
            // A program that has read enough has ended its input, and is asked later whether all is well.
            Err(Error::Io { source, .. })
                if source.kind() == std::io::ErrorKind::BrokenPipe && self.feeds_a_program() =>
            {
                Ok(())
            }
            Ok(()) => self.sink.output().finish(control),
            other => other,
        };
        if outcome.is_err() {
            control.cancel();
        }
        let copies = mover::copies(way.mover, self.source.kind(), self.sink.kind());
        let is_cut = self.let_programs_go();
        let piece = self.piece(way, copies);
        Done { line: self, piece, outcome, is_cut, time: sys::thread_time() - before }
    }

    fn feeds_a_program(&self) -> bool {
        matches!(self.part.sink, Place::Program(_))
    }

    /// A program hears that its input is over by nobody having it any more, and likewise that nobody reads it. Answers
    /// whether that cuts it short.
    fn let_programs_go(&mut self) -> bool {
        if self.feeds_a_program() {
            self.sink = Sink::Other(Box::new(end::Nowhere));
        }
        let is_cut = matches!(self.part.source, Place::Program(_)) && !self.source.is_at_end();
        if is_cut {
            self.source = Source::Other(Box::new(end::Nowhere));
        }
        is_cut
    }

    fn piece(&mut self, way: Way, copies: u32) -> Piece {
        let datagrams = self.accounts();
        let engine = datagrams.first().and_then(|account| account.engine);
        let (from, to) = (self.plan.source.clone(), self.plan.sink.clone());
        let (source, sink) = if self.is_back { (to, from) } else { (from, to) };
        Piece {
            source,
            sink,
            mover: engine.map_or(way.mover, |engine| engine.mover()),
            block: self.plan.block,
            bytes: way.counts.bytes,
            holes: way.counts.holes,
            copies,
            zerocopy_sends: way.counts.zerocopy_sends,
            zerocopy_copied: way.counts.zerocopy_copied,
            datagrams,
            fallbacks: way.fallbacks,
        }
    }

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

    /// Moves by the first mover of the plan that the kernel goes along with.
    fn run(&mut self, control: &Control, way: &mut Way) -> Result<(), Error> {
        // Datagrams are paced where they are sent.
        let rate = self.part.rate.filter(|_| !matches!(self.sink, Sink::Datagrams(..)));
        let is_forced = self.plan.movers.len() == 1;
        let mut job = Job {
            control,
            counts: &mut way.counts,
            block: self.plan.block,
            left: self.part.limit,
            pace: rate.map(|rate| Pace::new(Some(rate))),
            keeps_holes: false,
            is_progress: self.is_progress,
            is_forced,
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
            way.mover = choice.mover;
            match mover::run(choice.mover, &mut job, from, to) {
                Ok(()) => return Ok(()),
                Err(Stop::Failed(error)) => return Err(error),
                Err(Stop::Unfit(reason)) if is_forced => {
                    return Err(Error::Unfit { mover: choice.mover, reason });
                }
                Err(Stop::Unfit(why)) => way.fallbacks.push(Fallback { mover: choice.mover, why }),
            }
        }
        Err(Error::Unfit { mover: way.mover, reason: "nor does any other".into() })
    }
}
