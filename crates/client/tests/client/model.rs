//! A minimal device server: checks each request against its grant, one after the other, and carries it out by
//! pread(2) and pwrite(2). [`Knobs`] make it misbehave on demand.

use bywash_channel::{Request, RequestBuffer, Server, ServerOptions};
use bywash_link::{Error, HugePages, Listener, Messages};
use bywash_protocol::layout::{FUA, GRANT_RANGE_BYTES, GrantRange, Opcode, Status, decode_request};
use bywash_protocol::{
    Access, ControlReply, ControlRequest, GrantInfo, MESSAGE_BYTES_MAX, Refusal, RefusalKind, VERSION,
    report, revocations,
};
use rustix::fs::{Mode, OFlags};
use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::Duration;

pub const BLOCK: u32 = 512;
pub const CHUNK: u64 = 64 << 10;
const GRANTS_MAX: u32 = 64;
const DEPTH_MAX: u32 = 1024;
/// Greatest time until a thread of the server notices that it must stop.
const TICK: Duration = Duration::from_millis(5);

/// A volume, made of chunks or of one file.
struct Volume {
    chunks: Vec<File>,
    chunk_bytes: u64,
    bytes: u64,
    read_only: bool,
    /// Reason why the volume cannot be mapped; `None` if it can be.
    not_mapped: Option<String>,
}

fn chunk(bytes: u64) -> File {
    let memory = bywash_link::MemoryFile::create("model-chunk", bytes as usize, HugePages::No).unwrap();
    memory.seal_size().unwrap();
    memory.descriptor().try_clone_to_owned().unwrap().into()
}

impl Volume {
    fn memory(bytes: u64) -> Volume {
        let starts = (0..bytes).step_by(CHUNK as usize);
        let chunks = starts.map(|start| chunk(CHUNK.min(bytes - start))).collect();
        Volume { chunks, chunk_bytes: CHUNK, bytes, read_only: false, not_mapped: None }
    }

    fn file(file: File) -> Volume {
        let bytes = file.metadata().unwrap().len();
        let why = Some("its device is a file".into());
        Volume { chunks: vec![file], chunk_bytes: u64::MAX, bytes, read_only: false, not_mapped: why }
    }

    fn each(&self, offset: u64, length: usize, mut each: impl FnMut(&File, u64, std::ops::Range<usize>)) {
        let mut at = 0;
        while at < length {
            let (chunk, within) =
                ((offset + at as u64) / self.chunk_bytes, (offset + at as u64) % self.chunk_bytes);
            let part = (self.chunk_bytes - within).min((length - at) as u64) as usize;
            each(&self.chunks[chunk as usize], within, at..at + part);
            at += part;
        }
    }

    fn read(&self, offset: u64, to: &mut [u8]) {
        self.each(offset, to.len(), |file, at, range| file.read_exact_at(&mut to[range], at).unwrap());
    }

    fn write(&self, offset: u64, from: &[u8]) {
        self.each(offset, from.len(), |file, at, range| file.write_all_at(&from[range], at).unwrap());
    }
}

/// A grant that a connection has opened.
#[derive(Clone)]
struct Grant {
    number: u64,
    volume: String,
    access: Access,
    is_valid: bool,
}

/// The grants of one connection, and its page of notices.
#[derive(Default)]
struct Connection {
    tags: u64,
    grants: BTreeMap<u64, Grant>,
    /// The page of notices, with one word for each place of a grant.
    page: Option<File>,
}

/// Ways in which the server misbehaves on demand, and counts of its work.
#[derive(Default)]
pub struct Knobs {
    /// True to hold requests without completing them.
    pub hold: AtomicBool,
    /// Delay of each reply over the control socket, in ms.
    pub slow_ms: AtomicU64,
    /// Status with which every request completes without being carried out; 0 to carry requests out.
    pub status: AtomicU16,
    /// Greatest number of bytes of one request; 0 for no limit.
    pub bytes_max: AtomicU64,
    /// Number added to the value of every completion.
    pub value: AtomicU64,
    /// Number of requests after which the server ends, plus 1; 0 for never.
    pub requests_left: AtomicU64,
    /// Number of completed requests.
    pub completed: AtomicU64,
    /// Number of accepted connections.
    pub connections: AtomicU64,
}

#[derive(Default)]
struct State {
    volumes: BTreeMap<String, Volume>,
    connections: BTreeMap<u64, Connection>,
}

