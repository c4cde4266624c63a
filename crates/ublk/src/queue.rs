//! The requests of a disk at work: taken from the driver, carried out by the device, and their results committed.
//!
//! ```text
//!   driver ──► a tag completes ──► request ──► carried out at once? ──► commit and fetch ──► driver
//!                                               └─► submitted ──► reaped ──┘
//! ```
//!
//! The driver copies the data of a write into the tag's buffer before it hands the request over, and that of a read out of it
//! when the result is committed. A request is one command of the device: the driver was told the device's limits.
//!
//! Invariant: a tag is in exactly one state: the driver has it, or its request is in `requests`, or its result is queued in
//! the ring. The driver wants all this to be done by one thread. Called by `export`.

#![expect(unsafe_code, reason = "commands of io_uring and of devices refer to their memory by address")]

use crate::layout::{Encoding, Queue as Command, queue_command};
use crate::memory::{Buffers, Descriptors};
use crate::request::Request;
use crate::stats::Counters;
use bywash_device::{CommandError, Completion, Device, Operation};
use bywash_export::{Error, Signal};
use io_uring::{IoUring, opcode, squeue, types};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;

/// User data of the entries that wait for the device, and for the signal to stop; lower numbers are tags.
const DEVICE: u64 = 1 << 32;
const SIGNAL: u64 = 2 << 32;

/// Reason why a thread serves no requests any more.
#[derive(Debug)]
pub(crate) enum End {
    /// The driver has no more requests: the disk was stopped.
    Stopped,
    /// The thread was told to leave the disk to a later process.
    Left,
    /// The driver or io_uring refuses to go on.
    Failed(Error),
}

/// The first queue of a disk, and the device behind it.
pub(crate) struct Queue {
    device: Box<dyn Device>,
    ring: IoUring,
    buffers: Arc<Buffers>,
    descriptors: Descriptors,
    /// File of the disk's requests, which stays open as long as the ring.
    file: OwnedFd,
    encoding: Encoding,
    /// Requests that the device carries out, by their tags.
    requests: Vec<Option<Request>>,
    /// Number of tags whose commands the driver has.
    fetched: usize,
    stop: Signal,
    is_leaving: bool,
    /// True while an entry waits for the device's descriptor.
    awaits_device: bool,
    counters: Arc<Counters>,
    /// Completions that were just reaped; empty between calls.
    reaped: Vec<Completion>,
    /// First error number with which the driver gave a tag back.
    refusal: Option<Errno>,
}

impl Queue {
    /// Prepares the requests of a disk of `depth` tags, which come from `file`, with memory of `data_max` bytes for each.
    ///
    /// # Errors
    /// [`Error::Io`] if there is no memory or no io_uring.
    pub(crate) fn new(
        device: Box<dyn Device>,
        file: OwnedFd,
        (depth, data_max): (usize, usize),
        encoding: Encoding,
        stop: Signal,
        counters: Arc<Counters>,
    ) -> Result<Queue, Error> {
        // Beside the tags: the device and the signal.
        let ring = IoUring::new((depth + 2).next_power_of_two() as u32);
        let ring = ring.map_err(|error| Error::io("make an io_uring for a disk's requests", error))?;
        let descriptors = Descriptors::new(&file, depth)?;
        let buffers = Arc::new(Buffers::new(depth, data_max)?);
        Ok(Queue {
            device,
            ring,
            buffers,
            descriptors,
            file,
            encoding,
            requests: vec![None; depth],
            fetched: 0,
            stop,
            is_leaving: false,
            awaits_device: false,
            counters,
            reaped: Vec::new(),
            refusal: None,
        })
    }

    /// Serves requests until there are no more.
    pub(crate) fn run(mut self) -> End {
        let end = self.serve().unwrap_or_else(End::Failed);
        // The device waits for its commands, which own the buffers; the driver forgets the tags when the ring goes.
        drop(self);
        end
    }

    fn serve(&mut self) -> Result<End, Error> {
        for tag in 0..self.requests.len() {
            self.fetch(tag, Command::Fetch, 0)?;
        }
        self.wait_for(self.stop.as_fd().as_raw_fd(), SIGNAL)?;
        loop {
            let is_busy = self.take()? + self.reap()? > 0;
            if self.device.in_flight() == 0 {
                if self.is_leaving {
                    self.submit(0)?;
                    return Ok(End::Left);
                }
                if self.fetched == 0 {
                    return match self.refusal {
                        None | Some(Errno::NODEV) => Ok(End::Stopped),
                        Some(error) => Err(Error::io("take the requests of a disk", error)),
                    };
                }
            }
            // Whoever is busy looks again before it sleeps.
            let sleeps = !is_busy && self.may_sleep()?;
            self.submit(usize::from(sleeps))?;
        }
    }

    /// Prepares the device to wake this thread. Returns false if it has to be polled.
    fn may_sleep(&mut self) -> Result<bool, Error> {
        if self.device.in_flight() == 0 || self.awaits_device {
            return Ok(true);
        }
        if self.device.arm() {
            std::thread::yield_now();
            return Ok(false);
        }
        match self.device.descriptor().map(|descriptor| descriptor.as_raw_fd()) {
            Some(descriptor) => {
                self.wait_for(descriptor, DEVICE)?;
                self.awaits_device = true;
                Ok(true)
            }
            None => Ok(false),
        }
    }

