//! Tools of a malicious peer: messages and memory without the library, and timeouts for its victims.

use std::mem::size_of;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

/// Longest time that a call may take beyond its own timeout.
pub const LIMIT: Duration = Duration::from_secs(2);
/// Seals against resizing and against further seals.
pub const FIXED: i32 = OFFERED | libc::F_SEAL_SEAL;
/// Seals of memory that a channel's client offers, which its server seals further.
pub const OFFERED: i32 = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW;

/// Creates a memory file of `bytes` bytes with these seals.
pub fn memory(bytes: usize, seals: i32) -> OwnedFd {
    // SAFETY: system calls on a name that ends in a zero byte and on a descriptor that is made here and owned
    // once.
    unsafe {
        let file = libc::memfd_create(c"hostile".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING);
        assert!(file >= 0 && libc::ftruncate(file, bytes as i64) == 0);
        let file = OwnedFd::from_raw_fd(file);
        if seals != 0 {
            assert_eq!(libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals), 0);
        }
        file
    }
}

/// Creates a memory file whose pages are all populated, like a channel's client offers it: of a fixed size,
/// and not sealed further.
pub fn offered(bytes: usize) -> OwnedFd {
    let file = memory(bytes, OFFERED);
    // SAFETY: fallocate(2) on a live descriptor accesses no memory of this process.
    assert_eq!(unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, bytes as i64) }, 0);
    file
}

/// Returns the number of bytes of a file that are backed by pages.
pub fn backed_bytes(file: &OwnedFd) -> usize {
    // SAFETY: the kernel fills a live structure, for which all zeros are a valid value.
    unsafe {
        let mut status: libc::stat = std::mem::zeroed();
        assert_eq!(libc::fstat(file.as_raw_fd(), &mut status), 0);
        status.st_blocks as usize * 512
    }
}

/// Buffer for the control messages of a message, with their alignment.
#[repr(C, align(8))]
struct Ancillary([u8; 1100]);

/// Sends a message with descriptors; false if the kernel refuses it.
pub fn send(socket: &OwnedFd, bytes: &[u8], descriptors: &[RawFd]) -> bool {
    let mut ancillary = Ancillary([0; 1100]);
    let mut iov = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let payload = size_of_val(descriptors);
    // SAFETY: the header points to live buffers. The control buffer has room for as many descriptors as the
    // kernel accepts, 253, and the assertion checks the number before any is written.
    unsafe {
        let mut header: libc::msghdr = std::mem::zeroed();
        header.msg_iov = &mut iov;
        header.msg_iovlen = 1;
        if payload > 0 {
            header.msg_control = ancillary.0.as_mut_ptr().cast();
            header.msg_controllen = libc::CMSG_SPACE(payload as u32) as usize;
            assert!(header.msg_controllen <= 1100);
            let message = libc::CMSG_FIRSTHDR(&header);
            (*message).cmsg_level = libc::SOL_SOCKET;
            (*message).cmsg_type = libc::SCM_RIGHTS;
            (*message).cmsg_len = libc::CMSG_LEN(payload as u32) as usize;
            ptr::copy_nonoverlapping(descriptors.as_ptr().cast::<u8>(), libc::CMSG_DATA(message), payload);
        }
        libc::sendmsg(socket.as_raw_fd(), &header, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) >= 0
    }
}

