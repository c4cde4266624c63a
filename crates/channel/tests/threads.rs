//! Both ends of a channel in one process: the promises of each operation.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use bywash_channel::{
    Client, Error, Listener, Options, Reaper, Request, Server, ServerOptions, Submission, Submitter, Wait,
    socket_pair,
};
use bywash_support::peers::{Random, WAITS, wait_by_name};
use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// Makes both ends of a channel.
fn channel(options: Options, allowed: ServerOptions) -> (Client, Server) {
    let (here, there) = socket_pair().unwrap();
    let server = thread::spawn(move || Server::over(there, &allowed).unwrap());
    let client = Client::over(here, &options).unwrap();
    (client, server.join().unwrap())
}

fn small() -> Options {
    Options::new().arena_bytes(1 << 16).depth(8)
}

/// Serves a channel: the value of each completion is the request's first argument plus the sum of the bytes in
/// its buffer. Requests that are waiting are completed in random order.
fn serve_sums(mut server: Server, mut random: Random) -> Error {
    let mut held: Vec<Request> = Vec::new();
    loop {
        match if held.is_empty() { server.next().map(Some) } else { server.try_next() } {
            Ok(Some(request)) => held.push(request),
            Ok(None) | Err(Error::Closed) if !held.is_empty() => {
                let request = held.swap_remove(random.below(held.len() as u64) as usize);
                let mut bytes = vec![0; request.len()];
                assert_eq!(server.memory(&request).read(0, &mut bytes), bytes.len());
                let sum = bytes.iter().fold(request.arguments()[0], |sum, byte| sum + u64::from(*byte));
                server.memory(&request).write(0, &sum.to_le_bytes());
                server.complete(request, 0, sum).unwrap();
            }
            Ok(None) => {}
            Err(error) => return error,
        }
    }
}

#[test]
fn as_many_as_it_is_deep_and_in_any_order() {
    let mut out_of_order = 0;
    for (number, (one, other)) in
        WAITS.iter().flat_map(|one| WAITS.iter().map(move |other| (*one, *other))).enumerate()
    {
        let (mut client, server) =
            channel(small().wait(wait_by_name(one)), ServerOptions::new().wait(wait_by_name(other)));
        let service = thread::spawn(move || serve_sums(server, Random(number as u64)));
        let mut random = Random(7);
        let mut expected = BTreeMap::new();
        for round in 0..500u64 {
            while client.in_flight() < 8 {
                let bytes: Vec<u8> = (0..random.below(200)).map(|_| random.number() as u8).collect();
                let sum = bytes.iter().fold(round, |sum, byte| sum + u64::from(*byte));
                let mut submission = Submission::new(1).arguments([round, 0, 0, 0, 0, 0]);
                if !bytes.is_empty() {
                    let mut buffer = client.alloc(bytes.len()).unwrap();
                    assert_eq!(buffer.write(0, &bytes), bytes.len());
                    submission = submission.buffer(buffer);
                }
                let length = bytes.len();
                let tag = client.submit(submission).unwrap();
                assert!(
                    expected.insert(tag, (sum, length, round)).is_none(),
                    "a tag is used twice at a time"
                );
            }
            let refused = client.submit(Submission::new(9)).unwrap_err();
            assert!(matches!(refused.error, Error::Full { depth: 8 }));
            assert_eq!(refused.submission.opcode, 9);
            for _ in 0..1 + random.below(8) {
                let done = client.reap().unwrap();
                let (sum, length, round) = expected.remove(&done.tag).unwrap();
                assert_eq!((done.status, done.value), (0, sum));
                if expected.values().any(|(_, _, other)| *other < round) {
                    out_of_order += 1;
                }
                assert_eq!(done.buffer.as_ref().map_or(0, |buffer| buffer.len()), length);
                if let Some(buffer) = done.buffer.filter(|buffer| buffer.len() >= 8) {
                    let mut answer = [0; 8];
                    assert_eq!(buffer.read(0, &mut answer), 8);
                    assert_eq!(u64::from_le_bytes(answer), sum);
                }
            }
        }
        let stats = client.stats();
        assert_eq!(stats.requests, stats.completions + expected.len() as u64);
        drop(client);
        assert!(matches!(service.join().unwrap(), Error::Closed));
    }
    assert!(out_of_order > 0);
}

