//! Serves requests by a stepped server, for counting the instructions of its cores:
//!
//! ```text
//! cargo build --release -p bywash-server --features testing --example count
//! valgrind --tool=callgrind --toggle-collect='*SteppedServer*step_cores*' target/release/examples/count 2 20000 4096
//! ```
//!
//! The arguments are the number of cores, of requests for each core, and of bytes of a request; then `shared`, if all clients use
//! one volume, and the device (`mem:64M` if there is none). Each core has one client with 32 requests at a time, reads and
//! writes in turn. It prints the number of requests; callgrind's sum by that number is the cost of a request, idle polling not
//! included.

use bywash_channel::{Client, Options as ChannelOptions, Submission, Wait, socket_pair};
use bywash_link::{Messages, connect};
use bywash_protocol::layout::Opcode;
use bywash_protocol::{Access, ControlReply, ControlRequest, MESSAGE_BYTES_MAX, VERSION};
use bywash_server::{Options, SteppedServer};
use std::error::Error;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// Number of requests that a client has in flight.
const DEPTH: usize = 32;
/// Size of a volume, in bytes.
const VOLUME_BYTES: u64 = 4 << 20;
/// Number of rounds after which a reply is overdue.
const ROUNDS_MAX: usize = 1_000_000;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |index: usize, usual: usize| arguments.get(index).map_or(Ok(usual), |text| text.parse());
    let (cores, requests, bytes) = (number(0, 1)?, number(1, 20_000)?, number(2, 4096)?);
    let is_shared = arguments.iter().any(|argument| argument == "shared");
    let device = arguments.iter().skip(3).find(|argument| *argument != "shared");
    let device = format!("disk={}", device.map_or("mem:64M,pages=4K", |device| device));
    let folder = tempfile::tempdir()?;
    let socket = folder.path().join("socket");
    let options = Options::new(&socket).cores(cores).device(device.parse()?);
    let mut server = SteppedServer::start(options)?;
    let mut clients = Vec::new();
    for number in 0..cores {
        let messages = Messages::over(connect(&socket)?, MESSAGE_BYTES_MAX);
        ask(&mut server, &messages, &ControlRequest::Hello { version: VERSION, name: "count".into() }, &[])?;
        let volume = format!("log-{}", if is_shared { 0 } else { number });
        if number == 0 || !is_shared {
            let create = ControlRequest::Create {
                volume: volume.clone(),
                device: "disk".into(),
                bytes: VOLUME_BYTES,
                owner: 0,
                group: 0,
                mode: 0o600,
                is_thin: false,
            };
            ask(&mut server, &messages, &create, &[])?;
        }
        let (here, there) = socket_pair()?;
        let options = ChannelOptions::new().depth(64).arena_bytes(4 << 20).wait(Wait::Spin);
        let making = std::thread::spawn(move || Client::over(here, &options));
        ask(&mut server, &messages, &ControlRequest::SetUpChannel {}, &[there.as_fd()])?;
        let channel = making.join().map_err(|_| "the channel's thread has panicked")??;
        let open = ControlRequest::Open { volume, access: Access::ReadWrite };
        let ControlReply::Granted(granted) = ask(&mut server, &messages, &open, &[])? else {
            return Err("no grant".into());
        };
        clients.push((messages, channel, granted.grant));
    }
    let mut done = 0;
    for batch in 0..requests / DEPTH {
        for (_, channel, grant) in &mut clients {
            for at in 0..DEPTH {
                let place =
                    ((batch * DEPTH + at) * 7919 * 4096) as u64 % (VOLUME_BYTES - (1 << 20)) / 4096 * 4096;
                let opcode = if at % 2 == 0 { Opcode::Read } else { Opcode::Write };
                let arguments = [*grant, place, bytes as u64, 0, 0, 0];
                let buffer = channel.alloc(bytes)?;
                channel.submit(Submission::new(opcode as u8).arguments(arguments).buffer(buffer))?;
            }
        }
        let mut rounds = 0;
        while clients.iter().any(|(_, channel, _)| channel.in_flight() > 0) {
            server.step_cores();
            for (_, channel, _) in &mut clients {
                while let Some(completion) = channel.try_reap()? {
                    assert_eq!(completion.status, 0, "a request has failed");
                    done += 1;
                }
            }
            rounds += 1;
            assert!(rounds < ROUNDS_MAX, "requests do not complete");
        }
    }
    println!("{done} requests");
    Ok(())
}

/// Sends a control message, and steps the server until it has replied.
fn ask(
    server: &mut SteppedServer,
    messages: &Messages,
    ask: &ControlRequest,
    descriptors: &[BorrowedFd<'_>],
) -> Result<ControlReply, Box<dyn Error>> {
    messages.send(&ask.to_bytes()?, descriptors, Duration::ZERO)?;
    for _ in 0..ROUNDS_MAX {
        server.step();
        if let Some(packet) = messages.try_receive()? {
            return match ControlReply::from_bytes(&packet.bytes)? {
                ControlReply::Refused(refused) => Err(refused.message.into()),
                reply => Ok(reply),
            };
        }
    }
    Err("the server does not reply".into())
}
