//! The machine in a few numbers: uname(2), the cores this process may use, memory.

use serde::Serialize;
use std::io;

/// What the head of the table says.
#[derive(Serialize)]
pub struct Machine {
    /// The kernel's release.
    pub kernel: String,
    /// The processor's architecture.
    pub architecture: String,
    /// Cores that this process may run on.
    pub cores: u32,
    /// Bytes of a page.
    pub page_bytes: u64,
    /// Bytes of memory.
    pub memory_bytes: u64,
}

impl Machine {
    /// Asks the kernel.
    pub fn look() -> Machine {
        let name = rustix::system::uname();
        let memory = rustix::system::sysinfo();
        Machine {
            kernel: name.release().to_string_lossy().into_owned(),
            architecture: name.machine().to_string_lossy().into_owned(),
            cores: cores().len() as u32,
            page_bytes: rustix::param::page_size() as u64,
            memory_bytes: memory.totalram.saturating_mul(u64::from(memory.mem_unit)),
        }
    }
}

/// The numbers of the cores that this process may run on; empty only if the kernel does not say.
pub fn cores() -> Vec<usize> {
    match rustix::thread::sched_getaffinity(None) {
        Ok(set) => (0..rustix::thread::CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect(),
        Err(_) => Vec::new(),
    }
}

/// Ties the calling thread to one core.
///
/// # Errors
/// That this process may not use it.
pub fn pin(core: usize) -> io::Result<()> {
    let mut set = rustix::thread::CpuSet::new();
    set.set(core);
    Ok(rustix::thread::sched_setaffinity(None, &set)?)
}
