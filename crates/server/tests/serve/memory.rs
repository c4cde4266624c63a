//! Memory that clients have the server map and touch: all of it counts against the user's limit before it is
//! touched and is released afterwards, and the kernel charges none of it to the server.

use crate::attack::{as_attacker, check_victim, serving};
use crate::by_hand::{ByHand, hello};
use crate::peer::{LIMIT, Peer};
use crate::process::Serving;
use crate::registered::{can_be_taken_over, wait_until};
use bywash_channel::{Client, Error, Options as ChannelOptions, Submission, Wait};
use bywash_link::{PAGE, socket_pair};
use bywash_protocol::layout::{GRANT_RANGE_BYTES, Opcode, Status};
use bywash_protocol::{Access, ControlReply, ControlRequest, Refusal, RefusalKind};
use bywash_support::peers::{FIXED, OFFERED, Words, backed_bytes, memory, send};
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// Limit of the memory of all channels of a user, in bytes.
const CHARGED_MAX: u64 = 64 << 20;
/// Size of an arena, in bytes: two fit into the limit, with their rings.
const ARENA: usize = 24 << 20;
/// Size of a read, in bytes: the whole volume.
const PIECE: usize = 1 << 20;
/// Memory that a server needs for clients besides what they pass, in bytes.
const SLACK: u64 = 4 << 20;

/// Time after which a channel without a completion is considered lost.
const SILENCE: Duration = Duration::from_millis(200);

/// Returns the amount of the clients' memory that the server has mapped and touched, in bytes.
fn touched(serving: &Serving) -> u64 {
    let process = serving.process();
    process.resident - process.anonymous
}

/// Connects a client with an arena of which no page is allocated before a request uses it.
fn sparse(socket: &Path) -> Result<Peer, Refusal> {
    let mut peer = Peer::connect(socket);
    let (here, there) = socket_pair().unwrap();
    let options = ChannelOptions::new().depth(64).arena_bytes(ARENA).wait(Wait::Adaptive);
    let making = thread::spawn(move || Client::over(here, &options));
    let asked = peer.ask_with(ControlRequest::SetUpChannel {}, &[there.as_fd()]);
    drop(there);
    // The client's end of the channel is complete even if the server refuses it afterwards.
    let channel: Result<Client, Error> = making.join().unwrap();
    asked?;
    peer.channel = Some(channel.unwrap());
    Ok(peer)
}

/// Has the server write to a whole arena.
fn fill(peer: &mut Peer) {
    let grant = peer.open("log", Access::Read).unwrap().grant;
    let channel = peer.channel.as_mut().unwrap();
    let mut kept = Vec::new();
    while let Ok(buffer) = channel.alloc(PIECE) {
        let arguments = [grant, 0, PIECE as u64, 0, 0, 0];
        let submission = Submission::new(Opcode::Read as u8).arguments(arguments);
        channel.submit(submission.buffer(buffer)).unwrap();
        let done = channel.reap_within(LIMIT).unwrap();
        assert_eq!(done.status, 0);
        kept.push(done.buffer.unwrap());
    }
    assert!(kept.len() * PIECE > ARENA / 2, "{} pieces", kept.len());
}

/// Arenas whose pages are allocated as they are used, and all touched by the server, on more connections than
/// the user's limit allows: the server has no more of them mapped than the limit, and none when the clients
/// have left.
#[test]
fn arenas_are_charged_before_they_are_touched() {
    let Some(serving) = serving("fast=mem:16M,pages=4K", "[default]\narena = \"64M\"") else { return };
    let socket = serving.socket();
    let mut victim = serving.peer().with_channel();
    let grant = victim.open("log", Access::ReadWrite).unwrap().grant;
    victim.write(grant, 0, &vec![1; PIECE]).unwrap();
    check_victim(&serving, &mut victim, grant, 1);
    let before = touched(&serving);
    let (peers, refused) = as_attacker(|| {
        let (mut peers, mut refused) = (Vec::new(), Vec::new());
        for _ in 0..6 {
            match sparse(&socket) {
                Ok(mut peer) => {
                    fill(&mut peer);
                    peers.push(peer);
                }
                Err(why) => refused.push(why),
            }
        }
        (peers, refused)
    });
    assert_eq!((peers.len(), refused.len()), (2, 4));
    for why in refused {
        assert_eq!(why.code, RefusalKind::Limit);
        assert!(why.message.contains(&CHARGED_MAX.to_string()), "{}", why.message);
    }
    let has = touched(&serving) - before;
    assert!(has > ARENA as u64, "the server has touched {has} bytes only, which proves nothing");
    assert!(has <= CHARGED_MAX + SLACK, "the server has touched {has} bytes of a user's");
    check_victim(&serving, &mut victim, grant, 2);
    drop(peers);
    let end = Instant::now() + LIMIT;
    while touched(&serving) > before + SLACK {
        assert!(Instant::now() < end, "{} bytes are still there", touched(&serving) - before);
        thread::sleep(Duration::from_millis(10));
    }
}

