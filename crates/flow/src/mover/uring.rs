//! `uring`: blocks are read and sent by io_uring; the next blocks are read while one is sent.
//!
//! Only one send is in flight at a time, which keeps the order. One read is in flight besides, up to as many
//! blocks ahead as there are buffers.

use super::{Job, Stop, submitted_later};
use crate::block_buffer::BlockBuffer;
use crate::end::{DescriptorSink, DescriptorSource, PEER_CHECK_INTERVAL};
use crate::error::Error;
use io_uring::{IoUring, opcode, types};
use rustix::event::PollFlags;
use rustix::io::Errno;
use std::collections::VecDeque;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Instant;

/// Greatest number of buffers; fewer if the blocks are large.
const DEPTH: usize = 4;
/// Bit of an entry's user data that marks a send.
const SEND: u64 = 1 << 32;

struct Engine<'a> {
    ring: IoUring,
    buffers: BlockBuffer,
    block: usize,
    from: &'a mut DescriptorSource,
    to: &'a mut DescriptorSink,
    free: Vec<usize>,
    /// Blocks that have been read but not sent, in order: buffer, first byte, number of bytes.
    ready: VecDeque<(usize, usize, usize)>,
    reading: bool,
    sending: bool,
    ended: bool,
}

pub(super) fn run(
    job: &mut Job<'_>,
    from: &mut DescriptorSource,
    to: &mut DescriptorSink,
) -> Result<(), Stop> {
    let ring = IoUring::new(2 * DEPTH as u32)
        .map_err(|error| Stop::Refused(format!("there is no io_uring: {error}")))?;
    let depth = super::buffers(DEPTH, job.block);
    let buffers = BlockBuffer::new(depth * job.block)?;
    let mut engine = Engine {
        ring,
        buffers,
        block: job.block,
        from,
        to,
        free: (0..depth).collect(),
        ready: VecDeque::with_capacity(depth),
        reading: false,
        sending: false,
        ended: false,
    };
    let outcome = engine.run(job);
    engine.abandon();
    outcome
}

impl Engine<'_> {
    fn run(&mut self, job: &mut Job<'_>) -> Result<(), Stop> {
        loop {
            self.begin_read(job)?;
            self.begin_send()?;
            if !self.reading && !self.sending {
                return Ok(());
            }
            self.turn(job)?;
        }
    }

    fn begin_read(&mut self, job: &mut Job<'_>) -> Result<(), Error> {
        if self.reading || self.ended {
            return Ok(());
        }
        let Some(number) = self.free.pop() else { return Ok(()) };
        let Some(bytes) = job.next(self.from, self.to)? else {
            self.ended = true;
            return Ok(());
        };
        let at = self.buffers[number * self.block..].as_mut_ptr();
        // For a stream, io_uring takes the offset -1.
        let position = self.from.position.unwrap_or(u64::MAX);
        let entry = opcode::Read::new(types::Fd(self.from.descriptor.as_raw_fd()), at, bytes as u32)
            .offset(position)
            .build();
        self.reading = true;
        self.push(&entry.user_data(number as u64))
    }

    fn begin_send(&mut self) -> Result<(), Error> {
        if self.sending {
            return Ok(());
        }
        let Some(&(number, first, bytes)) = self.ready.front() else { return Ok(()) };
        let at = self.buffers[number * self.block + first..].as_ptr();
        let entry = opcode::Send::new(types::Fd(self.to.descriptor.as_raw_fd()), at, bytes as u32)
            .flags(libc::MSG_NOSIGNAL | libc::MSG_WAITALL)
            .build();
        self.sending = true;
        self.push(&entry.user_data(number as u64 | SEND))
    }

    fn push(&mut self, entry: &io_uring::squeue::Entry) -> Result<(), Error> {
        // SAFETY: the entry's buffer is used by nothing else until its completion, which `turn` or `abandon`
        // waits for.
        unsafe { self.ring.submission().push(entry) }
            .map_err(|error| Error::io("queue a block", std::io::Error::other(error)))
    }

    fn turn(&mut self, job: &mut Job<'_>) -> Result<(), Stop> {
        self.submit()?;
        if self.ring.completion().is_empty() {
            // SAFETY: the descriptor belongs to the ring, which lives longer than this borrow.
            let ring = unsafe { BorrowedFd::borrow_raw(self.ring.as_raw_fd()) };
            while !job.control.wait(ring, PollFlags::IN, Some(Instant::now() + PEER_CHECK_INTERVAL))? {
                self.to.check_peer()?;
                self.submit()?;
            }
        }
        // Completions are taken one by one: if a block has failed, those behind it stay in the ring for
        // `abandon`.
        while let Some(entry) = self.next_completion() {
            let (data, result) = (entry.user_data(), entry.result());
            let number = (data & !SEND) as usize;
            if data & SEND != 0 { self.sent(result, job)? } else { self.was_read(number, result, job)? }
        }
        Ok(())
    }

    fn submit(&mut self) -> Result<(), Error> {
        self.ring.submit().or_else(submitted_later).map_err(|error| Error::io("submit blocks", error))?;
        Ok(())
    }

    fn next_completion(&mut self) -> Option<io_uring::cqueue::Entry> {
        self.ring.completion().next()
    }

    fn was_read(&mut self, number: usize, result: i32, job: &mut Job<'_>) -> Result<(), Stop> {
        self.reading = false;
        match usize::try_from(result) {
            Ok(0) => {
                self.ended = true;
                self.free.push(number);
                Ok(job.check_end(self.from)?)
            }
            Ok(bytes) => {
                job.record_read(self.from, bytes);
                self.ready.push_back((number, 0, bytes));
                Ok(())
            }
            Err(_) if matches!(-result, libc::EINTR | libc::EAGAIN) => {
                self.free.push(number);
                // For a non-blocking socket without data, io_uring returns EAGAIN instead of waiting.
                Ok(self.from.wait(job.control)?)
            }
            Err(_) => Err(self.from.failed(Errno::from_raw_os_error(-result)).into()),
        }
    }

    fn sent(&mut self, result: i32, job: &mut Job<'_>) -> Result<(), Stop> {
        self.sending = false;
        let sent = match usize::try_from(result) {
            Ok(sent) => sent,
            Err(_) if matches!(-result, libc::EINTR | libc::EAGAIN) => {
                return Ok(self.to.wait(job.control)?);
            }
            Err(_) => return Err(self.to.failed(Errno::from_raw_os_error(-result)).into()),
        };
        job.record_written(sent);
        if let Some((number, first, bytes)) = self.ready.pop_front() {
            match sent < bytes {
                true => self.ready.push_front((number, first + sent, bytes - sent)),
                false => self.free.push(number),
            }
        }
        Ok(())
    }

    /// Cancels the requests in flight and waits for their completions, since the kernel must not use buffers
    /// that have been unmapped.
    fn abandon(&mut self) {
        if !self.reading && !self.sending {
            return;
        }
        let all = types::CancelBuilder::any();
        // A request that cannot be cancelled completes when the peer acts.
        let _ = self.ring.submitter().register_sync_cancel(None, all);
        let mut in_flight = usize::from(self.reading) + usize::from(self.sending);
        while in_flight > 0 {
            let _ = self.ring.submit_and_wait(1);
            in_flight -= self.ring.completion().count().min(in_flight);
        }
    }
}
