//! Properties of the machine: uname(2), the cores that this process may use, memory.

use serde::Serialize;
use std::io;

/// Properties in the head of the table.
#[derive(Serialize)]
pub struct Machine {
    /// Release of the kernel.
    pub kernel: String,
    /// Architecture of the processor.
    pub architecture: String,
    /// Number of cores that this process may run on.
    pub cores: u32,
    /// Size of a page, in bytes.
    pub page_bytes: u64,
    /// Size of the memory, in bytes.
    pub memory_bytes: u64,
}

impl Machine {
    /// Asks the kernel for the properties.
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

/// Returns the numbers of the cores that this process may run on; empty only if sched_getaffinity(2) fails.
pub fn cores() -> Vec<usize> {
    match rustix::thread::sched_getaffinity(None) {
        Ok(set) => (0..rustix::thread::CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect(),
        Err(_) => Vec::new(),
    }
}

/// Binds the calling thread to one core.
///
/// # Errors
/// The error of sched_setaffinity(2), if this process may not use the core.
pub fn pin(core: usize) -> io::Result<()> {
    let mut set = rustix::thread::CpuSet::new();
    set.set(core);
    Ok(rustix::thread::sched_setaffinity(None, &set)?)
}
