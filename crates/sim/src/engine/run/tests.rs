//! Runs against queueing theory, and the order of what happens at one moment.

use super::*;

/// Runs an open M/G/c station: Poisson arrivals at `rate` per second, `servers` servers.
fn open(rate: f64, servers: u32, time: ServiceTime, seed: u64) -> RunResult {
    let mut net = Net::new();
    let station = net.station("server", servers);
    let request = net.script(vec![Op::BeginRequest, Op::Use { station, time }, Op::EndRequest]);
    let source = net.script(vec![
        Op::Delay(ServiceTime::exponential(1.0 / rate)),
        Op::Send { script: request },
        Op::Jump { to: 0 },
    ]);
    net.start(source, 1);
    Run::new(&net, seed).until_finished(50_000, 600_000)
}

/// Asserts that `wanted` lies in the confidence interval, widened because one interval in twenty misses
/// the mean.
fn holds(outcome: &RunResult, wanted: f64) {
    let interval = outcome.response.mean_interval();
    let wide = super::super::Interval { half_width: 1.6 * interval.half_width, ..interval };
    assert!(wide.holds(wanted) && interval.half_width < 0.1 * wanted, "{interval:?}, wanted {wanted}");
}

#[test]
fn one_server_without_memory() {
    for load in [0.3, 0.7, 0.9] {
        let outcome = open(load, 1, ServiceTime::exponential(1.0), 11);
        holds(&outcome, 1.0 / (1.0 - load));
        assert!((outcome.stations[0].utilisation - load).abs() < 0.01);
    }
}

#[test]
fn several_servers_without_memory() {
    // Erlang's C formula for 4 servers at a utilisation of 0.8 each.
    let (servers, load) = (4u32, 0.8);
    let offered = f64::from(servers) * load;
    let term = |n: u32| (1..=n).fold(1.0, |term, at| term * offered / f64::from(at));
    let waits = term(servers) / (1.0 - load);
    let waits = waits / ((0..servers).map(term).sum::<f64>() + waits);
    let outcome = open(offered, servers, ServiceTime::exponential(1.0), 12);
    holds(&outcome, 1.0 + waits / (f64::from(servers) * (1.0 - load)));
}

#[test]
fn one_server_with_any_memory() {
    // Pollaczek-Khinchine formula: W = 1 + rho (1 + c^2) / (2 (1 - rho)) for a mean service time of 1.
    let load = 0.7;
    for (time, variance) in [
        (ServiceTime::fixed(1.0), 0.0),
        (ServiceTime::Uniform(0.0, 2.0), 1.0 / 3.0),
        (ServiceTime::LogNormal((-0.5f64).exp(), 1.0), std::f64::consts::E - 1.0),
    ] {
        holds(&open(load, 1, time, 13), 1.0 + load * (1.0 + variance) / (2.0 * (1.0 - load)));
    }
}

/// Runs `servers` jobs that serve arrivals, geometric bursts of mean `burst` of them, at `rate` a second.
fn served(rate: f64, burst: f64, servers: u32, time: ServiceTime, seed: u64) -> RunResult {
    let mut net = Net::new();
    let station = net.station("server", servers);
    let server =
        net.script(vec![Op::AwaitArrival, Op::Use { station, time }, Op::EndRequest, Op::Jump { to: 0 }]);
    let source = net.script(vec![
        Op::Delay(ServiceTime::exponential(burst / rate)),
        Op::Arrive,
        Op::JumpWithProbability { chance: 1.0 - 1.0 / burst, to: 1 },
        Op::Jump { to: 0 },
    ]);
    net.start(server, servers);
    net.start(source, 1);
    Run::new(&net, seed).until_finished(30_000, 300_000)
}

const SHARES: [f64; 4] = [0.5, 0.9, 0.99, 0.999];

/// Asserts that the quantiles of `shares` agree with `tail`, the probability of a longer response time:
/// that 1.6 times their 95 % confidence intervals, which miss one in 600, contain the theory's.
fn holds_quantiles(outcome: &RunResult, shares: &[f64], tail: impl Fn(f64) -> f64) {
    for share in shares.iter().copied() {
        let (mut low, mut high) = (0.0, 1e6);
        for _ in 0..100 {
            let middle = (low + high) / 2.0;
            if tail(middle) > 1.0 - share { low = middle } else { high = middle }
        }
        let [from, to] = outcome.response.quantile_bounds(share);
        let found = outcome.response.distribution().quantile(share);
        let (from, to) = (found - 1.6 * (found - from), found + 1.6 * (to - found));
        assert!((from..=to).contains(&high), "{share}: {found} in {from} to {to}, wanted {high}");
        assert!(to - from < found, "{share}: {from} to {to}");
    }
}

