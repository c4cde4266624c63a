//! The movers that exist, by name: one table, from which parsing, messages, help and the guide come.
//!
//! The table has no code: [`crate::plan`] ranks the movers, `mover` and `datagram` implement them.

use serde::Serialize;
use std::fmt;

/// A mechanism that moves bytes between two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Mover {
    /// The sink shares the source's blocks until one of them is written (FICLONERANGE).
    Reflink,
    /// The kernel copies from file to file (copy_file_range(2)).
    CopyRange,
    /// The kernel sends a file's pages (sendfile(2)).
    Sendfile,
    /// Pages go through a pipe (splice(2)).
    Splice,
    /// Blocks are read into a buffer and written from it (read(2), write(2)).
    Buffer,
    /// Like `buffer`, but drops the data from the page cache after use (RWF_DONTCACHE).
    Dontcache,
    /// Several blocks are in flight between registered buffers and the device, bypassing the page cache
    /// (io_uring, O_DIRECT).
    Direct,
    /// Blocks are read and sent by io_uring; the next blocks are read while one is sent.
    Uring,
    /// Blocks are sent from the buffer without a copy, and the buffer is reused once the kernel has finished
    /// (MSG_ZEROCOPY).
    Zerocopy,
    /// Datagrams are moved one by one (recv(2), send(2)).
    Single,
    /// Many datagrams are moved by one call (recvmmsg(2), sendmmsg(2)).
    Batch,
    /// Many datagrams pass the kernel as one large buffer (UDP_GRO, UDP_SEGMENT).
    Offload,
    /// Frames are read from a ring shared with the kernel (AF_PACKET, TPACKET_V3).
    Ring,
    /// Frames are read from and written to memory shared with the kernel, bypassing its network stack
    /// (AF_XDP).
    Xdp,
    /// The kernel redirects frames from one network device to another (XDP).
    XdpRedirect,
}

/// Entry of the table of movers.
#[derive(Clone, Copy, Debug)]
pub struct MoverRow {
    mover: Mover,
    name: &'static str,
    sentence: &'static str,
    used_for: &'static str,
}

impl MoverRow {
    /// Returns the mover.
    pub fn mover(&self) -> Mover {
        self.mover
    }

    /// Returns the name by which the user forces the mover.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns one sentence about the mechanism, in Markdown and without a full stop.
    pub fn sentence(&self) -> &'static str {
        self.sentence
    }

    /// Returns the ends and data that the mover is for, in Markdown.
    pub fn used_for(&self) -> &'static str {
        self.used_for
    }
}

const fn row(mover: Mover, name: &'static str, sentence: &'static str, used_for: &'static str) -> MoverRow {
    MoverRow { mover, name, sentence, used_for }
}

/// All movers, in the order in which messages list them.
pub(crate) static MOVERS: [MoverRow; 15] = [
    row(
        Mover::Reflink,
        "reflink",
        "the files share their blocks until one is written",
        "one file system that can (XFS, btrfs)",
    ),
    row(Mover::CopyRange, "copy-range", "the kernel copies", "files of one file system"),
    row(
        Mover::Sendfile,
        "sendfile",
        "the kernel copies, or sends a file's pages",
        "files; sockets with `--by reference`",
    ),
    row(
        Mover::Splice,
        "splice",
        "the kernel's pages, through a pipe",
        "files; streams into streams; pipes into files",
    ),
    row(
        Mover::Buffer,
        "buffer",
        "read(2) and write(2), `--block` 512 to 4M",
        "files, sockets into files, and everything with stages",
    ),
    row(
        Mover::Dontcache,
        "dontcache",
        "like `buffer`; the page cache keeps nothing of it that it did not have",
        "larger files where the page cache is full, durable copies without io_uring",
    ),
    row(
        Mover::Direct,
        "direct",
        "io_uring, registered buffers, O_DIRECT, eight blocks at a time",
        "durable copies",
    ),
    row(Mover::Uring, "uring", "io_uring, four blocks at a time", "files into sockets"),
    row(Mover::Zerocopy, "zerocopy", "MSG_ZEROCOPY", "sockets, when forced by `--via zerocopy`"),
    row(Mover::Single, "single", "one datagram a call", "datagrams"),
    row(Mover::Batch, "batch", "many datagrams a call", "datagrams"),
    row(Mover::Offload, "offload", "many datagrams joined by the kernel", "UDP"),
    row(Mover::Ring, "ring", "frames out of memory shared with the kernel", "Ethernet frames"),
    row(Mover::Xdp, "xdp", "frames past the kernel's packets, by AF_XDP", "Ethernet frames"),
    row(
        Mover::XdpRedirect,
        "xdp-redirect",
        "the kernel passes frames on by itself, and the flow watches; tcpdump on that host does not see them",
        "relays between two Ethernet devices",
    ),
];

/// Returns the rows of all movers.
pub fn movers() -> impl Iterator<Item = &'static MoverRow> {
    MOVERS.iter()
}

impl Mover {
    /// Iterates over all movers.
    pub fn all() -> impl Iterator<Item = Mover> {
        MOVERS.iter().map(|row| row.mover)
    }

    /// Returns the mover of this name; `None` if no mover has it.
    pub(crate) fn named(name: &str) -> Option<Mover> {
        MOVERS.iter().find(|row| row.name == name).map(|row| row.mover)
    }

    /// Returns true for movers of datagrams, false for movers of streams and files.
    pub(crate) fn is_of_datagrams(self) -> bool {
        use Mover::{Batch, Offload, Ring, Single, Xdp, XdpRedirect};
        matches!(self, Single | Batch | Offload | Ring | Xdp | XdpRedirect)
    }
}

impl fmt::Display for Mover {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(MOVERS.iter().find(|row| row.mover == *self).map_or("?", |row| row.name))
    }
}
