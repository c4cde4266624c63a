//! Finds the rate of `--rate auto`: sends padding and asks the receiver what arrived.
//!
//! Invariant: no data is sent here, and a step ends when the receiver has answered, so that the next one
//! finds an empty path. A step passes if nothing was lost *and* the receiver saw the packets at the rate of
//! the sender; otherwise a queue on the path only hides that the rate is too high. Called by
//! [`super::sender`].

use super::accounting::{Probing, Step};
use super::layout::{PacketKind, Report};
use super::packet_sender::PacketSender;
use super::search::Search;
use crate::control::Control;
use crate::error::Error;
use crate::rate_limiter::RateLimiter;
use std::time::{Duration, Instant};

/// Timeout of the first answer of a receiver, and interval between requests.
const GREETING_WAIT: Duration = Duration::from_secs(3);
const GREETING_EVERY: Duration = Duration::from_millis(100);
/// Timeout of the answer about a step, and interval between requests.
const ANSWER_WAIT: Duration = Duration::from_secs(1);
const ANSWER_EVERY: Duration = Duration::from_millis(20);
/// Smallest number of packets of a step.
const PACKETS_MIN: u64 = 20;
/// Greatest delay between sender and receiver over a step, as a factor and as a fixed time for a late
/// wake-up.
const STRETCH: f64 = 1.12;
const STRETCH_TIME: Duration = Duration::from_millis(3);

/// Finds the highest rate without loss for payloads of `size` bytes.
///
/// # Errors
/// [`Error::Lost`] if no receiver answers; [`Error::Cancelled`] if the flow is cancelled; [`Error::Io`] if a
/// system call fails.
pub(crate) fn probe(
    packet_sender: &mut PacketSender,
    size: usize,
    control: &Control,
) -> Result<Probing, Error> {
    greet(packet_sender, control)?;
    let mut probing = Probing::default();
    let mut search = Search::new();
    // Steps are numbered from 1, since 0 was the first request for an answer.
    let mut number = 1;
    while let Some((rate, time)) = search.next() {
        let step = step(packet_sender, number, (rate, time), size, control)?;
        search.note(step.passed, step.rate_sent as f64);
        probing.steps.push(step);
        number += 1;
    }
    probing.rate_chosen = search.chosen();
    probing.rate_last = probing.rate_chosen;
    Ok(probing)
}

fn greet(packet_sender: &mut PacketSender, control: &Control) -> Result<(), Error> {
    match ask(packet_sender, 0, 0, (GREETING_WAIT, GREETING_EVERY), control)? {
        Some(_) => Ok(()),
        None => Err(Error::Lost(format!(
            "{}: nobody answers; a rate can only be found with a receiver that is there and reads sequenced packets",
            packet_sender.port.label()
        ))),
    }
}

/// Requests the report about a step until it arrives; `None` after the timeout.
fn ask(
    packet_sender: &mut PacketSender,
    number: u64,
    packets: u64,
    (wait, every): (Duration, Duration),
    control: &Control,
) -> Result<Option<Report>, Error> {
    let until = Instant::now() + wait;
    while Instant::now() < until {
        packet_sender.tell(PacketKind::Ask, packets, number, control)?;
        let again = Instant::now() + every;
        while Instant::now() < again {
            packet_sender.listen(again, control)?;
            let answer = packet_sender.heard().probe.filter(|report| u64::from(report.step) == number);
            if answer.is_some() {
                return Ok(answer);
            }
        }
    }
    Ok(None)
}

/// Sends padding at a rate for a time, and returns what arrived.
fn step(
    packet_sender: &mut PacketSender,
    number: u64,
    (rate, time): (f64, Duration),
    size: usize,
    control: &Control,
) -> Result<Step, Error> {
    let packets = ((rate * time.as_secs_f64() / size as f64) as u64).max(PACKETS_MIN);
    let mut pace = RateLimiter::new(Some(rate as u64));
    let at_once = pace.pieces(size, PacketSender::packets_at_once(size));
    let padding = vec![0; at_once * size];
    let (begin, mut sent) = (Instant::now(), 0);
    while sent < packets {
        let body = &padding[..at_once.min((packets - sent) as usize) * size];
        pace.wait(body.len() as u64, control)?;
        sent += packet_sender.say(PacketKind::Probe, (sent, number, 0), body, size, control)?;
    }
    let took = begin.elapsed();
    let answer = ask(packet_sender, number, packets, (ANSWER_WAIT, ANSWER_EVERY), control)?;
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
