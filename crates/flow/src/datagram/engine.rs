//! The engines: by which calls datagrams come and go.
//!
//! Invariant: [`choose`] is pure: facts in, engine out, and it never picks what the facts exclude. Called
//! when a port is opened.

use crate::error::Error;
use crate::movers::Mover;
use serde::Serialize;

/// By which calls datagrams come and go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Engine {
    /// One call, one datagram (recv(2), send(2)).
    Single,
    /// One call, many datagrams (recvmmsg(2), sendmmsg(2)).
    Batch,
    /// One datagram for many, which the kernel cuts and joins (UDP_SEGMENT, UDP_GRO; udp(7)).
    Offload,
    /// Frames come in memory that is shared with the kernel (TPACKET_V3; packet(7)), and go by sendmmsg(2).
    Ring,
    /// Frames come and go in memory that is shared with the kernel, past its packets (AF_XDP).
    Xdp,
    /// The kernel passes frames on from device to device (XDP).
    XdpRedirect,
}

impl Engine {
    /// The one that a mover stands for.
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

    /// The mover that it stands for.
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

/// What datagrams travel in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Medium {
    Udp,
    Ethernet,
}

/// What the kernel said when it was asked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EngineFacts {
    pub medium: Medium,
    /// UDP_SEGMENT and UDP_GRO are known.
    pub offload: bool,
    /// A receive ring of version 3 could be made.
    pub ring: bool,
}

/// The engine to begin with.
///
/// # Errors
/// That the engine that was forced cannot be had, and why.
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
