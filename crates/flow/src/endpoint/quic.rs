//! `udp:HOST:PORT,reliable`, `udp-listen:[ADDRESS:]PORT,reliable`: a QUIC stream. The options are among those
//! of [`super::udp`], which parses them.

use super::host::Host;
use super::{EndpointType, OpenContext};
use crate::block_io::{Input, Output};
use crate::congestion::Congestion;
use crate::end::{OpenedStream, Sink, SinkSettings, Source};
use crate::error::Error;
use crate::facts::{End, Kind};
use bywash_options::{flag, option};
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// A QUIC stream as an end of a flow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Quic {
    /// Host name or address; empty for a listener at all addresses of this machine.
    pub(super) host: String,
    /// UDP port number; 0 lets the kernel choose the port of a listener.
    pub(super) port: u16,
    /// True for the end that waits for its peer.
    pub(super) listen: bool,
    /// SHA-256 fingerprint of the peer's certificate, 64 lower-case hexadecimal digits.
    pub(super) pin: Option<String>,
    /// True if any peer is accepted, without a check of its certificate.
    pub(super) insecure: bool,
    /// Path at which this end keeps its certificate.
    pub(super) identity: Option<PathBuf>,
    /// Greatest time that the peer may be silent; `None` for a default.
    pub(super) timeout: Option<Duration>,
    /// Congestion control of the sender; `None` for a default.
    pub(super) congestion: Option<Congestion>,
}

impl Quic {
    /// Returns true if the user gave an option that only QUIC streams have.
    pub(super) fn has_options(&self) -> bool {
        self.pin.is_some()
            || self.insecure
            || self.identity.is_some()
            || self.timeout.is_some()
            || self.congestion.is_some()
    }
}

#[cfg(feature = "reliable")]
impl Quic {
    fn options(&self) -> Result<crate::reliable::ReliableOptions, Error> {
        Ok(crate::reliable::ReliableOptions {
            host: self.host.clone(),
            port: self.port,
            listen: self.listen,
            pin: self.pin.as_deref().map(str::parse).transpose()?,
            insecure: self.insecure,
            identity: self.identity.clone(),
            timeout: self.timeout.unwrap_or(crate::reliable::PEER_TIMEOUT),
            congestion: self.congestion.unwrap_or_default(),
        })
    }

    fn input(&self, context: &OpenContext<'_>) -> Result<Box<dyn Input>, Error> {
        let control = context.control;
        let notify = &mut |notice: crate::reliable::Notice| control.notify(notice.to_string());
        crate::reliable::open_input(&self.options()?, control, notify)
    }

    fn output(&self, context: &OpenContext<'_>) -> Result<Box<dyn Output>, Error> {
        let control = context.control;
        let notify = &mut |notice: crate::reliable::Notice| control.notify(notice.to_string());
        crate::reliable::open_output(&self.options()?, control, notify)
    }
}

#[cfg(not(feature = "reliable"))]
impl Quic {
    fn input(&self, _: &OpenContext<'_>) -> Result<Box<dyn Input>, Error> {
        Err(self.not_built())
    }

    fn output(&self, _: &OpenContext<'_>) -> Result<Box<dyn Output>, Error> {
        Err(self.not_built())
    }

    fn not_built(&self) -> Error {
        Error::Usage(format!(
            "{self}: this was built without QUIC; build bywash-flow with the feature 'reliable'"
        ))
    }
}

impl EndpointType for Quic {
    fn inspect_source(&self) -> Result<End, Error> {
        Ok(End::new(self.to_string(), Kind::Quic))
    }

    fn inspect_sink(&self) -> Result<End, Error> {
        self.inspect_source()
    }

    fn waits_for_peer(&self) -> bool {
        self.listen
    }

    fn open_source(&self, context: &OpenContext<'_>) -> Result<OpenedStream<Source>, Error> {
        Ok(OpenedStream::OneWay(Source::Other(self.input(context)?)))
    }

    fn open_sink(&self, context: &OpenContext<'_>, _: &SinkSettings) -> Result<OpenedStream<Sink>, Error> {
        Ok(OpenedStream::OneWay(Sink::Other(self.output(context)?)))
    }

    fn check_shared_sink(&self) -> Result<(), Error> {
        Err(Error::Usage(format!("{self} cannot be the sink of several connections at once")))
    }
}

impl fmt::Display for Quic {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = if self.listen { "udp-listen" } else { "udp" };
        write!(out, "{name}:{}:{}", Host(&self.host), self.port)?;
        flag(out, "reliable", true)?;
        option(out, "pin", self.pin.as_ref())?;
        flag(out, "insecure", self.insecure)?;
        option(out, "identity", self.identity.as_ref().map(|path| path.display()))?;
        option(out, "timeout", self.timeout.map(|timeout| timeout.as_secs_f64()))?;
        option(out, "congestion", self.congestion.filter(|congestion| *congestion != Congestion::default()))
    }
}
