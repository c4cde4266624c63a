//! A volume of a device server as a device.
//!
//! ```text
//!                        ┌─ mapped:  copied ──► the volume's memory
//!   the guest's memory ◄─┤
//!                        └─ channel: copied ──► a buffer of the arena ◄── the queue ──► the device server
//! ```
//!
//! The disk is a client like any other: its right to the volume is enforced on every request by the server
//! or, where the volume is mapped, by the processor. A request's bytes are copied once: between the guest's
//! memory, to which the device server has no access, and memory to which the guest has none. Invariant: a
//! command is in `commands` from its submission to the queue until it is reaped, together with the owner of
//! the guest's memory.

#![expect(
    unsafe_code,
    reason = "copies between the guest's memory and what a client has, both of which others may write"
)]

use bywash_client::{
    Access, Buffer, Completion as VolumeCompletion, Error as Refused, Queue, RequestMemory, SubmitError,
    VolumeId,
};
use bywash_device::{Command, CommandError, Completion, Device, Geometry, Operation, QueueFull, Segment};
use bywash_export::Error;
use rustix::io::Errno;
use slab::Slab;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr;

/// Greatest size of a request, in bytes, if the arena can allocate so much at once.
const TRANSFER_MAX: usize = 4 << 20;
/// Least size of a block, in bytes, that the arena must be able to allocate for a disk.
const TRANSFER_MIN: usize = 64 << 10;
/// Greatest number of segments of a command. QEMU allows its own disks the same number, and Linux adjusts to
/// it.
const SEGMENTS_MAX: usize = 126;
/// Bytes of the greatest command for each segment that a command may have: a smaller arena allows fewer segments.
const SEGMENT_BYTES: usize = 32 << 10;
/// Greatest size of a request to discard or to write zeros, in bytes, since the server works on them in small
/// steps.
const RANGE_MAX: u64 = 1 << 30;
/// Size of a page of the devices' page cache, in bytes.
const PAGE: u32 = 4096;

/// A volume that a queue has opened, as a device. It compares and writes nothing (EOPNOTSUPP).
pub struct OnVolume {
    queue: Queue,
    volume: VolumeId,
    /// The volume as it was opened before its size changed, until no request is in flight that uses it.
    retired: Vec<VolumeId>,
    name: String,
    geometry: Geometry,
    commands: Slab<InFlight>,
    /// Completions of commands that the queue refused for good.
    failed: Vec<Completion>,
    /// Emptied lists of segments, so that a command allocates none.
    spare: Vec<Vec<Segment>>,
    /// Buffers of completed requests, which the next ones use: allocating and freeing one takes more than a copy. At most
    /// [`IDLE_MAX`], each of [`IDLE_BYTES_MAX`] bytes at most; they are freed if the arena is full.
    idle: Vec<Buffer>,
}

/// A command in flight in the queue.
struct InFlight {
    /// Destination of the bytes read over the channel; empty for other commands.
    segments: Vec<Segment>,
    /// Token of the command, and the owner that keeps its segments mapped.
    completion: Completion,
}

impl OnVolume {
    /// Opens the volume `name`, for reading, or for reading and writing.
    ///
    /// # Errors
    /// [`Error::Unfit`] if `access` is write-only, if the server refuses to open the volume, or if the arena
    /// is too small.
    pub fn open(mut queue: Queue, name: &str, access: Access) -> Result<OnVolume, Error> {
        let unfit = |error: Refused| Error::Unfit(error.to_string());
        if access == Access::Write {
            return Err(Error::Unfit(format!("{name} is to be written only; open it to be read as well")));
        }
        let volume = queue.open(name, access).map_err(unfit)?;
        let (bytes, block) = (queue.len(volume).map_err(unfit)?, queue.block(volume).map_err(unfit)?);
        let mut transfer_max = TRANSFER_MAX;
        while let Err(error) = queue.alloc(transfer_max) {
            transfer_max /= 2;
            if transfer_max < TRANSFER_MIN {
                return Err(unfit(error));
            }
        }
        let geometry = Geometry {
            bytes,
            block,
            optimal: block.max(PAGE),
            transfer_max: transfer_max as u64,
            range_max: RANGE_MAX - RANGE_MAX % u64::from(block),
            segments_max: (transfer_max / SEGMENT_BYTES).min(SEGMENTS_MAX),
            access,
        };
        Ok(OnVolume {
            queue,
            volume,
            retired: Vec::new(),
            name: name.to_owned(),
            geometry,
            commands: Slab::new(),
            failed: Vec::new(),
            spare: Vec::new(),
            idle: Vec::new(),
        })
    }

