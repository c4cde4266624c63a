//! Descriptors that block the program that closes them, or also one that does more with them.
//!
//! - [`Lingering`]: a socket that blocks in close(2) and nowhere else
//! - [`SilentFile`]: a file whose file system (FUSE) never replies, so that reading, examining and closing
//!   the file block

use crate::peers::liar::receive;
use crate::peers::processes::{Child, inherited_sockets, role};
use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::{io, mem, ptr, thread};

/// Time for which closing a lingering socket blocks, in seconds.
const LINGERING: i32 = 60;
/// Role of the process that serves a silent file.
const SILENT: &str = "silent file system";
/// Mount point of the silent file system, in a mount namespace of the serving process.
const PLACE: &std::ffi::CStr = c"/sys";
/// The only file of the silent file system.
const FILE: &str = "/sys/file";

/// A TCP socket with a full send buffer whose close(2) blocks, and its peer, which never reads.
pub struct Lingering {
    socket: Option<OwnedFd>,
    _peer: TcpStream,
}

impl Default for Lingering {
    fn default() -> Lingering {
        Lingering::new()
    }
}

impl Lingering {
    /// Makes a connection and fills its send buffer.
    pub fn new() -> Lingering {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (peer, _) = listener.accept().unwrap();
        socket.set_nonblocking(true).unwrap();
        while socket.write(&[0; 65536]).is_ok() {}
        socket.set_nonblocking(false).unwrap();
        linger(socket.as_fd(), true);
        Lingering { socket: Some(socket.into()), _peer: peer }
    }

    /// Passes the socket on by `pass`, which returns true if the kernel accepted it. Afterwards this process
    /// closes its own copy on another thread; the receiver is the last to close the socket, unless it is
    /// faster than that thread.
    pub fn pass(&mut self, pass: impl FnOnce(BorrowedFd<'_>) -> bool) -> bool {
        let socket = self.socket.take().unwrap();
        let is_taken = pass(socket.as_fd());
        if !is_taken {
            linger(socket.as_fd(), false);
        }
        thread::spawn(move || drop(socket));
        is_taken
    }
}

impl Drop for Lingering {
    fn drop(&mut self) {
        if let Some(socket) = &self.socket {
            linger(socket.as_fd(), false);
        }
    }
}

fn linger(socket: BorrowedFd<'_>, lingers: bool) {
    let how = libc::linger { l_onoff: lingers.into(), l_linger: LINGERING };
    let bytes = size_of::<libc::linger>() as libc::socklen_t;
    // SAFETY: the kernel reads one live structure of the given length.
    let set = unsafe {
        let how = ptr::from_ref(&how).cast();
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_LINGER, how, bytes)
    };
    assert_eq!(set, 0);
}

/// A file of a FUSE file system that no longer replies. Reading, examining (fstat(2)) and closing the file
/// block until this value is dropped.
pub struct SilentFile {
    // Dropped first, since the file can be closed here only after its file system has ended.
    _system: Child,
    file: OwnedFd,
}

impl SilentFile {
    /// Mounts the file system in a child process, which plays the test `player`; that test must call
    /// [`SilentFile::play`].
    ///
    /// # Errors
    /// A sentence that gives the reason: this process is not root, or FUSE is not available.
    pub fn new(player: &str) -> Result<SilentFile, String> {
        // SAFETY: geteuid(2) has no preconditions.
        if unsafe { libc::geteuid() } != 0 {
            return Err("only root can mount a file system".into());
        }
        if let Err(error) = File::options().read(true).write(true).open("/dev/fuse") {
            return Err(format!("/dev/fuse: {error}"));
        }
        let (here, there) = bywash_link::socket_pair().unwrap();
        let system = Child::start(player, SILENT, vec![there]);
        let (said, mut files) = receive(&here);
        assert_eq!(said, b"silent", "{}", String::from_utf8_lossy(&said));
        Ok(SilentFile { _system: system, file: files.pop().unwrap() })
    }

