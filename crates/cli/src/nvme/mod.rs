//! `bywash nvme`: NVMe controllers of this machine, taking them from the kernel, verifying their disks, and giving them back.
//!
//! - [`verify`]: whether every block of a namespace can be read

mod verify;

use crate::cli::nvme::{NvmeArgs, NvmeCommand};
use crate::error::Failure;
use bywash_nvme::{Address, PciController, Sysfs};
use bywash_quantity::Bytes;
use serde::Serialize;
use std::io::{self, Write};
use std::thread;
use std::time::{Duration, Instant};

/// Greatest time for which `unbind` waits until the kernel has found the disks of a controller.
const DISKS_TIMEOUT: Duration = Duration::from_secs(10);
/// Interval between two looks at the disks of a controller.
const LOOK: Duration = Duration::from_millis(20);

/// Carries out the command line and returns the exit status.
///
/// # Errors
/// [`Failure::Nvme`] if controllers cannot be listed, taken, verified or given back, and [`Failure::Output`].
pub fn main(arguments: &NvmeArgs) -> Result<i32, Failure> {
    let sysfs = Sysfs::new();
    match &arguments.command {
        NvmeCommand::List { json } => list(&sysfs, *json)?,
        NvmeCommand::Bind { address } => bind(&sysfs, address)?,
        NvmeCommand::Unbind { address } => unbind(&sysfs, address)?,
        NvmeCommand::Verify(arguments) => return verify::main(arguments),
    }
    Ok(0)
}

/// A controller in the list.
#[derive(Debug, Serialize)]
struct ControllerRow {
    address: String,
    /// Vendor and device identifiers, as in `1b36:0010`.
    identifiers: String,
    driver: Option<String>,
    iommu_group: Option<u32>,
    model: Option<String>,
    serial: Option<String>,
    namespaces: Vec<NamespaceRow>,
    /// Processes that use the controller by VFIO.
    processes: Vec<String>,
    /// Reason why `bywash serve` cannot have the controller; none if it can, after `bywash nvme bind` if necessary.
    obstacle: Option<String>,
    /// State and next step in words.
    state: String,
}

/// A namespace that the kernel's driver shows as a disk.
#[derive(Debug, Serialize)]
struct NamespaceRow {
    number: Option<u32>,
    disk: String,
    bytes: Option<u64>,
}

impl ControllerRow {
    fn new(sysfs: &Sysfs, controller: PciController) -> ControllerRow {
        let obstacle = sysfs.obstacle(&controller);
        let state = state(&controller, obstacle.as_deref());
        let namespaces = controller.disks.into_iter().map(|disk| NamespaceRow {
            number: disk.namespace,
            disk: disk.name,
            bytes: disk.bytes,
        });
        ControllerRow {
            address: controller.address.to_string(),
            identifiers: controller.identifiers,
            driver: controller.driver,
            iommu_group: controller.group,
            model: controller.model,
            serial: controller.serial,
            namespaces: namespaces.collect(),
            processes: controller.processes,
            obstacle,
            state,
        }
    }

    /// Returns the namespaces in words, such as `1: nvme0n1 (16 MiB)`.
    fn namespaces(&self) -> String {
        let words = self.namespaces.iter().map(|namespace| {
            let number = namespace.number.map_or("?".into(), |number| number.to_string());
            let bytes = namespace.bytes.map_or(String::new(), |bytes| format!(" ({})", Bytes(bytes)));
            format!("{number}: {}{bytes}", namespace.disk)
        });
        words.collect::<Vec<_>>().join(", ")
    }
}

/// Returns the state of a controller and the next step, in words.
fn state(controller: &PciController, obstacle: Option<&str>) -> String {
    let address = &controller.address;
    match (controller.driver.as_deref(), obstacle) {
        (Some("vfio-pci"), _) if !controller.processes.is_empty() => {
            format!("used by {}", controller.processes.join(", "))
        }
        (_, Some(reason)) => format!("cannot be served: {reason}"),
        (Some("vfio-pci"), None) => format!("ready: bywash serve --device NAME=nvme:{address}"),
        (_, None) => format!("can be served after bywash nvme bind {address}"),
    }
}

fn list(sysfs: &Sysfs, json: bool) -> Result<(), Failure> {
    let rows: Vec<_> =
        sysfs.list()?.into_iter().map(|controller| ControllerRow::new(sysfs, controller)).collect();
    let mut out = io::stdout().lock();
    if json {
        let text = serde_json::to_string_pretty(&rows).map_err(|error| Failure::Output(error.into()))?;
        return writeln!(out, "{text}").map_err(Failure::Output);
    }
    out.write_all(table(&rows).as_bytes()).map_err(Failure::Output)
}

