//! Our server with the controller, which polls without end, and a client that is another process on the same processor.
//!
//! The client runs before the server whenever it can (SCHED_FIFO). It sleeps after a submission, and is awake again when
//! everything has completed; so it never looks for a completion in vain. Its sleep is a window in which the plugin cuts the
//! server's instructions at each PAUSE: the host takes the cuts in which the server did something.

use super::{
    ADDRESS, BLOCK, DISK_BYTES, LOOKS_MAX, Offsets, WARM_UP, failed, keep, mark, series, settle, tell,
};
use crate::error::Error;
use bywash_client::{Access, Client, NewVolume, PathChoice, Queue, RequestMemory};
use bywash_nvme::{Address, Nvme, Vfio};
use bywash_server::{NewBlocks, OpenDevice, Server, Timeouts};
use std::time::Duration;

const SOCKET: &str = "/tmp/bench.socket";
/// Size of the volume, in bytes.
const VOLUME: u64 = DISK_BYTES / 4;
/// Depths at which the client reads.
const DEPTHS: [usize; 2] = [1, 32];
/// Time that the server has for a batch of requests at first, and at most.
const WINDOW: Duration = Duration::from_micros(250);
const WINDOW_MAX: Duration = Duration::from_millis(20);
/// Greatest number of rounds until the client's memory is mapped for the controller.
const MAPPING_ROUNDS_MAX: usize = 200;

/// Serves the controller until this process is killed.
pub fn serve() -> Result<(), Error> {
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
    tell("serving")?;
    loop {
        std::thread::sleep(Duration::from_secs(1));
        if !server.is_running() {
            return Err(failed("the server", "it has stopped"));
        }
    }
}

/// Reads through the channel.
pub fn client(operations: usize) -> Result<(), Error> {
    let mut reader = Reader::connect()?;
    reader.wait_until_mapped()?;
    run_first()?;
    let copied = reader.copied()?;
    for depth in DEPTHS {
        reader.window = WINDOW;
        series(&format!("channel; {depth}"))?;
        for number in 0..WARM_UP + operations.div_ceil(depth) {
            reader.read(depth, number)?;
        }
    }
    tell(format_args!("copied channel: {}", reader.copied()? - copied))
}

/// Has this process run before all others whenever it can.
#[expect(unsafe_code, reason = "a system call that reads a structure")]
fn run_first() -> Result<(), Error> {
    let priority = libc::sched_param { sched_priority: 1 };
    // SAFETY: the call reads the structure.
    match unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const priority) } {
        0 => Ok(()),
        _ => Err(failed("sched_setscheduler", std::io::Error::last_os_error())),
    }
}

struct Reader {
    administrator: Client,
    queue: Queue,
    volume: bywash_client::VolumeId,
    buffers: Vec<Option<RequestMemory>>,
    offsets: Offsets,
    /// Time that the server has for a batch of requests.
    window: Duration,
}

impl Reader {
    fn connect() -> Result<Reader, Error> {
        let no = |error: bywash_client::Error| failed("the client", error);
        let options = || bywash_client::Options::new().choice(PathChoice::Channel);
        let administrator = Client::connect(SOCKET, options()).map_err(no)?;
        administrator.create(NewVolume::new("data", "disk", VOLUME)).map_err(no)?;
        let depth = DEPTHS[1];
        let mut queue =
            Queue::connect(SOCKET, options().depth(depth as u32).arena_bytes(1 << 20)).map_err(no)?;
        let volume = queue.open("data", Access::ReadWrite).map_err(no)?;
        let buffer = |_| queue.alloc(BLOCK).map(|buffer| Some(RequestMemory::from(buffer))).map_err(no);
        let buffers = (0..depth).map(buffer).collect::<Result<_, _>>()?;
        Ok(Reader { administrator, queue, volume, buffers, offsets: Offsets::new(), window: WINDOW })
    }

    /// Returns the number of bytes that the server's device has copied, from its description.
    fn copied(&self) -> Result<u64, Error> {
        let status = self.administrator.status().map_err(|error| failed("the client", error))?;
        let how = status.devices.first().map(|device| device.how.clone()).unwrap_or_default();
        let copied = how.split_once("polling; ").map(|(_, rest)| rest.split(' ').next().unwrap_or_default());
        copied.map_or(Ok(0), |copied| copied.parse().map_err(|_| failed("the server", &how)))
    }

    /// Reads until nothing is copied any more: the client's memory is mapped for the controller.
    fn wait_until_mapped(&mut self) -> Result<(), Error> {
        for _ in 0..MAPPING_ROUNDS_MAX {
            let before = self.copied()?;
            for _ in 0..8 {
                self.read(DEPTHS[1], 0)?;
            }
            if before > 0 && self.copied()? == before {
                return Ok(());
            }
        }
        Err(failed("the server", "it does not map the client's memory"))
    }

    /// Reads at so many offsets, and counts that.
    fn read(&mut self, depth: usize, number: usize) -> Result<(), Error> {
        let some: Vec<u64> = self.offsets.some(depth).iter().map(|offset| offset % VOLUME).collect();
        let (mut refused, mut done) = (false, 0);
        mark::start();
        for (tag, offset) in some.iter().enumerate() {
            refused |= !self.submit(tag, *offset);
        }
        mark::stop();
        mark::open();
        std::thread::sleep(self.window);
        mark::close();
        let mut looks = 0;
        while done < depth && looks < LOOKS_MAX && !refused {
            mark::start();
            while done < depth && self.reap()? {
                done += 1;
            }
            mark::stop();
            looks += 1;
            if done < depth {
                settle();
            }
        }
        if refused || done < depth {
            return Err(failed("the client", format!("{done} of {depth} requests completed")));
        }
        // Looks in vain are not counted.
        if looks > 1 {
            mark::give_up();
            self.window = (2 * self.window).min(WINDOW_MAX);
            return Ok(());
        }
        keep(number, false);
        Ok(())
    }

    #[inline(always)]
    fn submit(&mut self, tag: usize, offset: u64) -> bool {
        let Some(buffer) = self.buffers[tag].take() else { return false };
        self.queue.read(self.volume, offset, buffer, tag as u64).is_ok()
    }

    /// Takes a completion. Returns false if there is none.
    #[inline(always)]
    fn reap(&mut self) -> Result<bool, Error> {
        let reaped = self.queue.try_reap().map_err(|error| failed("the client", error))?;
        let Some(completion) = reaped else { return Ok(false) };
        completion.outcome.map_err(|error| failed("a request", error))?;
        self.buffers[completion.user_data as usize] = completion.memory;
        Ok(true)
    }
}
