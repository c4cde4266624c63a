//! A running guest: its output and its end.
//!
//! Invariant: QEMU ends when this value is dropped. It is killed, since without hardware acceleration it can
//! take long to react to SIGTERM.

use crate::guest::installed::{Missing, require};
use crate::guest::kernel::{Release, kernel, target};
use crate::guest::screen::Screen;
use crate::guest::system::{Contents, NETWORK, SECONDS_MAX, VIRTIO_DISK, system};
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
    /// Socket at which the disk is served; `None` for a machine without this disk.
    socket: Option<PathBuf>,
    queues: u16,
    reconnects: bool,
    memory: &'static str,
    has_huge_pages: bool,
    seconds_max: u32,
    hardware: Vec<String>,
    kernel: Release,
    kernel_options: String,
    /// Folder that has the kernel, or gets it; `None` for the target folder of a test.
    kernel_folder: Option<PathBuf>,
    contents: Contents,
}

impl Guest {
    /// Makes a machine whose disk, `/dev/vda`, is served at `socket`.
    pub fn new(socket: &Path) -> Guest {
        let contents = Contents {
            modules: VIRTIO_DISK.iter().map(|&name| name.into()).collect(),
            ..Contents::default()
        };
        Guest { socket: Some(socket.to_owned()), contents, ..Guest::without_disk() }
    }

    /// Makes a machine without a disk, and with 512 MiB of memory.
    pub fn without_disk() -> Guest {
        Guest {
            socket: None,
            queues: 1,
            reconnects: false,
            memory: "512M",
            has_huge_pages: false,
            seconds_max: SECONDS_MAX,
            hardware: Vec::new(),
            kernel: Release::default(),
            kernel_options: String::new(),
            kernel_folder: None,
            contents: Contents::default(),
        }
    }

    /// Makes a machine without a disk, on a network with this host alone: `eth0`, which is not configured. The host's
    /// loopback interface has the address [`HOST`] there. Nothing in the guest can be reached.
    pub fn on_network() -> Guest {
        // Without firmware for booting from the network, which is another Debian package.
        let card = ["-netdev", "user,id=net", "-device", "virtio-net-pci,netdev=net,romfile="];
        Guest::without_disk().hardware(&card).modules(&VIRTIO_DISK).modules(&NETWORK)
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

    /// Backs the machine's memory by reserved huge pages of 2 MiB, of which the host must have [`HUGE_PAGES`] free ones.
    pub fn huge_pages(mut self) -> Guest {
        self.has_huge_pages = true;
        self
    }

    /// Sets the greatest time that the guest runs, in s.
    pub fn seconds_max(mut self, seconds: u32) -> Guest {
        self.seconds_max = seconds;
        self
    }

    /// Adds devices to the machine, as QEMU's arguments describe them.
    pub fn hardware(mut self, arguments: &[&str]) -> Guest {
        self.hardware.extend(arguments.iter().map(|&argument| argument.to_owned()));
        self
    }

    /// Adds a screen to the machine, with the kernel and the modules that it needs. The screen answers once the machine has
    /// booted: see [`Screen::answer`].
    pub fn screen(mut self, screen: &Screen) -> Guest {
        self.hardware.extend(screen.hardware());
        self.kernel(screen.kernel()).modules(&VIRTIO_DISK).modules(&screen.modules())
    }

    /// Sets the kernel that the machine boots.
    pub fn kernel(mut self, release: Release) -> Guest {
        self.kernel = release;
        self
    }

    /// Adds an option to the kernel's command line.
    pub fn kernel_option(mut self, option: &str) -> Guest {
        self.kernel_options += &format!(" {option}");
        self
    }

    /// Sets the folder that has the kernel in its folder `guest-kernel`, or gets it there.
    pub fn kernel_folder(mut self, folder: &Path) -> Guest {
        self.kernel_folder = Some(folder.to_owned());
        self
    }

    /// Loads modules of the kernel, named by their paths without `.ko`, each after those that it needs.
    pub fn modules(mut self, modules: &[&str]) -> Guest {
        self.contents.modules.extend(modules.iter().map(|&module| module.to_owned()));
        self
    }

    /// Adds a module of the kernel that the script loads, as `/modules/NAME.ko`.
    pub fn later_module(mut self, module: &str) -> Guest {
        self.contents.later_modules.push(module.to_owned());
        self
    }

    /// Adds a program of the host, as `/sbin/NAME`, with the libraries that it is linked to.
    pub fn program(mut self, name: &str, path: &Path) -> Guest {
        self.contents.programs.push((name.to_owned(), path.to_owned()));
        self
    }

    /// Boots the machine, which runs `script` (see [`crate::guest::system`]).
    ///
    /// # Panics
    /// If QEMU, the kernel or a program is missing, with what to do.
    pub fn boot(self, script: &str) -> Running {
        self.try_boot(script).unwrap_or_else(|missing| panic!("{missing}"))
    }

    /// Boots the machine like [`Guest::boot`].
    ///
    /// # Errors
    /// [`Missing`] if QEMU, the kernel or a program is missing, with what to do.
    pub fn try_boot(self, script: &str) -> Result<Running, Missing> {
        let kernel = kernel(self.kernel, &self.kernel_folder.clone().unwrap_or_else(target))?;
        let io = |error| Missing(format!("cannot write a guest's file system: {error}"));
        let folder = tempfile::tempdir().map_err(io)?;
        let archive = folder.path().join("initrd");
        let contents = system(&kernel, &self.contents, script, self.seconds_max)?;
        fs::write(&archive, contents).map_err(io)?;
        let (queues, memory) = (self.queues, if self.socket.is_some() { DISK_MEMORY } else { self.memory });
        let pages = if self.has_huge_pages { ",hugetlb=on,hugetlbsize=2M" } else { "" };
        let mut qemu = Command::new(require("qemu-system-x86_64")?);
        qemu.args(["-accel", "tcg", "-machine", "q35,memory-backend=memory", "-cpu", "max", "-nodefaults"])
            .args(["-no-user-config", "-display", "none", "-serial", "stdio", "-no-reboot", "-m", memory])
            .args(["-object", &format!("memory-backend-memfd,id=memory,size={memory},share=on{pages}")])
            .args(["-smp", &queues.to_string()]);
        if let Some(socket) = &self.socket {
            let (socket, reconnect) = (socket.display(), if self.reconnects { ",reconnect=1" } else { "" });
            qemu.args(["-chardev", &format!("socket,id=disk,path={socket}{reconnect}")])
                .args(["-device", &format!("vhost-user-blk-pci,chardev=disk,num-queues={queues}")]);
        }
        let mut child = qemu
            .args(&self.hardware)
            // The kernel's test of the timer counts ticks of the host's time, of which a loaded host gives QEMU too few.
            .args(["-append", &format!("console=ttyS0 quiet panic=-1 no_timer_check{}", self.kernel_options)])
            .arg("-kernel")
            .arg(&kernel.image)
            .arg("-initrd")
            .arg(&archive)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| Missing(format!("cannot start QEMU: {error}")))?;
        let (send, lines) = mpsc::channel();
        listen(child.stdout.take().expect("piped"), send.clone());
        listen(child.stderr.take().expect("piped"), send);
        let seconds_max = self.seconds_max;
        let end = Instant::now() + Duration::from_secs(seconds_max.into());
        Ok(Running { child, lines, heard: Vec::new(), said: Vec::new(), end, seconds_max, _folder: folder })
    }
}

