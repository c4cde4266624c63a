//! Session on a card: lends mapped memory to the caller, and keeps several blocks in flight.
//!
//! ```text
//!   inputs (free) -> caller fills -> waiting -> running (in order) -> finished -> caller reads -> outputs (free)
//!        ^                              |  takes an output buffer       |
//!        '------------------------------+-------------------------------'  gives the input buffer back
//! ```
//!
//! The thread that submits a block, or gives an output buffer back, gives the card its next commands. Another thread waits
//! for the card alone, so that the time at which a block is finished is known, and that callers can wait with a limit.
//!
//! Invariants:
//! - At most `blocks` blocks are waiting or running, and as many are finished or lent to the caller.
//! - There is one input buffer more than blocks in flight: the caller always has one to fill, if a block can be submitted.

use super::{Access, Card};
use crate::device::{Output, Session, SessionInput, SessionOptions, SessionOutput, Statistics};
use crate::error::Error;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Time between two looks at whether the session was dropped, while the card computes.
const LOOK: Duration = Duration::from_millis(20);
/// Time that the card may take for the oldest block. Large transforms on a slow one take seconds.
const BLOCK_MAX: Duration = Duration::from_secs(120);

/// Sizes of what a kernel reads and writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Size of a sample, in the middle of which the input must not end, in bytes.
    pub(crate) sample_bytes: usize,
    /// Size of a unit, of which blocks are whole multiples except for the last one, in bytes.
    pub(crate) unit_bytes: usize,
    /// Size of the output for a unit, in bytes.
    pub(crate) output_bytes: usize,
    /// Greatest number of units of a block.
    pub(crate) units_max: usize,
    /// True if zeros fill up the last block to whole units.
    pub(crate) is_padded: bool,
}

impl Layout {
    /// Returns the size of the blocks of a session, in bytes: whole units, and not more than can be computed at once.
    pub(crate) fn block_bytes(&self, options: &SessionOptions) -> usize {
        options.block_bytes.div_ceil(self.unit_bytes).min(self.units_max) * self.unit_bytes
    }
}

/// Kernel that turns blocks into commands.
pub(crate) trait Kernel<C: Card>: Send {
    /// Adds the commands for the next block, whose input has so many bytes, and returns the number of bytes of its output.
    fn compute(
        &mut self,
        card: &C,
        commands: &mut C::Commands,
        input: &C::Buffer,
        bytes: usize,
        output: &C::Buffer,
    ) -> Result<usize, Error>;
}

/// Block that the card computes.
struct Running<C: Card> {
    input: C::Buffer,
    output: C::Buffer,
    output_bytes: usize,
    since: Instant,
    /// End of the block's commands, unless the other thread has it.
    fence: Option<C::Fence>,
}

/// Buffer with output.
struct Finished<C: Card> {
    buffer: C::Buffer,
    bytes: usize,
}

/// State that callers and the waiting thread share.
struct Queue<C: Card> {
    kernel: Box<dyn Kernel<C>>,
    blocks: usize,
    inputs: Vec<C::Buffer>,
    outputs: Vec<C::Buffer>,
    /// Input and output in the card's own memory, unless it computes in the host's.
    own: Option<(C::Buffer, C::Buffer)>,
    waiting: VecDeque<(C::Buffer, usize)>,
    running: VecDeque<Running<C>>,
    finished: VecDeque<Finished<C>>,
    running_since: Option<Instant>,
    has_ended: bool,
    /// True if both ends were dropped.
    is_closed: bool,
    /// Error that ended the session.
    failure: Option<Error>,
    statistics: Statistics,
}

impl<C: Card> Queue<C> {
    fn in_flight(&self) -> usize {
        self.waiting.len() + self.running.len()
    }

    fn check(&self) -> Result<(), Error> {
        self.failure.clone().map_or(Ok(()), Err)
    }

    /// Keeps the error that ends the session, unless there is one already, and returns the one that is kept.
    fn fail(&mut self, error: Error) -> Error {
        self.failure.get_or_insert(error).clone()
    }

    /// Gives the card the blocks for which there are output buffers.
    fn launch(&mut self, card: &C) -> Result<(), Error> {
        self.check()?;
        while !self.waiting.is_empty()
            && let Some(output) = self.outputs.pop()
            && let Some((input, bytes)) = self.waiting.pop_front()
        {
            let running = self.start(card, input, bytes, output).map_err(|error| self.fail(error))?;
            self.running_since.get_or_insert(running.since);
            self.running.push_back(running);
        }
        Ok(())
    }

