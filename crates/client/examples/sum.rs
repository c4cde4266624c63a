//! Adds up the bytes of the volume `log`, by a read that is prepared once: `cargo run -p bywash-client --example sum [SOCKET]`.

use bywash_client::{Access, Error, Options, Queue, TransferKind};

fn main() -> Result<(), Error> {
    println!("{}", sum(&std::env::args().nth(1).unwrap_or("/tmp/bywash.sock".into()))?);
    Ok(())
}

/// Returns the sum of the bytes of the volume `log`, whose size is a multiple of 4 KiB.
pub fn sum(socket: &str) -> Result<u64, Error> {
    let mut queue = Queue::connect(socket, Options::new())?;
    let volume = queue.open("log", Access::Read)?;
    let buffer = queue.alloc(4096)?;
    let read = queue.prepare(volume, TransferKind::Read, buffer).map_err(|refused| refused.error)?;
    let (mut bytes, mut sum) = ([0; 4096], 0);
    for number in 0..queue.len(volume)? / 4096 {
        queue.submit_transfer(read, number * 4096, number)?;
        queue.reap()?.outcome?;
        queue.transfer_buffer(read)?.read(0, &mut bytes);
        sum += bytes.iter().map(|byte| u64::from(*byte)).sum::<u64>();
    }
    Ok(sum)
}
