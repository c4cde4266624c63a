//! `bywash nvme verify`: whether every block of a namespace can be read.

use crate::cli::nvme::{VerifyArgs, VerifyBy};
use crate::error::Failure;
use crate::signals::Signals;
use crate::standard::say;
use bywash_nvme::{Error, Verifier, VerifyEnd, VerifyMethod, VerifyReport, Vfio};
use bywash_quantity::Bytes;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{self, IsTerminal, Write};
use std::ops::Range;
use std::time::{Duration, Instant};

/// Greatest time that a command may take; a disk that tries to read a weak block can take some seconds.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(30);
/// Interval between two looks at the terminal and at signals.
const TURN: Duration = Duration::from_millis(100);
/// Exit status if blocks cannot be read.
const EXIT_UNREADABLE: i32 = 1;
/// Exit status less the number of the signal that ended the verification.
const EXIT_SIGNAL: i32 = 128;

/// Verifies a namespace and returns the exit status.
///
/// # Errors
/// [`Failure::Nvme`] if the controller cannot be opened or breaks, or the range is none of the namespace's, and
/// [`Failure::Output`].
pub fn main(arguments: &VerifyArgs) -> Result<i32, Failure> {
    let function = Vfio::open(&arguments.address)?;
    let method = arguments.by.map(|by| match by {
        VerifyBy::Verify => VerifyMethod::Verify,
        VerifyBy::Read => VerifyMethod::Read,
    });
    let mut verifier = Verifier::open(function, arguments.namespace, method, COMMAND_TIMEOUT)?;
    let block = u64::from(verifier.block());
    let range = blocks(arguments.offset, arguments.length, block, verifier.blocks())?;
    let (address, number, bytes) = (&arguments.address, verifier.namespace(), verifier.blocks() * block);
    let means = match verifier.method() {
        VerifyMethod::Verify => "the controller reads it by itself (Verify), and no data moves",
        VerifyMethod::Read if verifier.offers_verify() => "it is read into memory",
        VerifyMethod::Read => {
            "it is read into memory, since the controller does not say that it offers Verify"
        }
    };
    say(format_args!("{address}: namespace {number}, {} in blocks of {block} bytes: {means}", Bytes(bytes)));

    let signals = Signals::listen();
    let (bar, mut looked) = (bar((range.end - range.start) * block), Instant::now());
    let report = verifier.verify(range.clone(), &mut |seen| {
        if looked.elapsed() < TURN {
            return true;
        }
        looked = Instant::now();
        bar.set_position(seen * block);
        signals.seen().is_none()
    })?;
    bar.finish_and_clear();
    io::stdout().lock().write_all(told(&report, &range, block).as_bytes()).map_err(Failure::Output)?;
    match (report.end, signals.seen()) {
        (VerifyEnd::Failed(error), _) => Err(error.into()),
        (VerifyEnd::Stopped, Some(signal)) => Ok(EXIT_SIGNAL + signal),
        _ if report.failed.is_empty() => Ok(0),
        _ => Ok(EXIT_UNREADABLE),
    }
}

/// Returns the blocks that `offset` and `length`, in bytes, name.
fn blocks(offset: u64, length: Option<u64>, block: u64, all: u64) -> Result<Range<u64>, Failure> {
    let bytes = all * block;
    let length = length.unwrap_or(bytes.saturating_sub(offset));
    let end = offset.checked_add(length).filter(|end| *end <= bytes && length > 0);
    let what = match end {
        None => {
            format!(
                "names {length} bytes from {offset} on, and the namespace has {bytes}: name some of these"
            )
        }
        Some(end) if offset.is_multiple_of(block) && end.is_multiple_of(block) => {
            return Ok(offset / block..end / block);
        }
        Some(_) => {
            format!(
                "names {length} bytes from {offset} on: both have to be multiples of a block, {block} bytes"
            )
        }
    };
    Err(Error::Option { option: "--offset, --length", what }.into())
}

