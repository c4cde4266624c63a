//! NVMe controllers on the machine's PCI bus, who uses them, and moving them between drivers.
//!
//! ```text
//!   bind:    vfio-pci ──► driver_override │ address ──► driver/unbind │ address ──► drivers_probe
//!   release:          ──► driver_override │ address ──► driver/unbind │ address ──► drivers_probe
//! ```
//!
//! Everything is done through sysfs (the kernel's Documentation/ABI/testing/sysfs-bus-pci). Invariant: a controller whose
//! disks are in use (mounted, swap, part of another device, open exclusively or in a process) is never taken from the
//! kernel, nor one that the IOMMU cannot tell from a function with another driver; and a controller that could not be
//! bound gets its old driver back. Called by whoever opens or lists controllers.

use crate::error::Error;
use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Class of NVMe I/O controllers: mass storage, non-volatile memory, NVM Express I/O.
const NVME_CLASS: &str = "0x010802";
/// Driver that hands functions to processes.
pub(crate) const VFIO_DRIVER: &str = "vfio-pci";
/// Reason to refuse a function without an IOMMU.
pub(crate) const NO_IOMMU: &str = "it is behind no IOMMU, so that nothing would protect the machine's memory from it: switch \
                                   VT-d or AMD-Vi on in the firmware, and start the kernel with intel_iommu=on or amd_iommu=on";
/// Greatest number of processes that a message names.
const PROCESSES_MAX: usize = 4;

/// Address of a PCI function: domain, bus, device, function, as in `0000:00:04.0`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address(String);

impl FromStr for Address {
    type Err = Error;

    /// Parses `DOMAIN:BUS:DEVICE.FUNCTION` in hexadecimal digits; the domain may be left out if it is 0.
    fn from_str(text: &str) -> Result<Address, Error> {
        let full = if text.matches(':').count() == 1 { format!("0000:{text}") } else { text.to_owned() };
        let full = full.to_ascii_lowercase();
        let wrong = || Error::Address {
            address: text.to_owned(),
            reason: "is no PCI address: write it as in 0000:00:04.0".into(),
        };
        let (rest, function) = full.split_once('.').ok_or_else(wrong)?;
        let parts: Vec<&str> = rest.split(':').collect();
        let is_hexadecimal = |part: &str, digits: std::ops::RangeInclusive<usize>| {
            digits.contains(&part.len()) && part.bytes().all(|digit| digit.is_ascii_hexdigit())
        };
        let [domain, bus, device] = parts[..] else { return Err(wrong()) };
        let is_function = matches!(function.as_bytes(), [b'0'..=b'7']);
        let is_valid =
            is_hexadecimal(domain, 4..=8) && is_hexadecimal(bus, 2..=2) && is_hexadecimal(device, 2..=2);
        if is_valid && is_function { Ok(Address(full)) } else { Err(wrong()) }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

/// An NVMe controller on the bus.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PciController {
    /// Address of the function.
    pub address: Address,
    /// Vendor and device identifiers, as in `1b36:0010`.
    pub identifiers: String,
    /// Driver that the function is bound to.
    pub driver: Option<String>,
    /// Number of the IOMMU group; `None` without an IOMMU.
    pub group: Option<u32>,
    /// Other functions of the group that are no bridges, each with its driver.
    pub group_members: Vec<(Address, Option<String>)>,
    /// Model of the controller, while the kernel's driver has it.
    pub model: Option<String>,
    /// Serial number of the controller, while the kernel's driver has it.
    pub serial: Option<String>,
    /// Block devices that the kernel has made of the controller's namespaces.
    pub disks: Vec<KernelDisk>,
    /// Uses of these block devices and their partitions, in words, such as `/dev/nvme0n1p1 is mounted at /home`.
    pub uses: Vec<String>,
    /// Processes that have the function's group open by VFIO, in words, such as `bywash (process 812)`; those that this
    /// process may not look into are left out.
    pub processes: Vec<String>,
}

/// A block device that the kernel has made of a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelDisk {
    /// Name in `/dev`, such as `nvme0n1`.
    pub name: String,
    /// Number of the namespace, if the kernel tells it.
    pub namespace: Option<u32>,
    /// Size, in bytes, if the kernel tells it.
    pub bytes: Option<u64>,
}

/// Controller that was bound to vfio-pci, and the driver that it had before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bound {
    /// Address of the function.
    pub address: Address,
    /// Driver that the function had before, which may have been vfio-pci; `None` if it had none.
    pub previous: Option<String>,
}

