//! Progress of simulations, and signals that end them.

use crate::signals::Signals;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A progress bar on a terminal, and a watch for signals.
pub struct Progress {
    signals: Signals,
    bar: ProgressBar,
    /// Thousandths of runs that have ended.
    done: AtomicU64,
}

const STEPS: u64 = 1000;

impl Progress {
    /// Starts to watch `runs` simulations.
    pub fn new(runs: u64) -> Progress {
        let all = runs * STEPS;
        let bar = if std::io::stderr().is_terminal() { ProgressBar::new(all) } else { ProgressBar::hidden() };
        if let Ok(style) = ProgressStyle::with_template("{bar:30} {percent:>3} %  {eta} left") {
            bar.set_style(style);
        }
        Progress { signals: Signals::listen(), bar, done: AtomicU64::new(0) }
    }

    /// Watches for signals only, for work whose length is unknown.
    pub fn unmeasured() -> Progress {
        Progress { signals: Signals::listen(), bar: ProgressBar::hidden(), done: AtomicU64::new(0) }
    }

    /// Shows the share of the current run that is done, from 0 to 1. Returns false if a signal has arrived.
    pub fn go_on(&self, share: f64) -> bool {
        self.bar.set_position(self.done.load(Relaxed) + (share * STEPS as f64) as u64);
        self.signals.seen().is_none()
    }

    /// Counts `runs` more runs as ended.
    pub fn ended(&self, runs: u64) {
        self.done.fetch_add(runs * STEPS, Relaxed);
    }

    /// Removes the bar.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