#[test]
fn what_was_used_to_wait_is_counted() {
    // The first sleep is on a futex; a longer wait goes on with sleeps on the socket, which a doorbell ends.
    let (short, long) = (Duration::from_millis(30), Duration::from_millis(300));
    for (wait, pause) in
        [(Wait::Sleep, short), (Wait::Sleep, long), (Wait::Adaptive, short), (Wait::Adaptive, long)]
    {
        let (mut client, mut server) = channel(small().wait(wait), ServerOptions::new().wait(Wait::Spin));
        let service = thread::spawn(move || {
            let request = server.next().unwrap();
            thread::sleep(pause);
            server.complete(request, 0, 0).unwrap();
            let stats = server.stats();
            (stats.futex_wakes, stats.doorbells)
        });
        client.submit(Submission::new(1)).unwrap();
        client.reap().unwrap();
        let stats = client.stats();
        let sleeps = (stats.spins, stats.futex_sleeps, stats.socket_sleeps);
        assert_eq!(sleeps, (0, 1, u64::from(pause == long)), "{wait:?}");
        assert_eq!(service.join().unwrap(), if pause == long { (0, 1) } else { (1, 0) }, "{wait:?}");
    }
    // While both ends keep up, neither sleeps or is woken.
    let (mut client, mut server) = channel(small().wait(Wait::Spin), ServerOptions::new().wait(Wait::Spin));
    let service = thread::spawn(move || {
        while let Ok(request) = server.next() {
            server.complete(request, 0, 0).unwrap();
        }
        server.stats()
    });
    for _ in 0..1000 {
        client.submit(Submission::new(1)).unwrap();
        client.reap().unwrap();
    }
    let stats = client.stats();
    drop(client);
    for stats in [stats, service.join().unwrap()] {
        assert_eq!((stats.requests, stats.completions), (1000, 1000));
        assert_eq!(
            (stats.futex_sleeps, stats.socket_sleeps, stats.futex_wakes, stats.doorbells),
            (0, 0, 0, 0)
        );
    }
}

/// One request at a time, each after the server has fallen asleep. But for a few attempts neither end spins
/// before it sleeps, or interrupts other cores.
#[test]
fn a_paced_request_is_a_sleep_and_a_wake_up_at_either_end() {
    const REQUESTS: u64 = 1000;
    // The first two attempts, and five of each kind, since the number of sleeps between two attempts doubles
    // from 64 on.
    const FEW: u64 = 12;
    let sleeps = |stats: bywash_channel::Stats| stats.futex_sleeps + stats.socket_sleeps;
    for wait in [Wait::Sleep, Wait::Adaptive] {
        let (mut client, mut server) = channel(small().wait(wait), ServerOptions::new().wait(wait));
        let seen = server.buffer_access();
        let service = thread::spawn(move || {
            for _ in 0..REQUESTS {
                let request = server.next().unwrap();
                server.complete(request, 0, 0).unwrap();
            }
        });
        let end = Instant::now() + Duration::from_secs(60);
        let mut slept = 0;
        for _ in 0..REQUESTS {
            while sleeps(seen.stats()) == slept {
                assert!(Instant::now() < end, "{wait:?}: {:?}", seen.stats());
                thread::yield_now();
            }
            slept = sleeps(seen.stats());
            client.submit(Submission::new(1)).unwrap();
            client.reap().unwrap();
        }
        service.join().unwrap();
        for stats in [client.stats(), seen.stats()] {
            assert!(stats.spins + stats.vain_spins <= FEW, "{wait:?}: {stats:?}");
            assert!(stats.heavy_fences <= FEW, "{wait:?}: {stats:?}");
            // On a busy machine some futex sleeps time out and are repeated.
            assert!(sleeps(stats) <= REQUESTS * 11 / 10, "{wait:?}: {stats:?}");
            assert!(stats.futex_wakes + stats.doorbells <= REQUESTS * 11 / 10, "{wait:?}: {stats:?}");
        }
        assert!(sleeps(seen.stats()) >= REQUESTS * 9 / 10, "{wait:?}: {:?}", seen.stats());
    }
}

