//! Highest rate at which the middle one of three hosts passes all datagrams or frames on.
//!
//! A sender in the first host sends at a rate, whatever arrives; a receiver in the last one counts what is missing. Both
//! are ours and the same on all sides; the program in the middle differs. A rate is held if no datagram is lost in a time
//! that is too long for buffers on the way to hide a loss. Rates rise by a fixed step, and the highest that is held is
//! found by bisection.

use super::Figure::Throughput;
use super::transfer::{Net, Protocol, Transfer, reported};
use super::{BEST_MOVER, GOAL_CHOICE, Goal, Group, Needing, Outcome, Peer, Stage, case};
use crate::engine::Side;
use crate::error::Error;
use crate::row::Row;
use bywash_flow::plan::Mover;
use bywash_support::hosts::Port;

/// Payload of a datagram, in bytes.
const SIZE: u64 = 1400;
/// Goals, the first one against a loop of recv(2) and send(2).
const GOALS: [Goal; 2] = [(BY_HAND.0, Throughput, Some(10.0)), (BEST_MOVER, Throughput, Some(GOAL_CHOICE))];
const BY_HAND: (&str, &str) = ("recv and send", "bywash bench peer flow forward-datagrams {at} {next} 0");
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
/// Port in our header of frames.
const FRAME_PORT: u16 = 31;

/// Kind of packets, with the movers that can pass them on.
type Carrier = (&'static str, Protocol, &'static [Mover]);

const CARRIERS: [Carrier; 2] = [
    ("UDP", Protocol::Udp, &[Mover::Single, Mover::Batch, Mover::Offload]),
    (
        "Ethernet frames",
        Protocol::Ethernet,
        &[Mover::Single, Mover::Batch, Mover::Ring, Mover::Xdp, Mover::XdpRedirect],
    ),
];

pub(super) fn cases() -> Vec<Needing> {
    let of = |carrier: Carrier| {
        let what = format!("{}: highest rate without loss through the middle of three hosts", carrier.0);
        let head = Row::head("flow/datagram", &what, "");
        let head = Row { note: format!("datagrams of {SIZE} bytes"), ..head };
        let goal = GOALS[usize::from(carrier.1 != Protocol::Udp)];
        case(&[], &head, goal, move |stage, head| measure(stage, head, carrier))
    };
    CARRIERS.map(of).into()
}

fn measure(stage: &Stage, head: &Row, (_, protocol, movers): Carrier) -> Result<Vec<Row>, Error> {
    let net = Net::hosts(3)?;
    let endpoints = endpoints(&net, protocol)?;
    let (step, seconds) = if stage.quick { (STEP_QUICK, SECONDS_QUICK) } else { (STEP, SECONDS) };
    let search = |relay: &str| {
        let trial = |rate| holds(&net, protocol, &endpoints, relay, rate, seconds);
        Ok(Outcome { bytes: highest(&rates(step), trial)?, seconds: 1.0, ..Outcome::default() })
    };
    let side = |name: &str, relay: String| {
        let (search, first) = (&search, relay.clone());
        let warm_up = move || if stage.quick { Ok(()) } else { search(&first).map(drop) };
        Side::new(name, move || search(&relay)).warm_up(warm_up)
    };
    let flow = |via: &str| format!("bywash flow {via} {} {}", endpoints[1], endpoints[2]);
    let mut peers: Vec<Peer> = vec![(Group::Ours, side("bywash", flow("")))];
    if protocol == Protocol::Udp {
        peers.push((Group::Programs, side(BY_HAND.0, BY_HAND.1.into())));
    }
    for via in movers.iter().map(Mover::to_string) {
        peers.push((Group::Movers, side(&via, flow(&format!("--via={via}")))));
    }
    let contest = stage.contest(stage.rounds.min(ROUNDS_MAX), u64::MAX, peers)?;
    Ok(contest.rows(head, &[Throughput], &GOALS))
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
fn holds(
    net: &Net,
    protocol: Protocol,
    [to, .., from]: &[String; 4],
    relay: &str,
    rate: f64,
    seconds: f64,
) -> Result<Option<f64>, Error> {
    let (rate_of_flow, limit) = (rate as u64, (rate * seconds) as u64);
    let sender = format!("bywash flow --json --rate={rate_of_flow} --limit={limit} zero: {to}");
    let receiver = format!("bywash flow --json {from} null:");
    for _ in 0..TRIES {
        let (lines, values) = ([sender.as_str(), relay, &receiver], Vec::new());
        let [sent, received] = net.run(&Transfer { protocol, lines, is_told: true, values })?.told;
        let [bytes, arrived] = [&sent, &received].map(|text| reported::<u64>(text, "/bytes"));
        let bytes = bytes?;
        let counted = |text, member| reported::<u64>(text, &format!("/pieces/0/datagrams/0/{member}"));
        // A sender that has not counted has failed.
        counted(&sent, "lost")?;
        let missing = counted(&received, "lost")? + counted(&received, "missing_bytes")?;
        if missing == 0 && arrived? >= bytes {
            return Ok(Some((bytes as f64 / reported::<f64>(&sent, "/seconds")?).min(rate)));
        }
    }
    Ok(None)
}

/// Endpoints of the sender's sink, of the relay's source and sink, and of the receiver's source.
fn endpoints(net: &Net, protocol: Protocol) -> Result<[String; 4], Error> {
    let (Protocol::Ethernet, Some(hosts)) = (protocol, &net.0) else {
        let first = format!("udp:{{at}},sequenced,size={SIZE}");
        let last = "udp-listen:{at},sequenced".into();
        return Ok([first, "udp-listen:{at}".into(), "udp:{next}".into(), last]);
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
