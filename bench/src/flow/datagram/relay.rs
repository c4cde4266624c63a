//! The highest rate at which the host in the middle of three passes everything on.
//!
//! A sender in the first host sends at a rate, without looking whether anything comes; a receiver in the last one
//! counts what is missing. Both are ours and the same for all; who is in the middle differs. A rate is held when not one
//! datagram is lost in as long as buffers on the way cannot take in for a moment. Rates rise by a fixed step, and the
//! highest that is held is found by halves.

use super::super::by_hand;
use super::super::disk::{BENCH_MOVERS, BEST, GOAL_CHOICE};
use super::super::part::{Part, Stage};
use super::super::process::Door;
use super::super::rounds::{self, Frame, Metric, Outcome, Runs, Side, State, Work};
use super::super::wires::{Net, Station};
use super::BENCH;
use super::station::{Account, Telling, by_hand as hand, flow};
use crate::error::Error;
use crate::row::Row;
use bywash_flow::plan::Mover;
use bywash_support::hosts::Port;
use std::process::Command;
use std::thread;
use std::time::Duration;

/// Payload of a datagram.
const SIZE: u64 = 1400;
/// At least ten times the rate of a loop of recv(2) and send(2).
const GOAL_BY_HAND: f64 = 10.0;
const BY_HAND: &str = "recv and send";
/// Datagrams a second: the lowest, the highest, and the step between two.
const RATES: (f64, f64) = (15_000.0, 1_500_000.0);
const STEP: f64 = 1.15;
const STEP_QUICK: f64 = 4.0;
/// How long a rate is held.
const SECONDS: f64 = 1.0;
const SECONDS_QUICK: f64 = 0.2;
/// A busy machine may lose something at any rate: so often one is tried.
const TRIES: usize = 2;
/// A searched rate bears its neighbours out.
const PAIRS_MAX: u32 = 3;
/// Frames come in without anything that says that they may.
const FRAMES_READY: Duration = Duration::from_millis(200);
/// The port of ours in the header of frames.
const FRAME_PORT: u16 = 31;

/// What travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Carrier {
    Udp,
    Ethernet,
}

/// The parts: one for each carrier.
pub fn parts() -> Vec<Part> {
    let part = |what: &str, carrier, headline| Part {
        frame: Frame {
            bench: BENCH,
            what: format!("{what}: highest rate without loss through the middle of three hosts"),
            place: String::new(),
            // An outcome is how long one datagram takes at the rate.
            bytes: SIZE,
            note: format!("datagrams of {SIZE} bytes"),
        },
        kinds: Vec::new(),
        headline,
        measure: Box::new(move |stage, frame| rows(stage, frame, carrier)),
    };
    let by_hand = (Metric::Throughput, BY_HAND, Some(GOAL_BY_HAND));
    let by_mover = (Metric::Throughput, BEST, Some(GOAL_CHOICE));
    vec![part("UDP", Carrier::Udp, by_hand), part("Ethernet frames", Carrier::Ethernet, by_mover)]
}

/// Nothing is left behind in hosts.
struct Stateless;

impl State for Stateless {
    fn clear(&self) -> Result<(), Error> {
        Ok(())
    }

    fn check(&self) -> Result<(), Error> {
        Ok(())
    }
}

/// Who is in the middle.
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

/// The ends of the three programs, in words.
struct Row3 {
    carrier: Carrier,
    net: Net,
}

fn relays(carrier: Carrier) -> Vec<Relay> {
    use Mover::{Batch, Offload, Ring, Single, Xdp, XdpRedirect};
    let movers: &[Mover] = match carrier {
        Carrier::Udp => &[Single, Batch, Offload],
        Carrier::Ethernet => &[Single, Batch, Ring, Xdp, XdpRedirect],
    };
    let by_hand = (carrier == Carrier::Udp).then_some(Relay::ByHand);
    let forced = movers.iter().map(|mover| Relay::Ours(Some(*mover)));
    std::iter::once(Relay::Ours(None)).chain(by_hand).chain(forced).collect()
}

