//! The machine that a report names.

use serde::Serialize;
use std::fs;

/// Facts about the machine that a reader of a number must know.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// Model name of the processor.
    pub cpu: String,
    /// Processors that this process may use.
    pub cores: usize,
    /// Memory.
    pub memory_bytes: u64,
    /// Kernel release.
    pub kernel: String,
    /// Name of the system, e.g. `Debian GNU/Linux 12 (bookworm)`.
    pub system: String,
    /// True in a virtual machine.
    #[serde(rename = "virtual")]
    pub is_virtual: bool,
    /// Load average over one minute when the run began: what others were doing.
    pub load_at_start: f64,
}

impl Machine {
    /// This one. What cannot be found out is called `unknown`, or 0.
    pub fn this() -> Machine {
        let cpuinfo = read("/proc/cpuinfo");
        let unknown = || "unknown".to_owned();
        Machine {
            cpu: value_of(&cpuinfo, "model name", ':').unwrap_or_else(unknown),
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            memory_bytes: value_of(&read("/proc/meminfo"), "MemTotal", ':')
                .and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok())
                .map_or(0, |kib| kib * 1024),
            kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
            system: value_of(&read("/etc/os-release"), "PRETTY_NAME", '=').unwrap_or_else(unknown),
            is_virtual: value_of(&cpuinfo, "flags", ':')
                .is_some_and(|flags| flags.split(' ').any(|flag| flag == "hypervisor")),
            load_at_start: read("/proc/loadavg")
                .split(' ')
                .next()
                .and_then(|load| load.parse().ok())
                .unwrap_or(0.0),
        }
    }

    /// One sentence for the head of a table.
    pub fn sentence(&self) -> String {
        format!(
            "{}, {} cores, {:.0} GiB, Linux {}, {}{}",
            self.cpu,
            self.cores,
            self.memory_bytes as f64 / f64::from(1 << 30),
            self.kernel,
            self.system,
            if self.is_virtual { ", in a virtual machine" } else { "" },
        )
    }
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

fn value_of(text: &str, key: &str, separator: char) -> Option<String> {
    text.lines().find_map(|line| {
        let (name, value) = line.split_once(separator)?;
        (name.trim() == key).then(|| value.trim().trim_matches('"').to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_memory_and_a_kernel() {
        let machine = Machine::this();
        assert!(machine.cores >= 1 && machine.memory_bytes > 1 << 24, "{machine:?}");
        assert!(machine.sentence().contains(&machine.kernel));
    }

    #[test]
    fn quoted_values_lose_their_quotes() {
        assert_eq!(value_of("A=1\nPRETTY_NAME=\"D 12\"\n", "PRETTY_NAME", '=').as_deref(), Some("D 12"));
    }
}
