//! Descriptors of every kind, made once.

use crate::picture::{ARENA, Picture, arena, other_arena};
use arbitrary::Arbitrary;
use bywash_peers::{FIXED, memory};
use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::sync::LazyLock;

/// Seals of a sealed container.
const FROZEN: i32 = FIXED | libc::F_SEAL_WRITE;
/// Bytes of the sealed container that liars have.
pub const SEALED_BYTES: usize = 4096;

/// A descriptor that a liar may pass on.
#[derive(Arbitrary, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// What every liar has as its arena.
    Arena,
    /// An arena of somebody else's.
    OtherArena,
    /// A sealed container.
    Frozen,
    /// Memory that has no seals.
    Loose,
    /// Memory that can grow.
    Growing,
    /// Memory that can shrink.
    Shrinking,
    /// Memory of no bytes.
    Empty,
    /// Memory of an odd size.
    Odd,
    /// Memory that nobody has room for.
    Giant,
    /// Memory that was opened for reading.
    ReadOnly,
    /// A descriptor that only stands for a name.
    Name,
    /// A file.
    Plain,
    /// A device.
    Null,
    /// A folder.
    Folder,
    /// An end of a pipe.
    Pipe,
    /// A socket.
    Socket,
    /// A file that has no name any more and may be written.
    Deleted,
    /// A file of which nothing but the end was written.
    Sparse,
    /// Memory in reserved huge pages, or else no seals.
    Huge,
    /// An end of a pipe, to be written to.
    PipeWriter,
    /// A socket of sequenced packets that has no other end.
    Packets,
    /// A socket that listens.
    Listener,
    /// An event counter.
    Event,
    /// A timer.
    Timer,
    /// A set of descriptors to be waited for.
    Epoll,
    /// Changes of folders that are told of.
    Inotify,
    /// An io_uring, or else an event counter where the kernel passes none on.
    Uring,
    /// This process.
    Process,
    /// A device of zeros.
    Zero,
    /// A file of the kernel's own making.
    Proc,
}

/// How many kinds there are.
const KINDS: usize = Kind::Proc as usize + 1;

/// The sealed container that liars have.
pub(crate) fn frozen() -> &'static Picture {
    static CONTAINER: LazyLock<Picture> = LazyLock::new(|| Picture::new(3, SEALED_BYTES, FROZEN));
    &CONTAINER
}

/// Opens what a descriptor leads to once more.
fn again(file: &OwnedFd, flags: i32) -> OwnedFd {
    let name = format!("/proc/self/fd/{}\0", file.as_raw_fd());
    // SAFETY: a name with a zero at its end; the answer is nobody else's.
    unsafe {
        let file = libc::open(name.as_ptr().cast(), flags | libc::O_CLOEXEC);
        assert!(file >= 0);
        OwnedFd::from_raw_fd(file)
    }
}

/// Those of [`Kind`] that are no pictures, in its order.
static OTHERS: LazyLock<[OwnedFd; KINDS - 3]> = LazyLock::new(|| {
    let plain = OwnedFd::from(File::open(std::env::current_exe().unwrap()).unwrap());
    let (reader, _) = std::io::pipe().unwrap();
    [
        memory(ARENA, 0),
        memory(ARENA, libc::F_SEAL_SHRINK),
        memory(ARENA, libc::F_SEAL_GROW | libc::F_SEAL_SEAL),
        memory(0, FIXED),
        memory(ARENA - 1, FIXED),
        memory(1 << 40, FROZEN),
        again(&arena().file, libc::O_RDONLY),
        again(&arena().file, libc::O_PATH),
        plain,
        File::open("/dev/null").unwrap().into(),
        File::open("/").unwrap().into(),
        reader.into(),
        std::os::unix::net::UnixStream::pair().unwrap().0.into(),
        written(0),
        written(1 << 24),
        // SAFETY: a name with a zero at its end, and flags.
        made(|| unsafe { libc::memfd_create(c"huge".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_HUGETLB) })
            .unwrap_or_else(|| memory(ARENA, 0)),
        std::io::pipe().unwrap().1.into(),
        bywash_link::socket_pair().unwrap().0,
        std::net::TcpListener::bind("127.0.0.1:0").unwrap().into(),
        event(),
        // SAFETY: numbers alone.
        made(|| unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_CLOEXEC) }).unwrap(),
        // SAFETY: numbers alone.
        made(|| unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) }).unwrap(),
        // SAFETY: numbers alone.
        made(|| unsafe { libc::inotify_init1(libc::IN_CLOEXEC) }).unwrap(),
        uring().filter(can_be_passed).unwrap_or_else(event),
        // SAFETY: numbers alone.
        made(|| unsafe { libc::syscall(libc::SYS_pidfd_open, libc::getpid(), 0) as RawFd })
            .unwrap_or_else(event),
        File::open("/dev/zero").unwrap().into(),
        File::open("/proc/self/maps").unwrap().into(),
    ]
});