/// Address of the host's loopback interface on the network of [`Guest::on_network`]; the guest's own may be any other of
/// 10.0.2.0/24 but 10.0.2.3.
pub const HOST: &str = "10.0.2.2";

/// Memory of a machine with a disk.
const DISK_MEMORY: &str = "256M";
/// Number of huge pages of 2 MiB that a machine with a disk needs, if its memory is made of them.
pub const HUGE_PAGES: u64 = 128;

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
    seconds_max: u32,
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

    /// Returns the next line that the guest says, if it says one within `limit`. After the line `end` the guest switches
    /// itself off.
    ///
    /// # Errors
    /// All that the guest has printed, if it fails, ends before it has said `end`, or takes too long.
    pub fn hear(&mut self, limit: Duration) -> Result<Option<String>, String> {
        let until = Instant::now() + limit;
        loop {
            let now = Instant::now();
            if now > self.end {
                let all = self.heard.join("\n");
                return Err(format!("the guest took more than {} s:\n{all}", self.seconds_max));
            }
            let line = match self.lines.recv_timeout(until.saturating_duration_since(now)) {
                Ok(line) => line,
                Err(RecvTimeoutError::Timeout) => return Ok(None),
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(format!("the guest ended before its script:\n{}", self.heard.join("\n")));
                }
            };
            self.heard.push(line.clone());
            let Some(said) = line.strip_prefix("guest: ") else { continue };
            if said.starts_with("failed") {
                while let Ok(line) = self.lines.recv_timeout(Duration::from_secs(5)) {
                    self.heard.push(line);
                }
                return Err(format!("the guest {said}\n{}", self.heard.join("\n")));
            }
            self.said.push(said.to_owned());
            return Ok(Some(said.to_owned()));
        }
    }

    /// Waits until QEMU has ended, for at most `limit`. Returns true if it has ended well.
    pub fn has_ended(&mut self, limit: Duration) -> bool {
        let until = Instant::now() + limit;
        loop {
            if let Ok(Some(status)) = self.child.try_wait() {
                return status.success();
            }
            if Instant::now() > until {
                return false;
            }
            thread::sleep(Duration::from_millis(20));
        }
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
                panic!("the guest took more than {} s:\n{}", self.seconds_max, self.heard.join("\n"))
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
