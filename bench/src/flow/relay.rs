//! Highest rate at which the middle one of three hosts passes all datagrams or frames on.
//!
//! A sender in the first host sends at a rate, whatever arrives; a receiver in the last one counts what is missing. Both
//! are ours and the same on all sides; the program in the middle differs. A rate is held if no datagram is lost in a time
//! that is too long for buffers on the way to hide a loss. Rates rise by a fixed step, and the highest that is held is
//! found by bisection.

use super::by_hand::FORWARD_DATAGRAMS;
use super::net::{Net, Ready, Station, Stop, Transfer};
use super::process::{self, Protocol};
use super::{BEST, GOAL_CHOICE, MOVERS, Needing, Stage, row_of_best};
use crate::campaign::Declared;
use crate::engine::{Metric, Rounds, Runs, Side};
use crate::error::Error;
use crate::row::Row;
use bywash_flow::plan::Mover;
use bywash_support::hosts::Port;
use std::time::Duration;

/// Payload of a datagram, in bytes.
const SIZE: u64 = 1400;
/// Goal against a loop of recv(2) and send(2).
const GOAL_BY_HAND: f64 = 10.0;
const BY_HAND: &str = "recv and send";
/// Lowest and highest rate, in datagrams a second, and the factor between two.
const RATES: (f64, f64) = (15_000.0, 1_500_000.0);
const STEP: f64 = 1.15;
const STEP_QUICK: f64 = 4.0;
/// Time for which a rate has to be held, in seconds.
const SECONDS: f64 = 1.0;
const SECONDS_QUICK: f64 = 0.2;
/// Trials of a rate: a busy machine may lose a datagram at any rate.
const TRIES: usize = 2;
/// Greatest number of rounds: the rates that a search tries confirm one another.
const ROUNDS_MAX: u32 = 3;
/// Time until frames are received; no table of the kernel shows it.
const FRAMES_READY: Duration = Duration::from_millis(200);
/// Port in our header of frames.
const FRAME_PORT: u16 = 31;

/// Kind of packets, with the movers that can pass them on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Carrier {
    name: &'static str,
    is_udp: bool,
    movers: &'static [Mover],
}

const UDP: Carrier =
    Carrier { name: "UDP", is_udp: true, movers: &[Mover::Single, Mover::Batch, Mover::Offload] };
const FRAMES: Carrier = Carrier {
    name: "Ethernet frames",
    is_udp: false,
    movers: &[Mover::Single, Mover::Batch, Mover::Ring, Mover::Xdp, Mover::XdpRedirect],
};

/// Program in the middle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Relay {
    Ours(Option<Mover>),
    ByHand,
}

impl Relay {
    fn name(self) -> String {
        match self {
            Relay::Ours(None) => "bywash".into(),
            Relay::Ours(Some(mover)) => mover.to_string(),
            Relay::ByHand => BY_HAND.into(),
        }
    }
}

/// Report of an end of datagrams.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Account {
    /// Payload that was sent or received, in bytes.
    pub bytes: u64,
    pub seconds: f64,
    /// Datagrams that did not arrive, of those that the sender has reported.
    pub lost: u64,
    pub bytes_missing: u64,
}

impl Account {
    /// Parses what `bywash flow --json` printed.
    pub fn parse(text: &str) -> Result<Account, Error> {
        let failed = |how: String| Error::failed("bywash flow", how);
        let report: serde_json::Value = serde_json::from_str(text)
            .map_err(|error| failed(format!("printed '{}', which is no JSON: {error}", text.trim())))?;
        let end = &report["pieces"][0]["datagrams"][0];
        let number = |name: &str| {
            end[name].as_u64().ok_or_else(|| {
                failed(format!("does not report {name}: {}", report["error"].as_str().unwrap_or("no reason")))
            })
        };
        Ok(Account {
            bytes: report["bytes"].as_u64().unwrap_or(0),
            seconds: report["seconds"].as_f64().unwrap_or(0.0),
            lost: number("lost")?,
            bytes_missing: number("missing_bytes")?,
        })
    }
}

