//! A load: connections that each send a request when the response to the last one has arrived.

use crate::{CONNECTIONS, FILE_BYTES, FILES};
use std::error::Error;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Puts the load on a server for a time. Returns the number of responses.
pub fn run(address: SocketAddr, time: Duration, seed: u64) -> Result<u64, Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let end = Instant::now() + time;
        let clients: Vec<_> = (0..CONNECTIONS as u64)
            .map(|client| tokio::spawn(connection(address, end, seed + client)))
            .collect();
        let mut responses = 0;
        for client in clients {
            responses += client.await?.map_err(|error| error.to_string())?;
        }
        Ok(responses)
    })
}

async fn connection(
    address: SocketAddr,
    end: Instant,
    seed: u64,
) -> Result<u64, Box<dyn Error + Send + Sync>> {
    let mut socket = TcpStream::connect(address).await?;
    socket.set_nodelay(true)?;
    let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut buffer = vec![0; 2 * FILE_BYTES as usize];
    let mut responses = 0;
    while Instant::now() < end {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let file = (random >> 16) as u32 % FILES;
        socket.write_all(format!("GET /{file} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes()).await?;
        let contents = response(&mut socket, &mut buffer).await?;
        if buffer[contents..contents + 4] != file.to_le_bytes() {
            return Err(format!("the response for file {file} has other contents").into());
        }
        responses += 1;
    }
    Ok(responses)
}

/// Reads a response into the buffer. Returns the offset of its contents.
async fn response(socket: &mut TcpStream, buffer: &mut [u8]) -> Result<usize, Box<dyn Error + Send + Sync>> {
    let (mut bytes, mut contents) = (0, None);
    while contents.is_none_or(|contents| bytes < contents + FILE_BYTES as usize) {
        let read = socket.read(&mut buffer[bytes..]).await?;
        if read == 0 {
            return Err("the server ended the connection, or sent more than a file".into());
        }
        bytes += read;
        if contents.is_none() {
            contents = buffer[..bytes].windows(4).position(|end| end == b"\r\n\r\n").map(|end| end + 4);
            if contents.is_some() && !buffer.starts_with(b"HTTP/1.1 200 OK\r\n") {
                return Err(String::from_utf8_lossy(&buffer[..bytes.min(100)]).into());
            }
        }
    }
    contents.ok_or_else(|| "no head".into())
}
