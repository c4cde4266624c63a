//! qemu-storage-daemon: one process that serves files by vhost-user-blk, each at a socket of its own.

use crate::child::{self, Process};
use crate::error::Error;
use crate::programs::require;
use rustix::process::Signal;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const PROGRAM: &str = "qemu-storage-daemon";
/// Greatest time until the daemon listens.
const LIMIT: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(2);

/// The daemon; ended when dropped, and by the kernel when this process has ended.
pub struct Daemon {
    process: Process,
    /// Socket of each file, in order.
    pub sockets: Vec<PathBuf>,
}

impl Daemon {
    /// Serves `files` at sockets in `folder`, on the only `core` if there is one. `aio` is `threads`, `io_uring`, or `native`:
    /// Linux AIO, past the page cache.
    pub fn start(files: &[PathBuf], folder: &Path, aio: &str, core: Option<usize>) -> Result<Daemon, Error> {
        let program = require(PROGRAM, "qemu-system-common")?;
        // The two programs do what would need unsafe code between fork and exec.
        let mut command = Command::new(require("setpriv", "util-linux")?);
        command.args(["--pdeathsig", "KILL", "--"]);
        if let Some(core) = core {
            command.arg(require("taskset", "util-linux")?).args(["--cpu-list", &core.to_string()]);
        }
        command.arg(program).args(["--object", "iothread,id=thread"]);
        let sockets: Vec<PathBuf> =
            (0..files.len()).map(|number| folder.join(format!("{number}.sock"))).collect();
        let direct = if aio == "native" { "on" } else { "off" };
        for (number, (file, socket)) in files.iter().zip(&sockets).enumerate() {
            // An earlier daemon may have left its socket.
            let _ = fs::remove_file(socket);
            let (file, socket) = (quoted(file)?, quoted(socket)?);
            command.args(["--blockdev".into(), format!(
                "driver=file,node-name=file{number},cache.direct={direct},aio={aio},locking=off,filename={file}"
            )]);
            command.args(["--export".into(), format!(
                "type=vhost-user-blk,id=export{number},node-name=file{number},addr.type=unix,addr.path={socket},\
                 writable=on,num-queues=1,logical-block-size=512,iothread=thread"
            )]);
        }
        let log = folder.join(format!("{PROGRAM}.log"));
        let mut process = Process::start_logging(&mut command, &log)?;
        let deadline = Instant::now() + LIMIT;
        while !sockets.iter().all(|socket| socket.exists()) {
            crate::interrupt::check()?;
            let has_ended = process.has_ended();
            if has_ended || Instant::now() > deadline {
                let how = if has_ended { "ended" } else { "does not listen" };
                let tail = child::tail(&fs::read_to_string(&log).unwrap_or_default());
                return Err(Error::Failed { program: PROGRAM.into(), how: how.into(), tail });
            }
            std::thread::sleep(LOOK);
        }
        Ok(Daemon { process, sockets })
    }

    pub fn id(&self) -> u32 {
        self.process.id()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // A daemon that does not end is killed when `process` is dropped.
        let _ = self.process.stop(Signal::TERM);
        self.sockets.iter().for_each(|socket| drop(fs::remove_file(socket)));
    }
}

/// Makes a value of QEMU's command line of a path: its commas are doubled.
fn quoted(path: &Path) -> Result<String, Error> {
    let text = path.to_str().ok_or_else(|| {
        Error::Unavailable(format!("{PROGRAM} takes no path that is not UTF-8: {}", path.display()))
    })?;
    Ok(text.replace(',', ",,"))
}