#[test]
fn who_waits_for_many_is_woken_once() {
    for wait in [Wait::Sleep, Wait::Adaptive] {
        let (mut client, mut server) = channel(small().wait(wait), ServerOptions::new().wait(Wait::Spin));
        let service = thread::spawn(move || {
            // As slow as a device, so that a client that waits for each single completion falls asleep each
            // time.
            for number in 1..=6 {
                let request = server.next().unwrap();
                thread::sleep(Duration::from_millis(5));
                server.complete(request, 0, 0).unwrap();
                let woken = server.stats().futex_wakes + server.stats().doorbells;
                assert!(woken <= u64::from(number >= 5) + u64::from(number >= 6), "{number}: {woken}");
            }
            let woken = server.stats().futex_wakes + server.stats().doorbells;
            let request = server.next().unwrap();
            server.complete(request, 0, 0).unwrap();
            woken
        });
        for _ in 0..6 {
            client.submit(Submission::new(1)).unwrap();
        }
        // Waits for five of six, and then for more than are in flight.
        client.wait_for(5, Duration::from_secs(10)).unwrap();
        // One sleep, or more on a busy machine where five requests take longer than the timeout of a futex
        // sleep.
        assert_ne!(client.stats().futex_sleeps + client.stats().socket_sleeps, 0, "{wait:?}");
        (0..5).for_each(|_| assert!(client.try_reap().unwrap().is_some()));
        client.wait_for(99, Duration::from_secs(10)).unwrap();
        assert!(client.try_reap().unwrap().is_some() && client.try_reap().unwrap().is_none());
        client.wait_for(1, Duration::ZERO).unwrap();
        client.submit(Submission::new(1)).unwrap();
        client.reap().unwrap();
        assert!(service.join().unwrap() <= 2, "{wait:?}");
    }
    let (mut client, mut server) = channel(small(), ServerOptions::new());
    let dropped = thread::spawn(move || {
        let request = server.next().unwrap();
        server.complete(request, 0, 0).unwrap();
    });
    for _ in 0..2 {
        client.submit(Submission::new(1)).unwrap();
    }
    // Only one of the two requests will be completed.
    let begun = Instant::now();
    assert!(matches!(client.wait_for(2, Duration::from_secs(10)), Err(Error::Closed)));
    assert!(begun.elapsed() < Duration::from_secs(5));
    assert!(client.try_reap().unwrap().is_some() && client.try_reap().is_err());
    dropped.join().unwrap();
    let (mut client, _server) = channel(small(), ServerOptions::new());
    client.submit(Submission::new(1)).unwrap();
    assert!(matches!(client.wait_for(1, Duration::from_millis(20)), Err(Error::TimedOut)));
}

#[test]
fn a_wait_ends_when_it_shall() {
    let (mut client, mut server) = channel(small(), ServerOptions::new());
    let start = Instant::now();
    assert!(matches!(client.reap_within(Duration::from_millis(50)), Err(Error::TimedOut)));
    assert!(matches!(server.next_within(Duration::from_millis(50)), Err(Error::TimedOut)));
    assert!(start.elapsed() >= Duration::from_millis(100));
    assert!(client.try_reap().unwrap().is_none() && server.try_next().unwrap().is_none());
}

#[test]
fn halves_end_one_after_the_other() {
    let (client, mut server) = channel(small(), ServerOptions::new());
    let (mut submitter, mut reaper) = client.split();
    submitter.submit(Submission::new(1)).unwrap();
    submitter.submit(Submission::new(2)).unwrap();
    drop(submitter);
    let first = server.next().unwrap();
    let second = server.next().unwrap();
    assert!(matches!(server.next(), Err(Error::Closed)));
    server.complete(second, 2, 0).unwrap();
    let (requests, mut completer) = server.split();
    drop(requests);
    completer.complete(first, 1, 0).unwrap();
    drop(completer);
    assert_eq!(reaper.reap().unwrap().status, 2);
    assert_eq!(reaper.reap().unwrap().status, 1);
    assert!(matches!(reaper.reap(), Err(Error::Closed)));
    assert!(matches!(reaper.reap(), Err(Error::Closed)));
}

