//! The machine whose power is cut: disks with file systems, in memory, on loop devices.
//!
//! Invariant: no destructor needs to run. All lies in a tmpfs of a mount namespace of the thread's own; loop devices detach
//! with their last user; the server of the disks dies with the thread that started it. A test that is killed leaves an empty
//! folder.

use crate::disk::{Disk, Format, at, tool};
use crate::image;
use crate::launch::{self, Launch, confined};
use crate::recording::{self, Position, Recording};
use bywash_support::disks::enter_own_mount_namespace;
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Says what this user or kernel lacks for a machine: root, FUSE, loop devices; nothing if all is there.
pub fn missing() -> Option<String> {
    let devices = ["/dev/fuse", "/dev/loop-control"];
    match rustix::process::geteuid().is_root() {
        false => Some("only root can make disks: run the tests as root".into()),
        true => {
            devices.iter().find(|path| !Path::new(path).exists()).map(|path| format!("there is no {path}"))
        }
    }
}

/// Disks and the folders that belong to them.
#[derive(Debug)]
pub struct Machine {
    program: PathBuf,
    disks: Vec<Disk>,
    // Declared last: it is removed after all else.
    folder: TempDir,
}

impl Machine {
    /// Makes the disks, with empty file systems. The calling thread leaves its mount namespace.
    ///
    /// `program` is the path of `bywash-power`, which serves the disks while they are recorded.
    ///
    /// # Errors
    /// A sentence that says what is missing: root, a tool, memory.
    pub fn new(program: &Path, disks: Vec<Disk>) -> Result<Machine, String> {
        let folder = tempfile::Builder::new().prefix("bywash-power-").tempdir();
        let machine = Machine::in_folder(program, disks, folder)?;
        for disk in &machine.disks {
            disk.make(&machine.image(disk, "now"))?;
        }
        Ok(machine)
    }

    /// Makes the machine of a recording that [`Machine::keep`] has kept, in the same folder as before.
    ///
    /// # Errors
    /// A sentence that says what is missing, or that the folder is in use.
    pub fn again(program: &Path, disks: Vec<Disk>, kept: &Path) -> Result<Machine, String> {
        let name = fs::read_to_string(kept.join(FOLDER)).map_err(|error| at(&kept.join(FOLDER), error))?;
        let folder = tempfile::Builder::new().prefix(&name).rand_bytes(0).tempdir();
        let machine = Machine::in_folder(program, disks, folder)?;
        tool(
            Command::new("cp").args(["-a", "--sparse=always"]).arg(kept.join(".")).arg(machine.folder.path()),
        )?;
        Ok(machine)
    }

    /// Keeps the recording and the memory in the folder `kept`, which is made anew.
    ///
    /// # Errors
    /// A sentence that says what failed.
    pub fn keep(&self, kept: &Path) -> Result<(), String> {
        // The one of an earlier run; there may be none.
        let _ = fs::remove_dir_all(kept);
        fs::create_dir_all(kept).map_err(|error| at(kept, error))?;
        let bases = self.disks.iter().map(|disk| self.image(disk, "base"));
        let files = bases.chain([self.index(), self.path(WRITTEN), self.memory()]);
        tool(Command::new("cp").args(["-a", "--sparse=always"]).args(files).arg(kept))?;
        let name = self.folder.path().file_name().unwrap_or_default().as_encoded_bytes();
        fs::write(kept.join(FOLDER), name).map_err(|error| at(kept, error))
    }

    /// Mounts a tmpfs at a new folder and makes the folders in it.
    fn in_folder(
        program: &Path,
        disks: Vec<Disk>,
        folder: std::io::Result<TempDir>,
    ) -> Result<Machine, String> {
        missing().map_or(Ok(()), Err)?;
        let folder = folder.map_err(|error| format!("cannot make a temporary folder: {error}"))?;
        enter_own_mount_namespace()?;
        mount("tmpfs", folder.path(), "tmpfs", MountFlags::empty(), Some(c"mode=0755"))
            .map_err(|error| at(folder.path(), error))?;
        let machine = Machine { program: program.into(), disks, folder };
        for made in ["fuse", "memory"].into_iter().chain(machine.disks.iter().map(|disk| disk.name)) {
            fs::create_dir(machine.path(made)).map_err(|error| at(&machine.path(made), error))?;
        }
        Ok(machine)
    }

    /// Returns the disks, in the order of their numbers.
    pub fn disks(&self) -> &[Disk] {
        &self.disks
    }

