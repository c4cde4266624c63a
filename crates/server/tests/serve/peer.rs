//! A server, and clients that speak the protocol directly, so that they can also break it.

use bywash_channel::{Client, Options as ChannelOptions, Submission, Wait, socket_pair};
use bywash_link::{Messages, connect};
use bywash_protocol::layout::{Opcode, Status};
use bywash_protocol::{Access, ControlReply, ControlRequest, GrantInfo, MESSAGE_BYTES_MAX, Refusal, VERSION};
use bywash_server::{Options, Server};
use bywash_support::cores::server_cores;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;

/// Greatest time to wait for anything whose time is not tested.
pub const LIMIT: Duration = Duration::from_secs(20);

/// Returns the options of a server at this socket that all tests begin with: `BYWASH_TEST_CORES` sets the number of cores
/// of servers whose tests do not set it.
pub fn options(socket: impl Into<PathBuf>) -> Options {
    Options::new(socket).cores(server_cores())
}

/// A server in its own folder.
pub struct Served {
    pub server: Option<Server>,
    pub socket: PathBuf,
    pub folder: TempDir,
}

impl Served {
    /// Starts a server with one device `fast` of 16 MiB of memory.
    pub fn memory() -> Served {
        Served::with(&["fast=mem:16M,pages=4K"], |options| options)
    }

    /// Starts a server with a device `disk` on a file, which has this number of bytes for volumes.
    pub fn file(bytes: u64) -> Served {
        let bytes = bytes + bywash_volume::RESERVED_BYTES;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk");
        let spec = format!("disk=file:{},size={bytes}", path.display());
        Served::within(folder, &[&spec], |options| options)
    }

    pub fn with(devices: &[&str], change: impl FnOnce(Options) -> Options) -> Served {
        Served::within(tempfile::tempdir().unwrap(), devices, change)
    }

    fn within(folder: TempDir, devices: &[&str], change: impl FnOnce(Options) -> Options) -> Served {
        let socket = folder.path().join("socket");
        let add = |options: Options, spec: &&str| options.device(spec.parse().unwrap());
        let options = change(devices.iter().fold(options(&socket), add));
        Served { server: Some(Server::start(options).unwrap()), socket, folder }
    }

    pub fn peer(&self) -> Peer {
        Peer::connect(&self.socket)
    }

    pub fn status(&self) -> bywash_protocol::report::Status {
        self.server.as_ref().unwrap().status().unwrap()
    }

