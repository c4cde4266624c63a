//! The runs, and the description of each one: its program in the terms of the model.

use super::servers::{self, CHUNK, MISS, PAGE_FILE};
use super::{Folders, copying, reading, serving};
use bywash_model::closed::closed;
use bywash_model::machine::Memory;
use bywash_model::units::{Cycles, CyclesPerByte, Share, Size};
use bywash_model::work::{Costs, Mechanisms, Request};
use bywash_model::{Architecture, Description};
use std::io;
use std::time::Duration;

/// A run: a program that repeats a request, in one or several threads.
pub struct Run {
    pub name: &'static str,
    /// Size of a request, in bytes.
    pub bytes: usize,
    /// True if the result is given in bytes, not in requests.
    pub is_transfer: bool,
    kind: Kind,
    /// Number of threads, or of clients.
    threads: usize,
}

#[derive(Clone, Copy)]
enum Kind {
    /// Copies a block from one file to another, both in the page cache.
    Copy,
    /// Reads a block at a random offset of a file in the page cache.
    Cached,
    /// Reads a block at a random offset of a file, past the page cache.
    Device,
    /// Sends a file from the page cache to a client that waits for it, over loopback.
    Serve,
    /// Serves requests as a program of its own, whose own work takes so many seconds for each request. The result is
    /// requests for each second of a processor.
    Server(servers::Kind, f64),
}

impl Run {
    /// Returns all runs.
    pub fn all() -> Vec<Run> {
        let run = |name, bytes, kind, threads| Run { name, bytes, is_transfer: false, kind, threads };
        let copying = run("copying a file, 128 KiB at a time", copying::BLOCK, Kind::Copy, 1);
        vec![
            Run { is_transfer: true, ..copying },
            run("reads of 4 KiB, page cache, 1 thread", reading::BLOCK, Kind::Cached, 1),
            run("reads of 4 KiB, page cache, 2 threads", reading::BLOCK, Kind::Cached, 2),
            run("reads of 4 KiB, device, 1 thread", reading::BLOCK, Kind::Device, 1),
            run("reads of 4 KiB, device, 2 threads", reading::BLOCK, Kind::Device, 2),
            run("files of 16 KiB over loopback, 1 client", serving::FILE, Kind::Serve, 1),
            run("files of 16 KiB over loopback, 4 clients", serving::FILE, Kind::Serve, 4),
        ]
    }

    /// Returns the run of an example server, whose own work takes `own` seconds for each request.
    pub fn server(kind: servers::Kind, own: f64) -> Run {
        let server = Kind::Server(kind, own);
        let run = |name, bytes| Run { name, bytes, is_transfer: false, kind: server, threads: 64 };
        match kind {
            servers::Kind::Web => run("bywash-web, files of 16 KiB, per processor", PAGE_FILE),
            servers::Kind::Video => run("bywash-video, chunks of 1 MB, per processor", CHUNK),
        }
    }

