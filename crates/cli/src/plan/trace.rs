//! Recorded calls, written as a trace, with a summary in words.

use crate::cli::plan::TraceArgs;
use crate::error::Failure;
use crate::standard::Unfailing;
use bywash_sim::trace::{Imported, Omission, Trace};
use std::collections::HashSet;
use std::fs;
use std::io::{self, Write};
use std::path::Path;

/// Writes a recording as a trace. Prints to standard error a summary of the recording and the parts that were
/// left out.
///
/// # Errors
/// [`Failure::Read`] if the recording cannot be read, [`Failure::Description`] if it is no valid recording,
/// [`Failure::Write`] or [`Failure::Output`] if the trace cannot be written.
pub fn write(arguments: &TraceArgs) -> Result<i32, Failure> {
    let path = &arguments.file;
    let imported = imported(path)?;
    let trace = imported.trace.write();
    match &arguments.out {
        Some(path) => {
            fs::write(path, trace).map_err(|source| Failure::Write { path: path.clone(), source })?;
        }
        None => io::stdout().write_all(trace.as_bytes()).map_err(Failure::Output)?,
    }
    let _ = write!(Unfailing, "{}: {}", path.display(), in_words(&imported));
    Ok(0)
}

/// Reads the calls recorded in `path`, in any of the supported forms.
///
/// # Errors
/// [`Failure::Read`] if the file cannot be read, [`Failure::Description`] if it is no valid recording.
pub fn read(path: &Path) -> Result<Trace, Failure> {
    imported(path).map(|imported| imported.trace)
}

fn imported(path: &Path) -> Result<Imported, Failure> {
    let bytes = fs::read(path).map_err(|source| Failure::Read { path: path.into(), source })?;
    // The output of the traced program between strace's lines may be any bytes.
    let text = String::from_utf8_lossy(&bytes);
    Trace::import(&text).map_err(|why| Failure::Description { path: path.into(), reason: why.to_string() })
}

fn in_words(imported: &Imported) -> String {
    let Imported { form, trace, left_out, assumed } = imported;
    let processes: HashSet<u32> = trace.calls.iter().map(|call| call.process).collect();
    let seconds = trace.calls.last().map_or(0.0, |call| call.at);
    let mut text = format!(
        "{}; {}, {} and {} in {seconds:.3} s\n",
        form.name(),
        counted(trace.calls.len(), "call", "calls"),
        counted(processes.len(), "process", "processes"),
        counted(trace.files.len(), "file", "files"),
    );
    for (heading, lefts) in [("left out:", left_out), ("supposed:", assumed)] {
        if !lefts.is_empty() {
            text += &format!("{heading}\n");
        }
        for Omission { what, count, line } in lefts {
            let and_more = if *count > 1 { ", ..." } else { "" };
            text += &format!("  {what}: {count} (line {line}{and_more})\n");
        }
    }
    text
}

fn counted(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}