    /// Waits until the condition is true of the server's status.
    pub fn until(&self, what: &str, is_so: impl Fn(&bywash_protocol::report::Status) -> bool) {
        let end = std::time::Instant::now() + LIMIT;
        while !is_so(&self.status()) {
            assert!(std::time::Instant::now() < end, "{what}: {:?}", self.status());
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// A client of the server.
pub struct Peer {
    pub messages: Messages,
    pub channel: Option<Client>,
    pub page: OwnedFd,
    pub number: u64,
}

impl Peer {
    pub fn connect(socket: &Path) -> Peer {
        let messages = Messages::over(connect(socket).unwrap(), MESSAGE_BYTES_MAX);
        let (answer, mut passed) =
            ask(&messages, &ControlRequest::Hello { version: VERSION, name: "test".into() }, &[]);
        let ControlReply::Welcome { client, .. } = answer else { panic!("{answer:?}") };
        Peer { messages, channel: None, page: passed.pop().unwrap(), number: client }
    }

    pub fn ask(&self, what: ControlRequest) -> Result<ControlReply, Refusal> {
        self.ask_with(what, &[]).map(|(answer, _)| answer)
    }

    pub fn ask_with(
        &self,
        what: ControlRequest,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<(ControlReply, Vec<OwnedFd>), Refusal> {
        match ask(&self.messages, &what, descriptors) {
            (ControlReply::Refused(refused), _) => Err(refused),
            answer => Ok(answer),
        }
    }

    pub fn create(&self, volume: &str, device: &str, bytes: u64) {
        self.create_as(volume, device, bytes, 0, 0o600).unwrap();
    }

    pub fn create_as(
        &self,
        volume: &str,
        device: &str,
        bytes: u64,
        owner: u32,
        mode: u16,
    ) -> Result<(), Refusal> {
        let (volume, device) = (volume.into(), device.into());
        self.ask(ControlRequest::Create { volume, device, bytes, owner, group: owner, mode, is_thin: false })
            .map(drop)
    }

    /// Creates a thin volume.
    pub fn create_thin(&self, volume: &str, device: &str, bytes: u64) {
        let (volume, device) = (volume.into(), device.into());
        let (owner, group, mode, is_thin) = (0, 0, 0o600, true);
        self.ask(ControlRequest::Create { volume, device, bytes, owner, group, mode, is_thin }).unwrap();
    }

    /// Returns the report of a volume.
    pub fn volume(&self, name: &str) -> bywash_protocol::report::Volume {
        self.volumes().into_iter().find(|volume| volume.name == name).unwrap()
    }

    /// Returns the reports of all volumes, sorted by name.
    pub fn volumes(&self) -> Vec<bywash_protocol::report::Volume> {
        let (answer, files) = self.ask_with(ControlRequest::Volumes {}, &[]).unwrap();
        assert_eq!(answer, ControlReply::Report {});
        let path = format!("/proc/self/fd/{}", files[0].as_raw_fd());
        serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
    }

    pub fn open(&self, volume: &str, access: Access) -> Result<GrantInfo, Refusal> {
        match self.ask(ControlRequest::Open { volume: volume.into(), access })? {
            ControlReply::Granted(granted) => Ok(granted),
            answer => panic!("{answer:?}"),
        }
    }

    /// Sets up the client's channel.
    pub fn with_channel(mut self) -> Peer {
        self.make_channel(ChannelOptions::new().depth(64).arena_bytes(4 << 20).wait(Wait::Adaptive));
        self
    }

    pub fn make_channel(&mut self, options: ChannelOptions) {
        let (here, there) = socket_pair().unwrap();
        let making = std::thread::spawn(move || Client::over(here, &options).unwrap());
        let (answer, _) = self.ask_with(ControlRequest::SetUpChannel {}, &[there.as_fd()]).unwrap();
        assert_eq!(answer, ControlReply::Done {});
        self.channel = Some(making.join().unwrap());
    }

    /// Sends a request. Returns its status, its value, and the contents of its buffer afterwards.
    pub fn request(
        &mut self,
        opcode: u8,
        flags: u8,
        arguments: [u64; 6],
        data: Option<&[u8]>,
    ) -> (Status, u64, Vec<u8>) {
        let channel = self.channel.as_mut().unwrap();
        let mut submission = Submission::new(opcode).flags(flags).arguments(arguments);
        if let Some(data) = data {
            let mut buffer = channel.alloc(data.len()).unwrap();
            buffer.write(0, data);
            submission = submission.buffer(buffer);
        }
        channel.submit(submission).unwrap();
        let done = channel.reap_within(LIMIT).unwrap();
        let mut bytes = vec![0; done.buffer.as_ref().map_or(0, |buffer| buffer.len())];
        if let Some(buffer) = done.buffer {
            buffer.read(0, &mut bytes);
        }
        (Status::from_number(done.status).unwrap(), done.value, bytes)
    }

    pub fn read(&mut self, grant: u64, offset: u64, length: usize) -> Result<Vec<u8>, Status> {
        let arguments = [grant, offset, length as u64, 0, 0, 0];
        // What is not read would stay.
        match self.request(Opcode::Read as u8, 0, arguments, Some(&vec![0xa5; length])) {
            (Status::Success, value, bytes) => {
                assert_eq!(value, length as u64);
                Ok(bytes)
            }
            (status, ..) => Err(status),
        }
    }

    pub fn write(&mut self, grant: u64, offset: u64, data: &[u8]) -> Result<(), Status> {
        let arguments = [grant, offset, data.len() as u64, 0, 0, 0];
        self.done(Opcode::Write, 0, arguments, Some(data))
    }

    /// Sends a request without data.
    pub fn plain(&mut self, opcode: Opcode, grant: u64, offset: u64, length: u64) -> Result<(), Status> {
        self.done(opcode, 0, [grant, offset, length, 0, 0, 0], None)
    }

    pub fn done(
        &mut self,
        opcode: Opcode,
        flags: u8,
        arguments: [u64; 6],
        data: Option<&[u8]>,
    ) -> Result<(), Status> {
        match self.request(opcode as u8, flags, arguments, data) {
            (Status::Success, ..) => Ok(()),
            (status, ..) => Err(status),
        }
    }
}

pub fn ask(
    messages: &Messages,
    what: &ControlRequest,
    descriptors: &[BorrowedFd<'_>],
) -> (ControlReply, Vec<OwnedFd>) {
    messages.send(&what.to_bytes().unwrap(), descriptors, LIMIT).unwrap();
    let packet = messages.receive(LIMIT).unwrap();
    (ControlReply::from_bytes(&packet.bytes).unwrap(), packet.descriptors)
}

/// Returns bytes that depend on the seed and on their offset.
pub fn pattern(seed: u64, length: usize) -> Vec<u8> {
    (0..length as u64).map(|at| ((at ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}
