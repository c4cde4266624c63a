//! `raw:DEVICE`: a block device, or a range of one.

use super::file::{File, LENGTH, OFFSET};
use super::{Endpoint, EndpointKind, EndpointType, OpenContext};
use crate::end::{OpenedStream, Sink, SinkSettings, Source, kind_of, stat_endpoint};
use crate::error::Error;
use crate::facts::{End, Kind};
use bywash_options::{Escaped, Row, Words, option};
use std::fmt;
use std::path::{Path, PathBuf};

/// A block device as an end of a flow.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Raw {
    /// Path of the block device.
    path: PathBuf,
    /// Offset of the first byte.
    offset: u64,
    /// Length in bytes; `None` for the rest of the device.
    length: Option<u64>,
}

pub(super) static KIND: EndpointKind = EndpointKind {
    row: Row {
        name: "raw",
        address: "DEVICE",
        sentence: "a block device that is neither mounted nor otherwise in use",
        options: &[OFFSET, LENGTH],
    },
    parse,
};

fn parse(words: &mut Words<'_>) -> Result<Endpoint, Error> {
    let (path, offset) = (words.path()?, words.size("offset")?.unwrap_or(0));
    let length = words.size("length")?;
    words.check_all_taken()?;
    Ok(Endpoint::new(Raw { path, offset, length }))
}

impl Raw {
    fn file(&self) -> File {
        File::from_device_range(&self.path, self.offset, self.length)
    }

    /// Checks that the path leads to a block device.
    ///
    /// # Errors
    /// [`Error::Usage`] if it is something else; [`Error::Io`] if it does not exist or cannot be inspected.
    fn check(&self, name: &str) -> Result<(), Error> {
        match stat_endpoint(&self.path, name)? {
            Some(stat) if kind_of(&stat) == Kind::Block => Ok(()),
            Some(_) => {
                Err(Error::Usage(format!("{name} is no block device: write file:{}", self.path.display())))
            }
            None => Err(Error::io(format!("open {name}"), rustix::io::Errno::NOENT)),
        }
    }
}

impl EndpointType for Raw {
    fn inspect_source(&self) -> Result<End, Error> {
        self.file().inspect_source_as(&self.to_string())
    }

    fn inspect_sink(&self) -> Result<End, Error> {
        self.file().inspect_sink_as(&self.to_string())
    }

    fn waits_for_peer(&self) -> bool {
        false
    }

    fn open_source(&self, context: &OpenContext<'_>) -> Result<OpenedStream<Source>, Error> {
        self.check(context.name)?;
        self.file().open_source(context)
    }

    fn open_sink(
        &self,
        context: &OpenContext<'_>,
        settings: &SinkSettings,
    ) -> Result<OpenedStream<Sink>, Error> {
        self.check(context.name)?;
        self.file().open_sink(context, settings)
    }

    fn check_shared_sink(&self) -> Result<(), Error> {
        Err(Error::Usage(format!("{self} cannot be the sink of several connections at once")))
    }

    fn storage_path(&self) -> Option<&Path> {
        Some(&self.path)
    }
}

impl fmt::Display for Raw {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "raw:{}", Escaped(&self.path.to_string_lossy()))?;
        option(out, "offset", Some(self.offset).filter(|offset| *offset > 0))?;
        option(out, "length", self.length)
    }
}
