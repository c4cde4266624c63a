//! A file server on loopback: a thread for each client reads a file from the page cache and sends it.

use crate::plan::measure::loopback::pair;
use crate::plan::measure::scratch::{Anywhere, Scratch};
use crate::plan::measure::{KIB, joined};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

/// Size of a file, in bytes. A file is a part of the large one; its offset is its name.
pub const FILE: usize = 16 * KIB;

/// Serves for `time`. Returns files a second, of all clients together.
///
/// # Errors
/// The first error of a client or of its server thread.
pub fn serve(files: &Scratch, clients: usize, time: Duration) -> io::Result<f64> {
    let connections = (0..clients).map(|_| pair()).collect::<io::Result<Vec<_>>>()?;
    std::thread::scope(|scope| {
        let threads: Vec<_> = connections
            .into_iter()
            .enumerate()
            .map(|(number, (here, there))| {
                let server = scope.spawn(move || answer(there, files));
                let client = scope.spawn(move || ask(here, files.bytes(), number, time));
                (server, client)
            })
            .collect();
        threads
            .into_iter()
            .map(|(server, client)| {
                let asked = joined(client.join());
                joined(server.join()).and(asked)
            })
            .sum()
    })
}

/// Runs the server's thread for one client, until the client closes the connection.
fn answer(mut client: TcpStream, files: &Scratch) -> io::Result<()> {
    let (mut question, mut file) = ([0; 8], vec![0; FILE]);
    // A question arrives in one piece: it is sent by one call and is smaller than any packet.
    while client.read(&mut question)? == question.len() {
        files.file().read_exact_at(&mut file, u64::from_le_bytes(question))?;
        client.write_all(&file)?;
    }
    Ok(())
}

/// Runs a client for `time`. Returns its files a second.
fn ask(mut server: TcpStream, bytes: usize, number: usize, time: Duration) -> io::Result<f64> {
    let (mut anywhere, mut file) = (Anywhere::new(FILE, bytes, number), vec![0; FILE]);
    let (mut answers, begin) = (0u64, Instant::now());
    while answers == 0 || begin.elapsed() < time {
        server.write_all(&anywhere.next().to_le_bytes())?;
        server.read_exact(&mut file)?;
        answers += 1;
    }
    Ok(answers as f64 / begin.elapsed().as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::measure::MIB;

    #[test]
    fn what_a_client_gets_is_the_file_that_it_asked_for() {
        let folder = tempfile::tempdir().unwrap();
        let files = Scratch::new(folder.path(), MIB).unwrap();
        let (mut here, there) = pair().unwrap();
        let (mut got, mut wanted) = (vec![0; FILE], vec![0; FILE]);
        std::thread::scope(|scope| {
            let server = scope.spawn(|| answer(there, &files));
            for at in [0, 3 * FILE as u64] {
                here.write_all(&at.to_le_bytes()).unwrap();
                here.read_exact(&mut got).unwrap();
                files.file().read_exact_at(&mut wanted, at).unwrap();
                assert!(got == wanted);
            }
            drop(here);
            server.join().unwrap().unwrap();
        });
        assert!(serve(&files, 2, Duration::from_millis(10)).unwrap() > 0.0);
    }
}