/// Makes a progress bar, which is visible on a terminal only.
fn bar(bytes: u64) -> ProgressBar {
    let target = match io::stderr().is_terminal() {
        true => ProgressDrawTarget::stderr(),
        false => ProgressDrawTarget::hidden(),
    };
    let bar = ProgressBar::with_draw_target(Some(bytes), target);
    let form = "{bar:30} {percent:>3} %  {bytes} of {total_bytes}  {bytes_per_sec}  {eta} left";
    match ProgressStyle::with_template(form) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

/// Returns the outcome in words: the ranges that cannot be read, and what can be said of the others.
fn told(report: &VerifyReport, range: &Range<u64>, block: u64) -> String {
    let mut text = String::new();
    for failed in &report.failed {
        text += &format!(
            "cannot be read: {} at offset {} (blocks {} to {}): {}\n",
            Bytes(failed.count * block),
            failed.first * block,
            failed.first,
            failed.first + failed.count - 1,
            failed.reason
        );
    }
    let all = range.end - range.start;
    let unreadable: u64 = report.failed.iter().map(|failed| failed.count).sum();
    let (readable, unreadable, all) =
        (Bytes(report.checked * block), Bytes(unreadable * block), Bytes(all * block));
    text += &match report.end {
        VerifyEnd::Complete if report.failed.is_empty() => format!("all of {all} can be read\n"),
        VerifyEnd::Complete => format!("{unreadable} of {all} cannot be read: do not rely on this disk\n"),
        VerifyEnd::TooManyFailures => {
            format!(
                "ended, since more ranges cannot be read than are listed: {readable} of {all} could be read\n"
            )
        }
        _ => format!("not complete: {readable} of {all} could be read, and {unreadable} could not\n"),
    };
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use bywash_nvme::FailedRange;

    #[test]
    fn a_range_is_named_in_bytes() {
        for (offset, length, range) in
            [(0, None, 0..100), (512, None, 1..100), (0, Some(51_200), 0..100), (1024, Some(512), 2..3)]
        {
            assert_eq!(blocks(offset, length, 512, 100).unwrap(), range);
        }
        for (offset, length, what) in [
            (100, Some(512), "both have to be multiples of a block, 512 bytes"),
            (0, Some(100), "both have to be multiples"),
            (512, Some(51_200), "the namespace has 51200"),
            (51_200, None, "names 0 bytes from 51200 on"),
            (u64::MAX, Some(u64::MAX), "the namespace has 51200"),
            (0, Some(0), "names 0 bytes"),
        ] {
            let error = blocks(offset, length, 512, 100).unwrap_err().to_string();
            assert!(error.contains(what), "{error}");
        }
    }

    #[test]
    fn the_outcome_is_told_in_words() {
        let failed = |first, count| FailedRange { first, count, reason: "Unrecovered Read Error".into() };
        let told = |checked, failed: Vec<FailedRange>, end| {
            told(&VerifyReport { checked, failed, end }, &(0..2048), 512)
        };
        assert_eq!(told(2048, vec![], VerifyEnd::Complete), "all of 1 MiB can be read\n");
        assert_eq!(
            told(2039, vec![failed(8, 8), failed(100, 1)], VerifyEnd::Complete),
            "cannot be read: 4 KiB at offset 4096 (blocks 8 to 15): Unrecovered Read Error\n\
             cannot be read: 512 B at offset 51200 (blocks 100 to 100): Unrecovered Read Error\n\
             4.5 KiB of 1 MiB cannot be read: do not rely on this disk\n"
        );
        assert_eq!(
            told(1024, vec![], VerifyEnd::Stopped),
            "not complete: 512 KiB of 1 MiB could be read, and 0 B could not\n"
        );
        assert!(
            told(9, vec![failed(3, 1)], VerifyEnd::TooManyFailures).contains("more ranges cannot be read")
        );
    }
}
