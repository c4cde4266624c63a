//! The waiting operations as futures: a future sleeps until something happens, misses no event, and can be
//! dropped.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod choices;

use bywash_container::{Error, Listener, Path, Shipment, socket_pair};
use bywash_support::peers::{Random, check, fill};
use choices::{CLASSES, options};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// Timeout that also suffices on a busy machine.
const LONG: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_millis(30);

/// Makes both ends of a path of a class.
fn both(class: &str) -> (Path, Path) {
    let (here, there) = socket_pair().unwrap();
    let other = options(class, "adaptive");
    let other = thread::spawn(move || Path::over(there, &other).unwrap());
    let path = Path::over(here, &options(class, "adaptive")).unwrap();
    (path, other.join().unwrap())
}

/// Runs a future on a tokio runtime with this number of threads.
fn run<T>(threads: usize, task: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_time().build();
    runtime.unwrap().block_on(async { tokio::time::timeout(LONG, task).await.expect("a task hangs") })
}

#[test]
fn messages_go_both_ways_between_tasks() {
    for class in CLASSES {
        run(2, async move {
            let (one, other) = both(class);
            let echo = tokio::spawn(async move {
                loop {
                    match other.receive_async().await {
                        Ok(message) => {
                            other.ship_message_async(message).await.unwrap_or_else(|it| panic!("{it}"))
                        }
                        Err(error) => return error,
                    }
                }
            });
            // Sealed containers are shipped back as such; the others are shipped back within the arena that
            // they came from.
            let mut random = Random(3);
            for _ in 0..200 {
                let mut container = one.alloc_async(random.size(16)).await.unwrap();
                fill(&mut container, random.number());
                one.ship_async(container).await.unwrap();
                check(&one.receive_async().await.unwrap().to_vec().unwrap());
            }
            drop(one);
            assert!(matches!(echo.await.unwrap(), Error::Closed));
        });
    }
}

#[test]
fn any_executor_will_do() {
    let (one, other) = both("checked");
    let echo = thread::spawn(move || {
        futures_lite::future::block_on(async {
            let message = other.receive_async().await.unwrap();
            other.ship_message_async(message).await.unwrap();
        });
    });
    futures_lite::future::block_on(async {
        let mut container = one.alloc_async(1000).await.unwrap();
        fill(&mut container, 1);
        one.ship_async(container).await.unwrap();
        check(&one.receive_async().await.unwrap().to_vec().unwrap());
    });
    echo.join().unwrap();
}

#[test]
fn a_task_waits_for_room_and_for_messages_at_once() {
    // Each end has one task that ships and one that receives. So two tasks wait on the same socket.
    const MESSAGES: usize = 3000;
    for threads in [1, 2] {
        run(threads, async move {
            let (one, other) = both("checked");
            let mut tasks = Vec::new();
            for path in [Arc::new(one), Arc::new(other)] {
                let receiver = path.clone();
                tasks.push(tokio::spawn(async move {
                    for _ in 0..MESSAGES {
                        check(&receiver.receive_async().await.unwrap().to_vec().unwrap());
                    }
                }));
                tasks.push(tokio::spawn(async move {
                    let mut random = Random(9);
                    for _ in 0..MESSAGES {
                        // The arena has room for five of them.
                        let mut container = path.alloc_async(150_000).await.unwrap();
                        container.truncate(random.size(10));
                        fill(&mut container, random.number());
                        path.ship_async(container).await.unwrap();
                    }
                }));
            }
            for task in tasks {
                task.await.unwrap();
            }
        });
    }
}

#[test]
fn a_waiting_task_sleeps_and_can_be_given_up() {
    run(1, async {
        let (one, other) = both("checked");
        assert!(tokio::time::timeout(SHORT, one.receive_async()).await.is_err());
        let mut container = other.alloc(1000).unwrap();
        fill(&mut container, 5);
        other.ship(container).unwrap();
        assert_eq!(one.receive_async().await.unwrap().len(), 1000);
        // The future looked again only when the doorbell rang.
        assert!(one.stats().socket_sleeps <= 3, "{:?}", one.stats());
    });
}

#[test]
fn a_waiting_task_hears_that_the_peer_is_gone() {
    run(1, async {
        for class in CLASSES {
            let (one, other) = both(class);
            let waiting = tokio::spawn(async move { one.receive_async().await.map(drop) });
            tokio::time::sleep(SHORT).await;
            drop(other);
            assert!(matches!(waiting.await.unwrap(), Err(Error::Closed)), "{class}");
        }
        // Another thread closes this end of the path.
        let (one, _other) = both("checked");
        let one = Arc::new(one);
        let same = one.clone();
        let waiting = tokio::spawn(async move { same.receive_async().await.map(drop) });
        tokio::time::sleep(SHORT).await;
        one.close();
        assert!(matches!(waiting.await.unwrap(), Err(Error::Closed)));
    });
}

#[test]
fn what_is_forwarded_comes_back_through_a_task() {
    run(2, async {
        let (source, from_source) = both("forward");
        let (to_sink, sink) = both("checked");
        let middle = tokio::spawn(async move {
            while let Ok(message) = from_source.receive_async().await {
                if to_sink.ship_message_async(message).await.is_err() {
                    return;
                }
            }
        });
        let end = tokio::spawn(async move {
            for _ in 0..300 {
                check(&sink.receive_async().await.unwrap().to_vec().unwrap());
            }
        });
        // The arena has room for five of them, so the middle must return them while it only waits to receive.
        for number in 0..300 {
            let mut container = source.alloc_async(150_000).await.unwrap();
            fill(&mut container, number);
            source.ship_all_async(vec![Shipment::Own(container)]).await.unwrap();
        }
        end.await.unwrap();
        drop(source);
        middle.await.unwrap();
    });
}

#[test]
fn tasks_meet_at_a_name() {
    run(2, async {
        let folder = tempfile::tempdir().unwrap();
        let name = folder.path().join("path.sock");
        let listener = Listener::bind(&name).unwrap();
        let accepted = tokio::spawn(async move {
            let path = listener.accept_async(&options("checked", "adaptive")).await.unwrap();
            path.receive_async().await.unwrap().to_vec().unwrap()
        });
        // A peer that connects and sends no hello message must not delay the next one.
        let address = rustix::net::SocketAddrUnix::new(&name).unwrap();
        let kind = rustix::net::SocketType::SEQPACKET;
        let socket = rustix::net::socket(rustix::net::AddressFamily::UNIX, kind, None).unwrap();
        rustix::net::connect(&socket, &address).unwrap();
        tokio::time::sleep(SHORT).await;
        let path = Path::connect_async(&name, &options("checked", "adaptive")).await.unwrap();
        let mut container = path.alloc_async(5).await.unwrap();
        container.copy_from_slice(b"hello");
        path.ship_async(container).await.unwrap();
        assert_eq!(accepted.await.unwrap(), b"hello");
    });
}
