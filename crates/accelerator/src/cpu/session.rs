//! Session on the processor: lends buffers to the caller, and has threads compute them.
//!
//! All buffers are allocated at the start, and change owners: no block is copied. Threads and both ends meet under one lock,
//! which is held for moments only, a few times a block.

use super::buffer::Buffer;
use super::queue::{Computed, Job, Origin, Queue};
use super::worker::{Layout, Plan, Stop, Worker};
use crate::device::{Output, Session, SessionInput, SessionOptions, SessionOutput, Statistics};
use crate::error::Error;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// State and signals between both ends and the threads.
struct Shared {
    queue: Mutex<Queue>,
    /// Signal to the threads: a block was submitted, or an output buffer is free.
    work: Condvar,
    /// Signal to the end for the output: a block was computed, or the input has ended.
    result: Condvar,
    /// Signal to the end for the input: one more block can be submitted.
    room: Condvar,
    stop: Stop,
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        // Whoever panics under the lock leaves a queue in which blocks are missing; nobody waits for these without a limit.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes those who wait for what the queue has now. Threads that compute look for more work by themselves.
    fn signal(&self, queue: &Queue) {
        if queue.has_idle() {
            self.work.notify_one();
        }
        if queue.is_output_awaited() {
            self.result.notify_one();
        }
        if queue.is_room_awaited() {
            self.room.notify_one();
        }
    }

    /// Keeps the error that ends the session, and returns it.
    fn fail(&self, queue: &mut Queue, error: Error) -> Error {
        let error = queue.fail(error);
        self.signal(queue);
        error
    }
}

