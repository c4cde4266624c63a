//! Serves memory to NBD clients until standard input ends: `cargo run --example memory -- SOCKET BYTES`.

use bywash_device::{Memory, MemoryOptions};
use bywash_nbd::{Disk, Event, Export, Options};
use std::os::unix::net::UnixListener;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (socket, bytes) = (arguments.next(), arguments.next());
    let (Some(socket), Some(bytes)) = (socket, bytes) else {
        return Err("give the path of a socket that does not exist, and a size in bytes".into());
    };
    let memory = Memory::new(MemoryOptions::new(bytes.parse()?))?;
    let listener = UnixListener::bind(&socket)?;
    let report = |event: Event| eprintln!("{event:?}");
    let export = Export::start(listener, vec![Disk::new("memory", memory)], Options::new(), report)?;
    println!("nbd+unix:///memory?socket={socket}");
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink())?;
    drop(export);
    std::fs::remove_file(socket)?;
    Ok(())
}