    fn start(
        &mut self,
        card: &C,
        mut input: C::Buffer,
        bytes: usize,
        mut output: C::Buffer,
    ) -> Result<Running<C>, Error> {
        let mut commands = card.commands()?;
        let output_bytes = match &self.own {
            None => self.kernel.compute(card, &mut commands, &input, bytes, &output)?,
            Some((from, to)) => {
                card.copy(&mut commands, (&input, 0), (from, 0), bytes)?;
                let output_bytes = self.kernel.compute(card, &mut commands, from, bytes, to)?;
                card.copy(&mut commands, (to, 0), (&output, 0), output_bytes)?;
                output_bytes
            }
        };
        let fence = Some(card.submit(commands, &mut [&mut input, &mut output])?);
        Ok(Running { input, output, output_bytes, since: Instant::now(), fence })
    }

    /// Takes over the oldest block, which the card has computed.
    fn complete(&mut self, card: &C) -> Result<(), Error> {
        let Some(Running { mut input, mut output, output_bytes, .. }) = self.running.pop_front() else {
            return Ok(());
        };
        card.take_back(&mut input)?;
        card.take_back(&mut output)?;
        self.inputs.push(input);
        self.finished.push_back(Finished { buffer: output, bytes: output_bytes });
        self.statistics.blocks += 1;
        if self.running.is_empty() {
            self.statistics.busy += self.running_since.take().map_or(Duration::ZERO, |since| since.elapsed());
        }
        Ok(())
    }
}

/// State, and signals.
struct Shared<C: Card> {
    card: Arc<C>,
    queue: Mutex<Queue<C>>,
    /// Signal to the waiting thread: the card has got a block.
    work: Condvar,
    /// Signal to callers: a block is finished, or the session has failed.
    result: Condvar,
}

impl<C: Card> Shared<C> {
    fn queue(&self) -> MutexGuard<'_, Queue<C>> {
        // Whoever panics under the lock leaves a queue in which blocks are missing; nobody waits for these without a limit.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives the card its next blocks.
    fn launch(&self, queue: &mut Queue<C>) -> Result<(), Error> {
        let launched = queue.launch(&self.card);
        self.work.notify_one();
        if launched.is_err() {
            self.result.notify_all();
        }
        launched
    }

    /// Ends the session with an error.
    fn fail(&self, queue: &mut Queue<C>, error: Error) -> Error {
        self.result.notify_all();
        queue.fail(error)
    }

    /// Waits for a signal, and returns `None` once the time is over.
    fn wait<'a>(&self, queue: MutexGuard<'a, Queue<C>>, end: Instant) -> Option<MutexGuard<'a, Queue<C>>> {
        let rest = end.checked_duration_since(Instant::now()).filter(|rest| !rest.is_zero())?;
        Some(self.result.wait_timeout(queue, rest).unwrap_or_else(PoisonError::into_inner).0)
    }
}

/// Waits for the card, block by block, until the session is dropped or fails.
fn wait_for_card<C: Card>(shared: &Shared<C>) {
    let mut queue = shared.queue();
    while !queue.is_closed && queue.failure.is_none() {
        let Some(mut fence) = queue.running.front_mut().and_then(|running| running.fence.take()) else {
            queue = shared.work.wait(queue).unwrap_or_else(PoisonError::into_inner);
            continue;
        };
        drop(queue);
        let passed = shared.card.wait(&mut fence, LOOK);
        queue = shared.queue();
        let result = match passed {
            Ok(true) => queue.complete(&shared.card),
            Ok(false) => match queue.running.front_mut() {
                Some(running) if running.since.elapsed() < BLOCK_MAX => {
                    running.fence = Some(fence);
                    continue;
                }
                _ => Err(too_slow(&*shared.card)),
            },
            Err(error) => Err(error),
        };
        if let Err(error) = result {
            queue.fail(error);
        }
        shared.result.notify_all();
    }
}

fn too_slow<C: Card>(card: &C) -> Error {
    let message = format!("it has not computed a block within {} seconds", BLOCK_MAX.as_secs());
    Error::Lost { device: card.name().into(), message }
}

/// Thread that waits for the card; ends when both ends of the session were dropped.
struct Waiter<C: Card> {
    shared: Arc<Shared<C>>,
    thread: Option<JoinHandle<()>>,
}

