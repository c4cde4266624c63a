//! Ctrl-C and SIGTERM: noted by a flag, so that what was mounted, started and written is removed on the way
//! out. The flag is looked at while waiting for a child and between runs.

use crate::error::Error;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

static FLAG: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// From here on the signals set the flag instead of ending the process.
pub fn listen() {
    let flag = FLAG.get_or_init(Arc::default);
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        // Fails only for signals that cannot be caught, which these are not.
        let _ = signal_hook::flag::register(signal, Arc::clone(flag));
    }
}

/// Fails once a signal has come.
///
/// # Errors
/// [`Error::Interrupted`].
pub fn check() -> Result<(), Error> {
    let is_set = FLAG.get().is_some_and(|flag| flag.load(Relaxed));
    if is_set { Err(Error::Interrupted) } else { Ok(()) }
}