/// A descriptor that a call has made; none if the kernel makes none.
fn made(call: impl FnOnce() -> RawFd) -> Option<OwnedFd> {
    let file = call();
    // SAFETY: the call has made it, and nobody else has it.
    (file >= 0).then(|| unsafe { OwnedFd::from_raw_fd(file) })
}

/// An event counter.
pub(crate) fn event() -> OwnedFd {
    // SAFETY: numbers alone.
    made(|| unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) }).unwrap()
}

fn uring() -> Option<OwnedFd> {
    // Bytes of the parameters, all zeros: no flags.
    let mut parameters = [0u64; 15];
    // SAFETY: as many bytes as the kernel reads and writes.
    made(|| unsafe { libc::syscall(libc::SYS_io_uring_setup, 1, parameters.as_mut_ptr()) as RawFd })
}

/// Returns whether the kernel lets a descriptor be passed on; one of an io_uring cannot be since Linux 6.7.
fn can_be_passed(file: &OwnedFd) -> bool {
    let (one, _other) = bywash_link::socket_pair().unwrap();
    bywash_peers::send(&one, &[1], &[file.as_raw_fd()])
}

/// A file without a name, whose last of four pages, from an offset on, has been written.
fn written(offset: u64) -> OwnedFd {
    let file = tempfile::tempfile().unwrap();
    file.write_all_at(&[7; 4096], offset + 3 * 4096).unwrap();
    file.into()
}

impl Kind {
    /// Returns whether the kind is a file of data, which can be read or written at any offset.
    pub fn is_file(self) -> bool {
        use Kind as K;
        !matches!(
            self,
            K::Name
                | K::Null
                | K::Folder
                | K::Pipe
                | K::Socket
                | K::PipeWriter
                | K::Packets
                | K::Listener
                | K::Event
                | K::Timer
                | K::Epoll
                | K::Inotify
                | K::Uring
                | K::Process
                | K::Zero
                | K::Proc
        )
    }

    /// Returns whether the kind is memory that nobody can take away from a process that has mapped it.
    pub fn stays(self) -> bool {
        matches!(
            self,
            Kind::Arena | Kind::OtherArena | Kind::Frozen | Kind::Odd | Kind::Giant | Kind::ReadOnly
        ) || matches!(self, Kind::Shrinking | Kind::Growing | Kind::Empty)
    }

    /// Its number in this process, which stays open.
    pub fn descriptor(self) -> RawFd {
        match self {
            Kind::Arena => arena().file.as_raw_fd(),
            Kind::OtherArena => other_arena().file.as_raw_fd(),
            Kind::Frozen => frozen().file.as_raw_fd(),
            _ => OTHERS[self as usize - 3].as_raw_fd(),
        }
    }
}

/// Makes what is made once.
pub(crate) fn prepare() {
    descriptors(&[Kind::Null, Kind::Arena, Kind::OtherArena, Kind::Frozen]);
}

/// The numbers of several, as many as a message can have.
pub(crate) fn descriptors(kinds: &[Kind]) -> Vec<RawFd> {
    kinds.iter().take(20).map(|kind| kind.descriptor()).collect()
}
