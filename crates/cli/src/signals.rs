//! The first signal that asks for an end ends what is under way in good order; one that comes more than
//! [`SAME_WISH`] later ends the process at once.
//!
//! What comes sooner is the same wish: timeout(1) and shells send a signal to the process and to its group.

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

/// Signals within this time after the first one was seen ask for the same as that one.
const SAME_WISH: Duration = Duration::from_secs(1);

/// What has come.
pub struct Signals {
    /// The number of the last one; 0: none.
    last: Arc<AtomicUsize>,
    /// Whether the next one ends the process.
    is_final: Arc<AtomicBool>,
    /// Whether one has been answered by [`Signals::seen`].
    was_seen: AtomicBool,
}

impl Signals {
    /// From here on signals are taken note of. One that was ignored when this program began stays ignored, as
    /// nohup(1) and shells have it.
    pub fn listen() -> Signals {
        let signals =
            Signals { last: Arc::default(), is_final: Arc::default(), was_seen: AtomicBool::new(false) };
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            if crate::run::ignored(signal) {
                continue;
            }
            // These fail only for signals that cannot be caught, which these are not.
            let _ = signal_hook::flag::register_conditional_default(signal, Arc::clone(&signals.is_final));
            let _ = signal_hook::flag::register_usize(signal, Arc::clone(&signals.last), signal as usize);
        }
        signals
    }

    /// The number of one that has come. A little after the first answer the next signal ends the process.
    pub fn seen(&self) -> Option<i32> {
        let signal = Some(self.last.load(Relaxed) as i32).filter(|signal| *signal != 0)?;
        if !self.was_seen.swap(true, Relaxed) {
            let is_final = Arc::clone(&self.is_final);
            let later = thread::Builder::new().name("signals".into()).spawn(move || {
                thread::sleep(SAME_WISH);
                is_final.store(true, Relaxed);
            });
            if later.is_err() {
                self.is_final.store(true, Relaxed);
            }
        }
        Some(signal)
    }
}