fn rows(stage: &Stage<'_>, frame: &Frame, carrier: Carrier) -> Result<Vec<Row>, Error> {
    let row = Row3 { carrier, net: Net::hosts(3)? };
    let relays = relays(carrier);
    let (step, seconds) = if stage.quick { (STEP_QUICK, SECONDS_QUICK) } else { (STEP, SECONDS) };
    let sides: Vec<Side<'_>> = relays
        .iter()
        .map(|relay| {
            let row = &row;
            Side::new(relay.name(), move || {
                let rate = highest(&rates(step), |rate| row.holds(*relay, rate, seconds))?;
                Ok(Outcome { seconds: SIZE as f64 / rate, ..Outcome::default() })
            })
        })
        .collect();
    let work = Work { state: &Stateless, repeats: 1, pairs: stage.pairs.min(PAIRS_MAX) };
    let runs = rounds::run(sides, &work)?;
    Ok(rows_of(frame, &runs, &relays))
}

fn rows_of(frame: &Frame, runs: &[Runs], relays: &[Relay]) -> Vec<Row> {
    let (ours, peers) = (&runs[0], &runs[1..]);
    let forced: Vec<&Runs> = peers
        .iter()
        .zip(&relays[1..])
        .filter(|(_, relay)| **relay != Relay::ByHand)
        .map(|(run, _)| run)
        .collect();
    let mut rows: Vec<Row> = Vec::new();
    for (peer, relay) in peers.iter().zip(&relays[1..]) {
        let (bench, goal) = match relay {
            Relay::ByHand => (frame.bench, Some(GOAL_BY_HAND)),
            Relay::Ours(_) => (BENCH_MOVERS, None),
        };
        rows.push(Frame { bench, ..frame.clone() }.row(Metric::Throughput, ours, peer, goal));
    }
    rows.extend(frame.row_of_best(Metric::Throughput, ours, &forced, BEST, Some(GOAL_CHOICE)));
    rows
}

/// Payload bytes a second, from the lowest to the highest.
fn rates(step: f64) -> Vec<f64> {
    let all = std::iter::successors(Some(RATES.0), |rate| Some(rate * step));
    all.take_while(|rate| *rate <= RATES.1).map(|rate| rate * SIZE as f64).collect()
}

/// The highest of `rates` that `holds`, as it was reached; half of the lowest if none does.
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

impl Row3 {
    /// The rate that was reached, if nothing was lost at `rate`.
    fn holds(&self, relay: Relay, rate: f64, seconds: f64) -> Result<Option<f64>, Error> {
        for _ in 0..TRIES {
            let (sent, received) = self.try_rate(relay, rate, seconds)?;
            if received.packets_lost == 0 && received.bytes_missing == 0 && received.bytes >= sent.bytes {
                return Ok(Some((sent.bytes as f64 / sent.seconds).min(rate)));
            }
        }
        Ok(None)
    }

    /// Sends at `rate` through `relay`; answers what the sender and the receiver say.
    fn try_rate(&self, relay: Relay, rate: f64, seconds: f64) -> Result<(Account, Account), Error> {
        let net = &self.net;
        let [from, here, there, to] = self.words()?;
        let mut receiver =
            Telling::start(flow(&[], &to, "null:")?, |command| net.start(Station::Last, command))?;
        let mut middle =
            Telling::start(self.relay(relay, &here, &there)?, |command| net.start(Station::Middle, command))?;
        match self.carrier {
            Carrier::Udp => {
                receiver.process().listens(Door::Udp, net.last()?.port())?;
                middle.process().listens(Door::Udp, net.middle()?.port())?;
            }
            Carrier::Ethernet => thread::sleep(FRAMES_READY),
        }
        let limit = (rate * seconds) as u64;
        let flags = [format!("--rate={}", rate as u64), format!("--limit={limit}")];
        let sender =
            Telling::start(flow(&flags, "zero:", &from)?, |command| net.start(Station::First, command))?;
        let sent = Account::of(&sender.told()?)?;
        let received = Account::of(&receiver.told()?)?;
        middle.end()?;
        Ok((sent, received))
    }

    /// Where the sender sends to, where the relay listens, where it sends to, and where the receiver listens.
    fn words(&self) -> Result<[String; 4], Error> {
        let (Carrier::Ethernet, Net::Hosts(hosts)) = (self.carrier, &self.net) else {
            let (middle, last) = (self.net.middle()?, self.net.last()?);
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

    fn relay(&self, relay: Relay, here: &str, there: &str) -> Result<Command, Error> {
        match relay {
            Relay::Ours(via) => {
                let via: Vec<String> = via.map(|mover| format!("--via={mover}")).into_iter().collect();
                flow(&via, here, there)
            }
            Relay::ByHand => {
                let (here, there) = (self.net.middle()?.to_string(), self.net.last()?.to_string());
                hand(by_hand::Part::ForwardDatagrams, &here, &there, 0)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
