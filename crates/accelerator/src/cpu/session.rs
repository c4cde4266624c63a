//! Session on the processor: lends buffers to the caller, and has threads compute them.
//!
//! All buffers are allocated at the start, and change owners: no block is copied. Threads and caller meet under one lock,
//! which is held for moments only, twice a block.

use super::buffer::Buffer;
use super::queue::{Computed, Job, Origin, Queue};
use super::worker::{Layout, Plan, Stop, Worker};
use crate::device::{Output, Session, SessionOptions, Statistics};
use crate::error::Error;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// State and signals between the caller and the threads.
struct Shared {
    queue: Mutex<Queue>,
    /// Signal to the threads: a block was submitted, or an output buffer is free.
    work: Condvar,
    /// Signal to the caller: a block was computed.
    result: Condvar,
    stop: Stop,
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        // Whoever panics under the lock leaves a queue in which blocks are missing; nobody waits for these without a limit.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes a thread if there is work for one that waits. Threads that compute look for more work by themselves.
    fn signal_work(&self, queue: &Queue) {
        if queue.has_idle() {
            self.work.notify_one();
        }
    }
}

/// Kernel at work on the processor.
struct CpuSession {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    layout: Layout,
    /// Buffer that the caller fills, and the number of bytes in it.
    filling: Buffer,
    filled: usize,
    /// Buffer for the output behind the last block, until the input has ended.
    tail: Option<Buffer>,
    /// Block that the caller has as output until its next call.
    lent: Option<Computed>,
    has_ended: bool,
    /// Error that ended the session.
    failure: Option<Error>,
    statistics: Statistics,
}

/// Starts a session of a kernel.
///
/// # Errors
/// [`Error::Memory`] if there is no memory for the buffers, [`Error::Lost`] if a thread cannot be started.
pub(super) fn start(plan: Plan, options: &SessionOptions) -> Result<Box<dyn Session>, Error> {
    let layout = plan.layout;
    let block_bytes = options.block_bytes.next_multiple_of(layout.unit_bytes);
    let mut queue = Queue::new(&layout, block_bytes, options.blocks)?;
    let filling = queue.free_input();
    let tail = Buffer::new(layout.tail_bytes, 0)?;
    let shared = Arc::new(Shared {
        queue: Mutex::new(queue),
        work: Condvar::new(),
        result: Condvar::new(),
        stop: Stop::default(),
    });
    // Threads that were started before one fails end when the session is dropped.
    let mut session = CpuSession {
        shared,
        threads: Vec::new(),
        layout,
        filling,
        filled: 0,
        tail: Some(tail),
        lent: None,
        has_ended: false,
        failure: None,
        statistics: Statistics::default(),
    };
    for worker in plan.workers {
        let shared = Arc::clone(&session.shared);
        let thread = thread::Builder::new().name("bywash-cpu".into());
        let thread = thread.spawn(move || work(&shared, layout.passes_on, worker));
        session.threads.push(thread.map_err(|error| Error::Lost {
            device: super::NAME.into(),
            message: format!("a thread cannot be started: {error}"),
        })?);
    }
    Ok(Box::new(session))
}

/// Computes blocks until the session is dropped.
fn work(shared: &Shared, passes_on: bool, mut worker: Box<dyn Worker>) {
    let mut queue = shared.queue();
    loop {
        if queue.is_closed {
            return;
        }
        let Some(job) = queue.next_job(passes_on) else {
            queue.idle += 1;
            queue = shared.work.wait(queue).unwrap_or_else(PoisonError::into_inner);
            queue.idle -= 1;
            continue;
        };
        drop(queue);
        let (number, result, input) = compute(job, worker.as_mut(), &shared.stop);
        queue = shared.queue();
        queue.complete(number, result, input);
        if queue.is_awaited() {
            shared.result.notify_one();
        }
    }
}

/// Does the work of a thread. Returns the number and the result of the block, and the input buffer that is free now.
fn compute(job: Job, worker: &mut dyn Worker, stop: &Stop) -> (u64, Result<Computed, Error>, Option<Buffer>) {
    match job {
        Job::Block { number, input, bytes, output: Some(mut output) } => {
            let result = worker.run(input.with_history(bytes), output.block_mut(), stop);
            let result = result.map(|bytes| Computed { buffer: output, bytes, origin: Origin::Output });
            (number, result, Some(input))
        }
        Job::Block { number, input, bytes, output: None } => {
            let result = worker.run(input.with_history(bytes), &mut [], stop);
            (number, result.map(|_| Computed { buffer: input, bytes, origin: Origin::Input }), None)
        }
        Job::End { number, mut output } => {
            let result = worker.end(output.block_mut());
            (number, result.map(|bytes| Computed { buffer: output, bytes, origin: Origin::Tail }), None)
        }
    }
}

