//! A load: clients that each play a file, and count what did not arrive in time.
//!
//! A client's play-out clock starts a second after its first byte, and then takes [`RATE`] bytes per second. A byte that arrives
//! after its time is late. The bytes are thrown away in the kernel (MSG_TRUNC), so that one processor can be the client of
//! many streams.

use crate::{RATE, files};
use rustix::net::{RecvFlags, recv};
use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::TcpStream;

/// Bytes that all clients received in time and late, and clients that did not get their stream.
#[derive(Clone, Copy, Debug, Default)]
pub struct Received {
    pub bytes: u64,
    pub late_bytes: u64,
    pub refused: u64,
}

/// Has `streams` clients begin within [`BEGINNING`], and play for `time`.
pub fn run(address: SocketAddr, streams: u32, time: Duration) -> Result<Received, Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let end = Instant::now() + BEGINNING + time;
        let clients: Vec<_> = (0..streams)
            .map(|client| {
                tokio::spawn(async move {
                    tokio::time::sleep(BEGINNING * client / streams).await;
                    play(address, client, end).await.map_err(|error| error.to_string())
                })
            })
            .collect();
        let mut all = Received::default();
        for client in clients {
            let one = client.await??;
            all.bytes += one.bytes;
            all.late_bytes += one.late_bytes;
            all.refused += one.refused;
        }
        Ok(all)
    })
}

async fn play(address: SocketAddr, client: u32, end: Instant) -> Result<Received, Box<dyn Error>> {
    let mut socket = TcpStream::connect(address).await?;
    let (file, range) = files::of_client(client);
    let (first, last) = (range.start, range.end - 1);
    let request = format!("GET /{file} HTTP/1.1\r\nHost: localhost\r\nRange: bytes={first}-{last}\r\n\r\n");
    socket.write_all(request.as_bytes()).await?;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(socket.read_u8().await?);
    }
    if head.starts_with(b"HTTP/1.1 503") {
        return Ok(Received { refused: 1, ..Received::default() });
    }
    if !head.starts_with(b"HTTP/1.1 206") {
        return Err(String::from_utf8_lossy(&head).into());
    }
    let mut received = Received::default();
    let clock = Instant::now() + START_UP;
    while received.bytes < range.end - range.start {
        let Ok(ready) = tokio::time::timeout_at(end.into(), socket.readable()).await else { break };
        ready?;
        match socket.try_io(Interest::READABLE, || discard(&socket)) {
            Ok(0) => return Err("the server ended the connection".into()),
            Ok(bytes) => {
                let played = Instant::now().saturating_duration_since(clock).as_secs_f64() * RATE as f64;
                received.late_bytes += (played as u64).saturating_sub(received.bytes).min(bytes as u64);
                received.bytes += bytes as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(received)
}

fn discard(socket: &TcpStream) -> io::Result<usize> {
    let mut nothing = [std::mem::MaybeUninit::<u8>::uninit(); 1 << 16];
    let (_, bytes) = recv(socket, &mut nothing, RecvFlags::TRUNC | RecvFlags::DONTWAIT)?;
    Ok(bytes)
}

/// Time within which all clients begin.
pub const BEGINNING: Duration = Duration::from_secs(1);
/// Time between the first byte and the beginning of the play-out clock.
const START_UP: Duration = Duration::from_secs(1);
