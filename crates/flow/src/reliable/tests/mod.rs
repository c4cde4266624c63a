//! Tests with two ends over loopback, or with a bad network between them.

mod cost;
mod relay;

use super::*;
use relay::{Chance, Manners, Relay};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread::{self, JoinHandle};
use std::time::Instant;

/// Timeout in tests that wait for it. All other tests have the default, since a thread may not run for
/// seconds on a loaded machine.
const SHORT: Duration = Duration::from_secs(4);

/// Greatest time within which a dead peer must be noticed: the timeout, the time since the last packet, and
/// delays of a loaded machine.
const NOTICED: Duration = Duration::from_secs(12);

const BAD: Manners = Manners { seed: 0x5eed_0001, lost: 10, doubled: 10, swapped: 20 };

fn listener() -> ReliableOptions {
    ReliableOptions {
        host: "127.0.0.1".into(),
        port: 0,
        listen: true,
        pin: None,
        insecure: false,
        identity: None,
        timeout: PEER_TIMEOUT,
        congestion: Congestion::default(),
    }
}

fn connector(address: SocketAddr, pin: Option<Fingerprint>) -> ReliableOptions {
    ReliableOptions { port: address.port(), listen: false, pin, insecure: pin.is_none(), ..listener() }
}

/// Starts a listener on a thread of its own, which runs `work` once it is open.
struct There<T> {
    address: SocketAddr,
    fingerprint: Fingerprint,
    control: Arc<Control>,
    notices: Receiver<Notice>,
    thread: JoinHandle<T>,
}

fn there<T: Send + 'static>(
    options: ReliableOptions,
    work: impl FnOnce(&ReliableOptions, &Control, &mut dyn FnMut(Notice)) -> T + Send + 'static,
) -> There<T> {
    let control = Arc::new(Control::new().unwrap());
    let (tell, notices) = channel();
    let thread = {
        let control = control.clone();
        thread::spawn(move || work(&options, &control, &mut |notice| tell.send(notice).unwrap_or(())))
    };
    match notices.recv().unwrap() {
        Notice::Listening { address, fingerprint } => {
            There { address, fingerprint, control, notices, thread }
        }
        other => panic!("a listener listens first: {other:?}"),
    }
}

fn silent(_: Notice) {}

/// Returns pseudo-random bytes, the same ones for the same seed.
fn bytes(length: usize) -> Vec<u8> {
    let mut chance = Chance(0x0123_4567_89ab_cdef);
    let mut all = Vec::with_capacity(length + 8);
    while all.len() < length {
        all.extend_from_slice(&chance.next().to_le_bytes());
    }
    all.truncate(length);
    all
}

/// Sends everything in blocks of varying size.
fn send(output: &mut dyn Output, data: &[u8], control: &Control) -> Result<(), Error> {
    let mut rest = data;
    let mut chance = Chance(7);
    while !rest.is_empty() {
        let (block, after) = rest.split_at(rest.len().min(1 + chance.next() as usize % (256 * 1024)));
        output.put(block, control)?;
        rest = after;
    }
    output.finish(control)
}

fn receive(input: &mut dyn Input, control: &Control) -> Result<Vec<u8>, Error> {
    let mut room = vec![0; 256 * 1024];
    let mut all = Vec::new();
    loop {
        match input.next(&mut room, control)? {
            [] => return Ok(all),
            block => all.extend_from_slice(block),
        }
    }
}

fn receives(
    options: &ReliableOptions,
    control: &Control,
    notify: &mut dyn FnMut(Notice),
) -> Result<Vec<u8>, Error> {
    receive(&mut *open_input(options, control, notify)?, control)
}

fn sends(
    data: Vec<u8>,
) -> impl FnOnce(&ReliableOptions, &Control, &mut dyn FnMut(Notice)) -> Result<(), Error> + Send + 'static {
    move |options, control, notify| send(&mut *open_output(options, control, notify)?, &data, control)
}

/// Returns the message of an error; panics if the result is none.
fn text<T>(result: Result<T, Error>) -> String {
    match result {
        Ok(_) => panic!("it should have failed"),
        Err(error) => error.to_string(),
    }
}

fn moves(length: usize, manners: Option<Manners>, connector_sends: bool) {
    moves_by(length, manners, connector_sends, Congestion::Cubic);
}