    /// Takes what the ring has: requests, tags that the driver gives back, and wake-ups. Returns the number.
    fn take(&mut self) -> Result<usize, Error> {
        let mut count = 0;
        loop {
            let Some(done) = self.ring.completion().next() else { return Ok(count) };
            count += 1;
            match done.user_data() {
                DEVICE => self.awaits_device = false,
                SIGNAL => self.is_leaving = true,
                tag => {
                    self.fetched -= 1;
                    match done.result() {
                        0.. => self.begin(tag as usize)?,
                        error => {
                            self.refusal.get_or_insert(Errno::from_raw_os_error(-error));
                        }
                    }
                }
            }
        }
    }

    /// Begins the request of a tag.
    fn begin(&mut self, tag: usize) -> Result<(), Error> {
        self.counters.requests.add(1);
        let request = match Request::parse(&self.descriptors.copy(tag), self.buffers.each as u64) {
            Ok(request) => request,
            Err(error) => {
                self.counters.failed.add(1);
                return self.fetch(tag, Command::CommitAndFetch, -error.raw_os_error());
            }
        };
        let bytes = if request.operation.moves_data() { request.length } else { 0 };
        // SAFETY: the driver has handed the tag over, and gets it back when this command is over. The command owns the
        // buffers, or is over when `carry_out` returns.
        let memory = [unsafe { self.buffers.segment(tag, bytes) }];
        if let Some(result) = self.device.carry_out(&request.command(tag as u64, &memory)) {
            return self.commit(tag, request, result);
        }
        let command = request.command(tag as u64, &memory).owner(self.buffers.clone());
        match self.device.submit(command) {
            Ok(()) => {
                self.requests[tag] = Some(request);
                Ok(())
            }
            // Not reached with devices that keep to their depth, of which there are no more tags.
            Err(_) => {
                self.counters.failed.add(1);
                self.fetch(tag, Command::CommitAndFetch, -Errno::AGAIN.raw_os_error())
            }
        }
    }

    /// Commits what the device has completed. Returns the number of its completions.
    fn reap(&mut self) -> Result<usize, Error> {
        let mut reaped = std::mem::take(&mut self.reaped);
        self.device.reap(&mut |completion| reaped.push(completion));
        let count = reaped.len();
        for Completion { token, result, .. } in reaped.drain(..) {
            let tag = token as usize;
            if let Some(request) = self.requests.get_mut(tag).and_then(Option::take) {
                self.commit(tag, request, result)?;
            }
        }
        self.reaped = reaped;
        Ok(count)
    }

    fn commit(
        &mut self,
        tag: usize,
        request: Request,
        result: Result<(), CommandError>,
    ) -> Result<(), Error> {
        let Counters { failed, bytes_read, bytes_written, .. } = &*self.counters;
        match (request.operation, &result) {
            (_, Err(_)) => failed.add(1),
            (Operation::Read, Ok(())) => bytes_read.add(request.length),
            (Operation::Write | Operation::WriteDurable, Ok(())) => bytes_written.add(request.length),
            (_, Ok(())) => {}
        }
        self.fetch(tag, Command::CommitAndFetch, request.result(result))
    }

    /// Gives a tag to the driver, with the result of its last request.
    fn fetch(&mut self, tag: usize, command: Command, result: i32) -> Result<(), Error> {
        let payload = queue_command(tag as u16, result, self.buffers.address(tag));
        let entry = opcode::UringCmd16::new(types::Fd(self.file.as_raw_fd()), self.encoding.queue(command));
        self.push(&entry.cmd(payload).build().user_data(tag as u64))?;
        self.fetched += 1;
        Ok(())
    }

    fn wait_for(&mut self, descriptor: i32, number: u64) -> Result<(), Error> {
        let entry = opcode::PollAdd::new(types::Fd(descriptor), libc::POLLIN as u32);
        self.push(&entry.build().user_data(number))
    }

    fn push(&mut self, entry: &squeue::Entry) -> Result<(), Error> {
        // SAFETY: a tag's buffer is mapped as long as the ring, and so are the files open; entries that poll have no memory.
        // Dropping the ring before the buffers ends the driver's use of them: it accesses them only in calls of this thread.
        let pushed = unsafe { self.ring.submission().push(entry) };
        // Not reached: the ring has an entry for each tag, and both others.
        pushed.map_err(|_| Error::io("queue a command", Errno::AGAIN))
    }

    /// Submits what was pushed, and waits until `wanted` entries have completed.
    fn submit(&mut self, wanted: usize) -> Result<(), Error> {
        // A turn that only gave commands to the device needs no system call.
        if wanted == 0 && self.ring.submission().is_empty() {
            return Ok(());
        }
        match self.ring.submit_and_wait(wanted) {
            Ok(_) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            // The ring takes more when its completions were taken.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EBUSY)) => Ok(()),
            Err(error) => Err(Error::io("submit commands to the driver of a disk", error)),
        }
    }
}
