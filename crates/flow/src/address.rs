//! Host name resolution for TCP, UDP and QUIC.
//!
//! Invariant: a numeric address is parsed without a lookup. A name is looked up in a thread of its own,
//! because the resolver of the C library cannot be interrupted, and for at most [`LOOKUP_TIMEOUT`]. Called by
//! the ends of a flow when they are opened.

use crate::control::Control;
use crate::error::Error;
use rustix::event::PollFlags;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::os::fd::AsFd;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Timeout of a name lookup.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(20);

/// Returns the addresses of `host` in the order in which the caller should try them (RFC 6724, as the C
/// library sorts them). An empty host means all addresses of this machine: first the unspecified address of
/// IPv6, then that of IPv4. `name` is the endpoint's text, for messages.
///
/// # Errors
/// [`Error::Io`] if the name has no address, the lookup fails, it takes longer than [`LOOKUP_TIMEOUT`], or no
/// thread can be started; [`Error::Cancelled`] if the flow is cancelled.
pub(crate) fn addresses(
    host: &str,
    port: u16,
    name: &str,
    control: &Control,
) -> Result<Vec<SocketAddr>, Error> {
    if host.is_empty() {
        return Ok(vec![(Ipv6Addr::UNSPECIFIED, port).into(), (Ipv4Addr::UNSPECIFIED, port).into()]);
    }
    let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    if let Ok(address) = inner.parse::<IpAddr>() {
        return Ok(vec![(address, port).into()]);
    }
    let failed = |error: io::Error| Error::io(format!("find the address of {name}"), error);
    let found = look_up(inner, port, control)?.map_err(failed)?;
    match found.is_empty() {
        true => Err(failed(io::Error::new(io::ErrorKind::NotFound, "the name has no address"))),
        false => Ok(found),
    }
}

/// Splits `HOST:PORT` at the last colon. Returns `None` if there is no colon or the port is not a number up
/// to 65535.
pub(crate) fn split(address: &str) -> Option<(&str, u16)> {
    let (host, port) = address.rsplit_once(':')?;
    Some((host, port.parse().ok()?))
}

/// Looks `host` up in another thread. If the caller stops waiting, that thread ends by itself after the
/// lookup.
fn look_up(host: &str, port: u16, control: &Control) -> Result<io::Result<Vec<SocketAddr>>, Error> {
    // This control's end event signals that the lookup has finished.
    let asked = Arc::new(Control::new()?);
    let answer = Arc::new(OnceLock::new());
    let (theirs, place, host) = (asked.clone(), answer.clone(), host.to_owned());
    std::thread::Builder::new()
        .name("look up".into())
        .spawn(move || {
            // Only this thread sets the result, so that `set` cannot fail.
            let _ = place.set((host.as_str(), port).to_socket_addrs().map(Iterator::collect));
            theirs.set_ended();
        })
        .map_err(|error| Error::io("start a thread", error))?;
    let until = Instant::now() + LOOKUP_TIMEOUT;
    if !control.wait(asked.over().as_fd(), PollFlags::IN, Some(until))? {
        let reason = format!("nobody who knows names answered for {} s", LOOKUP_TIMEOUT.as_secs());
        return Ok(Err(io::Error::new(io::ErrorKind::TimedOut, reason)));
    }
    Ok(match answer.get() {
        Some(Ok(found)) => Ok(Vec::clone(found)),
        // A resolver error cannot be cloned out of the shared cell, so its kind and text are copied.
        Some(Err(error)) => Err(io::Error::new(error.kind(), error.to_string())),
        None => Err(io::ErrorKind::NotFound.into()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_names_and_nothing() {
        let control = Control::new().unwrap();
        let of = |host| addresses(host, 7, "x", &control);
        assert_eq!(of("127.0.0.1").unwrap(), [SocketAddr::from(([127, 0, 0, 1], 7))]);
        for host in ["::1", "[::1]"] {
            assert_eq!(of(host).unwrap(), [SocketAddr::from((Ipv6Addr::LOCALHOST, 7))], "{host}");
        }
        assert_eq!(of("").unwrap().len(), 2);
        assert!(of("localhost").unwrap().iter().all(|address| address.ip().is_loopback()));
        let nobody = of("no-such-host.invalid").unwrap_err().to_string();
        assert!(nobody.starts_with("cannot find the address of x"), "{nobody}");
    }

    #[test]
    fn who_asks_for_a_name_can_be_cancelled() {
        let control = Control::new().unwrap();
        control.cancel();
        assert!(matches!(addresses("localhost", 7, "x", &control), Err(Error::Cancelled)));
    }

    #[test]
    fn addresses_in_two_parts() {
        assert_eq!(split("[::1]:80"), Some(("[::1]", 80)));
        assert_eq!(split("host:80"), Some(("host", 80)));
        assert_eq!((split("host"), split("host:x")), (None, None));
    }
}