fn moves_by(length: usize, manners: Option<Manners>, connector_sends: bool, congestion: Congestion) {
    let listener = || ReliableOptions { congestion, ..listener() };
    let data = bytes(length);
    let (expected, control) = (data.clone(), Control::new().unwrap());
    let way = |address| manners.map(|manners| Relay::to(address, manners));
    let seed = manners.map(|manners| manners.seed);
    let got = if connector_sends {
        let far = there(listener(), receives);
        let relay = way(far.address);
        let options =
            connector(relay.as_ref().map_or(far.address, |relay| relay.address), Some(far.fingerprint));
        let options = ReliableOptions { congestion, ..options };
        sends(data)(&options, &control, &mut silent).unwrap();
        far.thread.join().unwrap().unwrap()
    } else {
        let far = there(listener(), sends(data));
        let relay = way(far.address);
        let options =
            connector(relay.as_ref().map_or(far.address, |relay| relay.address), Some(far.fingerprint));
        let options = ReliableOptions { congestion, ..options };
        let got = receives(&options, &control, &mut silent).unwrap();
        far.thread.join().unwrap().unwrap();
        got
    };
    assert!(got == expected, "{} of {length} bytes, seed {seed:?}", got.len());
}

#[test]
fn everything_arrives_over_a_bad_network_from_who_connects() {
    moves(64 << 20, Some(BAD), true);
}

#[test]
fn everything_arrives_over_a_bad_network_from_who_listens() {
    moves(64 << 20, Some(BAD), false);
}

#[test]
fn everything_arrives_whatever_says_how_fast() {
    moves_by(16 << 20, Some(BAD), true, Congestion::Bbr);
    moves_by(16 << 20, Some(BAD), false, Congestion::Bbr);
}

#[test]
fn a_stream_of_any_length_has_its_end() {
    for length in [0, 1, 1200, 100_000] {
        for connector_sends in [true, false] {
            moves(length, None, connector_sends);
        }
    }
}

#[test]
fn the_end_is_confirmed_however_bad_the_network_is() {
    for seed in 1..=8 {
        let manners = Manners { seed: seed * 0x9e37_79b9, lost: 100, doubled: 100, swapped: 100 };
        moves(20_000, Some(manners), seed % 2 == 0);
    }
}

#[test]
fn somebody_else_at_the_address_is_named() {
    let far = there(listener(), receives);
    let other = identity::Identity::get(None).unwrap().fingerprint();
    let control = Control::new().unwrap();
    let said = text(open_output(&connector(far.address, Some(other)), &control, &mut silent));
    assert!(said.contains(&other.to_string()) && said.contains(&far.fingerprint.to_string()), "{said}");
    // The listener reports the failure too, and still waits for the right peer.
    let notice = far.notices.recv().unwrap();
    let named = |notice: &Notice| match notice {
        Notice::Refused { address, reason } => address.ip().is_loopback() && reason.contains("pin="),
        _ => false,
    };
    assert!(named(&notice), "{notice:?}");
    sends(bytes(10))(&connector(far.address, Some(far.fingerprint)), &control, &mut silent).unwrap();
    assert_eq!(far.thread.join().unwrap().unwrap(), bytes(10));
}

#[test]
fn nobody_is_trusted_silently() {
    let control = Control::new().unwrap();
    let mut options = connector("127.0.0.1:9".parse().unwrap(), None);
    options.insecure = false;
    let said = text(open_output(&options, &control, &mut silent));
    assert!(said.contains("pin=HEX") && said.contains("insecure"), "{said}");
    let both = ReliableOptions { insecure: true, pin: Some("0".repeat(64).parse().unwrap()), ..options };
    assert!(text(open_input(&both, &control, &mut silent)).contains("exclude"));
    let listening = ReliableOptions { insecure: true, ..listener() };
    assert!(text(open_input(&listening, &control, &mut silent)).contains("connects"));
}

#[test]
fn who_says_insecure_is_served() {
    let far = there(listener(), receives);
    sends(bytes(10))(&connector(far.address, None), &Control::new().unwrap(), &mut silent).unwrap();
    assert_eq!(far.thread.join().unwrap().unwrap(), bytes(10));
}

#[test]
fn a_listener_that_asks_who_connects_takes_nobody_else() {
    let folder = tempfile::tempdir().unwrap();
    let (mine, wrong) = (folder.path().join("mine.pem"), folder.path().join("wrong.pem"));
    let pin = identity::Identity::get(Some(&mine)).unwrap().fingerprint();
    let far = there(ReliableOptions { pin: Some(pin), ..listener() }, receives);
    let control = Control::new().unwrap();
    let plain = connector(far.address, Some(far.fingerprint));
    let said = text(sends(bytes(10))(&plain, &control, &mut silent));
    assert!(said.contains("identity=FILE"), "{said}");
    let as_other = ReliableOptions { identity: Some(wrong), ..plain.clone() };
    let said = text(sends(bytes(10))(&as_other, &control, &mut silent));
    assert!(said.contains("does not trust this side"), "{said}");
    let refused: Vec<Notice> = far.notices.iter().take(2).collect();
    assert!(refused.iter().all(|notice| matches!(notice, Notice::Refused { .. })), "{refused:?}");
    let mut told = Vec::new();
    let as_me = ReliableOptions { identity: Some(mine), ..plain };
    sends(bytes(10))(&as_me, &control, &mut |notice| told.push(notice)).unwrap();
    assert!(matches!(told[..], [Notice::Connecting { fingerprint }] if fingerprint == pin), "{told:?}");
    assert_eq!(far.thread.join().unwrap().unwrap(), bytes(10));
}

