//! Progress of a flow: a bar on a terminal, lines elsewhere.

use crate::cli::flow::FlowArgs;
use crate::standard::say;
use bywash_flow::ProgressHandle;
use bywash_quantity::Bytes;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// Form in which the progress is shown.
pub enum Progress {
    /// The progress is not shown.
    Nothing,
    /// A bar, or a spinner if the size is unknown. It appears when the flow takes longer than [`MOMENT`].
    Bar { bar: ProgressBar, begin: Instant },
    /// A line a second; `last` is the time of the last line and the bytes moved by then.
    Lines { last: (Instant, u64) },
}

const WITH_SIZE: &str = "{bar:30} {percent:>3} %  {bytes} of {total_bytes}  {bytes_per_sec}  {eta} left";
const WITHOUT_SIZE: &str = "{spinner} {bytes}  {bytes_per_sec}  {elapsed}";
/// Duration of a flow up to which no bar appears.
const MOMENT: Duration = Duration::from_millis(300);
const LINE: Duration = Duration::from_secs(1);

impl Progress {
    pub fn new(arguments: &FlowArgs) -> Progress {
        match (arguments.quiet, std::io::stderr().is_terminal(), arguments.progress) {
            (true, ..) | (_, false, false) => Progress::Nothing,
            (_, true, _) => {
                let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
                Progress::Bar { bar, begin: Instant::now() }
            }
            (_, false, true) => Progress::Lines { last: (Instant::now(), 0) },
        }
    }

    /// Shows the current progress.
    pub fn show(&mut self, watch: &ProgressHandle) {
        match self {
            Progress::Nothing => {}
            Progress::Bar { bar, begin } => {
                if bar.is_hidden() && begin.elapsed() > MOMENT {
                    bar.set_draw_target(ProgressDrawTarget::stderr());
                }
                let template = if watch.total().is_some() { WITH_SIZE } else { WITHOUT_SIZE };
                if let Some(total) = watch.total().filter(|total| bar.length() != Some(*total)) {
                    bar.set_length(total);
                }
                bar.set_style(
                    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()),
                );
                bar.set_position(watch.moved());
            }
            Progress::Lines { last } => {
                let since = last.0.elapsed();
                if since >= LINE {
                    let moved = watch.moved();
                    let rate = ((moved - last.1) as f64 / since.as_secs_f64()) as u64;
                    let of = watch.total().map_or(String::new(), |total| format!(" of {}", Bytes(total)));
                    say(format_args!("{}{of}, {}/s", Bytes(moved), Bytes(rate)));
                    *last = (Instant::now(), moved);
                }
            }
        }
    }

    /// Prints a line above the bar.
    pub fn line(&self, text: &str) {
        match self {
            Progress::Bar { bar, .. } => bar.suspend(|| say(format_args!("bywash flow: {text}"))),
            _ => say(format_args!("bywash flow: {text}")),
        }
    }

    /// Removes the bar.
    pub fn finish(&self) {
        if let Progress::Bar { bar, .. } = self {
            bar.finish_and_clear();
        }
    }
}