impl<C: Card> Drop for Waiter<C> {
    fn drop(&mut self) {
        self.shared.queue().is_closed = true;
        self.shared.work.notify_all();
        // A thread that panicked has said so.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// End of the session for input.
struct Input<C: Card> {
    waiter: Arc<Waiter<C>>,
    layout: Layout,
    block_bytes: usize,
    /// Buffer that the caller fills, and the number of bytes in it.
    filling: Option<C::Buffer>,
    filled: usize,
}

/// End of the session for output.
struct Outlet<C: Card> {
    waiter: Arc<Waiter<C>>,
    /// Block that the caller has until its next call.
    lent: Option<Finished<C>>,
}

/// Starts a session of a kernel, which is made for blocks of the size that it gets, in bytes.
///
/// # Errors
/// [`Error::Memory`] if there is no memory for the buffers; [`Error::Lost`], and those of the kernel.
pub(crate) fn start<C: Card, K: Kernel<C> + 'static>(
    card: &Arc<C>,
    layout: Layout,
    options: &SessionOptions,
    kernel: impl FnOnce(usize) -> Result<K, Error>,
) -> Result<Session, Error> {
    let block_bytes = layout.block_bytes(options);
    let output_bytes = (block_bytes / layout.unit_bytes).saturating_mul(layout.output_bytes);
    check_sizes(&**card, block_bytes, output_bytes, options.blocks)?;
    let kernel = Box::new(kernel(block_bytes)?);
    let buffers = |count: usize, bytes, access| {
        (0..count).map(|_| card.allocate(bytes, access)).collect::<Result<Vec<_>, _>>()
    };
    let own = match card.limits().shares_memory {
        true => None,
        false => {
            Some((card.allocate(block_bytes, Access::Device)?, card.allocate(output_bytes, Access::Device)?))
        }
    };
    let queue = Queue {
        kernel,
        blocks: options.blocks,
        inputs: buffers(options.blocks + 1, block_bytes, Access::Upload)?,
        outputs: buffers(options.blocks, output_bytes, Access::Download)?,
        own,
        waiting: VecDeque::new(),
        running: VecDeque::new(),
        finished: VecDeque::new(),
        running_since: None,
        has_ended: false,
        is_closed: false,
        failure: None,
        statistics: Statistics::default(),
    };
    let shared = Arc::new(Shared {
        card: Arc::clone(card),
        queue: Mutex::new(queue),
        work: Condvar::new(),
        result: Condvar::new(),
    });
    let waiting = Arc::clone(&shared);
    let thread = thread::Builder::new().name("bywash-card".into()).spawn(move || wait_for_card(&waiting));
    let thread = thread.map_err(|error| Error::Lost {
        device: card.name().into(),
        message: format!("a thread cannot be started: {error}"),
    })?;
    let waiter = Arc::new(Waiter { shared, thread: Some(thread) });
    let input = Input { waiter: Arc::clone(&waiter), layout, block_bytes, filling: None, filled: 0 };
    Ok(Session { input: Box::new(input), output: Box::new(Outlet { waiter, lent: None }) })
}

/// Refuses buffers that are too large for the card, or larger together than the memory that there is.
fn check_sizes<C: Card>(
    card: &C,
    block_bytes: usize,
    output_bytes: usize,
    blocks: usize,
) -> Result<(), Error> {
    let refused =
        |bytes: usize, remedy| Err(Error::Memory { device: card.name().into(), bytes: bytes as u64, remedy });
    let largest = block_bytes.max(output_bytes);
    if largest > card.limits().buffer_bytes {
        return refused(largest, "its buffers cannot be so large: ask for smaller blocks");
    }
    let all = (blocks + 2).saturating_mul(block_bytes.saturating_add(output_bytes));
    match card.available_bytes() {
        Some(available) if all as u64 > available => refused(all, "ask for smaller or fewer blocks"),
        _ => Ok(()),
    }
}

impl<C: Card> Input<C> {
    /// Gives the buffer that was filled to the card.
    fn submit_block(&mut self, queue: &mut Queue<C>) -> Result<(), Error> {
        let Some(mut block) = self.filling.take() else { return Ok(()) };
        let mut bytes = self.filled;
        if self.layout.is_padded {
            bytes = bytes.next_multiple_of(self.layout.unit_bytes);
            self.waiter.shared.card.bytes_mut(&mut block)[self.filled..bytes].fill(0);
        }
        self.filled = 0;
        queue.waiting.push_back((block, bytes));
        let in_flight = queue.in_flight() as u64;
        queue.statistics.in_flight_max = queue.statistics.in_flight_max.max(in_flight);
        self.waiter.shared.launch(queue)
    }
}

impl<C: Card> SessionInput for Input<C> {
    fn buffer(&mut self, limit: Duration) -> Result<Option<&mut [u8]>, Error> {
        let shared = &*self.waiter.shared;
        let end = Instant::now() + limit;
        let mut queue = shared.queue();
        loop {
            queue.check()?;
            if queue.has_ended {
                return Ok(None);
            }
            if queue.in_flight() < queue.blocks {
                break;
            }
            match shared.wait(queue, end) {
                Some(again) => queue = again,
                None => return Ok(None),
            }
        }
        if self.filling.is_none() {
            self.filling = queue.inputs.pop();
        }
        drop(queue);
        let filled = self.filled;
        Ok(self.filling.as_mut().map(|block| &mut shared.card.bytes_mut(block)[filled..]))
    }

