//! `file:` and `block:`: a device of a file or a block device, using io_uring or threads.
//!
//! ```text
//!            submit                                         reap
//!              │                                              ▲
//!              ▼         free to go                           │
//!   slot ──► order ─────────────────► next job ──► engine ──► completed ──► finished
//!              ▲                          ▲                   │  │
//!              └── frees those that wait ─┼───────────────────┘  │
//!                                         └── more to be done ◄──┘
//! ```
//!
//! A command holds a slot until it completes. It waits for earlier commands that it overlaps ([`Order`]). An
//! [`engine`] carries it out as one or several requests to the kernel, one at a time ([`slot`]). Memory that
//! the medium does not accept is copied through [`bounce`] pieces. Commands allocate nothing: every list has
//! room for as many commands as the device's depth.
//!
//! Further queues have an engine, slots and an order of their own, over the same open file. A command that is free to go
//! then also claims its range ([`Claims`]); if a command of another queue has it, the device tries again at each reap.

mod bounce;
mod engine;
mod holder;
mod job;
mod medium;
mod passed;
mod pool;
mod ring;
mod slot;

use crate::claims::{ClaimAttempt, Claims};
use crate::command::{Command, CommandError, Completion, QueueFull};
use crate::device::{Device, Geometry};
use crate::error::Error;
use crate::order::Order;
use crate::region::{PinnedRegion, Pinner, RegionId, RingPinner};
use bounce::BounceBuffers;
use engine::Engine;
use medium::Medium;
use slot::{Next, Slot};
use std::collections::VecDeque;
use std::fmt;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use holder::FileUser;

/// Greatest depth of a device.
pub(crate) const DEPTH_MAX: usize = 4096;
/// Greatest number of threads of a device.
pub(crate) const THREADS_MAX: usize = 64;

/// Kind of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FileKind {
    /// A regular file.
    File,
    /// A block device.
    Block,
}

/// Engine that carries commands out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EngineKind {
    /// io_uring; a block device also gets one thread, for requests that io_uring does not have.
    Ring,
    /// Threads that make blocking system calls.
    Threads,
}

/// Path of a file or block device, and how it is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileOptions {
    /// Kind of the file at `path`.
    pub kind: FileKind,
    /// Path of the file or block device.
    pub path: PathBuf,
    /// Size of a regular file, in bytes: a missing file is created, a shorter one extended. `None` uses the
    /// size that it has.
    pub bytes: Option<u64>,
    /// If true, blocks of a regular file are allocated when they are first written; otherwise when the device
    /// is opened.
    pub sparse: bool,
    /// If true, the device may only be read.
    pub read_only: bool,
    /// If true, the page cache is used even if the file supports O_DIRECT.
    pub cached: bool,
    /// Greatest number of commands in flight, 1 to 4096.
    pub depth: usize,
    /// Engine that carries commands out; `None` chooses io_uring if it is available, otherwise threads.
    pub engine: Option<EngineKind>,
    /// Number of threads if the engine is threads, 1 to 64.
    pub threads: usize,
}

impl FileOptions {
    /// Default options: depth 128, O_DIRECT if possible, and io_uring or else four threads.
    pub fn new(kind: FileKind, path: &Path) -> FileOptions {
        FileOptions {
            kind,
            path: path.to_owned(),
            bytes: None,
            sparse: false,
            read_only: false,
            cached: false,
            depth: 128,
            engine: None,
            threads: 4,
        }
    }

    fn name(&self) -> String {
        self.path.display().to_string()
    }

    fn manner(&self) -> CommonOptions<'static> {
        let FileOptions { depth, engine: using, threads, .. } = *self;
        CommonOptions {
            depth,
            engine: using,
            threads,
            bounce_buffers: PIECES,
            piece_bytes: PIECE,
            holder: None,
        }
    }
}

/// Options that opened and passed files have in common.
#[derive(Clone, Copy)]
struct CommonOptions<'a> {
    depth: usize,
    engine: Option<EngineKind>,
    threads: usize,
    /// Number of bounce pieces.
    bounce_buffers: usize,
    piece_bytes: usize,
    /// User whose rights count for file accesses; `None` for the process's own.
    holder: Option<&'a FileUser>,
}

/// Number of bounce pieces of a device that the server opened by its path.
const PIECES: usize = 32;
/// Size of a bounce piece of a device that the server opened by its path, in bytes.
const PIECE: usize = 64 << 10;

