//! `zero:`: an endless source of zeros.

use super::{Endpoint, EndpointKind, EndpointType, OpenContext};
use crate::block_io::Input;
use crate::control::Control;
use crate::end::{OpenedStream, Sink, SinkSettings, Source};
use crate::error::Error;
use crate::facts::{End, Kind};
use bywash_options::Row;
use std::fmt;

/// The source of zeros.
#[derive(Clone, Copy, Debug)]
struct Zero;

pub(super) static KIND: EndpointKind = EndpointKind {
    row: Row { name: "zero", address: "", sentence: "an endless source of zeros", options: &[] },
    parse: |words| {
        words.check_all_taken()?;
        words.no_address()?;
        Ok(Endpoint::new(Zero))
    },
};

impl EndpointType for Zero {
    fn inspect_source(&self) -> Result<End, Error> {
        Ok(End::new(self.to_string(), Kind::Generated))
    }

    fn inspect_sink(&self) -> Result<End, Error> {
        self.inspect_source()
    }

    fn waits_for_peer(&self) -> bool {
        false
    }

    fn open_source(&self, _: &OpenContext<'_>) -> Result<OpenedStream<Source>, Error> {
        Ok(OpenedStream::OneWay(Source::Other(Box::new(Zeros::new()))))
    }

    fn open_sink(&self, _: &OpenContext<'_>, _: &SinkSettings) -> Result<OpenedStream<Sink>, Error> {
        Err(source_only(self))
    }

    fn check_shared_sink(&self) -> Result<(), Error> {
        Err(source_only(self))
    }
}

/// Creates the error for a generator of bytes in place of a sink.
pub(super) fn source_only(endpoint: &dyn EndpointType) -> Error {
    Error::Usage(format!("{endpoint} takes nothing; name it as the source, or write null:"))
}

impl fmt::Display for Zero {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("zero:")
    }
}

/// Source of endless zeros; the field is a buffer of zeros, as large as the largest block so far.
struct Zeros(Vec<u8>);

impl Zeros {
    fn new() -> Zeros {
        Zeros(Vec::new())
    }
}

impl Input for Zeros {
    fn has_memory(&self) -> bool {
        true
    }

    fn next<'a>(&'a mut self, room: &'a mut [u8], _: &Control) -> Result<&'a [u8], Error> {
        self.0.resize(room.len().max(self.0.len()), 0);
        Ok(&self.0[..room.len()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_fill_whatever_there_is() {
        let control = Control::new().unwrap();
        let mut zeros = Zeros::new();
        assert_eq!(zeros.next(&mut [1; 5], &control).unwrap(), [0; 5]);
        assert_eq!(zeros.next(&mut [1; 3], &control).unwrap(), [0; 3]);
    }
}