/// Threads of a session, which end with the last of its ends.
struct Threads {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

/// End for the input.
struct CpuInput {
    threads: Arc<Threads>,
    layout: Layout,
    /// Buffer that the caller fills, and the number of bytes in it.
    filling: Buffer,
    filled: usize,
    /// Buffer for the output behind the last block, until the input has ended.
    tail: Option<Buffer>,
    has_ended: bool,
}

/// End for the output.
struct CpuOutput {
    threads: Arc<Threads>,
    /// Block that the caller has until its next call.
    lent: Option<Computed>,
    output_bytes: u64,
}

/// Starts a session of a kernel.
///
/// # Errors
/// [`Error::Memory`] if there is no memory for the buffers, [`Error::Lost`] if a thread cannot be started.
pub(super) fn start(plan: Plan, options: &SessionOptions) -> Result<Session, Error> {
    let layout = plan.layout;
    let block_bytes = options.block_bytes.next_multiple_of(layout.unit_bytes);
    let mut queue = Queue::new(&layout, block_bytes, options.blocks)?;
    let filling = queue.free_input();
    let tail = Buffer::new(layout.tail_bytes, 0)?;
    let shared = Arc::new(Shared {
        queue: Mutex::new(queue),
        work: Condvar::new(),
        result: Condvar::new(),
        room: Condvar::new(),
        stop: Stop::default(),
    });
    // Threads that were started before one fails end when this value is dropped.
    let mut threads = Threads { shared, threads: Vec::new() };
    for worker in plan.workers {
        let shared = Arc::clone(&threads.shared);
        let thread = thread::Builder::new().name("bywash-cpu".into());
        let thread = thread.spawn(move || work(&shared, layout.passes_on, worker));
        threads.threads.push(thread.map_err(|error| Error::Lost {
            device: super::NAME.into(),
            message: format!("a thread cannot be started: {error}"),
        })?);
    }
    let threads = Arc::new(threads);
    let output = CpuOutput { threads: Arc::clone(&threads), lent: None, output_bytes: 0 };
    let input = CpuInput { threads, layout, filling, filled: 0, tail: Some(tail), has_ended: false };
    Ok(Session { input: Box::new(input), output: Box::new(output) })
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
        shared.signal(&queue);
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

impl CpuInput {
    /// Gives the buffer that was filled to the threads, and takes another one.
    fn submit_block(&mut self) {
        let bytes = if self.layout.is_padded {
            self.filled.next_multiple_of(self.layout.unit_bytes)
        } else {
            self.filled
        };
        self.filling.block_mut()[self.filled..bytes].fill(0);
        let shared = &self.threads.shared;
        let mut next = shared.queue().free_input();
        let copied = next.continue_from(&self.filling, bytes);
        let mut queue = shared.queue();
        queue.copied_bytes += copied as u64;
        queue.submit(std::mem::replace(&mut self.filling, next), bytes);
        self.filled = 0;
        shared.signal(&queue);
    }
}

impl SessionInput for CpuInput {
    fn buffer(&mut self, limit: Duration) -> Result<Option<&mut [u8]>, Error> {
        let shared = &self.threads.shared;
        let mut queue = shared.queue();
        let mut start = None;
        loop {
            queue.check()?;
            if self.has_ended {
                return Ok(None);
            }
            if queue.has_room() {
                break;
            }
            let remaining = limit.saturating_sub(start.get_or_insert_with(Instant::now).elapsed());
            if remaining.is_zero() {
                return Ok(None);
            }
            queue.waits_for_room = true;
            queue = shared.room.wait_timeout(queue, remaining).unwrap_or_else(PoisonError::into_inner).0;
            queue.waits_for_room = false;
        }
        drop(queue);
        Ok(Some(&mut self.filling.block_mut()[self.filled..]))
    }

    fn submit(&mut self, bytes: usize) -> Result<(), Error> {
        let shared = &self.threads.shared;
        let mut queue = shared.queue();
        queue.check()?;
        let has_room = !self.has_ended && queue.has_room();
        let room = if has_room { self.filling.length() - self.filled } else { 0 };
        if bytes > room {
            return Err(shared.fail(&mut queue, Error::beyond_buffer(bytes, room)));
        }
        self.filled += bytes;
        queue.input_bytes += bytes as u64;
        drop(queue);
        if self.filled == self.filling.length() {
            self.submit_block();
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<(), Error> {
        let shared = Arc::clone(&self.threads.shared);
        let mut queue = shared.queue();
        queue.check()?;
        if self.has_ended {
            return Ok(());
        }
        let sample = self.layout.sample_bytes;
        let rest = queue.input_bytes % sample as u64;
        if rest != 0 {
            let message = format!(
                "the input ends in the middle of a sample: {rest} bytes are left over, a sample has {sample}"
            );
            return Err(shared.fail(&mut queue, Error::Input(message)));
        }
        drop(queue);
        if self.filled > 0 {
            self.submit_block();
        }
        self.has_ended = true;
        let mut queue = shared.queue();
        queue.end(self.tail.take().filter(|_| self.layout.tail_bytes > 0));
        shared.signal(&queue);
        Ok(())
    }
}

impl Drop for CpuInput {
    fn drop(&mut self) {
        if !self.has_ended {
            let shared = &self.threads.shared;
            shared.fail(&mut shared.queue(), Error::Closed);
        }
    }
}

impl SessionOutput for CpuOutput {
    fn next(&mut self, limit: Duration) -> Result<Output, Error> {
        let shared = &self.threads.shared;
        let mut queue = shared.queue();
        if let Some(computed) = self.lent.take() {
            queue.release(computed);
            shared.signal(&queue);
        }
        let mut start = None;
        loop {
            queue.check()?;
            match queue.take() {
                Some(Ok(computed)) if computed.bytes == 0 => {
                    queue.release(computed);
                    shared.signal(&queue);
                    continue;
                }
                Some(Ok(computed)) => {
                    self.output_bytes += computed.bytes as u64;
                    self.lent = Some(computed);
                    return Ok(Output::Block);
                }
                Some(Err(error)) => return Err(shared.fail(&mut queue, error)),
                None if queue.has_ended() => return Ok(Output::End),
                None => {}
            }
            let remaining = limit.saturating_sub(start.get_or_insert_with(Instant::now).elapsed());
            if remaining.is_zero() {
                return Ok(Output::None);
            }
            queue.waits_for_output = true;
            queue = shared.result.wait_timeout(queue, remaining).unwrap_or_else(PoisonError::into_inner).0;
            queue.waits_for_output = false;
        }
    }

    fn block(&self) -> &[u8] {
        self.lent.as_ref().map_or(&[], |computed| &computed.buffer.block()[..computed.bytes])
    }

    fn statistics(&self) -> Statistics {
        Statistics { output_bytes: self.output_bytes, ..self.threads.shared.queue().statistics() }
    }
}

impl Drop for CpuOutput {
    fn drop(&mut self) {
        let shared = &self.threads.shared;
        let mut queue = shared.queue();
        if !queue.has_ended() {
            shared.fail(&mut queue, Error::Closed);
        }
    }
}

impl Drop for Threads {
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