/// Options for a passed file. A server can have many passed files at once, so the defaults use little memory
/// for each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PassedOptions {
    /// If true, the page cache is used even if the file supports O_DIRECT.
    pub cached: bool,
    /// If true, files on a FUSE file system are accepted. The program behind it decides how long every
    /// operation takes, including dropping the device.
    pub allow_fuse: bool,
    /// Greatest number of commands in flight, 1 to 4096.
    pub depth: usize,
    /// Number of bounce pieces of 16 KiB: as many commands whose memory the file does not accept can be in
    /// flight at once.
    pub bounce_buffers: usize,
    /// Engine that carries commands out; `None` chooses io_uring if it is available, otherwise threads.
    pub engine: Option<EngineKind>,
    /// Number of threads if the engine is threads, 1 to 64.
    pub threads: usize,
    /// User whose rights count when the file is written, if the process may change its threads' users. `None`
    /// for the process's own rights, which may be greater than those of the peer that passed the file.
    pub holder: Option<FileUser>,
}

impl Default for PassedOptions {
    /// Default options: depth 32, four bounce pieces, O_DIRECT if possible, io_uring or else one thread, the
    /// process's own rights.
    fn default() -> PassedOptions {
        PassedOptions {
            cached: false,
            allow_fuse: false,
            depth: 32,
            bounce_buffers: 4,
            engine: None,
            threads: 1,
            holder: None,
        }
    }
}

/// Device of a file or a block device. A device opened by path is locked against use by others.
pub struct File {
    /// Carries out requests on the file of `medium`; `drop` stops the engine before it frees the fields
    /// below.
    engine: Engine,
    // The kernel may use these while a command is in flight; `drop` frees them when none is.
    medium: ManuallyDrop<Medium>,
    slots: ManuallyDrop<Box<[Slot]>>,
    bounce: ManuallyDrop<BounceBuffers>,
    free: Vec<u16>,
    order: Order,
    /// Slots whose next request is to be started.
    runnable: Vec<u16>,
    /// Slots whose range a command of another queue has claimed; they are tried again.
    blocked: Vec<u16>,
    finished: VecDeque<Completion>,
    /// Ranges that commands of all queues are using; `None` if there is one queue.
    claims: Option<Arc<Claims>>,
    /// Greatest number of commands in flight; fewer than slots if there are several queues.
    depth: usize,
    /// Name of the file and options for making further queues; `None` for a passed file, which has one queue.
    origin: Option<(String, CommonOptions<'static>)>,
}

impl File {
    /// Opens a file or block device by its path.
    ///
    /// # Errors
    /// [`Error::Unfit`] if an option is out of range, the path does not lead to the right kind of file, its
    /// size does not fit, another user has locked it, or the engine that was asked for is not available;
    /// [`Error::Io`] if a system call fails.
    pub fn open(options: &FileOptions) -> Result<File, Error> {
        let (name, manner) = (options.name(), options.manner());
        let mut file = File::over(&name, &manner, || Medium::open(options))?;
        file.origin = Some((name, manner));
        Ok(file)
    }

    fn over(
        name: &str,
        manner: &CommonOptions<'_>,
        open: impl FnOnce() -> Result<Medium, Error>,
    ) -> Result<File, Error> {
        let CommonOptions { depth, threads, bounce_buffers: pieces, piece_bytes, .. } = *manner;
        for (what, value, most) in
            [("depth", depth, DEPTH_MAX), ("threads", threads, THREADS_MAX), ("pieces", pieces, DEPTH_MAX)]
        {
            if !(1..=most).contains(&value) {
                let reason = format!("its {what} would be {value}, and has to be from 1 to {most}");
                return Err(Error::Unfit { what: name.to_owned(), reason });
            }
        }
        let medium = open()?;
        let bounce = BounceBuffers::new(pieces, piece_bytes, depth, medium.geometry.block as usize);
        let engine = Engine::new(name, manner, medium.file.as_raw_fd(), medium.is_block, bounce.all())?;
        Ok(File {
            engine,
            medium: ManuallyDrop::new(medium),
            slots: ManuallyDrop::new((0..depth).map(|_| Slot::empty()).collect()),
            bounce: ManuallyDrop::new(bounce),
            free: (0..depth as u16).rev().collect(),
            order: Order::new(depth),
            runnable: Vec::with_capacity(depth),
            blocked: Vec::with_capacity(depth),
            finished: VecDeque::with_capacity(depth),
            claims: None,
            depth,
            origin: None,
        })
    }

