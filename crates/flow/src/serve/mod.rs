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
use crate::end::ListeningSocket;
use crate::error::Error;
use crate::flow::Flow;
use crate::plan::Plan;
use crate::report::Report;
use crate::spec::{Endpoint, Listening};
use admission::Admission;
use totals::Totals;

/// Returns the listening socket of a flow whose source serves many connections; `None` if it serves one.
///
/// # Errors
/// That it cannot listen, or that several flows would write the same sink.
pub(crate) fn listen(flow: &Flow, control: &Control) -> Result<Option<ListeningSocket>, Error> {
    let name = flow.source.to_string();
    let listener = match &flow.source {
        Endpoint::Tcp(end) if end.listening == Listening::Serves => {
            ListeningSocket::tcp(end, &name, control)?
        }
        Endpoint::Unix(end) if end.listening == Listening::Serves => ListeningSocket::unix(end, &name)?,
        _ => return Ok(None),
    };
    match &flow.sink {
        Endpoint::File(file) if !file.append => Err(Error::Usage(format!(
            "every connection would write {} anew: append to it, or do not fork",
            flow.sink
        ))),
        Endpoint::File(_) | Endpoint::Tcp(_) | Endpoint::Unix(_) | Endpoint::Standard | Endpoint::Null => {
            Ok(Some(listener))
        }
        sink => Err(Error::Usage(format!("{sink} cannot be the sink of several connections at once"))),
    }
}

/// Serves until the flow is cancelled, which is its only end.
pub(crate) fn serve(
    listener: &ListeningSocket,
    flow: &Flow,
    plans: &[Plan],
    control: &Control,
    report: &mut Report,
) -> Result<(), Error> {
    let totals = Totals::default();
    let mut admission = Admission::open(listener, control)?;
    let outcome = match forwarder::is_forwarder(flow, plans) {
        true => forwarder::serve(&mut admission, flow, &plans[0], &totals, control),
        false => threads::serve(&mut admission, flow, plans, &totals, control),
    };
    totals.tell(admission.refused(), report);
    outcome
}
