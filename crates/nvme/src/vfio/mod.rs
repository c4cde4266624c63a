//! A PCI function that the kernel's VFIO has handed to this process: its registers, its interrupt, and the IOMMU that
//! limits which memory it reaches (the kernel's Documentation/driver-api/vfio.rst).
//!
//! ```text
//!   /dev/vfio/vfio ── container: one set of addresses, type 1 IOMMU, MAP_DMA and UNMAP_DMA
//!        └── /dev/vfio/GROUP ── group: the functions that the IOMMU cannot tell apart
//!               └── 0000:00:04.0 ── device: regions (registers, configuration), interrupts, reset
//! ```
//!
//! Invariant: the function reaches exactly the memory that [`Function::map`] has mapped and [`Function::unmap`] has not
//! unmapped. When the process ends, however it ends, the kernel takes the function's access to memory away and resets it.
//! A group without an IOMMU (no-IOMMU mode) is refused: there nothing would protect the machine's memory.
#![expect(unsafe_code, reason = "registers are mapped memory, and VFIO is used by ioctl")]

mod interrupts;
mod layout;

use crate::dma::PAGE;
use crate::error::Error;
use crate::function::Function;
use crate::iova::IovaSpace;
use crate::pci::{Address, NO_IOMMU, Sysfs, VFIO_DRIVER, named};
use crate::registers::DOORBELLS;
use interrupts::{Interrupts, drain};
use layout::*;
use rustix::event::{EventfdFlags, eventfd};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::ffi::CString;
use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Greatest number of bytes of registers and doorbells that are mapped.
const REGISTERS_MAX: usize = DOORBELLS + 4 * PAGE;
/// Offset of the command register in PCI's configuration space.
const PCI_COMMAND: u64 = 4;
/// Bits of the command register: memory space, bus master, no interrupts by a pin, which nobody would take.
const PCI_MEMORY: u16 = 1 << 1;
const PCI_BUS_MASTER: u16 = 1 << 2;
const PCI_NO_INTX: u16 = 1 << 10;
/// End of the addresses that are used if the kernel does not list those that it allows: 39 bits, which every IOMMU has.
const ADDRESSES_END: u64 = 1 << 39;

/// A PCI function that VFIO has handed to this process.
pub struct Vfio {
    address: Address,
    registers: *mut u8,
    register_bytes: usize,
    /// Offset of the configuration space in the device's file.
    config: u64,
    space: Mutex<IovaSpace>,
    /// Descriptors of interrupt 0, if the function has interrupts, and their number.
    interrupts: Option<Interrupts>,
    vectors: u16,
    /// True while interrupts do not signal their descriptors.
    is_silent: AtomicBool,
    /// Descriptors of the interrupts from 1 on, once they are used.
    more_interrupts: OnceLock<Box<[Interrupts]>>,
    release_request: Option<OwnedFd>,
    start: Instant,
    // Dropped in this order: the device before its group, the group before its container.
    device: File,
    _group: File,
    container: File,
}

// SAFETY: the mapping of the registers belongs to this value; accesses to it are single loads and stores of words, which
// the device orders.
unsafe impl Send for Vfio {}
// SAFETY: registers are accessed by single volatile loads and stores; everything else is behind a lock or the kernel's.
unsafe impl Sync for Vfio {}

impl Vfio {
    /// Opens the function at `address`, which is bound to vfio-pci (see [`Sysfs::bind`]).
    ///
    /// # Errors
    /// [`Error::Refused`] if the function is not bound to vfio-pci, is not behind an IOMMU, another process has it, or
    /// a function of its group belongs to another driver; [`Error::Io`] if a system call fails, for example because the
    /// process may not open the group.
    pub fn open(address: &Address) -> Result<Vfio, Error> {
        Vfio::from_files(address, VfioFiles::open(address)?)
    }

