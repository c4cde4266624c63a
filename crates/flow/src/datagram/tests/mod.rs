//! Tests of datagrams between hosts: shared helpers.
//!
//! The data consists of numbers that follow from their positions, and is compared byte by byte.

mod ethernet;
mod lossy;
mod passing;
mod sequenced;
mod udp;
mod xdp;

use super::accounting::{Accounting, Ledger};
use super::options::{DatagramEndpoint, EthOptions, RelayOptions, UdpOptions};
use super::{open_input, open_output, open_relay};
use crate::control::Control;
use crate::error::Error;
use crate::mac::Mac;
use bywash_support::hosts::{Host, Port};
use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Time after which a test counts as hung.
const SOON: Duration = Duration::from_secs(20);
const BLOCK: usize = 256 << 10;

/// Returns the stream of a test, in which every eight bytes follow from their position.
fn data(bytes: usize, seed: u64) -> Vec<u8> {
    let words =
        (0..bytes.div_ceil(8) as u64).map(|place| (place ^ seed).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let mut data: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
    data.truncate(bytes);
    data
}

/// Returns the number of packets of a stream that is sent in blocks.
fn packets(bytes: usize, size: usize) -> u64 {
    (bytes / BLOCK * BLOCK.div_ceil(size) + (bytes % BLOCK).div_ceil(size)) as u64
}

/// Result of an endpoint or relay.
struct Outcome {
    data: Vec<u8>,
    result: Result<(), Error>,
    account: Accounting,
}

/// An endpoint or relay that runs in a thread.
struct Running {
    thread: JoinHandle<Outcome>,
    control: Arc<Control>,
    ledger: Ledger,
}

impl Running {
    fn new(what: impl FnOnce(&Control, Ledger) -> (Vec<u8>, Result<(), Error>) + Send + 'static) -> Running {
        let (control, ledger) = (Arc::new(Control::new().unwrap()), Ledger::default());
        let (inner, inner_ledger) = (control.clone(), ledger.clone());
        let thread = thread::spawn(move || {
            let (data, result) = what(&inner, inner_ledger.clone());
            Outcome { data, result, account: inner_ledger.read() }
        });
        Running { thread, control, ledger }
    }

    fn outcome(self) -> Outcome {
        // A hung endpoint is cancelled, so that the test reports its state.
        for _ in 0..SOON.as_millis() {
            if self.thread.is_finished() {
                break;
            }
            thread::sleep(Duration::from_millis(1));
        }
        self.control.cancel();
        self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

/// Opens a receiver, and runs it in a thread until it ends.
fn receive(host: &Host, place: &DatagramEndpoint) -> Running {
    let ledger = Ledger::default();
    let mut input = host.run(|| open_input(place, ledger.clone())).unwrap();
    let mut running = Running::new(move |control, _| {
        let (mut data, mut room) = (Vec::new(), vec![0; BLOCK]);
        loop {
            match input.next(&mut room, control) {
                Ok([]) => return (data, Ok(())),
                Ok(block) => data.extend_from_slice(block),
                Err(error) => return (data, Err(error)),
            }
        }
    });
    running.ledger = ledger;
    running
}

/// Sends all data in blocks.
fn send(host: &Host, place: &DatagramEndpoint, data: &[u8]) -> Outcome {
    let (control, ledger) = (Control::new().unwrap(), Ledger::default());
    let result = host.run(|| {
        let mut output = open_output(place, ledger.clone())?;
        data.chunks(BLOCK).try_for_each(|block| output.put(block, &control))?;
        output.finish(&control)
    });
    Outcome { data: Vec::new(), result, account: ledger.read() }
}

/// Opens a relay, and runs it in a thread until it is cancelled.
fn pass_on(host: &Host, from: &DatagramEndpoint, to: &DatagramEndpoint, options: RelayOptions) -> Running {
    let ledger = Ledger::default();
    let relay = host.run(|| open_relay(from, to, options, ledger.clone())).unwrap();
    let mut running = Running::new(move |control, _| (Vec::new(), relay(control)));
    running.ledger = ledger;
    running
}

impl Running {
    /// Like [`Running::outcome`], with the counters of an endpoint that was opened elsewhere.
    fn end(self) -> Outcome {
        let ledger = self.ledger.clone();
        let outcome = self.outcome();
        Outcome { account: ledger.read(), ..outcome }
    }

    /// Cancels the endpoint, and returns its result.
    fn stop(self) -> Outcome {
        self.control.cancel();
        self.end()
    }
}

/// Returns a sequenced UDP endpoint at an address of a host.
fn udp(port: &Port, number: u16) -> UdpOptions {
    UdpOptions { address: format!("{}:{number}", port.address), sequenced: true, ..UdpOptions::default() }
}

/// Returns an Ethernet endpoint at a device.
fn eth(port: &Port, number: u16) -> EthOptions {
    EthOptions { interface: port.interface.clone(), port: number, ..EthOptions::default() }
}

/// Returns an Ethernet endpoint that sends from one device to another.
fn eth_to(port: &Port, to: &Port, number: u16) -> EthOptions {
    EthOptions { mac: Some(mac(to)), ..eth(port, number) }
}

fn mac(port: &Port) -> Mac {
    port.mac.parse().unwrap()
}

/// Receives the next datagram at a socket, with its sender. Stopping the process shortens a wait with a
/// timeout, so the wait is repeated.
fn arrival(socket: &UdpSocket, room: &mut [u8]) -> (usize, SocketAddr) {
    loop {
        match socket.recv_from(room) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            came => return came.unwrap(),
        }
    }
}

/// Compares byte by byte, without printing millions of bytes.
fn assert_same(came: &[u8], sent: &[u8]) {
    assert_eq!(came.len(), sent.len());
    if let Some(place) = came.iter().zip(sent).position(|(came, sent)| came != sent) {
        panic!("byte {place} of {} is {} and should be {}", sent.len(), came[place], sent[place]);
    }
}