pub(super) fn cases() -> Vec<Needing> {
    let case = |carrier: Carrier| {
        let what = format!("{}: highest rate without loss through the middle of three hosts", carrier.name);
        let head =
            Row { note: format!("datagrams of {SIZE} bytes"), ..Row::head("flow/datagram", &what, "") };
        let (peer, goal) = if carrier.is_udp { (BY_HAND, GOAL_BY_HAND) } else { (BEST, GOAL_CHOICE) };
        let head = throughput().head(&head, peer, Some(goal));
        (Vec::new(), Declared::new(head, move |stage, head| measure(stage, head, carrier)))
    };
    [UDP, FRAMES].map(case).into()
}

fn throughput() -> Metric<'static, f64> {
    Metric::rate("throughput", "B/s", |rate: &f64| *rate)
}

fn relays(carrier: Carrier) -> Vec<Relay> {
    let by_hand = carrier.is_udp.then_some(Relay::ByHand);
    let forced = carrier.movers.iter().map(|mover| Relay::Ours(Some(*mover)));
    std::iter::once(Relay::Ours(None)).chain(by_hand).chain(forced).collect()
}

fn measure(stage: &Stage, head: &Row, carrier: Carrier) -> Result<Vec<Row>, Error> {
    let net = Net::hosts(3)?;
    let relays = relays(carrier);
    let (step, seconds) = if stage.quick { (STEP_QUICK, SECONDS_QUICK) } else { (STEP, SECONDS) };
    let search = |relay| highest(&rates(step), |rate| holds(&net, carrier, relay, rate, seconds));
    let side = |relay: &Relay| {
        let relay = *relay;
        let warm_up = move || if stage.quick { Ok(()) } else { search(relay).map(drop) };
        Side::new(relay.name(), move || search(relay)).warm_up(warm_up)
    };
    let rounds = Rounds::new(stage.rounds.min(ROUNDS_MAX)).limited();
    let runs = rounds.run(relays.iter().map(side).collect())?;
    Ok(rows_of(head, &runs, &relays))
}

fn rows_of(head: &Row, runs: &[Runs<f64>], relays: &[Relay]) -> Vec<Row> {
    let (ours, metric) = (&runs[0], throughput());
    let peers = || runs.iter().zip(relays).skip(1);
    let row = |(peer, relay): (&Runs<f64>, &Relay)| match relay {
        Relay::ByHand => metric.row(head, ours, peer, Some(GOAL_BY_HAND)),
        Relay::Ours(_) => metric.row(&Row { bench: MOVERS.into(), ..head.clone() }, ours, peer, None),
    };
    let mut rows: Vec<Row> = peers().map(row).collect();
    let forced = peers().filter(|(_, relay)| **relay != Relay::ByHand).map(|(peer, _)| peer);
    rows.extend(row_of_best(&metric, head, ours, forced, BEST, Some(GOAL_CHOICE)));
    rows
}

/// Rates from the lowest to the highest, in payload bytes a second.
fn rates(step: f64) -> Vec<f64> {
    let all = std::iter::successors(Some(RATES.0), |rate| Some(rate * step));
    all.take_while(|rate| *rate <= RATES.1).map(|rate| rate * SIZE as f64).collect()
}

/// Finds the highest of `rates` that `holds`, and returns the rate that was reached; half of the lowest if none holds.
fn highest(rates: &[f64], mut holds: impl FnMut(f64) -> Result<Option<f64>, Error>) -> Result<f64, Error> {
    let (mut low, mut high) = (0, rates.len());
    let mut best = rates[0] / 2.0;
    while low < high {
        let middle = usize::midpoint(low, high);
        match holds(rates[middle])? {
            Some(reached) => (best, low) = (f64::max(best, reached), middle + 1),
            None => high = middle,
        }
    }
    Ok(best)
}

/// Returns the rate that was reached if nothing was lost at `rate`.
fn holds(net: &Net, carrier: Carrier, relay: Relay, rate: f64, seconds: f64) -> Result<Option<f64>, Error> {
    for _ in 0..TRIES {
        let [sent, received] = try_rate(net, carrier, relay, rate, seconds)?;
        if received.lost == 0 && received.bytes_missing == 0 && received.bytes >= sent.bytes {
            return Ok(Some((sent.bytes as f64 / sent.seconds).min(rate)));
        }
    }
    Ok(None)
}