    /// Takes over the function at `address`, which another process has opened: `descriptors` are its container, its
    /// group and its device, in this order.
    ///
    /// # Errors
    /// [`Error::Refused`] if these are not three descriptors, [`Error::Unsupported`] if the registers cannot be mapped,
    /// [`Error::Io`] if a system call fails, for example because a descriptor is none of VFIO.
    pub fn from_descriptors(address: &Address, descriptors: Vec<OwnedFd>) -> Result<Vfio, Error> {
        let count = descriptors.len();
        let Ok([container, group, device]) = <[OwnedFd; 3]>::try_from(descriptors) else {
            let reason = format!("it came with {count} descriptors, and a function has three");
            return Err(Error::Refused { address: address.to_string(), reason });
        };
        let files = VfioFiles { container: container.into(), group: group.into(), device: device.into() };
        Vfio::from_files(address, files)
    }

    /// Drives the function at `address`, whose container has an IOMMU set.
    pub(crate) fn from_files(address: &Address, files: VfioFiles) -> Result<Vfio, Error> {
        let VfioFiles { container, group, device } = files;
        let space = usable_addresses(&container)?;
        let (registers, register_bytes) = map_registers(&device)?;
        let mut vfio = Vfio {
            address: address.clone(),
            registers,
            register_bytes,
            config: 0,
            space: Mutex::new(space),
            interrupts: None,
            vectors: 0,
            is_silent: AtomicBool::new(false),
            more_interrupts: OnceLock::new(),
            release_request: None,
            start: Instant::now(),
            device,
            _group: group,
            container,
        };
        vfio.config = region(&vfio.device, REGION_CONFIG)?.offset;
        vfio.set_command(|command| command | PCI_MEMORY | PCI_BUS_MASTER | PCI_NO_INTX)?;
        vfio.enable_interrupts()?;
        Ok(vfio)
    }

    /// Returns the PCI address of the function.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Changes the command register of the configuration space.
    fn set_command(&self, change: impl FnOnce(u16) -> u16) -> Result<(), Error> {
        let failed = |error| Error::io(format!("change the PCI command register of {}", self.address), error);
        let mut bytes = [0; 2];
        let at = self.config + PCI_COMMAND;
        if rustix::io::pread(&self.device, &mut bytes, at).map_err(failed)? != 2 {
            return Err(failed(rustix::io::Errno::IO));
        }
        let bytes = change(u16::from_le_bytes(bytes)).to_le_bytes();
        rustix::io::pwrite(&self.device, &bytes, at).map_err(failed)?;
        Ok(())
    }

    /// Has vector 0 of MSI-X, and requests for the device's release, signal descriptors, as far as there are such.
    fn enable_interrupts(&mut self) -> Result<(), Error> {
        let vectors = self.irqs(IRQ_MSIX)?;
        if vectors > 0 {
            self.interrupts = Some(Interrupts::new()?);
            self.signal_all()?;
            self.vectors = vectors.min(IRQS_MAX as u32) as u16;
        }
        if self.irqs(IRQ_REQUEST)? > 0 {
            let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
            let request =
                eventfd(0, flags).map_err(|error| Error::io("make a descriptor for requests", error))?;
            self.signal(IRQ_REQUEST, &[request.as_fd()])?;
            self.release_request = Some(request);
        }
        Ok(())
    }

    /// Returns the number of interrupts of a kind that can signal descriptors.
    fn irqs(&self, index: u32) -> Result<u32, Error> {
        let mut info = IrqInfo { argsz: size_of::<IrqInfo>() as u32, index, ..IrqInfo::default() };
        // SAFETY: the request reads and writes one `vfio_irq_info`, which `info` is.
        unsafe { ioctl(&self.device, DEVICE_GET_IRQ_INFO, &raw mut info) }
            .map_err(|error| Error::io(format!("query the interrupts of {}", self.address), error))?;
        Ok(if info.flags & IRQ_EVENTFD != 0 { info.count } else { 0 })
    }

