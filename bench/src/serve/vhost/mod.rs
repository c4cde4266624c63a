//! A client of a vhost-user-blk server, at user level: it makes requests in memory that the server maps, and
//! polls for their completion.
//!
//! - `queue`: the virtqueue, and what a request looks like in it
//! - `daemon`: a server that nobody here wrote, qemu-storage-daemon

mod daemon;
mod queue;

pub use daemon::{Daemon, Reach};

use super::engine::{Engine, Request, Tag};
use super::workload::Workload;
use crate::error::Error;
use queue::Queue;
use rustix::thread::sched_yield;
use std::hint::spin_loop;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::{Duration, Instant};
use vhost::vhost_user::message::{VhostUserConfigFlags, VhostUserProtocolFeatures, VhostUserVirtioFeatures};
use vhost::vhost_user::{Frontend, VhostUserFrontend};
use vhost::{VhostBackend, VhostUserMemoryRegionInfo, VringConfigData};
use virtio_bindings::virtio_config::VIRTIO_F_VERSION_1;
use virtio_bindings::virtio_ring::VIRTIO_RING_F_EVENT_IDX;
use vm_memory::{Bytes, MmapRegion, VolatileMemory};
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

/// The queue that is used.
const QUEUE: usize = 0;
/// How often a client looks before it lets others have the core.
const SPINS: u32 = 2000;
/// After so long without an answer the server is kicked once more: QEMU's libvhost-user says when it wants to
/// be kicked, and then looks for more requests, without a full barrier between (`vu_queue_pop`), so that it
/// may miss one.
const KICK_AGAIN: Duration = Duration::from_millis(2);
/// The longest that a request may take.
const LIMIT: Duration = Duration::from_secs(10);

/// A medium behind a vhost-user-blk server.
pub struct VhostUser {
    queue: Queue,
    kick: EventFd,
    /// Signalled for no request, as the driver asks for that; the server wants to have one.
    #[cfg_attr(not(test), expect(dead_code, reason = "it has to stay open"))]
    call: EventFd,
    _frontend: Frontend,
    in_flight: usize,
    block: usize,
}

impl VhostUser {
    /// Connects to the server at `socket`, for requests of `workload`.
    ///
    /// # Errors
    /// That there is no server, or that it does not offer what is needed, or a smaller medium.
    pub fn connect(socket: &Path, workload: &Workload) -> Result<VhostUser, Error> {
        let queue = Queue::new(workload.depth, workload.block)?;
        let event =
            || EventFd::new(EFD_NONBLOCK).map_err(|error| Error::io("make an eventfd for", socket, error));
        let (kick, call) = (event()?, event()?);
        let mut frontend = Frontend::connect(socket, 1).map_err(|error| refused(socket, error))?;
        greet(&mut frontend, workload.medium_bytes)
            .and_then(|()| start(&mut frontend, &queue, &kick, &call))
            .map_err(|error| refused(socket, error))?;
        Ok(VhostUser { queue, kick, call, _frontend: frontend, in_flight: 0, block: workload.block })
    }

    fn publish(&mut self) -> Result<(), Error> {
        if self.queue.publish() { self.kick() } else { Ok(()) }
    }

    fn kick(&self) -> Result<(), Error> {
        self.kick.write(1).map_err(|error| Error::failed("the server", format!("cannot be woken: {error}")))
    }
}

fn refused(socket: &Path, error: impl std::fmt::Display) -> Error {
    Error::failed("the server", format!("at {}: {error}", socket.display()))
}

/// What both sides can do, and whether the medium is large enough.
fn greet(frontend: &mut Frontend, medium_bytes: u64) -> Result<(), Box<dyn std::error::Error>> {
    let protocol = VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits();
    let wanted = 1 << VIRTIO_F_VERSION_1 | 1 << VIRTIO_RING_F_EVENT_IDX | protocol;
    frontend.set_owner()?;
    let offered = frontend.get_features()?;
    if offered & wanted != wanted {
        return Err(format!("offers the features {offered:#x} and not all of {wanted:#x}").into());
    }
    let offered = frontend.get_protocol_features()?;
    if !offered.contains(VhostUserProtocolFeatures::CONFIG) {
        return Err("does not tell how large its medium is".into());
    }
    frontend.set_protocol_features(VhostUserProtocolFeatures::CONFIG)?;
    // The configuration begins with the capacity in sectors (section 5.2.4).
    let (_, config) = frontend.get_config(0, 8, VhostUserConfigFlags::empty(), &[0; 8])?;
    let capacity = config.first_chunk::<8>().map_or(0, |bytes| u64::from_le_bytes(*bytes)) * 512;
    if capacity < medium_bytes {
        return Err(format!("has {capacity} bytes of {medium_bytes}").into());
    }
    frontend.set_features(wanted)?;
    Ok(())
}

/// Hands over the queue.
fn start(
    frontend: &mut Frontend,
    queue: &Queue,
    kick: &EventFd,
    call: &EventFd,
) -> Result<(), Box<dyn std::error::Error>> {
    let (memory, places) = (queue.memory(), queue.places());
    frontend.set_mem_table(&[region(memory)?])?;
    frontend.set_vring_num(QUEUE, places.size)?;
    frontend.set_vring_base(QUEUE, 0)?;
    // Of the rings the protocol has addresses of this process, which are in the table of memory too.
    let at = |offset: usize| memory.as_ptr() as u64 + offset as u64;
    let rings = VringConfigData {
        queue_max_size: places.size,
        queue_size: places.size,
        flags: 0,
        desc_table_addr: at(0),
        used_ring_addr: at(places.used),
        avail_ring_addr: at(places.available),
        log_addr: None,
    };
    frontend.set_vring_addr(QUEUE, &rings)?;
    frontend.set_vring_call(QUEUE, call)?;
    frontend.set_vring_kick(QUEUE, kick)?;
    frontend.set_vring_enable(QUEUE, true)?;
    Ok(())
}

