//! The report of a flow for people.

use bywash_flow::plan::Prefer;
use bywash_flow::{
    Acceleration, Accounting, Bottleneck, LiveStream, Percentiles, Piece, Presentation, Reception, Report,
    Share, SoundStream,
};
use bywash_quantity::{Bytes, Count};
use std::fmt::Write;

/// Returns a line about the whole flow, and further lines for pieces, hashes and notes.
pub fn render(report: &Report) -> String {
    let mut text =
        format!("{} in {:.2} s, {}/s", Bytes(report.bytes), report.seconds, Bytes(report.rate() as u64));
    // Writing to a string cannot fail, so results are ignored.
    if let Some(cpu) = report.cpu_seconds_per_gb() {
        let _ = write!(text, "; CPU {:.2} s, {cpu:.2} s/GB", report.cpu_seconds);
    }
    text.push('\n');
    for piece in &report.pieces {
        line(&mut text, piece, report.pieces.len() > 1);
    }
    for acceleration in &report.accelerations {
        let _ = writeln!(text, "  {}", accelerated(acceleration));
    }
    for presentation in &report.presentations {
        let _ = writeln!(text, "  {}", presented(presentation));
    }
    for stream in &report.live_streams {
        let _ = writeln!(text, "  {}", live(stream));
    }
    for hash in &report.hashes {
        let _ = writeln!(text, "  {} {}", hash.algorithm, hash.digits);
    }
    for note in &report.notes {
        let _ = writeln!(text, "  {note}");
    }
    text
}

fn line(text: &mut String, piece: &Piece, named: bool) {
    let Piece { mover, copies, .. } = piece;
    let times = match copies {
        0 => "no copy".to_owned(),
        1 => "1 copy".to_owned(),
        copies => format!("{copies} copies"),
    };
    let _ = write!(text, "  {mover}, blocks of {}, {times}", Bytes(piece.block as u64));
    if piece.holes > 0 {
        let _ = write!(text, ", {} of holes", Bytes(piece.holes));
    }
    if piece.zerocopy_sends > 0 {
        let _ = write!(
            text,
            ", the kernel says that it copied {} of {} sends all the same",
            Count(piece.zerocopy_copied),
            Count(piece.zerocopy_sends)
        );
    }
    if named {
        let _ = write!(text, ": {} from {} to {}", Bytes(piece.bytes), piece.source, piece.sink);
    }
    text.push('\n');
    for account in &piece.datagrams {
        let _ = writeln!(text, "  {}", datagrams(account));
    }
    if piece.shares.len() > 1 {
        let _ =
            writeln!(text, "  in turns: {}", piece.shares.iter().map(share).collect::<Vec<_>>().join("; "));
    }
    for fallback in &piece.fallbacks {
        let _ = writeln!(text, "  not {}: {}", fallback.mover, fallback.why);
    }
}

/// Describes the share of a mover that took turns with others: its bytes, and the cost of its better turn.
fn share(share: &Share) -> String {
    let cost = match (share.seconds_per_gb, share.compared_by) {
        (None, _) => "too little to tell".to_owned(),
        (Some(seconds), Prefer::Time) => format!("{}/s", Bytes((1e9 / seconds.max(1e-9)) as u64)),
        (Some(seconds), Prefer::Cpu) => format!("CPU {seconds:.2} s/GB"),
    };
    format!(
        "{} moved {} at {cost}{}",
        share.mover,
        Bytes(share.bytes),
        if share.won { ", and went on" } else { "" }
    )
}

/// Describes the work of an accelerator.
fn accelerated(work: &Acceleration) -> String {
    let total = work.reading_seconds + work.computing_seconds + work.writing_seconds;
    let bound = match work.bound {
        Bottleneck::Reading => "reading",
        Bottleneck::Writing => "writing",
        _ => "computing",
    };
    let copied = match work.copied_bytes {
        0 => "nothing copied to or from its memory".to_owned(),
        bytes => format!("{} copied to or from its memory", Bytes(bytes)),
    };
    format!(
        "{} on {}: {} in, {} out, {} blocks, up to {} in flight, {copied}; reading {:.2} s, computing \
         {:.2} s and writing {:.2} s in {:.2} s, bound by {bound}",
        work.stage,
        work.device,
        Bytes(work.input_bytes),
        Bytes(work.output_bytes),
        Count(work.blocks),
        work.in_flight_max,
        work.reading_seconds,
        work.computing_seconds,
        work.writing_seconds,
        total - work.overlapped_seconds,
    )
}

/// Describes the frames on a display.
fn presented(shown: &Presentation) -> String {
    let Presentation { display, width, height, frames_shown, frames_dropped, frames_late, .. } = shown;
    match display.is_empty() {
        true => "no window was opened".to_owned(),
        false => format!(
            "{} frames shown on {display} at {width}x{height}, {} of them late; {} dropped",
            Count(*frames_shown),
            Count(*frames_late),
            Count(*frames_dropped)
        ),
    }
}

