//! Permissions: who may do what, and how rights are revoked.

use crate::peer::{LIMIT, Peer, Served, pattern};
use crate::process::Serving;
use bywash_link::{MemoryFile, PAGE};
use bywash_protocol::layout::{Opcode, Status};
use bywash_protocol::{Access, ControlReply, ControlRequest, ExportProtocol, RefusalKind, revocations};
use bywash_support::peers::{Child, role};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::ptr;

/// A user other than the server's.
const NOBODY: u32 = 65534;

/// Mapping of a chunk, or of the page of notices.
struct Mapped(*mut u8);

impl Mapped {
    fn map(descriptor: &OwnedFd, bytes: usize, rights: ProtFlags) -> Result<Mapped, Errno> {
        // SAFETY: this creates a new mapping at an address that the kernel chooses; the mapping stays until
        // the process ends.
        let base = unsafe { mmap(ptr::null_mut(), bytes, rights, MapFlags::SHARED, descriptor, 0)? };
        Ok(Mapped(base.cast()))
    }

    fn read(&self, at: usize, length: usize) -> Vec<u8> {
        // SAFETY: the tests read only within the mapping, and each byte is copied out, so no reference to
        // shared memory exists.
        (at..at + length).map(|at| unsafe { self.0.add(at).read_volatile() }).collect()
    }

    fn write(&self, at: usize, bytes: &[u8]) {
        for (number, byte) in bytes.iter().enumerate() {
            // SAFETY: the tests write only within the mapping, and only if it was made for writing.
            unsafe { self.0.add(at + number).write_volatile(*byte) };
        }
    }
}

fn chunks(peer: &Peer, grant: u64) -> (u64, Vec<OwnedFd>) {
    match peer.ask_with(ControlRequest::Map { grant, from: 0 }, &[]).unwrap() {
        (ControlReply::Chunks { chunk_bytes, count }, passed) => {
            assert_eq!(count as usize, passed.len());
            (chunk_bytes, passed)
        }
        answer => panic!("{answer:?}"),
    }
}

/// The server gets no memory for new chunks when a volume is revoked: the administrator gets an error, and
/// the next attempt replaces all chunks that a client may have mapped.
#[test]
fn what_could_not_be_taken_back_is_taken_back_later() {
    let serving = Serving::start("fast=mem:8M,pages=4K", "");
    let admin = serving.peer();
    let mut peer = serving.peer().with_channel();
    peer.create("log", "fast", 6 << 20);
    let grant = peer.open("log", Access::ReadWrite).unwrap().grant;
    let (chunk_bytes, passed) = chunks(&peer, grant);
    let both = ProtFlags::READ | ProtFlags::WRITE;
    let mapped: Vec<Mapped> =
        passed.iter().map(|chunk| Mapped::map(chunk, chunk_bytes as usize, both).unwrap()).collect();
    let revoke = || admin.ask(ControlRequest::Revoke { volume: "log".into() });
    serving.may_open(false);
    let refused = revoke().unwrap_err();
    assert!(refused.message.contains("cannot be taken out of a client's reach"), "{refused}");
    serving.may_open(true);
    revoke().unwrap();
    mapped.iter().for_each(|chunk| chunk.write(0, &[1; 512]));
    let grant = peer.open("log", Access::Read).unwrap().grant;
    for chunk in 0..3 {
        assert_eq!(peer.read(grant, chunk * chunk_bytes, 512).unwrap(), vec![0; 512], "chunk {chunk}");
    }
}

