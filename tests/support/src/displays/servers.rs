//! Display servers that a test starts and ends: Xvfb and Weston, both without a screen.

use super::image::Image;
use super::x11::Client;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Width and height of the screens, in pixels.
pub const SCREEN: (usize, usize) = (800, 600);
const START_LIMIT: Duration = Duration::from_secs(30);

/// A display whose screen can be looked at.
pub trait Server {
    /// Starts the display's server, if it has one; it is ready when this returns.
    fn start() -> Self;
    /// Returns the name of the kind, as `bywash-display` has it.
    fn kind(&self) -> &'static str;
    /// Returns the name of the display.
    fn name(&self) -> String;
    /// Returns what the screen shows.
    fn screenshot(&self) -> Image;
}

/// A display server as a process.
pub trait ServerProcess: Server {
    /// Returns the server's process.
    fn process(&mut self) -> &mut Child;

    /// Kills the server.
    fn kill(&mut self) {
        self.process().kill().unwrap();
        self.process().wait().unwrap();
    }

    /// Stops the process as a debugger or a swapped-out machine would; killing it works all the same.
    fn stop(&mut self) {
        let pid = rustix::process::Pid::from_child(self.process());
        rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
    }
}

fn started(command: &mut Command, package: &str) -> Child {
    command.stdin(Stdio::null()).spawn().unwrap_or_else(|error| {
        panic!("{command:?}: {error}; the Debian package {package} has it, see `scripts/packages test`")
    })
}

/// An X server without a screen.
pub struct Xvfb {
    process: Child,
    number: u32,
}

impl Xvfb {
    /// Starts a server with a screen of this width, height and depth.
    pub fn with_screen((width, height): (usize, usize), depth: u32) -> Xvfb {
        let mut process = started(
            Command::new("Xvfb")
                .args(["-displayfd", "1", "-nolisten", "tcp", "-noreset", "-screen", "0"])
                .arg(format!("{width}x{height}x{depth}"))
                .stdout(Stdio::piped())
                .stderr(Stdio::null()),
            "xvfb",
        );
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let number = line.trim().parse().unwrap_or_else(|_| panic!("Xvfb said '{line}' and no number"));
        Xvfb { process, number }
    }
}

impl Server for Xvfb {
    fn start() -> Xvfb {
        Xvfb::with_screen(SCREEN, 24)
    }

    fn kind(&self) -> &'static str {
        "x11"
    }

    fn name(&self) -> String {
        format!(":{}", self.number)
    }

    fn screenshot(&self) -> Image {
        Client::connect(&self.name()).screenshot()
    }
}

impl ServerProcess for Xvfb {
    fn process(&mut self) -> &mut Child {
        &mut self.process
    }
}

impl Drop for Xvfb {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        // What a server that is killed leaves.
        let _ = std::fs::remove_file(format!("/tmp/.X{}-lock", self.number));
        let _ = std::fs::remove_file(format!("/tmp/.X11-unix/X{}", self.number));
    }
}

/// Settings of Weston, by which windows appear at once, somewhere on the screen, and stay as they are.
const WESTON_INI: &str = "[shell]
animation=none
close-animation=none
startup-animation=none
focus-animation=none
panel-position=none
background-color=0xff204060
locking=false
";

/// A Wayland compositor without a screen.
pub struct Weston {
    process: Child,
    folder: TempDir,
}

impl Weston {
    fn socket(&self) -> PathBuf {
        self.folder.path().join("wayland-test")
    }

    /// Starts a compositor with a screen of this width and height.
    pub fn with_screen((width, height): (usize, usize)) -> Weston {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("weston.ini"), WESTON_INI).unwrap();
        let log = std::fs::File::create(folder.path().join("log")).unwrap();
        let process = started(
            Command::new("weston")
                .args(["--backend=headless-backend.so", "--use-pixman", "--shell=desktop-shell.so"])
                .arg(format!("--config={}/weston.ini", folder.path().display()))
                .args(["--socket=wayland-test", "--idle-time=0", "--debug"])
                .args([format!("--width={width}"), format!("--height={height}")])
                .env("XDG_RUNTIME_DIR", folder.path())
                .stdout(log.try_clone().unwrap())
                .stderr(log),
            "weston",
        );
        let mut weston = Weston { process, folder };
        let until = Instant::now() + START_LIMIT;
        while std::os::unix::net::UnixStream::connect(weston.socket()).is_err() {
            let log = || std::fs::read_to_string(weston.folder.path().join("log")).unwrap();
            assert!(weston.process.try_wait().unwrap().is_none(), "weston ended: {}", log());
            assert!(Instant::now() < until, "weston does not listen: {}", log());
            std::thread::sleep(Duration::from_millis(10));
        }
        weston
    }
}

impl Server for Weston {
    fn start() -> Weston {
        Weston::with_screen(SCREEN)
    }

    fn kind(&self) -> &'static str {
        "wayland"
    }

    fn name(&self) -> String {
        self.socket().to_str().unwrap().to_owned()
    }

    fn screenshot(&self) -> Image {
        let shots = tempfile::tempdir().unwrap();
        let status = Command::new("weston-screenshooter")
            .current_dir(shots.path())
            .env("XDG_RUNTIME_DIR", self.folder.path())
            .env("WAYLAND_DISPLAY", self.name())
            .env_remove("XDG_PICTURES_DIR")
            .status()
            .unwrap();
        assert!(status.success());
        let files: Vec<_> =
            std::fs::read_dir(shots.path()).unwrap().map(|file| file.unwrap().path()).collect();
        let [file] = files.as_slice() else { panic!("the screenshot is not there: {files:?}") };
        Image::read_png(Path::new(file))
    }
}

impl ServerProcess for Weston {
    fn process(&mut self) -> &mut Child {
        &mut self.process
    }
}

impl Drop for Weston {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
