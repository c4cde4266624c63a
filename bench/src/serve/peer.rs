//! Whom a device server is compared with: the kernel's calls and io_uring on each medium, and a vhost-user-blk server.

use super::calls;
use super::client::{self, Figures, Target};
use super::medium::{Media, Medium};
use super::talk::Program;
use super::vhost::{Daemon, Reach};
use super::workload::Workload;
use crate::error::Error;
use std::path::{Path, PathBuf};

/// How requests get to a medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// pread(2) and pwrite(2).
    Calls,
    /// io_uring.
    Uring,
    /// qemu-storage-daemon, by vhost-user-blk.
    VhostUser,
}

/// A way to a medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The medium.
    pub medium: Medium,
    /// The way.
    pub way: Way,
}

/// Every peer there is. A server over the loop device would only be slower than over the memory below it.
pub const PEERS: [Peer; 8] = [
    Peer { medium: Medium::Tmpfs, way: Way::Calls },
    Peer { medium: Medium::Tmpfs, way: Way::Uring },
    Peer { medium: Medium::Tmpfs, way: Way::VhostUser },
    Peer { medium: Medium::LoopExt4, way: Way::Calls },
    Peer { medium: Medium::LoopExt4, way: Way::Uring },
    Peer { medium: Medium::Disk, way: Way::Calls },
    Peer { medium: Medium::Disk, way: Way::Uring },
    Peer { medium: Medium::Disk, way: Way::VhostUser },
];

/// Where a client runs that is alone.
pub const CLIENT_CORE: usize = 0;
/// Where a server runs that has one client, and ours always.
pub const SERVER_CORE: usize = 1;

/// Cores of this machine.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// What peers run with.
pub struct Stage<'a> {
    /// Their media.
    pub media: &'a Media,
    /// Their clients.
    pub program: &'a Program,
    /// For sockets and logs of servers.
    pub folder: &'a Path,
}

impl Peer {
    /// Its name in rows.
    pub fn name(&self) -> String {
        let way = match (self.way, self.medium.is_direct()) {
            (Way::Calls, false) => "pread and pwrite",
            (Way::Calls, true) => "pread and pwrite, O_DIRECT",
            (Way::Uring, false) => "io_uring",
            (Way::Uring, true) => "io_uring, O_DIRECT",
            (Way::VhostUser, _) => "qemu-storage-daemon",
        };
        format!("{}: {way}", self.medium.name())
    }

    /// Carries `workload` out, by so many clients, each on a file of its own. A client that is alone has a core of its
    /// own, and so has what serves it, if there are two.
    ///
    /// # Errors
    /// [`Error::is_absence`] when it cannot be had here; what failed.
    pub fn run(&self, stage: &Stage<'_>, workload: &Workload, clients: usize) -> Result<Figures, Error> {
        let files = stage.media.files(self.medium, clients, workload.medium_bytes)?;
        let is_alone = clients == 1 && cores() > 1;
        let is_direct = self.medium.is_direct();
        let file = |make: &dyn Fn(PathBuf) -> Target| files.iter().cloned().map(make).collect();
        let (targets, daemon): (Vec<Target>, Option<Daemon>) = match self.way {
            Way::Calls => (file(&|path| Target::Calls { path, is_direct }), None),
            Way::Uring => (file(&|path| Target::Uring { path, is_direct }), None),
            Way::VhostUser => {
                let daemon = Daemon::start(
                    &files,
                    stage.folder,
                    self.reach(&files, workload.block, is_alone.then_some(SERVER_CORE)),
                )?;
                let target = |socket: &PathBuf| Target::VhostUser { socket: socket.clone() };
                (daemon.sockets().iter().map(target).collect(), Some(daemon))
            }
        };
        client::run(
            stage.program,
            &targets,
            workload,
            daemon.as_ref().map(Daemon::id),
            if is_alone { &[CLIENT_CORE] } else { &[] },
        )
    }

    /// What is fastest for the daemon: Linux AIO past the page cache, which makes no threads. Else io_uring: for less than
    /// a page on a tmpfs, of which the daemon would read the rest first, and on a tmpfs before Linux 6.6, which refuses
    /// O_DIRECT.
    fn reach(&self, files: &[PathBuf], block: usize, core: Option<usize>) -> Reach {
        let is_whole = block.is_multiple_of(calls::PAGE) || self.medium != Medium::Tmpfs;
        let is_direct = is_whole && files.iter().all(|file| calls::open(file, true).is_ok());
        Reach { is_direct, aio: if is_direct { "native" } else { "io_uring" }, core }
    }
}
