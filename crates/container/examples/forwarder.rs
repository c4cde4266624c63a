//! Three processes in a row: the middle one ships messages on without mapping or copying a byte.
//!
//!     cargo run --release -p bywash-container --example forwarder [MESSAGES]

mod support;

use bywash_container::{Error, Options, Path, socket_pair};
use std::os::fd::AsFd;
use std::process::Stdio;
use std::time::Instant;
use support::{Result, argument, finish, inherited, start};

const LENGTH: usize = 4000;

/// Receives on standard input and ships on to standard output.
fn forwarder() -> Result<()> {
    // It ships only what it received, so it needs no arena.
    let options = Options::new().forward().arena_bytes(0);
    let from = inherited(&options)?;
    let to = Path::over(std::io::stdout().as_fd().try_clone_to_owned()?, &options)?;
    loop {
        match from.receive() {
            // Length and credentials are known without reading the contents.
            Ok(message) if message.len() == LENGTH && message.origin().uid == from.peer().uid => {
                to.ship_message(message)?;
            }
            Ok(other) => drop(other),
            Err(Error::Closed) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}

fn sink() -> Result<()> {
    let path = inherited(&Options::new())?;
    let (begin, mut messages) = (Instant::now(), 0u64);
    let mut copy = vec![0; LENGTH];
    loop {
        match path.receive() {
            Ok(message) => {
                assert_eq!(message.copy_to(&mut copy)?, LENGTH);
                assert!(copy.iter().all(|byte| *byte == messages as u8), "message {messages} is another one");
                messages += 1;
            }
            Err(Error::Closed) => break,
            Err(error) => return Err(error.into()),
        }
    }
    println!(
        "{messages} messages, {:.0} ns each",
        begin.elapsed().as_nanos() as f64 / messages.max(1) as f64
    );
    Ok(())
}

fn main() -> Result<()> {
    let messages = match argument(1_000_000) {
        Ok(messages) => messages,
        Err(role) if role == "sink" => return sink(),
        Err(_forwarder) => return forwarder(),
    };
    let (here, to_middle) = socket_pair()?;
    let (from_middle, to_sink) = socket_pair()?;
    let middle = start("forwarder", to_middle, Stdio::from(from_middle))?;
    let last = start("sink", to_sink, Stdio::inherit())?;
    let path = Path::over(here, &Options::new())?;
    for number in 0..messages {
        let mut container = path.alloc(LENGTH)?;
        container.fill(number as u8);
        path.ship(container)?;
    }
    // The sink receives every message in flight before it sees the end of the path.
    drop(path);
    finish(middle)?;
    finish(last)
}
