//! Requests and responses: names, ranges, conditions.

use crate::{Site, contents};
use std::os::unix::fs::symlink;

/// A rate at which files of a few megabytes are sent at once.
const FAST: [&str; 4] = ["--rate", "4Gbit", "--memory", "64M"];

#[test]
fn a_file_is_sent_whole() {
    for reads in ["disk", "cache"] {
        let all = contents(3_000_001);
        let site = Site::new(&[("a.mp4", &all), ("empty", b"")], &[&FAST[..], &["--reads", reads]].concat());
        let response = site.get("/a.mp4", "");
        assert_eq!((response.status, response.field("content-type")), (200, "video/mp4"));
        assert_eq!(response.field("accept-ranges"), "bytes");
        assert!(response.contents == all);
        let response = site.get("/empty", "");
        assert_eq!((response.status, response.bytes()), (200, 0));
        assert_eq!(site.get("/none", "").status, 404);
        site.wait_for_the_end();
        let totals = site.server.totals();
        assert_eq!((totals.streams, totals.bytes, totals.broken), (1, 3_000_001, 0));
    }
}

#[test]
fn a_range_is_a_part() {
    let all = contents(2_000_000);
    let site = Site::new(&[("a", &all)], &FAST);
    let mut client = site.client();
    let parts = [(0, 1), (4095, 2), (4096, 4096), (100, 1_900_000), (1_999_999, 1), (0, 2_000_000)];
    for (begin, bytes) in parts {
        let response = client.get("/a", &format!("Range: bytes={begin}-{}\r\n", begin + bytes - 1));
        assert_eq!(response.status, 206);
        let range = format!("bytes {begin}-{}/2000000", begin + bytes - 1);
        assert_eq!(response.field("content-range"), range);
        assert!(response.contents == all[begin..begin + bytes], "{range}");
    }
    let response = client.get("/a", "Range: bytes=-10\r\n");
    assert_eq!((response.status, response.contents.as_slice()), (206, &all[1_999_990..]));
    let response = client.get("/a", "Range: bytes=2000000-\r\n");
    assert_eq!((response.status, response.field("content-range")), (416, "bytes */2000000"));
}

#[test]
fn what_a_client_has_is_not_sent_again() {
    let site = Site::new(&[("a", b"some text")], &[]);
    let mut client = site.client();
    let first = client.get("/a", "");
    let (tag, modified) = (first.field("etag"), first.field("last-modified"));
    assert!(tag.starts_with('"'), "{tag}");
    for field in [format!("If-None-Match: {tag}"), format!("If-Modified-Since: {modified}")] {
        let response = client.get("/a", &format!("{field}\r\n"));
        assert_eq!((response.status, response.field("etag")), (304, tag), "{field}");
    }
    assert_eq!(client.get("/a", "If-Match: \"other\"\r\n").status, 412);
    let range = |field: &str| format!("Range: bytes=5-\r\nIf-Range: {field}\r\n");
    assert_eq!(client.get("/a", &range(tag)).contents, b"text");
    assert_eq!(client.get("/a", &range("\"other\"")).contents, b"some text");
    assert_eq!(site.server.totals().streams, 3);
}

#[test]
fn a_head_is_no_stream() {
    let all = contents(500_000);
    let site = Site::new(&[("a", &all)], &FAST);
    let mut client = site.client();
    for path in ["/a", "/none"] {
        client.send(&format!("HEAD {path} HTTP/1.1\r\nHost: here\r\n\r\n"));
        assert!(client.head().bytes() > 0);
    }
    assert_eq!(site.server.totals().streams, 0);
    // The next bytes are those of the next response.
    assert!(client.get("/a", "").contents == all);
}

#[test]
fn names_stay_in_the_folder() {
    let site = Site::new(&[("a", b"some text")], &[]);
    std::fs::create_dir(site.path("films")).unwrap();
    symlink("/etc/passwd", site.path("outside")).unwrap();
    assert_eq!(site.get("/../etc/passwd", "").status, 400);
    assert_eq!(site.get("/outside", "").status, 404);
    assert_eq!(site.get("/films/", "").status, 404);
    assert_eq!(site.get("/films", "").field("location"), "/films/");
    let mut client = site.client();
    client.send("DELETE /a HTTP/1.1\r\nHost: here\r\n\r\n");
    assert_eq!(client.response().status, 405);
}

#[test]
fn a_file_that_cannot_be_read_is_an_error() {
    // The speed of the loopback interface cannot be read: the kernel reports an invalid argument.
    let folder = std::fs::canonicalize("/sys/class/net/lo").unwrap();
    let site = Site::new(&[], &[]);
    let options = ["bywash-video", folder.to_str().unwrap(), "--listen", "127.0.0.1:0", "--calibration", "0"];
    let options = <bywash_example_video::Options as clap::Parser>::parse_from(options);
    let server = bywash_example_video::Server::start(options).unwrap();
    let mut client = bywash_example_http::testing::Client::connect(server.address());
    assert_eq!(client.get("/speed", "").status, 500);
    // The server goes on, and keeps nothing.
    assert_eq!(client.get("/none", "").status, 404);
    assert_eq!((server.memory().1, server.admitted().0), (0, 0));
    drop(site);
}
