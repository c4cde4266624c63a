//! Devices of this machine, by their names: `cpu`, and `gpu:0`, `gpu:1`, `cuda:0` and so on. Without a number, it is the first
//! of its kind.

pub use crate::device::Found;

use crate::cpu::Cpu;
#[cfg(feature = "cuda")]
use crate::cuda;
use crate::device::Device;
use crate::error::Error;
#[cfg(feature = "gpu")]
use crate::gpu;

/// Kind of devices of which there is none.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Absent {
    /// Name of the kind, as in `device=`.
    pub name: String,
    /// Reason, such as a library that is missing.
    pub reason: String,
    /// Remedy, for the user.
    pub remedy: String,
}

/// Devices of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Devices {
    /// Devices that can be opened.
    pub found: Vec<Found>,
    /// Kinds of which there is no device.
    pub absent: Vec<Absent>,
}

/// Looks for all devices of this machine.
pub fn all() -> Devices {
    let mut devices = Devices {
        found: vec![Found { name: Cpu.name(), description: Cpu.description(), uses_processor: true }],
        absent: Vec::new(),
    };
    for kind in KINDS {
        match (kind.survey)() {
            Ok(found) => devices.found.extend(found),
            Err([reason, remedy]) => devices.absent.push(Absent { name: kind.name.into(), reason, remedy }),
        }
    }
    devices
}

/// Checks that a name can be one of a device, without looking for it.
///
/// # Errors
/// [`Error::Parameter`] with the devices that there are.
pub fn check_name(name: &str) -> Result<(), Error> {
    parse(name).map(|_| ())
}

/// Opens a device.
///
/// # Errors
/// [`Error::Parameter`] if there is no device of this name, with those that there are; [`Error::Lost`] if its driver refuses.
pub fn open(name: &str) -> Result<Box<dyn Device>, Error> {
    match parse(name)? {
        None => Ok(Box::new(Cpu)),
        Some((kind, number)) => (kind.open)(number).map_err(|error| match error {
            Error::Parameter(_) => unknown(name),
            error => error,
        }),
    }
}

/// Devices of a kind, or the reason why there are none and the remedy.
type Survey = Result<Vec<Found>, [String; 2]>;

/// Kind of devices that are numbered.
struct Kind {
    name: &'static str,
    survey: fn() -> Survey,
    /// Opens the device of a number, with [`Error::Parameter`] if there is none of this number.
    open: fn(usize) -> Result<Box<dyn Device>, Error>,
}

/// Kinds of devices beside the processor.
static KINDS: &[Kind] = &[
    #[cfg(feature = "gpu")]
    Kind {
        name: "gpu",
        survey: || gpu::survey().map_err(|texts| texts.map(String::from)),
        open: |number| Ok(Box::new(gpu::Gpu::open(number)?)),
    },
    #[cfg(not(feature = "gpu"))]
    not_built!("gpu"),
    #[cfg(feature = "cuda")]
    Kind { name: "cuda", survey: cuda::survey, open: |number| Ok(Box::new(cuda::Cuda::open(number)?)) },
    #[cfg(not(feature = "cuda"))]
    not_built!("cuda"),
];

/// Makes a kind that a build leaves out.
#[cfg(not(feature = "cuda"))]
macro_rules! not_built {
    ($name:literal) => {
        Kind {
            name: $name,
            survey: || {
                Err(["this build has no support for it", concat!("build with the feature ", $name)]
                    .map(String::from))
            },
            open: |_| Err(Error::Parameter("not built".into())),
        }
    };
}
#[cfg(not(feature = "cuda"))]
use not_built;

/// Returns the kind and number of a device; `None` for the processor.
fn parse(name: &str) -> Result<Option<(&'static Kind, usize)>, Error> {
    if name == "cpu" {
        return Ok(None);
    }
    let (kind, number) =
        name.split_once(':').map_or((name, Some(0)), |(kind, number)| (kind, number.parse().ok()));
    let kind = KINDS.iter().find(|known| known.name == kind);
    kind.zip(number).map(Some).ok_or_else(|| unknown(name))
}

/// Returns the error for a name of no device.
fn unknown(name: &str) -> Error {
    let Devices { found, absent } = all();
    let names: Vec<String> = found.into_iter().map(|found| found.name).collect();
    let reasons =
        absent.into_iter().map(|Absent { name, reason, remedy }| format!("; {name}: {reason}: {remedy}"));
    let reasons: String = reasons.collect();
    Error::Parameter(format!("there is no device '{name}': there is {}{}", names.join(", "), reasons))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_opened_by_their_names() {
        let Devices { found, absent } = all();
        assert_eq!(found[0].name, "cpu");
        for found in &found {
            let device = open(&found.name).unwrap();
            assert_eq!(
                (device.name(), device.description()),
                (found.name.clone(), found.description.clone())
            );
        }
        for kind in KINDS {
            let count = found.iter().filter(|found| found.name.starts_with(kind.name)).count();
            let is_absent = absent.iter().any(|absent| absent.name == kind.name);
            assert_eq!(
                count == 0,
                is_absent,
                "devices of the kind {}, or the reason why there are none",
                kind.name
            );
        }
        let beyond = format!("gpu:{}", found.len());
        for name in ["tpu", "", "cpu:0", "gpu:x", "gpu:-1", &beyond] {
            let message = open(name).err().unwrap().to_string();
            assert!(message.contains(&format!("'{name}': there is cpu")), "{message}");
            assert!(absent.iter().all(|absent| message.contains(&absent.reason)), "{message}");
        }
    }
}
