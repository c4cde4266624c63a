//! Datagram endpoints (UDP and Ethernet), and the relay between two of them.
//!
//! - [`open_input`], [`open_output`], [`open_relay`]: open endpoints described by [`options`], each with a
//!   [`Ledger`] of counters ([`accounting`])
//! - [`plain`]: payloads without headers; [`sender`] and [`receiver`]: packets with headers ([`layout`]),
//!   which [`assembly`] puts in order, with a record of [`missing`] bytes
//! - [`probe`] and [`search`]: find the highest rate without loss
//! - [`relay`] and [`translate`]: forward datagrams from one port to another
//! - [`udp`] and [`ether`]: the two kinds of [`port`]; [`engine`]: the system calls to use; [`outbox`] and
//!   [`inbox`]: these calls, for [`run`]s of datagrams
//!
//! Invariant: a stream with missing bytes never looks complete: with sequence numbers the end reports the
//! missing bytes, without them the report tells the user that loss is unknown. Called by [`crate::endpoint`]
//! and [`crate::run`].

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
mod packet_sender;
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
pub(crate) use socket::{want_receive_buffer, want_send_buffer};

/// Payload of a datagram in bytes, if the MTU of the path is unknown.
const SIZE: usize = 1400;

/// Opens a receiver. The counters are in `ledger` while it runs and after it has been dropped.
///
/// # Errors
/// [`Error::Usage`] if the options contradict each other or the engine cannot be used; [`Error::Io`] if the
/// port cannot be opened.
pub(crate) fn open_input(place: &DatagramEndpoint, ledger: Ledger) -> Result<Box<dyn Input>, Error> {
    let port = listen(place)?;
    Ok(match place {
        DatagramEndpoint::Udp(options) if !options.sequenced => {
            Box::new(PlainInput::new(port, place.idle(), ledger))
        }
        place => Box::new(SequencedInput::new(port, place.silence(), ledger)),
    })
}

/// Opens a sender.
///
/// # Errors
/// Those of [`open_input`]; [`Error::Usage`] if the size does not fit a datagram, or a rate is to be found
/// without sequence numbers.
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

/// Opens both ports of a relay. The returned function forwards datagrams until the relay has ended. Errors
/// are those of [`open_input`].
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

/// Mechanism of an open relay.
enum OpenRelay {
    /// Programs in the kernel that redirect frames.
    Kernel(Redirect),
    /// Two ports, between which this process forwards datagrams.
    Ports(Box<dyn Port>, Box<dyn Port>, Translation),
}

/// Opens a relay inside the kernel if the user forces that engine, or if no engine is forced and the kernel
/// allows it. Otherwise returns no relay, with the kernel's refusal if there was one.
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

/// Returns the payload of a datagram in bytes: the size that the user gave, or as much as the path carries.
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
