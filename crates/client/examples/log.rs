//! Writes to the volume `log` and reads it back: `cargo run -p bywash-client --example log [SOCKET]`.

use bywash_client::{Access, Client, Error, Options};

fn main() -> Result<(), Error> {
    use_log(&std::env::args().nth(1).unwrap_or("/tmp/bywash.sock".into()))
}

/// Over a server that has a volume `log`, of 32 KiB at least.
pub fn use_log(socket: &str) -> Result<(), Error> {
    let client = Client::connect(socket, Options::new())?;
    let log = client.open("log", Access::ReadWrite)?;
    println!("{}", log.path()); // mapped, or by the channel and why
    log.write_at(&[7; 4096], 8192)?;
    log.flush()?;

    // Many at a time, over a connection of its own.
    let mut queue = client.queue()?;
    let log = queue.open("log", Access::Read)?;
    for number in 0..8 {
        queue.read(log, number * 4096, vec![0; 4096], number)?;
    }
    while queue.in_flight() > 0 {
        let done = queue.reap()?;
        done.outcome?;
        println!("{}: {} bytes", done.user_data, done.memory.map_or(0, |memory| memory.len()));
    }
    Ok(())
}
