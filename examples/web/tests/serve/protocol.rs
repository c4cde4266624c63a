//! Requests and responses: methods, names, ranges, conditions.

use crate::{Site, contents, wait_for};
use std::fs;
use std::os::unix::fs::symlink;

#[test]
fn files_are_served_with_their_properties() {
    let page = b"<h1>page</h1>".as_slice();
    let site = Site::new(&[("a/index.html", page), ("a/b c.png", b"png"), ("empty.txt", b"")], &[]);
    let response = site.get("/a/", "");
    assert_eq!((response.status, response.contents.as_slice()), (200, page));
    assert_eq!(response.field("content-type"), "text/html; charset=utf-8");
    assert_eq!(response.field("accept-ranges"), "bytes");
    assert!(response.field("last-modified").ends_with(" GMT") && response.field("date").ends_with(" GMT"));
    let response = site.get("/a/b%20c.png?query", "");
    assert_eq!(
        (response.contents.as_slice(), response.field("content-type")),
        (b"png".as_slice(), "image/png")
    );
    let response = site.get("/empty.txt", "");
    assert_eq!((response.status, response.bytes()), (200, 0));
    let response = site.get("/a", "");
    assert_eq!((response.status, response.field("location")), (301, "/a/"));
    assert_eq!(site.get("//a", "").field("location"), "/a/");
}

#[test]
fn a_connection_has_many_requests() {
    let site = Site::new(&[("a.txt", b"some text")], &[]);
    let agent: ureq::Agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
    let address = format!("http://{}", site.server.address());
    for _ in 0..50 {
        let mut response = agent.get(format!("{address}/a.txt")).call().unwrap();
        assert_eq!(response.body_mut().read_to_string().unwrap(), "some text");
        let mut response = agent.get(format!("{address}/none")).call().unwrap();
        assert_eq!(response.status(), 404);
        assert!(response.body_mut().read_to_string().unwrap().contains("404 Not Found"));
        let response = agent.head(format!("{address}/a.txt")).call().unwrap();
        assert_eq!(response.headers()["content-length"], "9");
    }
    let totals = site.server.stop();
    assert_eq!((totals.connections, totals.requests, totals.errors), (1, 150, 50));
    assert_eq!((totals.misses, totals.hits), (1, 49));
}

#[test]
fn requests_may_follow_each_other_at_once() {
    let site = Site::new(&[("a", b"first"), ("b", b"second")], &[]);
    let mut client = site.client();
    client.send("GET /a HTTP/1.1\r\nHost: here\r\n\r\nGET /b HTTP/1.1\r\nHost: here\r\n\r\n");
    assert_eq!(client.response().contents, b"first");
    assert_eq!(client.response().contents, b"second");
}

#[test]
fn a_head_has_no_contents() {
    let site = Site::new(&[("a", &contents(300_000))], &[]);
    let mut client = site.client();
    for path in ["/a", "/none"] {
        client.send(&format!("HEAD {path} HTTP/1.1\r\nHost: here\r\n\r\n"));
        let head = client.head();
        assert!(head.bytes() > 0, "{head:?}");
    }
    // The next bytes are those of the next response.
    assert_eq!(client.get("/a", "").contents, contents(300_000));
}

#[test]
fn a_range_is_a_part() {
    let all = contents(500_000);
    let site = Site::new(&[("a", &all)], &["--part", "64K"]);
    let mut client = site.client();
    let parts = [(0, 1), (65_535, 2), (65_536, 65_536), (100, 400_000), (499_999, 1), (0, 500_000)];
    for (begin, bytes) in parts {
        let response = client.get("/a", &format!("Range: bytes={begin}-{}\r\n", begin + bytes - 1));
        assert_eq!(response.status, 206);
        let range = format!("bytes {begin}-{}/500000", begin + bytes - 1);
        assert_eq!(response.field("content-range"), range);
        assert!(response.contents == all[begin..begin + bytes], "{range}");
    }
    let response = client.get("/a", "Range: bytes=-10\r\n");
    assert_eq!((response.status, response.contents.as_slice()), (206, &all[499_990..]));
    let response = client.get("/a", "Range: bytes=500000-\r\n");
    assert_eq!((response.status, response.field("content-range")), (416, "bytes */500000"));
    assert_eq!(client.get("/a", "Range: bytes=0-1,4-5\r\n").status, 200);
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
    assert_eq!(client.get("/a", "If-None-Match: \"other\"\r\n").contents, b"some text");
    assert_eq!(client.get("/a", "If-Match: \"other\"\r\n").status, 412);
    let range = |field: &str| format!("Range: bytes=5-\r\nIf-Range: {field}\r\n");
    assert_eq!(client.get("/a", &range(tag)).contents, b"text");
    assert_eq!(client.get("/a", &range(modified)).contents, b"text");
    assert_eq!(client.get("/a", &range("\"other\"")).contents, b"some text");
}

#[test]
fn there_is_no_way_out_of_the_folder() {
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("secret"), "secret").unwrap();
    for options in [&[] as &[&str], &["--links"]] {
        let site = Site::new(&[("a", b"inside"), ("sub/b", b"b")], options);
        symlink("a", site.path("inside")).unwrap();
        symlink(outside.path().join("secret"), site.path("absolute")).unwrap();
        let levels = "../".repeat(30);
        symlink(format!("{levels}etc/passwd"), site.path("relative")).unwrap();
        symlink("/proc/self", site.path("magic")).unwrap();
        for path in ["/..", "/../../etc/passwd", "/sub/../a", "/%2e%2e/x", "/sub%2fb", "/a%00b", "/%ff"] {
            assert_eq!(site.get(path, "").status, 400, "{path}");
        }
        for path in ["/absolute", "/relative", "/magic/root/etc/passwd", "/magic/fd/0", "/a/b", "/none"] {
            assert_eq!(site.get(path, "").status, 404, "{path}");
        }
        let follows = site.get("/inside", "");
        assert_eq!(follows.status, if options.is_empty() { 404 } else { 200 });
        assert_eq!(site.get("/sub//./b", "").contents, b"b");
    }
}

#[test]
fn other_requests_are_refused() {
    let site = Site::new(&[("a", b"some text")], &[]);
    let mut client = site.client();
    client.send("DELETE /a HTTP/1.1\r\nHost: here\r\n\r\n");
    let response = client.response();
    assert_eq!((response.status, response.field("allow")), (405, "GET, HEAD"));
    client.send("GET /a HTTP/1.1\r\n\r\n");
    assert_eq!(client.response().status, 400);
    assert_eq!(site.get(&format!("/{}", "x".repeat(300)), "").status, 404);
    let mut client = site.client();
    client.send("nonsense\r\n\r\n");
    assert_eq!(client.response().status, 400);
    assert!(client.is_ended());
    client = site.client();
    client.send("GET /a HTTP/1.0\r\n\r\n");
    let mut text = String::new();
    std::io::Read::read_to_string(&mut client.0, &mut text).unwrap();
    assert!(text.starts_with("HTTP/1.0 200 OK") && text.ends_with("some text"), "{text}");
}

#[test]
fn each_thread_has_clients() {
    let site = Site::new(&[("a", b"some text")], &["--threads", "2"]);
    let mut clients: Vec<_> = (0..64).map(|_| site.client()).collect();
    for client in &mut clients {
        assert_eq!(client.get("/a", "").contents, b"some text");
    }
    wait_for("all counts", || site.server.totals().requests == 64);
    let threads = site.server.totals_by_thread();
    assert!(threads.len() == 2 && threads.iter().all(|totals| totals.connections > 0), "{threads:?}");
}