#[test]
fn two_sources_or_two_sinks_part_at_once() {
    let control = Control::new().unwrap();
    let far = there(listener(), receives);
    let options = connector(far.address, Some(far.fingerprint));
    assert!(text(open_input(&options, &control, &mut silent)).contains("both sides receive"));
    sends(vec![1])(&options, &control, &mut silent).unwrap();
    assert_eq!(far.thread.join().unwrap().unwrap(), [1]);
    let far = there(listener(), sends(vec![2]));
    let options = connector(far.address, Some(far.fingerprint));
    assert!(text(open_output(&options, &control, &mut silent)).contains("both sides send"));
    assert_eq!(receives(&options, &control, &mut silent).unwrap(), [2]);
    far.thread.join().unwrap().unwrap();
}

#[test]
fn a_second_peer_hears_that_it_is_late() {
    let (come, came) = channel();
    let far = there(listener(), move |options, control, notify| {
        let mut input = open_input(options, control, notify)?;
        come.send(()).unwrap();
        receive(&mut *input, control)
    });
    let control = Control::new().unwrap();
    let options = connector(far.address, Some(far.fingerprint));
    let mut output = open_output(&options, &control, &mut silent).unwrap();
    output.put(&[3], &control).unwrap();
    came.recv().unwrap();
    let said = text(open_output(&options, &control, &mut silent));
    assert!(said.contains("has its peer already"), "{said}");
    output.finish(&control).unwrap();
    assert_eq!(far.thread.join().unwrap().unwrap(), [3]);
}

#[test]
fn a_sender_that_gives_up_is_no_end_of_the_stream() {
    // A connector that gives up before the listener has seen the whole handshake was never its peer.
    let (come, came) = channel();
    let far = there(listener(), move |options, control, notify| {
        let mut input = open_input(options, control, notify)?;
        come.send(()).unwrap();
        receive(&mut *input, control)
    });
    let control = Control::new().unwrap();
    let options = connector(far.address, Some(far.fingerprint));
    let mut output = open_output(&options, &control, &mut silent).unwrap();
    output.put(&bytes(300_000), &control).unwrap();
    came.recv().unwrap();
    drop(output);
    let said = text(far.thread.join().unwrap());
    assert!(said.contains("the peer gave up"), "{said}");
}

#[test]
fn a_receiver_that_gives_up_is_noticed() {
    let far = there(listener(), |options, control, notify| {
        let mut input = open_input(options, control, notify).unwrap();
        input.next(&mut [0; 1000], control).unwrap().len()
    });
    let control = Control::new().unwrap();
    let options = connector(far.address, Some(far.fingerprint));
    let said = text(sends(bytes(64 << 20))(&options, &control, &mut silent));
    assert!(said.contains("the peer gave up"), "{said}");
    assert!(far.thread.join().unwrap() > 0);
}

/// A cut cable looks like a killed peer to each side: nothing arrives any more.
#[test]
fn a_peer_that_dies_is_noticed_on_both_sides() {
    let (come, came) = channel();
    let far = there(ReliableOptions { timeout: SHORT, ..listener() }, move |options, control, notify| {
        let mut input = open_input(options, control, notify)?;
        come.send(()).unwrap();
        receive(&mut *input, control)
    });
    let relay = Relay::to(far.address, Manners { seed: 1, lost: 0, doubled: 0, swapped: 0 });
    let control = Control::new().unwrap();
    let options = ReliableOptions { timeout: SHORT, ..connector(relay.address, Some(far.fingerprint)) };
    let mut output = open_output(&options, &control, &mut silent).unwrap();
    output.put(&bytes(300_000), &control).unwrap();
    came.recv().unwrap();
    drop(relay);
    let cut = Instant::now();
    // Data that was not acknowledged cannot be confirmed.
    let near = text(output.finish(&control));
    assert!(near.contains("nothing was heard from the peer"), "{near}");
    let there = text(far.thread.join().unwrap());
    assert!(there.contains("nothing was heard from the peer"), "{there}");
    assert!(cut.elapsed() < NOTICED, "{:?}", cut.elapsed());
}

