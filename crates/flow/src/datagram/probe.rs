//! Finds the rate of `--rate auto` by sending padding and asking what came of it.
//!
//! Invariant: no byte of the data is sent here; a step ends when the receiver has answered for it, so that
//! the next finds the way empty. A step passes if nothing was lost *and* the receiver saw the packets at the
//! rate at which they were sent: else a queue on the way only hides that the rate is too high. Called by
//! [`super::sender`].

use super::accounting::{Probing, Step};
use super::layout::{PacketKind, Report};
use super::search::Search;
use super::voice::Voice;
use crate::control::Control;
use crate::error::Error;
use crate::rate_limiter::RateLimiter;
use std::time::{Duration, Instant};

/// How long somebody is waited for who answers at all, and how often he is asked.
const GREETING_WAIT: Duration = Duration::from_secs(3);
const GREETING_EVERY: Duration = Duration::from_millis(100);
/// The same for the answer about a step.
const ANSWER_WAIT: Duration = Duration::from_secs(1);
const ANSWER_EVERY: Duration = Duration::from_millis(20);
/// Fewest packets of a step.
const PACKETS_MIN: u64 = 20;
/// By how much the packets may be stretched on the way: by a part of the time, and by a late wake-up.
const STRETCH: f64 = 1.12;
const STRETCH_TIME: Duration = Duration::from_millis(3);

/// Finds a rate for payloads of `size` bytes.
///
/// # Errors
/// That nobody answers, that the flow was cancelled, or what the kernel says.
pub(crate) fn probe(voice: &mut Voice, size: usize, control: &Control) -> Result<Probing, Error> {
    greet(voice, control)?;
    let mut probing = Probing::default();
    let mut search = Search::new();
    // Numbered from 1: step 0 was the greeting.
    let mut number = 1;
    while let Some((rate, time)) = search.next() {
        let step = step(voice, number, (rate, time), size, control)?;
        search.note(step.passed, step.rate_sent as f64);
        probing.steps.push(step);
        number += 1;
    }
    probing.rate_chosen = search.chosen();
    probing.rate_last = probing.rate_chosen;
    Ok(probing)
}

fn greet(voice: &mut Voice, control: &Control) -> Result<(), Error> {
    match ask(voice, 0, 0, (GREETING_WAIT, GREETING_EVERY), control)? {
        Some(_) => Ok(()),
        None => Err(Error::Lost(format!(
            "{}: nobody answers; a rate can only be found with a receiver that is there and reads sequenced packets",
            voice.port.label()
        ))),
    }
}

/// Asks for the report about a step until it is there.
fn ask(
    voice: &mut Voice,
    number: u64,
    packets: u64,
    (wait, every): (Duration, Duration),
    control: &Control,
) -> Result<Option<Report>, Error> {
    let until = Instant::now() + wait;
    while Instant::now() < until {
        voice.tell(PacketKind::Ask, packets, number, control)?;
        let again = Instant::now() + every;
        while Instant::now() < again {
            voice.listen(again, control)?;
            let answer = voice.heard().probe.filter(|report| u64::from(report.step) == number);
            if answer.is_some() {
                return Ok(answer);
            }
        }
    }
    Ok(None)
}

/// Sends padding at a rate for a time.
fn step(
    voice: &mut Voice,
    number: u64,
    (rate, time): (f64, Duration),
    size: usize,
    control: &Control,
) -> Result<Step, Error> {
    let packets = ((rate * time.as_secs_f64() / size as f64) as u64).max(PACKETS_MIN);
    let mut pace = RateLimiter::new(Some(rate as u64));
    let at_once = pace.pieces(size, Voice::packets_at_once(size));
    let padding = vec![0; at_once * size];
    let (begin, mut sent) = (Instant::now(), 0);
    while sent < packets {
        let body = &padding[..at_once.min((packets - sent) as usize) * size];
        pace.wait(body.len() as u64, control)?;
        sent += voice.say(PacketKind::Probe, (sent, number, 0), body, size, control)?;
    }
    let took = begin.elapsed();
    let answer = ask(voice, number, packets, (ANSWER_WAIT, ANSWER_EVERY), control)?;
    let came = answer.map_or(0, |answer| answer.packets);
    let received = Duration::from_nanos(answer.map_or(0, |answer| answer.span_ns));
    let allowed = took.mul_f64(STRETCH) + STRETCH_TIME;
    Ok(Step {
        rate: rate as u64,
        rate_sent: (packets as f64 * size as f64 / took.as_secs_f64().max(1e-9)) as u64,
        packets_sent: packets,
        packets_lost: packets.saturating_sub(came),
        sent_us: took.as_micros() as u64,
        received_us: received.as_micros() as u64,
        passed: came >= packets && received <= allowed,
    })
}