#[test]
fn percentiles_of_one_server_without_memory() {
    for load in [0.3, 0.8] {
        let outcome = served(load, 1.0, 1, ServiceTime::exponential(1.0), 21);
        holds(&outcome, 1.0 / (1.0 - load));
        holds_quantiles(&outcome, &SHARES, |time| (-(1.0 - load) * time).exp());
    }
}

#[test]
fn percentiles_of_several_servers_without_memory() {
    // Erlang's C, and the sum of an exponential service and a wait that is exponential with probability C.
    let (servers, load) = (4u32, 0.8);
    let offered = f64::from(servers) * load;
    let term = |n: u32| (1..=n).fold(1.0, |term, at| term * offered / f64::from(at));
    let waits = term(servers) / (1.0 - load);
    let waits = waits / ((0..servers).map(term).sum::<f64>() + waits);
    let ends = f64::from(servers) - offered;
    let outcome = served(offered, 1.0, servers, ServiceTime::exponential(1.0), 22);
    holds(&outcome, 1.0 + waits / ends);
    holds_quantiles(&outcome, &SHARES, |time| {
        let both = (ends * (-time).exp() - (-ends * time).exp()) / (ends - 1.0);
        (1.0 - waits) * (-time).exp() + waits * both
    });
}

#[test]
fn percentiles_of_one_server_with_constant_service() {
    // Erlang's formula for the wait in M/D/1 with a service time of 1.
    let load = 0.7;
    let waits_at_most = |time: f64| {
        if time < 0.0 {
            return 0.0;
        }
        let mut factorial = 1.0;
        let terms = (0..=time.floor() as u32).map(|at| {
            factorial *= f64::from(at.max(1));
            let left = load * (time - f64::from(at));
            (-left).powi(at as i32) / factorial * left.exp()
        });
        (1.0 - load) * terms.sum::<f64>()
    };
    let outcome = served(load, 1.0, 1, ServiceTime::fixed(1.0), 23);
    holds(&outcome, 1.0 + load / (2.0 * (1.0 - load)));
    // The formula is a difference of large numbers, exact enough up to some 20 service times.
    holds_quantiles(
        &outcome,
        &SHARES,
        |time| if time > 21.0 { 0.0 } else { 1.0 - waits_at_most(time - 1.0) },
    );
}

#[test]
fn percentiles_of_one_server_with_two_kinds_of_requests() {
    // M/H2/1: the transform of the response time (Pollaczek and Khinchine) is a ratio of polynomials with
    // the roots -near and -far, hence a sum of two exponentials.
    let (rate, chance, fast, slow): (f64, f64, f64, f64) = (0.5, 0.9, 2.0, 0.2);
    let mean = chance / fast + (1.0 - chance) / slow;
    let load = rate * mean;
    let (sum, product) = (fast + slow - rate, fast * slow * (1.0 - load));
    let root = (sum * sum - 4.0 * product).sqrt();
    let (near, far) = ((sum - root) / 2.0, (sum + root) / 2.0);
    // Numerator (1 - load) (a s + b), split over the roots.
    let (a, b) = (chance * fast + (1.0 - chance) * slow, fast * slow);
    let part = |at: f64, other: f64| (1.0 - load) * (b - a * at) / (other - at);
    let mut net = Net::new();
    let station = net.station("server", 1);
    let exponential = |rate: f64| ServiceTime::exponential(1.0 / rate);
    let server = net.script(vec![
        Op::AwaitArrival,
        Op::JumpWithProbability { chance: 1.0 - chance, to: 4 },
        Op::Use { station, time: exponential(fast) },
        Op::Jump { to: 5 },
        Op::Use { station, time: exponential(slow) },
        Op::EndRequest,
        Op::Jump { to: 0 },
    ]);
    let source = net.script(vec![Op::Delay(exponential(rate)), Op::Arrive, Op::Jump { to: 0 }]);
    net.start(server, 1);
    net.start(source, 1);
    let outcome = Run::new(&net, 24).until_finished(30_000, 300_000);
    holds_quantiles(&outcome, &SHARES, |time| {
        part(near, far) / near * (-near * time).exp() + part(far, near) / far * (-far * time).exp()
    });
}

