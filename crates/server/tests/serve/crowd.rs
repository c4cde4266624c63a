//! Many connections of another user, and files whose file system does not respond: others notice little, and
//! the attacker is told the limit.

use crate::attack::{BOUND, as_attacker, check_victim, serving};
use crate::peer::{LIMIT, Peer, pattern};
use bywash_channel::{Options as ChannelOptions, Wait};
use bywash_link::{Messages, connect, socket_pair};
use bywash_protocol::{Access, ControlReply, ControlRequest, MESSAGE_BYTES_MAX, RefusalKind, VERSION};
use bywash_support::peers::SilentFile;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

/// Connects, sends a hello message, and returns the connection and the server's reply.
fn answer_to_hello(socket: &Path) -> (Messages, ControlReply) {
    let messages = Messages::over(connect(socket).unwrap(), MESSAGE_BYTES_MAX);
    let hello = ControlRequest::Hello { version: VERSION, name: String::new() };
    // The server may refuse the connection before the hello message is sent.
    let _ = messages.send(&hello.to_bytes().unwrap(), &[], LIMIT);
    let answer = ControlReply::from_bytes(&messages.receive(LIMIT).unwrap().bytes).unwrap();
    (messages, answer)
}

fn refusal(answer: ControlReply) -> String {
    match answer {
        ControlReply::Refused(refused) => {
            assert_eq!(refused.code, RefusalKind::Limit, "{refused}");
            refused.message
        }
        answer => panic!("{answer:?}"),
    }
}

#[test]
fn a_silent_file_system() {
    SilentFile::play();
}

/// A file of a FUSE file system whose program does not respond, passed with every message that can have a
/// descriptor, and with one that cannot.
#[test]
fn a_file_whose_file_system_does_not_answer_stops_its_user_alone() {
    let Some(serving) = serving("fast=mem:16M,pages=4K", "") else { return };
    // Dropped before the server, which could not be killed while it closes such a file.
    let silent = match SilentFile::new("crowd::a_silent_file_system") {
        Ok(silent) => silent,
        Err(why) => return println!("left out: {why}"),
    };
    let socket = serving.socket();
    let mut victim = serving.peer().with_channel();
    let grant = victim.open("log", Access::ReadWrite).unwrap().grant;
    let mut kept = Vec::new();
    for (round, ask) in
        [ControlRequest::OpenDescriptor {}, ControlRequest::SetUpChannel {}, ControlRequest::Volumes {}]
            .iter()
            .enumerate()
    {
        for stays in [true, false] {
            as_attacker(|| {
                let peer = Peer::connect(&socket);
                peer.messages.send(&ask.to_bytes().unwrap(), &[silent.as_fd()], LIMIT).unwrap();
                if stays {
                    kept.push(peer);
                }
            });
            for _ in 0..3 {
                check_victim(&serving, &mut victim, grant, round as u64);
            }
        }
    }
    drop(kept);
    // The attacker is refused, and let in again when the file system has ended.
    let end = Instant::now() + 2 * LIMIT;
    loop {
        match as_attacker(|| answer_to_hello(&socket).1) {
            ControlReply::Refused(refused) => break assert!(refused.message.contains("stuck"), "{refused}"),
            _ => assert!(Instant::now() < end, "the attacker is still let in"),
        }
        thread::sleep(Duration::from_millis(100));
    }
    drop(silent);
    while !matches!(as_attacker(|| answer_to_hello(&socket).1), ControlReply::Welcome { .. }) {
        assert!(Instant::now() < end + LIMIT, "the attacker is not let in again");
        thread::sleep(Duration::from_millis(100));
    }
    check_victim(&serving, &mut victim, grant, 9);
}

/// The number of connections without a hello message is limited for each user, and the user is told so.
#[test]
fn greetings_in_flight_are_limited_for_each_user() {
    let Some(serving) = serving("fast=mem:16M,pages=4K", "") else { return };
    let socket = serving.socket();
    let mut victim = serving.peer().with_channel();
    let grant = victim.open("log", Access::ReadWrite).unwrap().grant;
    as_attacker(|| {
        let silent: Vec<_> = (0..64).map(|_| connect(&socket).unwrap()).collect();
        let end = Instant::now() + LIMIT;
        // The server may not have accepted all of them yet.
        let said = loop {
            match answer_to_hello(&socket).1 {
                ControlReply::Welcome { .. } => assert!(Instant::now() < end, "all of them are let in"),
                answer => break refusal(answer),
            }
        };
        assert!(said.contains("have not sent hello"), "{said}");
        drop(silent);
    });
    check_victim(&serving, &mut victim, grant, 1);
}

/// One user takes as many descriptors of the server as possible: a share is left for everybody else.
#[test]
fn descriptors_of_the_server_are_shared_by_users() {
    let Some(serving) = serving("fast=mem:16M,pages=4K", "") else { return };
    let socket = serving.socket();
    let before = serving.process().descriptors;
    serving.limit_open_files(600);
    let (crowd, said) = as_attacker(|| {
        let mut crowd = Vec::new();
        loop {
            let (messages, answer) = answer_to_hello(&socket);
            if !matches!(answer, ControlReply::Welcome { .. }) {
                break (crowd, refusal(answer));
            }
            let peer = Peer { messages, channel: None, page: connect(&socket).unwrap(), number: 0 };
            let (here, there) = socket_pair().unwrap();
            let options = ChannelOptions::new().depth(8).arena_bytes(1 << 16).wait(Wait::Adaptive);
            let making = thread::spawn(move || bywash_channel::Client::over(here, &options));
            let asked = peer.ask_with(ControlRequest::SetUpChannel {}, &[there.as_fd()]);
            drop(there);
            let channel = making.join().unwrap();
            match asked {
                Ok(_) => crowd.push((peer, channel.unwrap())),
                Err(refused) => break (crowd, refused.message),
            }
            assert!(crowd.len() < 200, "there is no limit");
        }
    });
    assert!(said.contains("600 open files (RLIMIT_NOFILE)"), "{said}");
    assert!(crowd.len() > 3, "{} clients, then: {said}", crowd.len());
    let used = serving.process().descriptors - before;
    println!("{used} descriptors of {} clients", crowd.len());
    assert!(used < 400, "{used} descriptors are open for {} clients of one user", crowd.len());
    // Another user connects and sets up a channel.
    let mut victim = serving.peer().with_channel();
    let grant = victim.open("log", Access::ReadWrite).unwrap().grant;
    check_victim(&serving, &mut victim, grant, 1);
}

