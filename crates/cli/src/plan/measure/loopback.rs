//! TCP connections of this machine with itself.

use super::{KIB, SETTLE_TIMEOUT};
use std::io::{self, Read};
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

/// Receives until the other end closes the connection, and throws the bytes away. Returns their number.
///
/// # Errors
/// The error of a read.
pub fn drain(mut receiver: TcpStream) -> io::Result<u64> {
    let (mut block, mut bytes) = (vec![0; READ_BYTES], 0);
    loop {
        match receiver.read(&mut block)? {
            0 => return Ok(bytes),
            some => bytes += some as u64,
        }
    }
}

/// Size of a read that throws bytes away.
const READ_BYTES: usize = 64 * KIB;

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn what_one_end_sends_the_other_gets() {
        let (mut one, mut other) = pair().unwrap();
        one.write_all(b"ask").unwrap();
        let mut got = [0; 3];
        other.read_exact(&mut got).unwrap();
        assert_eq!(&got, b"ask");
        one.write_all(b"the rest").unwrap();
        drop(one);
        assert_eq!(drain(other).unwrap(), 8);
    }
}
