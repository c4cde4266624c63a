//! Finds out what the two ends of a flow are, and what this machine can do, without touching anything.
//!
//! Each ability is tried on the thing itself, or, for a file that is yet to be made, on a nameless file in its folder.

use crate::end::storage;
use crate::end::{check_target, folder_of, resolved};
use crate::error::Error;
use crate::facts::{End, FileSystem, Kind, Machine};
use crate::spec::{Endpoint, File, Tcp, Unix};
use crate::sys;
use rustix::fs::{AtFlags, Mode, OFlags, SeekFrom, StatxFlags};
use rustix::io::{Errno, ReadWriteFlags};
use rustix::thread::{CapabilitySet, capabilities};
use std::io::IoSliceMut;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// RWF_DONTCACHE of linux/fs.h (Linux 6.14).
pub(crate) const DONTCACHE: ReadWriteFlags = ReadWriteFlags::from_bits_retain(0x80);
/// In the unlikely case that /proc is not there: the kernel's default.
const PIPE_BYTES_MAX: usize = 1 << 20;

/// What this machine can do.
pub(crate) fn machine() -> Machine {
    let pipe_bytes_max = std::fs::read_to_string("/proc/sys/fs/pipe-max-size")
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(PIPE_BYTES_MAX);
    let io_uring = sys::has_io_uring()
        .map_err(|error| format!("there is no io_uring here: {}", std::io::Error::from(error)));
    Machine { io_uring, xdp: xdp(), pipe_bytes_max }
}

/// Whether this process has the capabilities for programs at network devices. In a user namespace it may have them and
/// still be refused, which is found out when it is tried.
fn xdp() -> Result<(), String> {
    let needed = CapabilitySet::BPF | CapabilitySet::NET_ADMIN | CapabilitySet::NET_RAW;
    let has = capabilities(None).map_or(CapabilitySet::empty(), |sets| sets.effective);
    // What BPF allows, SYS_ADMIN did before.
    let has = if has.contains(CapabilitySet::SYS_ADMIN) { has | CapabilitySet::BPF } else { has };
    match has.contains(needed) {
        true => Ok(()),
        false => Err("a program at a network device needs CAP_BPF, CAP_NET_ADMIN and CAP_NET_RAW".into()),
    }
}

/// An end of which nothing is known but what it is.
fn plain(endpoint: &Endpoint, kind: Kind) -> End {
    End { is_local: is_local(endpoint), ..End::of(endpoint.to_string(), kind) }
}

/// Whether whoever is behind it can be on this machine only. Names are not looked up for that.
fn is_local(endpoint: &Endpoint) -> bool {
    match endpoint {
        Endpoint::Unix(_) => true,
        Endpoint::Tcp(end) => {
            let address = end.host.parse::<IpAddr>();
            address.map_or(end.host == "localhost", |address| address.is_loopback())
        }
        _ => false,
    }
}

/// The kind of what is no file.
fn kind_of(endpoint: &Endpoint) -> Kind {
    match endpoint {
        Endpoint::Null => Kind::Nowhere,
        Endpoint::Zero | Endpoint::Random { .. } => Kind::Made,
        Endpoint::Memory(_) => Kind::Memory,
        Endpoint::Tcp(Tcp { whole: true, .. }) | Endpoint::Unix(Unix { whole: true, .. }) => Kind::Framed,
        Endpoint::Udp(end) if end.reliable => Kind::Quic,
        Endpoint::Udp(_) => Kind::Udp,
        Endpoint::Ethernet(_) => Kind::Ethernet,
        _ => Kind::Stream,
    }
}

