//! Streams are sent at their rates.

use crate::{Site, contents};
use std::fs;
use std::io::Read;
use std::time::{Duration, Instant};

#[test]
fn a_stream_is_sent_at_its_rate() {
    // 256 KiB a chunk: two at once, then one each 131 ms; the last one at 787 ms or up to one period later.
    let all = contents(8 * (256 << 10));
    let site = Site::new(&[("a", &all)], &["--rate", "16Mbit", "--period", "100ms"]);
    let begin = Instant::now();
    let mut client = site.begin("/a", "");
    assert_eq!(client.head().bytes(), all.len());
    let mut read = vec![0; all.len()];
    let mut first = Duration::ZERO;
    for (chunk, piece) in read.chunks_mut(256 << 10).enumerate() {
        client.0.read_exact(piece).unwrap();
        let earliest = Duration::from_micros(131_072) * (chunk as u32).saturating_sub(2);
        let at = begin.elapsed();
        if chunk == 1 {
            first = at;
        }
        assert!(at >= earliest, "chunk {chunk} at {at:?}, before {earliest:?}");
    }
    assert!(read == all);
    assert!(begin.elapsed() > Duration::from_millis(650), "{:?}", begin.elapsed());
    assert!(first < Duration::from_secs(5), "{first:?}");
    site.wait_for_the_end();
    let totals = site.server.totals();
    assert_eq!((totals.chunks, totals.slow), (8, 0));
    let delays = site.server.delays();
    assert!(delays.percentile(0.5) <= delays.percentile(1.0) && delays.percentile(1.0) > Duration::ZERO);
}

#[test]
fn each_file_has_its_rate() {
    let folder = tempfile::tempdir().unwrap();
    let table = folder.path().join("rates");
    fs::write(&table, "# in bits\nfast* 4Gbit\n*.mkv 2Mbit\n").unwrap();
    let all = contents(16 * (256 << 10));
    let files = [("fast", &all[..]), ("a.mkv", &all), ("b", &all)];
    let options =
        ["--rates", table.to_str().unwrap(), "--rate", "4Mbit", "--rate-max", "16Mbit", "--period", "50ms"];
    let site = Site::new(&files, &options);
    let rate = |path: &str| {
        let mut client = site.begin(path, "");
        let response = client.head();
        (response.status, site.server.admitted().1)
    };
    for (path, bytes_per_second) in [("/a.mkv", 250_000), ("/b", 500_000), ("/b?x=y&rate=16Mbit", 2_000_000)]
    {
        assert_eq!(rate(path), (200, bytes_per_second), "{path}");
        site.wait_for_the_end();
    }
    assert!(site.get("/fast", "").contents == all);
    for (query, text) in [("17Mbit", "too high"), ("fast", "no rate")] {
        let response = site.get(&format!("/b?rate={query}"), "");
        let told = String::from_utf8(response.contents).unwrap();
        assert!(response.status == 400 && told.contains(text), "{told}");
    }
}

#[test]
fn streams_are_spread_over_the_period() {
    let all = contents(4 * (256 << 10));
    let site = Site::new(&[("a", &all)], &["--rate", "4Mbit"]);
    // All at once. Their third chunks are due at 16 different times within 524 ms.
    let mut clients: Vec<_> = (0..16).map(|_| site.begin("/a", "")).collect();
    let mut times = Vec::new();
    for client in &mut clients {
        assert_eq!(client.head().status, 200);
        client.0.read_exact(&mut vec![0; 2 * (256 << 10)]).unwrap();
    }
    let begin = Instant::now();
    std::thread::scope(|scope| {
        let readers: Vec<_> = clients
            .iter_mut()
            .map(|client| {
                scope.spawn(move || {
                    client.0.read_exact(&mut [0]).unwrap();
                    begin.elapsed()
                })
            })
            .collect();
        times.extend(readers.into_iter().map(|reader| reader.join().unwrap()));
    });
    times.sort();
    // Not all together. A machine that is busy may join some of them.
    assert!(times[15] - times[0] > Duration::from_millis(150), "{times:?}");
}