    /// Has the interrupts of a kind, from the first one on, signal descriptors, at most [`IRQS_MAX`]. Without descriptors, the
    /// interrupts are disabled.
    fn signal(&self, index: u32, descriptors: &[BorrowedFd<'_>]) -> Result<(), Error> {
        let mut eventfds = [-1; IRQS_MAX];
        for (place, descriptor) in eventfds.iter_mut().zip(descriptors) {
            *place = descriptor.as_raw_fd();
        }
        let flags = if descriptors.is_empty() { IRQ_SET_TRIGGER_NONE } else { IRQ_SET_TRIGGER_EVENTFD };
        // The kernel wants the size to be that of the descriptors which are set.
        let argsz = (size_of::<IrqSet>() - size_of_val(&eventfds) + 4 * descriptors.len()) as u32;
        let mut set = IrqSet { argsz, flags, index, start: 0, count: descriptors.len() as u32, eventfds };
        // SAFETY: the request reads a `vfio_irq_set` with `count` descriptors, which `set` is.
        unsafe { ioctl(&self.device, DEVICE_SET_IRQS, &raw mut set) }
            .map_err(|error| Error::io(format!("enable the interrupts of {}", self.address), error))?;
        Ok(())
    }

    /// Has the interrupts whose descriptors were made signal them. The kernel adds none to those that do so already.
    fn signal_all(&self) -> Result<(), Error> {
        let more = self.more_interrupts.get().into_iter().flatten();
        let all: Vec<_> = self.interrupts.iter().chain(more).map(Interrupts::interrupt).collect();
        self.signal(IRQ_MSIX, &all)
    }

    fn interrupts(&self, vector: u16) -> Option<&Interrupts> {
        match vector {
            0 => self.interrupts.as_ref(),
            vector => self.more_interrupts.get()?.get(usize::from(vector) - 1),
        }
    }

    fn space(&self) -> MutexGuard<'_, IovaSpace> {
        // A thread that panicked with the lock left the space as it was before or after a change.
        self.space.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline(always)]
    fn register<T>(&self, offset: usize) -> *mut T {
        assert!(offset.is_multiple_of(size_of::<T>()) && offset + size_of::<T>() <= self.register_bytes);
        self.registers.wrapping_add(offset).cast()
    }
}

/// Open files of a function: its container, which has an IOMMU set, its group, and the function itself.
#[derive(Debug)]
pub(crate) struct VfioFiles {
    container: File,
    group: File,
    device: File,
}

impl VfioFiles {
    /// Opens the function at `address`, which is bound to vfio-pci.
    ///
    /// # Errors
    /// Same as [`Vfio::open`].
    pub(crate) fn open(address: &Address) -> Result<VfioFiles, Error> {
        let refused = |reason: String| Error::Refused { address: address.to_string(), reason };
        let found = Sysfs::new().find(address)?;
        if found.driver.as_deref() != Some(VFIO_DRIVER) {
            let driver = found.driver.as_deref().unwrap_or("no driver");
            let but = Sysfs::new().obstacle(&found);
            let but = but.map_or(String::new(), |reason| format!("; before that: {reason}"));
            let remedy = format!("bind it to vfio-pci first (`bywash nvme bind {address}`){but}");
            return Err(refused(format!("it is bound to {driver}: {remedy}")));
        }
        let Some(number) = found.group else { return Err(refused(NO_IOMMU.into())) };
        let group = open_group(address, number, &found.processes)?;
        let container = open_container(address)?;
        let descriptor = container.as_raw_fd();
        // SAFETY: the request reads an int, the container's descriptor, which outlives the call.
        unsafe { ioctl(&group, GROUP_SET_CONTAINER, (&raw const descriptor).cast_mut()) }
            .map_err(|error| Error::io(format!("put IOMMU group {number} into a container"), error))?;
        // SAFETY: the request takes a number.
        unsafe { ioctl_number(&container, SET_IOMMU, TYPE1V2_IOMMU) }
            .map_err(|error| Error::io(format!("set up the IOMMU for group {number}"), error))?;
        let device = open_device(&group, address)?;
        Ok(VfioFiles { container, group, device })
    }

    /// Returns copies of the descriptors, in the order of [`Vfio::from_descriptors`].
    ///
    /// # Errors
    /// [`Error::Io`] if the process has too many descriptors.
    pub(crate) fn copies(&self) -> Result<Vec<OwnedFd>, Error> {
        let copy = |file: &File| file.try_clone().map(OwnedFd::from);
        let copies = [&self.container, &self.group, &self.device].into_iter().map(copy);
        copies
            .collect::<Result<_, _>>()
            .map_err(|error| Error::io("copy the descriptors of a function", error))
    }