/// The kernel's view of the machine's devices.
#[derive(Clone, Debug)]
pub struct Sysfs {
    /// Folder that contains `sys`, `proc` and `dev`.
    root: PathBuf,
}

impl Default for Sysfs {
    fn default() -> Sysfs {
        Sysfs::new()
    }
}

impl Sysfs {
    /// Returns the view of this machine.
    pub fn new() -> Sysfs {
        Sysfs::at(Path::new("/"))
    }

    /// Returns the view in which `root` has the folders `sys`, `proc` and `dev`.
    pub fn at(root: &Path) -> Sysfs {
        Sysfs { root: root.to_owned() }
    }

    /// Returns all NVMe controllers, by ascending address; none if the machine has no PCI bus.
    ///
    /// # Errors
    /// [`Error::Io`] if the list of PCI devices cannot be read.
    pub fn list(&self) -> Result<Vec<PciController>, Error> {
        let folder = self.devices();
        let entries = match fs::read_dir(&folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(|error| failed("list", &folder, error))?,
        };
        let addresses =
            entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<Address>().ok());
        let controllers: BTreeSet<Address> = addresses.filter(|address| self.is_nvme(address)).collect();
        controllers.into_iter().map(|address| self.look_at(address)).collect()
    }

    /// Returns the NVMe controller at `address`.
    ///
    /// # Errors
    /// [`Error::Address`] if there is no function with this address, or it is no NVMe controller; [`Error::Io`] if its
    /// properties cannot be read.
    pub fn find(&self, address: &Address) -> Result<PciController, Error> {
        let wrong = |reason: &str| Error::Address { address: address.to_string(), reason: reason.to_owned() };
        if !self.device(address).exists() {
            return Err(wrong("is no PCI function of this machine: lspci lists them"));
        }
        if !self.is_nvme(address) {
            return Err(wrong("is no NVMe controller"));
        }
        self.look_at(address.clone())
    }

    /// Returns the reason why a process cannot use a controller, and the remedy; `None` if it can.
    pub fn obstacle(&self, controller: &PciController) -> Option<String> {
        if !controller.uses.is_empty() {
            return Some(format!("{}: end that use first", controller.uses.join(", ")));
        }
        if controller.group.is_none() {
            return Some(NO_IOMMU.into());
        }
        let foreign = |(other, driver): &(Address, Option<String>)| match driver.as_deref() {
            None | Some(VFIO_DRIVER) => None,
            Some(driver) => Some(format!("{other} ({driver})")),
        };
        let foreign: Vec<String> = controller.group_members.iter().filter_map(foreign).collect();
        if !foreign.is_empty() {
            let list = foreign.join(", ");
            return Some(format!(
                "the IOMMU cannot tell it from {list}: unbind these first, or use another slot"
            ));
        }
        let has_driver = self.root.join("sys/bus/pci/drivers").join(VFIO_DRIVER).exists();
        (!has_driver).then(|| "the driver vfio-pci is not there: modprobe vfio-pci".into())
    }

    /// Binds a controller to vfio-pci, whose module has to be loaded.
    ///
    /// # Errors
    /// [`Error::Refused`] if a disk of the controller is in use, the function is behind no IOMMU, or its group has a
    /// function with another driver; or if vfio-pci did not take it, in which case it has its old driver back.
    /// [`Error::Address`] if it is no NVMe controller. [`Error::Io`] if sysfs cannot be read or written, for example
    /// because the process is not root.
    pub fn bind(&self, address: &Address) -> Result<Bound, Error> {
        let controller = self.find(address)?;
        let refused = |reason: String| Error::Refused { address: address.to_string(), reason };
        let previous = controller.driver.clone();
        if controller.driver.as_deref() == Some(VFIO_DRIVER) {
            return Ok(Bound { address: address.clone(), previous });
        }
        if let Some(reason) = self.obstacle(&controller) {
            return Err(refused(reason));
        }
        let bound = self.rebind(address, Some(VFIO_DRIVER));
        let driver = self.driver(address);
        if driver.as_deref() == Some(VFIO_DRIVER) {
            return Ok(Bound { address: address.clone(), previous });
        }
        // Gives it back; the first error is the one to report.
        let given_back = self.rebind(address, None);
        bound?;
        given_back?;
        Err(refused("vfio-pci did not take it, and it has its old driver again: dmesg says why".into()))
    }

    /// Gives a controller that is bound to vfio-pci back to the kernel, which then finds the driver that it would have
    /// found at boot.
    ///
    /// # Errors
    /// [`Error::Refused`] if a process has the controller open or it is not bound to vfio-pci, [`Error::Address`] if it is
    /// no NVMe controller, [`Error::Io`] if sysfs cannot be written.
    pub fn release(&self, address: &Address) -> Result<(), Error> {
        let controller = self.find(address)?;
        let refused = |reason: String| Error::Refused { address: address.to_string(), reason };
        if controller.driver.as_deref() != Some(VFIO_DRIVER) {
            let driver = controller.driver.as_deref().unwrap_or("no driver");
            return Err(refused(format!("it is bound to {driver} and not to vfio-pci")));
        }
        // Unbinding would wait until the process has closed it.
        if let Some(group) = controller.group {
            let path = self.root.join("dev/vfio").join(group.to_string());
            let opened = fs::File::options().read(true).write(true).open(path);
            if opened.is_err_and(|error| error.raw_os_error() == Some(libc::EBUSY)) {
                let users = named(&controller.processes);
                return Err(refused(format!("a process has it open{users}: end that process first")));
            }
        }
        self.rebind(address, None)
    }

    /// Gives a controller back as it was: to the driver that it had before, or to none. Leaves it alone if it had been
    /// bound to vfio-pci already.
    ///
    /// # Errors
    /// Same as [`Sysfs::release`].
    pub fn restore(&self, bound: &Bound) -> Result<(), Error> {
        match bound.previous.as_deref() {
            Some(VFIO_DRIVER) => Ok(()),
            Some(_) => self.release(&bound.address),
            None => {
                let controller = self.find(&bound.address)?;
                self.write("driver_override", &bound.address, "\n")?;
                match controller.driver {
                    Some(_) => self.write("driver/unbind", &bound.address, &bound.address.0),
                    None => Ok(()),
                }
            }
        }
    }

    /// Returns the character device of a controller that the kernel's driver has.
    ///
    /// # Errors
    /// [`Error::Address`] if it is no NVMe controller, [`Error::Refused`] if another driver has it, [`Error::Io`] if its
    /// properties cannot be read.
    pub(crate) fn kernel_controller(&self, address: &Address) -> Result<PathBuf, Error> {
        let found = self.find(address)?;
        let controllers = fs::read_dir(self.device(address).join("nvme")).into_iter().flatten().flatten();
        let mut names = controllers.map(|entry| entry.file_name()).filter(|name| {
            name.to_str().and_then(|name| name.strip_prefix("nvme")?.parse::<u32>().ok()).is_some()
        });
        names.next().map(|name| self.root.join("dev").join(name)).ok_or_else(|| {
            let driver = found.driver.as_deref().unwrap_or("no driver");
            let remedy = format!("`bywash nvme unbind {address}` gives it back");
            let reason = format!(
                "it is bound to {driver}, and a controller with virtual functions stays with the kernel's driver nvme: {remedy}"
            );
            Error::Refused { address: address.to_string(), reason }
        })
    }

    /// Returns the number of a controller's virtual functions, and the greatest possible one.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if it can have none.
    pub(crate) fn virtual_functions(&self, address: &Address) -> Result<(u16, u16), Error> {
        let number =
            |file: &str| fs::read_to_string(self.device(address).join(file)).ok()?.trim().parse().ok();
        let numbers = number("sriov_numvfs").zip(number("sriov_totalvfs"));
        numbers.ok_or_else(|| Error::Unsupported {
            reason: "it has no virtual functions: leave vfs= out".into(),
        })
    }

    /// Has the kernel make `count` virtual functions, to which it binds no driver, or remove all of them.
    ///
    /// # Errors
    /// [`Error::Io`] if the kernel refuses.
    pub(crate) fn set_virtual_functions(&self, address: &Address, count: u16) -> Result<(), Error> {
        self.write("sriov_drivers_autoprobe", address, "0")?;
        self.write("sriov_numvfs", address, &count.to_string())
    }

    /// Returns the address of virtual function `number`, which is counted from 1 on.
    ///
    /// # Errors
    /// [`Error::Io`] if the kernel has not made it.
    pub(crate) fn virtual_function(&self, address: &Address, number: u16) -> Result<Address, Error> {
        let path = self.device(address).join(format!("virtfn{}", number.saturating_sub(1)));
        let target = fs::read_link(&path).map_err(|error| failed("read", &path, error))?;
        let name = target.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        name.parse()
    }

    /// Has the kernel's driver reset a controller.
    ///
    /// # Errors
    /// [`Error::Refused`] if that driver does not have it, [`Error::Io`] if the kernel refuses.
    pub(crate) fn reset(&self, address: &Address) -> Result<(), Error> {
        let device = self.kernel_controller(address)?;
        let name = device.file_name().unwrap_or_default().to_string_lossy().into_owned();
        self.write(&format!("nvme/{name}/reset_controller"), address, "1")
    }

    /// Takes a function from its driver, and has the kernel find the next: `driver`, or any.
    fn rebind(&self, address: &Address, driver: Option<&str>) -> Result<(), Error> {
        // A line feed alone removes the override.
        self.write("driver_override", address, &format!("{}\n", driver.unwrap_or("")))?;
        if self.driver(address).is_some() {
            self.write("driver/unbind", address, &address.0)?;
        }
        let path = self.root.join("sys/bus/pci/drivers_probe");
        fs::write(&path, &address.0).map_err(|error| failed("write", &path, error))
    }

    fn write(&self, file: &str, address: &Address, text: &str) -> Result<(), Error> {
        let path = self.device(address).join(file);
        fs::write(&path, text).map_err(|error| failed("write", &path, error))
    }

    fn devices(&self) -> PathBuf {
        self.root.join("sys/bus/pci/devices")
    }

    fn device(&self, address: &Address) -> PathBuf {
        self.devices().join(&address.0)
    }

    fn is_nvme(&self, address: &Address) -> bool {
        fs::read_to_string(self.device(address).join("class")).is_ok_and(|class| class.trim() == NVME_CLASS)
    }

    fn driver(&self, address: &Address) -> Option<String> {
        let target = fs::read_link(self.device(address).join("driver")).ok()?;
        Some(target.file_name()?.to_string_lossy().into_owned())
    }

    fn look_at(&self, address: Address) -> Result<PciController, Error> {
        let folder = self.device(&address);
        let word = |file: &str| {
            let path = folder.join(file);
            let text = fs::read_to_string(&path).map_err(|error| failed("read", &path, error))?;
            Ok::<_, Error>(text.trim().trim_start_matches("0x").to_owned())
        };
        let identifiers = format!("{}:{}", word("vendor")?, word("device")?);
        let group_link = fs::read_link(folder.join("iommu_group")).ok();
        let group = group_link.and_then(|target| target.file_name()?.to_str()?.parse().ok());
        let disks = self.disks(&folder);
        let uses = disks.iter().flat_map(|disk| self.uses(&disk.name)).collect();
        let processes =
            group.map_or(Vec::new(), |group| self.processes_with(&[format!("/dev/vfio/{group}")]));
        let told = |file| {
            let controllers = fs::read_dir(folder.join("nvme")).into_iter().flatten().flatten();
            let texts = controllers.filter_map(|entry| fs::read_to_string(entry.path().join(file)).ok());
            texts.map(|text| text.trim().to_owned()).find(|text| !text.is_empty())
        };
        Ok(PciController {
            identifiers,
            driver: self.driver(&address),
            group,
            group_members: self.group_members(&folder, &address),
            model: told("model"),
            serial: told("serial"),
            disks,
            uses,
            processes,
            address,
        })
    }

    /// Returns the other functions of a group that are no bridges: the kernel allows a bridge to have its own driver.
    fn group_members(&self, folder: &Path, address: &Address) -> Vec<(Address, Option<String>)> {
        let entries = fs::read_dir(folder.join("iommu_group/devices")).into_iter().flatten().flatten();
        let others = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<Address>().ok());
        let is_bridge = |other: &Address| {
            let class = fs::read_to_string(self.device(other).join("class"));
            class.is_ok_and(|class| class.starts_with("0x06"))
        };
        let mut members: Vec<_> = others
            .filter(|other| other != address && !is_bridge(other))
            .map(|other| {
                let driver = self.driver(&other);
                (other, driver)
            })
            .collect();
        members.sort();
        members
    }

    /// Returns a controller's block devices: `nvme/nvme0/nvme0n1`, or `nvme0c0n1` for a path of `nvme0n1`.
    fn disks(&self, folder: &Path) -> Vec<KernelDisk> {
        let controllers = fs::read_dir(folder.join("nvme")).into_iter().flatten().flatten();
        let mut disks = BTreeSet::new();
        for controller in controllers {
            for entry in fs::read_dir(controller.path()).into_iter().flatten().flatten() {
                let name = entry.file_name().to_string_lossy().into_owned();
                disks.extend(block_device(&name));
            }
        }
        let number = |disk: &str, file: &str| {
            let path = self.root.join("sys/class/block").join(disk).join(file);
            fs::read_to_string(path).ok()?.trim().parse::<u64>().ok()
        };
        let described = |name: String| KernelDisk {
            namespace: number(&name, "nsid").and_then(|number| number.try_into().ok()),
            // The kernel counts sectors of 512 bytes, whatever the size of a block.
            bytes: number(&name, "size").and_then(|sectors| sectors.checked_mul(512)),
            name,
        };
        disks.into_iter().map(described).collect()
    }

    /// Returns the processes that have one of these files open, in words, as far as this process may look into them.
    fn processes_with(&self, files: &[String]) -> Vec<String> {
        let processes = fs::read_dir(self.root.join("proc")).into_iter().flatten().flatten();
        let numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let has_one = |number: &u32| {
            let folder = self.root.join(format!("proc/{number}/fd"));
            let links = fs::read_dir(folder).into_iter().flatten().flatten();
            let mut targets = links.filter_map(|link| fs::read_link(link.path()).ok());
            targets.any(|target| files.iter().any(|file| target == Path::new(file)))
        };
        let mut numbers: Vec<u32> = numbers.filter(has_one).collect();
        numbers.sort_unstable();
        let name = |number: u32| {
            let name = self.read(&format!("proc/{number}/comm"));
            format!("{} (process {number})", name.trim())
        };
        numbers.into_iter().map(name).collect()
    }

    /// Returns the uses of a disk and its partitions, in words.
    fn uses(&self, disk: &str) -> Vec<String> {
        let folder = self.root.join("sys/class/block").join(disk);
        let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
        let partitions = entries.filter(|entry| entry.path().join("partition").exists());
        let partitions = partitions.map(|entry| entry.file_name().to_string_lossy().into_owned());
        let mut names: Vec<String> = partitions.collect();
        names.sort();
        names.insert(0, disk.to_owned());
        let mounts = self.read("proc/self/mountinfo");
        let swaps = self.read("proc/swaps");
        let mut uses = Vec::new();
        for name in &names {
            let block = self.root.join("sys/class/block").join(name);
            let number = fs::read_to_string(block.join("dev")).unwrap_or_default();
            let path = format!("/dev/{name}");
            for line in mounts.lines() {
                uses.extend(
                    mounted_at(line, number.trim(), &path).map(|at| format!("{path} is mounted at {at}")),
                );
            }
            if swaps.lines().any(|line| line.split_whitespace().next() == Some(&path)) {
                uses.push(format!("{path} is used for swapping"));
            }
            for holder in fs::read_dir(block.join("holders")).into_iter().flatten().flatten() {
                uses.push(format!("{path} is part of {}", holder.file_name().to_string_lossy()));
            }
        }
        // Whoever else has it for itself alone: open(2) with O_EXCL fails for a block device in use by the kernel.
        let opened = fs::File::options()
            .read(true)
            .custom_flags(libc::O_EXCL | libc::O_NONBLOCK)
            .open(self.root.join("dev").join(disk));
        if uses.is_empty() && opened.is_err_and(|error| error.raw_os_error() == Some(libc::EBUSY)) {
            uses.push(format!("/dev/{disk} is in use"));
        }
        let mut files: Vec<String> = names.iter().map(|name| format!("/dev/{name}")).collect();
        // The generic character device of the same namespace, `ng0n1`.
        files.extend(disk.strip_prefix("nvme").map(|numbers| format!("/dev/ng{numbers}")));
        let processes = self.processes_with(&files);
        if !processes.is_empty() {
            uses.push(format!("/dev/{disk} or a partition is open{}", named(&processes)));
        }
        uses
    }

    fn read(&self, file: &str) -> String {
        fs::read_to_string(self.root.join(file)).unwrap_or_default()
    }
}

