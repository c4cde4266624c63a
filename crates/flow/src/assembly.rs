//! Opens the ends, programs and stages of a flow, and connects them by transfers.
//!
//! Called by [`crate::run`].

use crate::control::Control;
use crate::datagram::Rate;
use crate::description::Description;
use crate::end::{
    self, Connected, DescriptorSink, DescriptorSource, OpenedStream, Role, Sink, SinkSettings, Source, Stream,
};
use crate::endpoint::PendingEnd;
use crate::error::Error;
use crate::facts::Kind;
use crate::part::{Part, PartEnd};
use crate::plan::Plan;
use crate::stage::{Bound, Chain, DeviceAccount, DeviceWork, FilterContext, Program};
use crate::transfer::Transfer;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Bytes that data from a source without a size may leave in the page cache of the sink, before older pages
/// are written back and dropped.
const STREAM_CACHE_BYTES: u64 = 256 << 20;

/// Derives from the flow and its plans how its sinks are opened and written.
pub(crate) fn sink_settings(flow: &Description, parts: &[Part<'_>], plans: &[Plan]) -> SinkSettings {
    let source = flow.source.kind.storage_path().and_then(|path| rustix::fs::stat(path).ok());
    let kind = source.as_ref().map(end::kind_of);
    let (is_file, has_size) = (kind == Some(Kind::File), kind.is_some_and(Kind::is_storage));
    let unchanged = parts.len() == 1 && parts[0].stages.iter().all(|stage| stage.keeps_data());
    let has_holes = plans[0].keeps_holes;
    let fixed = parts.last().and_then(|part| part.rate).map_or(Rate::Unlimited, Rate::Fixed);
    SinkSettings {
        bytes: bytes_to_come(flow, plans).filter(|_| unchanged),
        rate: if flow.options.finds_rate { Rate::Auto } else { fixed },
        source_mode: source.filter(|_| is_file && unchanged).map(|stat| stat.st_mode),
        sync: flow.options.sync,
        omitted: Arc::default(),
        skips_zeros: has_holes && unchanged && !parts[0].stages.is_empty(),
        write_behind_after: (!has_size).then_some(STREAM_CACHE_BYTES),
    }
}

/// Returns the number of bytes that the source gives and the limits let pass; `None` if the source has no
/// size.
fn bytes_to_come(flow: &Description, plans: &[Plan]) -> Option<u64> {
    let limits = flow.stages.iter().filter_map(|stage| match stage.bound() {
        Some(Bound::Bytes(bytes)) => Some(bytes),
        Some(Bound::BytesPerSecond(_)) | None => None,
    });
    limits.chain(plans[0].source_bytes).min().filter(|_| plans[0].source_bytes.is_some())
}

/// Returns the roles of the flow at its source and at its sink, for framed sockets.
fn roles(flow: &Description) -> (Role, Role) {
    let both = flow.moves_both_ways();
    (Role { sends: both, receives: true }, Role { sends: true, receives: both })
}

/// Opens the source and the sink. An end that waits for a peer is opened before one that connects, so that
/// nothing is connected before that peer is there. `accepted` is the source, if it is a connection that was
/// already accepted.
pub(crate) fn both_ends(
    flow: &Description,
    accepted: Option<Connected>,
    settings: &SinkSettings,
    control: &Control,
) -> Result<(OpenedStream<Source>, OpenedStream<Sink>), Error> {
    let (here, there) = roles(flow);
    let pending = |endpoint| PendingEnd::new(endpoint, flow.options.via, control);
    if let Some(connected) = accepted {
        let stream = Stream::handshake(connected, here, &flow.source.to_string(), control)?;
        let sink = pending(&flow.sink)?;
        return Ok((OpenedStream::BothWays(stream), sink.open_sink(there, settings)?));
    }
    let (source, sink) = (pending(&flow.source)?, pending(&flow.sink)?);
    if sink.waits_for_peer() && !source.waits_for_peer() {
        let sink = sink.open_sink(there, settings)?;
        return Ok((source.open_source(here)?, sink));
    }
    let mut source = source.open_source(here)?;
    let mut sink = sink.open_sink(there, settings)?;
    if let (
        true,
        OpenedStream::OneWay(Source::Descriptor(from)),
        OpenedStream::OneWay(Sink::Descriptor(to)),
    ) = (flow.resume, &mut source, &mut sink)
    {
        if from.end.is_none() {
            let name = &from.name;
            return Err(Error::Usage(format!(
                "--resume: {name} has no size, and cannot be asked whether it still has what was moved"
            )));
        }
        end::resume(from, to, control)?;
    }
    Ok((source, sink))
}

/// Connection of two neighbouring parts of a flow.
pub(crate) enum Joint {
    /// Program that the first part feeds, and whose output the second one reads.
    Program(Program),
    /// Device that the first part feeds, and whose output the second one takes.
    Device(Arc<dyn DeviceAccount>),
}

/// Inputs from which the transfers of a flow are built.
pub(crate) struct Assembly<'a> {
    pub(crate) flow: &'a Description,
    pub(crate) parts: &'a [Part<'a>],
    pub(crate) plans: &'a [Plan],
    pub(crate) settings: &'a SinkSettings,
    pub(crate) control: &'a Control,
}

