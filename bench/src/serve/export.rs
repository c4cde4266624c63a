//! A volume of ours by vhost-user-blk, in a process of its own, for the same client as another server's disk
//! has.
//!
//! `bywash serve --vhost-user` does the same in the server's process, in a thread of its own. The volume is
//! reached as the library does it by itself: memory is mapped, so that the server's core has no part in it.

use super::talk::{self, Program, Talk};
use crate::error::Error;
use crate::say::say;
use bywash_client::{Access, Options, Queue};
use bywash_vhost::{Event, Export, OnVolume};
use serde::{Deserialize, Serialize};
use std::fs;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

/// What makes a process of the bench such an export.
pub const EXPORT: &str = "export";
/// Room for the requests of a queue.
const ARENA: usize = 32 << 20;

#[derive(Serialize, Deserialize)]
struct Job {
    server: PathBuf,
    volume: String,
    socket: PathBuf,
    cores: Vec<usize>,
}

/// A volume that is exported, as long as this is there.
pub struct Exported {
    talk: Talk,
    socket: PathBuf,
}

impl Exported {
    /// Exports a volume of the server at `server`, by a process on `core` if one is given.
    ///
    /// # Errors
    /// What keeps it from that.
    pub fn start(
        program: &Program,
        server: &Path,
        volume: &str,
        folder: &Path,
        core: Option<usize>,
    ) -> Result<Exported, Error> {
        let socket = folder.join("export.socket");
        let job = Job {
            server: server.to_owned(),
            volume: volume.to_owned(),
            socket: socket.clone(),
            cores: core.into_iter().collect(),
        };
        let mut talk = Talk::start("an export", program, EXPORT, &job)?;
        talk.ready()?;
        Ok(Exported { talk, socket })
    }

    /// Where clients connect.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        self.talk.id()
    }
}

/// The export's part; `job` is what the bench has put on its command line.
///
/// # Errors
/// As [`talk::be`].
pub fn export(job: &str) -> Result<(), Error> {
    talk::be(job, |job: &Job| &job.cores, serve)
}

fn serve(job: &Job) -> Result<(), Error> {
    let failed = |error: &dyn std::fmt::Display| Error::failed("an export", error.to_string());
    let queue =
        Queue::connect(&job.server, Options::new().arena_bytes(ARENA)).map_err(|error| failed(&error))?;
    let medium = OnVolume::open(queue, &job.volume, Access::ReadWrite).map_err(|error| failed(&error))?;
    // An error of the client has the end of this.
    let report = |event| {
        if let Event::CutOff(error) = event {
            say(format_args!("the export: {error}"));
        }
    };
    // What an earlier one has left.
    let _ = fs::remove_file(&job.socket);
    let listener =
        UnixListener::bind(&job.socket).map_err(|error| Error::io("listen at", &job.socket, error))?;
    let export = Export::start(listener, medium, bywash_vhost::Options::new(), report)
        .map_err(|error| failed(&error))?;
    while talk::ready()? {}
    drop(export);
    Ok(())
}
