//! Engines over a volume of our server: mapped or through the channel, by calls that wait or by a queue, from the program's
//! own memory or from the channel's.

use super::file::{Called, Calls, stride};
use super::workload::{Direction, Engine, Request, Tag, Workload};
use crate::error::Error;
use bywash_client::{
    Access, Buffer, Client, Completion, Options, PathChoice, Queue, RequestMemory, Volume, VolumeId, Wait,
};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Volume and access path.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ours {
    /// Socket that the server listens on.
    pub socket: PathBuf,
    /// Name of the volume.
    pub volume: String,
    pub path: Path,
    pub wait: Waiting,
}

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

/// Strategy of a client that waits for completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Waiting {
    /// By spinning, on a core of its own.
    Spin,
    Adaptive,
    Sleep,
}

impl Path {
    /// Name in rows.
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
}

impl Ours {
    /// Opens the volume for requests of `workload`.
    ///
    /// # Errors
    /// [`Error::Failed`] if the server refuses, or the volume is too small.
    pub fn open(&self, workload: &Workload) -> Result<Box<dyn Engine>, Error> {
        let wait = match self.wait {
            Waiting::Spin => Wait::Spin,
            Waiting::Adaptive => Wait::Adaptive,
            Waiting::Sleep => Wait::Sleep,
        };
        let options = Options::new()
            .choice(if self.path.is_mapped() { PathChoice::Mapped } else { PathChoice::Channel })
            .wait(wait)
            .depth(workload.depth.next_power_of_two() as u32)
            // Room for each request, and for the allocator.
            .arena_bytes((2 * stride(workload.block) * workload.depth).max(1 << 20));
        let check = |bytes: u64| match bytes >= workload.medium_bytes {
            true => Ok(()),
            false => Err(failed(format!("the volume has {bytes} bytes of {}", workload.medium_bytes))),
        };
        if matches!(self.path, Path::MappedCalls | Path::ChannelCalls) {
            let client = Client::connect(&self.socket, options).map_err(failed)?;
            let volume = client.open(&self.volume, Access::ReadWrite).map_err(failed)?;
            check(volume.len())?;
            return Ok(Box::new(Calls::new(volume, workload)));
        }
        let mut queue = Queue::connect(&self.socket, options).map_err(failed)?;
        let volume = queue.open(&self.volume, Access::ReadWrite).map_err(failed)?;
        check(queue.len(volume).map_err(failed)?)?;
        let buffer = |_| match self.path {
            Path::Channel => {
                queue.alloc(workload.block).map(|buffer: Buffer| Some(RequestMemory::from(buffer)))
            }
            _ => Ok(Some(RequestMemory::from(vec![0u8; workload.block]))),
        };
        let buffers = (0..workload.depth).map(buffer).collect::<Result<Vec<_>, _>>().map_err(failed)?;
        Ok(Box::new(Queued { queue, volume, buffers }))
    }
}

fn failed(error: impl std::fmt::Display) -> Error {
    Error::failed("our server", format!("did not carry a request out: {error}"))
}

impl Called for Volume {
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> Result<usize, Error> {
        Volume::read_at(self, bytes, offset).map(|()| bytes.len()).map_err(failed)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<usize, Error> {
        Volume::write_at(self, bytes, offset).map(|()| bytes.len()).map_err(failed)
    }
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

    fn fill(&mut self, tag: Tag, bytes: &[u8]) {
        let written = match self.buffers[usize::from(tag)].as_mut() {
            Some(RequestMemory::Arena(buffer)) => buffer.write(0, bytes),
            Some(RequestMemory::Own(buffer)) => {
                buffer.copy_from_slice(bytes);
                bytes.len()
            }
            None => 0,
        };
        assert_eq!(written, bytes.len(), "the buffer of tag {tag} holds a block");
    }

    fn copy_out(&self, tag: Tag, bytes: &mut [u8]) {
        let read = self.buffers[usize::from(tag)].as_ref().map_or(0, |buffer| buffer.read(0, bytes));
        assert_eq!(read, bytes.len(), "the buffer of tag {tag} holds a block");
    }
}