fn table(rows: &[ControllerRow]) -> String {
    if rows.is_empty() {
        return "no NVMe controller is on this machine's PCI bus\n".into();
    }
    let mut text = String::new();
    for row in rows {
        let group = row.iommu_group.map_or("no IOMMU".into(), |group| format!("IOMMU group {group}"));
        let driver = row.driver.as_deref().unwrap_or("no driver");
        text += &format!("{}  {}  {driver}  {group}\n", row.address, row.identifiers);
        if let Some(model) = &row.model {
            text +=
                &format!("    model       {model}, serial {}\n", row.serial.as_deref().unwrap_or("unknown"));
        }
        if !row.namespaces.is_empty() {
            text += &format!("    namespaces  {}\n", row.namespaces());
        }
        text += &format!("    state       {}\n", row.state);
    }
    text
}

fn bind(sysfs: &Sysfs, address: &Address) -> Result<(), Failure> {
    let bound = sysfs.bind(address)?;
    let before = match bound.previous.as_deref() {
        Some("vfio-pci") => " already".into(),
        Some(driver) => format!("; before, it was bound to {driver}"),
        None => "; before, it was bound to no driver".into(),
    };
    say(&format!(
        "{address} is bound to vfio-pci{before}\n\
         serve it: bywash serve --device NAME=nvme:{address}\n\
         give it back: bywash nvme unbind {address}"
    ))
}

fn unbind(sysfs: &Sysfs, address: &Address) -> Result<(), Failure> {
    sysfs.release(address)?;
    // The kernel looks for namespaces on threads of its own.
    let end = Instant::now() + DISKS_TIMEOUT;
    let mut found = sysfs.find(address)?;
    while found.driver.is_some() && found.disks.is_empty() && Instant::now() < end {
        thread::sleep(LOOK);
        found = sysfs.find(address)?;
    }
    let disks: Vec<String> = found.disks.iter().map(|disk| format!("/dev/{}", disk.name)).collect();
    match (&found.driver, disks.as_slice()) {
        (Some(driver), []) => {
            say(&format!("{address} is bound to {driver}, which shows no disk of it: dmesg says why"))
        }
        (Some(driver), disks) => say(&format!("{address} is bound to {driver}: {}", disks.join(", "))),
        (None, _) => say(&format!("{address} is free; no driver of the kernel took it (modprobe nvme)")),
    }
}

fn say(text: &str) -> Result<(), Failure> {
    writeln!(io::stdout(), "{text}").map_err(Failure::Output)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bywash_nvme::KernelDisk;

    fn controller(driver: Option<&str>) -> PciController {
        PciController {
            address: "0000:01:00.0".parse().unwrap(),
            identifiers: "1b36:0010".into(),
            driver: driver.map(str::to_owned),
            group: Some(7),
            group_members: Vec::new(),
            model: None,
            serial: None,
            disks: Vec::new(),
            uses: Vec::new(),
            processes: Vec::new(),
        }
    }

    #[test]
    fn the_state_names_the_next_step() {
        let used =
            PciController { processes: vec!["bywash (process 9)".into()], ..controller(Some("vfio-pci")) };
        for (controller, obstacle, said) in [
            (controller(Some("nvme")), None, "can be served after bywash nvme bind 0000:01:00.0"),
            (controller(None), None, "can be served after bywash nvme bind 0000:01:00.0"),
            (controller(Some("nvme")), Some("it is mounted"), "cannot be served: it is mounted"),
            (controller(Some("vfio-pci")), None, "ready: bywash serve --device NAME=nvme:0000:01:00.0"),
            (used, None, "used by bywash (process 9)"),
        ] {
            assert_eq!(state(&controller, obstacle), said);
        }
    }

    #[test]
    fn a_controller_is_listed_with_its_namespaces() {
        let disk = |name: &str, namespace, bytes| KernelDisk { name: name.into(), namespace, bytes };
        let controller = PciController {
            model: Some("Some Disk".into()),
            disks: vec![disk("nvme0n1", Some(1), Some(16 << 20)), disk("nvme0n2", None, None)],
            group: None,
            ..controller(Some("nvme"))
        };
        let folder = tempfile::tempdir().unwrap();
        let row = ControllerRow::new(&Sysfs::at(folder.path()), controller);
        let text = table(&[row]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "0000:01:00.0  1b36:0010  nvme  no IOMMU");
        assert_eq!(lines[1], "    model       Some Disk, serial unknown");
        assert_eq!(lines[2], "    namespaces  1: nvme0n1 (16 MiB), ?: nvme0n2");
        assert!(lines[3].starts_with("    state       cannot be served: it is behind no IOMMU"), "{text}");
        assert!(table(&[]).starts_with("no NVMe controller"));
    }
}