    /// Serves the file system in the process that [`SilentFile::new`] has started; returns at once in every
    /// other process.
    pub fn play() {
        if role().as_deref() != Some(SILENT) {
            return;
        }
        let socket = inherited_sockets().pop().unwrap();
        match mount() {
            Ok(device) => serve_to(&socket, device),
            Err(error) => drop(crate::peers::send(&socket, error.to_string().as_bytes(), &[])),
        }
    }
}

impl AsFd for SilentFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Passes the open file to the parent process, and makes the file system silent.
fn serve_to(socket: &OwnedFd, device: File) {
    static IS_SILENT: AtomicBool = AtomicBool::new(false);
    thread::spawn(move || answer(device, &IS_SILENT));
    let file = File::options().read(true).write(true).open(FILE).unwrap();
    // This process closes its own copy while the file system still replies: otherwise it could not end.
    let passed = file.as_raw_fd();
    let sent = move || {
        assert!(crate::peers::send(socket, b"silent", &[passed]));
        drop(file);
        IS_SILENT.store(true, SeqCst);
    };
    sent();
    thread::sleep(std::time::Duration::from_secs(3600));
}

fn mount() -> io::Result<File> {
    let device = File::options().read(true).write(true).open("/dev/fuse")?;
    let options = format!("fd={},rootmode=40000,user_id=0,group_id=0,allow_other\0", device.as_raw_fd());
    let check = |answer| if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) };
    // SAFETY: the mount namespace concerns only this thread and those that it starts; all strings are live
    // and end in a zero byte.
    unsafe {
        check(libc::unshare(libc::CLONE_NEWNS))?;
        let private = libc::MS_PRIVATE | libc::MS_REC;
        check(libc::mount(ptr::null(), c"/".as_ptr(), ptr::null(), private, ptr::null()))?;
        let (source, data) = (c"silent".as_ptr(), options.as_ptr().cast());
        check(libc::mount(source, PLACE.as_ptr(), c"fuse".as_ptr(), libc::MS_NOSUID | libc::MS_NODEV, data))?;
    }
    Ok(device)
}

/// Replies to the kernel's requests (linux/fuse.h) until the file system becomes silent.
fn answer(mut device: File, is_silent: &AtomicBool) {
    let mut request = vec![0; 1 << 20];
    while let Ok(length) = device.read(&mut request) {
        let word = |at: usize| u32::from_ne_bytes(request[at..at + 4].try_into().unwrap());
        assert!(length >= 40);
        // FORGET and BATCH_FORGET have no reply.
        if is_silent.load(SeqCst) || [2, 42].contains(&word(4)) {
            continue;
        }
        let node = word(16);
        let (error, body) = match word(4) {
            // INIT: version 7.31, writes of 64 KiB.
            26 => (0, words(&[7, 31, 0, 0, 0, 65536, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0])),
            // LOOKUP: every name is the file.
            1 => (0, [words(&[2, 0, 1, 0, 3600, 0, 3600, 0, 0, 0]), attributes(2)].concat()),
            // GETATTR
            3 => (0, [words(&[3600, 0, 0, 0]), attributes(node)].concat()),
            // OPEN
            14 => (0, words(&[1, 0, 0, 0])),
            // FLUSH and RELEASE
            25 | 18 => (0, Vec::new()),
            _ => (-libc::ENOSYS, Vec::new()),
        };
        let head = [words(&[16 + body.len() as u32, error as u32]), request[8..16].to_vec()].concat();
        // The error is ignored: the kernel refuses a reply to a request that was interrupted meanwhile.
        let _ = device.write(&[head, body].concat());
    }
    mem::forget(device);
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// Encodes the attributes of node 1, the folder, or of node 2, the file, which has 1 MiB.
fn attributes(node: u32) -> Vec<u8> {
    let mode = if node == 1 { libc::S_IFDIR | 0o755 } else { libc::S_IFREG | 0o666 };
    let mut all = [0; 22];
    (all[0], all[2], all[15], all[16], all[20]) = (node, 1 << 20, mode, 1, 4096);
    words(&all)
}
