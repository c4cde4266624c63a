//! Attacks of another user on a server that also has a victim: each costs the attacker alone.

use crate::peer::{LIMIT, Peer, ask, pattern};
use crate::process::Serving;
use bywash_channel::{Client, Options as ChannelOptions, Submission, Wait};
use bywash_link::{Messages, connect, socket_pair};
use bywash_protocol::layout::{Opcode, Status as Outcome};
use bywash_protocol::report::Status;
use bywash_protocol::{Access, ControlReply, ControlRequest, MESSAGE_BYTES_MAX, RefusalKind, VERSION};
use bywash_support::disks::FileSystem;
use bywash_support::peers::{Lingering, as_user};
use rustix::fs::{Gid, Uid};
use std::os::fd::AsFd;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// User of the attackers, which need not exist.
pub const ATTACKER: u32 = 54_321;
/// Greatest time that any operation of the victim may take. It once took as long as a socket lingers.
pub const BOUND: Duration = Duration::from_secs(5);

/// Starts a server that an attacker can reach; `None` if this process is not root and cannot become another
/// user.
pub fn serving(device: &str, limits: &str) -> Option<Serving> {
    use std::os::unix::fs::PermissionsExt;
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can attack as another user");
        return None;
    }
    let serving = Serving::start(device, limits);
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(serving.folder(), mode).unwrap();
    let admin = serving.peer();
    admin.create_as("log", "fast", 1 << 20, 0, 0o666).unwrap();
    Some(serving)
}

/// Runs `act` as the attackers' user, on its own thread.
pub fn as_attacker<T: Send>(act: impl FnOnce() -> T + Send) -> T {
    as_user(ATTACKER, act).unwrap()
}

/// Passes a lingering socket. Returns false if the kernel did not take it.
fn send(lingering: &mut Lingering, messages: &Messages, bytes: &[u8]) -> bool {
    lingering.pass(|socket| messages.send(bytes, &[socket], LIMIT).is_ok())
}

/// Returns the attacker's connection with a channel, and a copy of the channel's socket.
fn with_channel(socket: &Path) -> (Peer, Messages) {
    let mut peer = Peer::connect(socket);
    let (here, there) = socket_pair().unwrap();
    let copy = Messages::over(here.try_clone().unwrap(), 512);
    let options = ChannelOptions::new().depth(8).arena_bytes(1 << 16).wait(Wait::Adaptive);
    let making = thread::spawn(move || Client::over(here, &options).unwrap());
    let (answer, _) = peer.ask_with(ControlRequest::SetUpChannel {}, &[there.as_fd()]).unwrap();
    assert_eq!(answer, ControlReply::Done {});
    peer.channel = Some(making.join().unwrap());
    (peer, copy)
}

/// Checks that the victim and a new client can connect, read and write, and that none of that takes long.
pub fn check_victim(serving: &Serving, victim: &mut Peer, grant: u64, round: u64) {
    let began = Instant::now();
    victim.write(grant, 0, &pattern(round, 4096)).unwrap();
    assert_eq!(victim.read(grant, 0, 4096).unwrap(), pattern(round, 4096));
    // Long enough that the server stops polling the client, which then has to wake it.
    thread::sleep(Duration::from_millis(2));
    victim.write(grant, 0, &pattern(round, 4096)).unwrap();
    let mut other = serving.peer().with_channel();
    let theirs = other.open("log", Access::Read).unwrap().grant;
    assert_eq!(other.read(theirs, 0, 4096).unwrap(), pattern(round, 4096));
    assert!(began.elapsed() < BOUND, "round {round} took {:?}", began.elapsed());
}

