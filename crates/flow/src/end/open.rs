//! Opening whatever the user named.

use super::made::{Nowhere, Random, Zeros};
use super::memory::{self, MemoryInput, MemoryOutput};
use super::reading::Reading;
use super::socket::{self, Gate};
use super::storage::{self, Manner};
use super::writing::Writing;
use super::{Sink, Source};
use crate::control::Control;
use crate::error::Error;
use crate::facts::Kind;
use crate::spec::{Endpoint, File, Listening};
use std::os::fd::OwnedFd;
use std::path::Path;

/// An end that is a stream both ways can be a source and a sink at once.
pub(crate) enum Opened<T> {
    /// One way.
    OneWay(T),
    /// A socket.
    BothWays(OwnedFd),
}

/// Opens where bytes come from.
pub(crate) fn source(endpoint: &Endpoint, control: &Control) -> Result<Opened<Source>, Error> {
    let name = endpoint.to_string();
    if let Some(socket) = stream(endpoint, &name, control)? {
        return Ok(Opened::BothWays(socket));
    }
    Ok(Opened::OneWay(match endpoint {
        Endpoint::File(file) => Source::Descriptor(storage::open_source(file, &name, control)?),
        Endpoint::Raw { path, offset, length } => {
            block_device(path, &name)?;
            let file = File { path: path.clone(), offset: Some(*offset), length: *length, ..File::default() };
            Source::Descriptor(storage::open_source(&file, &name, control)?)
        }
        Endpoint::Standard => Source::Descriptor(storage::standard_input()?),
        Endpoint::Zero => Source::Other(Box::new(Zeros::new())),
        Endpoint::Random { seed } => Source::Other(Box::new(Random::new(*seed)?)),
        Endpoint::Memory(end) => {
            Source::Other(Box::new(MemoryInput::new(memory::open(end, &name, control)?, &name)))
        }
        Endpoint::Null => return Err(Error::Usage("null: has nothing to give; name it as the sink".into())),
        _ => return Err(Error::Usage(format!("{name} cannot be a source"))),
    }))
}

/// Opens where bytes go.
pub(crate) fn sink(endpoint: &Endpoint, manner: &Manner, control: &Control) -> Result<Opened<Sink>, Error> {
    let name = endpoint.to_string();
    if let Some(socket) = stream(endpoint, &name, control)? {
        return Ok(Opened::BothWays(socket));
    }
    Ok(Opened::OneWay(match endpoint {
        Endpoint::File(file) => Sink::Descriptor(storage::open_sink(file, &name, manner, control)?),
        Endpoint::Raw { path, offset, length } => {
            block_device(path, &name)?;
            let file = File { path: path.clone(), offset: Some(*offset), length: *length, ..File::default() };
            Sink::Descriptor(storage::open_sink(&file, &name, manner, control)?)
        }
        Endpoint::Standard => Sink::Descriptor(storage::standard_output(manner)?),
        Endpoint::Null => Sink::Other(Box::new(Nowhere)),
        Endpoint::Memory(end) => {
            Sink::Other(Box::new(MemoryOutput::new(memory::open(end, &name, control)?, &name)))
        }
        Endpoint::Zero | Endpoint::Random { .. } => {
            return Err(Error::Usage(format!("{name} takes nothing; name it as the source, or write null:")));
        }
        _ => return Err(Error::Usage(format!("{name} cannot be a sink"))),
    }))
}

/// # Errors
/// That it is none.
fn block_device(path: &Path, name: &str) -> Result<(), Error> {
    match storage::standing(path, name)? {
        Some(stat) if storage::kind_of(&stat) == Kind::Block => Ok(()),
        Some(_) => Err(Error::Usage(format!("{name} is no block device: write file:{}", path.display()))),
        None => Err(Error::io(format!("open {name}"), rustix::io::Errno::NOENT)),
    }
}

/// A connected socket, if the endpoint is one.
fn stream(endpoint: &Endpoint, name: &str, control: &Control) -> Result<Option<OwnedFd>, Error> {
    match endpoint {
        Endpoint::Tcp(end) if end.listening == Listening::Connects => {
            socket::connect_tcp(end, name, control).map(Some)
        }
        Endpoint::Tcp(end) => Gate::tcp(end, name)?.accept(control).map(Some),
        Endpoint::Unix(end) if end.listening == Listening::Connects => {
            socket::connect_unix(end, name, control).map(Some)
        }
        Endpoint::Unix(end) => Gate::unix(end, name)?.accept(control).map(Some),
        _ => Ok(None),
    }
}

/// A socket, or a program's output, as it is read.
pub(crate) fn reading(descriptor: OwnedFd, kind: Kind, name: &str) -> Reading {
    Reading {
        descriptor,
        name: name.into(),
        kind,
        position: None,
        end: None,
        may_block: false,
        tells_position: false,
    }
}

/// A socket, or a program's input, as it is written.
pub(crate) fn writing(descriptor: OwnedFd, kind: Kind, name: &str, manner: &Manner) -> Writing {
    storage::written(descriptor, name, kind, None, manner)
}
