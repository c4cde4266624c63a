//! Clients of the scheduler that join, leave and have requests in any order, with any limits.
//!
//! Failures that this looks for: a client is scheduled that has no requests, has left, or has reached a
//! limit; no client is scheduled although one of them may be; a client starves; a limit is exceeded.

#![no_main]

use arbitrary::Arbitrary;
use bywash_fuzz::Steps;
use bywash_server::schedule::{ClientKey, Error, Limits, REQUEST_CHARGE_BYTES, SHARE_MAX, Schedule};
use libfuzzer_sys::fuzz_target;

const CLIENTS: usize = 6;
/// Greatest length of a request, in bytes, as the server splits requests.
const BYTES_MAX: u64 = 16 << 20;

#[derive(Arbitrary, Debug)]
enum Step {
    Join {
        who: u8,
        share: u16,
        bytes: Option<u32>,
        requests: Option<u16>,
    },
    Leave(u8),
    Wants(u8),
    WantsNothing(u8),
    /// A number of turns, and the length of each one's request.
    Turns(u8, u32),
    /// Nanoseconds pass.
    Wait(u32),
    /// Time passes until a client may be scheduled.
    WaitForTurn,
    /// A call for a client that has left.
    Stale(u8, u8),
}

struct One {
    client: ClientKey,
    limits: Limits,
    wants: bool,
    joined: u64,
    bytes: u64,
    requests: u64,
    largest: u64,
}

fuzz_target!(|steps: Steps<Step>| {
    let mut schedule = Schedule::new();
    let mut all: [Option<One>; CLIENTS] = Default::default();
    let mut gone: Vec<ClientKey> = Vec::new();
    let mut now = 1u64;
    for step in steps {
        match step {
            Step::Join { who, share, bytes, requests } => {
                let place = &mut all[usize::from(who) % CLIENTS];
                if place.is_some() {
                    continue;
                }
                let limits = Limits {
                    // Shares are small mostly, because large ones leave few turns for others.
                    share: u32::from(if share < 60_000 { share % 8 } else { share }),
                    bytes_per_second: bytes.map(u64::from),
                    requests_per_second: requests.map(u64::from),
                };
                let nothing = bytes == Some(0) || requests == Some(0);
                match schedule.join(limits) {
                    Ok(client) => {
                        assert!((1..=SHARE_MAX).contains(&limits.share) && !nothing);
                        let joined = now;
                        *place = Some(One {
                            client,
                            limits,
                            wants: false,
                            joined,
                            bytes: 0,
                            requests: 0,
                            largest: 0,
                        });
                    }
                    Err(Error::Share(_)) => assert!(limits.share == 0 || limits.share > SHARE_MAX),
                    Err(Error::ZeroRate) => assert!(nothing),
                    Err(other) => panic!("{other}"),
                }
            }
            Step::Leave(who) => {
                if let Some(one) = all[usize::from(who) % CLIENTS].take() {
                    schedule.leave(one.client);
                    gone.push(one.client);
                }
            }
            Step::Wants(who) => {
                if let Some(one) = &mut all[usize::from(who) % CLIENTS] {
                    schedule.activate(one.client);
                    one.wants = true;
                }
            }
            Step::WantsNothing(who) => {
                if let Some(one) = &mut all[usize::from(who) % CLIENTS] {
                    schedule.deactivate(one.client);
                    one.wants = false;
                }
            }
            Step::Turns(count, bytes) => {
                for _ in 0..count {
                    turn(&mut schedule, &mut all, u64::from(bytes) % BYTES_MAX, now);
                    now += 1;
                }
            }
            Step::Wait(ns) => now += u64::from(ns),
            Step::WaitForTurn => {
                let wants = all.iter().flatten().any(|one| one.wants);
                assert_eq!(schedule.ready_at().is_some(), wants);
                if let Some(ready) = schedule.ready_at() {
                    now = now.max(ready);
                    assert!(schedule.next(now).is_some(), "nobody has a turn when somebody may");
                }
            }
            Step::Stale(which, what) => {
                let Some(client) = gone.get(usize::from(which) % gone.len().max(1)) else { continue };
                match what % 4 {
                    0 => schedule.activate(*client),
                    1 => schedule.deactivate(*client),
                    2 => schedule.charge(*client, BYTES_MAX, now),
                    _ => schedule.leave(*client),
                }
            }
        }
    }
    everybody_has_a_turn(&mut schedule, &mut all, now);
});

fn turn(schedule: &mut Schedule, all: &mut [Option<One>; CLIENTS], bytes: u64, now: u64) -> Option<usize> {
    let Some(next) = schedule.next(now) else {
        let may = schedule.ready_at().is_some_and(|ready| ready <= now);
        assert!(!may, "all are passed over, and one of them may");
        return None;
    };
    let found = all.iter().position(|one| one.as_ref().is_some_and(|one| one.client == next));
    let Some((at, Some(one))) = found.map(|at| (at, &mut all[at])) else { panic!("{next:?} is nobody") };
    assert!(one.wants, "it has a turn and wants nothing");
    schedule.charge(next, bytes, now);
    (one.bytes, one.requests, one.largest) = (one.bytes + bytes, one.requests + 1, one.largest.max(bytes));
    let seconds = (now - one.joined) as f64 / 1e9;
    // The burst that a limit allows, what has been earned since, and one request by which the client may
    // overdraw.
    let most = |rate: u64, largest: f64| rate as f64 * (0.01 + seconds) + 1.0 + largest + 1.0;
    if let Some(rate) = one.limits.bytes_per_second {
        assert!(one.bytes as f64 <= most(rate, one.largest as f64), "{} bytes in {seconds} s", one.bytes);
    }
    if let Some(rate) = one.limits.requests_per_second {
        assert!(one.requests as f64 <= most(rate, 1.0), "{} requests in {seconds} s", one.requests);
    }
    Some(at)
}

/// Checks that every client with requests and without a rate limit is scheduled in time, whatever happened
/// before: no later than others have used what pays for the largest debt.
fn everybody_has_a_turn(schedule: &mut Schedule, all: &mut [Option<One>; CLIENTS], mut now: u64) {
    for one in all.iter_mut().flatten() {
        schedule.activate(one.client);
        one.wants = true;
    }
    let mut is_waiting = |one: &Option<One>| {
        one.as_ref()
            .is_some_and(|one| one.limits == (Limits { share: one.limits.share, ..Limits::default() }))
    };
    let mut waits: Vec<bool> = all.iter().map(&mut is_waiting).collect();
    let shares: u64 = all.iter().flatten().map(|one| u64::from(one.limits.share)).sum();
    // A debt is at most 1,024 quanta of 64 KiB; each round pays one quantum for each share.
    let rounds =
        1026 * shares * (64 << 10) / (BYTES_MAX + REQUEST_CHARGE_BYTES as u64) + 2 * CLIENTS as u64 + 2;
    for _ in 0..rounds {
        if let Some(at) = turn(schedule, all, BYTES_MAX, now) {
            waits[at] = false;
        }
        now += 1;
    }
    assert!(!waits.contains(&true), "somebody has no turn in {rounds}: {waits:?}");
}