    /// Resets the function, and removes all memory that any process has mapped for it.
    ///
    /// # Errors
    /// [`Error::Io`] if the kernel refuses one of both.
    pub(crate) fn unmap_all(&self) -> Result<(), Error> {
        // SAFETY: the request takes no argument.
        unsafe { ioctl_number(&self.device, DEVICE_RESET, 0) }
            .map_err(|error| Error::io("reset a function that is taken back", error))?;
        let mut unmap =
            DmaUnmap { argsz: size_of::<DmaUnmap>() as u32, flags: DMA_UNMAP_ALL, iova: 0, size: 0 };
        // SAFETY: the request reads and writes a `vfio_iommu_type1_dma_unmap`, which `unmap` is.
        unsafe { ioctl(&self.container, IOMMU_UNMAP_DMA, &raw mut unmap) }
            .map_err(|error| Error::io("unmap the memory of a function that is taken back", error))?;
        Ok(())
    }
}

/// Opens an IOMMU group.
fn open_group(address: &Address, group: u32, processes: &[String]) -> Result<File, Error> {
    let refused = |reason: String| Error::Refused { address: address.to_string(), reason };
    let path = format!("/dev/vfio/{group}");
    let file = match File::options().read(true).write(true).open(&path) {
        Ok(file) => file,
        Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
            return Err(refused(format!(
                "another process has it{}: end that process first",
                named(processes)
            )));
        }
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            let remedy = format!("run it as root, or give its user that file (`chown USER {path}`)");
            return Err(refused(format!("this process may not open {path}: {remedy}")));
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let reason = if std::path::Path::new(&format!("/dev/vfio/noiommu-{group}")).exists() {
                NO_IOMMU.to_owned()
            } else {
                format!("there is no {path}: load the module vfio-pci")
            };
            return Err(refused(reason));
        }
        Err(error) => return Err(Error::io(format!("open {path}"), error)),
    };
    let mut status = GroupStatus { argsz: size_of::<GroupStatus>() as u32, flags: 0 };
    // SAFETY: the request reads and writes one `vfio_group_status`, which `status` is.
    unsafe { ioctl(&file, GROUP_GET_STATUS, &raw mut status) }
        .map_err(|error| Error::io(format!("query the state of IOMMU group {group}"), error))?;
    if status.flags & GROUP_VIABLE == 0 {
        let reason = format!(
            "another function of IOMMU group {group} has a driver that is not VFIO's: unbind that first"
        );
        return Err(refused(reason));
    }
    Ok(file)
}

fn open_container(address: &Address) -> Result<File, Error> {
    let path = "/dev/vfio/vfio";
    let file = File::options().read(true).write(true).open(path);
    let file = file.map_err(|error| Error::io(format!("open {path}"), error))?;
    // SAFETY: the request takes no argument.
    let version = unsafe { ioctl_number(&file, GET_API_VERSION, 0) }
        .map_err(|error| Error::io("query the version of VFIO", error))?;
    // SAFETY: the request takes a number.
    let has_type1 = unsafe { ioctl_number(&file, CHECK_EXTENSION, TYPE1V2_IOMMU) }
        .map_err(|error| Error::io("query the kinds of IOMMU of VFIO", error))?;
    if version != API_VERSION || has_type1 != 1 {
        let reason =
            "the kernel's VFIO has no IOMMU of type 1 version 2: load the module vfio_iommu_type1".into();
        return Err(Error::Refused { address: address.to_string(), reason });
    }
    Ok(file)
}

fn open_device(group: &File, address: &Address) -> Result<File, Error> {
    let failed = |error: io::Error| Error::io(format!("open the device {address} of its group"), error);
    // An address contains no zero byte.
    let name = CString::new(address.to_string()).map_err(|_| failed(io::ErrorKind::InvalidInput.into()))?;
    // SAFETY: the request reads a string that ends with a zero byte, and returns a new descriptor.
    let descriptor =
        unsafe { ioctl(group, GROUP_GET_DEVICE_FD, name.as_ptr().cast_mut()) }.map_err(failed)?;
    // SAFETY: the kernel has just made this descriptor, and nobody else has it.
    Ok(unsafe { File::from_raw_fd(descriptor) })
}