/// Describes a live stream at one stage or end.
fn live(stream: &LiveStream) -> String {
    let LiveStream {
        name,
        units,
        units_dropped,
        restarts,
        lateness,
        jitter_seconds,
        transmission,
        reception,
        sound,
        ..
    } = stream;
    if let Some(sound) = sound {
        return format!("{name} {}", sounded(sound));
    }
    let mut text = format!("{name} {} units, {} dropped", Count(*units), Count(*units_dropped));
    if *restarts > 0 {
        // Writing to a string cannot fail, so results are ignored.
        let _ = write!(text, ", clock started anew {} times", Count(*restarts));
    }
    if let Some(lateness) = lateness {
        let _ = write!(text, "; late by {}", percentiles(lateness));
    }
    let _ = write!(text, "; jitter {:.3} ms", jitter_seconds * 1e3);
    if let Some(sent) = transmission {
        let _ = write!(text, "; {} packets sent", Count(sent.packets));
        if sent.refused > 0 {
            let _ = write!(text, ", {} of them to nobody", Count(sent.refused));
        }
    }
    if let Some(reception) = reception {
        let _ = write!(text, "; {}", received(reception));
    }
    text
}

/// Describes the samples that a sound device played or recorded.
fn sounded(sound: &SoundStream) -> String {
    let SoundStream { format, channels, rate, samples, underruns, overruns, latency, .. } = sound;
    if format.is_empty() {
        return "no device was opened".to_owned();
    }
    let seconds = *samples as f64 / f64::from((*rate).max(1));
    let mut text = format!("{seconds:.2} s of sound, {format}, {channels} channels, {rate} samples/s");
    // Writing to a string cannot fail, so results are ignored.
    let _ = write!(text, "; {} underruns, {} overruns", Count(*underruns), Count(*overruns));
    if let Some(latency) = latency {
        let _ = write!(text, "; latency {}", percentiles(latency));
    }
    text
}

/// Describes the packets that came by RTP.
fn received(account: &Reception) -> String {
    let mut words = vec![format!("{} packets", Count(account.packets))];
    for (number, what) in [
        (account.packets_lost, "lost"),
        (account.packets_late, "too late"),
        (account.packets_reordered, "out of order"),
        (account.packets_duplicated, "came twice"),
        (account.packets_foreign, "of others"),
        (account.units_concealed, "units concealed"),
        (account.sender_restarts, "new beginnings"),
    ] {
        if number > 0 {
            words.push(format!("{} {what}", Count(number)));
        }
    }
    let mut text = format!("{}; drift {:.1} ppm", words.join(", "), account.drift_ppm);
    // Writing to a string cannot fail, so results are ignored.
    if let Some(latency) = &account.latency {
        let _ = write!(text, "; latency {}", percentiles(latency));
    }
    if !account.is_complete {
        text += "; the sender fell silent without a goodbye";
    }
    text
}

/// Describes a distribution of times.
fn percentiles(times: &Percentiles) -> String {
    let Percentiles { p50, p90, p99, p99_9, max, .. } = times;
    let [p50, p90, p99, p99_9, max] = [p50, p90, p99, p99_9, max].map(|seconds| seconds * 1e3);
    format!("p50 {p50:.3}, p90 {p90:.3}, p99 {p99:.3}, p99.9 {p99_9:.3}, max {max:.3} ms")
}

/// Describes the datagrams at one end, as far as that end knows.
fn datagrams(account: &Accounting) -> String {
    let mut words = Vec::new();
    let mut count = |number: u64, what: &str| {
        if number > 0 {
            words.push(format!("{} {what}", Count(number)));
        }
    };
    if let Some(relayed) = &account.relayed {
        count(relayed.packets, "passed on");
        count(relayed.packets_back, "passed back");
        count(relayed.refused, "refused by the other side");
        count(relayed.unfit, "of a kind that cannot be passed on");
    }
    count(account.packets_sent, "sent");
    count(account.packets_received, "received");
    count(account.lost, "lost");
    count(account.duplicated, "came twice");
    count(account.reordered, "out of order");
    count(account.late, "too late");
    count(account.foreign, "of others");
    count(account.kernel_drops, "dropped by the kernel");
    let mut text = format!("datagrams: {}", if words.is_empty() { "none".into() } else { words.join(", ") });
    // Writing to a string cannot fail, so results are ignored.
    if let Some(probing) = &account.probing {
        let _ =
            write!(text, "; rate found in {} steps: {}/s", probing.steps.len(), Bytes(probing.rate_chosen));
        if probing.lowered > 0 {
            let _ = write!(text, ", lowered {} times to {}/s", probing.lowered, Bytes(probing.rate_last));
        }
    }
    if let Some(why) = &account.fell_back {
        let _ = write!(text, "; {why}");
    }
    text
}

/// Names the partial file or the bytes moved, as a suffix of an error message.
pub fn kept(report: &Report) -> String {
    match &report.partial {
        Some(path) => format!("; what there is of it is kept as {}", path.display()),
        None if report.bytes > 0 => format!("; {} had been moved", Bytes(report.bytes)),
        None => String::new(),
    }
}
