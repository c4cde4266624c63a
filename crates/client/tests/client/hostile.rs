//! Tests of the client against malicious servers, which break the protocol of the control socket and of the
//! channel.
//!
//! Failures that this looks for: the client trusts a false statement, and maps memory that can shrink, is too
//! small, or overlaps another mapping; malformed messages make the client wait for ever or panic; file
//! descriptors or mappings leak.

use crate::options;
use bywash_channel::{Server, ServerOptions};
use bywash_client::{Access, Client, Error, PathChoice, Queue};
use bywash_link::{Listener, Messages};
use bywash_protocol::{
    ControlReply, ControlRequest, GrantInfo, MESSAGE_BYTES_MAX, Refusal, RefusalKind, VERSION,
};
use bywash_support::peers::{FIXED, Random, accept, memory, rounds, serialise_test, timed};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::thread::{self, JoinHandle};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(2);

/// Reply of a malicious server: bytes, and file descriptors.
type EncodedReply = (Vec<u8>, Vec<OwnedFd>);

/// A malicious server, which replies to one client by calling a function until the client disconnects or the
/// function returns `None`.
struct MaliciousServer {
    socket: PathBuf,
    thread: JoinHandle<()>,
    _folder: tempfile::TempDir,
}

impl MaliciousServer {
    fn start(
        mut lie: impl FnMut(ControlRequest, Vec<OwnedFd>) -> Option<EncodedReply> + Send + 'static,
    ) -> MaliciousServer {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("socket");
        let listener = Listener::bind(&socket).unwrap();
        let thread = thread::spawn(move || {
            let messages = Messages::over(accept(&listener), MESSAGE_BYTES_MAX);
            while let Ok(packet) = messages.receive(LIMIT) {
                let ask = ControlRequest::from_bytes(&packet.bytes).unwrap();
                let Some((bytes, files)) = lie(ask, packet.descriptors) else { return };
                let files: Vec<_> = files.iter().map(AsFd::as_fd).collect();
                if messages.send(&bytes, &files, LIMIT).is_err() {
                    return;
                }
            }
        });
        MaliciousServer { socket, thread, _folder: folder }
    }

    fn end(self) {
        self.thread.join().unwrap();
    }
}

fn said(answer: &ControlReply) -> Vec<u8> {
    answer.to_bytes().unwrap()
}

fn welcome() -> ControlReply {
    ControlReply::Welcome {
        version: VERSION,
        client: 1,
        depth_max: 64,
        arena_bytes_max: 1 << 20,
        grants_max: 8,
    }
}

fn page() -> OwnedFd {
    memory(4096, FIXED)
}

fn granted() -> GrantInfo {
    GrantInfo {
        grant: 1 << 32,
        bytes: 100_000,
        block: 512,
        access: Access::ReadWrite,
        device: "liar".into(),
        unmappable_reason: None,
        is_volatile: true,
        can_be_direct: false,
    }
}

/// Returns the number of mappings of files that malicious servers passed. Only one of these tests runs at a
/// time.
fn mapped() -> usize {
    std::fs::read_to_string("/proc/self/maps").unwrap().matches("memfd:hostile").count()
}

fn null() -> OwnedFd {
    std::fs::File::open("/dev/null").unwrap().into()
}

