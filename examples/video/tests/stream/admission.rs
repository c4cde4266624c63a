//! A client too many is refused, and those that were admitted do not notice.

use crate::{Site, contents, wait_for};
use bywash_example_http::testing::Response;
use std::io::Read;

fn reason(response: &Response) -> String {
    assert_eq!(response.status, 503);
    assert_eq!(
        (response.field("retry-after"), response.field("content-type")),
        ("5", "text/plain; charset=utf-8")
    );
    String::from_utf8(response.contents.clone()).unwrap()
}

#[test]
fn who_is_refused_hurts_nobody() {
    // Three streams of 2 Mbit/s, each of which takes more than 3.1 s.
    let all = contents(6 * (256 << 10));
    let site = Site::new(&[("a", &all)], &["--rate", "2Mbit", "--network", "6Mbit"]);
    let mut clients: Vec<_> = (0..3).map(|_| site.begin("/a", "")).collect();
    for client in &mut clients {
        assert_eq!(client.head().status, 200);
    }
    std::thread::scope(|scope| {
        let readers: Vec<_> = clients
            .iter_mut()
            .map(|client| {
                scope.spawn(move || {
                    let mut read = Vec::new();
                    client.0.read_to_end(&mut read).unwrap();
                    read
                })
            })
            .collect();
        for _ in 0..20 {
            let text = reason(&site.get("/a", ""));
            assert_eq!(
                text,
                "not enough network bandwidth for another stream: 6.0 Mbit/s of 6.0 Mbit/s are given out\n"
            );
        }
        for reader in readers {
            assert!(reader.join().unwrap() == all);
        }
    });
    site.wait_for_the_end();
    let totals = site.server.totals();
    assert_eq!((totals.streams, totals.no_network, totals.broken), (3, 20, 0));
    assert_eq!(site.begin("/a", "").head().status, 200);
}

#[test]
fn memory_is_exact() {
    // 16 MiB: 32 streams of two containers of 256 KiB. The server starts with all of it free.
    let all = contents(1 << 20);
    let site = Site::new(&[("a", &all)], &["--rate", "1Mbit"]);
    let (size, used) = site.server.memory();
    assert_eq!((size, used), (16 << 20, 0));
    let mut clients: Vec<_> = (0..32).map(|_| site.begin("/a", "")).collect();
    for client in &mut clients {
        assert_eq!(client.head().status, 200);
    }
    assert_eq!(site.server.memory(), (16 << 20, 16 << 20));
    let text = reason(&site.get("/a", ""));
    assert!(text.starts_with("not enough memory for another stream: a stream needs 524288 bytes"), "{text}");
    assert_eq!((site.server.totals().no_memory, site.server.admitted().0), (1, 32));
    // A client that is killed frees what it had.
    clients.pop();
    wait_for("the end of a stream whose client is gone", || site.server.admitted().0 == 31);
    // Its containers come back a moment later, and on a busy machine nobody is admitted while streams are late.
    wait_for("room for another stream", || site.begin("/a", "").head().status == 200);
    drop(clients);
    site.wait_for_the_end();
}

#[test]
fn a_machine_is_measured() {
    let all = contents(4 << 20);
    let site = Site::new(&[("a", &all)], &["--calibration", "100ms", "--share", "50"]);
    let (_, _, capacities) = site.server.admitted();
    // No file was there when it was measured, but the processor's cost needs reads, too.
    assert!(capacities.disk.is_some() && capacities.nanoseconds_per_byte.is_some(), "{capacities:?}");
    // A rate that no machine reads at.
    let site = Site::new(&[("a", &all)], &["--calibration", "100ms", "--rate", "8Gbit", "--share", "1"]);
    let disk = site.server.admitted().2.disk.unwrap();
    let text = reason(&site.get("/a", ""));
    if disk < 100_000_000_000 {
        assert!(
            text.starts_with("not enough disk bandwidth for another stream: 0 kbit/s are given out"),
            "{text}"
        );
        assert_eq!(site.server.totals().no_disk, 1);
    }
}
