//! Our server with the controller, which polls without end, and a client of it by the channel.

use super::batches::{Batches, DEPTHS, Path, run_first};
use super::{ADDRESS, BLOCK, DISK_BYTES, failed, tell};
use crate::error::Error;
use bywash_client::{Access, Client, NewVolume, PathChoice, Queue, RequestMemory};
use bywash_nvme::{Address, Nvme, Vfio};
use bywash_server::{NewBlocks, OpenDevice, Server, Timeouts};
use std::time::Duration;

pub(super) const SOCKET: &str = "/tmp/bench.socket";
/// Name and size in bytes of the volume.
pub(super) const NAME: &str = "data";
pub(super) const VOLUME: u64 = DISK_BYTES / 4;
/// Greatest number of rounds until the client's memory is mapped for the controller.
const MAPPING_ROUNDS_MAX: usize = 200;

/// Serves the controller until this process is killed.
pub fn serve() -> Result<(), Error> {
    let server = start()?;
    tell("serving")?;
    last(&server)
}

/// Starts a server with the controller, and a volume.
pub(super) fn start() -> Result<Server, Error> {
    let address: Address = ADDRESS.parse().map_err(|error| failed("an address", error))?;
    let function = Vfio::open(&address).map_err(|error| failed("VFIO", error))?;
    let options = bywash_nvme::Options { interrupts: false, ..bywash_nvme::Options::default() };
    let device = Nvme::open(function, &options).map_err(|error| failed("the driver", error))?;
    let disk = OpenDevice {
        name: "disk".into(),
        device: Box::new(device),
        contents: NewBlocks::Cleared,
        is_volatile: true,
    };
    let options = bywash_server::Options::new(SOCKET).timeouts(Timeouts::default().poll(None));
    let server = Server::with_devices(options, vec![disk]).map_err(|error| failed("the server", error))?;
    let volume = NewVolume::new(NAME, "disk", VOLUME);
    administrator()?.create(volume).map_err(|error| failed("a volume", error))?;
    Ok(server)
}

/// Waits as long as the server runs.
pub(super) fn last(server: &Server) -> Result<(), Error> {
    while server.is_running() {
        std::thread::sleep(Duration::from_secs(1));
    }
    Err(failed("the server", "it has stopped"))
}

fn administrator() -> Result<Client, Error> {
    Client::connect(SOCKET, bywash_client::Options::new()).map_err(|error| failed("the client", error))
}

/// Reads through the channel.
pub fn client(operations: usize) -> Result<(), Error> {
    let (mut channel, mut batches) = (Channel::connect()?, Batches::new(VOLUME));
    channel.wait_until_mapped(&mut batches)?;
    run_first()?;
    let copied = channel.copied()?;
    batches.run("channel", &mut channel, operations)?;
    tell(format_args!("copied channel: {}", channel.copied()? - copied))
}

struct Channel {
    administrator: Client,
    queue: Queue,
    volume: bywash_client::VolumeId,
    buffers: Vec<Option<RequestMemory>>,
}

impl Channel {
    fn connect() -> Result<Channel, Error> {
        let no = |error: bywash_client::Error| failed("the client", error);
        let depth = DEPTHS[1];
        let options = bywash_client::Options::new().choice(PathChoice::Channel);
        let mut queue =
            Queue::connect(SOCKET, options.depth(depth as u32).arena_bytes(1 << 20)).map_err(no)?;
        let volume = queue.open(NAME, Access::ReadWrite).map_err(no)?;
        let buffer = |_| queue.alloc(BLOCK).map(|buffer| Some(RequestMemory::from(buffer))).map_err(no);
        let buffers = (0..depth).map(buffer).collect::<Result<_, _>>()?;
        Ok(Channel { administrator: administrator()?, queue, volume, buffers })
    }

    /// Returns the number of bytes that the server's device has copied, from its description.
    fn copied(&self) -> Result<u64, Error> {
        let status = self.administrator.status().map_err(|error| failed("the client", error))?;
        let how = status.devices.first().map(|device| device.how.clone()).unwrap_or_default();
        let copied = how.split_once("polling; ").map(|(_, rest)| rest.split(' ').next().unwrap_or_default());
        copied.map_or(Ok(0), |copied| copied.parse().map_err(|_| failed("the server", &how)))
    }

    /// Reads until nothing is copied any more: the client's memory is mapped for the controller.
    fn wait_until_mapped(&mut self, batches: &mut Batches) -> Result<(), Error> {
        for _ in 0..MAPPING_ROUNDS_MAX {
            let before = self.copied()?;
            for _ in 0..8 {
                batches.read(self, DEPTHS[1], 0)?;
            }
            if before > 0 && self.copied()? == before {
                return Ok(());
            }
        }
        Err(failed("the server", "it does not map the client's memory"))
    }
}

impl Path for Channel {
    #[inline(always)]
    fn submit(&mut self, tag: usize, offset: u64) -> bool {
        let Some(buffer) = self.buffers[tag].take() else { return false };
        self.queue.read(self.volume, offset, buffer, tag as u64).is_ok()
    }

    /// Does nothing: a request is published when it is submitted.
    #[inline(always)]
    fn publish(&mut self) -> Result<(), Error> {
        Ok(())
    }

    #[inline(always)]
    fn reap(&mut self) -> Result<usize, Error> {
        let reaped = self.queue.try_reap().map_err(|error| failed("the client", error))?;
        let Some(completion) = reaped else { return Ok(0) };
        completion.outcome.map_err(|error| failed("a request", error))?;
        self.buffers[completion.user_data as usize] = completion.memory;
        Ok(1)
    }
}