#[test]
fn callbacks_come_in_a_thread_and_stop() {
    let (client, server) = channel(small(), ServerOptions::new());
    let service = thread::spawn(move || serve_sums(server, Random(1)));
    let (mut submitter, reaper) = client.split();
    let (tell, told) = mpsc::channel();
    let dispatcher = reaper.dispatch(move |done| tell.send(done.map(|done| done.value)).unwrap()).unwrap();
    for number in 0..8 {
        submitter.submit(Submission::new(1).arguments([number, 0, 0, 0, 0, 0])).unwrap();
    }
    let mut values: Vec<u64> = (0..8).map(|_| told.recv().unwrap().unwrap()).collect();
    values.sort_unstable();
    assert_eq!(values, [0, 1, 2, 3, 4, 5, 6, 7]);
    // After the dispatcher has stopped, completions are left for the reaper.
    let mut reaper = dispatcher.stop().unwrap();
    submitter.submit(Submission::new(1).arguments([8, 0, 0, 0, 0, 0])).unwrap();
    assert_eq!(reaper.reap().unwrap().value, 8);
    assert!(told.try_recv().is_err());
    drop((submitter, reaper));
    service.join().unwrap();
}

#[test]
fn a_callback_may_end_its_own_dispatcher() {
    let (client, mut server) = channel(small(), ServerOptions::new());
    let (mut submitter, reaper) = client.split();
    let own: std::sync::Arc<std::sync::Mutex<Option<bywash_channel::Dispatcher>>> = Default::default();
    let (seen, (tell, told)) = (own.clone(), mpsc::channel());
    let dispatcher = reaper.dispatch(move |_| {
        let dispatcher = seen.lock().unwrap().take().unwrap();
        // A callback cannot wait for its own end, but it can drop its dispatcher.
        let still = dispatcher.stop().unwrap_err();
        tell.send(still.is_own_callback()).unwrap();
    });
    *own.lock().unwrap() = Some(dispatcher.unwrap());
    for _ in 0..2 {
        submitter.submit(Submission::new(1)).unwrap();
        let request = server.next().unwrap();
        server.complete(request, 0, 0).unwrap();
    }
    assert!(told.recv().unwrap());
    // The thread has ended, and dropped the callback.
    assert!(told.recv().is_err());
}

#[test]
fn a_dispatcher_says_once_that_the_server_is_gone() {
    let (client, server) = channel(small(), ServerOptions::new());
    let (_submitter, reaper) = client.split();
    let (tell, told) = mpsc::channel();
    let _dispatcher = reaper.dispatch(move |done| tell.send(done.map(drop)).unwrap()).unwrap();
    drop(server);
    assert!(matches!(told.recv().unwrap(), Err(Error::Closed)));
    assert!(told.recv().is_err());
}

#[test]
fn who_reaps_knows_what_was_submitted() {
    let (client, mut server) = channel(small(), ServerOptions::new());
    let (mut submitter, mut reaper) = client.split();
    for number in 0..8 {
        submitter.submit(Submission::new(1).user_data(number | 1 << 63)).unwrap();
    }
    let refused = submitter.submit(Submission::new(1).user_data(5)).unwrap_err();
    assert_eq!(refused.submission.user_data, 5);
    let mut requests: Vec<Request> = (0..8).map(|_| server.next().unwrap()).collect();
    while let Some(request) = requests.pop() {
        server.complete(request, 0, 0).unwrap();
        assert_eq!(reaper.reap().unwrap().user_data, requests.len() as u64 | 1 << 63);
    }
}