#[test]
fn bursts_are_served_as_their_formula_says() {
    // M[X]/M/1 with geometric bursts of mean b: the response time is exponential with mean b / (m - l).
    for (load, burst) in [(0.3, 4.0), (0.5, 8.0)] {
        let outcome = served(load, burst, 1, ServiceTime::exponential(1.0), 25);
        holds(&outcome, burst / (1.0 - load));
        // Long bursts are so rare that the run has few independent ones beyond 99 %.
        holds_quantiles(&outcome, &SHARES[..3], |time| (-(1.0 - load) / burst * time).exp());
    }
}

#[test]
fn a_flood_of_arrivals_ends_the_run() {
    let outcome = served(1e6, 1.0, 1, ServiceTime::fixed(10.0), 26);
    assert!(outcome.is_flooded && !outcome.is_whole);
}

#[test]
fn a_seed_is_a_run() {
    let one = |seed| {
        let outcome = open(0.5, 2, ServiceTime::exponential(1.0), seed);
        (outcome.seconds.to_bits(), outcome.response.mean_interval().mean.to_bits(), outcome.events)
    };
    assert_eq!(one(1), one(1));
    assert_ne!(one(1), one(2));
}

#[test]
fn interrupts_go_first_and_forks_are_joined() {
    let mut net = Net::new();
    let cpu = net.station("cpu", 1);
    let second = ServiceTime::fixed(1.0);
    let interrupt = net.script(vec![
        Op::Delay(ServiceTime::fixed(0.5)),
        Op::BeginRequest,
        Op::UseFirst { station: cpu, time: second },
        Op::EndRequest,
    ]);
    let other = net.script(vec![Op::Use { station: cpu, time: second }]);
    let main = net.script(vec![
        Op::BeginRequest,
        Op::Fork { script: interrupt },
        Op::Fork { script: other },
        Op::Fork { script: other },
        Op::Join,
        Op::EndRequest,
    ]);
    net.start(main, 1);
    let outcome = Run::new(&net, 1).until_finished(0, 2);
    // One of the other jobs has the processor until 1, then the interrupt, then the third job: the
    // interrupt's response time is 1.5.
    assert_eq!((outcome.finished, outcome.seconds), (2, 3.0));
    assert!((outcome.response.mean_interval().mean - 2.25).abs() < 1e-9);
    assert!(outcome.is_whole);
}

#[test]
fn what_is_seized_is_kept_until_it_is_freed() {
    let mut net = Net::new();
    let (bus, bank) = (net.station("bus", 1), net.station("bank", 2));
    let second = ServiceTime::fixed(1.0);
    let transfer = net.script(vec![
        Op::BeginRequest,
        Op::Seize(bus),
        Op::Use { station: bank, time: second },
        Op::Use { station: bank, time: second },
        Op::Free(bus),
        Op::EndRequest,
    ]);
    net.start(transfer, 3);
    let outcome = Run::new(&net, 1).until_time(Time(0), Time::from_seconds(10.0));
    assert_eq!((outcome.finished, outcome.seconds), (3, 10.0));
    let bus = &outcome.stations[0];
    assert!((bus.utilisation - 0.6).abs() < 1e-9 && (bus.waiting - 0.6).abs() < 1e-9);
    assert!((outcome.stations[1].utilisation - 0.3).abs() < 1e-9);
}

#[test]
fn closed_networks_follow_mean_value_analysis() {
    // Two balanced stations and 8 jobs: X(n) = n / (n + 1) / D.
    let mut net = Net::new();
    let stations = [net.station("a", 1), net.station("b", 1)];
    let time = ServiceTime::exponential(1.0);
    let round = net.script(vec![
        Op::BeginRequest,
        Op::Use { station: stations[0], time },
        Op::Use { station: stations[1], time },
        Op::EndRequest,
        Op::Jump { to: 0 },
    ]);
    net.start(round, 8);
    let outcome = Run::new(&net, 5).until_finished(20_000, 400_000);
    assert!((outcome.rate() / (8.0 / 9.0) - 1.0).abs() < 0.01, "{}", outcome.rate());
    holds(&outcome, 9.0);
}

#[test]
fn a_net_that_comes_to_rest_says_so() {
    let mut net = Net::new();
    let once = net.script(vec![Op::BeginRequest, Op::Delay(ServiceTime::fixed(1.0)), Op::EndRequest]);
    net.start(once, 2);
    let outcome = Run::new(&net, 1).until_finished(0, 3);
    assert!(!outcome.is_whole && outcome.finished == 2);
}
