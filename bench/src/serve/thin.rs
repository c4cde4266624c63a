//! Cost of the first write to a cluster of a thin volume, whose space has to be recorded durably before, and of the first write
//! to a cluster that a snapshot has too, which has to be copied.
//!
//! One client writes one block of each of some clusters, one at a time, by calls that wait. The peer writes the same blocks once
//! more, when there is nothing left to be recorded. Device and store of the server are files in the bench's folder, so that a
//! commit costs what the folder's disk costs. A figure is the mean over all clusters, since some of the writes wait and others
//! do not.

use super::contest::Setup;
use crate::campaign::Declared;
use crate::engine::{Metric, Runs, Side};
use crate::error::{Attempt, Error};
use crate::interrupt;
use crate::row::Row;
use bywash_client::{Access, Client, NewVolume, Options, PathChoice, Volume};
use bywash_server::Server;
use std::fmt::Display;
use std::fs;
use std::path::PathBuf;
use std::time::Instant;

/// Size of a cluster of a small volume, in bytes.
const CLUSTER: u64 = 256 << 10;
/// Number of clusters of a volume, a power of two.
const CLUSTERS: u64 = 256;
const CLUSTERS_QUICK: u64 = 32;
/// Size of a write, in bytes.
const BLOCK: usize = 4096;
/// Size of the device, in bytes; volumes of earlier runs are still being cleared.
const DEVICE: u64 = 1 << 30;
/// Distance of two clusters that are written one after the other where they are anywhere; it has no common divisor with the
/// number of clusters.
const STRIDE: u64 = 37;

/// Order in which clusters are written.
#[derive(Clone, Copy)]
enum Order {
    Ascending,
    Scattered,
}

/// Mean times of a write, in seconds.
#[derive(Clone, Copy)]
struct Times {
    first: f64,
    again: f64,
    copied: f64,
}

pub(super) fn cases() -> Vec<Declared<Setup>> {
    vec![Declared::new(Row::head("serve/thin", "first writes", ""), measure)]
}

fn failed(error: impl Display) -> Error {
    Error::failed("our server", error.to_string())
}

fn measure(setup: &Setup, head: &Row) -> Result<Vec<Row>, Error> {
    let folder = setup.folder.join("thin");
    // An earlier run may have been killed.
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir(&folder).doing("create", &folder)?;
    let served = Served::start(folder)?;
    let count = if setup.quick { CLUSTERS_QUICK } else { CLUSTERS };
    let side = |name, order| {
        let mut number = 0;
        let served = &served;
        Side::new(name, move || {
            number += 1;
            served.run(&format!("{name}-{number}"), order, count)
        })
    };
    let sides = vec![side("ascending", Order::Ascending), side("scattered", Order::Scattered)];
    let runs = setup.rounds(false).run(sides)?;
    let rows = runs.into_iter().zip(["one cluster after the other", "clusters anywhere"]);
    Ok(rows.flat_map(|(runs, order)| rows_of(head, runs, order)).collect())
}

fn rows_of(head: &Row, runs: Runs<Times>, order: &str) -> Vec<Row> {
    let (mut first, mut again, mut copied) = (Vec::new(), Vec::new(), Vec::new());
    let of_peer = "a write to blocks that the volume has alone".to_owned();
    let samples = runs.samples.map(|samples| {
        for Times { first: one, again: two, copied: three } in samples {
            first.push(one);
            again.push(two);
            copied.push(three);
        }
    });
    let by = |times: Vec<f64>, name: &str| match &samples {
        Ok(()) => Runs { name: name.to_owned(), samples: Ok(times) },
        Err(error) => Runs { name: name.to_owned(), samples: Err(failed(error)) },
    };
    let time = Metric::cost("time of a write", "ns", |seconds: &f64| seconds * 1e9);
    let again = by(again, &of_peer);
    let row = |case: &str, ours: Runs<f64>| {
        let case = format!("{case}, 4 KiB, {order}");
        let note = "mean over all clusters; the folder's disk has device and store".into();
        time.row(&Row { case, note, ..head.clone() }, &ours, &again, None)
    };
    vec![
        row("the first write to a cluster of a thin volume", by(first, "bywash")),
        row("the first write to a cluster that a snapshot has", by(copied, "bywash")),
    ]
}

/// A server with a store and a device, and a client of it.
struct Served {
    client: Client,
    server: Option<Server>,
    folder: PathBuf,
}

impl Served {
    fn start(folder: PathBuf) -> Result<Served, Error> {
        let (socket, file) = (folder.join("socket"), folder.join("device"));
        let device = format!("disk=file:{},size={DEVICE}", file.display()).parse().map_err(failed)?;
        let options = bywash_server::Options::new(&socket).policy(folder.join("volumes")).device(device);
        let server = Server::start(options).map_err(failed)?;
        let options = Options::new().choice(PathChoice::Channel);
        let client = Client::connect(&socket, options).map_err(failed)?;
        Ok(Served { client, server: Some(server), folder })
    }

    /// Makes a thin volume, writes its clusters, once more, and once more behind a snapshot; then removes both.
    fn run(&self, name: &str, order: Order, count: u64) -> Result<Times, Error> {
        let new = NewVolume::new(name, "disk", count * CLUSTER).thin(true);
        self.client.create(new).map_err(failed)?;
        let volume = self.client.open(name, Access::ReadWrite).map_err(failed)?;
        let first = write_all(&volume, order, count)?;
        let again = write_all(&volume, order, count)?;
        let snapshot = format!("{name}-before");
        self.client.snapshot(name, &snapshot).map_err(failed)?;
        let copied = write_all(&volume, order, count)?;
        drop(volume);
        self.client.remove(&snapshot).map_err(failed)?;
        self.client.remove(name).map_err(failed)?;
        Ok(Times { first, again, copied })
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            server.stop();
        }
        // The folder of the whole bench is removed later in any case.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Writes a block of each cluster, and returns the mean time.
fn write_all(volume: &Volume, order: Order, count: u64) -> Result<f64, Error> {
    let block = vec![0x5a; BLOCK];
    let begin = Instant::now();
    for number in 0..count {
        interrupt::check()?;
        let cluster = match order {
            Order::Ascending => number,
            Order::Scattered => number * STRIDE % count,
        };
        volume.write_at(&block, cluster * CLUSTER).map_err(failed)?;
    }
    Ok(begin.elapsed().as_secs_f64() / count as f64)
}