#[test]
fn other_threads_look_at_the_memory_of_requests() {
    let (mut client, mut server) = channel(small(), ServerOptions::new());
    for number in 0..8 {
        let mut buffer = client.alloc(100).unwrap();
        buffer.write(0, &[number; 100]);
        client.submit(Submission::new(1).buffer(buffer)).unwrap();
    }
    let memories = server.buffer_access();
    let requests: Vec<Request> = (0..8).map(|_| server.next().unwrap()).collect();
    thread::scope(|scope| {
        for (number, request) in requests.iter().enumerate() {
            let memories = &memories;
            scope.spawn(move || {
                let mut bytes = [0; 101];
                assert_eq!(memories.buffer(request).read(0, &mut bytes), 100);
                assert_eq!(bytes[..100], [number as u8; 100]);
            });
        }
    });
    assert_eq!(memories.stats().copied_bytes, 800);
    // This value keeps the connection open, but the client still learns that the server is gone.
    drop(server);
    assert!(matches!(client.reap(), Err(Error::Closed)));
    assert_eq!(memories.buffer(&requests[7]).read(99, &mut [0]), 1);
}

fn is_readable(end: &impl AsFd, limit: Duration) -> bool {
    let mut polled = [rustix::event::PollFd::new(end, rustix::event::PollFlags::IN)];
    let limit = rustix::event::Timespec { tv_sec: 0, tv_nsec: limit.as_nanos() as i64 };
    rustix::event::poll(&mut polled, Some(&limit)).unwrap() > 0
}

#[test]
fn an_event_loop_hears_of_requests_completions_and_the_end() {
    const LONG: Duration = Duration::from_millis(900);
    let (mut client, mut server) = channel(small(), ServerOptions::new());
    for _ in 0..3 {
        assert!(!server.arm().unwrap() && !client.arm().unwrap());
        assert!(!is_readable(&server, Duration::ZERO) && !is_readable(&client, Duration::ZERO));
        client.submit(Submission::new(1)).unwrap();
        assert!(is_readable(&server, LONG));
        assert!(server.arm().unwrap());
        let request = server.try_next().unwrap().unwrap();
        server.complete(request, 0, 0).unwrap();
        assert!(is_readable(&client, LONG));
        assert!(client.arm().unwrap());
        client.try_reap().unwrap().unwrap();
    }
    assert!(!client.arm().unwrap());
    drop(server);
    assert!(is_readable(&client, LONG));
    assert!(client.arm().unwrap());
    assert!(matches!(client.try_reap(), Err(Error::Closed)));
}

/// Holders in turn: this program, the ring of requests, the server, the ring of completions.
#[test]
fn completions_without_a_wake_up_wake_together() {
    let (mut client, mut server) = channel(small(), ServerOptions::new());
    for round in 1..=3 {
        let requests: Vec<Request> = (0..4)
            .map(|_| {
                client.submit(Submission::new(1)).unwrap();
                server.next().unwrap()
            })
            .collect();
        assert!(!client.arm().unwrap());
        for request in requests {
            server.complete_unrung(request, 0, 7).unwrap();
        }
        assert!(!is_readable(&client, Duration::from_millis(20)), "nobody has rung");
        server.ring();
        assert!(is_readable(&client, Duration::from_millis(900)));
        server.ring();
        assert_eq!(server.stats().doorbells, round);
        for _ in 0..4 {
            assert_eq!(client.try_reap().unwrap().unwrap().value, 7);
        }
        assert!(client.try_reap().unwrap().is_none());
    }
}