/// Sends at `rate` through `relay`; returns the reports of the sender and the receiver.
fn try_rate(
    net: &Net,
    carrier: Carrier,
    relay: Relay,
    rate: f64,
    seconds: f64,
) -> Result<[Account; 2], Error> {
    let [from, here, there, to] = endpoints(net, carrier)?;
    let (middle, last) = (net.address(Station::Middle)?, net.address(Station::Last)?);
    let relay = match relay {
        Relay::Ours(via) => process::flow(via.map(|mover| format!("--via={mover}")), here, there)?,
        Relay::ByHand => process::by_hand(FORWARD_DATAGRAMS, &middle.to_string(), &last.to_string(), 0)?,
    };
    let limit = (rate * seconds) as u64;
    let flags = ["--json".to_owned(), format!("--rate={}", rate as u64), format!("--limit={limit}")];
    let done = net.run(Transfer {
        ready: if carrier.is_udp { Ready::Listens(Protocol::Udp) } else { Ready::After(FRAMES_READY) },
        receiver: (process::flow(["--json"], to, "null:")?, last.port()),
        middle: Some((relay, middle.port(), Stop::WhenTold)),
        sender: process::flow(flags, "zero:", from)?,
        is_telling: true,
    })?;
    Ok([Account::parse(&done.sender.stdout)?, Account::parse(&done.receiver.stdout)?])
}

/// Endpoints of the sender's sink, of the relay's source and sink, and of the receiver's source.
fn endpoints(net: &Net, carrier: Carrier) -> Result<[String; 4], Error> {
    let (false, Some(hosts)) = (carrier.is_udp, net.row()) else {
        let (middle, last) = (net.address(Station::Middle)?, net.address(Station::Last)?);
        return Ok([
            format!("udp:{middle},sequenced,size={SIZE}"),
            format!("udp-listen:{middle}"),
            format!("udp:{last}"),
            format!("udp-listen:{last},sequenced"),
        ]);
    };
    let to = |from: &Port, to: &Port| format!("eth:{},to={},port={FRAME_PORT}", from.interface, to.mac);
    let listen = |at: &Port| format!("eth-listen:{},port={FRAME_PORT}", at.interface);
    let [left, right] = hosts.middle().ports() else {
        return Err(Error::failed("the host in the middle", "has not two ports".into()));
    };
    let first = format!("{},size={SIZE}", to(hosts.first().port(), left));
    Ok([first, listen(left), to(right, hosts.last().port()), listen(hosts.last().port())])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_parsed() {
        let text = r#"{"bytes": 9, "seconds": 0.5, "error": null, "pieces": [{"datagrams":
            [{"packets_sent": 3, "lost": 1, "missing_bytes": 4}]}]}"#;
        let wanted = Account { bytes: 9, seconds: 0.5, lost: 1, bytes_missing: 4 };
        assert_eq!(Account::parse(text).unwrap(), wanted);
        let refused = Account::parse(r#"{"pieces": [], "error": "nobody answers"}"#).unwrap_err().to_string();
        assert!(refused.contains("nobody answers"), "{refused}");
        assert!(Account::parse("").is_err());
    }

    #[test]
    fn the_highest_rate_that_is_held_is_found() {
        let rates = rates(STEP);
        assert!(rates.len() > 20 && rates.windows(2).all(|two| two[0] < two[1]));
        for limit in [rates[0] / 2.0, rates[0], rates[7] + 1.0, 1e12] {
            let mut tried = 0;
            let found = highest(&rates, |rate| {
                tried += 1;
                Ok((rate <= limit).then_some(rate))
            })
            .unwrap();
            let wanted = rates.iter().rfind(|rate| **rate <= limit).copied().unwrap_or(rates[0] / 2.0);
            assert_eq!(found, wanted);
            assert!(tried <= 6, "{tried}");
        }
    }
}
