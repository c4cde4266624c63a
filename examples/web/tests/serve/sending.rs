//! Clients that are slow, that go away, and that are many.

use crate::{Client, Site, contents, wait_for};
use std::io::Read;
use std::thread;
use std::time::Duration;

#[test]
fn a_slow_reader_gets_all_of_it() {
    let all = contents(24 << 20);
    let site = Site::new(&[("a", &all), ("b", b"other")], &["--cache", "4M"]);
    let mut slow = site.client();
    slow.send("GET /a HTTP/1.1\r\nHost: here\r\n\r\n");
    assert_eq!(slow.head().bytes(), all.len());
    let mut read = vec![0; all.len()];
    for (index, piece) in read.chunks_mut(1 << 20).enumerate() {
        slow.0.read_exact(piece).unwrap();
        thread::sleep(Duration::from_millis(30));
        if index % 4 == 0 {
            assert_eq!(site.get("/b", "").contents, b"other");
        }
    }
    assert!(read == all, "wrong bytes arrived");
    assert_eq!(slow.get("/b", "").contents, b"other");
}

#[test]
fn a_client_that_goes_away_leaves_nothing() {
    let site =
        Site::new(&[("a", &contents(32 << 20)), ("b", b"other")], &["--cache", "2M", "--part", "256K"]);
    for _ in 0..20 {
        let mut client = site.client();
        client.send("GET /a HTTP/1.1\r\nHost: here\r\n\r\n");
        client.0.read_exact(&mut [0; 100_000]).unwrap();
    }
    // All parts are free again, so a response that needs all of the cache gets it.
    wait_for("the last of them", || site.server.totals().requests == 20);
    let mut client = site.client();
    assert!(client.get("/a", "").contents == contents(32 << 20));
    assert_eq!(client.get("/b", "").contents, b"other");
    assert_eq!(site.server.totals().broken, 0);
}

#[test]
fn a_thousand_connections_are_served_at_once() {
    let files: Vec<_> = (0..50).map(|file| (format!("f{file}"), contents(16 << 10 | file))).collect();
    let named: Vec<_> = files.iter().map(|(name, contents)| (name.as_str(), contents.as_slice())).collect();
    let site = Site::new(&named, &["--threads", "2", "--connections", "1000"]);
    let mut clients: Vec<Client> = (0..1000).map(|_| site.client()).collect();
    for round in 0..3 {
        let file = |client: usize| (client + round) % named.len();
        for (index, client) in clients.iter_mut().enumerate() {
            client.send(&format!("GET /{} HTTP/1.1\r\nHost: here\r\n\r\n", named[file(index)].0));
        }
        for (index, client) in clients.iter_mut().enumerate() {
            assert!(client.response().contents == named[file(index)].1, "client {index}, round {round}");
        }
    }
    let totals = site.server.stop();
    assert_eq!((totals.connections, totals.refused, totals.requests), (1000, 0, 3000));
    assert!(totals.misses >= 50 && totals.misses + totals.hits == 3000, "{totals}");
}

#[test]
fn a_response_that_has_begun_is_sent_before_the_server_stops() {
    let all = contents(16 << 20);
    let site = Site::new(&[("a", &all)], &[]);
    let mut client = site.client();
    client.send("GET /a HTTP/1.1\r\nHost: here\r\n\r\n");
    assert_eq!(client.head().bytes(), all.len());
    let reader = thread::spawn(move || {
        let mut read = Vec::new();
        thread::sleep(Duration::from_millis(200));
        client.0.read_to_end(&mut read).unwrap();
        read
    });
    let totals = site.server.stop();
    assert_eq!(totals.bytes, all.len() as u64);
    assert!(reader.join().unwrap() == all, "wrong bytes arrived");
}