#[test]
fn an_arena_that_is_used_up_tells_who_has_it() {
    const PIECE: usize = 1 << 14;
    let (mut client, mut server) = channel(small(), ServerOptions::new());
    let holders = |client: &Client| {
        let refused = client.alloc(PIECE).unwrap_err();
        let Error::ArenaFull { asked: PIECE, arena } = &refused else { panic!("{refused}") };
        let split = [
            (arena.held, arena.held_bytes),
            (arena.queued, arena.queued_bytes),
            (arena.shipped, arena.shipped_bytes),
            (arena.returned, arena.returned_bytes),
        ];
        assert!(split.iter().all(|(count, bytes)| count * PIECE == *bytes), "{arena:?}");
        let text = refused.to_string();
        for told in ["holds {0} in {1} buffers", "the server has {4} in {5}", "{6} in {7} are done"] {
            let figures = split.iter().flat_map(|(count, bytes)| [bytes, count]).enumerate();
            let told = figures.fold(told.to_owned(), |told, (at, figure)| {
                told.replace(&format!("{{{at}}}"), &figure.to_string())
            });
            assert!(text.contains(&told), "{told}: {text}");
        }
        split.map(|(count, _)| count)
    };
    let buffers: Vec<_> = (0..4).map(|_| client.alloc(PIECE).unwrap()).collect();
    assert_eq!(holders(&client), [4, 0, 0, 0]);
    let mut buffers = buffers.into_iter();
    for buffer in buffers.by_ref().take(3) {
        client.submit(Submission::new(1).buffer(buffer)).unwrap();
    }
    // A request without a buffer changes no figure.
    client.submit(Submission::new(1)).unwrap();
    assert_eq!(holders(&client), [1, 3, 0, 0]);
    let (first, _second) = (server.next().unwrap(), server.next().unwrap());
    assert_eq!(holders(&client), [1, 1, 2, 0]);
    server.complete(first, 0, 0).unwrap();
    assert_eq!(holders(&client), [1, 1, 1, 1]);
    let done = client.reap().unwrap();
    assert_eq!(holders(&client), [2, 1, 1, 0]);
    drop((done, buffers));
    assert!(client.alloc(2 * PIECE).is_ok() || client.alloc(PIECE).is_ok());
}

#[test]
fn buffers_are_cut_from_the_arena_and_come_back() {
    let (mut client, mut server) = channel(small(), ServerOptions::new());
    assert!(matches!(client.alloc((1 << 16) + 1), Err(Error::TooLarge { most: 65536, .. })));
    let all = client.alloc(1 << 16).unwrap();
    let refused = client.alloc(1).unwrap_err();
    assert!(
        matches!(&refused, Error::ArenaFull { asked: 1, arena } if arena.held_bytes == 1 << 16),
        "{refused}"
    );
    client.submit(Submission::new(1).buffer(all)).unwrap();
    // The server owns the buffer meanwhile.
    assert!(matches!(client.alloc(1), Err(Error::ArenaFull { asked: 1, .. })));
    let request = server.next().unwrap();
    assert_eq!(request.len(), 1 << 16);
    server.complete(request, 0, 0).unwrap();
    let mut back = client.reap().unwrap().buffer.unwrap();
    assert!(back.resize(10) && !back.resize(1 << 17));
    assert_eq!((back.len(), back.read(8, &mut [0; 8]), back.write(10, &[1])), (10, 2, 0));
    assert!(matches!(back.map(), Err(Error::NotMapped(_))));
    drop(back);
    assert!(client.alloc(1).is_ok());
}

#[test]
fn a_trusted_servers_buffers_can_be_borrowed() {
    // SAFETY: the server is this test, which uses the library as intended and accesses buffers only while
    // their requests are in flight.
    let (mut client, mut server) = channel(unsafe { small().trusted() }, ServerOptions::new());
    let mut buffer = client.alloc(5).unwrap();
    buffer.map_mut().unwrap().copy_from_slice(b"hello");
    client.submit(Submission::new(1).buffer(buffer)).unwrap();
    let request = server.next().unwrap();
    server.memory(&request).write(1, b"a");
    server.complete(request, 0, 0).unwrap();
    assert_eq!(client.reap().unwrap().buffer.unwrap().map().unwrap(), b"hallo");
}

#[test]
fn nothing_goes_over_the_wrong_channel() {
    let (mut one, mut one_server) = channel(small(), ServerOptions::new());
    let (mut other, mut other_server) = channel(small(), ServerOptions::new());
    let foreign = one.alloc(1).unwrap();
    let refused = other.submit(Submission::new(1).buffer(foreign)).unwrap_err();
    assert!(matches!(refused.error, Error::WrongPath(_)));
    // The submission was handed back unchanged.
    one.submit(*refused.submission).unwrap();
    let request = one_server.next().unwrap();
    assert!(matches!(other_server.complete(request, 0, 0), Err(Error::WrongPath(_))));
    assert!(other_server.try_next().unwrap().is_none());
}

