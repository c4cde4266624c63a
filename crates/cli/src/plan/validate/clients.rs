//! HTTP clients of a server on this machine, on as many connections as they are: one thread polls all of them.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// Bytes of contents, and responses, that all clients together received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Received {
    pub bytes: u64,
    pub responses: u64,
}

/// Connection of a client, which has one request at a time.
struct Connection {
    socket: TcpStream,
    /// Head of the response, as far as it has arrived; `None` behind its end.
    head: Option<Vec<u8>>,
    /// Bytes of contents that are still to come.
    left: u64,
}

/// Has `count` clients make requests until `end`, and until `least_bytes` bytes of contents have arrived: each first the
/// request that `next` returns for its number, and the next one when the response has arrived. A client for which there is
/// none has ended. `is_stopped` is asked all the time.
///
/// # Errors
/// The error of a socket; `InvalidData` with the first line of a response that has not the contents that were asked for;
/// `Interrupted` if `is_stopped`; `TimedOut` if nothing arrives for [`SILENCE`].
pub fn receive(
    address: SocketAddr,
    count: usize,
    end: Instant,
    least_bytes: u64,
    mut next: impl FnMut(usize) -> Option<String>,
    is_stopped: &dyn Fn() -> bool,
) -> io::Result<Received> {
    let mut received = Received::default();
    let mut connections = Vec::with_capacity(count);
    for number in 0..count {
        let mut connection = Connection::new(address)?;
        let begun = next(number).map(|request| connection.begin(&request)).transpose()?;
        connections.push(begun.map(|()| connection));
    }
    let mut buffer = vec![0; BUFFER];
    let mut heard = Instant::now();
    loop {
        let now = Instant::now();
        let is_enough = now >= end && received.bytes >= least_bytes;
        if is_enough || connections.iter().all(Option::is_none) {
            return Ok(received);
        }
        if is_stopped() {
            return Err(ErrorKind::Interrupted.into());
        }
        if now.duration_since(heard) > SILENCE {
            return Err(io::Error::new(ErrorKind::TimedOut, "the server does not answer"));
        }
        let left = Some(end.saturating_duration_since(now)).filter(|left| !left.is_zero());
        let ready = ready(&connections, left.unwrap_or(LOOK).min(LOOK))?;
        if ready.is_empty() {
            continue;
        }
        heard = now;
        for number in ready {
            let Some(connection) = &mut connections[number] else { continue };
            received.bytes += connection.read(&mut buffer)?;
            if connection.has_ended() {
                received.responses += 1;
                match next(number) {
                    Some(request) => connection.begin(&request)?,
                    None => connections[number] = None,
                }
            }
        }
    }
}

/// Returns the numbers of the connections that can be read, after at most `time`.
fn ready(connections: &[Option<Connection>], time: Duration) -> io::Result<Vec<usize>> {
    let numbers = (0..connections.len()).filter(|number| connections[*number].is_some());
    let numbers: Vec<usize> = numbers.collect();
    let sockets = connections.iter().flatten().map(|connection| &connection.socket);
    let mut polled: Vec<_> = sockets.map(|socket| PollFd::new(socket, PollFlags::IN)).collect();
    let time = Timespec::try_from(time).map_err(io::Error::other)?;
    match poll(&mut polled, Some(&time)) {
        Ok(_) => {}
        Err(rustix::io::Errno::INTR) => return Ok(Vec::new()),
        Err(error) => return Err(error.into()),
    }
    let ready = numbers.into_iter().zip(&polled).filter(|(_, polled)| !polled.revents().is_empty());
    Ok(ready.map(|(number, _)| number).collect())
}

impl Connection {
    fn new(address: SocketAddr) -> io::Result<Connection> {
        let socket = TcpStream::connect(address)?;
        socket.set_nodelay(true)?;
        socket.set_nonblocking(true)?;
        Ok(Connection { socket, head: None, left: 0 })
    }

