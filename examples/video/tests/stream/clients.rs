//! Clients that are slow, that stop reading, and that go away: they hurt only themselves.

use crate::{Site, contents, wait_for};
use std::io::Read;
use std::thread;
use std::time::Duration;

#[test]
fn a_client_that_stops_reading_is_cut_off() {
    let all = contents(16 << 20);
    // Sockets take some megabytes, in less than a second at this rate.
    let options = ["--rate", "400Mbit", "--stalled", "500ms", "--memory", "64M"];
    let site = Site::new(&[("a", &all)], &options);
    let mut stalled = site.begin("/a", "");
    assert_eq!(stalled.head().status, 200);
    wait_for("the end of the stream", || site.server.admitted().0 == 0);
    site.wait_for_the_end();
    let mut read = Vec::new();
    let _ = stalled.0.read_to_end(&mut read);
    assert!(read.len() < all.len(), "all of it arrived");
    assert!(read == all[..read.len()], "wrong bytes arrived");
}

#[test]
fn a_slow_client_gets_all_of_it_and_others_are_in_time() {
    let all = contents(24 << 20);
    let (slow_rate, options) =
        ("rate=400Mbit", ["--rate", "4Mbit", "--rate-max", "400Mbit", "--period", "50ms"]);
    let site = Site::new(&[("a", &all), ("b", &all[..700_000])], &options);
    let mut slow = site.begin(&format!("/a?{slow_rate}"), "");
    assert_eq!(slow.head().status, 200);
    thread::scope(|scope| {
        let other = scope.spawn(|| site.get("/b", "").contents);
        let mut read = vec![0; all.len()];
        for piece in read.chunks_mut(1 << 20) {
            thread::sleep(Duration::from_millis(50));
            slow.0.read_exact(piece).unwrap();
        }
        assert!(read == all);
        assert!(other.join().unwrap() == all[..700_000]);
    });
    site.wait_for_the_end();
    let totals = site.server.totals();
    assert_eq!((totals.streams, totals.broken), (2, 0));
    assert!(totals.slow > 0, "{totals}");
}

#[test]
fn clients_that_go_away_leave_nothing() {
    let site = Site::new(&[("a", &contents(4 << 20))], &["--rate", "16Mbit"]);
    for round in 0..40 {
        let mut client = site.begin("/a", "");
        // Some before the first byte, some in the middle.
        if round % 2 == 0 {
            client.0.read_exact(&mut [0; 100_000]).unwrap();
        }
    }
    site.wait_for_the_end();
    let totals = site.server.totals();
    assert_eq!(totals.broken, 0, "{totals}");
}

#[test]
fn each_thread_has_clients() {
    let all = contents(600_000);
    let site = Site::new(&[("a", &all)], &["--threads", "2", "--rate", "16Mbit", "--memory", "64M"]);
    let mut clients: Vec<_> = (0..40).map(|_| site.begin("/a", "")).collect();
    for client in &mut clients {
        assert!(client.response().contents == all);
    }
    site.wait_for_the_end();
    let totals = site.server.stop().0;
    assert_eq!((totals.streams, totals.chunks), (40, 40));
}