/// The volumes, which survive the death of a server.
#[derive(Clone, Default)]
pub struct World {
    state: Arc<Mutex<State>>,
    pub knobs: Arc<Knobs>,
}

impl World {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Adds a volume in memory.
    pub fn memory(self, name: &str, bytes: u64) -> World {
        self.state().volumes.insert(name.into(), Volume::memory(bytes));
        self
    }

    /// Adds a volume that is a file.
    pub fn file(self, name: &str, path: &Path, bytes: u64) -> World {
        let mut options = File::options();
        let file = options.read(true).write(true).create(true).truncate(false).open(path).unwrap();
        file.set_len(bytes).unwrap();
        self.state().volumes.insert(name.into(), Volume::file(file));
        self
    }

    /// Returns a volume's contents, as the server sees them.
    pub fn contents(&self, name: &str) -> Vec<u8> {
        let state = self.state();
        let volume = &state.volumes[name];
        let mut bytes = vec![0; volume.bytes as usize];
        volume.read(0, &mut bytes);
        bytes
    }

    /// Returns the number of open grants.
    pub fn grants(&self) -> usize {
        self.state().connections.values().map(|connection| connection.grants.len()).sum()
    }

    /// Revokes the grants of a volume: stores their words, makes a heavy fence, and copies the contents into
    /// new chunks.
    pub fn revoke(&self, name: &str) {
        let mut state = self.state();
        for connection in state.connections.values_mut() {
            for grant in connection.grants.values_mut().filter(|grant| grant.volume == name) {
                grant.is_valid = false;
                let at = revocations::index_of(grant.number) as u64 * 8;
                let word = revocations::tag_of(grant.number).to_le_bytes();
                connection.page.as_ref().unwrap().write_all_at(&word, at).unwrap();
            }
        }
        bywash_sync::prepare_shared_fences();
        bywash_sync::heavy_shared_fence(true);
        let Some(volume) = state.volumes.get_mut(name).filter(|volume| volume.not_mapped.is_none()) else {
            return;
        };
        let mut fresh = Volume::memory(volume.bytes);
        fresh.read_only = volume.read_only;
        let mut bytes = vec![0; volume.bytes as usize];
        volume.read(0, &mut bytes);
        fresh.write(0, &bytes);
        *volume = fresh;
    }

    fn carry_out(&self, connection: u64, request: &Request, memory: &RequestBuffer<'_>) -> (Status, u64) {
        let Ok(asked) = decode_request(request.opcode(), request.flags(), request.arguments(), request.len())
        else {
            return (Status::Malformed, 0);
        };
        let mut bytes = vec![0; memory.len()];
        memory.read(0, &mut bytes);
        let is_many = matches!(asked.opcode, Opcode::ReadRanges | Opcode::WriteRanges);
        let pieces: Vec<GrantRange> = match is_many {
            true => {
                let head = bytes[..asked.pieces_bytes].chunks_exact(GRANT_RANGE_BYTES);
                head.map(|piece| GrantRange::from_bytes(piece.try_into().unwrap())).collect()
            }
            false => vec![asked.piece],
        };
        let most = self.knobs.bytes_max.load(Relaxed);
        if most > 0 && !is_many && asked.piece.length > most {
            return (Status::TooFragmented, most);
        }
        let state = self.state();
        let mut volumes = Vec::new();
        for (number, piece) in pieces.iter().enumerate() {
            let refused = |status| (status, number as u64);
            let Some(grant) = state.connections[&connection].grants.get(&piece.grant) else {
                return refused(Status::NoGrant);
            };
            if !grant.is_valid {
                return refused(Status::Revoked);
            }
            let volume = &state.volumes[&grant.volume];
            let reads = matches!(asked.opcode, Opcode::Read | Opcode::ReadRanges);
            let is_allowed = match (asked.opcode, reads) {
                (Opcode::Flush, _) => true,
                (_, true) => grant.access.allows_read(),
                (_, false) => grant.access.allows_write() && !volume.read_only,
            };
            if !is_allowed {
                return refused(Status::AccessDenied);
            }
            if !(piece.offset | piece.length).is_multiple_of(u64::from(BLOCK)) {
                return refused(Status::Malformed);
            }
            if piece.offset.checked_add(piece.length).is_none_or(|end| end > volume.bytes) {
                return refused(Status::OutOfBounds);
            }
            volumes.push(volume);
        }
        if is_many && pieces.iter().map(|piece| piece.length).sum::<u64>() != asked.data_bytes {
            return (Status::Malformed, 0);
        }
        let mut at = asked.pieces_bytes;
        for (volume, piece) in volumes.iter().zip(&pieces) {
            let length = piece.length as usize;
            match asked.opcode {
                Opcode::Read | Opcode::ReadRanges => volume.read(piece.offset, &mut bytes[at..at + length]),
                Opcode::Write | Opcode::WriteRanges => volume.write(piece.offset, &bytes[at..at + length]),
                Opcode::WriteZeroes | Opcode::Discard => volume.write(piece.offset, &vec![0; length]),
                Opcode::Flush => {}
                Opcode::CompareAndWrite => {
                    let mut there = vec![0; length];
                    volume.read(piece.offset, &mut there);
                    if there != bytes[..length] {
                        return (Status::Mismatch, 0);
                    }
                    volume.write(piece.offset, &bytes[length..]);
                }
            }
            if request.flags() & FUA != 0 || asked.opcode == Opcode::Flush {
                volume.chunks.iter().for_each(|file| file.sync_data().unwrap());
            }
            at += length;
        }
        if matches!(asked.opcode, Opcode::Read | Opcode::ReadRanges) {
            memory.write(asked.pieces_bytes, &bytes[asked.pieces_bytes..]);
        }
        (Status::Success, if is_many { 0 } else { asked.piece.length })
    }