fn region(memory: &MmapRegion) -> Result<VhostUserMemoryRegionInfo, Box<dyn std::error::Error>> {
    let file = memory.file_offset().ok_or("memory without a descriptor")?;
    Ok(VhostUserMemoryRegionInfo {
        guest_phys_addr: 0,
        memory_size: memory.size() as u64,
        userspace_addr: memory.as_ptr() as u64,
        mmap_offset: file.start(),
        mmap_handle: file.file().as_raw_fd(),
    })
}

impl Engine for VhostUser {
    fn submit(&mut self, request: Request) -> Result<(), Error> {
        self.queue.push(request);
        self.in_flight += 1;
        Ok(())
    }

    fn reap(&mut self, _: usize, done: &mut Vec<Tag>) -> Result<(), Error> {
        self.publish()?;
        let before = done.len();
        let mut turns = 0u32;
        let mut waiting: Option<(Instant, Duration)> = None;
        loop {
            self.queue.take(done)?;
            if done.len() > before {
                self.in_flight -= done.len() - before;
                return Ok(());
            }
            turns += 1;
            if turns < SPINS {
                spin_loop();
                continue;
            }
            turns = 0;
            let (since, next_kick) = waiting.get_or_insert_with(|| (Instant::now(), KICK_AGAIN));
            let waited = since.elapsed();
            if waited > LIMIT {
                let in_flight = self.in_flight;
                let how = format!("has not answered one of {in_flight} requests for {} s", LIMIT.as_secs());
                return Err(Error::failed("the server", how));
            }
            if waited > *next_kick {
                *next_kick = waited + KICK_AGAIN;
                self.kick()?;
            }
            sched_yield();
        }
    }

    fn fill(&mut self, tag: Tag, bytes: &[u8]) {
        assert!(bytes.len() <= self.block, "{} bytes in a block of {}", bytes.len(), self.block);
        let written = self.queue.memory().as_volatile_slice().write(bytes, self.queue.buffer(tag));
        assert_eq!(written.ok(), Some(bytes.len()), "a buffer of tag {tag}");
    }

    fn copy_out(&self, tag: Tag, bytes: &mut [u8]) {
        let read = self.queue.memory().as_volatile_slice().read(bytes, self.queue.buffer(tag));
        assert_eq!(read.ok(), Some(bytes.len()), "a buffer of tag {tag}");
    }
}

#[cfg(test)]
mod tests {
    use super::super::engine::tests::{holds_what_was_written, workload};
    use super::super::workload::Until;
    use super::*;
    use std::fs;

    const BYTES: u64 = 1 << 20;
    const REACHES: [(usize, usize, Reach); 3] = [
        (1, 512, Reach { is_direct: false, aio: "threads", core: None }),
        (32, 4096, Reach { is_direct: false, aio: "io_uring", core: None }),
        (128, 4096, Reach { is_direct: false, aio: "threads", core: Some(0) }),
    ];

    /// Through the server, and then by the file that it serves; without the server its absence has to be
    /// named.
    #[test]
    fn what_was_written_is_in_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        for (depth, block, reach) in REACHES {
            fs::write(&file, vec![0xeeu8; BYTES as usize]).unwrap();
            let daemon = match Daemon::start(std::slice::from_ref(&file), folder.path(), reach) {
                Ok(daemon) => daemon,
                Err(error) => return assert!(error.is_absence(), "{error}"),
            };
            let workload = Workload { block, medium_bytes: BYTES, ..workload(depth, Until::Requests(1)) };
            let mut client = VhostUser::connect(&daemon.sockets()[0], &workload).unwrap();
            holds_what_was_written(&mut client, block, BYTES, depth);
            // It signals when it begins, whatever it was told, and for none of the 300 to 600 requests.
            let signals = client.call.read().unwrap_or(0);
            assert!(signals <= 4, "{signals} signals");
            drop(client);
            let (seen, last) = (fs::read(&file).unwrap(), (BYTES as usize / block).min(300) - 1);
            for number in [0, 1, last] {
                let word = seen[number * block..].first_chunk::<8>().unwrap();
                assert_eq!(u64::from_le_bytes(*word), number as u64 * 0x0101_0101 + 77, "block {number}");
            }
            let untouched = &seen[(last + 1) * block..];
            assert!(untouched.iter().all(|byte| *byte == 0xee));
            drop(daemon);
        }
    }

    #[test]
    fn a_medium_that_is_too_small_and_a_server_that_dies_are_errors() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, vec![0u8; BYTES as usize]).unwrap();
        let daemon = match Daemon::start(&[file], folder.path(), Reach::default()) {
            Ok(daemon) => daemon,
            Err(error) => return assert!(error.is_absence(), "{error}"),
        };
        let socket = daemon.sockets()[0].clone();
        let large = Workload { medium_bytes: BYTES + 512, ..workload(1, Until::Requests(1)) };
        let error = VhostUser::connect(&socket, &large).err().unwrap().to_string();
        assert!(error.contains("has 1048576 bytes of 1049088"), "{error}");
        drop(daemon);
        assert!(VhostUser::connect(&socket, &workload(1, Until::Requests(1))).is_err());
    }
}