/// Permissions as seen by another user than the server's, who owns the volume `theirs`. Runs in a child
/// process of the test, which changes its user first.
#[test]
fn another_user() {
    let Some(socket) = role() else { return };
    // SAFETY: these system calls take no memory of this process; glibc applies them to all threads, and this
    // process does nothing else.
    let became = unsafe {
        libc::setgroups(0, ptr::null()) == 0
            && libc::setresgid(NOBODY, NOBODY, NOBODY) == 0
            && libc::setresuid(NOBODY, NOBODY, NOBODY) == 0
    };
    assert!(became);
    let peer = Peer::connect(Path::new(&socket));
    for (volume, access, expected) in [
        ("private", Access::Read, Err(RefusalKind::Denied)),
        ("private", Access::ReadWrite, Err(RefusalKind::Denied)),
        ("theirs", Access::ReadWrite, Ok(())),
        ("public", Access::Read, Ok(())),
        ("public", Access::Write, Err(RefusalKind::Denied)),
        ("nothing", Access::Read, Err(RefusalKind::Missing)),
    ] {
        let found = peer.open(volume, access).map(drop).map_err(|refused| refused.code);
        assert_eq!(found, expected, "{volume} {access}");
    }
    for ask in [
        ControlRequest::Remove { volume: "theirs".into() },
        ControlRequest::Resize { volume: "theirs".into(), bytes: 1 << 22 },
        ControlRequest::Revoke { volume: "public".into() },
        ControlRequest::Export {
            volume: "theirs".into(),
            protocol: ExportProtocol::Nbd,
            address: "unix:/nowhere".into(),
        },
        ControlRequest::Unexport { volume: "theirs".into(), only: None },
        ControlRequest::AddDevice { device: "more=mem:4M".into() },
        ControlRequest::DropDevice { device: "fast".into() },
        ControlRequest::Status {},
    ] {
        assert_eq!(peer.ask(ask).unwrap_err().code, RefusalKind::Denied);
    }
    // A chunk of a read-only grant can be mapped for reading, and in no way for writing.
    let public = peer.open("public", Access::Read).unwrap();
    let (_, passed) = chunks(&peer, public.grant);
    assert!(Mapped::map(&passed[0], PAGE, ProtFlags::READ).is_ok());
    assert!(Mapped::map(&passed[0], PAGE, ProtFlags::READ | ProtFlags::WRITE).is_err());
    let path = format!("/proc/self/fd/{}", passed[0].as_raw_fd());
    assert_eq!(rustix::fs::open(&path, OFlags::RDWR, Mode::empty()).unwrap_err(), Errno::ACCESS);
}

#[test]
fn owner_and_mode_decide() {
    if !rustix::process::geteuid().is_root() {
        // Only root can become another user.
        return;
    }
    let served = Served::memory();
    // Other users must be able to reach the socket in root's folder.
    rustix::fs::chmod(served.folder.path(), Mode::from_raw_mode(0o755)).unwrap();
    let root = served.peer();
    root.create_as("private", "fast", 1, 0, 0o600).unwrap();
    root.create_as("theirs", "fast", 1, NOBODY, 0o600).unwrap();
    root.create_as("public", "fast", 1, 0, 0o604).unwrap();
    let socket = served.socket.to_str().unwrap();
    let mut child = Child::start("rights::another_user", socket, Vec::new());
    assert!(child.finish(LIMIT).success());
}

#[test]
fn a_right_is_what_was_asked_for() {
    let served = Served::memory();
    let mut peer = served.peer().with_channel();
    peer.create("log", "fast", 1);
    let reader = peer.open("log", Access::Read).unwrap().grant;
    let writer = peer.open("log", Access::Write).unwrap().grant;
    peer.write(writer, 0, &pattern(1, 512)).unwrap();
    assert_eq!(peer.read(reader, 0, 512).unwrap(), pattern(1, 512));
    assert_eq!(peer.read(writer, 0, 512), Err(Status::AccessDenied));
    assert_eq!(peer.write(reader, 0, &[0; 512]), Err(Status::AccessDenied));
    for opcode in [Opcode::Discard, Opcode::WriteZeroes] {
        assert_eq!(peer.plain(opcode, reader, 0, 512), Err(Status::AccessDenied));
    }
    for grant in [reader, writer] {
        let at = [grant, 0, 512, 0, 0, 0];
        let compared = peer.done(Opcode::CompareAndWrite, 0, at, Some(&[0; 1024]));
        assert_eq!(compared, Err(Status::AccessDenied));
    }
    served.until("refusals are counted", |status| status.clients[0].counts.refusals == 6);
}

