//! Descriptions to start from: machines, and requests of each kind.
//!
//! The machines are the simulator's presets. The requests have usual sizes; only those of the Web server are
//! the paper's.

use crate::reading::{self, Error};
use bywash_model::Workload;
use bywash_model::units::{Cycles, Share, Size};
use bywash_model::work::Request;
use bywash_sim::preset::{PRESETS, Preset};
use serde::Serialize;
use serde_json::Value;

/// A machine with its workload.
#[derive(Clone, Debug, Serialize)]
pub struct Server {
    /// Name in a link to the page.
    pub name: &'static str,
    /// Summary in one line.
    pub title: &'static str,
    /// Heading under which the page lists the machine.
    pub group: &'static str,
    /// Complete description.
    pub description: Value,
}

/// Requests of one kind.
#[derive(Clone, Debug, Serialize)]
pub struct Requests {
    /// Summary in one line.
    pub title: &'static str,
    /// Kind and sizes of the requests.
    pub request: Request,
}

/// All descriptions to start from.
#[derive(Clone, Debug, Serialize)]
pub struct Presets {
    /// Machines with their workloads.
    pub servers: Vec<Server>,
    /// Requests, one of each kind.
    pub requests: Vec<Requests>,
}

impl Presets {
    /// Returns all presets.
    ///
    /// # Errors
    /// [`Error`] if a preset's text cannot be parsed; tests exclude this.
    pub fn all() -> Result<Presets, Error> {
        let server = |preset: &Preset| {
            let Preset { name, about, text } = *preset;
            let is_paper = name.starts_with("carrera") || name.starts_with("schaelicke");
            let group = if is_paper { "Machines of the papers" } else { "Machines of today" };
            reading::read(text).map(|description| Server { name, title: about, group, description })
        };
        let servers = PRESETS.iter().map(server).collect::<Result<_, _>>()?;
        Ok(Presets { servers, requests: requests() })
    }
}

const KIB: f64 = 1024.0;

fn requests() -> Vec<Requests> {
    let some = |title, request| Requests { title, request };
    vec![
        some("Web: files, most in memory", Workload::web(0.1).request),
        some("Video: large files from disks", Request::Video { file: Size(256.0 * KIB) }),
        some(
            "Streams: disks to network, and back",
            Request::Streams { block: Size(64.0 * KIB), writes: Share(0.0) },
        ),
        some(
            "Blocks: programs read and write",
            Request::Blocks { block: Size(4.0 * KIB), writes: Share(0.3), in_order: false },
        ),
        some(
            "Database: a pool of pages and a log",
            Request::Database {
                page: Size(8.0 * KIB),
                pages: 10.0,
                miss: Share(0.1),
                log: Size(4.0 * KIB),
                compute: Cycles(1e5),
            },
        ),
        some(
            "Dynamic: pages made on request",
            Request::Dynamic { page: Size(16.0 * KIB), compute: Cycles(2e5), data: Size(4.0 * KIB) },
        ),
    ]
}
