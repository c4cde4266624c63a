//! A threaded HTTP server in the simulated system, and clients of the Rust interface.

#![allow(clippy::unwrap_used)] // helpers of the tests

mod toolchain;

use std::collections::BTreeMap;

use bywash_execute::{Client, Connection, End, Execution, FileSystem, Functional, Program, Progress};

const PORT: u16 = 8080;

/// Client that sends requests one after the other by one connection.
struct Browser {
    requests: Vec<(String, Vec<u8>)>,
    received: Vec<u8>,
    is_waiting: bool,
}

impl Browser {
    /// Sends the next request if none is being served, and returns whether all are done.
    fn advance(&mut self, client: Client, execution: &mut Execution<Functional>) -> bool {
        self.received.extend(execution.receive(client));
        if execution.connection(client) == Connection::Connecting {
            return false;
        }
        if self.is_waiting {
            let (_, expected) = &self.requests[0];
            let Some(start) = self.received.windows(4).position(|part| part == b"\r\n\r\n") else {
                return false;
            };
            if self.received.len() < start + 4 + expected.len() {
                return false;
            }
            assert_eq!(&self.received[start + 4..], expected, "{}", self.requests[0].0);
            self.received.clear();
            self.requests.remove(0);
            self.is_waiting = false;
        }
        let Some((name, _)) = self.requests.first() else { return true };
        let request = format!("GET {name} HTTP/1.1\r\nHost: simulated\r\n\r\n");
        assert_eq!(execution.send(client, request.as_bytes()).unwrap(), request.len());
        self.is_waiting = true;
        false
    }
}

/// Runs the server until all clients are done; returns its end with facts that must be the same each time.
fn serve(file: &std::path::Path, processors: usize) -> (End, u64, (u64, u64), u64) {
    let mut files = FileSystem::new(64 << 20);
    let contents: Vec<Vec<u8>> = (0..5)
        .map(|number| (0..number * 70_001 + 13).map(|at| (at * 7 + at / 256 + number) as u8).collect())
        .collect();
    for (number, content) in contents.iter().enumerate() {
        files.add_file(&format!("/www/{number}"), content).unwrap();
    }
    let program = Program::new(["server", "/www", &PORT.to_string()]).files(files).cache_pages(100);
    let mut execution = toolchain::load(file, program, processors);
    // The server must listen before clients connect.
    assert_eq!(execution.run().unwrap(), Progress::Idle);
    let mut browsers = BTreeMap::new();
    for number in 0..12 {
        let mut requests: Vec<_> = (0..5)
            .map(|step| (number + step) % 5)
            .map(|file| (format!("/{file}"), contents[file].clone()))
            .collect();
        requests.push(("/missing".into(), Vec::new()));
        let browser = Browser { requests, received: Vec::new(), is_waiting: false };
        browsers.insert(execution.connect(PORT).unwrap(), browser);
    }
    let refused = execution.connect(1).unwrap();
    let mut is_quitting = false;
    loop {
        match execution.run().unwrap() {
            Progress::Clients => {
                for client in execution.client_events() {
                    let Some(browser) = browsers.get_mut(&client) else { continue };
                    if browser.advance(client, &mut execution) {
                        browsers.remove(&client);
                        execution.close(client);
                    }
                }
                if browsers.is_empty() && !is_quitting {
                    is_quitting = true;
                    let requests = vec![("/quit".into(), b"bye\n".to_vec())];
                    let browser = Browser { requests, received: Vec::new(), is_waiting: false };
                    browsers.insert(execution.connect(PORT).unwrap(), browser);
                }
            }
            Progress::Ended(end) => {
                assert_eq!(execution.connection(refused), Connection::Refused);
                return (end, execution.retired(), execution.calls(), execution.time().picoseconds());
            }
            other => panic!("{other:?} with {} clients, {:?}", browsers.len(), execution.output()),
        }
    }
}

#[test]
fn clients_get_what_they_request_the_same_each_time() {
    let test = "clients_get_what_they_request_the_same_each_time";
    let Some(compiler) = toolchain::compiler() else { return toolchain::skip(test, "gcc-riscv64-linux-gnu") };
    let folder = tempfile::tempdir().unwrap();
    let file = toolchain::compile(&compiler, "server", folder.path());
    for processors in [1, 4] {
        let first = serve(&file, processors);
        assert_eq!(first.0, End::Exited(0));
        assert_eq!(first, serve(&file, processors), "{processors} processors");
    }
}
