//! Reads into containers that do not wait: by io_uring, or on other threads where io_uring is not to be had.
//!
//! Each thread of the server has a ring. The reads that tasks begin in one turn are submitted together, so that the disk
//! is told once. A read owns its container and its file until it has completed, and wakes whoever waits for it. Invariant: the kernel uses no memory but that of containers in `slots`, and
//! a container leaves its slot only after the completion of its read has been seen. So a [`Reading`] may be dropped at
//! any time: its slot is then freed by the completion.
//!
//! Several reads are in flight at a time, at most one for each container, so that the arena bounds them.

use crate::chunks::BLOCK;
use bywash_container::Container;
use io_uring::{IoUring, Probe, opcode, types};
use rustix::io::Errno;
use slab::Slab;
use std::future::poll_fn;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use tokio::io::{Interest, unix::AsyncFd};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

/// Engine of one thread's reads.
#[derive(Debug)]
pub struct Reads {
    /// The ring, or the reason in words why there is none and reads are carried out by threads.
    ring: Result<Ring, String>,
}

/// Range of a file that is read into a container from its beginning on.
#[derive(Debug)]
pub struct Request {
    /// File, open for reading.
    pub file: Arc<OwnedFd>,
    /// Container, whose length is at least `bytes`, rounded up to whole blocks.
    pub container: Container,
    /// Offset of the range, at a multiple of a block.
    pub offset: u64,
    /// Length of the range.
    pub bytes: usize,
}

/// Read that has ended.
#[derive(Debug)]
pub struct Finished {
    /// The container.
    pub container: Container,
    /// Number of bytes that were read, less than asked for only at the end of the file; or the kernel's error.
    pub result: io::Result<usize>,
    /// Time that it took.
    pub took: Duration,
}

/// Read that is carried out. Yields its end.
#[derive(Debug)]
pub enum Reading {
    /// By the ring.
    Ring {
        /// Engine that carries the read out.
        reads: Arc<Reads>,
        /// Number of the read's slot.
        slot: usize,
    },
    /// By another thread.
    Thread(JoinHandle<Finished>),
}

#[derive(Debug)]
struct Ring {
    state: Mutex<RingState>,
    /// Readable when a read has completed.
    completed: AsyncFd<OwnedFd>,
    /// Notified when a read was begun.
    begun: Notify,
}

struct RingState {
    ring: IoUring,
    slots: Slab<Slot>,
}

impl std::fmt::Debug for RingState {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("RingState").field("slots", &self.slots.len()).finish()
    }
}

#[derive(Debug)]
struct Slot {
    request: Request,
    done: usize,
    begun: Instant,
    state: SlotState,
}

#[derive(Debug)]
enum SlotState {
    InFlight(Option<Waker>),
    /// In flight, and nobody waits for it any more.
    Abandoned,
    Finished(io::Result<usize>, Duration),
}

/// Next step of a read after a completion.
enum Next {
    Again,
    End(io::Result<usize>),
}

impl Reads {
    /// Makes the engine of this thread, in the context of its runtime.
    pub fn new() -> Reads {
        Reads { ring: Ring::new() }
    }

    /// Returns the engine in words.
    pub fn description(&self) -> String {
        self.ring.as_ref().map_or_else(|why| format!("threads ({why})"), |_| "io_uring".to_owned())
    }

    /// Begins to read. Called in the context of a runtime.
    pub fn read(self: &Arc<Reads>, request: Request) -> Reading {
        let Ok(ring) = &self.ring else { return by_thread(request) };
        let started = ring.lock().start(request);
        match started {
            Ok(slot) => {
                // The task that attends runs after those that are ready now, which may begin reads, too.
                ring.begun.notify_one();
                Reading::Ring { reads: self.clone(), slot }
            }
            // The kernel takes no more for the moment.
            Err(request) => by_thread(*request),
        }
    }

