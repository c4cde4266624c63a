//! Benchmark of the client's cost per request, in ns, on both paths to a `mem:` device.
//!
//!     cargo bench -p bywash-client [-- --quick]
//!
//! The server runs in a thread of the same program. With fewer than two free cores the server and its client
//! take turns, and the figures of the channel say little. Each figure is the median, with the quartiles, of
//! rounds that each run every case. The case *copy* only copies as many bytes to memory of the volume's size.

use bywash_client::{Access, Client, NewVolume, Options, PathChoice, Queue, VolumeId, Wait};
use bywash_server::Server;
use std::error::Error;
use std::hint::black_box;
use std::time::{Duration, Instant};

const VOLUME: u64 = 8 << 20;
/// Number of requests submitted before they are reaped.
const BATCH: u64 = 32;

type Outcome = Result<(), Box<dyn Error>>;
/// Name of a case, and a function that carries out a number of requests of a number of bytes each.
type Case<'a> = (&'a str, Box<dyn FnMut(u64, usize) -> Outcome + 'a>);

/// Returns the offset of a request, so that successive requests go to successive blocks, around the volume.
fn offset(number: u64, bytes: usize) -> u64 {
    number * bytes as u64 % VOLUME
}

/// Submits requests in batches of [`BATCH`], and reaps each batch before the next.
fn batches(queue: &mut Queue, count: u64, mut submit: impl FnMut(&mut Queue, u64) -> Outcome) -> Outcome {
    for first in (0..count).step_by(BATCH as usize) {
        for number in first..count.min(first + BATCH) {
            submit(queue, number)?;
        }
        while queue.in_flight() > 0 {
            queue.reap()?.outcome?;
        }
    }
    Ok(())
}

/// Keeps up to [`BATCH`] writes in flight, whose buffers of the arena are reused.
fn streamed(queue: &mut Queue, volume: VolumeId, count: u64, bytes: usize) -> Outcome {
    let mut spare = Vec::new();
    for _ in 0..BATCH {
        spare.push(queue.alloc(bytes)?);
    }
    let mut submitted = 0;
    while submitted < count || queue.in_flight() > 0 {
        while submitted < count
            && let Some(buffer) = spare.pop()
        {
            queue.write(volume, offset(submitted, bytes), buffer, false, submitted)?;
            submitted += 1;
        }
        let done = queue.reap()?;
        done.outcome?;
        if let Some(bywash_client::RequestMemory::Arena(buffer)) = done.memory {
            spare.push(buffer);
        }
    }
    Ok(())
}

