//! `fork`: a source that serves ever new connections.
//!
//! - [`admission`]: who is let in, and who is turned away
//! - [`forwarder`]: connections that are only passed on, all of them by a few threads
//! - [`threads`]: connections with stages, frames or files, each by a flow and a thread of its own
//! - [`totals`]: what all have come to
//!
//! Invariant: one connection's failure ends that connection alone, and nobody waits for a connection while
//! others come; when the whole is cancelled, all of them are. Called by [`crate::run`], in the flow's thread.

mod admission;
mod forwarder;
mod pair;
mod threads;
mod totals;

use crate::control::Control;
use crate::description::Description;
use crate::end::ListeningSocket;
use crate::endpoint::Listening;
use crate::error::Error;
use crate::plan::Plan;
use crate::report::{Failed, Report};
use crate::run;
use admission::Admission;
use totals::Totals;

/// Returns the listening socket of a flow whose source serves many connections; `None` if it serves one.
///
/// # Errors
/// That it cannot listen, or that several flows would write the same sink.
pub(crate) fn listen(flow: &Description, control: &Control) -> Result<Option<ListeningSocket>, Error> {
    let serves = flow.source.kind.stream().filter(|stream| stream.listening() == Listening::Serves);
    let Some(stream) = serves else { return Ok(None) };
    flow.sink.kind.check_shared_sink()?;
    stream.listen(&flow.source.to_string(), control).map(Some)
}

/// Serves until the flow is cancelled, which is its only end.
pub(crate) fn serve(
    listener: &ListeningSocket,
    flow: &Description,
    plans: &[Plan],
    control: &Control,
) -> Result<Report, Failed> {
    run::measured(control, |report| {
        let totals = Totals::default();
        let mut admission = Admission::open(listener, control)?;
        let outcome = match forwarder::target(flow, plans) {
            Some(target) => forwarder::serve(&mut admission, flow, target, &plans[0], &totals, control),
            None => threads::serve(&mut admission, flow, plans, &totals, control),
        };
        totals.tell(admission.refused(), report);
        outcome
    })
}