    /// Sends a request, which is smaller than any socket's buffer.
    fn begin(&mut self, request: &str) -> io::Result<()> {
        self.head = Some(Vec::new());
        self.socket.write_all(request.as_bytes())
    }

    fn has_ended(&self) -> bool {
        self.head.is_none() && self.left == 0
    }

    /// Reads what has arrived, at most the size of `buffer`. Returns the bytes of contents in it.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<u64> {
        let bytes = match self.socket.read(buffer) {
            Ok(0) => return Err(io::Error::new(ErrorKind::UnexpectedEof, "the server ended the connection")),
            Ok(bytes) => bytes,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                return Ok(0);
            }
            Err(error) => return Err(error),
        };
        let mut contents = bytes as u64;
        if let Some(mut head) = self.head.take() {
            let before = head.len();
            head.extend_from_slice(&buffer[..bytes]);
            let Some(end) = head.windows(4).position(|end| end == b"\r\n\r\n").map(|end| end + 4) else {
                self.head = Some(head);
                return Ok(0);
            };
            self.left = contents_bytes(&head[..end])?;
            contents = (before + bytes - end) as u64;
        }
        let left = self.left.checked_sub(contents);
        self.left =
            left.ok_or_else(|| io::Error::new(ErrorKind::InvalidData, "more than the contents arrived"))?;
        Ok(contents)
    }
}

/// Returns the number of bytes of contents behind a head with a status of success.
fn contents_bytes(head: &[u8]) -> io::Result<u64> {
    let head = String::from_utf8_lossy(head);
    let mut lines = head.lines();
    let status = lines.next().unwrap_or_default();
    let length = lines.find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
    });
    match length {
        Some(bytes) if status.starts_with("HTTP/1.1 20") => Ok(bytes),
        _ => Err(io::Error::new(ErrorKind::InvalidData, format!("the server answered: {status}"))),
    }
}

/// Size of a read, in bytes.
const BUFFER: usize = 256 << 10;
/// Time between two questions whether to stop.
const LOOK: Duration = Duration::from_millis(100);
/// Time after which a server that sends nothing is taken for dead.
pub const SILENCE: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::thread::JoinHandle;

    /// Starts a server that reads a request on one connection, and then sends `response`, in two pieces.
    fn server(response: String) -> (SocketAddr, JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            let (mut socket, _) = listener.accept().unwrap();
            socket.read_exact(&mut [0; 4]).unwrap();
            let (one, other) = response.split_at(response.len() / 2);
            for part in [one, other] {
                // The client may have gone.
                let _ = socket.write_all(part.as_bytes());
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        (address, server)
    }

    fn one(response: &str, is_stopped: bool) -> io::Result<Received> {
        let (address, server) = server(response.to_owned());
        let mut requests = vec!["GET ".to_owned()];
        let end = Instant::now() + SILENCE;
        let received = receive(address, 1, end, 1, |_| requests.pop(), &|| is_stopped);
        server.join().unwrap();
        received
    }

    #[test]
    fn contents_are_counted_wherever_a_response_is_cut() {
        let received = one(
            "HTTP/1.1 200 OK\r\nDate: now\r\ncontent-length: 40\r\n\r\n0123456789012345678901234567890123456789",
            false,
        );
        assert_eq!(received.unwrap(), Received { bytes: 40, responses: 1 });
        assert_eq!(one("HTTP/1.1 206 OK\r\nContent-Length:0\r\n\r\n", false).unwrap().responses, 1);
    }

    #[test]
    fn what_was_not_asked_for_is_an_error() {
        let error = |response| one(response, false).unwrap_err().to_string();
        let refused = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n";
        assert_eq!(error(refused), "the server answered: HTTP/1.1 503 Service Unavailable");
        assert_eq!(error("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n12"), "more than the contents arrived");
        assert_eq!(error("HTTP/1.1 200 OK\r\n"), "the server ended the connection");
        assert_eq!(one(refused, true).unwrap_err().kind(), ErrorKind::Interrupted);
    }
}