#[test]
fn a_slow_source_or_sink_keeps_its_connection() {
    let far = there(ReliableOptions { timeout: SHORT, ..listener() }, |options, control, notify| {
        let mut input = open_input(options, control, notify).unwrap();
        thread::sleep(SHORT + SHORT / 4);
        receive(&mut *input, control)
    });
    let control = Control::new().unwrap();
    let options = ReliableOptions { timeout: SHORT, ..connector(far.address, Some(far.fingerprint)) };
    let mut output = open_output(&options, &control, &mut silent).unwrap();
    output.put(&[1], &control).unwrap();
    thread::sleep(SHORT + SHORT / 2);
    output.put(&[2], &control).unwrap();
    output.finish(&control).unwrap();
    assert_eq!(far.thread.join().unwrap().unwrap(), [1, 2]);
}

#[test]
fn nobody_there_is_an_error_in_time() {
    let unused = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let options = ReliableOptions { timeout: SHORT, ..connector(unused.local_addr().unwrap(), None) };
    let started = Instant::now();
    let said = text(open_output(&options, &Control::new().unwrap(), &mut silent));
    assert!(said.contains("nobody answered for 4 s") && said.contains(&options.to_string()), "{said}");
    assert!(started.elapsed() < NOTICED, "{:?}", started.elapsed());
}

#[test]
fn an_address_that_cannot_be_used_is_an_error() {
    let taken = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let options = ReliableOptions { port: taken.local_addr().unwrap().port(), ..listener() };
    let control = Control::new().unwrap();
    assert!(
        text(open_input(&options, &control, &mut silent)).contains("cannot listen at udp-listen:127.0.0.1:")
    );
    let nowhere = ReliableOptions {
        host: "no-such-host.invalid".into(),
        ..connector(SocketAddr::from(([127, 0, 0, 1], 9)), None)
    };
    assert!(
        text(open_input(&nowhere, &control, &mut silent))
            .contains("find the address of udp:no-such-host.invalid")
    );
}

#[test]
fn who_waits_for_a_peer_can_be_cancelled() {
    let far = there(listener(), receives);
    thread::sleep(Duration::from_millis(50));
    far.control.cancel();
    assert!(matches!(far.thread.join().unwrap(), Err(Error::Cancelled)));

    let unused = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let options = connector(unused.local_addr().unwrap(), None);
    let control = Arc::new(Control::new().unwrap());
    let canceller = cancel_soon(&control);
    let started = Instant::now();
    assert!(matches!(open_output(&options, &control, &mut silent), Err(Error::Cancelled)));
    assert!(started.elapsed() < PEER_TIMEOUT / 2);
    canceller.join().unwrap();
}

#[test]
fn a_flow_is_cancelled_in_the_middle_on_either_side() {
    // The receiver waits for data and is cancelled; its sender must learn of that.
    let (come, came) = channel();
    let far = there(listener(), move |options, control, notify| {
        let mut input = open_input(options, control, notify)?;
        input.next(&mut [0], control)?;
        come.send(()).unwrap();
        receive(&mut *input, control)
    });
    let control = Arc::new(Control::new().unwrap());
    let options = connector(far.address, Some(far.fingerprint));
    let mut output = open_output(&options, &control, &mut silent).unwrap();
    output.put(&[1], &control).unwrap();
    came.recv().unwrap();
    far.control.cancel();
    assert!(matches!(far.thread.join().unwrap(), Err(Error::Cancelled)));
    let said = text(output.finish(&control));
    assert!(said.contains("the peer gave up"), "{said}");

    // The sender waits for room and is cancelled; its receiver must learn of that.
    let (go, gone) = channel();
    let far = there(listener(), move |options, control, notify| {
        let mut input = open_input(options, control, notify).unwrap();
        gone.recv().unwrap();
        receive(&mut *input, control)
    });
    let options = connector(far.address, Some(far.fingerprint));
    let (data, mut output) = (bytes(64 << 20), open_output(&options, &control, &mut silent).unwrap());
    let canceller = cancel_soon(&control);
    assert!(matches!(send(&mut *output, &data, &control), Err(Error::Cancelled)));
    drop(output);
    canceller.join().unwrap();
    go.send(()).unwrap();
    let said = text(far.thread.join().unwrap());
    assert!(said.contains("the peer gave up"), "{said}");
}

fn cancel_soon(control: &Arc<Control>) -> JoinHandle<()> {
    let control = control.clone();
    thread::spawn(move || {
        thread::sleep(Duration::from_millis(300));
        control.cancel();
    })
}

#[test]
fn a_listener_without_an_address_takes_all_of_the_machines() {
    let options = ReliableOptions { host: String::new(), ..listener() };
    let far = there(options, receives);
    let address = far.address;
    assert!(address.ip().is_unspecified(), "{address}");
    far.control.cancel();
    assert!(matches!(far.thread.join().unwrap(), Err(Error::Cancelled)));
}