#[test]
fn lies_in_the_welcome_are_errors() {
    let _alone = serialise_test();
    let with = |change: &dyn Fn(&mut u32, &mut u32)| {
        let mut answer = welcome();
        if let ControlReply::Welcome { version, grants_max, .. } = &mut answer {
            change(version, grants_max);
        }
        said(&answer)
    };
    let cases: Vec<(&str, Vec<u8>, Vec<OwnedFd>, &str)> = vec![
        ("rubbish", vec![0xff; 100], vec![page()], "no message of this protocol"),
        ("nothing", vec![], vec![], "gone"),
        ("too much", vec![b' '; 4097], vec![page()], "more than 4096 bytes"),
        ("another answer", said(&ControlReply::Done {}), vec![page()], "answered Done"),
        ("another version", with(&|version, _| *version = 2), vec![page()], "version 2"),
        ("no grants", with(&|_, most| *most = 0), vec![page()], "0 grants"),
        ("too many grants", with(&|_, most| *most = u32::MAX), vec![page()], "grants can be open"),
        ("a page too short", with(&|_, most| *most = 4096), vec![page()], "another size"),
        ("no page", said(&welcome()), vec![], "another number of descriptors"),
        ("two pages", said(&welcome()), vec![page(), page()], "another number of descriptors"),
        ("a page that can shrink", said(&welcome()), vec![memory(4096, 0)], "not sealed"),
        ("a page that is none", said(&welcome()), vec![null()], "no memory"),
    ];
    for (name, bytes, files, expected) in cases {
        let before = mapped();
        let mut answer = Some((bytes, files));
        let liar = MaliciousServer::start(move |_, _| answer.take());
        let error =
            timed(name, || Client::connect(&liar.socket, options(PathChoice::Automatic)).unwrap_err());
        assert!(error.to_string().contains(expected), "{name}: {error}");
        liar.end();
        assert_eq!(mapped(), before, "{name} leaves a mapping behind");
    }
}

/// Replies correctly to hello and close messages, and by `lie` to all others.
fn lie_about(
    mut lie: impl FnMut(&ControlRequest, Vec<OwnedFd>) -> Option<EncodedReply> + Send + 'static,
) -> impl FnMut(ControlRequest, Vec<OwnedFd>) -> Option<EncodedReply> + Send + 'static {
    move |ask, files| match &ask {
        ControlRequest::Hello { .. } => Some((said(&welcome()), vec![page()])),
        ControlRequest::Close { .. } => Some((said(&ControlReply::Done {}), vec![])),
        other => lie(other, files),
    }
}

#[test]
fn lies_about_grants_are_errors() {
    let _alone = serialise_test();
    let with = |change: &dyn Fn(&mut GrantInfo)| {
        let mut one = granted();
        change(&mut one);
        said(&ControlReply::Granted(one))
    };
    for (name, bytes, expected) in [
        ("a place that is none", with(&|one| one.grant = 1 << 32 | 8), "granted what cannot be"),
        ("no tag", with(&|one| one.grant = 3), "granted what cannot be"),
        ("no block", with(&|one| one.block = 0), "granted what cannot be"),
        ("an odd block", with(&|one| one.block = 513), "granted what cannot be"),
        ("a huge block", with(&|one| one.block = 1 << 31), "granted what cannot be"),
        ("another right", with(&|one| one.access = Access::Read), "granted read of x"),
        ("another answer", said(&ControlReply::Done {}), "answered Done"),
        ("rubbish", b"{".to_vec(), "no message"),
    ] {
        let mut answer = Some(bytes);
        let liar = MaliciousServer::start(lie_about(move |_, _| Some((answer.take()?, vec![]))));
        let client = Client::connect(&liar.socket, options(PathChoice::Automatic)).unwrap();
        let error = timed(name, || client.open("x", Access::ReadWrite).unwrap_err());
        assert!(
            matches!(error, Error::ProtocolViolation { .. }) && error.to_string().contains(expected),
            "{name}: {error}"
        );
        drop(client);
        liar.end();
    }
}

