//! `null:`: a sink that discards the data.

use super::{Endpoint, EndpointKind, EndpointType, OpenContext};
use crate::end::{self, OpenedStream, Sink, SinkSettings, Source};
use crate::error::Error;
use crate::facts::{End, Kind};
use bywash_options::Row;
use std::fmt;

/// The sink that discards the data.
#[derive(Clone, Copy, Debug)]
struct Null;

pub(super) static KIND: EndpointKind = EndpointKind {
    row: Row { name: "null", address: "", sentence: "a sink that discards the data", options: &[] },
    parse: |words| {
        words.check_all_taken()?;
        words.no_address()?;
        Ok(Endpoint::new(Null))
    },
};

impl EndpointType for Null {
    fn inspect_source(&self) -> Result<End, Error> {
        self.inspect_sink()
    }

    fn inspect_sink(&self) -> Result<End, Error> {
        Ok(End::new(self.to_string(), Kind::Null))
    }

    fn waits_for_peer(&self) -> bool {
        false
    }

    fn open_source(&self, _: &OpenContext<'_>) -> Result<OpenedStream<Source>, Error> {
        Err(Error::Usage("null: has nothing to give; name it as the sink".into()))
    }

    fn open_sink(&self, _: &OpenContext<'_>, _: &SinkSettings) -> Result<OpenedStream<Sink>, Error> {
        Ok(OpenedStream::OneWay(Sink::Other(Box::new(end::Null))))
    }

    fn check_shared_sink(&self) -> Result<(), Error> {
        Ok(())
    }
}

impl fmt::Display for Null {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("null:")
    }
}