/// A descriptor that blocks when it is closed, passed over every socket that leads to the server, in every
/// way.
#[test]
fn a_descriptor_that_blocks_when_it_is_closed_stops_its_user_alone() {
    let Some(serving) = serving("fast=mem:16M,pages=4K", "") else { return };
    let socket = serving.socket();
    let mut victim = serving.peer().with_channel();
    let grant = victim.open("log", Access::ReadWrite).unwrap().grant;
    let to_bytes = |what: &ControlRequest| what.to_bytes().unwrap();
    let mut sent = Vec::new();
    let mut kept = Vec::new();
    for round in 0..7 {
        let mut lingering = Lingering::new();
        let taken = as_attacker(|| match round {
            // Before the hello message, when no descriptor is expected.
            0 => {
                let messages = Messages::over(connect(&socket).unwrap(), MESSAGE_BYTES_MAX);
                send(
                    &mut lingering,
                    &messages,
                    &to_bytes(&ControlRequest::Hello { version: VERSION, name: String::new() }),
                )
            }
            // With a message that needs none; the connection stays open.
            1 => {
                let peer = Peer::connect(&socket);
                let is_taken = send(&mut lingering, &peer.messages, &to_bytes(&ControlRequest::Volumes {}));
                kept.push(peer);
                is_taken
            }
            // With the same message, but the connection is closed at once.
            2 => {
                send(&mut lingering, &Peer::connect(&socket).messages, &to_bytes(&ControlRequest::Volumes {}))
            }
            // As a file, and as a channel's socket.
            3 => send(
                &mut lingering,
                &Peer::connect(&socket).messages,
                &to_bytes(&ControlRequest::OpenDescriptor {}),
            ),
            4 => send(
                &mut lingering,
                &Peer::connect(&socket).messages,
                &to_bytes(&ControlRequest::SetUpChannel {}),
            ),
            // Over the channel's socket, which stays open or is closed.
            _ => {
                let (peer, channel) = with_channel(&socket);
                let is_taken = send(&mut lingering, &channel, b"hello");
                // The doorbell makes the server read the socket.
                channel.send(&[1], &[], LIMIT).unwrap();
                if round == 5 {
                    kept.push(peer);
                }
                is_taken
            }
        });
        // Before the hello message a kernel that is new enough refuses descriptors.
        assert!(taken || round == 0, "round {round}");
        sent.push(lingering);
        for _ in 0..3 {
            check_victim(&serving, &mut victim, grant, round);
        }
    }
    // The attacker is refused, with the reason.
    let hello = ControlRequest::Hello { version: VERSION, name: String::new() };
    let come = || {
        as_attacker(|| {
            let messages = Messages::over(connect(&socket).unwrap(), MESSAGE_BYTES_MAX);
            // The server may refuse the connection before the hello message is sent.
            let _ = messages.send(&to_bytes(&hello), &[], LIMIT);
            let reply = ControlReply::from_bytes(&messages.receive(LIMIT).unwrap().bytes).unwrap();
            (reply, messages)
        })
    };
    let end = Instant::now() + LIMIT;
    loop {
        let (reply, messages) = come();
        if let ControlReply::Refused(refused) = reply {
            assert_eq!(refused.code, RefusalKind::Limit);
            assert!(refused.message.contains("stuck"), "{}", refused.message);
            break;
        }
        assert!(Instant::now() < end, "the attacker is still let in");
        // A server that closed its copies of the sockets before this process had closed its own is not stuck.
        let mut lingering = Lingering::new();
        as_attacker(|| send(&mut lingering, &messages, &to_bytes(&ControlRequest::Volumes {})));
        sent.push(lingering);
        thread::sleep(Duration::from_millis(100));
    }
    // The administrator sees which user's threads are stuck.
    let (answer, report) = ask(&victim.messages, &ControlRequest::Status {}, &[]);
    assert_eq!(answer, ControlReply::Report {});
    let status: Status =
        serde_json::from_reader(std::fs::File::from(report.into_iter().next().unwrap())).unwrap();
    let stuck: Vec<_> = status.users.iter().filter(|user| user.stuck > 0).collect();
    assert!(matches!(&stuck[..], [user] if user.uid == Some(ATTACKER)), "{stuck:?}");
    // When the peers are gone the sockets can be closed, and the user is no longer refused.
    drop((sent, kept));
    while !matches!(come().0, ControlReply::Welcome { .. }) {
        assert!(Instant::now() < end + LIMIT, "the attacker is not let in again");
        thread::sleep(Duration::from_millis(100));
    }
    let (answer, _) = ask(&victim.messages, &ControlRequest::Volumes {}, &[]);
    assert_eq!(answer, ControlReply::Report {});
}

/// Number of requests that each connection keeps in flight, and their size in bytes.
#[derive(Clone, Copy)]
struct Load {
    requests: usize,
    bytes: usize,
}

const SMALL: Load = Load { requests: 16, bytes: 512 };

/// Share of a device that the victim beside one attacker has at least. Its half would be all that it can use, and it uses
/// less where the machine is busy, since it asks for nothing while it has no processor.
const LEAST_SHARE: f64 = 0.25;