#[test]
fn what_is_taken_back_is_refused_from_then_on() {
    let served = Served::memory();
    let admin = served.peer();
    admin.create("log", "fast", 1);
    let mut peer = served.peer().with_channel();
    let grant = peer.open("log", Access::ReadWrite).unwrap().grant;
    peer.write(grant, 0, &pattern(1, 512)).unwrap();
    admin.ask(ControlRequest::Revoke { volume: "log".into() }).unwrap();
    assert_eq!(peer.read(grant, 0, 512), Err(Status::Revoked));
    // The volume can be opened again; the new grant has another number.
    let again = peer.open("log", Access::Read).unwrap().grant;
    assert_ne!(again, grant);
    assert_eq!(peer.read(again, 0, 512).unwrap(), pattern(1, 512));
    // A closed grant is revoked too, and can be closed only once.
    peer.ask(ControlRequest::Close { grant: again }).unwrap();
    assert_eq!(peer.read(again, 0, 512), Err(Status::Revoked));
    assert_eq!(peer.ask(ControlRequest::Close { grant: again }).unwrap_err().code, RefusalKind::Missing);
    assert_eq!(peer.read(7, 0, 512), Err(Status::NoGrant));
}

#[test]
fn a_volume_that_is_removed_is_zeros_for_the_next_one() {
    for served in [Served::memory(), Served::file(4 << 20)] {
        let mut peer = served.peer().with_channel();
        let device = served.status().devices[0].name.clone();
        let bytes = served.status().devices[0].free;
        peer.create("old", &device, bytes);
        let old = peer.open("old", Access::ReadWrite).unwrap().grant;
        for at in (0..bytes).step_by(1 << 20) {
            peer.write(old, at, &pattern(at, 1 << 20)).unwrap();
        }
        peer.ask(ControlRequest::Remove { volume: "old".into() }).unwrap();
        assert_eq!(peer.write(old, 0, &[1; 512]), Err(Status::Revoked));
        peer.create("new", &device, bytes);
        let new = peer.open("new", Access::ReadWrite).unwrap().grant;
        for at in (0..bytes).step_by(1 << 20) {
            assert!(peer.read(new, at, 1 << 20).unwrap().iter().all(|byte| *byte == 0), "{device} at {at}");
        }
    }
}

#[test]
fn a_smaller_volume_is_opened_anew_and_a_larger_one_is_not() {
    let served = Served::file(8 << 20);
    let mut peer = served.peer().with_channel();
    peer.create("log", "disk", 1 << 20);
    let grant = peer.open("log", Access::ReadWrite).unwrap().grant;
    peer.write(grant, 0, &pattern(1, 4096)).unwrap();
    peer.ask(ControlRequest::Resize { volume: "log".into(), bytes: 2 << 20 }).unwrap();
    assert_eq!(peer.read(grant, 0, 4096).unwrap(), pattern(1, 4096));
    assert_eq!(peer.read(grant, 1 << 20, 4096), Err(Status::OutOfBounds));
    let larger = peer.open("log", Access::ReadWrite).unwrap();
    assert_eq!(larger.bytes, 2 << 20);
    peer.write(larger.grant, 1 << 20, &pattern(2, 4096)).unwrap();
    peer.ask(ControlRequest::Resize { volume: "log".into(), bytes: 4096 }).unwrap();
    assert_eq!(peer.read(grant, 0, 4096), Err(Status::Revoked));
    assert_eq!(peer.read(larger.grant, 0, 4096), Err(Status::Revoked));
    let smaller = peer.open("log", Access::Read).unwrap();
    assert_eq!((smaller.bytes, peer.read(smaller.grant, 0, 4096).unwrap()), (4096, pattern(1, 4096)));
}

