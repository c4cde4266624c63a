//! Our driver alone: commands are made, submitted and reaped in a loop, in a process that has the controller.

use super::streams::{offset, rounds};
use super::{
    ADDRESS, BLOCK, LOOKS_MAX, Memory, Offsets, STREAM_BLOCK, STREAMS, WARM_UP, failed, keep, mark, series,
    settle, tell,
};
use crate::error::Error;
use bywash_device::{Command, Device, Region, RegionId, Segment};
use bywash_nvme::{Address, Nvme, Options, Vfio};
use std::sync::Arc;

/// Greatest depth.
const DEPTH_MAX: usize = 32;

/// Reads by the driver.
pub fn run(operations: usize) -> Result<(), Error> {
    let mut reader = Reader::open()?;
    let mut offsets = Offsets::new();
    for depth in [1, DEPTH_MAX] {
        series(&format!("driver; {depth}"))?;
        for number in 0..WARM_UP + operations.div_ceil(depth) {
            reader.read(&offsets.some(depth), BLOCK, number)?;
        }
    }
    reader.memory.check_read(0..DEPTH_MAX * BLOCK)?;
    series("streams, driver")?;
    for round in 0..WARM_UP + rounds(operations) {
        let some: Vec<u64> = (0..STREAMS).map(|stream| offset(stream, round)).collect();
        reader.read(&some, STREAM_BLOCK, round)?;
    }
    reader.memory.check_read(0..STREAMS * STREAM_BLOCK)?;
    let stats = reader.device.stats();
    if (stats.repeated, stats.resets, stats.aborts, stats.strays) != (0, 0, 0, 0) {
        return Err(failed("the driver", format!("not all went well: {stats:?}")));
    }
    tell(format_args!("copied driver: {}", stats.bytes_copied))
}

struct Reader {
    device: Nvme<Vfio>,
    memory: Arc<Memory>,
    region: Option<RegionId>,
}

impl Reader {
    #[expect(unsafe_code, reason = "a device is given memory by its address")]
    fn open() -> Result<Reader, Error> {
        let address: Address = ADDRESS.parse().map_err(|error| failed("an address", error))?;
        let function = Vfio::open(&address).map_err(|error| failed("VFIO", error))?;
        // As with most real controllers, doorbells are registers; QEMU offers words of memory instead.
        let options = Options { interrupts: false, shadow_doorbells: false, ..Options::default() };
        let mut device = Nvme::open(function, &options).map_err(|error| failed("the driver", error))?;
        let memory = Arc::new(Memory::new(DEPTH_MAX * STREAM_BLOCK)?);
        let pinner = device.pinner().ok_or_else(|| failed("the driver", "it pins no memory"))?;
        // SAFETY: the memory stays mapped as long as its owner lives, and no reference to its bytes exists.
        let region = unsafe { Region::new(memory.at(0), memory.bytes, memory.clone()) };
        let pinned = region.pin(&*pinner).map_err(|error| failed("the driver", error))?;
        let region = device.register(&Arc::new(pinned)).map_err(|error| failed("the driver", error))?;
        Ok(Reader { device, memory, region })
    }

    /// Reads `bytes` bytes at each of the offsets, and counts that: making and submitting the commands, telling the
    /// controller of those behind the first with a `reap`, and taking all completions.
    #[expect(unsafe_code, reason = "a device is given memory by its address")]
    fn read(&mut self, offsets: &[u64], bytes: usize, number: usize) -> Result<(), Error> {
        let Reader { device, memory, region } = self;
        let region = *region;
        // SAFETY: the pieces lie in memory that the driver keeps mapped, and no reference to their bytes exists.
        let segment = |at| [unsafe { Segment::new(memory.at(at * bytes), bytes) }];
        let reads: Vec<(u64, [Segment; 1])> =
            offsets.iter().enumerate().map(|(at, offset)| (*offset, segment(at))).collect();
        let (mut done, mut failures, mut refused) = (0, 0, 0);
        mark::start();
        for (at, (offset, segments)) in reads.iter().enumerate() {
            let command = Command::read(at as u64, *offset, segments).region(region);
            refused += usize::from(device.submit(command).is_err());
        }
        // The controller knows a command that is alone already.
        if offsets.len() > 1 {
            device.reap(&mut |completion| {
                done += 1;
                failures += usize::from(completion.result.is_err());
            });
        }
        mark::stop();
        // Completions that come one after the other would be reaped in more than one round.
        settle();
        let mut looks = 0;
        while done < offsets.len() && looks < LOOKS_MAX {
            let before = done;
            mark::start();
            device.reap(&mut |completion| {
                done += 1;
                failures += usize::from(completion.result.is_err());
            });
            mark::stop();
            if done == before {
                settle();
            }
            looks += 1;
        }
        if (done, failures, refused) != (offsets.len(), 0, 0) {
            return Err(failed("the driver", format!("{done} reads completed, {failures} failed")));
        }
        // Later rounds of reaping are not those of a loop that waits for all.
        if looks > 1 {
            mark::give_up();
            return Ok(());
        }
        keep(number, false);
        Ok(())
    }
}