    fn grant(&self, connection: u64, volume: &str, access: Access) -> ControlReply {
        let mut state = self.state();
        let State { volumes, connections } = &mut *state;
        let Some(there) = volumes.get(volume) else {
            return ControlReply::Refused(Refusal::new(
                RefusalKind::Missing,
                "there is no such volume; see volumes",
            ));
        };
        if access.allows_write() && there.read_only {
            return ControlReply::Refused(Refusal::new(RefusalKind::Denied, "it is read-only"));
        }
        let own = connections.get_mut(&connection).unwrap();
        let taken: Vec<usize> = own.grants.keys().map(|number| revocations::index_of(*number)).collect();
        let Some(place) = (0..GRANTS_MAX as usize).find(|place| !taken.contains(place)) else {
            return ControlReply::Refused(Refusal::new(RefusalKind::Limit, "no more grants; close some"));
        };
        own.tags += 1;
        let number = own.tags << 32 | place as u64;
        own.grants.insert(number, Grant { number, volume: volume.into(), access, is_valid: true });
        let not_mapped = match access {
            Access::Write => Some("it could be read as well".into()),
            _ => there.not_mapped.clone(),
        };
        let device = "model".into();
        ControlReply::Granted(GrantInfo {
            grant: number,
            bytes: there.bytes,
            block: BLOCK,
            access,
            device,
            unmappable_reason: not_mapped,
            is_volatile: there.not_mapped.is_none(),
            can_be_direct: false,
        })
    }

    /// Opens a descriptor for each chunk from `from` on, with the grant's rights.
    fn chunks(&self, connection: u64, grant: u64, from: u32) -> (ControlReply, Vec<OwnedFd>) {
        let state = self.state();
        let grant = &state.connections[&connection].grants[&grant];
        let volume = &state.volumes[&grant.volume];
        let right = if grant.access.allows_write() { OFlags::RDWR } else { OFlags::RDONLY };
        // At most three chunks a reply, so that a volume takes several messages.
        let files = volume.chunks.iter().skip(from as usize).take(3).map(|file| {
            let name = format!("/proc/self/fd/{}", file.as_raw_fd());
            rustix::fs::open(name, right | OFlags::CLOEXEC, Mode::empty()).unwrap()
        });
        let count = volume.chunks.len() as u32;
        (ControlReply::Chunks { chunk_bytes: volume.chunk_bytes, count }, files.collect())
    }

    fn volumes(&self) -> Vec<report::Volume> {
        let state = self.state();
        let volumes = state.volumes.iter().map(|(name, volume)| report::Volume {
            name: name.clone(),
            device: "model".into(),
            bytes: volume.bytes,
            extents: volume.chunks.len() as u32,
            owner: 0,
            group: 0,
            mode: 0o600,
            read_only: volume.read_only,
            is_gone: false,
            allocated: None,
            cluster: None,
            shared: None,
            is_snapshot: false,
            origin: None,
        });
        volumes.collect()
    }
}

