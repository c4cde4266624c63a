//! Descriptions included in this crate: machines with workloads, each with the sources of its numbers.

use bywash_model::Description;

/// A description included in this crate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preset {
    /// Name of the preset.
    pub name: &'static str,
    /// Summary of the preset in one line.
    pub about: &'static str,
    /// Text of the description in TOML, with the source of each number in comments.
    pub text: &'static str,
}

macro_rules! presets {
    ($($name:literal: $about:literal,)*) => {
        &[$(Preset { name: $name, about: $about, text: include_str!(concat!("../presets/", $name, ".toml")) }),*]
    };
}

/// All presets.
pub const PRESETS: &[Preset] = presets! {
    "today-25g": "a server with NVMe drives and two ports of 25 Gbit/s",
    "today-10g": "a small server with SATA flash drives and a port of 10 Gbit/s",
    "cloud-small": "a small instance of a cloud: two virtual processors and a volume over the network",
    "nas": "a network-attached storage: four rotating disks and two ports of 1 Gbit/s",
    "today-100g": "a server with PCIe 4 drives and two ports of 100 Gbit/s",
    "today-400g": "a server with PCIe 5 drives and two ports of 400 Gbit/s",
    "today-dpu": "the same, with TCP and the file system on its network and storage devices",
    "today-cxl": "the same, with devices on CXL",
    "serve-cores": "four cores of a device server, `bywash serve --cores 4`: blocks of 4 KiB of memory",
    "carrera-table-2": "the server of Carrera et al., Tables II and III: one processor, four interfaces and disks",
    "carrera-table-4": "their simulated server, Table IV: sixteen of each, on PCI",
    "schaelicke-streams": "23 streams of requests on a machine of 2001",
};

impl Preset {
    /// Returns the preset `name`, or `None` if no preset has this name.
    pub fn named(name: &str) -> Option<Preset> {
        PRESETS.iter().copied().find(|preset| preset.name == name)
    }

    /// Parses the preset's text.
    ///
    /// # Panics
    /// If the text is not a valid description. No preset of [`PRESETS`] panics: a test parses all of them.
    pub fn description(&self) -> Description {
        Description::from_toml(self.text).expect("a preset is read by a test")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::{Options, Stop, simulate};
    use bywash_model::{Architecture, Resource};

    #[test]
    fn every_cost_is_said_and_machines_of_today_serve_what_they_are_for() {
        for preset in PRESETS {
            // The paper's presets have the paper's costs, by name or by leaving them out.
            let is_paper = preset.name.starts_with("carrera") || preset.name.starts_with("schaelicke");
            let implied = bywash_model::describe::implied_costs(preset.text);
            assert!(is_paper || implied.is_empty(), "{}: {implied:?}", preset.name);
            assert!(
                is_paper || bywash_model::describe::implied_trap(preset.text).is_none(),
                "{}",
                preset.name
            );
        }
        let most = |name: &str, architecture| {
            let description = Preset::named(name).unwrap().description();
            let bound = bywash_model::bound(&description.machine, &description.workload(), architecture);
            bound.throughput / description.workload().request_bytes()
        };
        use bywash_model::Architecture::{Conventional, UserLevel};
        // Two ports of 25 Gbit/s send 95,000 files of 64 KiB a second, one of 10 Gbit/s sends 38,000 of 32 KiB.
        assert!((most("today-25g", UserLevel) / 95_367.0 - 1.0).abs() < 0.01);
        assert!((most("today-10g", UserLevel) / 38_147.0 - 1.0).abs() < 0.01);
        assert!((1500.0..3000.0).contains(&most("cloud-small", Conventional)));
        for name in ["today-25g", "today-10g", "cloud-small", "nas"] {
            assert_eq!(Preset::named(name).unwrap().description().supported(), [Conventional, UserLevel]);
            assert!(most(name, UserLevel) >= most(name, Conventional));
        }
    }

    /// The table of docs/internals/cores.md: cores, instructions of a read, reads a second, and whether processors bind.
    #[test]
    fn cores_of_a_device_server_carry_what_the_page_says() {
        let preset = Preset::named("serve-cores").unwrap().description();
        assert_eq!(preset.supported(), [Architecture::Conventional, Architecture::UserLevel]);
        let cycles = |costs: &bywash_model::work::Costs| {
            costs.doorbell.0 + costs.poll.0 + 4096.0 * costs.file_system.0
        };
        assert!((cycles(&preset.costs) - 2143.0).abs() < 1.0);
        for (cores, instructions, millions, processors_bind) in [
            (1.0, 1996.0, 1.50, true),
            (2.0, 2123.0, 2.83, true),
            (4.0, 2143.0, 5.60, true),
            (8.0, 2143.0, 11.2, true),
            (16.0, 2143.0, 22.4, true),
            (32.0, 2143.0, 25.0, false),
        ] {
            let mut described = preset;
            described.machine.processors.count = cores;
            described.load.threads = 64.0 * cores;
            described.costs.poll.0 += instructions - cycles(&preset.costs);
            let work = described.workload();
            let bound = bywash_model::bound(&described.machine, &work, Architecture::UserLevel);
            let most = bound.throughput / work.request_bytes();
            assert!((most / 1e6 / millions - 1.0).abs() < 0.005, "{cores}: {most}");
            assert_eq!(bound.binding == Resource::Processors, processors_bind, "{cores}");
            let options = Options::default().stop(Stop::Requests(20_000));
            let report = simulate(&described, Architecture::UserLevel, &options, &mut |_| true).unwrap();
            assert!((report.rate.mean / most - 1.0).abs() < 0.01, "{cores}: {} of {most}", report.rate.mean);
        }
    }

    #[test]
    fn all_can_be_read() {
        for preset in PRESETS {
            preset.description();
            assert_eq!(Preset::named(preset.name), Some(*preset));
        }
        assert_eq!(Preset::named("none"), None);
    }
}
