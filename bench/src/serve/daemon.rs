//! Servers of other projects: qemu-storage-daemon, one process that serves files by vhost-user-blk, each at a socket of its
//! own, or a file to NBD clients; and nbdkit, which serves memory to them.

use super::nbd::EXPORT;
use crate::child::{self, Process};
use crate::error::Error;
use crate::programs::require;
use rustix::process::Signal;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const PROGRAM: &str = "qemu-storage-daemon";
/// Debian package of the program.
const PACKAGE: &str = "qemu-system-common";
/// Greatest time until a server listens.
const LIMIT: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(2);

/// Such a server; ended when dropped, and by the kernel when this process has ended.
pub struct Daemon {
    process: Process,
    /// Socket of each file, in order.
    pub sockets: Vec<PathBuf>,
}

impl Daemon {
    /// Serves `files` by vhost-user-blk, on the only `core` if there is one. `aio` is `threads`, `io_uring`, or `native`: Linux
    /// AIO, past the page cache.
    pub fn start(files: &[PathBuf], folder: &Path, aio: &str, core: Option<usize>) -> Result<Daemon, Error> {
        let mut command = command(PROGRAM, PACKAGE, core)?;
        command.args(["--object", "iothread,id=thread"]);
        let sockets: Vec<PathBuf> =
            (0..files.len()).map(|number| folder.join(format!("{number}.sock"))).collect();
        for (number, (file, socket)) in files.iter().zip(&sockets).enumerate() {
            let socket = quoted(socket)?;
            command.args(["--blockdev", &node(number, file, aio)?, "--export"]);
            command.arg(format!(
                "type=vhost-user-blk,id=export{number},node-name=file{number},addr.type=unix,addr.path={socket},\
                 writable=on,num-queues=1,logical-block-size=512,iothread=thread"
            ));
        }
        Daemon::listen(PROGRAM, command, sockets, folder)
    }

    /// Serves `file` to NBD clients, otherwise as [`Daemon::start`], but on the main thread: QEMU 7.2 fails an assertion when a
    /// client disconnects from an export that has a thread of its own.
    pub fn start_nbd(file: &Path, folder: &Path, aio: &str, core: Option<usize>) -> Result<Daemon, Error> {
        let mut command = command(PROGRAM, PACKAGE, core)?;
        let socket = folder.join("nbd.sock");
        command.args(["--blockdev", &node(0, file, aio)?]);
        command.args(["--nbd-server", &format!("addr.type=unix,addr.path={}", quoted(&socket)?)]);
        command.arg("--export");
        command.arg(format!("type=nbd,id=export,node-name=file0,name={EXPORT},writable=on"));
        Daemon::listen(PROGRAM, command, vec![socket], folder)
    }

    /// Serves memory of `bytes` zeros to NBD clients by nbdkit.
    pub fn start_nbdkit(bytes: u64, folder: &Path, core: Option<usize>) -> Result<Daemon, Error> {
        let mut command = command("nbdkit", "nbdkit", core)?;
        let socket = folder.join("nbdkit.sock");
        command.args(["--foreground", "--unix"]).arg(&socket).args(["memory", &format!("size={bytes}")]);
        Daemon::listen("nbdkit", command, vec![socket], folder)
    }

    /// Starts a server, and waits until it listens at its sockets.
    fn listen(
        program: &str,
        mut command: Command,
        sockets: Vec<PathBuf>,
        folder: &Path,
    ) -> Result<Daemon, Error> {
        // An earlier one may have left its sockets.
        sockets.iter().for_each(|socket| drop(fs::remove_file(socket)));
        let log = folder.join(format!("{program}.log"));
        let mut process = Process::start_logging(&mut command, &log)?;
        let deadline = Instant::now() + LIMIT;
        while !sockets.iter().all(|socket| is_listening(socket)) {
            crate::interrupt::check()?;
            let has_ended = process.has_ended();
            if has_ended || Instant::now() > deadline {
                let how = if has_ended { "ended" } else { "does not listen" };
                let tail = child::tail(&fs::read_to_string(&log).unwrap_or_default());
                return Err(Error::Failed { program: program.into(), how: how.into(), tail });
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

/// Returns true if some process listens at the socket: it is there before that, for a moment. To connect would take the only
/// connection that some servers allow.
fn is_listening(socket: &Path) -> bool {
    /// Flag of a socket that accepts connections (`__SO_ACCEPTCON`), as /proc/net/unix has it.
    const ACCEPTS: &str = "00010000";
    let (sockets, end) = (fs::read("/proc/net/unix").unwrap_or_default(), format!(" {}", socket.display()));
    let sockets = String::from_utf8_lossy(&sockets);
    sockets.lines().any(|line| line.split_whitespace().nth(3) == Some(ACCEPTS) && line.ends_with(&end))
}

/// Makes a command that runs `program` on the only `core` if there is one, and ends it with this process.
fn command(program: &'static str, package: &'static str, core: Option<usize>) -> Result<Command, Error> {
    let program = require(program, package)?;
    // The two programs do what would need unsafe code between fork and exec.
    let mut command = Command::new(require("setpriv", "util-linux")?);
    command.args(["--pdeathsig", "KILL", "--"]);
    if let Some(core) = core {
        command.arg(require("taskset", "util-linux")?).args(["--cpu-list", &core.to_string()]);
    }
    command.arg(program);
    Ok(command)
}

/// Describes a file to QEMU, by the name `file` and its number.
fn node(number: usize, file: &Path, aio: &str) -> Result<String, Error> {
    let (file, direct) = (quoted(file)?, if aio == "native" { "on" } else { "off" });
    Ok(format!(
        "driver=file,node-name=file{number},cache.direct={direct},aio={aio},locking=off,filename={file}"
    ))
}

/// Makes a value of QEMU's command line of a path: its commas are doubled.
fn quoted(path: &Path) -> Result<String, Error> {
    let text = path.to_str().ok_or_else(|| {
        Error::Unavailable(format!("{PROGRAM} takes no path that is not UTF-8: {}", path.display()))
    })?;
    Ok(text.replace(',', ",,"))
}
