//! `file:PATH`, or a path alone: a regular file, a FIFO or a device.
//!
//! - [`inspect`]: properties of files and block devices, without changing anything
//! - [`open`]: opens them

mod inspect;
mod open;

use super::{Endpoint, EndpointKind, EndpointType, OpenContext};
use crate::end::{OpenedStream, Sink, SinkSettings, Source};
use crate::error::Error;
use crate::facts::End;
use bywash_options::{Escaped, OptionRow, Row, Side, Value, Words, flag, option};
use std::fmt;
use std::path::{Path, PathBuf};

pub(super) use inspect::{file_system, opened_source};

/// A file as an end of a flow, with its options.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct File {
    /// Path of the file.
    pub(crate) path: PathBuf,
    /// Source: offset of the first byte. Sink: offset at which the data is written into an existing file,
    /// whose other bytes stay.
    pub(crate) offset: Option<u64>,
    /// Source: number of bytes to read; `None` for all up to the end. Sink that is a block device: greatest
    /// number of bytes to write.
    pub(crate) length: Option<u64>,
    /// Sink: true if the data is appended to the file.
    pub(crate) append: bool,
    /// Sink: true if an existing file is overwritten from its beginning, instead of being replaced by a new
    /// file at the end of the flow.
    pub(crate) in_place: bool,
    /// Sink: true if the flow fails when the file exists already.
    pub(crate) exclusive: bool,
    /// Sink: true if holes of the source are written as zeros.
    pub(crate) dense: bool,
    /// True if the data is dropped from the page cache while it is moved.
    pub(crate) nocache: bool,
    /// Sink: permissions of a new file; `None` for those of the file that it replaces, or else of the source.
    pub(crate) mode: Option<u32>,
}

pub(super) const OFFSET: OptionRow = OptionRow::new(
    "offset",
    Value::Size,
    "source: offset of the first byte; sink: offset in an existing file or device, whose other bytes stay",
);
pub(super) const LENGTH: OptionRow = OptionRow::new(
    "length",
    Value::Size,
    "source: number of bytes; sink that is a block device: greatest number of bytes",
);

pub(super) static KIND: EndpointKind = EndpointKind {
    row: Row {
        name: "file",
        address: "PATH",
        sentence: "a file, FIFO or device, as is a path alone; a new file takes its name when it is complete",
        options: &[
            OFFSET,
            LENGTH,
            OptionRow::flag("append", "data is appended to the file").only(Side::Sink),
            OptionRow::flag("in-place", "an existing file is overwritten and truncated").only(Side::Sink),
            OptionRow::flag("excl", "the file must not exist").only(Side::Sink),
            OptionRow::flag("dense", "holes of the source become zeros").only(Side::Sink),
            OptionRow::flag("nocache", "the data leaves the page cache behind what was moved"),
            OptionRow::new("mode", Value::Text("OCTAL"), "permissions of a new file").only(Side::Sink),
        ],
    },
    parse,
};

fn parse(words: &mut Words<'_>) -> Result<Endpoint, Error> {
    let file = File {
        path: words.path()?,
        offset: words.size("offset")?,
        length: words.size("length")?,
        append: words.flag("append")?,
        in_place: words.flag("in-place")?,
        exclusive: words.flag("excl")?,
        dense: words.flag("dense")?,
        nocache: words.flag("nocache")?,
        mode: words.value("mode", mode)?,
    };
    words.check_all_taken()?;
    let given = [file.append, file.in_place, file.exclusive].iter().filter(|given| **given).count();
    match given > 1 || (file.offset.is_some() && (file.append || file.exclusive)) {
        true => Err(words
            .error("append, in-place, excl and offset exclude each other (in-place and offset do not)")
            .into()),
        false => Ok(Endpoint::new(file)),
    }
}

fn mode(text: &str) -> Result<u32, String> {
    match u32::from_str_radix(text, 8) {
        Ok(mode) if mode <= 0o7777 => Ok(mode),
        _ => Err(format!("'{text}' is no mode: give octal digits, as in 0644")),
    }
}

impl File {
    /// Creates the description of a range of a block device, which is opened like a file.
    pub(super) fn from_device_range(path: &Path, offset: u64, length: Option<u64>) -> File {
        File { path: path.into(), offset: Some(offset), length, ..File::default() }
    }

    /// Returns true if the sink is a new file, which takes its name when the flow has succeeded.
    pub(crate) fn is_new(&self) -> bool {
        !(self.append || self.in_place || self.offset.is_some())
    }

    /// Like [`EndpointType::inspect_source`], for an endpoint whose text is `name`.
    pub(super) fn inspect_source_as(&self, name: &str) -> Result<End, Error> {
        inspect::source(self, name)
    }

    /// Like [`EndpointType::inspect_sink`], for an endpoint whose text is `name`.
    pub(super) fn inspect_sink_as(&self, name: &str) -> Result<End, Error> {
        inspect::sink(self, name)
    }
}

impl EndpointType for File {
    fn inspect_source(&self) -> Result<End, Error> {
        self.inspect_source_as(&self.to_string())
    }

    fn inspect_sink(&self) -> Result<End, Error> {
        self.inspect_sink_as(&self.to_string())
    }

    fn waits_for_peer(&self) -> bool {
        false
    }

    fn open_source(&self, context: &OpenContext<'_>) -> Result<OpenedStream<Source>, Error> {
        let source = open::source(self, context.name, context.control)?;
        Ok(OpenedStream::OneWay(Source::Descriptor(source)))
    }

    fn open_sink(
        &self,
        context: &OpenContext<'_>,
        settings: &SinkSettings,
    ) -> Result<OpenedStream<Sink>, Error> {
        let sink = open::sink(self, context.name, settings, context.control)?;
        Ok(OpenedStream::OneWay(Sink::Descriptor(sink)))
    }

    fn check_shared_sink(&self) -> Result<(), Error> {
        match self.append {
            true => Ok(()),
            false => Err(Error::Usage(format!(
                "every connection would write {self} anew: append to it, or do not fork"
            ))),
        }
    }

    fn file(&self) -> Option<&File> {
        Some(self)
    }

    fn storage_path(&self) -> Option<&Path> {
        Some(&self.path)
    }
}

impl fmt::Display for File {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "file:{}", Escaped(&self.path.to_string_lossy()))?;
        option(out, "offset", self.offset)?;
        option(out, "length", self.length)?;
        flag(out, "append", self.append)?;
        flag(out, "in-place", self.in_place)?;
        flag(out, "excl", self.exclusive)?;
        flag(out, "dense", self.dense)?;
        flag(out, "nocache", self.nocache)?;
        option(out, "mode", self.mode.map(|mode| format!("{mode:04o}")))
    }
}
