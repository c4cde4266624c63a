//! Files that change while they are sent: the connection is broken off, and no response mixes two versions.

use crate::{Site, contents, settle};
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::FileExt;

/// Begins to read a stream, changes the file, and reads on: the bytes that arrive are those from before the change, and
/// they are fewer than the head promised.
fn changed_while_it_is_sent(change: impl Fn(&Site)) {
    let all = contents(4 << 20);
    // 262 ms a chunk.
    let site = Site::new(&[("a", &all)], &["--rate", "8Mbit", "--period", "100ms"]);
    settle();
    let mut client = site.begin("/a", "");
    assert_eq!(client.head().bytes(), all.len());
    let mut read = vec![0; 300_000];
    client.0.read_exact(&mut read).unwrap();
    change(&site);
    // An error ends the reading as the end does.
    let _ = client.0.read_to_end(&mut read);
    assert!(read.len() < all.len(), "all {} bytes arrived", read.len());
    assert!(read == all[..read.len()], "wrong bytes arrived");
    site.wait_for_the_end();
    assert_eq!(site.server.totals().broken, 1);
    // The new version is served.
    let now = fs::read(site.path("a")).unwrap();
    let response = site.get("/a", "Range: bytes=0-99999\r\n");
    assert!(response.contents == now[..100_000]);
}

#[test]
fn a_file_that_is_truncated_breaks_the_stream() {
    changed_while_it_is_sent(|site| {
        File::options().write(true).open(site.path("a")).unwrap().set_len(3 << 20).unwrap();
    });
}

#[test]
fn a_file_that_is_written_breaks_the_stream() {
    changed_while_it_is_sent(|site| {
        File::options().write(true).open(site.path("a")).unwrap().write_all_at(b"others", 3 << 20).unwrap();
    });
}

#[test]
fn a_file_that_is_replaced_breaks_the_stream() {
    changed_while_it_is_sent(|site| {
        fs::write(site.path("new"), vec![7; 4 << 20]).unwrap();
        fs::rename(site.path("new"), site.path("a")).unwrap();
    });
}

#[test]
fn a_file_that_has_just_changed_is_waited_for() {
    let site = Site::new(&[("a", b"one")], &[]);
    for text in ["two", "six", "ten"] {
        fs::write(site.path("a"), text).unwrap();
        let response = site.get("/a", "");
        assert_eq!(response.contents, text.as_bytes());
        assert!(response.field("etag").starts_with('"'), "{}", response.field("etag"));
    }
}
