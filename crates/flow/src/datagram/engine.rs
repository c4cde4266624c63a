//! Engines: the system calls by which datagrams are received and sent.
//!
//! Invariant: [`choose`] is pure, and never returns an engine that the facts exclude. Called when a port is
//! opened.

use crate::error::Error;
use crate::movers::Mover;
use serde::Serialize;

/// System calls by which datagrams are received and sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Engine {
    /// One datagram for each call (recv(2), send(2)).
    Single,
    /// Many datagrams for each call (recvmmsg(2), sendmmsg(2)).
    Batch,
    /// Many datagrams as one buffer, which the kernel splits and joins (UDP_SEGMENT, UDP_GRO; udp(7)).
    Offload,
    /// Frames are received in memory shared with the kernel (TPACKET_V3; packet(7)), and sent by sendmmsg(2).
    Ring,
    /// Frames are received and sent in memory shared with the kernel, bypassing its network stack (AF_XDP).
    Xdp,
    /// The kernel redirects frames from one device to another (XDP).
    XdpRedirect,
}

impl Engine {
    /// Returns the engine of a mover; `None` for movers of streams.
    pub(crate) fn from_mover(mover: Mover) -> Option<Engine> {
        Some(match mover {
            Mover::Single => Engine::Single,
            Mover::Batch => Engine::Batch,
            Mover::Offload => Engine::Offload,
            Mover::Ring => Engine::Ring,
            Mover::Xdp => Engine::Xdp,
            Mover::XdpRedirect => Engine::XdpRedirect,
            _ => return None,
        })
    }

    /// Returns the mover that stands for the engine in plans and reports.
    pub(crate) fn mover(self) -> Mover {
        match self {
            Engine::Single => Mover::Single,
            Engine::Batch => Mover::Batch,
            Engine::Offload => Mover::Offload,
            Engine::Ring => Mover::Ring,
            Engine::Xdp => Mover::Xdp,
            Engine::XdpRedirect => Mover::XdpRedirect,
        }
    }
}

/// Network layer that carries the datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Medium {
    Udp,
    Ethernet,
}

/// Features that the kernel has for the sockets of a datagram endpoint.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EngineFacts {
    pub medium: Medium,
    /// True if the kernel knows UDP_SEGMENT and UDP_GRO.
    pub offload: bool,
    /// True if the kernel grants a receive ring of version 3.
    pub ring: bool,
}

/// Returns the engine to start with: `forced`, or the best one.
///
/// # Errors
/// [`Error::Usage`] with the reason if the forced engine cannot be used.
pub(crate) fn choose(facts: EngineFacts, forced: Option<Engine>) -> Result<Engine, Error> {
    let best = match facts.medium {
        Medium::Udp if facts.offload => Engine::Offload,
        Medium::Ethernet if facts.ring => Engine::Ring,
        _ => Engine::Batch,
    };
    let Some(forced) = forced else { return Ok(best) };
    let refused = match (forced, facts.medium) {
        (Engine::Ring, Medium::Udp) => Some("rings are for Ethernet"),
        (Engine::Xdp, Medium::Udp) => Some("AF_XDP is for Ethernet"),
        (Engine::XdpRedirect, _) => Some("it passes frames on between two Ethernet devices"),
        (Engine::Offload, Medium::Ethernet) => Some("the kernel cuts and joins datagrams of UDP only"),
        (Engine::Ring, _) if !facts.ring => Some("the kernel refuses a receive ring (TPACKET_V3)"),
        (Engine::Offload, _) if !facts.offload => Some("the kernel knows no UDP_SEGMENT or UDP_GRO"),
        _ => None,
    };
    match refused {
        Some(reason) => {
            Err(Error::Usage(format!("datagrams cannot go by {forced:?}: {reason}; name no engine")))
        }
        None => Ok(forced),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_engines() {
        use Engine::{Batch, Offload, Ring, Single, Xdp, XdpRedirect};
        use Medium::{Ethernet, Udp};
        for (medium, offload, ring, forced, expected) in [
            (Udp, true, false, None, Some(Offload)),
            (Udp, false, false, None, Some(Batch)),
            (Udp, true, true, Some(Single), Some(Single)),
            (Udp, true, true, Some(Batch), Some(Batch)),
            (Udp, false, true, Some(Offload), None),
            (Udp, true, true, Some(Ring), None),
            (Udp, true, true, Some(Xdp), None),
            (Udp, true, true, Some(XdpRedirect), None),
            (Ethernet, true, true, None, Some(Ring)),
            (Ethernet, true, true, Some(Xdp), Some(Xdp)),
            (Ethernet, true, true, Some(XdpRedirect), None),
            (Ethernet, true, false, None, Some(Batch)),
            (Ethernet, true, true, Some(Offload), None),
            (Ethernet, true, false, Some(Ring), None),
            (Ethernet, false, true, Some(Single), Some(Single)),
        ] {
            let chosen = choose(EngineFacts { medium, offload, ring }, forced);
            assert_eq!(chosen.ok(), expected, "{medium:?} {offload} {ring} {forced:?}");
        }
    }
}