fn failed(action: &str, path: &Path, error: io::Error) -> Error {
    Error::io(format!("{action} {}", path.display()), error)
}

/// Returns the end of a sentence that says in which processes something is; nothing if no process is known.
pub(crate) fn named(processes: &[String]) -> String {
    match processes {
        [] => String::new(),
        some => {
            let more = if some.len() > PROCESSES_MAX { " and others" } else { "" };
            format!(" in {}{more}", some[..some.len().min(PROCESSES_MAX)].join(", "))
        }
    }
}

/// Returns the block device of an entry of a controller's folder: `nvme0n1` for itself, and for its path `nvme0c1n1`.
fn block_device(entry: &str) -> Option<String> {
    let numbers = entry.strip_prefix("nvme")?;
    let (instance, namespace) = numbers.split_once('n')?;
    let instance = instance.split_once('c').map_or(instance, |(instance, _)| instance);
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|digit| digit.is_ascii_digit());
    (is_number(instance) && is_number(namespace)).then(|| format!("nvme{instance}n{namespace}"))
}

/// Returns the mount point of a line of /proc/self/mountinfo if it mounts the block device with this number or path:
/// the third field is the number; behind " - " are the type and the source, which is all that some file systems tell.
fn mounted_at(line: &str, number: &str, path: &str) -> Option<String> {
    let (fields, source) = line.split_once(" - ")?;
    let mut fields = fields.split(' ').skip(2);
    let (device, at) = (fields.next()?, fields.nth(1)?);
    let is_source = source.split(' ').nth(1) == Some(path);
    (is_source || device == number).then(|| at.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use tempfile::TempDir;

    /// A machine of files: folders as in sysfs.
    struct Machine(TempDir);

    impl Machine {
        fn new() -> Machine {
            let machine = Machine(tempfile::tempdir().unwrap());
            machine.write("sys/bus/pci/drivers_probe", "");
            machine.write("proc/swaps", "Filename Type Size Used Priority\n");
            machine.write("proc/self/mountinfo", "22 1 0:20 / / rw - tmpfs none rw\n");
            fs::create_dir_all(machine.path("sys/bus/pci/drivers/vfio-pci")).unwrap();
            machine
        }

        fn path(&self, path: &str) -> PathBuf {
            self.0.path().join(path)
        }

        fn write(&self, path: &str, text: &str) {
            fs::create_dir_all(self.path(path).parent().unwrap()).unwrap();
            fs::write(self.path(path), text).unwrap();
        }

        fn link(&self, path: &str, target: &str) {
            fs::create_dir_all(self.path(path).parent().unwrap()).unwrap();
            symlink(self.path(target), self.path(path)).unwrap();
        }

        fn function(&self, address: &str, class: &str, driver: Option<&str>, group: Option<u32>) {
            let folder = format!("sys/bus/pci/devices/{address}");
            for (file, text) in
                [("class", class), ("vendor", "0x1b36"), ("device", "0x0010"), ("driver_override", "")]
            {
                self.write(&format!("{folder}/{file}"), &format!("{text}\n"));
            }
            if let Some(driver) = driver {
                self.write(&format!("sys/bus/pci/drivers/{driver}/unbind"), "");
                self.link(&format!("{folder}/driver"), &format!("sys/bus/pci/drivers/{driver}"));
            }
            if let Some(group) = group {
                self.link(&format!("{folder}/iommu_group"), &format!("sys/kernel/iommu_groups/{group}"));
                self.write(&format!("sys/kernel/iommu_groups/{group}/devices/{address}"), "");
            }
        }

        fn disk(&self, address: &str, entry: &str, name: &str, number: &str) {
            fs::create_dir_all(self.path(&format!("sys/bus/pci/devices/{address}/nvme/nvme0/{entry}")))
                .unwrap();
            self.write(&format!("sys/class/block/{name}/dev"), &format!("{number}\n"));
        }

        /// Adds a process that has a file open.
        fn opened(&self, number: u32, name: &str, file: &str) {
            self.write(&format!("proc/{number}/comm"), &format!("{name}\n"));
            fs::create_dir_all(self.path(&format!("proc/{number}/fd"))).unwrap();
            symlink(file, self.path(&format!("proc/{number}/fd/3"))).unwrap();
        }

        fn sysfs(&self) -> Sysfs {
            Sysfs::at(self.0.path())
        }
    }

    fn address(text: &str) -> Address {
        text.parse().unwrap()
    }

    #[test]
    fn virtual_functions_are_found_where_the_kernel_has_the_controller() {
        let machine = Machine::new();
        machine.function("0000:01:00.0", NVME_CLASS, Some("nvme"), Some(3));
        let (sysfs, at) = (machine.sysfs(), address("01:00.0"));
        let error = sysfs.kernel_controller(&at).unwrap_err().to_string();
        assert!(error.contains("stays with the kernel's driver nvme"), "{error}");
        assert!(sysfs.virtual_functions(&at).unwrap_err().to_string().contains("leave vfs= out"));
        let folder = "sys/bus/pci/devices/0000:01:00.0";
        machine.disk("0000:01:00.0", "nvme0n1", "nvme0n1", "259:0");
        machine.write(&format!("{folder}/sriov_numvfs"), "0\n");
        machine.write(&format!("{folder}/sriov_totalvfs"), "7\n");
        machine.write(&format!("{folder}/sriov_drivers_autoprobe"), "1\n");
        machine.link(&format!("{folder}/virtfn1"), "sys/bus/pci/devices/0000:01:00.2");
        assert_eq!(sysfs.kernel_controller(&at).unwrap(), machine.path("dev/nvme0"));
        assert_eq!(sysfs.virtual_functions(&at).unwrap(), (0, 7));
        sysfs.set_virtual_functions(&at, 2).unwrap();
        assert_eq!(sysfs.virtual_functions(&at).unwrap(), (2, 7));
        assert_eq!(
            fs::read_to_string(machine.path(&format!("{folder}/sriov_drivers_autoprobe"))).unwrap(),
            "0"
        );
        assert_eq!(sysfs.virtual_function(&at, 2).unwrap(), address("01:00.2"));
        assert!(sysfs.virtual_function(&at, 1).is_err());
    }

    #[test]
    fn addresses_are_parsed() {
        assert_eq!(address("00:04.0").to_string(), "0000:00:04.0");
        assert_eq!(address("0000:AF:1f.7").to_string(), "0000:af:1f.7");
        for wrong in [
            "",
            "0",
            "04.0",
            "00:04",
            "00:04.8",
            "00:04.00",
            "g0:04.0",
            "0:0:04.0",
            "0000:00:04.0:1",
            "../00:04.0",
        ] {
            assert!(wrong.parse::<Address>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn controllers_are_listed_with_their_group_and_disks() {
        let machine = Machine::new();
        machine.function("0000:00:05.0", NVME_CLASS, Some("nvme"), Some(3));
        machine.function("0000:00:04.0", NVME_CLASS, None, None);
        machine.function("0000:00:06.0", "0x020000", Some("virtio-pci"), Some(3));
        machine.function("0000:00:01.0", "0x060400", Some("pcieport"), Some(3));
        machine.disk("0000:00:05.0", "nvme0c0n1", "nvme0n1", "259:0");
        machine.write("sys/class/block/nvme0n1/nsid", "1\n");
        machine.write("sys/class/block/nvme0n1/size", "2048\n");
        machine.write("sys/bus/pci/devices/0000:00:05.0/nvme/nvme0/model", "Some Disk     \n");
        machine.opened(41, "bywash", "/dev/vfio/3");
        machine.opened(42, "other", "/dev/vfio/30");
        let found = machine.sysfs().list().unwrap();
        let addresses: Vec<_> = found.iter().map(|controller| controller.address.to_string()).collect();
        assert_eq!(addresses, ["0000:00:04.0", "0000:00:05.0"]);
        let second = &found[1];
        assert_eq!(
            (second.driver.as_deref(), second.group, second.identifiers.as_str()),
            (Some("nvme"), Some(3), "1b36:0010")
        );
        assert_eq!(second.group_members, [(address("00:06.0"), Some("virtio-pci".to_owned()))]);
        let disk = KernelDisk { name: "nvme0n1".into(), namespace: Some(1), bytes: Some(1 << 20) };
        assert_eq!((second.disks.as_slice(), second.uses.as_slice()), ([disk].as_slice(), [].as_slice()));
        assert_eq!((second.model.as_deref(), second.serial.as_deref()), (Some("Some Disk"), None));
        assert_eq!(second.processes, ["bywash (process 41)"]);
        assert!(machine.sysfs().obstacle(second).unwrap().contains("0000:00:06.0 (virtio-pci)"));
        assert!(
            machine.sysfs().find(&address("00:06.0")).unwrap_err().to_string().contains("no NVMe controller")
        );
        assert!(
            machine.sysfs().find(&address("00:07.0")).unwrap_err().to_string().contains("no PCI function")
        );
    }

    #[test]
    fn a_machine_without_a_bus_has_no_controllers() {
        assert_eq!(Machine::new().sysfs().list().unwrap(), []);
    }

    #[test]
    fn a_disk_in_use_is_not_taken() {
        for (file, text, said) in [
            (
                "proc/self/mountinfo",
                "30 22 259:1 / /home rw - ext4 /dev/nvme0n1p1 rw\n",
                "/dev/nvme0n1p1 is mounted at /home",
            ),
            (
                "proc/self/mountinfo",
                "30 22 0:31 / /data rw - btrfs /dev/nvme0n1 rw\n",
                "/dev/nvme0n1 is mounted at /data",
            ),
            (
                "proc/swaps",
                "Filename\n/dev/nvme0n1p1 partition 1 0 -2\n",
                "/dev/nvme0n1p1 is used for swapping",
            ),
            ("sys/class/block/nvme0n1p1/holders/md0", "", "/dev/nvme0n1p1 is part of md0"),
        ] {
            let machine = Machine::new();
            machine.function("0000:00:05.0", NVME_CLASS, Some("nvme"), Some(3));
            machine.disk("0000:00:05.0", "nvme0n1", "nvme0n1", "259:0");
            machine.write("sys/class/block/nvme0n1/nvme0n1p1/partition", "1\n");
            machine.write("sys/class/block/nvme0n1p1/dev", "259:1\n");
            machine.write(file, text);
            let error = machine.sysfs().bind(&address("00:05.0")).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
            assert_eq!(fs::read_to_string(machine.path("sys/bus/pci/drivers_probe")).unwrap(), "");
        }
    }

    #[test]
    fn a_disk_that_a_process_has_open_is_not_taken() {
        for file in ["/dev/nvme0n1", "/dev/nvme0n1p1", "/dev/ng0n1"] {
            let machine = Machine::new();
            machine.function("0000:00:05.0", NVME_CLASS, Some("nvme"), Some(3));
            machine.disk("0000:00:05.0", "nvme0n1", "nvme0n1", "259:0");
            machine.write("sys/class/block/nvme0n1/nvme0n1p1/partition", "1\n");
            for number in 70..76 {
                machine.opened(number, "postgres", file);
            }
            let error = machine.sysfs().bind(&address("00:05.0")).unwrap_err().to_string();
            assert!(error.contains("is open in postgres (process 70), postgres (process 71)"), "{error}");
            assert!(error.contains("(process 73) and others: end that use first"), "{error}");
            assert_eq!(fs::read_to_string(machine.path("sys/bus/pci/drivers_probe")).unwrap(), "");
        }
    }

    #[test]
    fn a_group_with_others_and_no_iommu_are_refused() {
        let machine = Machine::new();
        machine.function("0000:00:04.0", NVME_CLASS, Some("nvme"), None);
        machine.function("0000:00:05.0", NVME_CLASS, Some("nvme"), Some(3));
        machine.function("0000:00:06.0", "0x020000", Some("virtio-pci"), Some(3));
        for (at, said) in
            [("00:04.0", "behind no IOMMU"), ("00:05.0", "cannot tell it from 0000:00:06.0 (virtio-pci)")]
        {
            let error = machine.sysfs().bind(&address(at)).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
        let error = machine.sysfs().release(&address("00:05.0")).unwrap_err().to_string();
        assert!(error.contains("bound to nvme and not to vfio-pci"), "{error}");
    }

    #[test]
    fn one_that_vfio_does_not_take_is_given_back() {
        let machine = Machine::new();
        machine.function("0000:00:05.0", NVME_CLASS, Some("nvme"), Some(3));
        // Files change no drivers: the function stays bound to the old one.
        let error = machine.sysfs().bind(&address("00:05.0")).unwrap_err().to_string();
        assert!(error.contains("did not take it"), "{error}");
        let read = |path: &str| fs::read_to_string(machine.path(path)).unwrap();
        assert_eq!(read("sys/bus/pci/devices/0000:00:05.0/driver_override"), "\n");
        assert_eq!(read("sys/bus/pci/drivers/nvme/unbind"), "0000:00:05.0");
        assert_eq!(read("sys/bus/pci/drivers_probe"), "0000:00:05.0");
    }

    #[test]
    fn names_of_block_devices_are_told_from_other_entries() {
        for (entry, disk) in [
            ("nvme0n1", Some("nvme0n1")),
            ("nvme10c3n2", Some("nvme10n2")),
            ("ng0n1", None),
            ("nvme0", None),
            ("hwmon0", None),
            ("nvmen1", None),
        ] {
            assert_eq!(block_device(entry).as_deref(), disk);
        }
    }
}
