//! Totals of all connections that a flow has served.
//!
//! Bounded: one piece for each pair of ends and mover, and the first few failures. Updated by
//! [`super::threads`] and [`super::forwarder`] when a connection ends.

use crate::error::Error;
use crate::report::{Failed, Piece, Report};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Greatest number of failures that the report describes one by one.
const FAILURES_TOLD: usize = 8;

/// Totals of all connections, updated by several threads.
#[derive(Default)]
pub(super) struct Totals(Mutex<State>);

#[derive(Default)]
struct State {
    connections: u64,
    failed: u64,
    cpu_seconds: f64,
    pieces: Vec<Piece>,
    failures: Vec<String>,
}

impl Totals {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a connection that had a flow of its own.
    pub(super) fn add(&self, outcome: Result<Report, Failed>) {
        match outcome {
            Ok(report) => self.count(None, report.cpu_seconds, report.pieces),
            Err(Failed { error, report }) => self.count(Some(error), report.cpu_seconds, report.pieces),
        }
    }

    /// Adds a connection that has ended; `error` is `None` if it ended in order.
    pub(super) fn count(&self, error: Option<Error>, cpu_seconds: f64, pieces: Vec<Piece>) {
        let mut state = self.state();
        state.connections += 1;
        state.cpu_seconds += cpu_seconds;
        if let Some(error) = error.filter(|error| !matches!(error, Error::Cancelled)) {
            state.failed += 1;
            if state.failures.len() < FAILURES_TOLD {
                state.failures.push(format!("a connection failed: {error}"));
            }
        }
        for piece in pieces {
            let same = |known: &&mut Piece| {
                (&known.source, &known.sink, known.mover) == (&piece.source, &piece.sink, piece.mover)
            };
            match state.pieces.iter_mut().find(same) {
                Some(known) => known.bytes += piece.bytes,
                None => state.pieces.push(piece),
            }
        }
    }

    /// Adds the processor time of a thread that serves many connections.
    pub(super) fn spent(&self, seconds: f64) {
        self.state().cpu_seconds += seconds;
    }

    /// Writes the totals into a report. `refused` is the number of connections that were refused.
    pub(super) fn tell(self, refused: u64, report: &mut Report) {
        let state = self.0.into_inner().unwrap_or_else(PoisonError::into_inner);
        report.cpu_seconds += state.cpu_seconds;
        report.pieces = state.pieces;
        let mut counts = format!("{} connections, {} failed", state.connections, state.failed);
        if refused > 0 {
            counts += &format!(", {refused} refused");
        }
        report.notes.push(counts);
        report.notes.extend(state.failures);
    }
}
