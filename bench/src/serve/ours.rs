//! Engines over a volume of our server: mapped or through the channel, by calls that wait or by a queue, from the program's
//! own memory or from the channel's.

use super::file::{Calls, stride};
use super::workload::{Direction, Engine, Request, Tag, Workload};
use crate::error::Error;
use bywash_client::{Access, Client, Completion, Options, PathChoice, Queue, RequestMemory, VolumeId, Wait};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use vm_memory::VolatileSlice;

/// Greatest time of a request: a disk that other programs use may take seconds. It is less than a client's process has, so
/// that the reason is told.
const REPLY_TIMEOUT: Duration = Duration::from_secs(25);

/// Access path to a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Path {
    MappedCalls,
    MappedQueue,
    /// Through the channel by calls, which copy through the arena.
    ChannelCalls,
    /// Through the channel by a queue, with buffers of the arena.
    Channel,
    /// Through the channel by a queue, with the program's own memory, which is copied through the arena.
    ChannelCopied,
}

impl Path {
    pub fn name(self) -> &'static str {
        match self {
            Path::MappedCalls => "mapped, calls",
            Path::MappedQueue => "mapped, queue",
            Path::ChannelCalls => "channel, calls",
            Path::Channel => "channel, queue",
            Path::ChannelCopied => "channel, queue, user memory",
        }
    }

    /// Returns whether the client accesses the volume's memory itself.
    pub fn is_mapped(self) -> bool {
        matches!(self, Path::MappedCalls | Path::MappedQueue)
    }

    /// Opens a volume of the server at `socket` for requests of `workload`.
    pub fn open(
        self,
        socket: &std::path::Path,
        volume: &str,
        wait: Wait,
        workload: &Workload,
    ) -> Result<Box<dyn Engine>, Error> {
        let options = Options::new()
            .limit(REPLY_TIMEOUT)
            .choice(if self.is_mapped() { PathChoice::Mapped } else { PathChoice::Channel })
            .wait(wait)
            .depth(workload.depth.next_power_of_two() as u32)
            // Room for each request, and for the allocator.
            .arena_bytes((2 * stride(workload.block) * workload.depth).max(1 << 20));
        if matches!(self, Path::MappedCalls | Path::ChannelCalls) {
            let client = Client::connect(socket, options).map_err(failed)?;
            let volume = client.open(volume, Access::ReadWrite).map_err(failed)?;
            workload.check_size(volume.len())?;
            return Ok(Box::new(Calls::new(workload, move |direction, bytes, offset| {
                let moved = match direction {
                    Direction::Read => volume.read_at(bytes, offset),
                    Direction::Write => volume.write_at(bytes, offset),
                };
                moved.map(|()| bytes.len()).map_err(failed)
            })));
        }
        let mut queue = Queue::connect(socket, options).map_err(failed)?;
        let volume = queue.open(volume, Access::ReadWrite).map_err(failed)?;
        workload.check_size(queue.len(volume).map_err(failed)?)?;
        let buffer = |_| match self {
            Path::Channel => queue.alloc(workload.block).map(RequestMemory::from),
            _ => Ok(RequestMemory::from(vec![0u8; workload.block])),
        };
        let buffers = (0..workload.depth).map(|tag| buffer(tag).map(Some)).collect::<Result<_, _>>();
        Ok(Box::new(Queued { buffers: buffers.map_err(failed)?, queue, volume }))
    }
}

fn failed(error: impl std::fmt::Display) -> Error {
    Error::failed("our server", format!("did not carry a request out: {error}"))
}

/// Engine of a queue.
struct Queued {
    queue: Queue,
    volume: VolumeId,
    /// Buffers of the tags; a request in flight has its own.
    buffers: Vec<Option<RequestMemory>>,
}

impl Queued {
    #[inline]
    fn finish(&mut self, completion: Completion, done: &mut Vec<Tag>) -> Result<(), Error> {
        completion.outcome.map_err(failed)?;
        let tag = completion.user_data as Tag;
        if let Some(buffer) = completion.memory {
            self.buffers[usize::from(tag)] = Some(buffer);
        }
        done.push(tag);
        Ok(())
    }
}

impl Engine for Queued {
    fn submit(&mut self, request: Request) -> Result<(), Error> {
        let Request { tag, direction, offset } = request;
        let slot = &mut self.buffers[usize::from(tag)];
        let submitted = match (direction, slot.take()) {
            (_, None) => return Err(failed(format!("tag {tag} is in flight twice"))),
            (Direction::Read, Some(buffer)) => self.queue.read(self.volume, offset, buffer, tag.into()),
            (Direction::Write, Some(RequestMemory::Arena(buffer))) => {
                self.queue.write(self.volume, offset, buffer, false, tag.into())
            }
            (Direction::Write, Some(RequestMemory::Own(bytes))) => {
                let submitted = self.queue.write_from(self.volume, offset, &bytes, false, tag.into());
                *slot = Some(RequestMemory::Own(bytes));
                submitted
            }
        };
        submitted.map_err(failed)
    }

    fn reap(&mut self, least: usize, done: &mut Vec<Tag>) -> Result<(), Error> {
        let before = done.len();
        if least > 1 {
            self.queue.wait_for(least, self.queue.limit()).map_err(failed)?;
        }
        loop {
            match self.queue.try_reap().map_err(failed)? {
                Some(completion) => self.finish(completion, done)?,
                None if done.len() > before => return Ok(()),
                None => {
                    let completion = self.queue.reap().map_err(failed)?;
                    self.finish(completion, done)?;
                }
            }
        }
    }

    #[expect(unsafe_code, reason = "a buffer of the arena is an address")]
    fn buffer(&mut self, tag: Tag) -> VolatileSlice<'_> {
        match self.buffers[usize::from(tag)].as_mut().expect("the tag is not in flight") {
            // SAFETY: the arena has so many bytes there as long as the buffer lives, and no reference to them exists.
            RequestMemory::Arena(buffer) => unsafe { VolatileSlice::new(buffer.as_ptr(), buffer.len()) },
            RequestMemory::Own(bytes) => bytes.as_mut_slice().into(),
        }
    }
}
