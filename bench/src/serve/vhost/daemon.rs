//! qemu-storage-daemon: one process that serves files by vhost-user-blk, each at a socket of its own.

use crate::child::{self, Background};
use crate::error::Error;
use crate::programs::require;
use rustix::process::Signal;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const PROGRAM: &str = "qemu-storage-daemon";
/// Time to open the files and to listen.
const LIMIT: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(2);

/// How the daemon reaches its files, and where it runs.
#[derive(Clone, Debug)]
pub struct Reach {
    /// Past the page cache.
    pub is_direct: bool,
    /// By `threads`, `native` (Linux AIO) or `io_uring`.
    pub aio: &'static str,
    /// On this core only.
    pub core: Option<usize>,
}

impl Default for Reach {
    fn default() -> Reach {
        Reach { is_direct: false, aio: "threads", core: None }
    }
}

/// The daemon; ended when dropped, and by the kernel when this process has gone.
pub struct Daemon {
    process: Background,
    sockets: Vec<PathBuf>,
}

impl Daemon {
    /// Serves `files`, at sockets in `folder`.
    ///
    /// # Errors
    /// [`Error::Missing`] where it is not installed; that it does not come up, with its words.
    pub fn start(files: &[PathBuf], folder: &Path, reach: Reach) -> Result<Daemon, Error> {
        let program = require(PROGRAM, "qemu-system-common")?;
        // These two come with every Debian; what they do could not be done in here without unsafe code.
        let mut command = Command::new(require("setpriv", "util-linux")?);
        command.args(["--pdeathsig", "KILL", "--"]);
        if let Some(core) = reach.core {
            command.arg(require("taskset", "util-linux")?).args(["--cpu-list", &core.to_string()]);
        }
        command.arg(program).args(["--object", "iothread,id=thread"]);
        let sockets: Vec<PathBuf> =
            (0..files.len()).map(|number| folder.join(format!("{number}.sock"))).collect();
        for (number, (file, socket)) in files.iter().zip(&sockets).enumerate() {
            // What an earlier one left.
            let _ = fs::remove_file(socket);
            command.args(["--blockdev".into(), blockdev(number, file, &reach)?]);
            command.args(["--export".into(), export(number, socket)?]);
        }
        let log = folder.join(format!("{PROGRAM}.log"));
        let mut process = Background::start(&mut command, &log)?;
        let deadline = Instant::now() + LIMIT;
        while !sockets.iter().all(|socket| socket.exists()) {
            crate::interrupt::check()?;
            let has_ended = process.ended();
            if has_ended || Instant::now() > deadline {
                let how = if has_ended { "ended" } else { "does not listen" };
                return Err(Error::Failed { program: PROGRAM.into(), how: how.into(), tail: tail(&log) });
            }
            std::thread::sleep(LOOK);
        }
        Ok(Daemon { process, sockets })
    }

    /// Where each file is served, in order.
    pub fn sockets(&self) -> &[PathBuf] {
        &self.sockets
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        self.process.id()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // What is left of it when it does not end is killed with the process.
        let _ = self.process.stop(Signal::TERM);
        for socket in &self.sockets {
            let _ = fs::remove_file(socket);
        }
    }
}

fn blockdev(number: usize, file: &Path, reach: &Reach) -> Result<String, Error> {
    let switch = if reach.is_direct { "on" } else { "off" };
    let (aio, file) = (reach.aio, quoted(file)?);
    Ok(format!(
        "driver=file,node-name=file{number},cache.direct={switch},aio={aio},locking=off,filename={file}"
    ))
}

fn export(number: usize, socket: &Path) -> Result<String, Error> {
    let socket = quoted(socket)?;
    Ok(format!(
        "type=vhost-user-blk,id=export{number},node-name=file{number},addr.type=unix,addr.path={socket},\
         writable=on,num-queues=1,logical-block-size=512,iothread=thread"
    ))
}

/// A path as a value among others: its commas twice.
fn quoted(path: &Path) -> Result<String, Error> {
    let unusable =
        || Error::Unavailable(format!("{PROGRAM} takes no path that is not UTF-8: {}", path.display()));
    let mut text = String::new();
    for part in path.to_str().ok_or_else(unusable)?.split_inclusive(',') {
        let _ = write!(text, "{part}{}", if part.ends_with(',') { "," } else { "" });
    }
    Ok(text)
}

fn tail(log: &Path) -> String {
    // A daemon that has written nothing has nothing to say.
    child::tail(&fs::read_to_string(log).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commas_are_doubled() {
        assert_eq!(quoted(Path::new("/a,b/c,")).unwrap(), "/a,,b/c,,");
    }

    #[test]
    fn a_file_that_is_not_there_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let started = Daemon::start(&[folder.path().join("none")], folder.path(), Reach::default());
        let error = started.err().unwrap();
        assert!(error.is_absence() || error.to_string().contains("No such file"), "{error}");
    }
}