    /// Closes the volume as it was opened before, once all requests have completed.
    #[cold]
    fn close_retired(&mut self) {
        if self.queue.in_flight() == 0 {
            // The grant may have been taken back meanwhile, and is gone then.
            self.retired.drain(..).for_each(|volume| drop(self.queue.close(volume)));
        }
    }

    /// Submits a command of `length` bytes to the queue with `number` as its user data.
    fn hand_over(
        &mut self,
        command: &Command<'_>,
        length: u64,
        is_mapped: bool,
        number: u64,
    ) -> Result<(), SubmitError> {
        let (queue, volume, offset) = (&mut self.queue, self.volume, command.offset());
        let pieces = command.segments().iter().map(|segment| (segment.base(), segment.bytes()));
        match command.operation() {
            // SAFETY: the segments are mapped during this call (by the command's owner, or by the caller of
            // `carry_out`), at other addresses than a volume, and no reference points into them.
            Operation::Read if is_mapped => unsafe { queue.read_to_pieces(volume, offset, pieces, number) },
            Operation::Write | Operation::WriteDurable if is_mapped => {
                // SAFETY: the segments are mapped during this call, as above, at other addresses than a volume. A
                // mapped volume is the server's memory, so its writes need no flush.
                unsafe { queue.write_from_pieces(volume, offset, pieces, number) }
            }
            Operation::Read => {
                let buffer = buffer(queue, &mut self.idle, length as usize)?;
                queue.read(volume, offset, buffer, number)
            }
            operation @ (Operation::Write | Operation::WriteDurable) => {
                let buffer = buffer(queue, &mut self.idle, length as usize)?;
                copy(&buffer, command.segments(), Towards::Arena);
                queue.write(volume, offset, buffer, operation == Operation::WriteDurable, number)
            }
            Operation::Flush => queue.flush(volume, number),
            Operation::Discard => queue.discard(volume, offset, length, number),
            Operation::WriteZeroes => queue.write_zeroes(volume, offset, length, false, number),
            Operation::CompareAndWrite => unreachable!("refused by `submit`"),
        }
    }

    /// Takes a list for the segments of a command, and fills it.
    fn keep(&mut self, segments: &[Segment]) -> Vec<Segment> {
        let mut list = self.spare.pop().unwrap_or_default();
        list.extend_from_slice(segments);
        list
    }

    /// Gives the list of a command's segments back.
    fn give_back(&mut self, mut list: Vec<Segment>) {
        list.clear();
        self.spare.push(list);
    }
}

impl Device for OnVolume {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Opens the volume again, since a grant keeps the size that the volume had. If that fails, as when the volume is not
    /// there any more, nothing changes, and requests fail by the old grant.
    fn refresh(&mut self) -> Geometry {
        let Ok(volume) = self.queue.open(&self.name, self.geometry.access) else { return self.geometry };
        if let Ok(bytes) = self.queue.len(volume) {
            self.geometry.bytes = bytes;
            self.retired.push(std::mem::replace(&mut self.volume, volume));
            self.close_retired();
        }
        self.geometry
    }

