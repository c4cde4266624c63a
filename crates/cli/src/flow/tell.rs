//! The report for people.

use bywash_flow::size::{Bytes, Count};
use bywash_flow::{Piece, Report};
use std::fmt::Write;

/// A line of what was moved, and a line for each thing beyond that.
pub fn render(report: &Report) -> String {
    let mut text =
        format!("{} in {:.2} s, {}/s", Bytes(report.bytes), report.seconds, Bytes(report.rate() as u64));
    // Writing to a string cannot fail.
    if let Some(cpu) = report.cpu_seconds_per_gb() {
        let _ = write!(text, "; CPU {:.2} s, {cpu:.2} s/GB", report.cpu_seconds);
    }
    text.push('\n');
    for piece in &report.pieces {
        line(&mut text, piece, report.pieces.len() > 1);
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
    for fallback in &piece.fallbacks {
        let _ = writeln!(text, "  not {}: {}", fallback.mover, fallback.why);
    }
}

/// What is left of a file that is not whole, to be put behind an error.
pub fn kept(report: &Report) -> String {
    match &report.partial {
        Some(path) => format!("; what there is of it is kept as {}", path.display()),
        None if report.bytes > 0 => format!("; {} had been moved", Bytes(report.bytes)),
        None => String::new(),
    }
}
