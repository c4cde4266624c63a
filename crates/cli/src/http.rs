//! What can be read at a few paths, over HTTP/1.1 (RFC 9112): the planner's page, a server's metrics.
//!
//! Each connection has a thread, one request and an answer, and is closed. Nothing of a request is used but its first
//! line. What a slow or hostile program can take is bounded: so many connections at a time, so many bytes of a request, so
//! long for it.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::borrow::Cow;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// So long a turn waits for a connection.
const TURN: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
/// Browsers open some connections ahead that they may not use.
const CONNECTIONS_MAX: usize = 32;
const REQUEST_BYTES_MAX: usize = 16 << 10;
/// For a whole request, and for the answer.
const PATIENCE: Duration = Duration::from_secs(5);

static CONNECTIONS: AtomicUsize = AtomicUsize::new(0);

/// What is at a path.
pub struct Content {
    /// Its type, as in `text/html; charset=utf-8`.
    pub kind: &'static str,
    /// It.
    pub bytes: Cow<'static, [u8]>,
}

/// What is to be had: answers what is at a path, or where something is, for those who asked elsewhere.
pub type Site = dyn Fn(&str) -> Result<Content, &'static str> + Send + Sync;

/// Waits some time for a connection, and answers it with what `site` has.
///
/// # Errors
/// That nobody can be listened for any more.
pub fn turn(listener: &TcpListener, site: &Arc<Site>) -> io::Result<()> {
    match poll(&mut [PollFd::new(listener, PollFlags::IN)], Some(&TURN)) {
        Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(()),
        Ok(_) => {}
        Err(error) => return Err(error.into()),
    }
    let stream = match listener.accept() {
        Ok((stream, _)) => stream,
        // Who has gone meanwhile, and no descriptor left for now: both pass.
        Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
        Err(_) => {
            thread::sleep(Duration::from_millis(50));
            return Ok(());
        }
    };
    if CONNECTIONS.fetch_add(1, Ordering::Relaxed) >= CONNECTIONS_MAX {
        CONNECTIONS.fetch_sub(1, Ordering::Relaxed);
        return Ok(());
    }
    let site = Arc::clone(site);
    let served = thread::Builder::new().spawn(move || {
        // What goes wrong with a connection is that connection's.
        let _ = answer(stream, &*site);
        CONNECTIONS.fetch_sub(1, Ordering::Relaxed);
    });
    if served.is_err() {
        CONNECTIONS.fetch_sub(1, Ordering::Relaxed);
    }
    Ok(())
}

fn answer(mut stream: TcpStream, site: &Site) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let (status, content, is_head) = match request(&mut stream)? {
        Some(line) => {
            let (status, content) = chosen(&line, site);
            (status, content, line.starts_with("HEAD "))
        }
        None => ("431 Request Header Fields Too Large", plain("too long\n"), false),
    };
    let allow = if status == NOT_ALLOWED { "Allow: GET, HEAD\r\n" } else { "" };
    let Content { kind, bytes } = content;
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n{allow}\
         Content-Security-Policy: frame-ancestors 'none'\r\nX-Content-Type-Options: nosniff\r\n\
         Referrer-Policy: no-referrer\r\nCache-Control: no-cache\r\nConnection: close\r\n\r\n",
        bytes.len()
    );
    stream.write_all(head.as_bytes())?;
    if !is_head {
        stream.write_all(&bytes)?;
    }
    stream.shutdown(Shutdown::Write)
}

const OK: &str = "200 OK";
const NOT_ALLOWED: &str = "405 Method Not Allowed";

fn plain(text: &'static str) -> Content {
    Content { kind: "text/plain; charset=utf-8", bytes: Cow::Borrowed(text.as_bytes()) }
}

/// What a request's first line is answered.
fn chosen(line: &str, site: &Site) -> (&'static str, Content) {
    let words: Vec<&str> = line.split(' ').collect();
    let [method, target, version] = words[..] else { return ("400 Bad Request", plain("not a request\n")) };
    if !version.starts_with("HTTP/1.") {
        return ("505 HTTP Version Not Supported", plain("HTTP/1.1 is spoken here\n"));
    }
    let path = target.split('?').next().unwrap_or(target);
    match method {
        "GET" | "HEAD" => match site(path) {
            Ok(content) => (OK, content),
            Err(elsewhere) => ("404 Not Found", plain(elsewhere)),
        },
        _ => (NOT_ALLOWED, plain("this can only be read\n")),
    }
}

/// Reads a request; answers its first line, or none if it is too long.
fn request(stream: &mut TcpStream) -> io::Result<Option<String>> {
    let deadline = Instant::now() + PATIENCE;
    let mut read = Vec::new();
    let mut some = [0; 2048];
    while !read.windows(4).any(|four| four == b"\r\n\r\n") {
        if read.len() > REQUEST_BYTES_MAX {
            return Ok(None);
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut some) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(count) => read.extend_from_slice(&some[..count]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    let line = read.split(|byte| *byte == b'\r').next().unwrap_or_default();
    Ok(Some(String::from_utf8_lossy(line).into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_there_is_served_and_only_to_be_read() {
        let site = |path: &str| if path == "/" { Ok(plain("page")) } else { Err("there is only /\n") };
        for (line, wanted) in [
            ("GET / HTTP/1.1", "200"),
            ("HEAD /?a=b HTTP/1.1", "200"),
            ("GET /../etc/passwd HTTP/1.1", "404"),
            ("POST / HTTP/1.1", "405"),
            ("GET / HTTP/2.0", "505"),
            ("GET /", "400"),
            ("", "400"),
        ] {
            let (status, content) = chosen(line, &site);
            assert!(status.starts_with(wanted), "{line}: {status}");
            assert_eq!(&*content.bytes == b"page", wanted == "200", "{line}");
        }
    }
}