#[test]
fn what_does_not_fit_is_said_to_both() {
    let (here, there) = socket_pair().unwrap();
    let server = thread::spawn(move || Server::over(there, &ServerOptions::new().depth_max(4)).map(drop));
    let said = Client::over(here, &Options::new().depth(8)).map(drop).unwrap_err().to_string();
    assert!(said.contains("allows a depth of 4"), "{said}");
    let said = server.join().unwrap().unwrap_err().to_string();
    assert!(said.contains("asks for 8"), "{said}");

    let (here, there) = socket_pair().unwrap();
    let other = thread::spawn(move || Client::over(there, &Options::new()).map(drop));
    let said = Client::over(here, &Options::new()).map(drop).unwrap_err().to_string();
    assert!(said.contains("both are clients"), "{said}");
    assert!(other.join().unwrap().is_err());

    for options in [Options::new().depth(3), Options::new().depth(1 << 15)] {
        let said = Client::over(socket_pair().unwrap().0, &options).map(drop).unwrap_err().to_string();
        assert!(said.contains("the depth is"), "{said}");
    }
    assert!(Server::over(socket_pair().unwrap().0, &ServerOptions::new().depth_max(0)).is_err());
}

#[test]
fn programs_meet_at_a_name() {
    let folder = tempfile::tempdir().unwrap();
    let name = folder.path().join("channel.sock");
    let listener = Listener::bind(&name).unwrap();
    let service = thread::spawn(move || {
        let socket = listener.accept_socket(None).unwrap();
        let mut server = Server::over(socket, &ServerOptions::new()).unwrap();
        assert_eq!(server.peer().pid, std::process::id());
        let request = server.next().unwrap();
        assert_eq!((request.opcode(), request.flags(), request.arguments()), (200, 100, &[1, 2, 3, 4, 5, 6]));
        assert!(request.is_empty());
        server.complete(request, u16::MAX, u64::MAX).unwrap();
    });
    let mut client = Client::connect(&name, &Options::new().arena_bytes(0)).unwrap();
    assert!(matches!(client.alloc(1), Err(Error::TooLarge { most: 0, .. })));
    client.submit(Submission::new(200).flags(100).arguments([1, 2, 3, 4, 5, 6])).unwrap();
    let done = client.reap().unwrap();
    assert_eq!((done.status, done.value, done.buffer.is_none()), (u16::MAX, u64::MAX, true));
    service.join().unwrap();
    let said =
        Client::connect(folder.path().join("nobody"), &Options::new()).map(drop).unwrap_err().to_string();
    assert!(said.contains("nobody"), "{said}");
}

#[test]
fn a_forked_child_has_no_part_in_it() {
    let (mut client, mut server) = channel(small(), ServerOptions::new());
    let buffer = client.alloc(100).unwrap();
    // SAFETY: the child has one thread, makes only calls of this library that fail at once, and exits without
    // unwinding.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let refused = client.submit(Submission::new(1));
        let all = matches!(refused, Err(refused) if matches!(refused.error, Error::Forked))
            && matches!(client.try_reap(), Err(Error::Forked))
            && matches!(client.alloc(1), Err(Error::Forked))
            && matches!(server.try_next(), Err(Error::Forked));
        drop((client, server, buffer));
        // SAFETY: _exit(2) ends the process and has no preconditions.
        unsafe { libc::_exit(if all { 0 } else { 1 }) };
    }
    let mut status = 0;
    // SAFETY: waits for the child just forked, and writes to a live integer.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0);
    // The parent's ends and buffer are not affected by the child's drops.
    client.submit(Submission::new(1).buffer(buffer)).unwrap();
    let request = server.next().unwrap();
    server.complete(request, 0, 5).unwrap();
    assert_eq!(client.reap().unwrap().value, 5);
}

/// Ends and halves can move to other threads, which the compiler checks here.
#[test]
fn halves_can_be_sent() {
    fn sent<T: Send>() {}
    sent::<Client>();
    sent::<Server>();
    sent::<Submitter>();
    sent::<bywash_channel::BufferAllocator>();
    sent::<Reaper>();
    sent::<bywash_channel::Completer>();
    sent::<bywash_channel::RequestReceiver>();
}
