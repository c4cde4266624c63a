//! Inspects the two ends of a flow and the abilities of this machine, without changing anything.
//!
//! Invariant: an ability of a file system is tested by the system call itself, on the file or, for a file to
//! be created, on a nameless one in its folder. Called by [`crate::part`].

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

/// RWF_DONTCACHE of linux/fs.h (Linux 6.14), which rustix does not name.
pub(crate) const DONTCACHE: ReadWriteFlags = ReadWriteFlags::from_bits_retain(0x80);
/// Greatest capacity of a pipe, in bytes, if /proc cannot be read: the kernel's default.
const PIPE_BYTES_MAX: usize = 1 << 20;

/// Returns the abilities of this machine.
pub(crate) fn inspect_machine() -> Machine {
    let pipe_bytes_max = std::fs::read_to_string("/proc/sys/fs/pipe-max-size")
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(PIPE_BYTES_MAX);
    let io_uring = sys::has_io_uring()
        .map_err(|error| format!("there is no io_uring here: {}", std::io::Error::from(error)));
    Machine { io_uring, xdp: xdp(), pipe_bytes_max }
}

/// Checks that this process has the capabilities to attach programs to network devices. In a user namespace
/// the kernel may refuse nevertheless, and the mover then gives up when it starts.
fn xdp() -> Result<(), String> {
    let needed = CapabilitySet::BPF | CapabilitySet::NET_ADMIN | CapabilitySet::NET_RAW;
    let has = capabilities(None).map_or(CapabilitySet::empty(), |sets| sets.effective);
    // CAP_SYS_ADMIN includes CAP_BPF (capabilities(7)).
    let has = if has.contains(CapabilitySet::SYS_ADMIN) { has | CapabilitySet::BPF } else { has };
    match has.contains(needed) {
        true => Ok(()),
        false => Err("a program at a network device needs CAP_BPF, CAP_NET_ADMIN and CAP_NET_RAW".into()),
    }
}

/// Creates an end of kind `kind` with no other properties than its name and locality.
fn plain(endpoint: &Endpoint, kind: Kind) -> End {
    End { is_local: is_local(endpoint), ..End::new(endpoint.to_string(), kind) }
}

/// Returns true if the peer of the endpoint is certainly on this machine. Names other than `localhost` are
/// not looked up.
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

/// Returns the kind of an endpoint that is not a file.
fn kind_of(endpoint: &Endpoint) -> Kind {
    match endpoint {
        Endpoint::Null => Kind::Null,
        Endpoint::Zero | Endpoint::Random { .. } => Kind::Generated,
        Endpoint::Memory(_) => Kind::Memory,
        Endpoint::Tcp(Tcp { whole: true, .. }) | Endpoint::Unix(Unix { whole: true, .. }) => Kind::Framed,
        Endpoint::Udp(end) if end.reliable => Kind::Quic,
        Endpoint::Udp(_) => Kind::Udp,
        Endpoint::Ethernet(_) => Kind::Ethernet,
        _ => Kind::Stream,
    }
}

/// Returns the properties of a source.
///
/// # Errors
/// [`Error::Io`] if the file does not exist or cannot be inspected; [`Error::Usage`] if it is a folder or a
/// socket.
pub(crate) fn inspect_source(endpoint: &Endpoint) -> Result<End, Error> {
    let name = endpoint.to_string();
    match endpoint {
        Endpoint::File(file) => file_source(endpoint, file, &name),
        Endpoint::Raw { path, offset, length } => {
            file_source(endpoint, &File::from_device_range(path, *offset, *length), &name)
        }
        Endpoint::Standard => {
            // SAFETY: descriptor 0 is borrowed only for this call, and nothing here closes it; if it is not
            // open, fstat(2) fails.
            let inherited = unsafe { BorrowedFd::borrow_raw(0) };
            let failed = |error: Errno| Error::io("look at standard input", error);
            let end = opened_source(endpoint, inherited).map_err(failed)?;
            // Standard input is read from its current position, so only the rest counts.
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
    let Some(stat) = storage::stat_endpoint(&file.path, name)? else { return Err(failed(Errno::NOENT)) };
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
        // Files of procfs have size 0 too, and are read to their end like streams.
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

/// Returns the properties of a sink, or those that the file to be created will have.
///
/// # Errors
/// [`Error::Io`] if the file or its folder cannot be inspected or the file may not be replaced;
/// [`Error::Usage`] if it is a folder or a socket.
pub(crate) fn inspect_sink(endpoint: &Endpoint) -> Result<End, Error> {
    let name = endpoint.to_string();
    match endpoint {
        Endpoint::File(file) => file_sink(endpoint, file, &name),
        Endpoint::Raw { path, offset, length } => {
            file_sink(endpoint, &File::from_device_range(path, *offset, *length), &name)
        }
        Endpoint::Standard => {
            // SAFETY: descriptor 1 is borrowed only for this function, and nothing here closes it; if it is
            // not open, fstat(2) fails.
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
    let there = storage::stat_endpoint(&file.path, name)?;
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
    // A symbolic link is followed to the place where the file will be created.
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

/// Tests the abilities of the file system that `descriptor` is on. If `folder` is given, a nameless file is
/// created there for the tests; else only O_DIRECT is tested, on `descriptor` itself.
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

/// Tests FICLONERANGE by sharing nothing of a file with the file itself. A file system without that ability
/// refuses with another error than EINVAL.
fn takes_reflinks(probe: BorrowedFd<'_>) -> bool {
    matches!(sys::clone_range(probe, probe, 0, 0, 0), Ok(()) | Err(Errno::INVAL))
}

/// Tests RWF_DONTCACHE by a read from an empty file, since the kernel checks the flags before the size.
fn takes_dontcache(probe: BorrowedFd<'_>) -> bool {
    let mut byte = [0];
    rustix::io::preadv2(probe, &mut [IoSliceMut::new(&mut byte)], 0, DONTCACHE).is_ok()
}

/// Returns the alignment for O_DIRECT as statx(2) reports it (Linux 6.1), or else the sector size of a block
/// device, in bytes.
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

/// Returns the name of a file system by its number in linux/magic.h.
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
