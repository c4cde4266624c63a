//! Our driver alone: reads are submitted and reaped in a loop, in a process that has the controller.

use super::streams::{offset, rounds};
use super::{
    ADDRESS, BLOCK, LOOKS_MAX, Memory, Offsets, STREAM_BLOCK, STREAMS, WARM_UP, failed, keep, mark, series,
    settle, tell,
};
use crate::error::Error;
use bywash_device::{Command, Device, Operation, Region, RegionId, Segment};
use bywash_nvme::{Address, Nvme, Options, TransferId, Vfio};
use std::sync::Arc;

/// Greatest depth.
const DEPTH_MAX: usize = 32;

/// Reads by the driver: as commands, and as transfers, which are prepared once.
pub fn run(operations: usize) -> Result<(), Error> {
    let mut reader = Reader::open()?;
    for (name, bytes) in [("driver, commands", None), ("driver", Some(BLOCK))] {
        if let Some(bytes) = bytes {
            reader.prepare(DEPTH_MAX, bytes)?;
        }
        let mut offsets = Offsets::new();
        for depth in [1, DEPTH_MAX] {
            series(&format!("{name}; {depth}"))?;
            for number in 0..WARM_UP + operations.div_ceil(depth) {
                reader.read(&offsets.some(depth), BLOCK, number)?;
            }
        }
        reader.memory.check_read(0..DEPTH_MAX * BLOCK)?;
    }
    reader.prepare(STREAMS, STREAM_BLOCK)?;
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
    /// Transfers by which is read, if there are any; commands otherwise.
    transfers: Vec<TransferId>,
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
        Ok(Reader { device, memory, region, transfers: Vec::new() })
    }

    /// Prepares reads of `bytes` bytes, which replace those that were prepared before.
    fn prepare(&mut self, count: usize, bytes: usize) -> Result<(), Error> {
        let Reader { device, memory, region, transfers } = self;
        let refused = || failed("the driver", "it prepares no reads");
        for transfer in transfers.drain(..) {
            device.release(transfer).then_some(()).ok_or_else(refused)?;
        }
        for at in 0..count {
            let region = region.ok_or_else(refused)?;
            let transfer = device.prepare(Operation::Read, region, segment(memory, at, bytes));
            transfers.push(transfer.ok_or_else(refused)?);
        }
        Ok(())
    }

    /// Reads `bytes` bytes at each of the offsets, and counts that: submitting, telling the controller of the reads behind
    /// the first with a `reap`, and taking all completions.
    fn read(&mut self, offsets: &[u64], bytes: usize, number: usize) -> Result<(), Error> {
        match self.transfers.is_empty() {
            true => self.read_by_commands(offsets, bytes, number),
            false => self.read_by_transfers(offsets, number),
        }
    }

    fn read_by_commands(&mut self, offsets: &[u64], bytes: usize, number: usize) -> Result<(), Error> {
        let Reader { device, memory, region, .. } = self;
        let region = *region;
        let reads: Vec<(u64, [Segment; 1])> =
            offsets.iter().enumerate().map(|(at, offset)| (*offset, [segment(memory, at, bytes)])).collect();
        let submit = |device: &mut Nvme<Vfio>| {
            let mut refused = 0;
            for (at, (offset, segments)) in reads.iter().enumerate() {
                let command = Command::read(at as u64, *offset, segments).region(region);
                refused += usize::from(device.submit(command).is_err());
            }
            refused
        };
        counted(device, offsets.len(), number, submit, reap_all)
    }

    fn read_by_transfers(&mut self, offsets: &[u64], number: usize) -> Result<(), Error> {
        let Reader { device, transfers, .. } = self;
        let reads: Vec<(u64, TransferId)> = offsets.iter().copied().zip(transfers.iter().copied()).collect();
        let submit = |device: &mut Nvme<Vfio>| {
            let mut refused = 0;
            for (at, (offset, transfer)) in reads.iter().enumerate() {
                refused += usize::from(!device.submit_transfer(*transfer, at as u64, *offset));
            }
            refused
        };
        if reads.len() > 1 {
            return counted(device, offsets.len(), number, submit, reap_all);
        }
        counted(device, 1, number, submit, |device| match device.reap_one() {
            Some((_, result)) => (1, usize::from(result.is_err())),
            None => (0, 0),
        })
    }
}

#[expect(unsafe_code, reason = "a device is given memory by its address")]
fn segment(memory: &Memory, at: usize, bytes: usize) -> Segment {
    // SAFETY: the pieces lie in memory that the driver keeps mapped, and no reference to their bytes exists.
    unsafe { Segment::new(memory.at(at * bytes), bytes) }
}

/// Takes all completions. Returns their number, and that of those that failed.
#[inline(always)]
fn reap_all(device: &mut Nvme<Vfio>) -> (usize, usize) {
    let (mut done, mut failures) = (0, 0);
    device.reap_each(|completion| {
        done += 1;
        failures += usize::from(completion.result.is_err());
    });
    (done, failures)
}

/// Counts `count` reads, which `submit` submits, and whose completions `reap` takes. `submit` returns the number of reads that
/// were refused, `reap` those of completions and of failures.
#[inline(always)]
fn counted(
    device: &mut Nvme<Vfio>,
    count: usize,
    number: usize,
    submit: impl Fn(&mut Nvme<Vfio>) -> usize,
    reap: impl Fn(&mut Nvme<Vfio>) -> (usize, usize),
) -> Result<(), Error> {
    let (mut done, mut failures) = (0, 0);
    let mut take = |device: &mut Nvme<Vfio>| {
        let (more, failed) = reap(device);
        done += more;
        failures += failed;
        done
    };
    mark::start();
    let refused = submit(device);
    // The controller knows a command that is alone already.
    let mut before = if count > 1 { take(device) } else { 0 };
    mark::stop();
    // Completions that come one after the other would be reaped in more than one round.
    settle();
    let mut looks = 0;
    while before < count && looks < LOOKS_MAX {
        mark::start();
        let now = take(device);
        mark::stop();
        if now == before {
            settle();
        }
        before = now;
        looks += 1;
    }
    if (done, failures, refused) != (count, 0, 0) {
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
