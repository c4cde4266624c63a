//! A client that our server has granted a virtual function of a controller: it reads by the client library, and neither the
//! server nor the kernel takes part.

use super::batches::DEPTHS;
use super::channel::last;
use super::streams::{offset, rounds};
use super::{
    BLOCK, DISK_BYTES, LOOKS_MAX, Offsets, PRIMARY, STREAM_BLOCK, STREAMS, WARM_UP, failed, keep, mark,
    series, settle, tell,
};
use crate::error::{Attempt, Error};
use bywash_client::{
    Access, Client, Completion, NewVolume, PathChoice, Queue, RequestMemory, TransferId, TransferKind,
};
use bywash_device::Spec;
use bywash_nvme::DEVICE_KIND;
use bywash_server::{LimitsFile, Server};
use std::fs;
use std::path::Path;

const SOCKET: &str = "/tmp/bench.grant";
/// File of the users whom the server trusts.
const LIMITS: &str = "/tmp/bench.limits";
/// Size of the volume, in bytes: all of the namespace but the labels.
const VOLUME: u64 = DISK_BYTES - (1 << 20);

/// Serves the virtual function until this process is killed.
pub fn serve() -> Result<(), Error> {
    let limits = Path::new(LIMITS);
    fs::write(limits, "[user.0]\ntrusted = true\n").doing("write", limits)?;
    let limits = LimitsFile::read(limits).map_err(|error| failed("the limits", error))?;
    let spec = Spec::parse(&format!("disk=nvme:{PRIMARY},vfs=1"), &[&DEVICE_KIND]);
    let spec = spec.map_err(|error| failed("the device", error))?;
    let options = bywash_server::Options::new(SOCKET).device(spec).limits(limits);
    let server = Server::start(options).map_err(|error| failed("the server", error))?;
    tell("granting")?;
    last(&server)
}

/// Reads by the granted function.
pub fn client(operations: usize) -> Result<(), Error> {
    let mut reader = Reader::connect()?;
    for name in ["direct, requests", "direct"] {
        if name == "direct" {
            reader.prepare(DEPTHS[1], BLOCK)?;
        }
        let mut offsets = Offsets::new();
        for depth in DEPTHS {
            series(&format!("{name}; {depth}"))?;
            for number in 0..WARM_UP + operations.div_ceil(depth) {
                reader.read(&offsets.some(depth), BLOCK, number)?;
            }
        }
    }
    reader.prepare(STREAMS, STREAM_BLOCK)?;
    series("streams, direct")?;
    for round in 0..WARM_UP + rounds(operations) {
        let some: Vec<u64> = (0..STREAMS).map(|stream| offset(stream, round)).collect();
        reader.read(&some, STREAM_BLOCK, round)?;
    }
    Ok(())
}

struct Reader {
    queue: Queue,
    volume: bywash_client::VolumeId,
    buffers: Vec<Option<RequestMemory>>,
    /// Transfers by which is read, if there are any; requests with the buffers otherwise.
    transfers: Vec<TransferId>,
}

impl Reader {
    fn connect() -> Result<Reader, Error> {
        let no = |error: bywash_client::Error| failed("the client", error);
        let options = bywash_client::Options::new;
        let administrator = Client::connect(SOCKET, options().choice(PathChoice::Channel)).map_err(no)?;
        administrator.create(NewVolume::new("data", "disk.1", VOLUME)).map_err(no)?;
        let depth = DEPTHS[1];
        let mut queue =
            Queue::connect(SOCKET, options().depth(depth as u32).arena_bytes(4 << 20)).map_err(no)?;
        let volume = queue.open("data", Access::ReadWrite).map_err(no)?;
        let path = queue.path(volume).map_err(no)?;
        if !path.is_direct() {
            return Err(failed("the server", path));
        }
        let buffer =
            |_| queue.alloc(STREAM_BLOCK).map(|buffer| Some(RequestMemory::from(buffer))).map_err(no);
        let buffers = (0..depth).map(buffer).collect::<Result<_, _>>()?;
        Ok(Reader { queue, volume, buffers, transfers: Vec::new() })
    }

    /// Prepares reads of `bytes` bytes, which replace those that were prepared before.
    fn prepare(&mut self, count: usize, bytes: usize) -> Result<(), Error> {
        let no = |error: bywash_client::Error| failed("the client", error);
        for transfer in self.transfers.drain(..) {
            self.queue.release_transfer(transfer).map_err(no)?;
        }
        for _ in 0..count {
            let buffer = self.queue.alloc(bytes).map_err(no)?;
            let prepared = self.queue.prepare(self.volume, TransferKind::Read, buffer);
            self.transfers.push(prepared.map_err(|refused| no(refused.error))?);
        }
        Ok(())
    }

    /// Reads `bytes` bytes at each of the offsets, and counts that: submitting, telling the controller of the reads behind
    /// the first with a look for completions, and reaping all.
    fn read(&mut self, offsets: &[u64], bytes: usize, number: usize) -> Result<(), Error> {
        for buffer in &mut self.buffers {
            if let Some(RequestMemory::Arena(buffer)) = buffer {
                buffer.resize(bytes);
            }
        }
        let offsets: Vec<u64> = offsets.iter().map(|offset| offset % VOLUME).collect();
        match self.transfers.is_empty() {
            true => self.counted(
                &offsets,
                number,
                |reader, tag, offset| {
                    let buffer = reader.buffers[tag].take();
                    buffer.is_some_and(|buffer| {
                        reader.queue.read(reader.volume, offset, buffer, tag as u64).is_ok()
                    })
                },
                |reader, completion| reader.buffers[completion.user_data as usize] = completion.memory,
            ),
            false => self.counted(
                &offsets,
                number,
                |reader, tag, offset| {
                    reader.queue.submit_transfer(reader.transfers[tag], offset, tag as u64).is_ok()
                },
                |_, _| {},
            ),
        }
    }

    #[inline(always)]
    fn counted(
        &mut self,
        offsets: &[u64],
        number: usize,
        submit: impl Fn(&mut Reader, usize, u64) -> bool,
        done: impl Fn(&mut Reader, Completion),
    ) -> Result<(), Error> {
        let count = offsets.len();
        let (mut refused, mut taken) = (false, 0);
        mark::start();
        for (tag, offset) in offsets.iter().enumerate() {
            refused |= !submit(self, tag, *offset);
        }
        // The controller knows a read that is alone already.
        if count > 1 && self.reap(&done)? {
            taken += 1;
        }
        mark::stop();
        settle();
        let mut looks = 0;
        while taken < count && looks < LOOKS_MAX && !refused {
            mark::start();
            while taken < count && self.reap(&done)? {
                taken += 1;
            }
            mark::stop();
            looks += 1;
            if taken < count {
                settle();
            }
        }
        if refused || taken < count {
            return Err(failed("the client", format!("{taken} of {count} requests completed")));
        }
        // Looks in vain are not counted.
        if looks > 1 {
            mark::give_up();
            return Ok(());
        }
        keep(number, false);
        Ok(())
    }

    /// Takes a completion. Returns false if there is none.
    #[inline(always)]
    fn reap(&mut self, done: &impl Fn(&mut Reader, Completion)) -> Result<bool, Error> {
        if !self.transfers.is_empty() && self.queue.try_reap_transfer().is_some() {
            return Ok(true);
        }
        let reaped = self.queue.try_reap().map_err(|error| failed("the client", error))?;
        let Some(mut completion) = reaped else { return Ok(false) };
        if let Err(error) = std::mem::replace(&mut completion.outcome, Ok(())) {
            return Err(failed("a request", error));
        }
        done(self, completion);
        Ok(true)
    }
}
