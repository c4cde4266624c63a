//! The machine that a report names.

use serde::{Deserialize, Serialize};
use std::fs;

/// Facts about the machine that a reader of a number must know.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Machine {
    pub cpu: String,
    /// Processors that this process may use.
    pub cores: usize,
    pub memory_bytes: u64,
    pub kernel: String,
    pub system: String,
    #[serde(rename = "virtual")]
    pub is_virtual: bool,
    /// Load average over one minute when the run began: what others were doing.
    pub load_at_start: f64,
}

impl Machine {
    /// This one. What cannot be found out is called `unknown`.
    pub fn this() -> Machine {
        let kernel = rustix::system::sysinfo();
        Machine {
            cpu: value_of("/proc/cpuinfo", "model name", ':'),
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            memory_bytes: kernel.totalram * u64::from(kernel.mem_unit),
            kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
            system: value_of("/etc/os-release", "PRETTY_NAME", '='),
            is_virtual: value_of("/proc/cpuinfo", "flags", ':').split(' ').any(|flag| flag == "hypervisor"),
            // The kernel's fixed point has 16 bits behind it.
            load_at_start: kernel.loads[0] as f64 / 65_536.0,
        }
    }

    /// One sentence for the head of a table.
    pub fn sentence(&self) -> String {
        let Machine { cpu, cores, kernel, system, .. } = self;
        let gib = self.memory_bytes as f64 / f64::from(1 << 30);
        let guest = if self.is_virtual { ", in a virtual machine" } else { "" };
        format!("{cpu}, {cores} cores, {gib:.0} GiB, Linux {kernel}, {system}{guest}")
    }
}

/// The value of the first line of `file` that begins with `key` and the separator.
fn value_of(file: &str, key: &str, separator: char) -> String {
    let text = fs::read_to_string(file).unwrap_or_default();
    let mut pairs = text.lines().filter_map(|line| line.split_once(separator));
    let value = pairs.find(|(name, _)| name.trim() == key).map_or("unknown", |(_, value)| value);
    value.trim().trim_matches('"').to_owned()
}
