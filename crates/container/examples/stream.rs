//! Moves a gibibyte to another process in containers of 64 KiB. One process fills every container, the other
//! sums it, and nothing is copied on the way.
//!
//!     cargo run --release -p bywash-container --example stream [MIB]

mod support;

use bywash_container::{Error, Options, Path, socket_pair};
use std::process::Stdio;
use std::time::Instant;
use support::{Result, argument, finish, inherited, start};

const PIECE: usize = 64 << 10;

fn options() -> Options {
    // SAFETY: both ends are this program, which does not write to what it has shipped.
    unsafe { Options::new().trusted() }
}

fn sum(bytes: &[u8]) -> u64 {
    bytes.as_chunks::<8>().0.iter().fold(0, |sum: u64, word| sum.wrapping_add(u64::from_le_bytes(*word)))
}

fn source(path: Path, pieces: u64) -> Result<()> {
    let begin = Instant::now();
    let mut sent = 0u64;
    for number in 0..pieces {
        let mut container = path.alloc(PIECE)?;
        for word in container.as_chunks_mut::<8>().0 {
            *word = number.to_le_bytes();
        }
        sent = sent.wrapping_add(number.wrapping_mul(PIECE as u64 / 8));
        path.ship(container)?;
    }
    // An empty message marks the end.
    path.ship(path.alloc(0)?)?;
    let answer = path.receive()?.to_vec()?;
    let seconds = begin.elapsed().as_secs_f64();
    assert_eq!(answer, sent.to_le_bytes(), "the other process summed something else");
    let mib = pieces as f64 * PIECE as f64 / f64::from(1 << 20);
    println!("{mib:.0} MiB in {seconds:.3} s, {:.1} GiB/s", mib / 1024.0 / seconds);
    Ok(())
}

fn sink(path: Path) -> Result<()> {
    let mut found = 0u64;
    loop {
        let message = path.receive()?;
        if message.is_empty() {
            break;
        }
        found = found.wrapping_add(sum(&message.first().map()?));
    }
    let mut answer = path.alloc(8)?;
    answer.copy_from_slice(&found.to_le_bytes());
    path.ship(answer)?;
    // Keeps the path open until the source has received the sum.
    match path.receive() {
        Err(Error::Closed) => Ok(()),
        other => other.map(drop).map_err(Into::into),
    }
}

fn main() -> Result<()> {
    match argument(1024) {
        Ok(mib) => {
            let (here, there) = socket_pair()?;
            let child = start("sink", there, Stdio::inherit())?;
            let path = Path::over(here, &options())?;
            source(path, mib * (1 << 20) / PIECE as u64)?;
            finish(child)
        }
        Err(_sink) => sink(inherited(&options())?),
    }
}