    /// Reaps completions, as long as it is polled. Each thread has one task that does this.
    pub async fn attend(&self) {
        let Ok(ring) = &self.ring else { return std::future::pending().await };
        loop {
            tokio::select! {
                () = ring.begun.notified() => ring.lock().submit(),
                readable = ring.completed.readable() => {
                    ring.lock().reap();
                    match readable {
                        Ok(mut guard) => guard.clear_ready(),
                        // The runtime ends.
                        Err(_) => return,
                    }
                }
                () = tokio::time::sleep(RETRY), if ring.lock().has_unsubmitted() => ring.lock().reap(),
            }
        }
    }
}

impl Ring {
    fn new() -> Result<Ring, String> {
        let ring = IoUring::builder()
            .setup_clamp()
            .setup_coop_taskrun()
            .build(ENTRIES)
            .or_else(|_| IoUring::new(ENTRIES))
            .map_err(|error| format!("io_uring is not available: {error}"))?;
        let mut probe = Probe::new();
        let is_known = ring.submitter().register_probe(&mut probe);
        if is_known.is_err() || !probe.is_supported(opcode::Read::CODE) {
            return Err("io_uring of this kernel is too old: 5.6 is needed".to_owned());
        }
        let completed = descriptor(&ring).map_err(|error| format!("no descriptor for io_uring: {error}"))?;
        Ok(Ring {
            state: Mutex::new(RingState { ring, slots: Slab::new() }),
            completed,
            begun: Notify::new(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, RingState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns a descriptor of the ring that outlives its borrow.
#[allow(unsafe_code)]
fn descriptor(ring: &IoUring) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: the ring, and with it its descriptor, is open during this call.
    let borrowed = unsafe { BorrowedFd::borrow_raw(ring.as_raw_fd()) };
    let own = rustix::io::fcntl_dupfd_cloexec(borrowed, 0)?;
    // SAFETY: an `OwnedFd` returns the same descriptor at each call, and keeps it open until it is dropped.
    Ok(unsafe { AsyncFd::register_with_interest(own, Interest::READABLE) }?)
}

impl RingState {
    /// Queues a read, which the next [`RingState::submit`] submits. Hands the request back if the kernel takes no more.
    fn start(&mut self, request: Request) -> Result<usize, Box<Request>> {
        let state = SlotState::InFlight(None);
        let slot = self.slots.insert(Slot { request, done: 0, begun: Instant::now(), state });
        if self.push(slot) {
            return Ok(slot);
        }
        Err(Box::new(self.slots.remove(slot).request))
    }

    /// Queues the rest of a slot's read. Returns false, without effect, if the queue is full and the kernel takes nothing.
    #[allow(unsafe_code)]
    fn push(&mut self, index: usize) -> bool {
        if self.ring.submission().is_full() {
            self.submit();
        }
        let Slot { request, done, .. } = &mut self.slots[index];
        // Whole blocks, as a direct read needs them; the file may end within the last one.
        let length = (request.bytes - *done).next_multiple_of(BLOCK).min(request.container.len() - *done);
        let address = request.container[*done..].as_mut_ptr();
        let entry = opcode::Read::new(types::Fd(request.file.as_raw_fd()), address, length as u32)
            .offset(request.offset + *done as u64)
            .build()
            .user_data(index as u64);
        // SAFETY: file and container belong to the slot, which stays until the completion has been seen: `reap` removes
        // no slot before, and `drop` waits. Nothing else accesses the container meanwhile.
        unsafe { self.ring.submission().push(&entry) }.is_ok()
    }

    /// Submits what is queued. What the kernel does not take stays queued.
    fn submit(&mut self) {
        while self.has_unsubmitted() {
            match self.ring.submit() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(submitted) if submitted > 0 => {}
                _ => return,
            }
        }
    }

    /// Returns true if reads are queued.
    fn has_unsubmitted(&mut self) -> bool {
        !self.ring.submission().is_empty()
    }

    fn reap(&mut self) {
        loop {
            let Some(entry) = self.ring.completion().next() else {
                let submission = self.ring.submission();
                let (is_full, is_empty) = (submission.cq_overflow(), submission.is_empty());
                drop(submission);
                // Completions that found no room, and entries that the kernel did not take before.
                if (is_full || !is_empty) && self.ring.submit().is_ok() && !self.ring.completion().is_empty()
                {
                    continue;
                }
                return;
            };
            let index = entry.user_data() as usize;
            let next = self.slots[index].advance(entry.result());
            let result = match next {
                Next::End(result) => result,
                Next::Again if self.push(index) => continue,
                Next::Again => Err(Errno::AGAIN.into()),
            };
            let slot = &mut self.slots[index];
            let finished = SlotState::Finished(result, slot.begun.elapsed());
            match std::mem::replace(&mut slot.state, finished) {
                SlotState::InFlight(Some(waker)) => waker.wake(),
                SlotState::Abandoned => drop(self.slots.remove(index)),
                SlotState::InFlight(None) | SlotState::Finished(..) => {}
            }
        }
    }

    fn in_flight(&self) -> usize {
        self.slots.iter().filter(|(_, slot)| !matches!(slot.state, SlotState::Finished(..))).count()
    }
}

impl Slot {
    fn advance(&mut self, result: i32) -> Next {
        match usize::try_from(result) {
            Err(_) if [Errno::INTR, Errno::AGAIN].map(Errno::raw_os_error).contains(&-result) => Next::Again,
            Err(_) => Next::End(Err(io::Error::from_raw_os_error(-result))),
            Ok(read) => {
                self.done += read;
                match read == 0 || self.done >= self.request.bytes {
                    true => Next::End(Ok(self.done.min(self.request.bytes))),
                    false => Next::Again,
                }
            }
        }
    }
}

impl Drop for RingState {
    fn drop(&mut self) {
        while self.in_flight() > 0 {
            if let Err(error) = self.ring.submit_and_wait(1)
                && error.kind() != io::ErrorKind::Interrupted
            {
                // The kernel may still write to the containers: their memory must not be used again, ever.
                std::mem::forget(std::mem::take(&mut self.slots));
                return;
            }
            self.reap();
        }
    }
}

impl Reading {
    /// Returns the end of the read once it has ended; must not be called again then.
    pub fn poll_end(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Finished>> {
        match self {
            Reading::Thread(task) => Pin::new(task).poll(context).map_err(io::Error::other),
            Reading::Ring { reads, slot } => {
                let Ok(ring) = &reads.ring else { return Poll::Ready(Err(Errno::BADF.into())) };
                let mut state = ring.lock();
                if let SlotState::InFlight(waker) = &mut state.slots[*slot].state {
                    *waker = Some(context.waker().clone());
                    return Poll::Pending;
                }
                let found = state.slots.remove(std::mem::replace(slot, NONE));
                let SlotState::Finished(result, took) = found.state else {
                    return Poll::Ready(Err(Errno::BADF.into()));
                };
                Poll::Ready(Ok(Finished { container: found.request.container, result, took }))
            }
        }
    }

    /// Waits for the end of the read.
    ///
    /// # Errors
    /// If the server ends.
    pub async fn end(mut self) -> io::Result<Finished> {
        poll_fn(|context| self.poll_end(context)).await
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        let Reading::Ring { reads, slot } = self else { return };
        let Some(ring) = reads.ring.as_ref().ok().filter(|_| *slot != NONE) else { return };
        let mut state = ring.lock();
        match state.slots[*slot].state {
            SlotState::Finished(..) => drop(state.slots.remove(*slot)),
            _ => state.slots[*slot].state = SlotState::Abandoned,
        }
    }
}

fn by_thread(request: Request) -> Reading {
    let begun = Instant::now();
    Reading::Thread(tokio::task::spawn_blocking(move || {
        let Request { file, mut container, offset, bytes } = request;
        let result = fill(&file, &mut container, offset, bytes);
        Finished { container, result, took: begun.elapsed() }
    }))
}

fn fill(file: &OwnedFd, container: &mut [u8], offset: u64, bytes: usize) -> io::Result<usize> {
    let mut done = 0;
    while done < bytes {
        let end = bytes.next_multiple_of(BLOCK).min(container.len());
        match rustix::io::pread(file, &mut container[done..end], offset + done as u64) {
            Ok(0) => break,
            Ok(read) => done += read,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(done.min(bytes))
}

/// Number of entries of a ring. More reads than that may be in flight.
const ENTRIES: u32 = 256;
/// Interval between attempts to submit reads that the kernel did not take.
const RETRY: Duration = Duration::from_secs(1);
/// Slot of a read that has been handed over.
const NONE: usize = usize::MAX;

#[cfg(test)]
mod tests {
    use super::*;
    use bywash_container::HugePages;
    use bywash_example_http::{Memory, testing::contents};

    /// Runs a test with each engine: reads, the file of 1,000,000 bytes, its contents, an arena.
    fn with_each<F: Future<Output = ()>>(test: impl Fn(Arc<Reads>, Arc<OwnedFd>, Vec<u8>, Memory) -> F) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut file = tempfile::tempfile().unwrap();
            std::io::Write::write_all(&mut file, &contents(1_000_000)).unwrap();
            let file: Arc<OwnedFd> = Arc::new(file.into());
            for reads in [Reads::new(), Reads { ring: Err("a test".to_owned()) }] {
                let reads = Arc::new(reads);
                let memory = Memory::new(8 << 20, HugePages::No).unwrap();
                tokio::select! {
                    () = test(reads.clone(), file.clone(), contents(1_000_000), memory) => {}
                    () = reads.attend() => panic!("it ended"),
                }
            }
        });
    }

    fn request(file: &Arc<OwnedFd>, memory: &Memory, offset: u64, bytes: usize) -> Request {
        let container = memory.try_alloc(bytes.next_multiple_of(BLOCK)).unwrap().unwrap();
        Request { file: file.clone(), container, offset, bytes }
    }

    #[test]
    fn containers_have_what_the_file_has() {
        with_each(async |reads, file, all, memory| {
            let ranges = [(0, 262_144), (262_144, 262_144), (786_432, 213_568), (8192, 1)];
            let started = ranges.map(|(offset, bytes)| reads.read(request(&file, &memory, offset, bytes)));
            for (reading, (offset, bytes)) in started.into_iter().zip(ranges) {
                let finished = reading.end().await.unwrap();
                assert_eq!(finished.result.unwrap(), bytes);
                let offset = offset as usize;
                assert!(finished.container[..bytes] == all[offset..offset + bytes]);
            }
        });
    }

    #[test]
    fn a_file_that_ends_early_is_read_to_its_end() {
        with_each(async |reads, file, all, memory| {
            let finished = reads.read(request(&file, &memory, 999_424, 8192)).end().await.unwrap();
            assert_eq!(finished.result.unwrap(), 576);
            assert!(finished.container[..576] == all[999_424..]);
            let finished = reads.read(request(&file, &memory, 1 << 20, 4096)).end().await.unwrap();
            assert_eq!(finished.result.unwrap(), 0);
        });
    }

    #[test]
    fn an_error_is_the_kernels() {
        with_each(async |reads, _, _, memory| {
            let folder: Arc<OwnedFd> = Arc::new(std::fs::File::open("/").unwrap().into());
            let finished = reads.read(request(&folder, &memory, 0, 4096)).end().await.unwrap();
            assert_eq!(finished.result.unwrap_err().kind(), io::ErrorKind::IsADirectory);
        });
    }

    #[test]
    fn a_read_that_nobody_waits_for_returns_its_container() {
        with_each(async |reads, file, all, memory| {
            for _ in 0..20 {
                for _ in 0..8 {
                    drop(reads.read(request(&file, &memory, 0, 900_000)));
                }
                // The arena holds no more, unless the containers come back.
                let begin = Instant::now();
                while memory.usage().1 > 0 {
                    assert!(begin.elapsed() < Duration::from_secs(10), "{} bytes are kept", memory.usage().1);
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            }
            let finished = reads.read(request(&file, &memory, 0, 900_000)).end().await.unwrap();
            assert!(finished.container[..900_000] == all[..900_000]);
        });
    }

    #[test]
    fn more_reads_than_entries_are_carried_out() {
        with_each(async |reads, file, all, memory| {
            let started: Vec<_> = (0..1500)
                .map(|index| (index % 200, reads.read(request(&file, &memory, index % 200 * 4096, 4096))))
                .collect();
            for (index, reading) in started {
                let finished = reading.end().await.unwrap();
                let offset = index as usize * 4096;
                assert!(finished.container[..4096] == all[offset..offset + 4096]);
            }
        });
    }
}
