//! Descriptors of every kind, made once.

use crate::picture::{ARENA, Picture, arena, other_arena};
use arbitrary::Arbitrary;
use bywash_peers::{FIXED, Words, memory};
use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::{LazyLock, OnceLock};

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
}

/// How many kinds there are.
const KINDS: usize = Kind::Socket as usize + 1;

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
    ]
});

impl Kind {
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

/// Control memory of liars, and its bytes.
static CONTROL: OnceLock<([OwnedFd; 2], usize)> = OnceLock::new();

/// Makes what is made once, among it control memory of so many bytes.
pub(crate) fn prepare(control_bytes: usize) {
    descriptors(&[Kind::Null, Kind::Arena, Kind::OtherArena, Kind::Frozen]);
    CONTROL.get_or_init(|| ([0; 2].map(|_| memory(control_bytes, FIXED)), control_bytes));
}

/// Control memory of the liar at one of two ends, all zero: the same one for every input, since the kernel takes long
/// to make it and longer to take it away.
pub fn control(end: usize) -> &'static OwnedFd {
    let (controls, bytes) = CONTROL.get().expect("it is made before the first input");
    let words = Words::map(&controls[end], *bytes);
    (0..words.count).for_each(|index| words.set(index, 0));
    &controls[end]
}

/// The numbers of several, as many as a message can have.
pub(crate) fn descriptors(kinds: &[Kind]) -> Vec<RawFd> {
    kinds.iter().take(20).map(|kind| kind.descriptor()).collect()
}