    /// Returns the description of this run on a described machine.
    pub fn described(&self, machine: &Description) -> Description {
        let mut description = *machine;
        description.architecture = Architecture::Conventional;
        description.load.threads = self.threads as f64;
        description.load.think.0 = 0.0;
        description.load.spin = false;
        // None of these programs looks at a byte.
        let costs = &mut description.costs;
        costs.server = CyclesPerByte(0.0);
        costs.piece = Size(self.bytes as f64);
        let Costs { call, interrupt, switch, tcp, system, .. } = *costs;
        let (block, bytes) = (Size(self.bytes as f64), self.bytes as f64);
        description.request = match self.kind {
            Kind::Copy => self.in_memory(&mut description.costs, 2.0),
            Kind::Cached => self.in_memory(&mut description.costs, 1.0),
            Kind::Device => Request::Blocks { block, writes: Share(0.0), in_order: false },
            Kind::Serve => {
                // The request includes waking the server and sending. Added here, because it runs on the same
                // processors: the server receives and reads; the client sends its question, is woken and
                // receives.
                let compute = Cycles(4.0 * call.0 + interrupt.0 + switch.0 + bytes * tcp.0);
                Request::Dynamic { page: block, compute, data: Size(0.0) }
            }
            Kind::Server(kind, own) => {
                // The program copies nothing.
                description.architecture = Architecture::UserLevel;
                description.mechanisms = Mechanisms { transfer: true, ..Mechanisms::NONE };
                let own = own * machine.machine.processors.speed.0;
                // One processor, which binds.
                description.machine.processors.count = 1.0;
                description.machine.disks.count = DISKS;
                match kind {
                    servers::Kind::Web => {
                        // Besides sending, out of memory: the call that receives, and the read of what the cache has
                        // not. With so many clients the server does not sleep.
                        costs.switch = Cycles(0.0);
                        costs.tcp.0 += out_of_memory(machine);
                        let compute = Cycles(own + call.0 + MISS * (call.0 + bytes * system.0));
                        Request::Dynamic { page: block, compute, data: Size(0.0) }
                    }
                    servers::Kind::Video => {
                        costs.server = CyclesPerByte(own / bytes);
                        Request::Video { file: block }
                    }
                }
            }
        };
        if matches!(self.kind, Kind::Serve) {
            waking(&mut description);
        }
        description
    }

    /// Returns a request that consists of calls only, each of which copies a block: a transaction that
    /// touches no device.
    fn in_memory(&self, costs: &mut Costs, calls: f64) -> Request {
        let bytes = self.bytes as f64;
        let compute = Cycles(calls * (costs.call.0 + bytes * costs.system.0));
        costs.system = CyclesPerByte(0.0);
        Request::Database { page: Size(bytes), pages: 1.0, miss: Share(0.0), log: Size(0.0), compute }
    }

    /// Runs the program for about `time`. Returns its requests a second.
    ///
    /// # Errors
    /// The error of the program.
    pub fn measure(&self, places: &Folders, time: Duration) -> io::Result<f64> {
        match self.kind {
            Kind::Copy => copying::copy(&places.source, &places.target, time),
            Kind::Cached => reading::read(&places.source, self.threads, time),
            Kind::Device => {
                places.source.direct(true)?;
                let rate = reading::read(&places.source, self.threads, time);
                places.source.direct(false)?;
                rate
            }
            Kind::Serve => serving::serve(&places.source, self.threads, time),
            Kind::Server(kind, _) => {
                let site = places.site.as_ref().ok_or(io::ErrorKind::NotFound)?;
                Ok(1.0 / site.measure(kind, time * SERVER_ROUNDS)?)
            }
        }
    }
}

/// Returns the cycles that a byte costs more if a processor copies it out of memory than if a cache holds it.
fn out_of_memory(machine: &Description) -> f64 {
    let Some(memory) = machine.machine.memory else { return 0.0 };
    let more =
        memory.latency.0 / Memory::BLOCK + 1.0 / memory.rate.0 - 1.0 / machine.machine.interfaces.rate.0;
    more.max(0.0) * machine.machine.processors.speed.0
}

/// Disks for a run in which the processor binds.
const DISKS: f64 = 1000.0;
/// Number of times that the run of a server takes as long as another one.
const SERVER_ROUNDS: u32 = 6;

/// Adds the time for waking sleeping processors to `description`. Question and answer each wake a thread.
/// Waking a processor that sleeps takes the interconnect's latency longer than the work; during it neither
/// processor nor loopback is busy, so it is modelled as think time. A busy processor needs no waking, so the
/// latency is scaled by the share of time in which the processors sleep, which itself depends on the think
/// time: the function iterates.
fn waking(description: &mut Description) {
    let latency = std::mem::take(&mut description.machine.interconnect.latency.0);
    let mut asleep = 1.0;
    for _ in 0..HALVINGS {
        description.load.think.0 = 2.0 * latency * asleep;
        let busy =
            closed(&description.machine, &description.workload(), description.architecture).utilisation;
        // Moves half way, since a full step would oscillate: less think time makes the processors busier.
        asleep = (asleep + 1.0 - busy[0]) / 2.0;
    }
}

