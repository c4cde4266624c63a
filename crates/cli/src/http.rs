//! A small HTTP/1.1 server (RFC 9112) for a few paths: the planner's page, a server's metrics.
//!
//! Each connection has a thread, one request and one response, and is then closed. Only the request's first
//! line and its bearer token (RFC 6750) are used. The resources that a slow or hostile client can take are
//! bounded: number of connections, bytes of a request, time for a request and for its response. When the
//! number of connections reaches its limit, a new one closes the oldest, so that clients with half-open
//! connections lock nobody out.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::borrow::Cow;
use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Greatest time that [`turn`] waits for a connection.
const TURN: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
/// Greatest number of connections. Browsers open some in advance that they may not use.
const CONNECTIONS_MAX: usize = 32;
const REQUEST_BYTES_MAX: usize = 16 << 10;
/// Timeout for a whole request, and again for its response.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Content at a path.
pub struct Content {
    /// Media type, as in `text/html; charset=utf-8`.
    pub kind: &'static str,
    /// The bytes.
    pub bytes: Cow<'static, [u8]>,
}

/// Function that returns the content at a path, or a text about valid paths for any other path.
pub type Site = dyn Fn(&str) -> Result<Content, &'static str> + Send + Sync;

/// Listening socket of an HTTP server.
pub enum Listener {
    /// TCP listener at an address of the network.
    Tcp(TcpListener),
    /// Unix socket in the file system, whose mode decides who may connect.
    Unix(UnixListener),
}

/// A site with its access token and its open connections.
pub struct Service {
    site: Box<Site>,
    /// Token that a request must bear; `None` lets everybody read.
    token: Option<String>,
    connections: Mutex<Connections>,
}

/// Open connections with their numbers, oldest first.
#[derive(Default)]
struct Connections {
    next: u64,
    open: VecDeque<(u64, Stream)>,
}

/// A connection over TCP or a Unix socket.
enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Service {
    /// Makes a service for `site`. With a token, only requests that bear it are served.
    pub fn new(site: Box<Site>, token: Option<String>) -> Arc<Service> {
        Arc::new(Service { site, token, connections: Mutex::default() })
    }

    fn connections(&self) -> MutexGuard<'_, Connections> {
        // Each change is one step, so a thread that panicked has left a consistent state.
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Connections {
    /// Adds a connection and returns its number. At the limit, it shuts down the oldest connection, whose
    /// thread then ends.
    fn enter(&mut self, stream: Stream) -> u64 {
        if self.open.len() >= CONNECTIONS_MAX
            && let Some((_, oldest)) = self.open.pop_front()
        {
            // The oldest connection may be closed already.
            let _ = oldest.shutdown(Shutdown::Both);
        }
        self.next += 1;
        self.open.push_back((self.next, stream));
        self.next
    }

    fn leave(&mut self, number: u64) {
        self.open.retain(|(other, _)| *other != number);
    }
}

/// Waits at most [`TURN`] for a connection, and serves it in a thread of its own.
///
/// # Errors
/// The error of poll(2), if it fails.
pub fn turn(listener: &Listener, service: &Arc<Service>) -> io::Result<()> {
    match poll(&mut [PollFd::new(listener, PollFlags::IN)], Some(&TURN)) {
        Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(()),
        Ok(_) => {}
        Err(error) => return Err(error.into()),
    }
    let accepted = listener.accept().and_then(|stream| Ok((stream.try_clone()?, stream)));
    let (stream, kept) = match accepted {
        Ok(both) => both,
        // The client has gone meanwhile, or no descriptor is free for now; both pass.
        Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
        Err(_) => {
            thread::sleep(Duration::from_millis(50));
            return Ok(());
        }
    };
    let number = service.connections().enter(kept);
    let its = Arc::clone(service);
    let served = thread::Builder::new().spawn(move || {
        // An error of a connection affects this connection only.
        let _ = answer(stream, &its);
        its.connections().leave(number);
    });
    if served.is_err() {
        service.connections().leave(number);
    }
    Ok(())
}

fn answer(mut stream: Stream, service: &Service) -> io::Result<()> {
    stream.wait()?;
    let (status, content, is_head) = match request(&mut stream)? {
        Some(request) => {
            let (status, content) = chosen(&request, &*service.site, service.token.as_deref());
            (status, content, request.starts_with("HEAD "))
        }
        None => ("431 Request Header Fields Too Large", plain("too long\n"), false),
    };
    let more = match status {
        NOT_ALLOWED => "Allow: GET, HEAD\r\n",
        UNAUTHORIZED => "WWW-Authenticate: Bearer\r\n",
        _ => "",
    };
    let Content { kind, bytes } = content;
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n{more}\
         Content-Security-Policy: frame-ancestors 'none'\r\nX-Content-Type-Options: nosniff\r\n\
         Referrer-Policy: no-referrer\r\nCache-Control: no-cache\r\nConnection: close\r\n\r\n",
        bytes.len()
    );
    let deadline = Instant::now() + TIMEOUT;
    write_until(&mut stream, head.as_bytes(), deadline)?;
    if !is_head {
        write_until(&mut stream, &bytes, deadline)?;
    }
    stream.shutdown(Shutdown::Write)
}

