//! Our ways to a volume: mapped or by the channel, by calls that wait or by a queue, from the program's own
//! memory or from the channel's.

use super::calls::{Called, Calls, stride};
use super::engine::{Engine, Request, Tag};
use super::workload::{Direction, Workload};
use crate::error::Error;
use bywash_client::{
    Access, Buffer, Client, Completion, Options, PathChoice, Queue, RequestMemory, Volume, VolumeId, Wait,
};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// A volume, and how it is reached.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ours {
    /// Where the server listens.
    pub socket: PathBuf,
    /// The volume's name.
    pub volume: String,
    /// How it is reached.
    pub way: Way,
    /// How completions are waited for.
    pub wait: Waiting,
}

/// How a volume is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Way {
    /// Mapped, by calls.
    MappedCalls,
    /// Mapped, by a queue.
    MappedQueue,
    /// By the channel, by calls: copied through the arena.
    ChannelCalls,
    /// By the channel, by a queue, from and to buffers of the arena.
    Channel,
    /// By the channel, by a queue, from and to the program's own memory: copied through the arena.
    ChannelCopied,
}

/// How completions are waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Waiting {
    /// By looking, for a core of one's own.
    Spin,
    /// By looking for a while, and then by sleeping.
    Adaptive,
    /// By sleeping.
    Sleep,
}

impl Way {
    /// Its name in rows.
    pub fn name(self) -> &'static str {
        match self {
            Way::MappedCalls => "mapped, calls",
            Way::MappedQueue => "mapped, queue",
            Way::ChannelCalls => "channel, calls",
            Way::Channel => "channel, queue",
            Way::ChannelCopied => "channel, queue, user memory",
        }
    }

    /// Whether the memory is mapped: the server is not on the way.
    pub fn is_mapped(self) -> bool {
        matches!(self, Way::MappedCalls | Way::MappedQueue)
    }
}

impl Ours {
    /// Opens it, for requests of `workload`.
    ///
    /// # Errors
    /// What keeps it from being reached so.
    pub fn open(&self, workload: &Workload) -> Result<Box<dyn Engine>, Error> {
        let depth = workload.depth.next_power_of_two() as u32;
        let choice = if self.way.is_mapped() { PathChoice::Mapped } else { PathChoice::Channel };
        let wait = match self.wait {
            Waiting::Spin => Wait::Spin,
            Waiting::Adaptive => Wait::Adaptive,
            Waiting::Sleep => Wait::Sleep,
        };
        // Room for each request, and for what an allocator needs besides.
        let arena_bytes = (2 * stride(workload.block) * workload.depth).max(1 << 20);
        let options = Options::new().choice(choice).wait(wait).depth(depth).arena_bytes(arena_bytes);
        match self.way {
            Way::MappedCalls | Way::ChannelCalls => {
                let client = Client::connect(&self.socket, options).map_err(failed)?;
                let volume = client.open(&self.volume, Access::ReadWrite).map_err(failed)?;
                check_size(volume.len(), workload)?;
                Ok(Box::new(Calls::over(volume, workload)))
            }
            way => {
                let mut queue = Queue::connect(&self.socket, options).map_err(failed)?;
                let volume = queue.open(&self.volume, Access::ReadWrite).map_err(failed)?;
                check_size(queue.len(volume).map_err(failed)?, workload)?;
                Ok(Box::new(Queued::new(queue, volume, way, workload)?))
            }
        }
    }
}

fn failed(error: impl std::fmt::Display) -> Error {
    Error::failed("our server", format!("did not do a request: {error}"))
}

fn check_size(bytes: u64, workload: &Workload) -> Result<(), Error> {
    match bytes >= workload.medium_bytes {
        true => Ok(()),
        false => Err(failed(format!("the volume has {bytes} bytes of {}", workload.medium_bytes))),
    }
}

impl Called for Volume {
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> Result<usize, Error> {
        Volume::read_at(self, bytes, offset).map(|()| bytes.len()).map_err(failed)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<usize, Error> {
        Volume::write_at(self, bytes, offset).map(|()| bytes.len()).map_err(failed)
    }
}

/// By a queue.
struct Queued {
    queue: Queue,
    volume: VolumeId,
    /// Of each tag; none while a request has it.
    rooms: Vec<Option<RequestMemory>>,
}

impl Queued {
    fn new(queue: Queue, volume: VolumeId, way: Way, workload: &Workload) -> Result<Queued, Error> {
        let room = |_| match way {
            Way::Channel => {
                queue.alloc(workload.block).map(|buffer: Buffer| Some(RequestMemory::from(buffer)))
            }
            _ => Ok(Some(RequestMemory::from(vec![0u8; workload.block]))),
        };
        let rooms = (0..workload.depth).map(room).collect::<Result<Vec<_>, _>>().map_err(failed)?;
        Ok(Queued { queue, volume, rooms })
    }

    #[inline]
    fn finish(&mut self, completion: Completion, done: &mut Vec<Tag>) -> Result<(), Error> {
        completion.outcome.map_err(failed)?;
        let tag = completion.user_data as Tag;
        if let Some(room) = completion.memory {
            self.rooms[usize::from(tag)] = Some(room);
        }
        done.push(tag);
        Ok(())
    }

    fn room(&self, tag: Tag) -> &RequestMemory {
        self.rooms[usize::from(tag)].as_ref().expect("nothing is under way of this tag")
    }
}

impl Engine for Queued {
    fn submit(&mut self, request: Request) -> Result<(), Error> {
        let Request { tag, direction, offset } = request;
        let place = &mut self.rooms[usize::from(tag)];
        let given = match (direction, place.take()) {
            (_, None) => return Err(failed(format!("tag {tag} is under way twice"))),
            (Direction::Read, Some(room)) => self.queue.read(self.volume, offset, room, tag.into()),
            (Direction::Write, Some(RequestMemory::Arena(buffer))) => {
                self.queue.write(self.volume, offset, buffer, false, tag.into())
            }
            (Direction::Write, Some(RequestMemory::Own(bytes))) => {
                let given = self.queue.write_from(self.volume, offset, &bytes, false, tag.into());
                *place = Some(RequestMemory::Own(bytes));
                given
            }
        };
        given.map_err(failed)
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
        let written = match self.rooms[usize::from(tag)].as_mut() {
            Some(RequestMemory::Arena(buffer)) => buffer.write(0, bytes),
            Some(RequestMemory::Own(room)) => {
                room.copy_from_slice(bytes);
                bytes.len()
            }
            None => 0,
        };
        assert_eq!(written, bytes.len(), "a buffer of tag {tag}");
    }

    fn copy_out(&self, tag: Tag, bytes: &mut [u8]) {
        let read = self.room(tag).read(0, bytes);
        assert_eq!(read, bytes.len(), "a buffer of tag {tag}");
    }
}
