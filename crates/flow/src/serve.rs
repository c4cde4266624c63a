//! `fork`: a source that serves ever new connections, each with a flow of its own.
//!
//! Invariant: one connection's failure ends that connection alone; when the whole is cancelled, all of them are.
//! Called by [`crate::run`], in the flow's thread.

use crate::control::Control;
use crate::end::Gate;
use crate::error::Error;
use crate::flow::Flow;
use crate::plan::Plan;
use crate::report::{Failed, Piece, Report};
use crate::run;
use crate::spec::{Endpoint, Listening};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, ScopedJoinHandle};

/// Connections at a time; more wait to be accepted.
const CONNECTIONS_MAX: usize = 256;
/// Failures that are told one by one.
const FAILURES_TOLD: usize = 8;

/// The gate of a flow whose source serves; none: it does not.
///
/// # Errors
/// That it cannot listen, or that several flows would write the same sink.
pub(crate) fn gate(flow: &Flow) -> Result<Option<Gate>, Error> {
    let name = flow.source.to_string();
    let gate = match &flow.source {
        Endpoint::Tcp(end) if end.listening == Listening::Serves => Gate::tcp(end, &name)?,
        Endpoint::Unix(end) if end.listening == Listening::Serves => Gate::unix(end, &name)?,
        _ => return Ok(None),
    };
    match &flow.sink {
        Endpoint::File(file) if !file.append => Err(Error::Usage(format!(
            "every connection would write {} anew: append to it, or do not fork",
            flow.sink
        ))),
        Endpoint::File(_) | Endpoint::Tcp(_) | Endpoint::Unix(_) | Endpoint::Standard | Endpoint::Null => {
            Ok(Some(gate))
        }
        sink => Err(Error::Usage(format!("{sink} cannot be the sink of several connections at once"))),
    }
}

/// Connections that go on.
type Running<'scope> = Vec<(Arc<Control>, ScopedJoinHandle<'scope, Result<Report, Failed>>)>;

/// Serves until the flow is cancelled, which is its only end.
pub(crate) fn serve(
    gate: &Gate,
    flow: &Flow,
    plans: &[Plan],
    control: &Control,
    report: &mut Report,
) -> Result<(), Error> {
    let told = Mutex::new(Sums::default());
    let outcome = thread::scope(|scope| {
        let mut running: Running<'_> = Vec::new();
        let outcome = loop {
            if running.len() == CONNECTIONS_MAX {
                // The oldest, most likely, is the first to be over.
                join(running.remove(0), &told);
            }
            let socket = match gate.accept(control) {
                Ok(socket) => socket,
                Err(error) => break error,
            };
            for index in (0..running.len()).rev() {
                if running[index].1.is_finished() {
                    join(running.swap_remove(index), &told);
                }
            }
            match Control::new() {
                Ok(own) => running.push(begin(scope, flow, plans, socket, Arc::new(own), control)),
                Err(error) => break error,
            }
        };
        for (own, _) in &running {
            own.cancel();
        }
        running.into_iter().for_each(|one| join(one, &told));
        outcome
    });
    let sums = told.into_inner().unwrap_or_else(PoisonError::into_inner);
    sums.tell(report);
    Err(outcome)
}

fn begin<'scope>(
    scope: &'scope thread::Scope<'scope, '_>,
    flow: &'scope Flow,
    plans: &'scope [Plan],
    socket: OwnedFd,
    own: Arc<Control>,
    whole: &'scope Control,
) -> (Arc<Control>, ScopedJoinHandle<'scope, Result<Report, Failed>>) {
    let shared = own.clone();
    let thread = scope.spawn(move || {
        let outcome = run::one(flow, plans, Some(socket), &shared);
        whole.note(shared.moved());
        outcome
    });
    (own, thread)
}

fn join(one: (Arc<Control>, ScopedJoinHandle<'_, Result<Report, Failed>>), sums: &Mutex<Sums>) {
    match one.1.join() {
        Ok(outcome) => sums.lock().unwrap_or_else(PoisonError::into_inner).add(outcome),
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// What all connections have come to.
#[derive(Default)]
struct Sums {
    connections: u64,
    failed: u64,
    cpu_seconds: f64,
    pieces: Vec<Piece>,
    failures: Vec<String>,
}

impl Sums {
    fn add(&mut self, outcome: Result<Report, Failed>) {
        self.connections += 1;
        let report = match outcome {
            Ok(report) => report,
            Err(Failed { error, report }) => {
                if !matches!(error, Error::Cancelled) {
                    self.failed += 1;
                    if self.failures.len() < FAILURES_TOLD {
                        self.failures.push(format!("a connection failed: {error}"));
                    }
                }
                *report
            }
        };
        self.cpu_seconds += report.cpu_seconds;
        for piece in report.pieces {
            let same = |known: &&mut Piece| {
                (&known.source, &known.sink, known.mover) == (&piece.source, &piece.sink, piece.mover)
            };
            match self.pieces.iter_mut().find(same) {
                Some(known) => known.bytes += piece.bytes,
                None => self.pieces.push(piece),
            }
        }
    }

    fn tell(self, report: &mut Report) {
        report.cpu_seconds += self.cpu_seconds;
        report.pieces = self.pieces;
        report.notes.push(format!("{} connections, {} failed", self.connections, self.failed));
        report.notes.extend(self.failures);
    }
}