fn main() -> Outcome {
    let is_quick = std::env::args().any(|argument| argument == "--quick");
    let (rounds, requests) = if is_quick { (3, 2_000) } else { (15, 20_000) };
    let folder = tempfile::tempdir()?;
    let socket = folder.path().join("socket");
    let options = bywash_server::Options::new(&socket).device("memory=mem:64M".parse()?);
    let server = Server::start(options)?;
    let options = |choice| Options::new().choice(choice).wait(Wait::Adaptive).limit(Duration::from_secs(30));
    let client = Client::connect(&socket, options(PathChoice::Mapped))?;
    client.create(NewVolume::new("volume", "memory", VOLUME))?;
    let mapped = client.open("volume", Access::ReadWrite)?;
    let by_channel = Client::connect(&socket, options(PathChoice::Channel))?;
    let channel = by_channel.open("volume", Access::ReadWrite)?;
    let open = |choice| -> Result<(Queue, VolumeId), Box<dyn Error>> {
        let mut queue = Queue::connect(&socket, options(choice))?;
        let volume = queue.open("volume", Access::ReadWrite)?;
        Ok((queue, volume))
    };
    let (mut mapped_queue, mapped_id) = open(PathChoice::Mapped)?;
    let (mut reading_queue, reading_id) = open(PathChoice::Mapped)?;
    let (mut one_queue, one_id) = open(PathChoice::Channel)?;
    let (mut channel_queue, channel_id) = open(PathChoice::Channel)?;
    let (mut buffer_queue, buffer_id) = open(PathChoice::Channel)?;
    let (from, mut to) = (vec![7u8; 4096], vec![0u8; 4096]);
    let mut memory = vec![1u8; VOLUME as usize];
    let mut room = vec![0u8; 4096];
    let from = &from[..];
    let mut cases: Vec<Case<'_>> = vec![
        (
            "copy",
            Box::new(|count, bytes| {
                for number in 0..count {
                    let at = offset(number, bytes) as usize;
                    black_box(&mut memory[at..at + bytes]).copy_from_slice(black_box(&from[..bytes]));
                }
                Ok(())
            }),
        ),
        (
            "mapped, write_at",
            Box::new(|count, bytes| {
                Ok((0..count)
                    .try_for_each(|number| mapped.write_at(&from[..bytes], offset(number, bytes)))?)
            }),
        ),
        (
            "mapped, read_at",
            Box::new(|count, bytes| {
                Ok((0..count)
                    .try_for_each(|number| mapped.read_at(&mut to[..bytes], offset(number, bytes)))?)
            }),
        ),
        (
            "mapped, queue, write_from",
            Box::new(|count, bytes| {
                batches(&mut mapped_queue, count, |queue, number| {
                    Ok(queue.write_from(mapped_id, offset(number, bytes), &from[..bytes], false, number)?)
                })
            }),
        ),
        (
            "mapped, queue, read, own memory",
            Box::new(|count, bytes| {
                for number in 0..count {
                    let mut own = std::mem::take(&mut room);
                    own.resize(bytes, 0);
                    reading_queue.read(reading_id, offset(number, bytes), own, number)?;
                    let done = reading_queue.reap()?;
                    done.outcome?;
                    if let Some(bywash_client::RequestMemory::Own(own)) = done.memory {
                        room = own;
                    }
                }
                Ok(())
            }),
        ),
        (
            "channel, write_at",
            Box::new(|count, bytes| {
                Ok((0..count)
                    .try_for_each(|number| channel.write_at(&from[..bytes], offset(number, bytes)))?)
            }),
        ),
        (
            "channel, queue, write_from, one",
            Box::new(|count, bytes| {
                for number in 0..count {
                    one_queue.write_from(one_id, offset(number, bytes), &from[..bytes], false, number)?;
                    one_queue.reap()?.outcome?;
                }
                Ok(())
            }),
        ),
        (
            "channel, queue, write_from, 32",
            Box::new(|count, bytes| {
                batches(&mut channel_queue, count, |queue, number| {
                    Ok(queue.write_from(channel_id, offset(number, bytes), &from[..bytes], false, number)?)
                })
            }),
        ),
        (
            "channel, queue, buffers, 32 under way",
            Box::new(|count, bytes| streamed(&mut buffer_queue, buffer_id, count, bytes)),
        ),
    ];
    println!("{:<40} {:>6} {:>9} {:>9} {:>9}", "ns a request", "bytes", "quartile", "median", "quartile");
    for bytes in [512usize, 4096] {
        let mut figures = vec![Vec::new(); cases.len()];
        for round in 0..=rounds {
            for (case, figures) in cases.iter_mut().zip(&mut figures) {
                let begun = Instant::now();
                (case.1)(requests, bytes)?;
                // The first round only warms up caches and page tables.
                if round > 0 {
                    figures.push(begun.elapsed().as_nanos() as f64 / requests as f64);
                }
            }
        }
        for (case, figures) in cases.iter().zip(&mut figures) {
            figures.sort_by(f64::total_cmp);
            let at = |part: usize| figures[(figures.len() - 1) * part / 4];
            println!("{:<40} {bytes:>6} {:>9.1} {:>9.1} {:>9.1}", case.0, at(1), at(2), at(3));
        }
    }
    drop(cases);
    server.stop();
    Ok(())
}