/// Returns the number of writes that complete over several connections.
fn load(socket: &Path, connections: usize, each: Load, time: Duration) -> u64 {
    let Load { requests, bytes } = each;
    let mut peers: Vec<_> = (0..connections)
        .map(|_| {
            let mut peer = Peer::connect(socket).with_channel();
            let grant = peer.open("log", Access::ReadWrite).unwrap().grant;
            let channel = peer.channel.as_mut().unwrap();
            let buffers: Vec<_> = (0..requests).map(|_| channel.alloc(bytes).unwrap()).collect();
            (peer, grant, buffers)
        })
        .collect();
    let (end, mut done) = (Instant::now() + time, 0);
    while Instant::now() < end {
        for (peer, grant, buffers) in &mut peers {
            let channel = peer.channel.as_mut().unwrap();
            while let Some(buffer) = buffers.pop() {
                let arguments = [*grant, 0, bytes as u64, 0, 0, 0];
                let submission = Submission::new(Opcode::Write as u8).arguments(arguments);
                channel.submit(submission.buffer(buffer)).unwrap();
            }
            while let Some(completed) = channel.try_reap().unwrap() {
                buffers.extend(completed.buffer);
                done += 1;
            }
        }
        thread::sleep(Duration::from_micros(200));
    }
    done
}

/// The device is the bottleneck, and the attacker has twenty connections for the victim's one.
#[test]
fn many_connections_have_one_share() {
    let Some(serving) = serving("fast=mem:16M,pages=4K,bandwidth=1M/s", "") else { return };
    let (socket, time) = (serving.socket(), Duration::from_secs(3));
    let (attacker, victim) = thread::scope(|scope| {
        let attacker = scope.spawn(|| as_attacker(|| load(&socket, 20, SMALL, time)));
        let victim = load(&socket, 1, SMALL, time);
        (attacker.join().unwrap(), victim)
    });
    // It would be one in twenty-one if each connection had a share.
    assert!(victim as f64 > LEAST_SHARE * (attacker + victim) as f64, "{victim} beside {attacker}");
}

/// The attacker could fill the device's queue, and the victim has few requests in flight.
#[test]
fn nobody_waits_behind_a_queue_that_another_fills() {
    let Some(serving) = serving("fast=mem:16M,pages=4K,bandwidth=50M/s", "") else { return };
    let (socket, time) = (serving.socket(), Duration::from_secs(4));
    let (many, few) = (Load { requests: 16, bytes: 64 << 10 }, Load { requests: 4, bytes: 64 << 10 });
    let (attacker, victim) = thread::scope(|scope| {
        let attacker = scope.spawn(|| as_attacker(|| load(&socket, 20, many, time)));
        let victim = load(&socket, 1, few, time);
        (attacker.join().unwrap(), victim)
    });
    // It would be one in thirty if the victim's part of the device were its part of the queue.
    assert!(victim as f64 > LEAST_SHARE * (attacker + victim) as f64, "{victim} beside {attacker}");
    // The device was always busy: it could complete 763 requests a second if nothing else took time.
    assert!(attacker + victim > 1500, "{victim} beside {attacker}");
}

/// All connections of a user together keep the user's rate limit.
#[test]
fn a_rate_is_kept_over_all_connections() {
    let limits = format!("[user.{ATTACKER}]\nrequests = 500");
    let Some(serving) = serving("fast=mem:16M,pages=4K", &limits) else { return };
    let done = as_attacker(|| load(&serving.socket(), 20, SMALL, Duration::from_secs(3)));
    // 1,500 and a burst, where no limit would give 30,000. Requests that were in flight were not held back.
    assert!((500..2500).contains(&done), "{done}");
}

/// All connections of a user together keep the user's limits of memory and files.
#[test]
fn memory_and_files_are_limited_over_all_connections() {
    let limits = "[default]\narena = \"8M\"\ndescriptors = 3";
    let Some(serving) = serving("fast=mem:16M,pages=4K", limits) else { return };
    let socket = serving.socket();
    let file = std::fs::File::create_new(serving.folder().join("passed")).unwrap();
    file.set_len(1 << 20).unwrap();
    as_attacker(|| {
        // The arena has 4 MiB, and the rings some more.
        let _first = Peer::connect(&socket).with_channel();
        let second = Peer::connect(&socket);
        let (here, there) = socket_pair().unwrap();
        let options = ChannelOptions::new().depth(64).arena_bytes(4 << 20).wait(Wait::Adaptive);
        let making = thread::spawn(move || drop(Client::over(here, &options)));
        let refused = second.ask_with(ControlRequest::SetUpChannel {}, &[there.as_fd()]).unwrap_err();
        assert_eq!(refused.code, RefusalKind::Limit);
        assert!(refused.message.contains("8388608"), "{}", refused.message);
        drop(there);
        making.join().unwrap();
        let peers: Vec<Peer> = (0..4).map(|_| Peer::connect(&socket)).collect();
        let passed: Vec<_> = peers
            .iter()
            .map(|peer| peer.ask_with(ControlRequest::OpenDescriptor {}, &[file.as_fd()]))
            .collect();
        assert_eq!(passed.iter().filter(|passed| passed.is_ok()).count(), 3);
        assert_eq!(passed[3].as_ref().unwrap_err().code, RefusalKind::Limit);
    });
    // Another user's limits are separate.
    let victim = serving.peer().with_channel();
    victim.ask_with(ControlRequest::OpenDescriptor {}, &[file.as_fd()]).unwrap();
}

