//! Datagram ends of a flow, and the relay between two: UDP and Ethernet.
//!
//! - [`open_input`], [`open_output`], [`open_relay`]: from what the user said ([`options`]) to something that
//!   runs, with a [`Ledger`] to read what it did ([`accounting`])
//! - [`plain`]: payloads as they are; [`sender`] and [`receiver`]: numbered packets ([`layout`]), put in
//!   order ([`assembly`]) with an account of what is missing ([`missing`])
//! - [`probe`] and [`search`]: the highest rate at which nothing is lost
//! - [`relay`], [`translate`]: from one port to another
//! - [`udp`], [`ether`]: the two kinds of [`port`]; [`engine`]: by which calls; [`outbox`] and [`inbox`]:
//!   those calls, for [`run`]s of datagrams
//!
//! Invariant: a stream that has a hole is never given out as whole: where packets are numbered the end says
//! what is missing, where they are not the user has been told that nothing says so. Called by the plan of a
//! flow.

mod accounting;
mod assembly;
mod engine;
mod ether;
mod inbox;
mod layout;
mod missing;
mod name;
mod options;
mod outbox;
mod plain;
mod port;
mod probe;
mod receiver;
mod relay;
mod run;
mod search;
mod sender;
mod socket;
#[cfg(test)]
mod tests;
mod translate;
mod udp;
mod voice;

use crate::block_io::{Input, Output};
use crate::control::Control;
use crate::error::Error;
use crate::rate_limiter::RateLimiter;
use ether::{EthPort, Redirect, XdpPort};
use layout::{HEADER_BYTES, PAYLOAD_BYTES_MAX};
use plain::{PlainInput, PlainOutput};
use port::Port;
use receiver::SequencedInput;
use sender::SequencedOutput;
use translate::{RelaySide, Translation};
use udp::UdpPort;

pub(crate) use accounting::Ledger;
pub use accounting::{Accounting, Probing, Relayed, Step};
pub use engine::Engine;
pub(crate) use ether::mac_of;
pub use missing::Range;
pub(crate) use options::{DatagramEndpoint, EthOptions, Rate, RelayOptions, UdpOptions};

/// Payload of a datagram where the way's MTU is not known.
const SIZE: usize = 1400;

/// Opens a receiving end. What it did is in the ledger while it runs and when it has been dropped.
///
/// # Errors
/// That the place makes no sense or cannot be used.
pub(crate) fn open_input(place: &DatagramEndpoint, ledger: Ledger) -> Result<Box<dyn Input>, Error> {
    let port = listen(place)?;
    Ok(match place {
        DatagramEndpoint::Udp(options) if !options.sequenced => {
            Box::new(PlainInput::new(port, place.idle(), ledger))
        }
        place => Box::new(SequencedInput::new(port, place.silence(), ledger)),
    })
}

/// Opens a sending end.
///
/// # Errors
/// As [`open_input`], and that what was asked for contradicts itself.
pub(crate) fn open_output(place: &DatagramEndpoint, ledger: Ledger) -> Result<Box<dyn Output>, Error> {
    let (size, rate) = match place {
        DatagramEndpoint::Udp(options) => (options.size, options.rate),
        DatagramEndpoint::Eth(options) => (options.size, options.rate),
    };
    let port = connect(place)?;
    let sequenced = side(place).sequenced;
    let head = if sequenced { HEADER_BYTES } else { 0 };
    let size = payload_bytes(size, head, port.as_ref())?;
    if sequenced {
        return Ok(Box::new(SequencedOutput::new(port, size, rate, ledger)));
    }
    let pace = match rate {
        Rate::Unlimited => RateLimiter::new(None),
        Rate::Fixed(rate) => RateLimiter::new(Some(rate)),
        Rate::Auto => {
            return Err(Error::Usage(format!(
                "{}: a rate is found with sequenced packets only; add the option sequenced at both ends",
                port.label()
            )));
        }
    };
    Ok(Box::new(PlainOutput::new(port, size, pace, ledger)))
}

