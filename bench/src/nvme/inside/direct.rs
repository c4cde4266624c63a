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
use bywash_client::{Access, Client, NewVolume, PathChoice, Queue, RequestMemory};
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
    let mut offsets = Offsets::new();
    for depth in DEPTHS {
        series(&format!("direct; {depth}"))?;
        for number in 0..WARM_UP + operations.div_ceil(depth) {
            reader.read(&offsets.some(depth), BLOCK, number)?;
        }
    }
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
        Ok(Reader { queue, volume, buffers })
    }

    /// Reads `bytes` bytes at each of the offsets, and counts that: submitting, telling the controller of the reads behind
    /// the first with a look for completions, and reaping all.
    fn read(&mut self, offsets: &[u64], bytes: usize, number: usize) -> Result<(), Error> {
        for buffer in &mut self.buffers {
            if let Some(RequestMemory::Arena(buffer)) = buffer {
                buffer.resize(bytes);
            }
        }
        let (mut refused, mut done) = (false, 0);
        mark::start();
        for (tag, offset) in offsets.iter().enumerate() {
            refused |= !self.submit(tag, offset % VOLUME);
        }
        // The controller knows a read that is alone already.
        if offsets.len() > 1 && self.reap()? {
            done += 1;
        }
        mark::stop();
        settle();
        let mut looks = 0;
        while done < offsets.len() && looks < LOOKS_MAX && !refused {
            mark::start();
            while done < offsets.len() && self.reap()? {
                done += 1;
            }
            mark::stop();
            looks += 1;
            if done < offsets.len() {
                settle();
            }
        }
        if refused || done < offsets.len() {
            return Err(failed("the client", format!("{done} of {} requests completed", offsets.len())));
        }
        // Looks in vain are not counted.
        if looks > 1 {
            mark::give_up();
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
