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
    "carrera-table-2": "the server of Carrera et al., Tables II and III: one processor, four interfaces and disks",
    "carrera-table-4": "their simulated server, Table IV: sixteen of each, on PCI",
    "schaelicke-streams": "23 streams of requests on a machine of 2001",
    "today-100g": "a server with PCIe 4 drives and two ports of 100 Gbit/s",
    "today-400g": "a server with PCIe 5 drives and two ports of 400 Gbit/s",
    "today-dpu": "the same, with TCP and the file system on its network and storage devices",
    "today-cxl": "the same, with devices on CXL",
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

    #[test]
    fn all_can_be_read() {
        for preset in PRESETS {
            preset.description();
            assert_eq!(Preset::named(preset.name), Some(*preset));
        }
        assert_eq!(Preset::named("none"), None);
    }
}
