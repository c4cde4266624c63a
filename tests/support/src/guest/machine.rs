//! A running guest: its output and its end.
//!
//! Invariant: QEMU ends when this value is dropped. It is killed, since without hardware acceleration it can
//! take long to react to SIGTERM.

use crate::guest::installed::find;
use crate::guest::kernel::kernel;
use crate::guest::system::{NETWORK_MODULES, SECONDS_MAX, system};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Configuration of a machine that has not booted yet.
#[derive(Clone, Debug)]
pub struct Guest {
    /// Socket of the disk; `None` for a machine that has a network instead.
    socket: Option<PathBuf>,
    queues: u16,
    reconnects: bool,
    modules: Vec<&'static str>,
    program: Option<PathBuf>,
}

impl Guest {
    /// Makes a machine whose disk, `/dev/vda`, is served at `socket`.
    pub fn new(socket: &Path) -> Guest {
        let socket = Some(socket.to_owned());
        Guest { socket, queues: 1, reconnects: false, modules: Vec::new(), program: None }
    }

    /// Makes a machine without a disk, on a network with this host alone: `eth0`, which is not configured. The host's
    /// loopback interface has the address [`HOST`] there. Nothing in the guest can be reached.
    pub fn on_network() -> Guest {
        Guest { socket: None, queues: 1, reconnects: false, modules: NETWORK_MODULES.to_vec(), program: None }
    }

    /// Loads a module of the kernel, named by its path below the modules' folder, after all others.
    pub fn module(mut self, module: &'static str) -> Guest {
        self.modules.push(module);
        self
    }

    /// Puts a program of this host, with the libraries that it is linked to, into the guest as `/sbin/guest`.
    pub fn program(mut self, program: &Path) -> Guest {
        self.program = Some(program.to_owned());
        self
    }

    /// Sets the number of the disk's queues, and of the machine's processors.
    pub fn queues(mut self, queues: u16) -> Guest {
        self.queues = queues;
        self
    }

    /// Makes QEMU connect to the disk again every second after its server has died.
    pub fn reconnects(mut self) -> Guest {
        self.reconnects = true;
        self
    }

    /// Boots the machine, which runs `script` (see [`crate::guest::system`]).
    ///
    /// # Panics
    /// If QEMU, the kernel or a program is missing, with what to do.
    pub fn boot(self, script: &str) -> Running {
        let kernel = kernel();
        let folder = tempfile::tempdir().expect("a temporary folder");
        let archive = folder.path().join("initrd");
        let contents = system(kernel, &self.modules, self.program.as_deref(), script);
        fs::write(&archive, contents).expect("the guest's file system is written");
        let mut child = Command::new(find("qemu-system-x86_64"))
            .args(["-accel", "tcg", "-machine", "q35,memory-backend=memory", "-cpu", "max", "-nodefaults"])
            .args(["-no-user-config", "-display", "none", "-serial", "stdio", "-no-reboot", "-m", MEMORY])
            .args(["-object", &format!("memory-backend-memfd,id=memory,size={MEMORY},share=on")])
            .args(["-smp", &self.queues.to_string()])
            .args(self.hardware())
            // The kernel's test of the timer counts ticks of the host's time, of which a loaded host gives QEMU too few.
            .args(["-append", "console=ttyS0 quiet panic=-1 no_timer_check"])
            .arg("-kernel")
            .arg(&kernel.image)
            .arg("-initrd")
            .arg(&archive)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start QEMU: {error}"));
        let (send, lines) = mpsc::channel();
        listen(child.stdout.take().expect("piped"), send.clone());
        listen(child.stderr.take().expect("piped"), send);
        let end = Instant::now() + Duration::from_secs(SECONDS_MAX.into());
        Running { child, lines, heard: Vec::new(), said: Vec::new(), end, _folder: folder }
    }

    /// Returns QEMU's arguments for the disk or the network.
    fn hardware(&self) -> [String; 4] {
        let (option, backend, device) = match &self.socket {
            Some(socket) => {
                let (path, queues) = (socket.display(), self.queues);
                let reconnect = if self.reconnects { ",reconnect=1" } else { "" };
                let device = format!("vhost-user-blk-pci,chardev=disk,num-queues={queues}");
                ("-chardev", format!("socket,id=disk,path={path}{reconnect}"), device)
            }
            // Without firmware for booting from the network, which is another Debian package.
            None => ("-netdev", "user,id=net".to_owned(), "virtio-net-pci,netdev=net,romfile=".to_owned()),
        };
        [option.to_owned(), backend, "-device".to_owned(), device]
    }
}

/// Address of the host's loopback interface on the network of [`Guest::on_network`]; the guest's own may be any other of
/// 10.0.2.0/24 but 10.0.2.3.
pub const HOST: &str = "10.0.2.2";

const MEMORY: &str = "256M";

/// Starts a thread that sends each line of `from`, until its end.
fn listen(from: impl std::io::Read + Send + 'static, to: mpsc::Sender<String>) {
    thread::spawn(move || {
        for line in BufReader::new(from).split(b'\n').map_while(Result::ok) {
            if to.send(String::from_utf8_lossy(&line).trim_end().to_owned()).is_err() {
                return;
            }
        }
    });
}

/// A machine that has booted.
#[derive(Debug)]
pub struct Running {
    child: Child,
    lines: Receiver<String>,
    /// All lines of the serial line and of QEMU's standard error.
    heard: Vec<String>,
    /// Lines that the guest's `say` has printed.
    said: Vec<String>,
    end: Instant,
    _folder: TempDir,
}

impl Running {
    /// Waits until the guest says a line that begins with `what`, and returns the rest of that line.
    ///
    /// # Panics
    /// If the guest fails, ends or takes too long, with all that it has printed.
    pub fn wait_for(&mut self, what: &str) -> String {
        while let Some(line) = self.next_line() {
            let Some(said) = line.strip_prefix("guest: ") else { continue };
            assert!(!said.starts_with("failed"), "the guest {said}\n{}", self.rest());
            self.said.push(said.to_owned());
            if let Some(rest) = said.strip_prefix(what) {
                return rest.trim_start().to_owned();
            }
        }
        panic!("the guest ended and never said '{what}':\n{}", self.heard.join("\n"));
    }

    /// Waits until the guest has switched itself off, and returns all that it has said.
    ///
    /// # Panics
    /// Same as [`Running::wait_for`].
    pub fn wait_for_end(mut self) -> Vec<String> {
        self.wait_for("end");
        while self.next_line().is_some() {}
        let ended = self.child.wait().expect("QEMU is waited for");
        assert!(ended.success(), "QEMU ended with {ended}:\n{}", self.heard.join("\n"));
        std::mem::take(&mut self.said)
    }

    /// Kills QEMU (SIGKILL), which ends the guest like a power failure.
    pub fn kill(mut self) {
        self.child.kill().expect("QEMU runs");
        self.child.wait().expect("QEMU is waited for");
    }

    /// Returns the lines that the guest has said so far.
    pub fn said(&self) -> &[String] {
        &self.said
    }

    fn next_line(&mut self) -> Option<String> {
        match self.lines.recv_timeout(self.end.saturating_duration_since(Instant::now())) {
            Ok(line) => {
                self.heard.push(line.clone());
                Some(line)
            }
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => {
                panic!("the guest took more than {SECONDS_MAX} s:\n{}", self.heard.join("\n"))
            }
        }
    }

    /// Waits for the end of a guest that has failed, and returns all that it has printed.
    fn rest(&mut self) -> String {
        while self.next_line().is_some() {}
        self.heard.join("\n")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Killing fails only if QEMU has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