const OK: &str = "200 OK";
const NOT_ALLOWED: &str = "405 Method Not Allowed";
const UNAUTHORIZED: &str = "401 Unauthorized";

fn plain(text: &'static str) -> Content {
    Content { kind: "text/plain; charset=utf-8", bytes: Cow::Borrowed(text.as_bytes()) }
}

/// Returns the status and content for a request.
fn chosen(request: &str, site: &Site, token: Option<&str>) -> (&'static str, Content) {
    let mut lines = request.split("\r\n");
    let words: Vec<&str> = lines.next().unwrap_or_default().split(' ').collect();
    let [method, target, version] = words[..] else { return ("400 Bad Request", plain("not a request\n")) };
    if !version.starts_with("HTTP/1.") {
        return ("505 HTTP Version Not Supported", plain("HTTP/1.1 is spoken here\n"));
    }
    if token.is_some_and(|token| !lines.any(|line| bears(line, token))) {
        return (UNAUTHORIZED, plain("give the token: Authorization: Bearer TOKEN\n"));
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

/// Returns true for a header line that bears the token (RFC 6750, section 2.1).
fn bears(line: &str, token: &str) -> bool {
    let Some((name, value)) = line.split_once(':') else { return false };
    let Some((scheme, given)) = value.trim().split_once(' ') else { return false };
    name.eq_ignore_ascii_case("authorization")
        && scheme.eq_ignore_ascii_case("bearer")
        && is_same(given.trim().as_bytes(), token.as_bytes())
}

/// Compares in a time that depends on the length only.
fn is_same(given: &[u8], token: &[u8]) -> bool {
    given.len() == token.len() && given.iter().zip(token).fold(0, |sum, (a, b)| sum | (a ^ b)) == 0
}

/// Reads a request up to the empty line and returns it; `None` if it is longer than [`REQUEST_BYTES_MAX`].
fn request(stream: &mut Stream) -> io::Result<Option<String>> {
    let deadline = Instant::now() + TIMEOUT;
    let mut read = Vec::new();
    let mut some = [0; 2048];
    while !read.windows(4).any(|four| four == b"\r\n\r\n") {
        if read.len() > REQUEST_BYTES_MAX {
            return Ok(None);
        }
        stream.set_timeouts(left(deadline)?)?;
        match stream.read(&mut some) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(count) => read.extend_from_slice(&some[..count]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(Some(String::from_utf8_lossy(&read).into_owned()))
}

fn write_until(stream: &mut Stream, mut bytes: &[u8], deadline: Instant) -> io::Result<()> {
    while !bytes.is_empty() {
        stream.set_timeouts(left(deadline)?)?;
        match stream.write(bytes) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
}

impl Listener {
    fn accept(&self) -> io::Result<Stream> {
        match self {
            Listener::Tcp(listener) => listener.accept().map(|(stream, _)| Stream::Tcp(stream)),
            Listener::Unix(listener) => listener.accept().map(|(stream, _)| Stream::Unix(stream)),
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Listener::Tcp(listener) => listener.as_fd(),
            Listener::Unix(listener) => listener.as_fd(),
        }
    }
}

impl Stream {
    fn try_clone(&self) -> io::Result<Stream> {
        match self {
            Stream::Tcp(stream) => stream.try_clone().map(Stream::Tcp),
            Stream::Unix(stream) => stream.try_clone().map(Stream::Unix),
        }
    }

    /// Makes the socket blocking, so that its timeouts apply.
    fn wait(&self) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => stream.set_nonblocking(false),
            Stream::Unix(stream) => stream.set_nonblocking(false),
        }
    }

    fn set_timeouts(&self, left: Duration) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => {
                stream.set_read_timeout(Some(left)).and_then(|()| stream.set_write_timeout(Some(left)))
            }
            Stream::Unix(stream) => {
                stream.set_read_timeout(Some(left)).and_then(|()| stream.set_write_timeout(Some(left)))
            }
        }
    }

    fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => stream.shutdown(how),
            Stream::Unix(stream) => stream.shutdown(how),
        }
    }
}