fn region(device: &File, index: u32) -> Result<RegionInfo, Error> {
    let mut info = RegionInfo { argsz: size_of::<RegionInfo>() as u32, index, ..RegionInfo::default() };
    // SAFETY: the request reads and writes one `vfio_region_info`, which `info` is.
    unsafe { ioctl(device, DEVICE_GET_REGION_INFO, &raw mut info) }
        .map_err(|error| Error::io(format!("query region {index} of the device"), error))?;
    Ok(info)
}

/// Maps the controller's registers and as many doorbells as are of use.
fn map_registers(device: &File) -> Result<(*mut u8, usize), Error> {
    let info = region(device, REGION_BAR0)?;
    if info.flags & REGION_MMAP == 0 || info.size < (DOORBELLS + PAGE) as u64 {
        let reason = "its registers cannot be mapped into a process".into();
        return Err(Error::Unsupported { reason });
    }
    let bytes = (info.size / PAGE as u64 * PAGE as u64).min(REGISTERS_MAX as u64) as usize;
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping at an address that the kernel chooses changes no existing memory.
    let mapped =
        unsafe { mmap(std::ptr::null_mut(), bytes, protection, MapFlags::SHARED, device, info.offset) };
    let mapped = mapped.map_err(|error| Error::io("map the registers of the device", error))?;
    Ok((mapped.cast(), bytes))
}

fn usable_addresses(container: &File) -> Result<IovaSpace, Error> {
    let mut info = IommuInfo::new();
    // SAFETY: the request writes at most as many bytes as the structure says that it has.
    unsafe { ioctl(container, IOMMU_GET_INFO, &raw mut info) }
        .map_err(|error| Error::io("query the addresses that the IOMMU allows", error))?;
    let listed = info.ranges();
    // Without a list, the addresses of interrupts of x86 are left out.
    let ranges =
        if listed.is_empty() { vec![(0, 0xfedf_ffff), (0xfef0_0000, ADDRESSES_END - 1)] } else { listed };
    Ok(IovaSpace::new(ranges.into_iter().map(|(start, last)| start..last.saturating_add(1)), u64::MAX))
}

