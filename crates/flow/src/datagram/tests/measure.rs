//! Figures, not checks: run by name with `--ignored --nocapture`, in a release build.
//!
//! A relay stands between two hosts. Its sender sends at a rate, without looking for reports; a rate is held when nothing is
//! lost.

use super::by_hand::Loop;
use super::*;
use crate::datagram::engine::Engine;
use crate::datagram::options::Rate;
use bywash_hosts::{Hosts, MTU};
use std::time::Instant;

const SIZE: usize = 1400;
/// How long a rate is held: what buffers on the way take in for a moment does not count.
const SECONDS: f64 = 2.0;
const ROUNDS: usize = 3;
/// Thousands of packets a second.
const RATES: [f64; 14] =
    [30.0, 45.0, 60.0, 80.0, 100.0, 150.0, 200.0, 300.0, 450.0, 600.0, 800.0, 1000.0, 1250.0, 1500.0];

/// Lost packets of how many at a rate (packets a second).
fn loss(
    hosts: &Hosts,
    relay: Option<(&Place, &Place)>,
    ends: (&Place, &Place),
    kpps: f64,
    buffer: &[u8],
) -> (u64, u64, f64) {
    let by_hand = relay.is_none().then(|| {
        let from = (hosts.middle().ports()[0].address, 7301).into();
        Loop::start(hosts.middle(), from, (hosts.last().address(), 7301).into())
    });
    let relay = relay.map(|(from, to)| pass_on(hosts.middle(), from, to, RelayOptions::default()));
    let receiver = drain(hosts.last(), ends.1);
    let rate = Rate::Fixed((kpps * 1000.0 * SIZE as f64) as u64);
    let sender = match ends.0 {
        Place::Udp(options) => Place::Udp(UdpOptions { rate, size: Some(SIZE), ..options.clone() }),
        Place::Eth(options) => Place::Eth(EthOptions { rate, size: Some(SIZE), ..options.clone() }),
    };
    let bytes = (kpps * 1000.0 * SIZE as f64 * SECONDS) as usize;
    let (control, ledger) = (Control::new().unwrap(), Ledger::default());
    let mut took = 0.0;
    hosts.first().run(|| {
        let mut output = open_output(&sender, ledger.clone()).unwrap();
        let begin = Instant::now();
        let mut left = bytes;
        while left > 0 {
            let part = left.min(buffer.len());
            output.put(&buffer[..part], &control).unwrap();
            left -= part;
        }
        took = begin.elapsed().as_secs_f64();
        let _ = output.finish(&control);
    });
    let account = receiver.end().account;
    relay.map(Running::stop);
    by_hand.into_iter().for_each(Loop::stop);
    (account.lost, account.packets_sent.max(1), account.packets_sent as f64 / took / 1000.0)
}

/// Receives without keeping anything.
fn drain(host: &Host, place: &Place) -> Running {
    let ledger = Ledger::default();
    let mut input = host.run(|| open_input(place, ledger.clone())).unwrap();
    let mut running = Running::new(move |control, _| {
        let mut room = vec![0; BLOCK];
        loop {
            match input.next(&mut room, control) {
                Ok([]) => return (Vec::new(), Ok(())),
                Ok(_) => {}
                Err(error) => return (Vec::new(), Err(error)),
            }
        }
    });
    running.ledger = ledger;
    running
}

/// The highest rate (thousands of packets a second) with at most so many lost of a million.
fn highest(lost_of_million: u64, mut loss: impl FnMut(f64) -> (u64, u64, f64)) -> f64 {
    let mut best: f64 = 0.0;
    for kpps in RATES {
        // A busy machine may lose some at any rate: twice is needed.
        let holds = (0..2).any(|_| {
            let (lost, sent, reached) = loss(kpps);
            let holds = lost * 1_000_000 <= sent * lost_of_million;
            println!("    {kpps:>6} kpps asked, {reached:>7.1} reached: {lost} of {sent} lost");
            if holds {
                best = best.max(reached.min(kpps));
            }
            holds
        });
        if !holds {
            break;
        }
    }
    best
}

#[test]
#[ignore = "a figure, which takes a minute"]
fn relays() {
    let hosts = Hosts::three(MTU);
    let [left, right] = hosts.middle().ports() else { panic!("two ports") };
    let last = hosts.last().port();
    let buffer = data(1400 * 46 * 16, 41);
    for round in 0..ROUNDS {
        let ends = (Place::Udp(udp(left, 7301)), Place::Udp(udp(last, 7301)));
        let kpps = highest(0, |kpps| loss(&hosts, None, (&ends.0, &ends.1), kpps, &buffer));
        println!("round {round}: udp by hand: {kpps:.0} kpps without loss");
        for engine in [Engine::Single, Engine::Batch, Engine::Offload] {
            let by = |options: UdpOptions| Place::Udp(UdpOptions { engine: Some(engine), ..options });
            let (from, to) = (by(udp(left, 7301)), by(udp(last, 7301)));
            let ends = (Place::Udp(udp(left, 7301)), Place::Udp(udp(last, 7301)));
            let kpps = highest(0, |kpps| loss(&hosts, Some((&from, &to)), (&ends.0, &ends.1), kpps, &buffer));
            println!("round {round}: udp {engine:?}: {kpps:.0} kpps without loss");
        }
        for engine in [Engine::Single, Engine::Ring] {
            let by = |options: EthOptions| Place::Eth(EthOptions { engine: Some(engine), ..options });
            let (from, to) = (by(eth(left, 31)), by(eth_to(right, last, 31)));
            let ends = (Place::Eth(eth_to(hosts.first().port(), left, 31)), Place::Eth(eth(last, 31)));
            let kpps = highest(0, |kpps| loss(&hosts, Some((&from, &to)), (&ends.0, &ends.1), kpps, &buffer));
            println!("round {round}: eth {engine:?}: {kpps:.0} kpps without loss");
        }
    }
}

