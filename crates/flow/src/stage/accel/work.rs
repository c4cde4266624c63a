//! An accelerator at work in a flow: its memory as an end that is filled, and as an end that is emptied.
//!
//! Two transfers use the two ends, each in a thread of its own, so that reading, computing and writing overlap.

use super::failed;
use crate::block_io::{Filled, Input, Output};
use crate::control::Control;
use crate::error::Error;
use crate::hash::HashAlgorithm;
use crate::report::{Acceleration, Bottleneck, Hash};
use crate::stage::{DeviceAccount, DeviceWork};
use bywash_accelerator::{Output as Next, Session, SessionInput, SessionOutput, Statistics};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Time between two looks at whether the flow is cancelled, while it waits for the device.
const LOOK: Duration = Duration::from_millis(20);

/// Counters of both ends.
#[derive(Debug)]
struct Account {
    device: String,
    stage: String,
    counters: Mutex<Counters>,
}

#[derive(Clone, Debug, Default)]
struct Counters {
    reading: Duration,
    writing: Duration,
    /// Times of the first block's begin and of the last one's end.
    begin: Option<Instant>,
    end: Option<Instant>,
    /// Bytes that the flow copied into the device's memory.
    copied: u64,
    /// Bytes of output that were passed on.
    passed: u64,
    digest: Option<String>,
    session: Statistics,
}

/// End that is fed.
struct Intake {
    session: Box<dyn SessionInput>,
    account: Arc<Account>,
    /// Time at which the flow got memory to fill; `None` while it has none.
    filling: Option<Instant>,
}

/// End that gives output.
struct Outlet {
    session: Box<dyn SessionOutput>,
    account: Arc<Account>,
    /// True if the device's last output is a digest and no data.
    gives_digest: bool,
    /// Time at which the flow got a block to write; `None` while it has none.
    writing: Option<Instant>,
}

/// Makes the two ends of a session.
pub(super) fn ends(session: Session, device: String, stage: String, gives_digest: bool) -> DeviceWork {
    let account = Arc::new(Account { device, stage, counters: Mutex::default() });
    let intake = Intake { session: session.input, account: Arc::clone(&account), filling: None };
    let outlet =
        Outlet { session: session.output, account: Arc::clone(&account), gives_digest, writing: None };
    DeviceWork { intake: Box::new(intake), outlet: Box::new(outlet), account }
}

impl Account {
    fn counters(&self) -> MutexGuard<'_, Counters> {
        self.counters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Filled for Intake {
    fn memory(&mut self, control: &Control) -> Result<&mut [u8], Error> {
        while self.session.buffer(LOOK).map_err(failed)?.is_none() {
            control.check()?;
        }
        let now = *self.filling.insert(Instant::now());
        self.account.counters().begin.get_or_insert(now);
        // The buffer that was free is so until it is submitted.
        let memory = self.session.buffer(Duration::ZERO).map_err(failed)?;
        memory.ok_or_else(|| Error::Data("the device has taken back its memory".into()))
    }

    fn put_filled(&mut self, bytes: usize) -> Result<(), Error> {
        let time = self.filling.take().map_or(Duration::ZERO, |since| since.elapsed());
        self.account.counters().reading += time;
        self.session.submit(bytes).map_err(failed)
    }
}

impl Output for Intake {
    fn put(&mut self, mut block: &[u8], control: &Control) -> Result<(), Error> {
        while !block.is_empty() {
            let memory = self.memory(control)?;
            let bytes = block.len().min(memory.len());
            memory[..bytes].copy_from_slice(&block[..bytes]);
            self.account.counters().copied += bytes as u64;
            self.put_filled(bytes)?;
            block = &block[bytes..];
        }
        Ok(())
    }

    fn finish(&mut self, _: &Control) -> Result<(), Error> {
        self.session.finish().map_err(failed)
    }

    fn filled(&mut self) -> Option<&mut dyn Filled> {
        Some(self)
    }
}

impl Outlet {
    /// Counts the block that was written, if there was one.
    fn record_written(&mut self) {
        if let Some(since) = self.writing.take() {
            let mut counters = self.account.counters();
            counters.writing += since.elapsed();
            counters.end = Some(Instant::now());
        }
    }

    /// Goes on to the next output, waiting for it, and returns false at the end.
    fn advance(&mut self, control: &Control) -> Result<bool, Error> {
        loop {
            match self.session.next(LOOK).map_err(failed)? {
                Next::Block => return Ok(true),
                Next::End => return Ok(false),
                Next::None => control.check()?,
            }
        }
    }
}

impl Input for Outlet {
    fn next<'a>(&'a mut self, _: &'a mut [u8], control: &Control) -> Result<&'a [u8], Error> {
        self.record_written();
        if !self.advance(control)? {
            return Ok(&[]);
        }
        let bytes = self.session.block().len() as u64;
        let passed = self.account.counters().passed + bytes;
        if self.gives_digest && passed > self.session.statistics().input_bytes {
            let digest = self.session.block().iter().map(|byte| format!("{byte:02x}")).collect();
            self.account.counters().digest = Some(digest);
            // Nothing follows a digest.
            self.advance(control)?;
            return Ok(&[]);
        }
        self.account.counters().passed = passed;
        self.writing = Some(Instant::now());
        Ok(self.session.block())
    }

    fn has_memory(&self) -> bool {
        true
    }
}

impl Drop for Outlet {
    fn drop(&mut self) {
        self.record_written();
        self.account.counters().session = self.session.statistics();
    }
}

impl DeviceAccount for Account {
    fn hash(&self) -> Option<Hash> {
        let digits = self.counters().digest.clone()?;
        Some(Hash { algorithm: HashAlgorithm::Sha256, digits })
    }

    fn acceleration(&self) -> Acceleration {
        let Counters { reading, writing, begin, end, copied, passed, session, .. } = self.counters().clone();
        let activities = [
            (reading, Bottleneck::Reading),
            (session.busy, Bottleneck::Computing),
            (writing, Bottleneck::Writing),
        ];
        let longest = activities.iter().max_by_key(|(time, _)| *time);
        let all = activities.iter().map(|(time, _)| *time).sum::<Duration>();
        let elapsed = begin.zip(end).map_or(all, |(begin, end)| end - begin);
        Acceleration {
            device: self.device.clone(),
            stage: self.stage.clone(),
            input_bytes: session.input_bytes,
            output_bytes: passed,
            copied_bytes: copied + session.copied_bytes,
            blocks: session.blocks,
            in_flight_max: session.in_flight_max,
            computing_seconds: session.busy.as_secs_f64(),
            overlapped_seconds: all.saturating_sub(elapsed).as_secs_f64(),
            reading_seconds: reading.as_secs_f64(),
            writing_seconds: writing.as_secs_f64(),
            bound: longest.map_or(Bottleneck::Computing, |found| found.1),
        }
    }
}
