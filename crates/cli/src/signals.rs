//! The first signal that asks for an end ends what is under way in good order; the second one ends the process at once.

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

/// What has come.
pub struct Signals(Arc<AtomicUsize>);

impl Signals {
    /// From here on signals are taken note of. One that was ignored when this program began stays ignored, as
    /// nohup(1) and shells have it.
    pub fn listen() -> Signals {
        let seen = Arc::new(AtomicUsize::new(0));
        let again = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            if crate::run::ignored(signal) {
                continue;
            }
            // These fail only for signals that cannot be caught, which these are not. In this order: the second one
            // finds what the first one has set.
            let _ = signal_hook::flag::register_conditional_default(signal, Arc::clone(&again));
            let _ = signal_hook::flag::register(signal, Arc::clone(&again));
            let _ = signal_hook::flag::register_usize(signal, Arc::clone(&seen), signal as usize);
        }
        Signals(seen)
    }

    /// The number of one that has come.
    pub fn seen(&self) -> Option<i32> {
        Some(self.0.load(Relaxed) as i32).filter(|signal| *signal != 0)
    }
}