#[test]
#[ignore = "a figure, which takes a minute"]
fn four_hundred_megabytes_at_the_rate_that_was_found() {
    let buffer = data(1 << 20, 42);
    for round in 0..ROUNDS {
        let hosts = Hosts::three(MTU);
        let (left, last) = (&hosts.middle().ports()[0], hosts.last().port());
        for engine in [Engine::Offload, Engine::Single] {
            let by = |options: UdpOptions| {
                Place::Udp(UdpOptions { engine: Some(engine), size: Some(SIZE), ..options })
            };
            let relay =
                pass_on(hosts.middle(), &by(udp(left, 7302)), &by(udp(last, 7302)), RelayOptions::default());
            let receiver = drain(hosts.last(), &by(udp(last, 7302)));
            let sender = by(UdpOptions { rate: Rate::Auto, ..udp(left, 7302) });
            let (control, ledger) = (Control::new().unwrap(), Ledger::default());
            let begin = Instant::now();
            let result = hosts.first().run(|| {
                let mut output = open_output(&sender, ledger.clone()).unwrap();
                (0..400)
                    .try_for_each(|_| output.put(&buffer, &control))
                    .and_then(|()| output.finish(&control))
            });
            let took = begin.elapsed().as_secs_f64();
            let (sent, received) = (ledger.read(), receiver.end().account);
            let probing = sent.probing.unwrap_or_default();
            println!(
                "round {round}: {engine:?}: {:?}; {} steps, {:.0} MB/s chosen, {:.0} at the end; {took:.2} s in all; lost {}, drops {}, relay's {}",
                result.map_err(|error| error.to_string()),
                probing.steps.len(),
                probing.rate_chosen as f64 / 1e6,
                probing.rate_last as f64 / 1e6,
                received.lost,
                received.kernel_drops,
                relay.stop().account.kernel_drops,
            );
        }
    }
}

/// CPU seconds of this process and of the kernel's threads for packets, which work for others too.
fn cpu_seconds() -> f64 {
    let ticks = |stat: String| -> f64 {
        // Behind the name in brackets; user and system time, in ticks of 10 ms.
        let words: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
        words[11..13].iter().map(|word| word.parse::<f64>().unwrap()).sum()
    };
    let stats = std::fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let stat = std::fs::read_to_string(entry.unwrap().path().join("stat")).ok()?;
        stat.contains("(ksoftirqd/").then(|| ticks(stat))
    });
    (stats.sum::<f64>() + ticks(std::fs::read_to_string("/proc/self/stat").unwrap())) / 100.0
}

/// The engines of a relay between Ethernet devices.
const RELAYS: [Engine; 5] = [Engine::Single, Engine::Batch, Engine::Ring, Engine::Xdp, Engine::XdpRedirect];

/// Runs a measurement for each of them.
fn for_each_relay(mut figure: impl FnMut(usize, Engine, &mut dyn FnMut(f64) -> (u64, u64, f64))) {
    let hosts = Hosts::three(MTU);
    let [left, right] = hosts.middle().ports() else { panic!("two ports") };
    let last = hosts.last().port();
    let buffer = data(1400 * 46 * 16, 43);
    let ends = (Place::Eth(eth_to(hosts.first().port(), left, 33)), Place::Eth(eth(last, 33)));
    for round in 0..ROUNDS {
        for engine in RELAYS {
            let by = |options: EthOptions| Place::Eth(EthOptions { engine: Some(engine), ..options });
            let (from, to) = (by(eth(left, 33)), by(eth_to(right, last, 33)));
            figure(round, engine, &mut |kpps| {
                loss(&hosts, Some((&from, &to)), (&ends.0, &ends.1), kpps, &buffer)
            });
        }
    }
}

#[test]
#[ignore = "a figure, which takes minutes"]
fn ethernet_relays() {
    for_each_relay(|round, engine, loss| {
        let kpps = highest(0, loss);
        println!("round {round}: eth {engine:?}: {kpps:.0} kpps without loss");
    });
}

#[test]
#[ignore = "a figure, which takes a minute"]
fn what_ethernet_relays_cost() {
    const KPPS: f64 = 60.0;
    for_each_relay(|round, engine, loss| {
        let before = cpu_seconds();
        let (lost, sent, reached) = loss(KPPS);
        let cost = (cpu_seconds() - before) / (sent as f64 * SIZE as f64 / 1e9);
        println!(
            "round {round}: eth {engine:?}: {cost:.2} CPU s/GB of all three hosts at {reached:.0} kpps, {lost} of {sent} lost"
        );
    });
}
