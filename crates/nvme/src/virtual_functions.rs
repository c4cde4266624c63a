//! Virtual functions of a controller that the kernel keeps, each with a namespace of its own: a device of this process,
//! or in the hands of another one.
//!
//! ```text
//!   0000:01:00.0  physical function: the kernel's driver nvme; admin commands through /dev/nvme0
//!   0000:01:00.1  virtual function 1: vfio-pci ── secondary controller 1 ── namespace 1
//!   0000:01:00.2  virtual function 2: vfio-pci ── secondary controller 2 ── namespace 2
//! ```
//!
//! The virtual functions exist as long as one of the [`VirtualFunction`]s. The kernel keeps the physical function, so
//! that its driver watches over the controller, and namespaces that are not given away stay disks of the kernel.
//!
//! Each function is alone in its IOMMU group, since the descriptor of the group opens all functions of the group.
//!
//! Invariant: at every start, and when they end, all secondary controllers are taken away from whoever had them. A
//! function that its holder keeps open stays, since the kernel cannot remove it; the holder reaches nothing by it.
//! Called by the device `nvme:ADDRESS,vfs=N`.

use crate::device::{Nvme, Options};
use crate::error::Error;
use crate::kernel::KernelController;
use crate::pci::{Address, Sysfs};
use crate::probe::carried_out_commands;
use crate::secondary::Primary;
use crate::vfio::{Vfio, VfioFiles};
use bywash_device::{Device, Grantable, Handover};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Greatest number of virtual functions.
pub const FUNCTIONS_MAX: u16 = 127;

/// A controller whose virtual functions this process rules.
struct Controller {
    sysfs: Sysfs,
    address: Address,
    primary: Primary<KernelController>,
    /// Number of the virtual functions.
    count: u16,
    /// Held while commands change secondary controllers.
    order: Mutex<()>,
}

/// A virtual function, with its secondary controller and its namespace.
pub(crate) struct VirtualFunction {
    controller: Arc<Controller>,
    address: Address,
    secondary: u16,
    namespace: u32,
    options: Options,
    /// Admin commands by which the function's holder could harm users of others.
    carried_out: Vec<&'static str>,
    /// Descriptors that another process was given, too.
    handed_over: Mutex<Option<VfioFiles>>,
}

/// Locks a mutex, whatever a thread that panicked has left: the protected state is set in one step.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl VirtualFunction {
    /// Makes `count` virtual functions of the controller at `address`, and pairs them with the first `count` namespaces
    /// that no other controller has. Asks each function's controller which privileged commands it carries out.
    ///
    /// # Errors
    /// [`Error::Refused`] if the kernel's driver does not have the controller, its virtual functions are in use or in one
    /// IOMMU group, or it has too few namespaces that are attached to no controller; [`Error::Unsupported`] if it has no virtual functions or too
    /// few; [`Error::Admin`] if it refuses a command; [`Error::Io`] if the kernel refuses something.
    pub(crate) fn make_all(
        address: &Address,
        count: u16,
        options: &Options,
    ) -> Result<Vec<VirtualFunction>, Error> {
        let sysfs = Sysfs::new();
        let device = sysfs.kernel_controller(address)?;
        let primary = Primary(KernelController::open(&device)?);
        primary.check()?;
        let refused = |reason: String| Error::Refused { address: address.to_string(), reason };
        let namespaces = primary.take_all_away()?;
        if namespaces.len() < usize::from(count) {
            let found = namespaces.len();
            return Err(refused(format!(
                "{found} of its namespaces are attached to no controller, and {count} virtual functions need one each: give \
                 a smaller vfs=, or create namespaces and detach them (nvme create-ns, nvme detach-ns)"
            )));
        }
        let secondaries = primary.secondaries()?;
        let controller =
            Arc::new(Controller { sysfs, address: address.clone(), primary, count, order: Mutex::default() });
        controller.enable()?;
        let mut functions = Vec::new();
        for (number, namespace) in (1..=count).zip(namespaces) {
            let secondary = secondaries.iter().find(|secondary| secondary.function == number);
            let Some(secondary) = secondary else {
                let reason = format!("it has no secondary controller for virtual function {number}");
                return Err(Error::Unsupported { reason });
            };
            let address = controller.sysfs.virtual_function(address, number)?;
            controller.sysfs.bind(&address)?;
            let found = controller.sysfs.find(&address)?;
            if let Some((other, _)) = found.group_members.first() {
                let reason = format!(
                    "the IOMMU cannot tell it from {other}, so that whoever has one has the other: use a slot that isolates \
                     its functions (PCI Access Control Services)"
                );
                return Err(Error::Refused { address: address.to_string(), reason });
            }
            let mut function = VirtualFunction {
                controller: controller.clone(),
                address,
                secondary: secondary.identifier,
                namespace,
                options: Options { namespace: Some(namespace), ..options.clone() },
                carried_out: Vec::new(),
                handed_over: Mutex::default(),
            };
            let opened = Vfio::from_files(&function.address, function.open_files()?)?;
            function.carried_out = carried_out_commands(opened, namespace)?;
            functions.push(function);
        }
        Ok(functions)
    }

    /// Returns the number of the function's namespace.
    pub(crate) fn namespace(&self) -> u32 {
        self.namespace
    }

    /// Opens the device in this process.
    ///
    /// # Errors
    /// Same as [`Vfio::open`], [`Primary::make_ready`] and [`Nvme::open`].
    pub(crate) fn open(&self) -> Result<Nvme<Vfio>, Error> {
        let files = self.open_files()?;
        Nvme::open(Vfio::from_files(&self.address, files)?, &self.options)
    }

    /// Opens the function, which no process has open, and makes its controller ready.
    fn open_files(&self) -> Result<VfioFiles, Error> {
        let files = VfioFiles::open(&self.address)?;
        let Controller { primary, count, order, .. } = &*self.controller;
        let _order = lock(order);
        primary.make_ready(self.secondary, self.namespace, *count)?;
        Ok(files)
    }

    /// Takes the controller away from its holder, and unmaps all memory that it has mapped.
    fn take_away(&self) -> Result<(), Error> {
        {
            let _order = lock(&self.controller.order);
            self.controller.primary.take_away(self.secondary, self.namespace)?;
        }
        // Closed in any case, so that the function can be opened once its holder has closed it.
        lock(&self.handed_over).take().map_or(Ok(()), |files| files.unmap_all())
    }
}