/// Opens both ports of a relay; what is called with a [`Control`] passes datagrams on until it is over.
///
/// # Errors
/// As [`open_input`].
pub(crate) fn open_relay(
    from: &DatagramEndpoint,
    to: &DatagramEndpoint,
    options: RelayOptions,
    ledger: Ledger,
) -> Result<impl FnOnce(&Control) -> Result<(), Error> + Send + use<>, Error> {
    let (redirect, fell_back) = redirect(from, to, options)?;
    let relay = match redirect {
        Some(redirect) => OpenRelay::Kernel(redirect),
        None => OpenRelay::Ports(listen(from)?, connect(to)?, Translation::between(side(from), side(to))),
    };
    Ok(move |control: &Control| match relay {
        OpenRelay::Kernel(redirect) => redirect.run(options, control, &ledger),
        OpenRelay::Ports(mut from, mut to, translation) => {
            let result = relay::relay(from.as_mut(), to.as_mut(), translation, options, control, &ledger);
            if let Some(reason) = fell_back {
                ledger.open().fell_back.get_or_insert(reason);
            }
            result
        }
    })
}

/// What a relay is made of.
enum OpenRelay {
    /// Programs in the kernel.
    Kernel(Redirect),
    /// Two ports, between which datagrams are passed on here.
    Ports(Box<dyn Port>, Box<dyn Port>, Translation),
}

/// A relay inside of the kernel where it was asked for, or where no engine was and it can be had; else why
/// not.
fn redirect(
    from: &DatagramEndpoint,
    to: &DatagramEndpoint,
    options: RelayOptions,
) -> Result<(Option<Redirect>, Option<String>), Error> {
    let (DatagramEndpoint::Eth(from), DatagramEndpoint::Eth(to)) = (from, to) else {
        return Ok((None, None));
    };
    let is_forced = match (from.engine, to.engine) {
        (Some(Engine::XdpRedirect), _) | (_, Some(Engine::XdpRedirect)) => true,
        (None, None) => false,
        _ => return Ok((None, None)),
    };
    match Redirect::open(from, to, options) {
        Ok(redirect) => Ok((Some(redirect), None)),
        Err(Error::Unfit { mover, reason }) if !is_forced => Ok((None, Some(format!("{mover}: {reason}")))),
        Err(error) => Err(error),
    }
}

fn listen(place: &DatagramEndpoint) -> Result<Box<dyn Port>, Error> {
    Ok(match place {
        DatagramEndpoint::Udp(options) => Box::new(UdpPort::listen(options)?),
        DatagramEndpoint::Eth(options) if options.engine == Some(Engine::Xdp) => {
            Box::new(XdpPort::listen(options)?)
        }
        DatagramEndpoint::Eth(options) => Box::new(EthPort::listen(options)?),
    })
}

fn connect(place: &DatagramEndpoint) -> Result<Box<dyn Port>, Error> {
    Ok(match place {
        DatagramEndpoint::Udp(options) => Box::new(UdpPort::connect(options)?),
        DatagramEndpoint::Eth(options) if options.engine == Some(Engine::Xdp) => {
            Box::new(XdpPort::connect(options)?)
        }
        DatagramEndpoint::Eth(options) => Box::new(EthPort::connect(options)?),
    })
}

fn side(place: &DatagramEndpoint) -> RelaySide {
    match place {
        DatagramEndpoint::Udp(options) => RelaySide { sequenced: options.sequenced, port: 0 },
        DatagramEndpoint::Eth(options) => RelaySide { sequenced: true, port: options.port },
    }
}

/// Payload bytes of a datagram: those that were asked for, or as many as fit the way.
fn payload_bytes(asked: Option<usize>, head: usize, port: &dyn Port) -> Result<usize, Error> {
    let most = port.datagram_bytes_max().map(|bytes| bytes.saturating_sub(head).max(1));
    let limit = PAYLOAD_BYTES_MAX - HEADER_BYTES;
    match asked {
        None => Ok(most.unwrap_or(SIZE).min(limit)),
        Some(size) if (1..=limit).contains(&size) => Ok(size),
        Some(size) => {
            Err(Error::Usage(format!("{}: size={size} is not between 1 and {limit}", port.label())))
        }
    }
}
