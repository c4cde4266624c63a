//! Programs and maps of the kernel, as far as frames need them (bpf(2)).
//!
//! Invariant: each command gets its attributes as `linux/bpf.h` lays them out, with every byte written; what a
//! descriptor stands for goes away when the last one is closed, and a [`Link`] takes its program off the device then,
//! however the process ends. Called by the port and the relay of this folder.

use super::program::Program;
use crate::datagram::socket::answer;
use rustix::io::Errno;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Commands.
const MAP_CREATE: libc::c_int = 0;
const MAP_LOOKUP_ELEM: libc::c_int = 1;
const MAP_UPDATE_ELEM: libc::c_int = 2;
const PROG_LOAD: libc::c_int = 5;
const LINK_CREATE: libc::c_int = 28;
/// What a program is, and where it is attached.
const PROGRAM_XDP: u32 = 6;
const ATTACH_XDP: u32 = 37;
/// Flags of `linux/if_link.h`.
const XDP_FLAGS_SKB_MODE: u32 = 1 << 1;
const XDP_FLAGS_DRV_MODE: u32 = 1 << 2;
/// The helpers that are called are for programs of any license.
const LICENSE: &std::ffi::CStr = c"Apache-2.0 OR MIT";
/// As `ip link` and `bpftool` show it.
const NAME: [u8; 16] = *b"bywash_frames\0\0\0";

/// What a map is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum MapKind {
    Array = 2,
    PerCpuArray = 6,
    /// Sockets of AF_XDP, by the queue that they serve.
    Sockets = 17,
}

/// A map with numbers for keys.
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
        // SAFETY: plain numbers.
        let descriptor = unsafe { new_descriptor(MAP_CREATE, &attributes) }?;
        Ok(Map { descriptor, value_bytes })
    }

    /// As programs name it.
    pub(super) fn number(&self) -> i32 {
        self.descriptor.as_raw_fd()
    }

    /// Puts a socket where the frames of a queue go.
    pub(super) fn set_socket(&self, queue: u32, socket: i32) -> Result<(), Errno> {
        assert_eq!(self.value_bytes, size_of::<i32>());
        let attributes = self.element(&queue, (&raw const socket) as u64);
        // SAFETY: key and value are alive for the call, and as long as the map says.
        unsafe { call(MAP_UPDATE_ELEM, &attributes) }.map(drop)
    }

    /// Adds up what all processors have counted at `key`.
    pub(super) fn sum<const N: usize>(&self, key: u32) -> Result<[u64; N], Errno> {
        assert_eq!(self.value_bytes, size_of::<[u64; N]>());
        // A value for every processor that there may be.
        let mut values = vec![[0u64; N]; possible_processors()];
        let attributes = self.element(&key, values.as_mut_ptr() as u64);
        // SAFETY: the key is alive for the call, and there is room for as many values as the kernel writes.
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

/// By what a program is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// By the device's driver, before the kernel has made a packet of the frame.
    Native,
    /// By the kernel, behind any driver.
    Generic,
}

/// A program at a device. It goes when this is dropped, or when the process ends.
pub(super) struct Link(#[expect(dead_code, reason = "held for what it keeps attached")] OwnedFd);

impl Link {
    /// Puts a program where the frames of a device come in.
    ///
    /// # Errors
    /// The kernel's: EBUSY or EEXIST if somebody's program is there, which stays.
    pub(super) fn new(program: &OwnedFd, device: u32, mode: Mode) -> Result<Link, Errno> {
        let flags = match mode {
            Mode::Native => XDP_FLAGS_DRV_MODE,
            Mode::Generic => XDP_FLAGS_SKB_MODE,
        };
        let attributes =
            CreateLink { program: program.as_raw_fd() as u32, device, attach: ATTACH_XDP, flags };
        // SAFETY: plain numbers.
        unsafe { new_descriptor(LINK_CREATE, &attributes) }.map(Link)
    }
}

/// Gives a program to the kernel, which proves that it ends and stays within the frames.
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
    // SAFETY: instructions and license are alive for the call.
    let loaded = unsafe { new_descriptor(PROG_LOAD, &attributes) };
    if cfg!(test) && matches!(loaded, Err(Errno::ACCESS | Errno::INVAL)) {
        let mut log = vec![0u8; 1 << 16];
        (attributes.log_level, attributes.log_bytes, attributes.log) =
            (1, log.len() as u32, log.as_mut_ptr() as u64);
        // SAFETY: as above, and the log has room for as many bytes as it says.
        let _ = unsafe { new_descriptor(PROG_LOAD, &attributes) };
        println!("{}", String::from_utf8_lossy(&log).trim_end_matches('\0'));
    }
    loaded
}

/// # Safety
/// `attributes` are those of the command, and what they lead to is alive and as long as the command wants it.
unsafe fn call<T>(command: libc::c_int, attributes: &T) -> Result<usize, Errno> {
    // SAFETY: as the caller promises.
    answer(unsafe { libc::syscall(libc::SYS_bpf, command, &raw const *attributes, size_of::<T>()) } as isize)
}

/// # Safety
/// As [`call`], and the command answers with a new descriptor.
unsafe fn new_descriptor<T>(command: libc::c_int, attributes: &T) -> Result<OwnedFd, Errno> {
    // SAFETY: as the caller promises. All descriptors of bpf(2) are closed at exec.
    unsafe { call(command, attributes).map(|number| OwnedFd::from_raw_fd(number as i32)) }
}

/// Most processors that this machine may have: what the kernel makes values for.
fn possible_processors() -> usize {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/possible").unwrap_or_default();
    // As in `0-3,8`: the last number is the highest.
    let last = text.trim().rsplit([',', '-']).next().and_then(|number| number.parse::<usize>().ok());
    last.map_or(PROCESSORS_MAX, |last| last + 1).min(PROCESSORS_MAX)
}

/// NR_CPUS of the largest configuration.
const PROCESSORS_MAX: usize = 8192;

// Sizes of `union bpf_attr` up to the last field that is written.
const _: () = assert!(size_of::<CreateMap>() == 20 && size_of::<Element>() == 32);
const _: () = assert!(size_of::<LoadProgram>() == 72 && size_of::<CreateLink>() == 16);
