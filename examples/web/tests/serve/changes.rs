//! Files that change: nothing old is served for longer than was said, and no response mixes two versions.

use crate::{Site, contents, settle, wait_for};
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::time::Duration;

#[test]
fn a_change_is_noticed_at_the_next_request() {
    let site = Site::new(&[("a", b"one")], &["--check", "0"]);
    let mut client = site.client();
    let mut tags = vec![client.get("/a", "").field("etag").to_owned()];
    // Written in place, with the same length; and again without a pause, which times of files may not show.
    for text in ["two", "six", "ten"] {
        fs::write(site.path("a"), text).unwrap();
        assert_eq!(client.get("/a", "").contents, text.as_bytes());
    }
    settle();
    assert_eq!(client.get("/a", "").contents, b"ten");
    tags.push(client.get("/a", "").field("etag").to_owned());
    // Replaced by another file with the same length and the same time.
    let time = fs::metadata(site.path("a")).unwrap().modified().unwrap();
    fs::write(site.path("new"), "new").unwrap();
    File::options().write(true).open(site.path("new")).unwrap().set_modified(time).unwrap();
    settle();
    fs::rename(site.path("new"), site.path("a")).unwrap();
    settle();
    let response = client.get("/a", &format!("If-None-Match: {}\r\n", tags[1]));
    assert_eq!((response.status, response.contents.as_slice()), (200, b"new".as_slice()));
    tags.push(response.field("etag").to_owned());
    assert!(tags[0] != tags[1] && tags[1] != tags[2], "{tags:?}");
    fs::remove_file(site.path("a")).unwrap();
    assert_eq!(client.get("/a", "").status, 404);
}

#[test]
fn a_change_is_noticed_after_the_interval() {
    let site = Site::new(&[("a", b"one")], &["--check", "300ms"]);
    let mut client = site.client();
    assert_eq!(client.get("/a", "").contents, b"one");
    fs::write(site.path("a"), "two").unwrap();
    wait_for("the new contents", || client.get("/a", "").contents == b"two");
}

/// Returns the number of files named `name`, deleted or not, that this process has open.
fn open_files(name: &str) -> usize {
    let links =
        fs::read_dir("/proc/self/fd").unwrap().filter_map(|entry| fs::read_link(entry.unwrap().path()).ok());
    links.filter(|link| link.to_string_lossy().contains(name)).count()
}

#[test]
fn a_file_is_kept_open_only_while_it_is_asked_for() {
    let site = Site::new(&[("kept-open", b"one")], &["--check", "300ms"]);
    assert_eq!(site.get("/kept-open", "").contents, b"one");
    fs::remove_file(site.path("kept-open")).unwrap();
    // Nobody asks for it any more, and its room on the disk is free again.
    wait_for("the end of a file", || open_files("kept-open") == 0);
    for (name, open) in [("is-kept", "1"), ("not-kept", "0")] {
        let site = Site::new(&[(name, b"one")], &["--check", "1h", "--open", open]);
        assert_eq!(site.get(&format!("/{name}"), "").contents, b"one");
        assert_eq!(open_files(name).to_string(), open);
    }
}

#[test]
fn a_file_that_has_just_changed_is_not_kept() {
    let site = Site::new(&[("a", b"one")], &["--check", "10s"]);
    let mut client = site.client();
    fs::write(site.path("b"), "one").unwrap();
    let response = client.get("/b", "");
    assert_eq!((response.field("etag").starts_with("W/"), response.contents), (true, b"one".to_vec()));
    fs::write(site.path("b"), "two").unwrap();
    assert_eq!(client.get("/b", "").contents, b"two");
    settle();
    for _ in 0..2 {
        assert!(client.get("/b", "").field("etag").starts_with('"'));
    }
    assert_eq!(site.server.totals().hits, 1);
}

/// Begins to read a large file, has it changed, and reads on: the bytes that arrive are those from before the change,
/// and they are fewer than the head promised.
fn changed_while_it_is_sent(change: impl Fn(&File)) {
    let all = contents(64 << 20);
    let site = Site::new(&[("a", &all), ("b", b"other")], &[]);
    let mut client = site.client();
    client.send("GET /a HTTP/1.1\r\nHost: here\r\n\r\n");
    assert_eq!(client.head().bytes(), all.len());
    let mut read = vec![0; 1 << 20];
    client.0.read_exact(&mut read).unwrap();
    change(&File::options().write(true).open(site.path("a")).unwrap());
    // An error ends the reading as the end does.
    let _ = client.0.read_to_end(&mut read);
    assert!(read.len() < all.len(), "all {} bytes arrived", read.len());
    assert!(read == all[..read.len()], "wrong bytes arrived");
    assert_eq!(site.server.totals().broken, 1);
    assert_eq!(site.get("/b", "").contents, b"other");
    settle();
    std::thread::sleep(Duration::from_secs(1));
    let now = fs::read(site.path("a")).unwrap();
    assert!(site.get("/a", "").contents == now, "the new contents are not served");
}

#[test]
fn a_file_that_is_truncated_while_it_is_sent_breaks_the_connection() {
    changed_while_it_is_sent(|file| file.set_len(40 << 20).unwrap());
}

#[test]
fn a_file_that_is_written_while_it_is_sent_breaks_the_connection() {
    changed_while_it_is_sent(|file| file.write_all_at(b"others", 60 << 20).unwrap());
}