fn told(what: &impl serde::Serialize) -> (ControlReply, Vec<OwnedFd>) {
    let json = serde_json::to_vec(what).unwrap();
    let file = chunk(json.len() as u64);
    file.write_all_at(&json, 0).unwrap();
    (ControlReply::Report {}, vec![file.into()])
}

/// A running server. Dropping it ends it at once, like one that was killed.
pub struct Running {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    /// Serves a world at the path `socket`.
    pub fn start(world: &World, socket: &Path) -> Running {
        let _ = std::fs::remove_file(socket);
        let listener = Listener::bind(socket).unwrap();
        let (stop, world) = (Arc::new(AtomicBool::new(false)), world.clone());
        let stopping = stop.clone();
        let thread = thread::spawn(move || {
            let mut threads = Vec::new();
            while !stopping.load(Relaxed) {
                match listener.try_accept().unwrap() {
                    Some(socket) => {
                        let (world, stopping) = (world.clone(), stopping.clone());
                        threads.push(thread::spawn(move || world.talk(socket, &stopping)));
                    }
                    None => thread::sleep(Duration::from_millis(1)),
                }
            }
            drop(listener);
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        });
        Running { stop, thread: Some(thread) }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        let _ = self.thread.take().unwrap().join();
    }
}

impl World {
    /// Serves one client's control socket until the client disconnects or the server stops.
    fn talk(&self, socket: OwnedFd, stop: &Arc<AtomicBool>) {
        let messages = Messages::over(socket, MESSAGE_BYTES_MAX);
        let number = self.knobs.connections.fetch_add(1, Relaxed) + 1;
        self.state().connections.insert(number, Connection::default());
        let mut channel: Option<JoinHandle<()>> = None;
        let over = Arc::new(AtomicBool::new(false));
        while !stop.load(Relaxed) {
            let packet = match messages.receive(TICK) {
                Ok(packet) => packet,
                Err(Error::TimedOut) => continue,
                Err(_) => break,
            };
            let ask = ControlRequest::from_bytes(&packet.bytes).unwrap();
            thread::sleep(Duration::from_millis(self.knobs.slow_ms.load(Relaxed)));
            let mut came = packet.descriptors;
            let (answer, files) = match ask {
                ControlRequest::SetUpChannel {} => {
                    let (world, stop, over) = (self.clone(), stop.clone(), over.clone());
                    let socket = came.pop().unwrap();
                    channel = Some(thread::spawn(move || world.serve(number, socket, &stop, &over)));
                    (ControlReply::Done {}, vec![])
                }
                ask => self.answer(number, ask, came),
            };
            let files: Vec<_> = files.iter().map(AsFd::as_fd).collect();
            if messages.send(&answer.to_bytes().unwrap(), &files, Duration::from_secs(1)).is_err() {
                break;
            }
        }
        over.store(true, Relaxed);
        if let Some(channel) = channel {
            channel.join().unwrap();
        }
        self.state().connections.remove(&number);
    }

