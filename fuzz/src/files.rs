//! Descriptors of every kind, made once per process. Used by the fuzz targets as descriptors from a malicious
//! peer.

use crate::picture::{ARENA, Picture, arena, other_arena};
use arbitrary::Arbitrary;
use bywash_support::peers::{FIXED, memory};
use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::sync::LazyLock;

/// Seals of a sealed container.
const FROZEN: i32 = FIXED | libc::F_SEAL_WRITE;
/// Size of the sealed container of malicious peers, in bytes.
pub const SEALED_BYTES: usize = 4096;

/// Kind of descriptor that a malicious peer may pass.
#[derive(Arbitrary, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The arena that every malicious peer has.
    Arena,
    /// An arena that a malicious peer claims to have from another peer.
    OtherArena,
    /// A sealed container.
    Frozen,
    /// A memfd without seals.
    Loose,
    /// A memfd that can grow.
    Growing,
    /// A memfd that can shrink.
    Shrinking,
    /// A sealed memfd of size 0.
    Empty,
    /// A sealed memfd whose size is not a multiple of a page.
    Odd,
    /// A sealed memfd that is larger than any memory.
    Giant,
    /// The arena, opened for reading only.
    ReadOnly,
    /// The arena, opened with O_PATH.
    Name,
    /// A regular file.
    Plain,
    /// /dev/null.
    Null,
    /// A folder.
    Folder,
    /// The reading end of a pipe.
    Pipe,
    /// A stream socket.
    Socket,
    /// A writable file whose name was removed.
    Deleted,
    /// A sparse file, of which only the end was written.
    Sparse,
    /// A memfd of reserved huge pages, or one without seals if there are none.
    Huge,
    /// The writing end of a pipe.
    PipeWriter,
    /// A socket of sequenced packets whose other end is closed.
    Packets,
    /// A listening socket.
    Listener,
    /// An eventfd.
    Event,
    /// A timerfd.
    Timer,
    /// An epoll instance.
    Epoll,
    /// An inotify instance.
    Inotify,
    /// An instance of io_uring, or an eventfd if the kernel does not let one be passed.
    Uring,
    /// A pidfd of this process.
    Process,
    /// /dev/zero.
    Zero,
    /// A file in /proc.
    Proc,
}

/// Number of kinds.
const KINDS: usize = Kind::Proc as usize + 1;

/// Returns the sealed container that malicious peers have.
pub(crate) fn frozen() -> &'static Picture {
    static CONTAINER: LazyLock<Picture> = LazyLock::new(|| Picture::new(3, SEALED_BYTES, FROZEN));
    &CONTAINER
}

/// Opens a descriptor's file again, with other flags.
fn again(file: &OwnedFd, flags: i32) -> OwnedFd {
    let name = format!("/proc/self/fd/{}\0", file.as_raw_fd());
    // SAFETY: the name ends with a zero byte and outlives the call; nobody else has the new descriptor.
    unsafe {
        let file = libc::open(name.as_ptr().cast(), flags | libc::O_CLOEXEC);
        assert!(file >= 0);
        OwnedFd::from_raw_fd(file)
    }
}

/// Descriptors of the kinds from [`Kind::Loose`] on, in the order of [`Kind`].
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
        // SAFETY: the name is a C string that outlives the call; the flags are plain numbers.
        made(|| unsafe { libc::memfd_create(c"huge".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_HUGETLB) })
            .unwrap_or_else(|| memory(ARENA, 0)),
        std::io::pipe().unwrap().1.into(),
        bywash_link::socket_pair().unwrap().0,
        std::net::TcpListener::bind("127.0.0.1:0").unwrap().into(),
        event(),
        // SAFETY: the call takes plain numbers and accesses no memory.
        made(|| unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_CLOEXEC) }).unwrap(),
        // SAFETY: the call takes plain numbers and accesses no memory.
        made(|| unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) }).unwrap(),
        // SAFETY: the call takes plain numbers and accesses no memory.
        made(|| unsafe { libc::inotify_init1(libc::IN_CLOEXEC) }).unwrap(),
        uring().filter(can_be_passed).unwrap_or_else(event),
        // SAFETY: the call takes plain numbers and accesses no memory.
        made(|| unsafe { libc::syscall(libc::SYS_pidfd_open, libc::getpid(), 0) as RawFd })
            .unwrap_or_else(event),
        File::open("/dev/zero").unwrap().into(),
        File::open("/proc/self/maps").unwrap().into(),
    ]
});

/// Wraps the descriptor that a system call returns; `None` if the call fails.
fn made(call: impl FnOnce() -> RawFd) -> Option<OwnedFd> {
    let file = call();
    // SAFETY: the system call has just made the descriptor, and nobody else has it.
    (file >= 0).then(|| unsafe { OwnedFd::from_raw_fd(file) })
}

/// Makes an eventfd.
pub(crate) fn event() -> OwnedFd {
    // SAFETY: the call takes plain numbers and accesses no memory.
    made(|| unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) }).unwrap()
}

fn uring() -> Option<OwnedFd> {
    // The parameters of io_uring_setup(2), 120 bytes of zeros: no flags.
    let mut parameters = [0u64; 15];
    // SAFETY: the kernel reads and writes 120 bytes, which `parameters` has.
    made(|| unsafe { libc::syscall(libc::SYS_io_uring_setup, 1, parameters.as_mut_ptr()) as RawFd })
}

/// Returns true if the kernel lets a descriptor be passed; since Linux 6.7 it does not for io_uring.
fn can_be_passed(file: &OwnedFd) -> bool {
    let (one, _other) = bywash_link::socket_pair().unwrap();
    bywash_support::peers::send(&one, &[1], &[file.as_raw_fd()])
}

/// Makes a file without a name in which one page is written, three pages after `offset`.
fn written(offset: u64) -> OwnedFd {
    let file = tempfile::tempfile().unwrap();
    file.write_all_at(&[7; 4096], offset + 3 * 4096).unwrap();
    file.into()
}

impl Kind {
    /// Returns true if the kind is a file of data, which can be read or written at any offset.
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

    /// Returns true if the kind is a memfd with seals. Except for [`Kind::Shrinking`], such memory cannot be
    /// taken away from a process that has mapped it.
    pub fn stays(self) -> bool {
        matches!(
            self,
            Kind::Arena | Kind::OtherArena | Kind::Frozen | Kind::Odd | Kind::Giant | Kind::ReadOnly
        ) || matches!(self, Kind::Shrinking | Kind::Growing | Kind::Empty)
    }

    /// Returns the descriptor of this kind, which stays open in this process.
    pub fn descriptor(self) -> RawFd {
        match self {
            Kind::Arena => arena().file.as_raw_fd(),
            Kind::OtherArena => other_arena().file.as_raw_fd(),
            Kind::Frozen => frozen().file.as_raw_fd(),
            _ => OTHERS[self as usize - 3].as_raw_fd(),
        }
    }
}

/// Makes the descriptors that exist once, so that they do not count as left behind by an input.
pub(crate) fn prepare() {
    descriptors(&[Kind::Null, Kind::Arena, Kind::OtherArena, Kind::Frozen]);
}

/// Returns the descriptors of up to 20 kinds.
pub(crate) fn descriptors(kinds: &[Kind]) -> Vec<RawFd> {
    kinds.iter().take(20).map(|kind| kind.descriptor()).collect()
}
