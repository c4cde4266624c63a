//! Our server with the controller, which exports its volume by vhost-user-blk, and a frontend that is another process.
//!
//! The server's process has two threads at work: the export's, which copies between the frontend's memory and the arena, and
//! the core, which polls without end.

use super::batches::{Batches, DEPTHS, Path, run_first};
use super::channel::{NAME, SOCKET, VOLUME, last, start};
use super::{BLOCK, failed, tell};
use crate::error::Error;
use crate::serve::vhost::VhostUser;
use crate::serve::workload::{Direction, Engine, Request, Tag, Workload};
use bywash_client::{Access, Options, Queue};
use bywash_vhost::{Export, OnVolume};
use std::os::unix::net::UnixListener;
use std::time::Duration;

/// Socket at which the volume is exported.
const EXPORT: &str = "/tmp/bench.vhost";

/// Serves the controller and exports a volume of it until this process is killed.
pub fn serve() -> Result<(), Error> {
    let server = start()?;
    let queue = Queue::connect(SOCKET, Options::new()).map_err(|error| failed("the export", error))?;
    let disk = OnVolume::open(queue, NAME, Access::ReadWrite).map_err(|error| failed("the export", error))?;
    let listener = UnixListener::bind(EXPORT).map_err(|error| failed("the export", error))?;
    let export = Export::start(listener, disk, bywash_vhost::Options::new(), |_| ());
    let _export = export.map_err(|error| failed("the export", error))?;
    tell("serving")?;
    last(&server)
}

/// Reads as a frontend.
pub fn client(operations: usize) -> Result<(), Error> {
    let workload = Workload {
        direction: Direction::Read,
        seed: None,
        block: BLOCK,
        medium_bytes: VOLUME,
        depth: DEPTHS[1],
        batch: 1,
        requests: 0,
        time: Duration::ZERO,
    };
    let engine = VhostUser::connect(std::path::Path::new(EXPORT), &workload)?;
    let mut frontend = Frontend { engine, done: Vec::with_capacity(DEPTHS[1]) };
    run_first()?;
    Batches::new(VOLUME).run("vhost-user", &mut frontend, operations)
}

struct Frontend {
    engine: VhostUser,
    done: Vec<Tag>,
}

impl Path for Frontend {
    fn submit(&mut self, tag: usize, offset: u64) -> bool {
        self.engine.submit(Request { tag: tag as Tag, direction: Direction::Read, offset }).is_ok()
    }

    fn publish(&mut self) -> Result<(), Error> {
        self.engine.publish()
    }

    fn reap(&mut self) -> Result<usize, Error> {
        self.done.clear();
        self.engine.try_reap(&mut self.done)
    }
}