    fn submit<'a>(&mut self, command: Command<'a>) -> Result<(), QueueFull<'a>> {
        let checked = match command.operation() {
            Operation::CompareAndWrite => Err(CommandError::Io(Errno::OPNOTSUPP.raw_os_error())),
            _ => command.check(&self.geometry),
        };
        let length = match checked {
            Ok(length) => length,
            Err(error) => {
                self.failed.push(command.done(Err(error)));
                return Ok(());
            }
        };
        let is_mapped = self.queue.is_mapped(self.volume);
        // Other commands need their segments no more when they have been handed over.
        let is_read_later = command.operation() == Operation::Read && !is_mapped;
        let number = self.commands.vacant_key();
        match self.hand_over(&command, length, is_mapped, number as u64) {
            Ok(()) => {
                let segments = self.keep(if is_read_later { command.segments() } else { &[] });
                self.commands.insert(InFlight { segments, completion: command.done(Ok(())) });
            }
            Err(refused) if matches!(refused.error, Refused::Full { .. } | Refused::ArenaFull { .. }) => {
                return Err(QueueFull(command));
            }
            Err(_) => self.failed.push(command.done(Err(FAILED))),
        }
        Ok(())
    }

    /// Carries out a read or write of a mapped volume, which is a copy, if nothing else is in flight.
    fn carry_out(&mut self, command: &Command<'_>) -> Option<Result<(), CommandError>> {
        let moves =
            matches!(command.operation(), Operation::Read | Operation::Write | Operation::WriteDurable);
        if !moves || self.in_flight() > 0 || !self.queue.is_mapped(self.volume) {
            return None;
        }
        let length = match command.check(&self.geometry) {
            Ok(length) => length,
            Err(error) => return Some(Err(error)),
        };
        match self.hand_over(command, length, true, AT_ONCE) {
            // Whether the copy counts, the queue finds out when it is reaped; it is the only request.
            Ok(()) => match self.queue.try_reap() {
                Ok(Some(completion)) => Some(completion.outcome.map_err(|error| reason(&error))),
                Ok(None) | Err(_) => Some(Err(FAILED)),
            },
            // The command is submitted instead.
            Err(_) => None,
        }
    }

    fn reap(&mut self, done: &mut dyn FnMut(Completion)) -> usize {
        let mut count = self.failed.len();
        self.failed.drain(..).for_each(&mut *done);
        while self.queue.in_flight() > 0 {
            // If the server has died, each request that was in flight reports that when it is reaped.
            let Ok(Some(completion)) = self.queue.try_reap() else { break };
            let VolumeCompletion { user_data, outcome, memory: room } = completion;
            let Some(InFlight { segments, completion }) = self.commands.try_remove(user_data as usize) else {
                continue;
            };
            if let Some(RequestMemory::Arena(buffer)) = room {
                if outcome.is_ok() {
                    copy(&buffer, &segments, Towards::Guest);
                }
                if self.idle.len() < IDLE_MAX && buffer.capacity() <= IDLE_BYTES_MAX {
                    self.idle.push(buffer);
                }
            }
            self.give_back(segments);
            done(Completion { result: outcome.map_err(|error| reason(&error)), ..completion });
            count += 1;
        }
        if !self.retired.is_empty() {
            self.close_retired();
        }
        count
    }

    fn arm(&mut self) -> bool {
        // An error means that the queue has ended, which reaping finds out.
        !self.failed.is_empty() || self.queue.arm().unwrap_or(true)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.queue.as_fd())
    }

    fn depth(&self) -> usize {
        self.queue.depth()
    }

    fn in_flight(&self) -> usize {
        self.queue.in_flight() + self.failed.len()
    }

    fn description(&self) -> String {
        let way = if self.queue.is_mapped(self.volume) { "mapped" } else { "over the channel" };
        format!("volume {} of a device server, {way}", self.name)
    }
}

/// Greatest number of buffers that are kept for the next requests.
const IDLE_MAX: usize = 64;
/// Greatest size of a buffer that is kept, in bytes.
const IDLE_BYTES_MAX: usize = 64 << 10;

/// Takes a buffer of this length: the last of `idle` if it is large enough, or else a new one.
fn buffer(queue: &Queue, idle: &mut Vec<Buffer>, length: usize) -> Result<Buffer, Refused> {
    if let Some(mut buffer) = idle.pop()
        && buffer.resize(length)
    {
        return Ok(buffer);
    }
    match queue.alloc(length) {
        Err(Refused::ArenaFull { .. }) if !idle.is_empty() => {
            idle.clear();
            queue.alloc(length)
        }
        allocated => allocated,
    }
}

/// User data of a request that is reaped as soon as it has been submitted.
const AT_ONCE: u64 = u64::MAX;
/// Failure of a command whose reason the client reports in words alone.
const FAILED: CommandError = CommandError::Io(Errno::IO.raw_os_error());

/// Returns the failure of a command, by the client's error.
#[cold]
fn reason(error: &Refused) -> CommandError {
    match error {
        Refused::NoSpace { .. } => CommandError::Io(Errno::NOSPC.raw_os_error()),
        _ => FAILED,
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Towards {
    Arena,
    Guest,
}

/// Copies bytes between a buffer and segments, as many as both have.
fn copy(buffer: &Buffer, segments: &[Segment], towards: Towards) {
    let mut at = 0;
    for segment in segments {
        let bytes = segment.bytes().min(buffer.len() - at);
        let there = buffer.as_ptr().wrapping_add(at);
        // SAFETY: the buffer has `bytes` bytes from `at` on. The command's owner keeps the segment mapped. The
        // arena and the guest's memory do not overlap. The server or the guest may write either meanwhile, so
        // no reference points there, and the copy may mix old and new bytes.
        unsafe {
            match towards {
                Towards::Arena => ptr::copy_nonoverlapping(segment.base().cast_const(), there, bytes),
                Towards::Guest => ptr::copy_nonoverlapping(there.cast_const(), segment.base(), bytes),
            }
        }
        at += bytes;
    }
}
