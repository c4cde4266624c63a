//! BPF programs and maps, as far as frames need them (bpf(2)).
//!
//! Invariant: each command gets its attributes in the layout of `linux/bpf.h`, with every byte written. The
//! kernel removes an object when its last descriptor is closed, and then a [`Link`] detaches its program from
//! the device, however the process ends. Called by the port and the relay of this folder.

use super::program::Program;
use crate::datagram::socket::answer;
use rustix::io::Errno;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Commands of bpf(2).
const MAP_CREATE: libc::c_int = 0;
const MAP_LOOKUP_ELEM: libc::c_int = 1;
const MAP_UPDATE_ELEM: libc::c_int = 2;
const PROG_LOAD: libc::c_int = 5;
const LINK_CREATE: libc::c_int = 28;
/// Type of a program, and of its attachment.
const PROGRAM_XDP: u32 = 6;
const ATTACH_XDP: u32 = 37;
/// Flags of `linux/if_link.h`.
const XDP_FLAGS_SKB_MODE: u32 = 1 << 1;
const XDP_FLAGS_DRV_MODE: u32 = 1 << 2;
/// License of the programs; the kernel allows the helpers that they call for any license.
const LICENSE: &std::ffi::CStr = c"Apache-2.0 OR MIT";
/// Name of the programs, as `ip link` and `bpftool` show it.
const NAME: [u8; 16] = *b"bywash_frames\0\0\0";

/// Type of a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum MapKind {
    Array = 2,
    PerCpuArray = 6,
    /// AF_XDP sockets, by the queue that each serves.
    Sockets = 17,
}

/// A map with 32-bit keys.
pub(super) struct Map {
    descriptor: OwnedFd,
    value_bytes: usize,
}

#[repr(C)]
struct CreateMap {
    kind: u32,
    key_bytes: u32,
    value_bytes: u32,
    entries: u32,
    flags: u32,
}

#[repr(C)]
struct Element {
    map: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[repr(C)]
struct LoadProgram {
    kind: u32,
    instruction_count: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_bytes: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
    device: u32,
    attach: u32,
}

#[repr(C)]
struct CreateLink {
    program: u32,
    device: u32,
    attach: u32,
    flags: u32,
}

impl Map {
    pub(super) fn new(kind: MapKind, value_bytes: usize, entries: u32) -> Result<Map, Errno> {
        let key_bytes = size_of::<u32>() as u32;
        let attributes =
            CreateMap { kind: kind as u32, key_bytes, value_bytes: value_bytes as u32, entries, flags: 0 };
        // SAFETY: the attributes are integers of the layout that the command reads.
        let descriptor = unsafe { new_descriptor(MAP_CREATE, &attributes) }?;
        Ok(Map { descriptor, value_bytes })
    }

    /// Returns the descriptor number by which programs name the map.
    pub(super) fn number(&self) -> i32 {
        self.descriptor.as_raw_fd()
    }

    /// Enters a socket as the destination of a queue's frames.
    pub(super) fn set_socket(&self, queue: u32, socket: i32) -> Result<(), Errno> {
        assert_eq!(self.value_bytes, size_of::<i32>());
        let attributes = self.element(&queue, (&raw const socket) as u64);
        // SAFETY: key and value live through the call, and have the sizes that the map was created with.
        unsafe { call(MAP_UPDATE_ELEM, &attributes) }.map(drop)
    }

    /// Returns the sum of all processors' counters at `key`.
    pub(super) fn sum<const N: usize>(&self, key: u32) -> Result<[u64; N], Errno> {
        assert_eq!(self.value_bytes, size_of::<[u64; N]>());
        // The kernel writes one value for each possible processor.
        let mut values = vec![[0u64; N]; possible_processors()];
        let attributes = self.element(&key, values.as_mut_ptr() as u64);
        // SAFETY: the key lives through the call, and the buffer has room for a value of each possible
        // processor.
        unsafe { call(MAP_LOOKUP_ELEM, &attributes) }?;
        let mut sum = [0; N];
        for value in values {
            sum.iter_mut().zip(value).for_each(|(sum, part)| *sum += part);
        }
        Ok(sum)
    }

