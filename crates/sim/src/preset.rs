//! Machines with their work that come along, each with where its numbers are from.

use bywash_model::Description;

/// A description that comes along.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preset {
    /// What it is called.
    pub name: &'static str,
    /// What it is.
    pub about: &'static str,
    /// TOML, with the source of its numbers.
    pub text: &'static str,
}

macro_rules! presets {
    ($($name:literal: $about:literal,)*) => {
        &[$(Preset { name: $name, about: $about, text: include_str!(concat!("../presets/", $name, ".toml")) }),*]
    };
}

/// All of them.
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
    /// The one of that name.
    pub fn named(name: &str) -> Option<Preset> {
        PRESETS.iter().copied().find(|preset| preset.name == name)
    }

    /// What it describes.
    ///
    /// # Panics
    /// Not for those that come along: a test reads them all.
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