/// What a source is.
///
/// # Errors
/// That it is not there, or cannot be what it is named as.
pub(crate) fn source(endpoint: &Endpoint) -> Result<End, Error> {
    let name = endpoint.to_string();
    match endpoint {
        Endpoint::File(file) => file_source(endpoint, file, &name),
        Endpoint::Raw { path, offset, length } => {
            file_source(endpoint, &File::of_device(path, *offset, *length), &name)
        }
        Endpoint::Standard => {
            // SAFETY: it is borrowed for the length of this call; if it is closed, fstat says so.
            let inherited = unsafe { BorrowedFd::borrow_raw(0) };
            let failed = |error: Errno| Error::io("look at standard input", error);
            let end = opened_source(endpoint, inherited).map_err(failed)?;
            // It goes on where whoever shares it has stopped.
            let read = match end.size {
                Some(_) => rustix::fs::seek(inherited, SeekFrom::Current(0)).map_err(failed)?,
                None => 0,
            };
            Ok(End { size: end.size.map(|size| size.saturating_sub(read)), ..end })
        }
        _ => Ok(plain(endpoint, kind_of(endpoint))),
    }
}

fn file_source(endpoint: &Endpoint, file: &File, name: &str) -> Result<End, Error> {
    let failed = |error: Errno| Error::io(format!("open {name}"), error);
    let Some(stat) = storage::standing(&file.path, name)? else { return Err(failed(Errno::NOENT)) };
    let kind = storage::kind_of(&stat);
    if !kind.is_storage() {
        return Ok(plain(endpoint, kind));
    }
    let descriptor =
        rustix::fs::open(&file.path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).map_err(failed)?;
    let end = opened_source(endpoint, descriptor.as_fd()).map_err(failed)?;
    let size = end.size.map(|size| {
        let left = size.saturating_sub(file.offset.unwrap_or(0));
        file.length.map_or(left, |length| length.min(left))
    });
    Ok(End { size, ..end })
}

fn opened_source(endpoint: &Endpoint, descriptor: BorrowedFd<'_>) -> Result<End, Errno> {
    let stat = rustix::fs::fstat(descriptor)?;
    let kind = storage::kind_of(&stat);
    if !kind.is_storage() {
        return Ok(plain(endpoint, kind));
    }
    let size = storage::size_of(descriptor, &stat)?;
    if kind == Kind::File && size == 0 {
        // Files of procfs say so too: they are read to their end.
        return Ok(plain(endpoint, Kind::Device));
    }
    let pages = sys::cached_pages(descriptor, size).ok();
    let page = sys::page_bytes() as u64;
    Ok(End {
        size: Some(size),
        cached: pages.map(|pages| (pages * page) as f64 / size as f64),
        has_holes: kind == Kind::File && (stat.st_blocks as u64).saturating_mul(512) < size,
        file_system: Some(file_system(descriptor, stat.st_dev, None)),
        ..plain(endpoint, kind)
    })
}

/// What a sink is, or would be.
///
/// # Errors
/// That it cannot be made, or cannot be what it is named as.
pub(crate) fn sink(endpoint: &Endpoint) -> Result<End, Error> {
    let name = endpoint.to_string();
    match endpoint {
        Endpoint::File(file) => file_sink(endpoint, file, &name),
        Endpoint::Raw { path, offset, length } => {
            file_sink(endpoint, &File::of_device(path, *offset, *length), &name)
        }
        Endpoint::Standard => {
            // SAFETY: it is borrowed for the length of this function; if it is closed, fstat says so.
            let inherited = unsafe { BorrowedFd::borrow_raw(1) };
            let failed = |error: Errno| Error::io("look at standard output", error);
            let stat = rustix::fs::fstat(inherited).map_err(failed)?;
            let flags = rustix::fs::fcntl_getfl(inherited).map_err(failed)?;
            let kind = storage::kind_of(&stat);
            let file_system = kind.is_storage().then(|| file_system(inherited, stat.st_dev, None));
            let appends = flags.contains(OFlags::APPEND);
            Ok(End { file_system, appends, ..plain(endpoint, kind) })
        }
        _ => Ok(plain(endpoint, kind_of(endpoint))),
    }
}