#[test]
fn lies_about_chunks_are_errors() {
    let _alone = serialise_test();
    let chunks = |chunk_bytes, count| said(&ControlReply::Chunks { chunk_bytes, count });
    let whole = || memory(65536, FIXED);
    let rest = || memory(100_000 - 65536, FIXED);
    type Case = (&'static str, Vec<u8>, Vec<OwnedFd>, &'static str);
    let cases: Vec<Case> = vec![
        ("none", chunks(65536, 2), vec![], "0 chunks"),
        ("too many", chunks(65536, 2), vec![whole(), rest(), whole()], "3 chunks"),
        ("too many said", chunks(65536, 3), vec![whole(), rest()], "of 3 for 100000"),
        ("no pages", chunks(65535, 2), vec![whole(), rest()], "65535 bytes"),
        ("of nothing", chunks(0, 2), vec![whole(), rest()], "of 0 bytes"),
        ("of everything", chunks(u64::MAX - 4095, 1), vec![whole()], "passed a chunk of 65536 bytes"),
        ("one that can shrink", chunks(65536, 2), vec![memory(65536, 0), rest()], "not sealed"),
        ("the last can shrink", chunks(65536, 2), vec![whole(), memory(65536, 0)], "not sealed"),
        ("one too short", chunks(65536, 2), vec![memory(65535, FIXED), rest()], "passed a chunk of 65535"),
        (
            "the last too short",
            chunks(65536, 2),
            vec![whole(), memory(34463, FIXED)],
            "passed a chunk of 34463",
        ),
        ("a device", chunks(65536, 2), vec![null(), null()], "passed a chunk of 0"),
        ("another answer", said(&ControlReply::Done {}), vec![], "answered Done"),
    ];
    for (name, bytes, files, expected) in cases {
        let mut answer = Some((bytes, files));
        let liar = MaliciousServer::start(lie_about(move |ask, _| match ask {
            ControlRequest::Open { .. } => Some((said(&ControlReply::Granted(granted())), vec![])),
            _ => answer.take(),
        }));
        let client = Client::connect(&liar.socket, options(PathChoice::Automatic)).unwrap();
        let before = mapped();
        let error = timed(name, || client.open("x", Access::ReadWrite).unwrap_err());
        assert!(
            matches!(error, Error::ProtocolViolation { .. }) && error.to_string().contains(expected),
            "{name}: {error}"
        );
        assert_eq!(mapped(), before, "{name} leaves a mapping behind");
        drop(client);
        liar.end();
    }
    // The second reply names another chunk size, by which the two chunks mapped already would have 2^64
    // bytes.
    let mut answers = vec![
        (chunks(1 << 63, 1), vec![whole()]),
        (chunks(4096, 25), vec![memory(4096, FIXED), memory(4096, FIXED)]),
    ];
    let liar = MaliciousServer::start(lie_about(move |ask, _| match ask {
        ControlRequest::Open { .. } => Some((said(&ControlReply::Granted(granted())), vec![])),
        _ => answers.pop(),
    }));
    let client = Client::connect(&liar.socket, options(PathChoice::Automatic)).unwrap();
    let error = timed("another size", || client.open("x", Access::ReadWrite).unwrap_err());
    assert!(error.to_string().contains("chunks of 9223372036854775808 bytes from 2 on"), "{error}");
    drop(client);
    liar.end();
    // A correct reply is mapped. The last chunk may be larger than the rest of the volume.
    let liar = MaliciousServer::start(lie_about(move |ask, _| match ask {
        ControlRequest::Open { .. } => Some((said(&ControlReply::Granted(granted())), vec![])),
        _ => Some((chunks(65536, 2), vec![whole(), whole()])),
    }));
    let client = Client::connect(&liar.socket, options(PathChoice::Mapped)).unwrap();
    let volume = client.open("x", Access::ReadWrite).unwrap();
    volume.write_at(&[1; 1024], 65024).unwrap();
    let mut bytes = [0; 1024];
    volume.read_at(&mut bytes, 65024).unwrap();
    assert_eq!(bytes, [1; 1024]);
    drop((volume, client));
    liar.end();
}

