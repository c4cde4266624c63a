//! Connections of which each has a flow and a thread of its own.
//!
//! Invariant: a thread is waited for when it has ended, or when the whole has. Called by [`super::serve`].

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

/// Connections at a time, where nothing else is said: each has a thread and its buffers.
const CONNECTIONS_MAX: u64 = 256;
/// Descriptors of a connection, at the most: two sockets twice, two pipes, a program's, and three that wake.
const DESCRIPTORS: u64 = 16;

/// A connection that goes on.
struct Running<'scope> {
    control: Arc<Control>,
    thread: ScopedJoinHandle<'scope, Result<Report, Failed>>,
}

/// Serves until the flow is cancelled.
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
                // Its socket has been closed by a reset.
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
