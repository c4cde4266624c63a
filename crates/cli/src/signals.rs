//! Signals that ask for an end. The first one ends the work in good order; one that arrives more than
//! [`SAME_WISH`] later ends the process at once.
//!
//! Signals within that time count as one: timeout(1) and shells send a signal to the process and also to its
//! group.

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

/// Time after the first signal was seen in which further signals count as the same request.
const SAME_WISH: Duration = Duration::from_secs(1);

/// Record of the signals that have arrived.
pub struct Signals {
    /// Number of the last signal; 0 if none has arrived.
    last: Arc<AtomicUsize>,
    /// True if the next signal ends the process.
    is_final: Arc<AtomicBool>,
    /// True if [`Signals::seen`] has returned a signal.
    was_seen: AtomicBool,
}

impl Signals {
    /// Starts to record SIGINT, SIGTERM and SIGHUP. A signal that was ignored when this program began stays
    /// ignored, as nohup(1) and shells expect.
    pub fn listen() -> Signals {
        let signals =
            Signals { last: Arc::default(), is_final: Arc::default(), was_seen: AtomicBool::new(false) };
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            if crate::run::ignored(signal) {
                continue;
            }
            // Registering fails only for signals that cannot be caught; these three can be.
            let _ = signal_hook::flag::register_conditional_default(signal, Arc::clone(&signals.is_final));
            let _ = signal_hook::flag::register_usize(signal, Arc::clone(&signals.last), signal as usize);
        }
        signals
    }

    /// Returns the number of a signal that has arrived. The first call that returns one also starts a thread
    /// that makes the next signal final after [`SAME_WISH`].
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