impl CpuSession {
    /// Takes back the buffer that the caller had as output; returns the error that ended the session.
    fn begin_call(&mut self) -> Result<(), Error> {
        if let Some(computed) = self.lent.take() {
            let mut queue = self.shared.queue();
            queue.release(computed);
            self.shared.signal_work(&queue);
        }
        self.failure.clone().map_or(Ok(()), Err)
    }

    /// Keeps the error that ends the session, and returns it.
    fn fail(&mut self, error: Error) -> Error {
        self.failure = Some(error.clone());
        error
    }

    /// Gives the buffer that was filled to the threads, and takes another one.
    fn submit_block(&mut self) {
        let bytes = if self.layout.is_padded {
            self.filled.next_multiple_of(self.layout.unit_bytes)
        } else {
            self.filled
        };
        self.filling.block_mut()[self.filled..bytes].fill(0);
        let mut queue = self.shared.queue();
        let mut next = queue.free_input();
        self.statistics.copied_bytes += next.continue_from(&self.filling, bytes) as u64;
        queue.submit(std::mem::replace(&mut self.filling, next), bytes);
        self.filled = 0;
        self.shared.signal_work(&queue);
    }
}

impl Session for CpuSession {
    fn input(&mut self) -> Result<Option<&mut [u8]>, Error> {
        self.begin_call()?;
        if self.has_ended || !self.shared.queue().has_room() {
            return Ok(None);
        }
        Ok(Some(&mut self.filling.block_mut()[self.filled..]))
    }

    fn submit(&mut self, bytes: usize) -> Result<(), Error> {
        self.begin_call()?;
        let has_room = !self.has_ended && self.shared.queue().has_room();
        let room = if has_room { self.filling.length() - self.filled } else { 0 };
        if bytes > room {
            let message = format!("{bytes} bytes were submitted, but the input buffer has room for {room}");
            return Err(self.fail(Error::Input(message)));
        }
        self.filled += bytes;
        self.statistics.input_bytes += bytes as u64;
        if self.filled == self.filling.length() {
            self.submit_block();
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<(), Error> {
        self.begin_call()?;
        if self.has_ended {
            return Ok(());
        }
        let sample = self.layout.sample_bytes;
        let rest = self.statistics.input_bytes % sample as u64;
        if rest != 0 {
            let message = format!(
                "the input ends in the middle of a sample: {rest} bytes are left over, a sample has {sample}"
            );
            return Err(self.fail(Error::Input(message)));
        }
        if self.filled > 0 {
            self.submit_block();
        }
        self.has_ended = true;
        if let Some(tail) = self.tail.take().filter(|_| self.layout.tail_bytes > 0) {
            let mut queue = self.shared.queue();
            queue.end(tail);
            self.shared.signal_work(&queue);
        }
        Ok(())
    }

    fn output(&mut self, limit: Duration) -> Result<Output<'_>, Error> {
        self.begin_call()?;
        let (shared, start) = (Arc::clone(&self.shared), Instant::now());
        let mut queue = shared.queue();
        loop {
            match queue.take() {
                Some(Ok(computed)) if computed.bytes == 0 => {
                    queue.release(computed);
                    shared.signal_work(&queue);
                    continue;
                }
                Some(Ok(computed)) => {
                    self.statistics.output_bytes += computed.bytes as u64;
                    let computed = self.lent.insert(computed);
                    return Ok(Output::Block(&computed.buffer.block()[..computed.bytes]));
                }
                Some(Err(error)) => return Err(self.fail(error)),
                None if queue.is_empty() => {
                    return Ok(if self.has_ended { Output::End } else { Output::None });
                }
                None => {}
            }
            let remaining = limit.saturating_sub(start.elapsed());
            if remaining.is_zero() {
                return Ok(Output::None);
            }
            queue.is_caller_waiting = true;
            queue = shared.result.wait_timeout(queue, remaining).unwrap_or_else(PoisonError::into_inner).0;
            queue.is_caller_waiting = false;
        }
    }

    fn statistics(&self) -> Statistics {
        let queue = self.shared.queue();
        Statistics {
            blocks: queue.computed,
            busy: queue.busy(),
            in_flight_max: queue.in_flight_max,
            ..self.statistics
        }
    }
}

impl Drop for CpuSession {
    fn drop(&mut self) {
        self.shared.stop.set();
        self.shared.queue().is_closed = true;
        self.shared.work.notify_all();
        for thread in self.threads.drain(..) {
            // A thread that panicked has said so.
            let _ = thread.join();
        }
    }
}