    /// Makes a device of a file or block device that another process opened and passed on, with the rights of
    /// its descriptor: the device can be read, written or both, as the file was opened
    /// ([`Geometry::access`]).
    ///
    /// The descriptor is only used to open the same file again with the same access mode, because everybody
    /// who shares an open file description can change its flags at any time (`O_APPEND`, `O_DIRECT`). The
    /// file is opened as the user of this process, who needs the permission. It is not locked; others may use
    /// it at the same time, but should not map it (a write past the page cache becomes visible in mappings
    /// late, or never).
    ///
    /// The size is the file's size at the time of the call, in whole blocks. If the file is truncated
    /// afterwards, reads beyond its end fail with `EIO`, and writes there extend it again, as any write does.
    /// Nothing else fails.
    ///
    /// Files that only give access to kernel state (in /proc, /sys and the like) are refused, since what they
    /// allow depends on the user who opens them. Setuid and setgid programs are refused for writing, since
    /// the bits would stay on a changed program.
    ///
    /// File systems check the writing thread, and not the descriptor, when a write uses their reserved
    /// blocks, exceeds a quota or keeps a setuid bit. With [`PassedOptions::holder`] every request to the
    /// kernel is made without capabilities, and with that user's identity if this process may change users,
    /// otherwise with its own. In the former case a thread of the process changes its file system user, after
    /// which the kernel writes no core dumps of the process any more (`PR_SET_DUMPABLE` in prctl(2)).
    ///
    /// The call and commands may block on the file system. With [`PassedOptions::allow_fuse`] that can be
    /// another user's program.
    ///
    /// # Errors
    /// [`Error::Unfit`] if an option is out of range, the file is refused as described above, is too small,
    /// has a lease, or may not be opened by this process, or if the engine that was asked for is not
    /// available; [`Error::Io`] if a system call fails.
    pub fn passed(descriptor: OwnedFd, options: &PassedOptions) -> Result<File, Error> {
        let PassedOptions { depth, engine: using, threads, bounce_buffers: pieces, .. } = *options;
        let (piece_bytes, holder) = (passed::PIECE, options.holder.as_ref());
        let manner =
            CommonOptions { depth, engine: using, threads, bounce_buffers: pieces, piece_bytes, holder };
        File::over(passed::NAME, &manner, || passed::open(descriptor, options))
    }

    /// Starts the next request of every runnable slot, including those that become runnable meanwhile.
    fn run(&mut self) {
        while let Some(number) = self.runnable.pop() {
            if self.claims.is_some() && !self.claim(number, ClaimAttempt::First) {
                self.blocked.push(number);
                continue;
            }
            let File { engine, medium, slots, bounce, .. } = self;
            let slot = &mut slots[usize::from(number)];
            match slot.next(number, medium, bounce, |region, segment| engine.buffer_of(region, segment)) {
                Next::Job(job) => engine.start(number, job),
                Next::Wait => {}
                Next::Done(result) => self.finish(number, result),
            }
        }
    }

    /// Claims the range of a slot's command, unless it has the claim already. Returns false if a command of another queue
    /// has it.
    fn claim(&mut self, number: u16, attempt: ClaimAttempt) -> bool {
        let (slot, Some(claims)) = (&mut self.slots[usize::from(number)], &self.claims) else { return true };
        let (range, changes) = slot.claimed();
        slot.has_claim = slot.has_claim || claims.try_claim(&range, changes, attempt);
        slot.has_claim
    }

    /// Starts those commands that waited for a command of another queue and need not any more.
    #[cold]
    fn run_blocked(&mut self) {
        let mut at = 0;
        while let Some(&number) = self.blocked.get(at) {
            if self.claim(number, ClaimAttempt::Again) {
                self.blocked.swap_remove(at);
                self.runnable.push(number);
            } else {
                at += 1;
            }
        }
        self.run();
    }

    fn completed(&mut self, number: u16, result: i32) {
        let File { medium, slots, bounce, .. } = self;
        match slots[usize::from(number)].completed(result, medium, bounce) {
            Ok(()) => self.runnable.push(number),
            Err(failure) => self.finish(number, Err(failure)),
        }
    }

    fn finish(&mut self, number: u16, result: Result<(), CommandError>) {
        let slot = &mut self.slots[usize::from(number)];
        self.finished.push_back(Completion { token: slot.token, owner: slot.owner.take(), result });
        if let Some(claims) = &self.claims
            && std::mem::take(&mut slot.has_claim)
        {
            let (range, changes) = slot.claimed();
            claims.release(&range, changes);
        }
        if let Some(waiting) = slot.release().and_then(|piece| self.bounce.numbers.give(piece)) {
            self.runnable.push(waiting);
        }
        let runnable = &mut self.runnable;
        self.order.leave(number, |freed| runnable.push(freed));
        self.free.push(number);
    }

