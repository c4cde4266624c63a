//! `bywash serve status`: state of a server, as a table or as JSON.

use crate::cli::serve::StatusArgs;
use crate::error::Failure;
use crate::signals::Signals;
use bywash_protocol::report::{Counters, Export, Status};
use bywash_quantity::Bytes;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};
use std::thread;
use std::time::{Duration, Instant};

/// Interval between checks for a signal.
const TURN: Duration = Duration::from_millis(20);
/// Escape sequence that moves to the top left of the terminal and clears it.
const CLEAR: &str = "\x1b[H\x1b[2J";

/// Carries out the command line and returns the exit status.
///
/// # Errors
/// [`Failure::NoServer`] if no server accepts a connection, [`Failure::Client`] if it does not complete the
/// request, [`Failure::Output`] if standard output cannot be written.
pub fn main(arguments: &StatusArgs) -> Result<i32, Failure> {
    let client = super::connect(&arguments.socket, "bywash serve status")?;
    let mut out = io::stdout();
    if arguments.json {
        let text =
            serde_json::to_string_pretty(&client.status()?).map_err(|error| Failure::Output(error.into()))?;
        writeln!(out, "{text}").map_err(Failure::Output)?;
        return Ok(0);
    }
    let mut last = (client.status()?, Instant::now());
    if arguments.once || !out.is_terminal() {
        return write!(out, "{}", table(&last.0, None)).map_err(Failure::Output).map(|()| 0);
    }
    let signals = Signals::listen();
    loop {
        let until = last.1 + Duration::from_secs(arguments.every.into());
        while Instant::now() < until {
            if signals.seen().is_some() {
                return Ok(0);
            }
            thread::sleep(TURN);
        }
        let now = (client.status()?, Instant::now());
        let seconds = (now.1 - last.1).as_secs_f64();
        write!(out, "{CLEAR}{}", table(&now.0, Some((&last.0, seconds)))).map_err(Failure::Output)?;
        out.flush().map_err(Failure::Output)?;
        last = now;
    }
}

/// Returns the table. `before` is an earlier status and its age in seconds: with it the table shows rates,
/// without it sums.
fn table(status: &Status, before: Option<(&Status, f64)>) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = write_table(&mut out, status, before);
    out
}

/// Writes a line for each device with thin volumes.
fn write_thin(out: &mut String, status: &Status) -> std::fmt::Result {
    let devices = status.devices.iter().filter(|device| device.thin > 0);
    for (number, device) in devices.enumerate() {
        if number == 0 {
            writeln!(out, "\n{:<16} {:>10} {:>10} {:>10}", "thin volumes on", "size", "allocated", "left")?;
        }
        let [size, allocated, left] =
            [device.thin, device.thin_allocated, device.thin_left].map(|bytes| Bytes(bytes).to_string());
        writeln!(out, "{:<16} {size:>10} {allocated:>10} {left:>10}", device.name)?;
    }
    Ok(())
}