impl Drop for VirtualFunction {
    /// Takes the controller away from a process that it was handed to. The controller itself does that again for all.
    fn drop(&mut self) {
        let _ = self.take_away();
    }
}

impl Controller {
    /// Has the kernel make the virtual functions, unless it has made as many already.
    fn enable(&self) -> Result<(), Error> {
        let (Controller { sysfs, address, count, .. }, refused) =
            (self, |reason: String| Error::Refused { address: self.address.to_string(), reason });
        let (enabled, most) = sysfs.virtual_functions(address)?;
        if most < *count {
            let reason = format!(
                "it has {most} virtual functions at most, and {count} are wanted: give a smaller vfs="
            );
            return Err(Error::Unsupported { reason });
        }
        if enabled == *count {
            return Ok(());
        }
        if let Some((function, reason)) = self.user() {
            return Err(refused(format!("its virtual function {function} is in use: {reason}")));
        }
        sysfs.set_virtual_functions(address, 0)?;
        if self.primary.release_flexible()? {
            let uses = sysfs.find(address)?.uses;
            if !uses.is_empty() {
                return Err(refused(format!(
                    "it has to be reset to give queues to virtual functions, and {}: end that use first",
                    uses.join(", ")
                )));
            }
            sysfs.reset(address)?;
        }
        sysfs.set_virtual_functions(address, *count)
    }

    /// Returns a virtual function that a process has open, or that another driver has, and the reason.
    fn user(&self) -> Option<(Address, String)> {
        let (enabled, _) = self.sysfs.virtual_functions(&self.address).ok()?;
        let functions =
            (1..=enabled).filter_map(|number| self.sysfs.virtual_function(&self.address, number).ok());
        functions.into_iter().find_map(|function| {
            let found = self.sysfs.find(&function).ok()?;
            let opened = found.driver.is_some().then(|| VfioFiles::open(&function));
            opened?.err().map(|error| (function, error.to_string()))
        })
    }
}

impl Drop for Controller {
    /// Takes all secondary controllers away, and removes the virtual functions if no process has one open.
    fn drop(&mut self) {
        // Without an effect only if the controller is gone or fails; the next start takes them away, or fails.
        let _ = self.primary.take_all_away();
        if self.user().is_none() {
            let _ = self.sysfs.set_virtual_functions(&self.address, 0);
        }
    }
}

impl Grantable for VirtualFunction {
    fn open(&self) -> Result<Box<dyn Device>, bywash_device::Error> {
        let device = VirtualFunction::open(self).map_err(|error| error.of_device(&self.address))?;
        Ok(Box::new(device))
    }

    fn hand_over(&self) -> Result<Handover, bywash_device::Error> {
        let opened = self.open_files().and_then(|files| Ok((files.copies()?, files)));
        let (descriptors, files) = opened.map_err(|error| error.of_device(&self.address))?;
        *lock(&self.handed_over) = Some(files);
        Ok(Handover { descriptors, address: self.address.to_string(), namespace: self.namespace })
    }

    fn revoke(&self) -> Result<(), bywash_device::Error> {
        self.take_away().map_err(|error| error.of_device(&self.address))
    }

    fn hazard(&self) -> Option<String> {
        let commands = &self.carried_out;
        (!commands.is_empty()).then(|| format!("its controller carries out {} for it", commands.join(", ")))
    }

    fn description(&self) -> String {
        format!("virtual function {} with namespace {}", self.address, self.namespace)
    }
}

impl fmt::Debug for Controller {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} with {} virtual functions", self.address, self.count)
    }
}

impl fmt::Debug for VirtualFunction {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.description())
    }
}
