//! Limits: of headers, connections, time and memory.

use crate::{Site, contents, wait_for};
use std::fs::File;
use std::io::Write;
use std::thread::sleep;
use std::time::{Duration, Instant};

#[test]
fn a_large_header_is_refused() {
    let site = Site::new(&[("a", b"some text")], &["--header", "8K"]);
    let mut client = site.client();
    assert_eq!(client.get("/a", &format!("X: {}\r\n", "x".repeat(4000))).status, 200);
    // What is sent behind the refusal may meet a connection that is closed.
    let _ = client.0.get_mut().write_all(format!("GET /a HTTP/1.1\r\nX: {}", "x".repeat(10_000)).as_bytes());
    assert_eq!(client.response().status, 431);
    assert!(client.is_ended());
}

#[test]
fn a_client_too_many_is_refused() {
    let site = Site::new(&[("a", b"some text")], &["--connections", "3"]);
    let mut clients: Vec<_> = (0..3).map(|_| site.client()).collect();
    for client in &mut clients {
        assert_eq!(client.get("/a", "").status, 200);
    }
    let mut other = site.client();
    assert_eq!(other.response().status, 503);
    assert!(other.is_ended());
    clients.pop();
    wait_for("a place", || {
        let mut client = site.client();
        client.send("GET /a HTTP/1.1\r\nHost: here\r\n\r\n");
        client.response().status == 200
    });
    assert_eq!(clients[0].get("/a", "").status, 200);
    assert!(site.server.totals().refused >= 1);
}

#[test]
fn silent_clients_are_disconnected() {
    let site = Site::new(&[("a", b"some text")], &["--idle", "300ms"]);
    let (mut silent, mut slow, mut kept) = (site.client(), site.client(), site.client());
    let begin = Instant::now();
    assert_eq!(kept.get("/a", "").status, 200);
    // One byte at a time, never a whole header: that takes no longer.
    let slow_ended = (0..100).find(|_| {
        sleep(Duration::from_millis(50));
        slow.0.get_mut().write_all(b"G").is_err()
    });
    assert!(slow_ended.is_some());
    assert!(silent.is_ended() && kept.is_ended());
    assert!(begin.elapsed() > Duration::from_millis(300));
}

#[test]
fn a_client_that_takes_nothing_is_disconnected() {
    let site = Site::new(&[("a", &contents(64 << 20))], &["--stalled", "300ms"]);
    let mut client = site.client();
    client.send("GET /a HTTP/1.1\r\nHost: here\r\n\r\n");
    wait_for("the response to begin", || site.server.totals().bytes > 0);
    let mut bytes = 0;
    wait_for("the end of the sending", || {
        sleep(Duration::from_millis(400));
        std::mem::replace(&mut bytes, site.server.totals().bytes) == bytes && bytes > 0
    });
    let mut read = Vec::new();
    let _ = std::io::Read::read_to_end(&mut client.0, &mut read);
    assert!(read.len() < 64 << 20, "all of it arrived");
}

#[test]
fn a_small_cache_serves_more_than_it_holds() {
    let files: Vec<(String, Vec<u8>)> =
        (0..400).map(|file| (format!("f{file}"), contents(1000 + 97 * file))).collect();
    let named: Vec<_> = files.iter().map(|(name, contents)| (name.as_str(), contents.as_slice())).collect();
    let site = Site::new(&named, &["--cache", "2M", "--part", "16K", "--check", "10s"]);
    let mut client = site.client();
    for round in 0..3 {
        for (name, contents) in &named {
            assert!(client.get(&format!("/{name}"), "").contents == *contents, "{name}, round {round}");
        }
        for _ in 0..10 {
            assert_eq!(client.get("/f7", "").status, 200);
        }
    }
    let (size, used) = site.server.memory();
    assert_eq!(size, 2 << 20);
    assert!(used > size / 2 && used <= size, "{used} of {size}");
    let totals = site.server.totals();
    assert!(totals.hits >= 27 && totals.misses > 800, "{totals}");
}

#[test]
fn who_finds_no_memory_waits_for_those_who_have_it() {
    let options = ["--cache", "2M", "--part", "512K", "--stalled", "2s"];
    let site = Site::new(&[("b", &contents(400_000))], &options);
    let mut stalled: Vec<_> = (0..8).map(|_| site.client()).collect();
    for (file, client) in stalled.iter_mut().enumerate() {
        File::create(site.path(&file.to_string())).unwrap().set_len(24 << 20).unwrap();
        client.send(&format!("GET /{file} HTTP/1.1\r\nHost: here\r\n\r\n"));
    }
    // Sockets hold a few megabytes for each of them; then they keep the four parts that there are.
    let mut bytes = 0;
    wait_for("sockets that are full", || {
        sleep(Duration::from_millis(300));
        let before = std::mem::replace(&mut bytes, site.server.totals().bytes);
        before == bytes && site.server.memory().1 > (2 << 20) - 400_000
    });
    let begin = Instant::now();
    assert!(site.get("/b", "").contents == contents(400_000));
    assert!(begin.elapsed() > Duration::from_millis(100), "it did not wait");
}

#[test]
fn contradicting_options_are_refused() {
    use clap::Parser;
    let start = |options: &[&str]| {
        let all = ["bywash-web", "/", "--listen", "127.0.0.1:0"].into_iter().chain(options.iter().copied());
        bywash_example_web::Server::start(bywash_example_web::Options::parse_from(all))
            .unwrap_err()
            .to_string()
    };
    assert_eq!(start(&["--part", "1K"]), "--part is 1024 bytes; give it 4096 to 16777216");
    assert!(
        start(&["--cache", "1M", "--part", "1M"]).starts_with("--cache is 1048576 bytes; give it 4194304")
    );
    assert!(start(&["--connections", "4000000000"]).contains("descriptors"));
}