impl<'a> Assembly<'a> {
    /// Starts the programs and devices and builds one transfer for each part, plus one for the reverse direction
    /// between two sockets.
    pub(crate) fn transfers(
        &self,
        (source, sink): (OpenedStream<Source>, OpenedStream<Sink>),
    ) -> Result<(Vec<Transfer<'a>>, Vec<Joint>), Error> {
        let back = self.reverse_transfer(&source, &sink)?;
        let (first, last) = (&self.plans[0].source, &self.plans[self.plans.len() - 1].sink);
        let mut source = match source {
            OpenedStream::OneWay(source) => source,
            OpenedStream::BothWays(stream) => stream.source(first),
        };
        let (mut transfers, mut joints) = (Vec::new(), Vec::new());
        for (part, plan) in self.parts.iter().zip(self.plans) {
            let (joint, feed, next) = match part.sink {
                PartEnd::Named(_) => break,
                PartEnd::Program(command) => {
                    let (program, feed, result) = Program::start(command)?;
                    let next = self.read(result, Kind::Pipe, &plan.sink);
                    (Joint::Program(program), self.write(feed, Kind::Pipe, &plan.sink), next)
                }
                PartEnd::Device(device) => {
                    let DeviceWork { intake, outlet, account } = device.start(self.flow.options.block)?;
                    (Joint::Device(account), Sink::Other(intake), Source::Other(outlet))
                }
            };
            joints.push(joint);
            let from = std::mem::replace(&mut source, next);
            transfers.push(self.transfer(part, plan, from, feed, transfers.is_empty())?);
        }
        let sink = match sink {
            OpenedStream::OneWay(sink) => sink,
            OpenedStream::BothWays(stream) => stream.sink(last, self.settings),
        };
        let at = transfers.len();
        let last = self.transfer(&self.parts[at], &self.plans[at], source, sink, at == 0)?;
        transfers.push(Transfer { ends_early: back.is_some(), ..last });
        transfers.extend(back);
        Ok((transfers, joints))
    }

    fn transfer(
        &self,
        part: &'a Part<'a>,
        plan: &'a Plan,
        source: Source,
        sink: Sink,
        is_progress: bool,
    ) -> Result<Transfer<'a>, Error> {
        let chain = self.chain(part)?;
        Ok(Transfer {
            part,
            plan,
            source,
            sink,
            chain,
            is_progress,
            is_reverse: false,
            closed_ledger: None,
            ends_early: false,
            compared_by: self.flow.options.prefer,
        })
    }

    fn read(&self, descriptor: OwnedFd, kind: Kind, name: &str) -> Source {
        Source::Descriptor(DescriptorSource::new(descriptor, kind, name))
    }

    fn write(&self, descriptor: OwnedFd, kind: Kind, name: &str) -> Sink {
        Sink::Descriptor(DescriptorSink::new(descriptor, name, kind, None, self.settings))
    }

    /// Builds the transfer in the reverse direction between two sockets; `None` if data moves one way only,
    /// as with stages that cannot be undone.
    fn reverse_transfer(
        &self,
        source: &OpenedStream<Source>,
        sink: &OpenedStream<Sink>,
    ) -> Result<Option<Transfer<'a>>, Error> {
        let (OpenedStream::BothWays(here), OpenedStream::BothWays(there), [part], [plan]) =
            (source, sink, self.parts, self.plans)
        else {
            return Ok(None);
        };
        if !self.flow.moves_both_ways() {
            return Ok(None);
        }
        Ok(Some(Transfer {
            part,
            plan,
            source: there.try_clone()?.source(&plan.sink),
            sink: here.try_clone()?.sink(&plan.source, self.settings),
            chain: Chain::default(),
            is_progress: false,
            is_reverse: true,
            closed_ledger: None,
            ends_early: true,
            compared_by: self.flow.options.prefer,
        }))
    }

    /// Builds the stages of a part.
    fn chain(&self, part: &Part<'_>) -> Result<Chain, Error> {
        // A program between the stages and the sink has its own time to pass units on.
        let detached;
        let settings = match part.sink {
            PartEnd::Named(_) => self.settings,
            _ => {
                detached = SinkSettings { omitted: Arc::default(), ..self.settings.clone() };
                &detached
            }
        };
        let context = FilterContext { settings, via: self.flow.options.via, control: self.control };
        part.stages.iter().map(|stage| stage.filter(&context)).collect::<Result<_, _>>().map(Chain)
    }
}
