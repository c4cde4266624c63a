//! `fork`: a source that serves any number of connections.
//!
//! - [`admission`]: accepts connections while there is room, and refuses the others
//! - [`forwarder`]: connections that are only forwarded, all of them by a few threads
//! - [`threads`]: connections with stages, frames or files, each by a flow and a thread of its own
//! - [`totals`]: totals of all connections
//!
//! Invariant: a failure of one connection ends that connection alone, and a slow connection delays no other
//! one. Cancelling the flow ends all connections. Called by [`crate::flow`], in the flow's thread.

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
/// [`Error::Io`] if the socket cannot listen; [`Error::Usage`] if the sink cannot be shared by several
/// connections.
pub(crate) fn listen(flow: &Description, control: &Control) -> Result<Option<ListeningSocket>, Error> {
    let serves = flow.source.kind.stream().filter(|stream| stream.listening() == Listening::Serves);
    let Some(stream) = serves else { return Ok(None) };
    flow.sink.kind.check_shared_sink()?;
    stream.listen(&flow.source.to_string(), control).map(Some)
}

/// Serves connections until the flow is cancelled, and returns their totals.
///
/// # Errors
/// [`Failed`] with [`Error::Cancelled`] when the flow is cancelled, or with [`Error::Io`] if no connection
/// can be accepted any more.
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
