//! Suite that every device passes.
//!
//! - `results`: kernels against their definitions in `f64`
//! - `rules`: buffers, order, ends and errors of sessions
//! - `splits`: random sizes of blocks and of what is submitted at a time

pub mod drive;
mod reference;
mod results;
mod rules;
mod splits;

use bywash_accelerator::{Device, Error, Kernel, Session, SessionOptions};
use std::collections::BTreeSet;
use std::sync::Mutex;

/// Device under test, and the kernels that it does not support.
pub struct Suite<'a> {
    device: &'a dyn Device,
    skipped: Mutex<BTreeSet<String>>,
}

/// Runs all cases on a device, and returns a line for each kernel that the device does not support, with its reason.
///
/// # Panics
/// If the device breaks a rule or computes something wrong.
pub fn check(device: &dyn Device) -> Vec<String> {
    let suite = Suite { device, skipped: Mutex::default() };
    assert!(!device.name().is_empty() && !device.description().is_empty());
    results::check(&suite);
    rules::check(&suite);
    splits::check(&suite);
    suite.skipped.into_inner().unwrap().into_iter().collect()
}

impl Suite<'_> {
    /// Begins a session. Returns `None`, and notes it, if the device does not support the kernel.
    fn session(&self, kernel: &Kernel, options: SessionOptions) -> Option<Session> {
        match self.device.session(kernel, &options) {
            Ok(session) => Some(session),
            Err(error @ Error::Unsupported { .. }) => {
                self.skipped.lock().unwrap().insert(error.to_string());
                None
            }
            Err(error) => panic!("{kernel:?} with {options:?}: {error}"),
        }
    }
}