    fn answer(
        &self,
        connection: u64,
        ask: ControlRequest,
        mut came: Vec<OwnedFd>,
    ) -> (ControlReply, Vec<OwnedFd>) {
        let done = || (ControlReply::Done {}, vec![]);
        let missing =
            || (ControlReply::Refused(Refusal::new(RefusalKind::Missing, "there is no such volume")), vec![]);
        match ask {
            ControlRequest::Hello { version, name } => {
                assert!(version == VERSION && name.len() <= 64);
                let page = chunk(revocations::page_bytes(GRANTS_MAX) as u64);
                let pass = page.try_clone().unwrap().into();
                self.state().connections.get_mut(&connection).unwrap().page = Some(page);
                let welcome = ControlReply::Welcome {
                    version: VERSION,
                    client: connection,
                    depth_max: DEPTH_MAX,
                    arena_bytes_max: 64 << 20,
                    grants_max: GRANTS_MAX,
                };
                (welcome, vec![pass])
            }
            ControlRequest::Open { volume, access } => (self.grant(connection, &volume, access), vec![]),
            ControlRequest::OpenDescriptor {} => {
                let file = came.pop().unwrap();
                let access = match rustix::fs::fcntl_getfl(&file).unwrap() & OFlags::RWMODE {
                    OFlags::RDONLY => Access::Read,
                    OFlags::WRONLY => Access::Write,
                    _ => Access::ReadWrite,
                };
                let name = format!("passed {}", rustix::fs::fstat(&file).unwrap().st_ino);
                self.state().volumes.insert(name.clone(), Volume::file(file.into()));
                (self.grant(connection, &name, access), vec![])
            }
            ControlRequest::Close { grant } => {
                self.state().connections.get_mut(&connection).unwrap().grants.remove(&grant).unwrap();
                done()
            }
            ControlRequest::Map { grant, from } => self.chunks(connection, grant, from),
            ControlRequest::Volumes {} => told(&self.volumes()),
            ControlRequest::Status {} => told(&report::Status {
                version: "model".into(),
                pid: std::process::id(),
                uptime_s: 0,
                core_cpu_ns: 0,
                cores: Vec::new(),
                asks_refused: 0,
                clients_refused: 0,
                devices: vec![],
                clients: vec![],
                users: vec![],
                exports: vec![],
            }),
            ControlRequest::Create { volume, bytes, .. } => {
                self.state().volumes.insert(volume, Volume::memory(bytes));
                done()
            }
            ControlRequest::Resize { volume, bytes } => {
                self.revoke(&volume);
                let mut state = self.state();
                let Some(there) = state.volumes.get_mut(&volume) else { return missing() };
                let larger = Volume::memory(bytes);
                let mut kept = vec![0; bytes.min(there.bytes) as usize];
                there.read(0, &mut kept);
                larger.write(0, &kept);
                *there = larger;
                done()
            }
            ControlRequest::Rename { volume, to } => {
                let Some(there) = self.state().volumes.remove(&volume) else { return missing() };
                self.state().volumes.insert(to, there);
                done()
            }
            ControlRequest::SetOwnership { volume, read_only, .. } => {
                self.revoke(&volume);
                let mut state = self.state();
                let Some(there) = state.volumes.get_mut(&volume) else { return missing() };
                there.read_only = read_only.unwrap_or(there.read_only);
                done()
            }
            ControlRequest::Remove { volume } => {
                self.revoke(&volume);
                self.state().volumes.remove(&volume);
                done()
            }
            ControlRequest::Revoke { volume } => {
                self.revoke(&volume);
                done()
            }
            ControlRequest::Export { .. }
            | ControlRequest::Unexport { .. }
            | ControlRequest::AddDevice { .. }
            | ControlRequest::DropDevice { .. }
            | ControlRequest::Snapshot { .. }
            | ControlRequest::Clone { .. }
            | ControlRequest::Rollback { .. } => {
                let what = "the model has no exports, no devices and no thin volumes";
                let refusal = Refusal::new(RefusalKind::Unfit, what);
                (ControlReply::Refused(refusal), vec![])
            }
            ControlRequest::SetUpChannel {} => unreachable!(),
            ControlRequest::OpenDirect { .. } => unreachable!("no volume of the model can be direct"),
        }
    }

    /// Serves a channel until the channel ends or the server stops.
    fn serve(&self, connection: u64, socket: OwnedFd, stop: &AtomicBool, over: &AtomicBool) {
        let Ok(mut server) = Server::over(socket, &ServerOptions::new().depth_max(DEPTH_MAX)) else { return };
        let mut held = Vec::new();
        while !stop.load(Relaxed) && !over.load(Relaxed) {
            let request = match server.next_within(TICK) {
                Ok(request) => request,
                Err(Error::TimedOut) => {
                    if !self.knobs.hold.load(Relaxed) {
                        for request in held.drain(..) {
                            self.complete(connection, &mut server, request);
                        }
                    }
                    continue;
                }
                Err(_) => return,
            };
            match self.knobs.hold.load(Relaxed) {
                true => held.push(request),
                false => self.complete(connection, &mut server, request),
            }
            if self.knobs.requests_left.load(Relaxed) == 1 {
                stop.store(true, Relaxed);
            }
        }
    }

    fn complete(&self, connection: u64, server: &mut Server, request: Request) {
        let (status, value) = match self.knobs.status.load(Relaxed) {
            0 => {
                let (status, value) = self.carry_out(connection, &request, &server.memory(&request));
                (status as u16, value)
            }
            wrong => (wrong, 0),
        };
        // An error means that the client has disconnected, which is no failure of the test.
        let _ = server.complete(request, status, value + self.knobs.value.load(Relaxed));
        self.knobs.completed.fetch_add(1, Relaxed);
        let left = self.knobs.requests_left.load(Relaxed);
        if left > 1 {
            self.knobs.requests_left.store(left - 1, Relaxed);
        }
    }
}