    fn submit(&mut self, bytes: usize) -> Result<(), Error> {
        let waiter = Arc::clone(&self.waiter);
        let mut queue = waiter.shared.queue();
        queue.check()?;
        let has_room = !queue.has_ended && self.filling.is_some() && queue.in_flight() < queue.blocks;
        let room = if has_room { self.block_bytes - self.filled } else { 0 };
        if bytes > room {
            return Err(waiter.shared.fail(&mut queue, Error::beyond_buffer(bytes, room)));
        }
        self.filled += bytes;
        queue.statistics.input_bytes += bytes as u64;
        if self.filled == self.block_bytes { self.submit_block(&mut queue) } else { Ok(()) }
    }

    fn finish(&mut self) -> Result<(), Error> {
        let waiter = Arc::clone(&self.waiter);
        let mut queue = waiter.shared.queue();
        queue.check()?;
        if queue.has_ended {
            return Ok(());
        }
        let sample = self.layout.sample_bytes;
        let rest = queue.statistics.input_bytes % sample as u64;
        if rest != 0 {
            let message = format!(
                "the input ends in the middle of a sample: {rest} bytes are left over, a sample has {sample}"
            );
            return Err(waiter.shared.fail(&mut queue, Error::Input(message)));
        }
        if self.filled > 0 {
            self.submit_block(&mut queue)?;
        }
        queue.has_ended = true;
        waiter.shared.result.notify_all();
        Ok(())
    }
}

impl<C: Card> Drop for Input<C> {
    fn drop(&mut self) {
        let mut queue = self.waiter.shared.queue();
        if !queue.has_ended {
            self.waiter.shared.fail(&mut queue, Error::Closed);
        }
    }
}

impl<C: Card> SessionOutput for Outlet<C> {
    fn next(&mut self, limit: Duration) -> Result<Output, Error> {
        let shared = &*self.waiter.shared;
        let end = Instant::now() + limit;
        let mut queue = shared.queue();
        if let Some(finished) = self.lent.take() {
            queue.outputs.push(finished.buffer);
            shared.launch(&mut queue)?;
        }
        loop {
            queue.check()?;
            if let Some(finished) = queue.finished.pop_front() {
                queue.statistics.output_bytes += finished.bytes as u64;
                self.lent = Some(finished);
                return Ok(Output::Block);
            }
            if queue.has_ended && queue.in_flight() == 0 {
                return Ok(Output::End);
            }
            match shared.wait(queue, end) {
                Some(again) => queue = again,
                None => return Ok(Output::None),
            }
        }
    }

    fn block(&self) -> &[u8] {
        let finished = self.lent.as_ref();
        finished.map_or(&[], |finished| &self.waiter.shared.card.bytes(&finished.buffer)[..finished.bytes])
    }

    fn statistics(&self) -> Statistics {
        let queue = self.waiter.shared.queue();
        let running = queue.running_since.map_or(Duration::ZERO, |since| since.elapsed());
        Statistics { busy: queue.statistics.busy + running, ..queue.statistics }
    }
}

impl<C: Card> Drop for Outlet<C> {
    fn drop(&mut self) {
        let mut queue = self.waiter.shared.queue();
        if !(queue.has_ended && queue.in_flight() == 0) {
            self.waiter.shared.fail(&mut queue, Error::Closed);
        }
    }
}