/// Clients connect, use a disk and leave, again and again. The core's system calls show that it does nothing
/// itself that may take long.
#[test]
fn who_comes_and_goes_is_not_the_cores_business() {
    if std::process::Command::new("strace").arg("-V").output().is_err() {
        eprintln!("skipped: there is no strace to look at the core with");
        return;
    }
    let Some(serving) = serving("fast=mem:16M,pages=4K", "") else { return };
    let admin = serving.peer();
    admin.create_as("slow", "disk", 1 << 20, 0, 0o666).unwrap();
    let socket = serving.socket();
    let come = || {
        let mut peer = Peer::connect(&socket);
        let options = ChannelOptions::new().depth(8).arena_bytes(16 << 20).wait(Wait::Adaptive);
        peer.make_channel(options);
        let grant = peer.open("slow", Access::ReadWrite).unwrap().grant;
        peer.write(grant, 0, &[7; 4096]).unwrap();
    };
    come();
    let log = serving.folder().join("calls");
    let cores = ["core", "core-1"].iter().flat_map(|name| serving.threads(name));
    let cores: Vec<String> = cores.flat_map(|core| ["-p".to_owned(), core.to_string()]).collect();
    let mut strace = std::process::Command::new("strace")
        .args(["-qq", "-o", log.to_str().unwrap()])
        .args(&cores)
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let calls = || std::fs::read_to_string(&log).unwrap_or_default();
    let end = Instant::now() + LIMIT;
    // strace is attached as soon as it has reported a call.
    while calls().is_empty() && Instant::now() < end {
        as_attacker(come);
    }
    for _ in 0..20 {
        as_attacker(come);
    }
    let pid = rustix::process::Pid::from_raw(strace.id() as i32).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    strace.wait().unwrap();
    let calls = calls();
    assert!(calls.contains("io_uring_enter"), "nothing was seen: {calls}");
    for forbidden in [
        "io_uring_register(",
        "mmap(",
        "munmap(",
        "close(",
        "recvmsg(",
        "fstat(",
        "fcntl(",
        "open",
        "clone",
        "fallocate(",
    ] {
        let made: Vec<&str> = calls.lines().filter(|line| line.starts_with(forbidden)).collect();
        assert!(made.is_empty(), "{made:?}");
    }
}

/// A server that runs as root writes a user's file with the user's rights, so that it cannot use the blocks
/// that the file system reserves for root.
#[test]
fn the_reserve_of_a_file_system_is_not_taken_through_the_server() {
    const BYTES: u64 = 32 << 20;
    let Some(serving) = serving("fast=mem:16M,pages=4K", "") else { return };
    let place = match FileSystem::with_options("ext4", BYTES, &["-m", "25", "-b", "4096"], "loop") {
        Ok(place) => place,
        Err(why) => return eprintln!("skipped: {why}"),
    };
    let file = std::fs::File::create_new(place.path().join("theirs")).unwrap();
    file.set_len(BYTES).unwrap();
    rustix::fs::fchown(&file, Some(Uid::from_raw(ATTACKER)), Some(Gid::from_raw(ATTACKER))).unwrap();
    let free = || {
        let free = rustix::fs::fstatvfs(&file).unwrap();
        (free.f_bfree * free.f_frsize, free.f_bavail * free.f_frsize)
    };
    let (all, available) = free();
    let mut peer = as_attacker(|| Peer::connect(&serving.socket()).with_channel());
    let granted = peer.ask_with(ControlRequest::OpenDescriptor {}, &[file.as_fd()]).unwrap();
    let ControlReply::Granted(granted) = granted.0 else { panic!("{granted:?}") };
    let refused =
        (0..BYTES).step_by(64 << 10).find_map(|at| peer.write(granted.grant, at, &[1; 64 << 10]).err());
    assert_eq!(refused, Some(Outcome::NoSpace));
    let left = free().0;
    // The blocks of the file's own metadata are allocated even then.
    assert!(left + (256 << 10) >= all - available, "{left} bytes left of {}", all - available);
}