    fn give_out(&mut self, done: &mut dyn FnMut(Completion)) -> usize {
        let mut count = 0;
        while let Some(next) = self.finished.pop_front() {
            done(next);
            count += 1;
        }
        count
    }
}

impl Device for File {
    #[inline]
    fn geometry(&self) -> Geometry {
        self.medium.geometry
    }

    fn submit<'a>(&mut self, command: Command<'a>) -> Result<(), QueueFull<'a>> {
        if self.in_flight() >= self.depth {
            return Err(QueueFull(command));
        }
        let bytes = match command.check(&self.medium.geometry) {
            Ok(bytes) => bytes,
            Err(failure) => {
                self.finished.push_back(command.done(Err(failure)));
                return Ok(());
            }
        };
        // Not reached: there are as many slots as the depth, and fewer commands are in flight.
        let Some(number) = self.free.pop() else { return Err(QueueFull(command)) };
        let (range, changes) = (command.offset..command.offset + bytes, command.operation.is_write());
        self.slots[usize::from(number)].fill(command, bytes, &self.medium);
        if bytes == 0 || self.order.enter(number, range, changes) {
            self.runnable.push(number);
            self.run();
        }
        Ok(())
    }

    fn reap(&mut self, done: &mut dyn FnMut(Completion)) -> usize {
        let mut count = self.give_out(done);
        if !self.blocked.is_empty() {
            self.run_blocked();
        }
        self.engine.kick();
        while let Some((number, result)) = self.engine.next() {
            self.completed(number, result);
            self.run();
        }
        self.engine.kick();
        count += self.give_out(done);
        count
    }

    fn arm(&mut self) -> bool {
        // Only polling finds out when a command of another queue has released a range.
        !self.finished.is_empty() || !self.blocked.is_empty() || self.engine.arm()
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.engine.descriptor()
    }

    fn depth(&self) -> usize {
        self.depth
    }

    #[inline]
    fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len() + self.finished.len()
    }

    fn pinner(&self) -> Option<Arc<dyn Pinner>> {
        // Through the page cache the kernel copies all data anyway, so registered memory gains nothing.
        (self.medium.direct.is_ok() && self.engine.registers()).then(RingPinner::shared)
    }

    fn register(&mut self, memory: &Arc<PinnedRegion>) -> Result<Option<RegionId>, Error> {
        if self.pinner().is_some() { self.engine.register(memory) } else { Ok(None) }
    }

    fn unregister(&mut self, region: RegionId) {
        self.engine.unregister(region);
    }

    fn more_queues(&mut self, count: usize) -> Result<Vec<Box<dyn Device>>, Error> {
        let Some((name, manner)) = self.origin.clone() else { return Ok(Vec::new()) };
        let depth = (self.depth / (count + 1)).max(1);
        let claims = self.claims.get_or_insert_with(|| Arc::new(Claims::new())).clone();
        let mut more: Vec<Box<dyn Device>> = Vec::with_capacity(count);
        for _ in 0..count {
            let manner = CommonOptions { depth, ..manner };
            let mut file = File::over(&name, &manner, || self.medium.duplicate(&name))?;
            file.claims = Some(claims.clone());
            more.push(Box::new(file));
        }
        self.depth = depth;
        Ok(more)
    }

    fn description(&self) -> String {
        let way = match &self.medium.direct {
            Ok(_) => "past the page cache".to_owned(),
            Err(reason) => format!("through the page cache ({reason})"),
        };
        let Geometry { bytes, block, .. } = self.medium.geometry;
        format!("{bytes} bytes in blocks of {block}, {way}, {}", self.engine.explain())
    }
}

impl Drop for File {
    /// Cancels the requests in flight and waits for them, since the kernel must not access freed memory.
    fn drop(&mut self) {
        if !self.engine.end() {
            // The kernel may still use the memory. Leaking it is better than freeing it too early; slots hold
            // the owners. The ranges stay claimed.
            return;
        }
        if let Some(claims) = &self.claims {
            for slot in self.slots.iter().filter(|slot| slot.has_claim) {
                let (range, changes) = slot.claimed();
                claims.release(&range, changes);
            }
        }
        // SAFETY: the engine has ended, so neither kernel nor threads use these fields; each is dropped once,
        // here.
        unsafe {
            ManuallyDrop::drop(&mut self.slots);
            ManuallyDrop::drop(&mut self.bounce);
            ManuallyDrop::drop(&mut self.medium);
        }
    }
}

impl fmt::Debug for File {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "a device of {}, {} commands in flight", self.description(), self.in_flight())
    }
}