impl Read for Stream {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.read(to),
            Stream::Unix(stream) => stream.read(to),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.write(from),
            Stream::Unix(stream) => stream.write(from),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site(path: &str) -> Result<Content, &'static str> {
        if path == "/" { Ok(plain("page")) } else { Err("there is only /\n") }
    }

    #[test]
    fn only_what_is_there_is_served_and_only_to_be_read() {
        for (line, wanted) in [
            ("GET / HTTP/1.1", "200"),
            ("HEAD /?a=b HTTP/1.1", "200"),
            ("GET /../etc/passwd HTTP/1.1", "404"),
            ("POST / HTTP/1.1", "405"),
            ("GET / HTTP/2.0", "505"),
            ("GET /", "400"),
            ("", "400"),
        ] {
            let (status, content) = chosen(&format!("{line}\r\n\r\n"), &site, None);
            assert!(status.starts_with(wanted), "{line}: {status}");
            assert_eq!(&*content.bytes == b"page", wanted == "200", "{line}");
        }
    }

    #[test]
    fn a_token_is_borne_or_nothing_is_told() {
        for (line, wanted) in [
            ("Authorization: Bearer secret", "200"),
            ("authorization:  bearer  secret ", "200"),
            ("Authorization: Bearer secre", "401"),
            ("Authorization: Bearer secret2", "401"),
            ("Authorization: Basic secret", "401"),
            ("Authorization: secret", "401"),
            ("X-Authorization: Bearer secret", "401"),
            ("Authorization", "401"),
            ("Host: x", "401"),
        ] {
            for path in ["/", "/elsewhere"] {
                let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\n{line}\r\n\r\n");
                let (status, _) = chosen(&request, &site, Some("secret"));
                let wanted = if path != "/" && wanted == "200" { "404" } else { wanted };
                assert!(status.starts_with(wanted), "{line}: {status}");
            }
        }
    }

    /// Clients that hold connections without a complete request, eight times as many as the limit.
    #[test]
    fn half_sent_requests_keep_nobody_out() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        listener.set_nonblocking(true).unwrap();
        let (listener, service) = (Listener::Tcp(listener), Service::new(Box::new(site), None));
        let turns = |count: usize| (0..count).for_each(|_| turn(&listener, &service).unwrap());
        let mut held = Vec::new();
        for _ in 0..8 * CONNECTIONS_MAX {
            let mut slow = TcpStream::connect(address).unwrap();
            slow.write_all(b"GET / HTTP/1.1\r\nX: ").unwrap();
            held.push(slow);
            turns(1);
            assert!(service.connections().open.len() <= CONNECTIONS_MAX);
        }
        let began = Instant::now();
        let mut good = TcpStream::connect(address).unwrap();
        good.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        turns(1);
        let mut told = String::new();
        good.read_to_string(&mut told).unwrap();
        assert!(told.starts_with("HTTP/1.1 200 OK") && told.ends_with("page"), "{told}");
        assert!(began.elapsed() < TIMEOUT, "it waited for the others");
    }
}
