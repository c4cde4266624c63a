//! An accelerator at work in a flow: fills its buffers, and passes its output on.

use super::failed;
use crate::control::Control;
use crate::error::Error;
use crate::hash::HashAlgorithm;
use crate::report::{Acceleration, Bottleneck, Hash};
use crate::stage::filter::{Demand, Emit, Filled, Filter};
use bywash_accelerator::{Output, Session};
use std::time::{Duration, Instant};

/// Time between two looks at whether the flow is cancelled, while it waits for the device.
const LOOK: Duration = Duration::from_millis(20);

/// The stage at work.
pub(super) struct Work {
    session: Box<dyn Session>,
    device: String,
    stage: String,
    /// True if the device's last output is a digest and no data.
    gives_digest: bool,
    digest: Option<String>,
    /// Bytes of output that were passed on.
    passed: u64,
    /// Bytes that this stage copied into the device's memory.
    copied: u64,
    times: Times,
    /// Time at which the flow got memory to fill; `None` while it has none.
    filling: Option<Instant>,
}

/// Time that the flow's thread spent with each activity.
#[derive(Clone, Copy, Debug, Default)]
struct Times {
    reading: Duration,
    writing: Duration,
    waiting: Duration,
}

/// Result of a look for output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Taken {
    Some(Demand),
    None,
    End,
}

impl Work {
    pub(super) fn new(session: Box<dyn Session>, device: String, stage: String, gives_digest: bool) -> Work {
        Work {
            session,
            device,
            stage,
            gives_digest,
            digest: None,
            passed: 0,
            copied: 0,
            times: Times::default(),
            filling: None,
        }
    }

    /// Takes the next output, waiting at most `limit`, and passes it on.
    fn take(&mut self, limit: Duration, next: &mut Emit<'_>) -> Result<Taken, Error> {
        let begun = Instant::now();
        let input = self.session.statistics().input_bytes;
        let output = self.session.output(limit).map_err(failed)?;
        let there = Instant::now();
        self.times.waiting += there - begun;
        let block = match output {
            Output::None => return Ok(Taken::None),
            Output::End => return Ok(Taken::End),
            Output::Block(block) => block,
        };
        if self.gives_digest && self.passed == input {
            self.digest = Some(block.iter().map(|byte| format!("{byte:02x}")).collect());
            return Ok(Taken::Some(Demand::More));
        }
        self.passed += block.len() as u64;
        let demand = next(block)?;
        self.times.writing += there.elapsed();
        Ok(Taken::Some(demand))
    }

    /// Passes on all output that is finished.
    fn drain(&mut self, next: &mut Emit<'_>) -> Result<Demand, Error> {
        loop {
            match self.take(Duration::ZERO, next)? {
                Taken::Some(Demand::More) => {}
                Taken::Some(Demand::Enough) => return Ok(Demand::Enough),
                Taken::None | Taken::End => return Ok(Demand::More),
            }
        }
    }

    /// Waits until a buffer of the device can be filled.
    fn wait_for_memory(&mut self, control: &Control, next: &mut Emit<'_>) -> Result<(), Error> {
        while self.session.input().map_err(failed)?.is_none() {
            control.check()?;
            self.take(LOOK, next)?;
        }
        Ok(())
    }
}

impl Filled for Work {
    fn memory(&mut self, control: &Control, next: &mut Emit<'_>) -> Result<&mut [u8], Error> {
        self.wait_for_memory(control, next)?;
        self.filling = Some(Instant::now());
        let memory = self.session.input().map_err(failed)?;
        // Nothing was submitted since there was some.
        memory.ok_or_else(|| Error::Data("the device has taken back its memory".into()))
    }

    fn pass_filled(&mut self, bytes: usize, _: &Control, next: &mut Emit<'_>) -> Result<Demand, Error> {
        self.times.reading += self.filling.take().map_or(Duration::ZERO, |since| since.elapsed());
        self.session.submit(bytes).map_err(failed)?;
        self.drain(next)
    }
}

impl Filter for Work {
    fn pass(&mut self, mut block: &[u8], control: &Control, next: &mut Emit<'_>) -> Result<Demand, Error> {
        while !block.is_empty() {
            let memory = self.memory(control, next)?;
            let bytes = block.len().min(memory.len());
            memory[..bytes].copy_from_slice(&block[..bytes]);
            self.copied += bytes as u64;
            if self.pass_filled(bytes, control, next)? == Demand::Enough {
                return Ok(Demand::Enough);
            }
            block = &block[bytes..];
        }
        Ok(Demand::More)
    }

    fn finish(&mut self, control: &Control, next: &mut Emit<'_>) -> Result<(), Error> {
        self.session.finish().map_err(failed)?;
        loop {
            control.check()?;
            if let Taken::End | Taken::Some(Demand::Enough) = self.take(LOOK, next)? {
                return Ok(());
            }
        }
    }

    fn hash(&self) -> Option<Hash> {
        self.digest.clone().map(|digits| Hash { algorithm: HashAlgorithm::Sha256, digits })
    }

    fn acceleration(&self) -> Option<Acceleration> {
        let (done, times) = (self.session.statistics(), self.times);
        let activities = [
            (times.reading, Bottleneck::Reading),
            (times.waiting, Bottleneck::Computing),
            (times.writing, Bottleneck::Writing),
        ];
        let longest =
            activities.iter().max_by_key(|(time, _)| *time).map_or(Bottleneck::Computing, |found| found.1);
        Some(Acceleration {
            device: self.device.clone(),
            stage: self.stage.clone(),
            input_bytes: done.input_bytes,
            output_bytes: self.passed,
            copied_bytes: self.copied + done.copied_bytes,
            blocks: done.blocks,
            in_flight_max: done.in_flight_max,
            computing_seconds: done.busy.as_secs_f64(),
            overlapped_seconds: done.busy.saturating_sub(times.waiting).as_secs_f64(),
            reading_seconds: times.reading.as_secs_f64(),
            writing_seconds: times.writing.as_secs_f64(),
            waiting_seconds: times.waiting.as_secs_f64(),
            bound: longest,
        })
    }

    fn filled(&mut self) -> Option<&mut dyn Filled> {
        Some(self)
    }
}