#[test]
fn exactly_the_grant_is_mapped_with_exactly_its_right() {
    let served = Served::memory();
    let mut peer = served.peer().with_channel();
    peer.create("one", "fast", 2 << 20);
    peer.create("two", "fast", 4 << 20);
    let two = peer.open("two", Access::ReadWrite).unwrap();
    assert_eq!(two.unmappable_reason, None);
    let (chunk_bytes, passed) = chunks(&peer, two.grant);
    assert_eq!((chunk_bytes, passed.len()), (2 << 20, 2));
    for chunk in &passed {
        assert_eq!(rustix::fs::fstat(chunk).unwrap().st_size, 2 << 20);
        assert_eq!(rustix::fs::ftruncate(chunk, 0), Err(Errno::PERM));
    }
    let both = ProtFlags::READ | ProtFlags::WRITE;
    let second = Mapped::map(&passed[1], 2 << 20, both).unwrap();
    second.write(4096, &pattern(3, 512));
    assert_eq!(peer.read(two.grant, (2 << 20) + 4096, 512).unwrap(), pattern(3, 512));
    peer.write(two.grant, 2 << 20, &pattern(4, 512)).unwrap();
    assert_eq!(second.read(0, 512), pattern(4, 512));
    let reader = peer.open("two", Access::Read).unwrap();
    let (_, passed) = chunks(&peer, reader.grant);
    assert!(Mapped::map(&passed[1], 2 << 20, both).is_err());
    assert_eq!(Mapped::map(&passed[1], 2 << 20, ProtFlags::READ).unwrap().read(0, 512), pattern(4, 512));
    // A grant for writing only cannot be mapped.
    let writer = peer.open("two", Access::Write).unwrap();
    assert!(writer.unmappable_reason.is_some());
    let refused = peer.ask(ControlRequest::Map { grant: writer.grant, from: 0 }).unwrap_err();
    assert_eq!(refused.code, RefusalKind::Unfit);
    served.until("it is told", |status| {
        status.clients[0].grants.iter().filter(|grant| grant.is_mapped).count() == 2
    });
}

#[test]
fn what_was_mapped_is_out_of_reach_when_it_was_taken_back() {
    let served = Served::memory();
    let admin = served.peer();
    admin.create("log", "fast", 2 << 20);
    let mut peer = served.peer().with_channel();
    let grant = peer.open("log", Access::ReadWrite).unwrap().grant;
    let (_, passed) = chunks(&peer, grant);
    let both = ProtFlags::READ | ProtFlags::WRITE;
    let mapped = Mapped::map(&passed[0], 2 << 20, both).unwrap();
    let page = Mapped::map(&peer.page, PAGE, ProtFlags::READ).unwrap();
    assert!(Mapped::map(&peer.page, PAGE, both).is_err());
    let is_valid = |grant: u64| {
        let word = page.read(revocations::index_of(grant) * 8, 8);
        revocations::is_valid(grant, u64::from_ne_bytes(word.try_into().unwrap()))
    };
    mapped.write(0, &pattern(1, 512));
    assert!(is_valid(grant));
    admin.ask(ControlRequest::Revoke { volume: "log".into() }).unwrap();
    assert!(!is_valid(grant));
    // The old client still writes to its mapping, and nobody sees it.
    mapped.write(0, &pattern(2, 512));
    let again = peer.open("log", Access::ReadWrite).unwrap().grant;
    assert!(is_valid(again));
    assert_eq!(peer.read(again, 0, 512).unwrap(), pattern(1, 512));
    assert_eq!(mapped.read(4096, 512), vec![0; 512]);
}