/// Receives a message with its descriptors; blocks until there is one.
pub fn receive(socket: &OwnedFd) -> (Vec<u8>, Vec<OwnedFd>) {
    let mut ancillary = Ancillary([0; 1100]);
    let mut bytes = vec![0u8; 512];
    let mut iov = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    let mut descriptors = Vec::new();
    // SAFETY: the header points to live buffers of the lengths that it states, and only what the kernel wrote
    // is read. Each descriptor is new and has no other owner.
    unsafe {
        let mut header: libc::msghdr = std::mem::zeroed();
        header.msg_iov = &mut iov;
        header.msg_iovlen = 1;
        header.msg_control = ancillary.0.as_mut_ptr().cast();
        header.msg_controllen = 1100;
        let length = libc::recvmsg(socket.as_raw_fd(), &mut header, libc::MSG_CMSG_CLOEXEC);
        assert!(length >= 0, "{}", std::io::Error::last_os_error());
        bytes.truncate(length as usize);
        let mut message = libc::CMSG_FIRSTHDR(&header);
        while !message.is_null() {
            if (*message).cmsg_type == libc::SCM_RIGHTS {
                let count = ((*message).cmsg_len - libc::CMSG_LEN(0) as usize) / size_of::<RawFd>();
                let data = libc::CMSG_DATA(message).cast::<RawFd>();
                descriptors
                    .extend((0..count).map(|number| OwnedFd::from_raw_fd(data.add(number).read_unaligned())));
            }
            message = libc::CMSG_NXTHDR(&header, message);
        }
    }
    (bytes, descriptors)
}

/// Words of a memory file that the victim uses too.
pub struct Words {
    base: *mut AtomicU64,
    /// Number of words.
    pub count: usize,
}

// SAFETY: the words are accessed by atomic operations only, and the mapping is not bound to a thread.
unsafe impl Send for Words {}
// SAFETY: the words are accessed by atomic operations only, so threads may share them.
unsafe impl Sync for Words {}

impl Words {
    /// Maps `bytes` bytes of a file for reading and writing.
    pub fn map(file: &OwnedFd, bytes: usize) -> Words {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping, at an address of the kernel's choice, replaces nothing.
        let base =
            unsafe { libc::mmap(ptr::null_mut(), bytes, protection, libc::MAP_SHARED, file.as_raw_fd(), 0) };
        assert_ne!(base, libc::MAP_FAILED);
        Words { base: base.cast(), count: bytes / 8 }
    }

    /// Returns the word at `index`.
    pub fn at(&self, index: usize) -> &AtomicU64 {
        assert!(index < self.count);
        // SAFETY: the word is within the mapping, as asserted, which this value keeps.
        unsafe { &*self.base.add(index) }
    }

    /// Sets all words to zero.
    pub fn clear(&self) {
        // SAFETY: `count` words are mapped and aligned, they are atomics, and this value keeps the mapping.
        let words = unsafe { std::slice::from_raw_parts(self.base.cast_const(), self.count) };
        words.iter().for_each(|word| word.store(0, Relaxed));
    }

    /// Sets the word at `index`.
    pub fn set(&self, index: usize, word: u64) {
        self.at(index).store(word, Relaxed);
    }
}

impl Drop for Words {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own, and references to its words borrow the value.
        unsafe { libc::munmap(self.base.cast(), self.count * 8) };
    }
}

/// Calls a function that may fail, but must return within [`LIMIT`].
pub fn timed<T>(what: &str, call: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let answer = call();
    assert!(start.elapsed() < LIMIT, "{what} took {:?}", start.elapsed());
    answer
}

/// Aborts the process and names the test if it does not end within `limit`. Dropping the result ends the
/// watch.
pub fn watch(test: &'static str, limit: Duration) -> impl Drop {
    struct Watch(Arc<AtomicBool>);
    impl Drop for Watch {
        fn drop(&mut self) {
            self.0.store(true, Relaxed);
        }
    }
    let done = Arc::new(AtomicBool::new(false));
    let seen = done.clone();
    thread::spawn(move || {
        let end = Instant::now() + limit;
        while !seen.load(Relaxed) {
            if Instant::now() > end {
                eprintln!("{test} hangs");
                std::process::abort();
            }
            thread::sleep(Duration::from_millis(20));
        }
    });
    Watch(done)
}

/// Waits up to [`LIMIT`] for a peer to connect.
pub fn accept(listener: &bywash_link::Listener) -> OwnedFd {
    let end = Instant::now() + LIMIT;
    loop {
        if let Some(peer) = listener.try_accept().unwrap() {
            return peer;
        }
        assert!(Instant::now() < end, "nobody connects");
        std::thread::sleep(Duration::from_micros(50));
    }
}