    /// Returns the path of `bywash-power`.
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// Returns the path of a name in the folder: a disk's name is its mount point, or the device of a raw one.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Returns a folder that no power cut harms.
    pub fn memory(&self) -> PathBuf {
        self.path("memory")
    }

    /// Returns the index of the recording, whose size tells the recorder's position.
    pub fn index(&self) -> PathBuf {
        self.path("index")
    }

    /// Returns the path of the log: on the disk `log` if there is one, else beside the data.
    pub fn log(&self) -> PathBuf {
        match self.disks.iter().find(|disk| disk.name == "log") {
            Some(disk) if disk.format == Format::Raw => self.path("log"),
            Some(_) => self.path("log/bywash.log"),
            None => self.path("data/bywash.log"),
        }
    }

    /// Returns the image of a disk: `now`, `base` or `cut`.
    pub fn image(&self, disk: &Disk, state: &str) -> PathBuf {
        self.path(&format!("{}.{state}", disk.name))
    }

    /// Returns the present position of the recorder.
    ///
    /// # Errors
    /// A sentence that says why it cannot be asked.
    pub fn position(&self) -> Result<Position, String> {
        let index = self.index();
        File::open(&index).and_then(|index| recording::position(&index)).map_err(|error| at(&index, error))
    }

    /// Reads the recording.
    ///
    /// # Errors
    /// A sentence that says why it cannot be read.
    pub fn recording(&self) -> Result<Recording, String> {
        Recording::open(&self.index(), &self.path(WRITTEN)).map_err(|error| at(&self.index(), error))
    }

    /// Mounts the images of a state, without a recorder.
    ///
    /// # Errors
    /// A sentence of the tool that failed.
    pub fn mount(&self, state: &str) -> Result<Mounted<'_>, String> {
        let files = self.disks.iter().map(|disk| self.image(disk, state)).collect();
        Mounted::new(self, files, None)
    }

    /// Takes the disks as they are as the base of the recording, and mounts them with a recorder below.
    ///
    /// # Errors
    /// A sentence of the tool that failed.
    pub fn record(&self) -> Result<Mounted<'_>, String> {
        for disk in &self.disks {
            let (now, base) = (self.image(disk, "now"), self.image(disk, "base"));
            let copied = File::open(&now).and_then(|now| image::copy(&now, &File::create(&base)?));
            copied.map_err(|error| at(&base, error))?;
        }
        let server = Server::start(self)?;
        let files = (0..self.disks.len()).map(|number| self.path("fuse").join(number.to_string())).collect();
        Mounted::new(self, files, Some(server))
    }

    /// Runs the words after [`confined`] and returns their output.
    ///
    /// # Errors
    /// A sentence that says what failed.
    pub fn run<Word: AsRef<std::ffi::OsStr>>(
        &self,
        words: impl IntoIterator<Item = Word>,
        limit_s: u64,
    ) -> Result<String, String> {
        launch::run(confined().args(words), &self.memory(), Duration::from_secs(limit_s))
    }

    /// Runs the command of [`Launch`] that prepares the disks, if there is one, as a user who owns the log's folder.
    ///
    /// # Errors
    /// A sentence that says what failed.
    pub fn prepare(&self, words: &[String], owner: Option<&str>) -> Result<(), String> {
        let (Some(owner), false) = (owner, words.is_empty()) else { return self.hook(words) };
        let log = self.log();
        let folder = log.parent().ok_or("the log is in no folder")?;
        tool(Command::new("chown").arg(owner).arg(folder))?;
        let user = ["setpriv", "--reuid", owner, "--regid", owner, "--clear-groups", "--"];
        let words = user.iter().map(|word| (*word).to_owned()).chain(words.iter().cloned());
        self.hook(&words.collect::<Vec<_>>())
    }

    /// Runs a command of [`Launch`], if there is one.
    ///
    /// # Errors
    /// A sentence that says what failed.
    pub fn hook(&self, words: &[String]) -> Result<(), String> {
        match words.is_empty() {
            true => Ok(()),
            false => self.run(Launch::with_log(words, &self.log()), HOOK_LIMIT_S).map(drop),
        }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // The kernel does it if this fails, together with the namespace.
        let _ = unmount(self.folder.path(), UnmountFlags::DETACH);
    }
}

/// The process that serves the recorded disks.
#[derive(Debug)]
struct Server {
    child: Child,
    fuse: PathBuf,
}

