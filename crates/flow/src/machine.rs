//! Inspects the abilities of this machine, without changing anything. Called by [`crate::part`].

use crate::facts::Machine;
use crate::sys;
use rustix::thread::{CapabilitySet, capabilities};

/// Greatest capacity of a pipe, in bytes, if /proc cannot be read: the kernel's default.
const PIPE_BYTES_MAX: usize = 1 << 20;

/// Returns the abilities of this machine.
pub(crate) fn inspect() -> Machine {
    let pipe_bytes_max = std::fs::read_to_string("/proc/sys/fs/pipe-max-size")
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(PIPE_BYTES_MAX);
    let io_uring = sys::has_io_uring()
        .map_err(|error| format!("there is no io_uring here: {}", std::io::Error::from(error)));
    Machine { io_uring, xdp: xdp(), pipe_bytes_max }
}

/// Checks that this process has the capabilities to attach programs to network devices. In a user namespace
/// the kernel may refuse nevertheless, and the mover then gives up when it starts.
fn xdp() -> Result<(), String> {
    let needed = CapabilitySet::BPF | CapabilitySet::NET_ADMIN | CapabilitySet::NET_RAW;
    let has = capabilities(None).map_or(CapabilitySet::empty(), |sets| sets.effective);
    // CAP_SYS_ADMIN includes CAP_BPF (capabilities(7)).
    let has = if has.contains(CapabilitySet::SYS_ADMIN) { has | CapabilitySet::BPF } else { has };
    match has.contains(needed) {
        true => Ok(()),
        false => Err("a program at a network device needs CAP_BPF, CAP_NET_ADMIN and CAP_NET_RAW".into()),
    }
}
