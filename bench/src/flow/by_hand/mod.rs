//! Movers as one writes them by hand: what flows are compared with besides programs.
//!
//! Each is the straight loop that a programmer who knows the kernel would write for this one pair of ends. They run in
//! processes of their own (`bywash bench flow-peer`), as the flows do, but for [`read_write`], which is also called in
//! this one.

mod tcp;
mod udp;

use crate::error::Error;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::path::Path;

/// The buffer, the pipe, and the most that one call moves, of streams.
pub const MIB: usize = 1 << 20;

/// A hand-written part, by its name on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// A file to who listens: read(2) and write(2).
    SendReadWrite,
    /// A file to who listens: sendfile(2).
    SendSendfile,
    /// Who connects to a file: read(2) and write(2).
    ReceiveReadWrite,
    /// Who connects to a file: splice(2) through a pipe.
    ReceiveSplice,
    /// Who connects to who listens: splice(2) through a pipe, one way.
    ForwardSplice,
    /// A file as datagrams: read(2) and send(2).
    SendDatagrams,
    /// Datagrams to a file: recv(2) and write(2). Says how many bytes came, and for how long it waited in vain.
    ReceiveDatagrams,
    /// Datagrams from here to there: recv(2) and send(2).
    ForwardDatagrams,
}

const NAMES: [(&str, Part); 8] = [
    ("send-read-write", Part::SendReadWrite),
    ("send-sendfile", Part::SendSendfile),
    ("receive-read-write", Part::ReceiveReadWrite),
    ("receive-splice", Part::ReceiveSplice),
    ("forward-splice", Part::ForwardSplice),
    ("send-datagrams", Part::SendDatagrams),
    ("receive-datagrams", Part::ReceiveDatagrams),
    ("forward-datagrams", Part::ForwardDatagrams),
];

impl Part {
    /// Its name.
    pub fn name(self) -> &'static str {
        NAMES.iter().find(|known| known.1 == self).map_or("?", |known| known.0)
    }

    /// The part of that name.
    pub fn parse(name: &str) -> Option<Part> {
        NAMES.iter().find(|known| known.0 == name).map(|known| known.1)
    }

    /// Does its work between `from` and `to`, which are files or addresses; datagrams are sent with `block` bytes.
    ///
    /// # Errors
    /// What failed.
    pub fn run(self, from: &str, to: &str, block: usize) -> Result<(), Error> {
        self.moves(from, to, block).map_err(|error| Error::io(self.name(), Path::new(from), error))
    }

    fn moves(self, from: &str, to: &str, block: usize) -> io::Result<()> {
        match self {
            Part::SendReadWrite => tcp::send(from, address(to)?),
            Part::SendSendfile => tcp::send_pages(from, address(to)?),
            Part::ReceiveReadWrite => tcp::receive(address(from)?, to),
            Part::ReceiveSplice => tcp::receive_pages(address(from)?, to),
            Part::ForwardSplice => tcp::forward(address(from)?, address(to)?),
            Part::SendDatagrams => udp::send(from, address(to)?, block),
            Part::ReceiveDatagrams => {
                let (bytes, silence) = udp::receive(address(from)?, to)?;
                writeln!(io::stdout(), "{bytes} {}", silence.as_secs_f64())
            }
            Part::ForwardDatagrams => udp::forward(address(from)?, address(to)?),
        }
    }
}

fn address(text: &str) -> io::Result<SocketAddr> {
    text.parse().map_err(|_| io::Error::other(format!("'{text}' is no address with a port")))
}

/// Reads and writes blocks of `block` bytes to the end; answers the bytes.
///
/// # Errors
/// The kernel's.
pub fn read_write(from: &mut impl Read, to: &mut impl Write, block: usize) -> io::Result<u64> {
    let mut buffer = vec![0; block];
    let mut moved = 0;
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return Ok(moved),
            Ok(length) => {
                to.write_all(&buffer[..length])?;
                moved += length as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_any_size_move_everything() {
        let content: Vec<u8> = (0..10_000).map(|at| at as u8).collect();
        for block in [1, 1000, MIB] {
            let mut moved = Vec::new();
            assert_eq!(read_write(&mut content.as_slice(), &mut moved, block).unwrap(), 10_000);
            assert_eq!(moved, content);
        }
    }

    #[test]
    fn every_part_has_a_name() {
        for (name, part) in NAMES {
            assert_eq!((Part::parse(name), part.name()), (Some(part), name));
        }
        assert_eq!(Part::parse("send"), None);
    }
}