fn write_table(out: &mut String, status: &Status, before: Option<(&Status, f64)>) -> std::fmt::Result {
    let earlier = before.map(|(status, _)| status);
    let count = status.cores.len();
    let core = if count > 1 { format!("{count} cores") } else { "core".to_owned() };
    let cpu = match before {
        Some((earlier, seconds)) => {
            let used = status.core_cpu_ns.saturating_sub(earlier.core_cpu_ns) as f64;
            format!("{core} {:.0} % of a processor", used / seconds / 1e7)
        }
        None => format!("{core} {:.1} s of a processor", status.core_cpu_ns as f64 / 1e9),
    };
    let Status { version, pid, uptime_s, asks_refused, clients_refused, .. } = status;
    writeln!(
        out,
        "bywash {version}, process {pid}, {uptime_s} s; {cpu}; refused: {asks_refused} asks, {clients_refused} clients\n"
    )?;
    let unit = if before.is_some() { "/s" } else { "" };
    let figures = format!(
        "{:>12} {:>12} {:>10} {:>9} {:>9}",
        format!("requests{unit}"),
        format!("bytes{unit}"),
        "mean",
        "refused",
        "failed"
    );
    writeln!(out, "{:<16} {:>10} {:>10} {:>9} {figures}  identity", "device", "size", "free", "in flight")?;
    let was = by(earlier, |status| {
        status.devices.iter().map(|device| (device.name.clone(), &device.counts)).collect()
    });
    for device in &status.devices {
        let what = if device.is_stuck { "  STUCK" } else { "" };
        let low = if device.is_low { "  LOW" } else { "" };
        let id = device.id.as_deref().unwrap_or("none");
        let size = Bytes(device.bytes).to_string();
        let free = Bytes(device.free).to_string();
        let figures = rates(&device.counts, was.get(&device.name).copied(), before);
        let (name, in_flight) = (&device.name, device.in_flight);
        writeln!(out, "{name:<16} {size:>10} {free:>10} {in_flight:>9} {figures}  {id}{what}{low}")?;
    }
    write_thin(out, status)?;
    writeln!(
        out,
        "\n{:<24} {:>8} {:>8} {:>6} {:>7} {figures}{}",
        "client",
        "process",
        "user",
        "grants",
        "depth",
        if count > 1 { "  core" } else { "" }
    )?;
    let was =
        by(earlier, |status| status.clients.iter().map(|client| (client.client, &client.counts)).collect());
    for client in &status.clients {
        let name = format!("{} {}", client.client, client.name);
        let figures = rates(&client.counts, was.get(&client.client).copied(), before);
        let (pid, uid, grants) = (client.pid, client.uid, client.grants.len());
        let depth = format!("{}/{}", client.in_flight, client.depth);
        let core = if count > 1 { format!("  {:>4}", client.core) } else { String::new() };
        writeln!(out, "{name:<24} {pid:>8} {uid:>8} {grants:>6} {depth:>7} {figures}{core}")?;
        for grant in &client.grants {
            let volume = grant.volume.as_deref().unwrap_or("(a descriptor)");
            let way = if grant.is_mapped { ", mapped" } else { "" };
            writeln!(out, "    {volume}, {}, {}{way}", Bytes(grant.bytes), grant.access)?;
        }
    }
    write_exports(out, status)?;
    write_stuck(out, status)
}

/// Writes the table of volumes exported to virtual machines and to NBD clients.
fn write_exports(out: &mut String, status: &Status) -> std::fmt::Result {
    if !status.exports.is_empty() {
        writeln!(
            out,
            "\n{:<24} {:>10} {:>12} {:>15} {:>11} {:>8}  {:<10} address",
            "exported volume", "clients", "requests", "closing threads", "taken back", "cut off", "protocol"
        )?;
    }
    for Export { volume, protocol, address, frontends, requests, cut_off, leaving, taken_back } in
        &status.exports
    {
        writeln!(
            out,
            "{volume:<24} {frontends:>10} {requests:>12} {leaving:>15} {taken_back:>11} {cut_off:>8}  {protocol:<10} {address}"
        )?;
    }
    Ok(())
}

/// Writes a line for each user who has threads that do not return from a system call.
fn write_stuck(out: &mut String, status: &Status) -> std::fmt::Result {
    let stuck = status.users.iter().filter(|user| user.stuck > 0);
    for (number, user) in stuck.enumerate() {
        if number == 0 {
            writeln!(out)?;
        }
        let name = user.uid.map_or("others".to_owned(), |uid| uid.to_string());
        let (threads, is) = (user.stuck, if user.stuck == 1 { "thread is" } else { "threads are" });
        writeln!(out, "user {name}: {threads} {is} STUCK with what the user's clients have passed")?;
    }
    Ok(())
}

fn by<'a, K: std::hash::Hash + Eq>(
    earlier: Option<&'a Status>,
    counts: impl Fn(&'a Status) -> HashMap<K, &'a Counters>,
) -> HashMap<K, &'a Counters> {
    earlier.map(counts).unwrap_or_default()
}

/// Returns the columns for requests, bytes, mean time, refused and failed: rates since `before`, or sums over
/// all time.
fn rates(now: &Counters, was: Option<&Counters>, before: Option<(&Status, f64)>) -> String {
    let none = Counters::default();
    let was = was.unwrap_or(&none);
    let seconds = before.map_or(1.0, |(_, seconds)| seconds);
    let since = |count: fn(&Counters) -> u64| count(now).saturating_sub(count(was));
    let requests = since(Counters::requests);
    let bytes = since(|counts| counts.bytes_read + counts.bytes_written);
    let mean = match requests {
        0 => "-".to_owned(),
        _ => format!("{:.1} us", since(|counts| counts.latency_ns) as f64 / requests as f64 / 1e3),
    };
    format!(
        "{:>12.0} {:>12} {mean:>10} {:>9} {:>9}",
        requests as f64 / seconds,
        Bytes((bytes as f64 / seconds) as u64).to_string(),
        since(|counts| counts.refusals),
        since(|counts| counts.failures)
    )
}
