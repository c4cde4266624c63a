//! TCP connections of this machine with itself.

use super::SETTLE_TIMEOUT;
use std::io;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::Instant;

/// Returns both ends of a connection, with timeouts of [`TIMEOUT`] and without delay of small messages
/// (TCP_NODELAY).
///
/// # Errors
/// The error of a socket call, and `TimedOut` if only foreign connections arrive for [`TIMEOUT`].
pub fn pair() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let one = TcpStream::connect(listener.local_addr()?)?;
    let own = one.local_addr()?;
    let begin = Instant::now();
    // Any program of this machine may connect to the port, so only the expected peer is accepted.
    let other = loop {
        let (other, from) = listener.accept()?;
        if from == own {
            break other;
        }
        if begin.elapsed() > SETTLE_TIMEOUT {
            return Err(io::ErrorKind::TimedOut.into());
        }
    };
    for end in [&one, &other] {
        end.set_nodelay(true)?;
        end.set_read_timeout(Some(SETTLE_TIMEOUT))?;
        end.set_write_timeout(Some(SETTLE_TIMEOUT))?;
    }
    Ok((one, other))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    #[test]
    fn what_one_end_sends_the_other_gets() {
        let (mut one, mut other) = pair().unwrap();
        one.write_all(b"ask").unwrap();
        let mut got = [0; 3];
        other.read_exact(&mut got).unwrap();
        assert_eq!(&got, b"ask");
        drop(one);
        assert_eq!(other.read(&mut got).unwrap(), 0);
    }
}