/// Makes an ioctl(2) request whose argument is a pointer.
///
/// # Safety
/// The request reads and writes no more than what `argument` points to.
unsafe fn ioctl<T>(file: &File, request: libc::Ioctl, argument: *mut T) -> io::Result<i32> {
    // SAFETY: the caller promises that the argument is what the request takes.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), request, argument) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Makes an ioctl(2) request whose argument is a number.
///
/// # Safety
/// The request takes a number, and not an address.
unsafe fn ioctl_number(file: &File, request: libc::Ioctl, argument: libc::c_ulong) -> io::Result<i32> {
    // SAFETY: the caller promises that the request takes a number.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), request, argument) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

impl Function for Vfio {
    #[inline]
    fn read32(&self, register: usize) -> u32 {
        // SAFETY: `register` checks that the word lies in the mapped registers; volatile, since the device changes it.
        u32::from_le(unsafe { self.register::<u32>(register).read_volatile() })
    }

    #[inline]
    fn read64(&self, register: usize) -> u64 {
        // Section 3.1.2: registers of 64 bits may be accessed as two double words.
        u64::from(self.read32(register)) | u64::from(self.read32(register + 4)) << 32
    }

    #[inline(always)]
    fn write32(&self, register: usize, value: u32) {
        // SAFETY: `register` checks that the word lies in the mapped registers.
        unsafe { self.register::<u32>(register).write_volatile(value.to_le()) };
    }

    fn write64(&self, register: usize, value: u64) {
        self.write32(register, value as u32);
        self.write32(register + 4, (value >> 32) as u32);
    }

    fn register_bytes(&self) -> usize {
        self.register_bytes
    }

    unsafe fn map(&self, base: *mut u8, bytes: usize) -> Result<u64, Error> {
        let failed = |error: io::Error| Error::io(format!("map {bytes} bytes of memory for DMA"), error);
        let Some(iova) = self.space().take(bytes as u64) else {
            return Err(failed(io::Error::other("no range of addresses is left")));
        };
        let mut map = DmaMap {
            argsz: size_of::<DmaMap>() as u32,
            flags: DMA_READ_WRITE,
            vaddr: base as u64,
            iova,
            size: bytes as u64,
        };
        // SAFETY: the request reads a `vfio_iommu_type1_dma_map`, which `map` is. It lets the device access memory that,
        // as the caller promises, stays mapped and is not referred to.
        match unsafe { ioctl(&self.container, IOMMU_MAP_DMA, &raw mut map) } {
            Ok(_) => Ok(iova),
            Err(error) => {
                self.space().give_back(iova, bytes as u64);
                Err(if error.raw_os_error() == Some(libc::ENOMEM) {
                    failed(io::Error::other(
                        "the limit of locked memory is too low (ulimit -l, LimitMEMLOCK=)",
                    ))
                } else {
                    failed(error)
                })
            }
        }
    }

    fn unmap(&self, address: u64, bytes: usize) -> bool {
        let mut unmap =
            DmaUnmap { argsz: size_of::<DmaUnmap>() as u32, flags: 0, iova: address, size: bytes as u64 };
        // SAFETY: the request reads and writes a `vfio_iommu_type1_dma_unmap`, which `unmap` is.
        let is_done = unsafe { ioctl(&self.container, IOMMU_UNMAP_DMA, &raw mut unmap) }.is_ok();
        // Nothing is left to be unmapped if another holder of the container has unmapped all.
        let is_whole = is_done && (unmap.size == 0 || unmap.size == bytes as u64);
        if is_whole {
            self.space().give_back(address, bytes as u64);
        }
        is_whole
    }

    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    fn pause(&self) {
        std::thread::sleep(Duration::from_micros(50));
    }

    fn vectors(&self) -> u16 {
        self.vectors
    }

    fn use_vectors(&self, count: u16) -> Result<(), Error> {
        if self.interrupts.is_none() {
            return Ok(());
        }
        let more: Box<[Interrupts]> = (1..count).map(|_| Interrupts::new()).collect::<Result<_, _>>()?;
        // Once: a second call would have changed nothing that is in use.
        let _ = self.more_interrupts.set(more);
        self.signal(IRQ_MSIX, &[])?;
        self.signal_all()
    }

    fn descriptor(&self, vector: u16) -> Option<BorrowedFd<'_>> {
        self.interrupts(vector).map(Interrupts::descriptor)
    }

    fn arm(&self, vector: u16, alarm: Option<Duration>) -> bool {
        let Some(interrupts) = self.interrupts(vector) else { return false };
        if self.is_silent.load(Relaxed) {
            if self.signal_all().is_err() {
                return false;
            }
            self.is_silent.store(false, Relaxed);
        }
        interrupts.arm(alarm.map(|alarm| alarm.saturating_sub(self.now())));
        true
    }

    fn silence(&self) -> Result<(), Error> {
        if self.interrupts.is_some() && !self.is_silent.swap(true, Relaxed) {
            self.signal(IRQ_MSIX, &[])?;
        }
        Ok(())
    }

    fn wake(&self, vector: u16) {
        if let Some(interrupts) = self.interrupts(vector) {
            interrupts.wake();
        }
    }

    fn cut_off(&self) {
        // Both fail only if the device is gone, and does not access memory any more.
        let _ = self.set_command(|command| command & !PCI_BUS_MASTER);
        // SAFETY: the request takes no argument.
        let _ = unsafe { ioctl_number(&self.device, DEVICE_RESET, 0) };
    }

    fn release_requested(&self) -> bool {
        self.release_request.as_ref().is_some_and(drain)
    }

    fn description(&self) -> String {
        self.address.to_string()
    }
}

impl Drop for Vfio {
    fn drop(&mut self) {
        // SAFETY: `open` made this mapping, and nobody else has its address.
        let _ = unsafe { munmap(self.registers.cast(), self.register_bytes) };
    }
}

impl fmt::Debug for Vfio {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "the PCI function {}", self.description())
    }
}