    fn element(&self, key: &u32, value: u64) -> Element {
        Element { map: self.number() as u32, padding: 0, key: (&raw const *key) as u64, value, flags: 0 }
    }
}

/// Hook at which a program is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// Hook in the device's driver, before the kernel allocates a packet.
    Native,
    /// Hook in the kernel, for devices of any driver.
    Generic,
}

/// A program attached to a device, until this is dropped or the process ends.
pub(super) struct Link(#[expect(dead_code, reason = "held for what it keeps attached")] OwnedFd);

impl Link {
    /// Attaches a program to the receiving side of a device.
    ///
    /// # Errors
    /// The errno of bpf(2): EBUSY or EEXIST if another program is attached, which stays.
    pub(super) fn new(program: &OwnedFd, device: u32, mode: Mode) -> Result<Link, Errno> {
        let flags = match mode {
            Mode::Native => XDP_FLAGS_DRV_MODE,
            Mode::Generic => XDP_FLAGS_SKB_MODE,
        };
        let attributes =
            CreateLink { program: program.as_raw_fd() as u32, device, attach: ATTACH_XDP, flags };
        // SAFETY: the attributes are integers of the layout that the command reads.
        unsafe { new_descriptor(LINK_CREATE, &attributes) }.map(Link)
    }
}

/// Loads a program into the kernel, which verifies that it terminates and stays within the frames.
///
/// # Errors
/// The errno of bpf(2).
pub(super) fn load(program: &Program) -> Result<OwnedFd, Errno> {
    let instructions = program.instructions();
    let mut attributes = LoadProgram {
        kind: PROGRAM_XDP,
        instruction_count: instructions.len() as u32,
        instructions: instructions.as_ptr() as u64,
        license: LICENSE.as_ptr() as u64,
        log_level: 0,
        log_bytes: 0,
        log: 0,
        kernel_version: 0,
        flags: 0,
        name: NAME,
        device: 0,
        attach: ATTACH_XDP,
    };
    // SAFETY: instructions and license live through the call, and have the lengths stated.
    let loaded = unsafe { new_descriptor(PROG_LOAD, &attributes) };
    if cfg!(test) && matches!(loaded, Err(Errno::ACCESS | Errno::INVAL)) {
        let mut log = vec![0u8; 1 << 16];
        (attributes.log_level, attributes.log_bytes, attributes.log) =
            (1, log.len() as u32, log.as_mut_ptr() as u64);
        // SAFETY: instructions and license live through the call, and the log has the size stated.
        let _ = unsafe { new_descriptor(PROG_LOAD, &attributes) };
        println!("{}", String::from_utf8_lossy(&log).trim_end_matches('\0'));
    }
    loaded
}

/// Calls bpf(2).
///
/// # Safety
/// `attributes` must be those of the command, and the memory that they point to must live through the call
/// and be as long as the command needs.
unsafe fn call<T>(command: libc::c_int, attributes: &T) -> Result<usize, Errno> {
    // SAFETY: the caller promises that the attributes fit the command and point to live memory.
    answer(unsafe { libc::syscall(libc::SYS_bpf, command, &raw const *attributes, size_of::<T>()) } as isize)
}

/// Calls bpf(2) for a command that returns a descriptor.
///
/// # Safety
/// Same as [`call`], and the command must return a new descriptor.
unsafe fn new_descriptor<T>(command: libc::c_int, attributes: &T) -> Result<OwnedFd, Errno> {
    // SAFETY: the caller promises that the command returns a new descriptor. All descriptors of bpf(2) are
    // closed at exec.
    unsafe { call(command, attributes).map(|number| OwnedFd::from_raw_fd(number as i32)) }
}

/// Returns the greatest number of processors that this machine may have, for which the kernel keeps values.
fn possible_processors() -> usize {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/possible").unwrap_or_default();
    // In a list such as `0-3,8` the last number is the highest.
    let last = text.trim().rsplit([',', '-']).next().and_then(|number| number.parse::<usize>().ok());
    last.map_or(PROCESSORS_MAX, |last| last + 1).min(PROCESSORS_MAX)
}

/// Greatest number of processors of any kernel configuration (NR_CPUS).
const PROCESSORS_MAX: usize = 8192;

// Sizes of `union bpf_attr` up to the last field that each command needs.
const _: () = assert!(size_of::<CreateMap>() == 20 && size_of::<Element>() == 32);
const _: () = assert!(size_of::<LoadProgram>() == 72 && size_of::<CreateLink>() == 16);