impl Server {
    fn start(machine: &Machine) -> Result<Server, String> {
        let fuse = machine.path("fuse");
        let mut command = Command::new(&machine.program);
        command.arg("serve").arg(&fuse).arg(machine.index()).arg(machine.path(WRITTEN));
        command.args(machine.disks.iter().map(|disk| machine.image(disk, "now"))).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|error| at(&machine.program, error))?;
        let mut line = String::new();
        if let Some(output) = child.stdout.take() {
            // No line means that the server has ended, and said why.
            let _ = BufReader::new(output).read_line(&mut line);
        }
        match line == "ready\n" {
            true => Ok(Server { child, fuse }),
            false => {
                let _ = child.kill();
                let _ = child.wait();
                Err("the server of the disks did not start".into())
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The server ends when its file system does; if that is still in use, the kill ends both.
        let _ = unmount(&self.fuse, UnmountFlags::DETACH);
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Mounted disks of a machine.
#[derive(Debug)]
pub struct Mounted<'machine> {
    machine: &'machine Machine,
    mounts: Vec<PathBuf>,
    devices: Vec<File>,
    server: Option<Server>,
}

impl<'machine> Mounted<'machine> {
    fn new(
        machine: &'machine Machine,
        files: Vec<PathBuf>,
        server: Option<Server>,
    ) -> Result<Mounted<'machine>, String> {
        let is_direct = server.is_some();
        let mut mounted = Mounted { machine, mounts: Vec::new(), devices: Vec::new(), server };
        for (disk, file) in machine.disks.iter().zip(files) {
            mounted.attach(disk, &file, is_direct)?;
        }
        Ok(mounted)
    }

    fn attach(&mut self, disk: &Disk, file: &Path, is_direct: bool) -> Result<(), String> {
        let direct = if is_direct { "--direct-io=on" } else { "--direct-io=off" };
        let device = tool(Command::new("losetup").args(["--find", "--show", direct]).arg(file))?;
        let device = Path::new(device.trim());
        let open = File::open(device);
        // In use, it stays until the last descriptor is closed and the last mount is gone.
        tool(Command::new("losetup").arg("--detach").arg(device))?;
        self.devices.push(open.map_err(|error| at(device, error))?);
        let folder = self.machine.path(disk.name);
        let kind = match disk.format {
            Format::Ext4 => "ext4",
            Format::Xfs => "xfs",
            Format::Raw => {
                // The folder, or the link of the time before.
                let _ = fs::remove_dir(&folder).or_else(|_| fs::remove_file(&folder));
                return std::os::unix::fs::symlink(device, &folder).map_err(|error| at(&folder, error));
            }
        };
        tool(Command::new("mount").args(["-t", kind]).arg(device).arg(&folder))?;
        self.mounts.push(folder);
        Ok(())
    }

    /// Unmounts the disks, so that all is on them, and ends the recorder.
    ///
    /// # Errors
    /// A sentence that says that a file system is still in use.
    pub fn unmount(mut self) -> Result<(), String> {
        for folder in std::mem::take(&mut self.mounts).iter().rev() {
            if let Err(error) = unmount_when_idle(folder) {
                // Else the loop device would never go.
                let _ = unmount(folder, UnmountFlags::DETACH);
                return Err(format!("cannot unmount {}: {error}", folder.display()));
            }
        }
        Ok(())
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        for folder in self.mounts.iter().rev() {
            let _ = unmount(folder, UnmountFlags::DETACH);
        }
        // The loop devices first, since they use the server's files.
        self.devices.clear();
        self.server = None;
    }
}

/// Name of the file with the written data.
const WRITTEN: &str = "written";
/// Name of the file in a kept recording that has the name of its folder.
const FOLDER: &str = "folder";

/// Unmounts a file system. A child that another thread has just forked has copies of all descriptors until it executes its
/// program, those of files that this thread has closed since among them, so a busy one is tried again.
fn unmount_when_idle(folder: &Path) -> Result<(), Errno> {
    let end = Instant::now() + IDLE_LIMIT;
    loop {
        match unmount(folder, UnmountFlags::empty()) {
            Err(Errno::BUSY) if Instant::now() < end => std::thread::sleep(Duration::from_millis(1)),
            done => return done,
        }
    }
}

/// Greatest time until nobody uses a file system any more.
const IDLE_LIMIT: Duration = Duration::from_secs(5);
/// Greatest time of a command of [`Launch`], in s.
const HOOK_LIMIT_S: u64 = 60;
