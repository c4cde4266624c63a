//! `fork`: a source that serves ever new connections.
//!
//! - [`door`]: who is let in, and who is turned away
//! - [`exchange`]: connections that are only passed on, all of them by a few threads
//! - [`threads`]: connections with stages, frames or files, each by a flow and a thread of its own
//! - [`sums`]: what all have come to
//!
//! Invariant: one connection's failure ends that connection alone, and nobody waits for a connection while others
//! come; when the whole is cancelled, all of them are. Called by [`crate::run`], in the flow's thread.

mod door;
mod exchange;
mod pair;
mod sums;
mod threads;

use crate::control::Control;
use crate::end::Gate;
use crate::error::Error;
use crate::flow::Flow;
use crate::plan::Plan;
use crate::report::Report;
use crate::spec::{Endpoint, Listening};
use door::Door;
use sums::Sums;

/// The gate of a flow whose source serves; none: it does not.
///
/// # Errors
/// That it cannot listen, or that several flows would write the same sink.
pub(crate) fn gate(flow: &Flow, control: &Control) -> Result<Option<Gate>, Error> {
    let name = flow.source.to_string();
    let gate = match &flow.source {
        Endpoint::Tcp(end) if end.listening == Listening::Serves => Gate::tcp(end, &name, control)?,
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

/// Serves until the flow is cancelled, which is its only end.
pub(crate) fn serve(
    gate: &Gate,
    flow: &Flow,
    plans: &[Plan],
    control: &Control,
    report: &mut Report,
) -> Result<(), Error> {
    let sums = Sums::default();
    let mut door = Door::open(gate, control)?;
    let outcome = match exchange::fits(flow, plans) {
        true => exchange::serve(&mut door, flow, &plans[0], &sums, control),
        false => threads::serve(&mut door, flow, plans, &sums, control),
    };
    sums.tell(door.refused(), report);
    outcome
}
