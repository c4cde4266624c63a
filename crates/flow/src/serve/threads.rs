//! Serves connections with a thread and a flow of its own for each.
//!
//! Invariant: every thread is joined, at the latest when serving ends. Called by [`super::serve`].

use super::admission::Admission;
use super::totals::Totals;
use crate::control::Control;
use crate::description::Description;
use crate::error::Error;
use crate::plan::Plan;
use crate::report::{Failed, Report};
use crate::run;
use std::sync::Arc;
use std::thread::{self, Builder, ScopedJoinHandle};

/// Default of the greatest number of connections at a time; each has a thread and its buffers.
const CONNECTIONS_MAX: u64 = 256;
/// Greatest number of descriptors of a connection: two sockets twice, two pipes, a program's, and three
/// eventfds.
const DESCRIPTORS: u64 = 16;

/// A connection whose thread may still be running.
struct Running<'scope> {
    control: Arc<Control>,
    thread: ScopedJoinHandle<'scope, Result<Report, Failed>>,
}

/// Serves connections until the flow is cancelled.
///
/// # Errors
/// [`Error::Cancelled`] when the flow is cancelled; [`Error::Io`] if accept(2) fails for good.
pub(super) fn serve(
    admission: &mut Admission<'_>,
    flow: &Description,
    plans: &[Plan],
    totals: &Totals,
    whole: &Control,
) -> Result<(), Error> {
    let room = admission.room(CONNECTIONS_MAX, DESCRIPTORS);
    thread::scope(|scope| {
        let mut running: Vec<Running<'_>> = Vec::new();
        let outcome = loop {
            let next = admission.next(room, || {
                for index in (0..running.len()).rev() {
                    if running[index].thread.is_finished() {
                        join(running.swap_remove(index), totals);
                    }
                }
                running.len() as u64
            });
            let connected = match next {
                Ok(connected) => connected,
                Err(error) => break Err(error),
            };
            let begun = Control::new().map(Arc::new).and_then(|control| {
                let own = control.clone();
                let served = move || {
                    let outcome = run::run(flow, plans, Some(connected), &own);
                    whole.add_moved(own.moved());
                    outcome
                };
                let thread = Builder::new().name("flow-connection".into()).spawn_scoped(scope, served);
                let failed = |error| Error::io("start a thread for a connection", error);
                thread.map(|thread| Running { control, thread }).map_err(failed)
            });
            match begun {
                Ok(one) => running.push(one),
                // The socket was dropped with the closure, which resets the connection.
                Err(error) => totals.count(Some(error), 0.0, Vec::new()),
            }
        };
        for one in &running {
            one.control.cancel();
        }
        running.into_iter().for_each(|one| join(one, totals));
        outcome
    })
}

fn join(one: Running<'_>, totals: &Totals) {
    match one.thread.join() {
        Ok(outcome) => totals.add(outcome),
        Err(panic) => std::panic::resume_unwind(panic),
    }
}
