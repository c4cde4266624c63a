//! Measures the round trip of a message to another process and back.
//!
//!     cargo run --release -p bywash-container --example pingpong [ROUNDS]

mod support;

use bywash_container::{Error, Options, Path, socket_pair};
use std::process::Stdio;
use std::time::Instant;
use support::{Result, argument, finish, inherited, start};

/// Ships every message back unchanged.
fn pong(path: Path) -> Result<()> {
    loop {
        match path.receive() {
            Ok(message) => path.ship_message(message)?,
            Err(Error::Closed) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}

fn ping(path: Path, rounds: u64) -> Result<()> {
    let begin = Instant::now();
    for round in 0..rounds {
        let mut container = path.alloc(64)?;
        container[0] = round as u8;
        path.ship(container)?;
        path.receive()?;
    }
    println!("{rounds} rounds, {:.0} ns each", begin.elapsed().as_nanos() as f64 / rounds as f64);
    Ok(())
}

fn main() -> Result<()> {
    match argument(1_000_000) {
        Ok(rounds) => {
            let (here, there) = socket_pair()?;
            let child = start("pong", there, Stdio::inherit())?;
            let path = Path::over(here, &Options::new())?;
            ping(path, rounds)?;
            finish(child)
        }
        Err(_pong) => pong(inherited(&Options::new())?),
    }
}
