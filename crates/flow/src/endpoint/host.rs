//! `HOST:PORT`, as addresses of TCP and UDP endpoints have it.

use crate::error::Error;
use bywash_options::{Escaped, Words};
use std::fmt;

/// A host that displays in the form that precedes a port: an IPv6 address in brackets.
pub(super) struct Host<'a>(pub(super) &'a str);

impl fmt::Display for Host<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.contains(':') { write!(out, "[{}]", self.0) } else { Escaped(self.0).fmt(out) }
    }
}

/// Splits `HOST:PORT`; an IPv6 address must be in brackets, and a listener may leave the host out.
///
/// # Errors
/// [`Error::Usage`] if the host or port is missing or malformed.
pub(super) fn host_and_port(words: &Words<'_>, listen: bool) -> Result<(String, u16), Error> {
    let example = if listen {
        "ADDRESS:PORT, as in 127.0.0.1:9000, [::1]:9000 or :9000"
    } else {
        "HOST:PORT, as in example.org:9000 or [::1]:9000"
    };
    let address = words.address()?;
    let (host, port) = address
        .rsplit_once(':')
        .or_else(|| listen.then_some(("", address)))
        .ok_or_else(|| words.error(format!("a port is missing: give {example}")))?;
    let port = port.parse().map_err(|_| words.error(format!("'{port}' is no port: give {example}")))?;
    let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    match inner.unwrap_or(host) {
        "" if !listen => Err(words.error(format!("a host is missing: give {example}")).into()),
        _ if inner.is_none() && host.contains(':') => {
            Err(words.error(format!("an address of IPv6 goes in brackets: give {example}")).into())
        }
        host => Ok((host.to_owned(), port)),
    }
}