/// An arena larger than any memory, offered over many connections at once, is refused, and none of its pages
/// is touched.
#[test]
fn an_arena_beyond_all_limits_is_refused_untouched() {
    const BYTES: usize = 1 << 40;
    let Some(serving) = serving("fast=mem:16M,pages=4K", "") else { return };
    let socket = serving.socket();
    let mut victim = serving.peer().with_channel();
    let grant = victim.open("log", Access::ReadWrite).unwrap().grant;
    check_victim(&serving, &mut victim, grant, 1);
    let before = serving.process();
    as_attacker(|| {
        let (control, arena) = (memory(4096, FIXED), memory(BYTES, FIXED));
        let hello = hello(BYTES as u64, 8);
        let offered: Vec<_> = (0..16)
            .map(|_| {
                let peer = Peer::connect(&socket);
                let (here, there) = socket_pair().unwrap();
                assert!(send(&here, &hello, &[control.as_raw_fd(), arena.as_raw_fd()]));
                let ask = ControlRequest::SetUpChannel {}.to_bytes().unwrap();
                peer.messages.send(&ask, &[there.as_fd()], LIMIT).unwrap();
                (peer, here)
            })
            .collect();
        for (peer, _) in &offered {
            match ControlReply::from_bytes(&peer.messages.receive(LIMIT).unwrap().bytes).unwrap() {
                ControlReply::Refused(refused) => assert_eq!(refused.code, RefusalKind::Unfit, "{refused}"),
                answer => panic!("{answer:?}"),
            }
        }
    });
    let now = serving.process();
    assert!(now.resident <= before.resident + SLACK, "{before:?}, and now {now:?}");
    // Each connection has a page of notices until it is closed.
    let end = Instant::now() + LIMIT;
    while serving.process().mappings > before.mappings {
        assert!(Instant::now() < end, "{before:?}, and now {:?}", serving.process());
        thread::sleep(Duration::from_millis(10));
    }
    check_victim(&serving, &mut victim, grant, 2);
}

/// Requests whose buffer is a hole of the arena, at every kind of device: the server allocates no pages for
/// them, which would be charged to the server and stay as long as the attacker keeps the arena.
#[test]
fn an_arena_without_memory_gets_none_from_the_server() {
    const BYTES: usize = 1 << 20;
    let Some(serving) = serving("fast=mem:16M,pages=4K", "") else { return };
    serving.peer().create_as("slow", "disk", 1 << 20, 0, 0o666).unwrap();
    let socket = serving.socket();
    let mut victim = serving.peer().with_channel();
    let grant = victim.open("log", Access::ReadWrite).unwrap().grant;
    as_attacker(|| {
        for volume in ["log", "slow"] {
            for opcode in [Opcode::Read, Opcode::Write, Opcode::CompareAndWrite, Opcode::ReadRanges] {
                let arena = memory(BYTES, OFFERED);
                let words = Words::map(&arena, BYTES);
                words.set(0, 7);
                let mut attacker = ByHand::over(Peer::connect(&socket), &arena, BYTES).unwrap();
                let grant = attacker.peer.open(volume, Access::ReadWrite).unwrap().grant;
                // A request whose buffer is backed by pages is served.
                let page = [grant, 0, PAGE as u64, 0, 0, 0];
                let done = attacker.request(Opcode::Read, page, (0, PAGE), LIMIT);
                assert_eq!((done, backed_bytes(&arena)), (Some(Status::Success), PAGE));
                let (arguments, length) = match opcode {
                    Opcode::ReadRanges => ([1, 0, 0, 0, 0, 0], GRANT_RANGE_BYTES),
                    Opcode::CompareAndWrite => ([grant, 0, 512, 0, 0, 0], 1024),
                    _ => ([grant, 0, BYTES as u64 / 2, 0, 0, 0], BYTES / 2),
                };
                let done = attacker.request(opcode, arguments, (BYTES / 2, length), SILENCE);
                assert_eq!((done, backed_bytes(&arena)), (None, PAGE), "{opcode:?} at {volume}");
            }
        }
    });
    check_victim(&serving, &mut victim, grant, 1);
}

/// An arena that is half backed by pages is used until it is pinned: the other half is still a hole.
#[test]
fn pinning_an_arena_takes_no_memory() {
    const BYTES: usize = 1 << 20;
    const USED: usize = BYTES / 2;
    let serving = Serving::start("fast=mem:8M,pages=4K", "");
    // The kernel shows no buffers of a ring that is busy.
    let most = |bytes: usize| (0..20).map(|_| serving.registered(bytes as u64)).max().unwrap_or(0);
    let (some, large) = (most(USED), most(BYTES));
    if serving.registered(0) == 0 || !can_be_taken_over() {
        return eprintln!("skipped: io_uring of this kernel registers nothing for others");
    }
    serving.peer().create("log", "disk", BYTES as u64);
    let arena = memory(BYTES, OFFERED);
    let words = Words::map(&arena, BYTES);
    (0..USED / 8).step_by(512).for_each(|at| words.set(at, 7));
    let mut client = ByHand::over(serving.peer(), &arena, BYTES).unwrap();
    let grant = client.peer.open("log", Access::ReadWrite).unwrap().grant;
    let arguments = [grant, 0, USED as u64, 0, 0, 0];
    wait_until("it is registered", || {
        for opcode in [Opcode::Write, Opcode::Read] {
            assert_eq!(client.request(opcode, arguments, (0, USED), LIMIT), Some(Status::Success));
        }
        // Once in the helper's ring and once in the device's.
        serving.registered(USED as u64) == some + 2
    });
    assert_eq!((backed_bytes(&arena), most(BYTES)), (USED, large));
}