/// Clients that delay the handshake of their channel, over many connections at once: each occupies a thread
/// of its user until the handshake times out, and the user's other handshakes wait. Channels of other users
/// are set up at once.
#[test]
fn slow_greetings_of_channels_occupy_their_users_threads_alone() {
    /// Number of handshakes that begin: three times as many as a user has threads.
    const SLOW: usize = 48;
    /// Greatest number of helper threads of a user; two users have some here.
    const THREADS: usize = 16;
    let Some(serving) = serving("fast=mem:16M,pages=4K", "") else { return };
    let socket = serving.socket();
    let mut victim = serving.peer().with_channel();
    let grant = victim.open("log", Access::ReadWrite).unwrap().grant;
    check_victim(&serving, &mut victim, grant, 0);
    let before = serving.process().descriptors;
    let begun = Instant::now();
    let slow: Vec<_> = as_attacker(|| {
        let begin = |_| {
            let peer = Peer::connect(&socket);
            let (here, there) = socket_pair().unwrap();
            let ask = ControlRequest::SetUpChannel {}.to_bytes().unwrap();
            peer.messages.send(&ask, &[there.as_fd()], LIMIT).unwrap();
            (peer, here)
        };
        (0..SLOW).map(begin).collect()
    });
    for round in 1..6 {
        check_victim(&serving, &mut victim, grant, round);
    }
    let helpers = serving.threads("helper").len();
    assert!((THREADS..=2 * THREADS).contains(&helpers), "{helpers} threads for {SLOW} greetings");
    assert!(begun.elapsed() < Duration::from_secs(10), "the greetings are over, and nothing was seen");
    // A client that disconnects frees its thread at once, before the timeout.
    drop(slow);
    let began = Instant::now();
    as_attacker(|| drop(Peer::connect(&socket).with_channel()));
    assert!(began.elapsed() < BOUND, "the next greeting took {:?}", began.elapsed());
    while serving.process().descriptors > before {
        let now = serving.process().descriptors;
        assert!(began.elapsed() < LIMIT, "{before} descriptors before, and now {now}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// Returns the times that the victim's requests take, in ascending order.
fn latencies(victim: &mut Peer, grant: u64, time: Duration) -> Vec<Duration> {
    let end = Instant::now() + time;
    let mut all = Vec::new();
    while Instant::now() < end {
        let began = Instant::now();
        victim.write(grant, 0, &pattern(1, 512)).unwrap();
        all.push(began.elapsed());
    }
    all.sort_unstable();
    all
}

/// As many connections as one user may have connect, send messages and leave: the victim's requests take
/// longer, but within a bound, and none takes long. One more connection is refused with the limit.
#[test]
fn a_crowd_of_connections_costs_others_little() {
    const TIME: Duration = Duration::from_secs(2);
    let Some(serving) = serving("fast=mem:16M,pages=4K", "") else { return };
    let socket = serving.socket();
    let mut victim = serving.peer().with_channel();
    let grant = victim.open("log", Access::ReadWrite).unwrap().grant;
    let alone = latencies(&mut victim, grant, TIME);
    let (is_over, is_full) = (AtomicBool::new(false), AtomicBool::new(false));
    let beside = thread::scope(|scope| {
        scope.spawn(|| {
            as_attacker(|| {
                let crowd: Vec<Peer> = (0..256).map(|_| Peer::connect(&socket)).collect();
                let said = refusal(answer_to_hello(&socket).1);
                assert!(said.contains("256 clients of user"), "{said}");
                is_full.store(true, Relaxed);
                while !is_over.load(Relaxed) {
                    for peer in &crowd {
                        peer.ask(ControlRequest::Volumes {}).unwrap();
                        thread::sleep(Duration::from_micros(200));
                    }
                }
            });
        });
        let end = Instant::now() + 2 * LIMIT;
        while !is_full.load(Relaxed) && Instant::now() < end {
            thread::sleep(Duration::from_millis(10));
        }
        let beside = latencies(&mut victim, grant, TIME);
        is_over.store(true, Relaxed);
        beside
    });
    let p99 = |all: &[Duration]| all[all.len() * 99 / 100];
    println!("p99 alone {:?}, beside the crowd {:?}", p99(&alone), p99(&beside));
    println!("requests alone {}, beside the crowd {}", alone.len(), beside.len());
    // On two processors the attacker's program takes as much time as the victim's.
    assert!(p99(&beside) < 20 * p99(&alone) + Duration::from_millis(50), "{:?}", p99(&beside));
    assert!(beside[beside.len() - 1] < BOUND);
    assert!(beside.len() * 50 > alone.len(), "{} requests, {} alone", beside.len(), alone.len());
}