#[test]
fn a_descriptor_is_worth_what_it_was_opened_for() {
    let served = Served::memory();
    let mut peer = served.peer().with_channel();
    let path = served.folder.path().join("file");
    std::fs::write(&path, vec![7; 16384]).unwrap();
    let open = |flags: OFlags| rustix::fs::open(&path, flags | OFlags::CLOEXEC, Mode::empty()).unwrap();
    let pass = |peer: &Peer, descriptor: &OwnedFd| match peer
        .ask_with(ControlRequest::OpenDescriptor {}, &[descriptor.as_fd()])
    {
        Ok((ControlReply::Granted(granted), _)) => Ok(granted),
        Ok(answer) => panic!("{answer:?}"),
        Err(refused) => Err(refused.code),
    };
    let read = open(OFlags::RDONLY);
    let reader = pass(&peer, &read).unwrap();
    assert_eq!((reader.access, reader.bytes), (Access::Read, 16384));
    assert_eq!(peer.read(reader.grant, 4096, 4096).unwrap(), vec![7; 4096]);
    assert_eq!(peer.write(reader.grant, 0, &[1; 4096]), Err(Status::AccessDenied));
    let write = open(OFlags::WRONLY);
    let writer = pass(&peer, &write).unwrap();
    // Changing the flags of the open file description afterwards has no effect on the grant.
    rustix::fs::fcntl_setfl(&write, OFlags::APPEND).unwrap();
    peer.write(writer.grant, 0, &pattern(5, 4096)).unwrap();
    peer.plain(Opcode::Flush, writer.grant, 0, 0).unwrap();
    let now = std::fs::read(&path).unwrap();
    assert_eq!((now.len(), &now[..4096]), (16384, pattern(5, 4096).as_slice()));
    assert_eq!(peer.read(writer.grant, 0, 4096), Err(Status::AccessDenied));
    // Descriptors that are not files are refused at once.
    let (pipe, _other) = rustix::pipe::pipe().unwrap();
    assert_eq!(pass(&peer, &pipe), Err(RefusalKind::Unfit));
    let folder = rustix::fs::open(served.folder.path(), OFlags::RDONLY, Mode::empty()).unwrap();
    assert_eq!(pass(&peer, &folder), Err(RefusalKind::Unfit));
    // Closing the grants has the server close the files.
    peer.ask(ControlRequest::Close { grant: reader.grant }).unwrap();
    peer.ask(ControlRequest::Close { grant: writer.grant }).unwrap();
    served.until("the files are given back", |status| status.devices.len() == 1);
}

#[test]
fn a_report_is_a_file_of_json() {
    let served = Served::memory();
    let peer = served.peer();
    peer.create("log", "fast", 1);
    let (_, mut passed) = peer.ask_with(ControlRequest::Volumes {}, &[]).unwrap();
    let file = passed.pop().unwrap();
    let bytes = rustix::fs::fstat(&file).unwrap().st_size as usize;
    assert!(MemoryFile::from_peer(file.try_clone().unwrap(), bytes, bywash_link::SEALS_FROZEN).is_ok());
    let mut text = vec![0; bytes];
    rustix::io::pread(&file, &mut text, 0).unwrap();
    let volumes: Vec<bywash_protocol::report::Volume> = serde_json::from_slice(&text).unwrap();
    assert_eq!((volumes.len(), volumes[0].name.as_str(), volumes[0].bytes), (1, "log", 2 << 20));
}

#[test]
fn the_last_page_of_a_client_is_its_own() {
    let served = Served::memory();
    let (one, other) = (served.peer(), served.peer());
    one.create("log", "fast", 1);
    // The first grants of both clients have the same number and are independent.
    let (grant, same) =
        (one.open("log", Access::Read).unwrap(), other.open("log", Access::ReadWrite).unwrap());
    assert_eq!(grant.grant, same.grant);
    let page = Mapped::map(&other.page, PAGE, ProtFlags::READ).unwrap();
    one.ask(ControlRequest::Close { grant: grant.grant }).unwrap();
    assert_eq!(page.read(0, 8), vec![0; 8]);
}
