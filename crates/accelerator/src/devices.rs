//! Devices of this machine, by their names. There is one so far: `cpu`.

use crate::cpu::Cpu;
use crate::device::Device;
use crate::error::Error;

/// Names of all devices.
pub const NAMES: &[&str] = &["cpu"];

/// Device that was looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Found {
    /// Name of the device, as in `device=`.
    pub name: String,
    /// Name of the processor, and its number of threads.
    pub description: String,
}

/// Looks for all devices of this machine.
pub fn all() -> Vec<Found> {
    vec![Found { name: Cpu.name(), description: Cpu.description() }]
}

/// Opens a device.
///
/// # Errors
/// [`Error::Parameter`] if there is no device of this name.
pub fn open(name: &str) -> Result<Box<dyn Device>, Error> {
    match name {
        "cpu" => Ok(Box::new(Cpu)),
        _ => Err(Error::Parameter(format!("there is no device '{name}': give {}", NAMES.join(" or ")))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_opened_by_their_names() {
        let found = all();
        assert_eq!(found.iter().map(|found| found.name.as_str()).collect::<Vec<_>>(), NAMES);
        for name in NAMES {
            assert_eq!(open(name).unwrap().name(), *name);
        }
        assert!(open("tpu").err().unwrap().to_string().contains("'tpu': give cpu"));
    }
}