/// Number of iterations: enough to make the share more exact than any measurement.
const HALVINGS: u32 = 30;

#[cfg(test)]
mod tests {
    use super::super::Predicted;
    use super::*;
    use crate::plan::calibrate::{described, preset, tests::measured};

    /// Predictions for an invented machine agree with the numbers that it was made of.
    #[test]
    fn predictions_add_up_what_was_measured() {
        let machine = described(&preset::text(&measured())).unwrap();
        let predicted: Vec<Predicted> =
            Run::all().iter().map(|run| Predicted::predict(run, &machine).unwrap()).collect();
        let near = |one: f64, other: f64, by: f64| assert!((one / other - 1.0).abs() < by, "{one} {other}");
        // Reading and writing 128 KiB take 8 and 13 us, reading 4 KiB takes 0.6 us.
        near(predicted[0].model, 1.0 / 21e-6, 1e-3);
        near(predicted[1].model, 1.0 / 0.6e-6, 1e-3);
        near(predicted[2].model, 2.0 / 0.6e-6, 1e-3);
        // Reading the device takes 70 to 100 us.
        near(predicted[3].model, 1.0 / 85e-6, 0.02);
        near(predicted[4].model, 2.0 / 85e-6, 0.04);
        // Two messages of 5 us, a file read and copied, sent and received; 15 us twice when both processors
        // sleep.
        let byte = 4096.0 * (21e-6 / 2.0 - 0.6e-6) / 126_976.0;
        let work = 2.0 * 5e-6 + 0.6e-6 + 3.0 * byte + 16384.0 * 2.0 * 0.2e-9;
        let passing = 16384.0 * (1.0 / 20e9 + 1.0 / 80e9);
        let each = 1.0 / predicted[5].model;
        let asleep = 1.0 - work / each / 2.0;
        near(each, 2.0 * 15e-6 * asleep + work + passing, 0.02);
        // With four clients neither processor sleeps.
        near(predicted[6].model, 2.0 / work, 0.2);
        assert!(predicted[6].model > 2.0 * predicted[5].model);
        for Predicted { model, simulated } in predicted {
            near(simulated, model, 0.1);
        }
    }

    #[test]
    fn a_server_s_request_is_its_own_work_and_the_system_s() {
        let machine = described(&preset::text(&measured())).unwrap();
        let predicted = |kind, own| {
            let run = Run::server(kind, own);
            let Predicted { model, simulated } = Predicted::predict(&run, &machine).unwrap();
            assert!((simulated / model - 1.0).abs() < 0.1, "{simulated} {model}");
            1.0 / model
        };
        let near = |one: f64, other: f64| assert!((one / other - 1.0).abs() < 0.01, "{one} {other}");
        // A call takes 0.26 us, a message of 5 us is two calls, a switch of 1 us, and the protocol.
        let byte = (21e-6 / 2.0 - 0.6e-6) / 126_976.0;
        let (call, switch) = (0.6e-6 - 4096.0 * byte, 1e-6);
        let interrupt = 5e-6 - switch - 2.0 * call;
        // Two calls, the protocol, and bytes that are sent out of memory; one file in ten is read.
        let out_of_memory = 1.0 / 9e9 - 1.0 / 80e9;
        let sent = 2.0 * call + interrupt + 16384.0 * (0.2e-9 + out_of_memory);
        let web = 3e-6 + sent + 0.1 * (call + 16384.0 * byte);
        near(predicted(servers::Kind::Web, 3e-6), web);
        // Reading past the page cache and sending: each is a call, an interrupt and a switch; a byte costs 0.3 ns to send.
        let direct = 50e-6 / (1_048_576.0 - 4096.0);
        let access = 26e-6 - (call + interrupt + switch) - 16384.0 * (byte + direct);
        let video = 5e-6 + 2.0 * (call + interrupt + switch) + access + CHUNK as f64 * (direct + 0.3e-9);
        near(predicted(servers::Kind::Video, 5e-6), video);
    }
}