fn file_sink(endpoint: &Endpoint, file: &File, name: &str) -> Result<End, Error> {
    let there = storage::standing(&file.path, name)?;
    let kind = there.as_ref().map_or(Kind::File, storage::kind_of);
    if !kind.is_storage() {
        return Ok(plain(endpoint, kind));
    }
    let end = End { appends: file.append, ..plain(endpoint, kind) };
    if let (Some(stat), true) = (&there, kind == Kind::Block) {
        let descriptor = rustix::fs::open(&file.path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
            .map_err(|error| Error::io(format!("open {name}"), error))?;
        return Ok(End { file_system: Some(file_system(descriptor.as_fd(), stat.st_rdev, None)), ..end });
    }
    // A link leads to where the file will be.
    let path = resolved(&file.path).map_err(|error| Error::io(format!("follow {name}"), error))?;
    if !(file.append || file.in_place || file.offset.is_some()) {
        check_target(&path)?;
    }
    let folder = folder_of(&path);
    let failed = |error: Errno| Error::io(format!("make {name} in the folder {}", folder.display()), error);
    let opened =
        rustix::fs::open(folder, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
            .map_err(failed)?;
    let device = rustix::fs::fstat(&opened).map_err(failed)?.st_dev;
    Ok(End { file_system: Some(file_system(opened.as_fd(), device, Some(folder))), ..end })
}

/// What the file system can do that `descriptor` is on. With a folder a nameless file is made there to try it; else
/// `descriptor` itself is tried.
fn file_system(descriptor: BorrowedFd<'_>, device: u64, folder: Option<&Path>) -> FileSystem {
    let magic = rustix::fs::fstatfs(descriptor).map_or(0, |system| system.f_type as u64);
    let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
    let nameless: Option<OwnedFd> =
        folder.and_then(|folder| rustix::fs::open(folder, flags, Mode::RUSR | Mode::WUSR).ok());
    let probe = nameless.as_ref().map_or(descriptor, AsFd::as_fd);
    let is_device = rustix::fs::fstat(descriptor).is_ok_and(|stat| storage::kind_of(&stat) == Kind::Block);
    FileSystem {
        name: if is_device { "the device".into() } else { name_of(magic) },
        device,
        reflinks: nameless.is_some() && takes_reflinks(probe),
        dontcache: nameless.is_some() && takes_dontcache(probe),
        direct_alignment: direct_alignment(probe),
    }
}

/// A file system that cannot says so before it looks at what is to be shared with what: here nothing, with itself.
fn takes_reflinks(probe: BorrowedFd<'_>) -> bool {
    matches!(sys::clone_range(probe, probe, 0, 0, 0), Ok(()) | Err(Errno::INVAL))
}

/// The kernel looks at the flags of a call before it looks whether there is anything to read.
fn takes_dontcache(probe: BorrowedFd<'_>) -> bool {
    let mut byte = [0];
    rustix::io::preadv2(probe, &mut [IoSliceMut::new(&mut byte)], 0, DONTCACHE).is_ok()
}

/// What the kernel says (statx(2), Linux 6.1), or the sectors of a device.
fn direct_alignment(probe: BorrowedFd<'_>) -> Option<u32> {
    let said = rustix::fs::statx(
        probe,
        c"",
        AtFlags::EMPTY_PATH,
        StatxFlags::from_bits_retain(libc::STATX_DIOALIGN),
    );
    let said = said.ok().map(|stat| stat.stx_dio_offset_align.max(stat.stx_dio_mem_align));
    said.filter(|alignment| *alignment > 0).or_else(|| rustix::fs::ioctl_blksszget(probe).ok())
}

/// Names of the file systems that this is about, by the numbers of linux/magic.h.
fn name_of(magic: u64) -> String {
    const NAMES: [(u64, &str); 11] = [
        (0xEF53, "ext4"),
        (0x5846_5342, "xfs"),
        (0x9123_683E, "btrfs"),
        (0x0102_1994, "tmpfs"),
        (0x794C_7630, "overlayfs"),
        (0x6969, "nfs"),
        (0xF2F5_2010, "f2fs"),
        (0x2FC1_2FC1, "zfs"),
        (0xCA45_1A4E, "bcachefs"),
        (0x6573_5546, "fuse"),
        (0x9FA0, "proc"),
    ];
    NAMES
        .iter()
        .find(|known| known.0 == magic & 0xFFFF_FFFF)
        .map_or_else(|| format!("a file system 0x{magic:x}"), |known| known.1.into())
}