#[test]
fn lies_about_functions_are_errors_or_end_in_the_channel() {
    let _alone = serialise_test();
    let can = || GrantInfo { can_be_direct: true, ..granted() };
    let direct = |address: &str, change: &dyn Fn(&mut GrantInfo)| {
        let mut grant = can();
        change(&mut grant);
        said(&ControlReply::GrantedDirect {
            grant,
            address: address.into(),
            namespace: 1,
            offset: 0,
            needs_trust: true,
        })
    };
    let function = || direct("0000:00:04.0", &|_| {});
    let refused = said(&ControlReply::Refused(Refusal::new(RefusalKind::Unfit, "nobody gets it")));
    let whole = || memory(65536, FIXED);
    // The error, or the reason why the volume goes through the channel.
    type Case = (&'static str, Vec<u8>, Vec<OwnedFd>, Result<&'static str, &'static str>);
    let cases: Vec<Case> = vec![
        ("a refusal", refused, vec![], Ok("nobody gets it")),
        ("no descriptors", function(), vec![], Ok("it came with 0 descriptors, and a function has three")),
        ("four", function(), (0..4).map(|_| whole()).collect(), Ok("it came with 4 descriptors")),
        (
            "memory",
            function(),
            vec![whole(), whole(), whole()],
            Ok("query the addresses that the IOMMU allows"),
        ),
        (
            "devices",
            function(),
            vec![null(), null(), null()],
            Ok("query the addresses that the IOMMU allows"),
        ),
        ("no address", direct("x", &|_| {}), vec![], Err("'x' is no PCI address")),
        (
            "another right",
            direct("0000:00:04.0", &|one| one.access = Access::Read),
            vec![],
            Err("granted read of x"),
        ),
        (
            "a place that is none",
            direct("0000:00:04.0", &|one| one.grant = 3),
            vec![],
            Err("granted what cannot be"),
        ),
        ("another answer", said(&ControlReply::Done {}), vec![], Err("answered Done")),
    ];
    for (name, bytes, files, expected) in cases {
        let mut answer = Some((bytes, files));
        let liar = MaliciousServer::start(lie_about(move |ask, _| match ask {
            ControlRequest::Open { .. } => Some((said(&ControlReply::Granted(can())), vec![])),
            _ => answer.take(),
        }));
        let client = Client::connect(&liar.socket, options(PathChoice::Automatic)).unwrap();
        let before = mapped();
        let opened = timed(name, || client.open("x", Access::ReadWrite));
        match (opened, expected) {
            (Ok(volume), Ok(why)) => {
                let path = format!("{:?}", volume.path());
                assert!(path.starts_with("Channel") && path.contains(why), "{name}: {path}");
            }
            (Err(error), Err(why)) => {
                let is_violation = matches!(error, Error::ProtocolViolation { .. });
                assert!(is_violation && error.to_string().contains(why), "{name}: {error}");
            }
            (opened, _) => panic!("{name}: {opened:?}"),
        }
        assert_eq!(mapped(), before, "{name} leaves a mapping behind");
        drop(client);
        liar.end();
    }
}

#[test]
fn a_volume_larger_than_all_addresses_goes_through_the_channel() {
    let _alone = serialise_test();
    let huge = || GrantInfo { bytes: u64::MAX, ..granted() };
    let liar =
        MaliciousServer::start(lie_about(move |_, _| Some((said(&ControlReply::Granted(huge())), vec![]))));
    let client = Client::connect(&liar.socket, options(PathChoice::Automatic)).unwrap();
    let volume = client.open("x", Access::ReadWrite).unwrap();
    assert!(format!("{:?}", volume.path()).contains("cannot be mapped here"), "{:?}", volume.path());
    assert!(matches!(volume.read_at(&mut [0; 512], u64::MAX - 511), Err(Error::OutOfBounds { .. })));
    drop((volume, client));
    liar.end();
}

#[test]
fn lies_in_reports_are_errors() {
    let _alone = serialise_test();
    let report = || said(&ControlReply::Report {});
    let (reader, writer) = std::io::pipe().unwrap();
    let cases: Vec<(&str, Vec<u8>, Vec<OwnedFd>, &str)> = vec![
        ("none", report(), vec![], "0 descriptors"),
        ("two", report(), vec![page(), page()], "2 descriptors"),
        ("one that never ends", report(), vec![reader.into()], "no memory"),
        ("one that is too long", report(), vec![memory(1 << 30, FIXED)], "report of 1073741824 bytes"),
        ("zeros", report(), vec![page()], "cannot be read"),
        ("another answer", said(&ControlReply::Done {}), vec![], "answered Done"),
    ];
    for (name, bytes, files, expected) in cases {
        let mut answer = Some((bytes, files));
        let liar = MaliciousServer::start(lie_about(move |_, _| answer.take()));
        let client = Client::connect(&liar.socket, options(PathChoice::Automatic)).unwrap();
        let error = timed(name, || client.volumes().unwrap_err());
        assert!(
            matches!(error, Error::ProtocolViolation { .. }) && error.to_string().contains(expected),
            "{name}: {error}"
        );
        drop(client);
        liar.end();
    }
    drop(writer);
}

#[test]
fn a_server_that_says_nothing_is_not_waited_for() {
    let _alone = serialise_test();
    let liar = MaliciousServer::start(|_, _| {
        thread::sleep(Duration::from_millis(300));
        None
    });
    let short = options(PathChoice::Automatic).limit(Duration::from_millis(50));
    let error = timed("silence", || Client::connect(&liar.socket, short).unwrap_err());
    assert!(matches!(error, Error::TimedOut { .. }), "{error}");
    liar.end();
    // The server replies to the hello message, and then to the request for a channel without making one.
    for answer in [said(&ControlReply::Done {}), said(&ControlReply::Report {}), b"x".to_vec()] {
        let liar = MaliciousServer::start(lie_about(move |_, _| Some((answer.clone(), vec![]))));
        let short = options(PathChoice::Automatic).limit(Duration::from_millis(200));
        timed("no channel", || Queue::connect(&liar.socket, short).unwrap_err());
        liar.end();
    }
}

/// Completions with arbitrary statuses and values, for requests of every kind, and with bytes that the server
/// changed.
#[test]
fn completions_with_rubbish_are_errors_or_done() {
    let _alone = serialise_test();
    let mut random = Random::seeded("completions_with_rubbish_are_errors_or_done");
    for round in 0..rounds(30) {
        let mut seed = Random(random.number());
        let mut servers = Vec::new();
        let liar = MaliciousServer::start(lie_about(move |ask, mut files| match ask {
            ControlRequest::SetUpChannel {} => {
                let socket = files.pop()?;
                let mut seed = seed.clone();
                servers.push(thread::spawn(move || {
                    let mut server = Server::over(socket, &ServerOptions::new()).unwrap();
                    while let Ok(request) = server.next() {
                        let status = seed.one_of(&[0, 0, 0, 5, 9, 13, 84, 110, 116, 1, 65535]);
                        let value = match seed.below(4) {
                            0 => request.len() as u64,
                            1 => seed.number(),
                            _ => seed.below(40),
                        };
                        server.memory(&request).write(0, &seed.number().to_le_bytes());
                        if server.complete(request, status, value).is_err() {
                            return;
                        }
                    }
                }));
                Some((said(&ControlReply::Done {}), vec![]))
            }
            _ => {
                let tag = 1 + seed.below(1000);
                let one = GrantInfo { grant: tag << 32, unmappable_reason: Some("no".into()), ..granted() };
                Some((said(&ControlReply::Granted(one)), vec![]))
            }
        }));
        let mut queue = Queue::connect(&liar.socket, options(PathChoice::Automatic)).unwrap();
        let volume = queue.open("x", Access::ReadWrite).unwrap();
        for number in 0..200u64 {
            let submitted = match random.below(6) {
                0 => queue.read(volume, 0, vec![0; 1024], number),
                1 => queue.write_from(volume, 512, &[1; 512], true, number),
                2 => queue.compare_and_write(volume, 0, &[0; 512], &[1; 512], number),
                3 => queue.write_many(&[(volume, 0, &[1; 512]), (volume, 512, &[2; 512])], false, number),
                4 => {
                    let range = bywash_client::Range { volume, offset: 0, length: 512 };
                    queue.read_many(&[range; 3], vec![0; 1536], number)
                }
                _ => queue.flush(volume, number),
            };
            match submitted {
                Ok(()) => drop(timed("a completion", || queue.reap()).unwrap()),
                // Requests with the status "timed out" keep their memory, so in time the arena has none left.
                Err(refused) => {
                    assert!(matches!(refused.error, Error::ArenaFull { .. }), "{round}: {refused}")
                }
            }
        }
        drop(queue);
        liar.end();
    }
}
