//! `file:` and `block:`: a device of a file or a block device, by io_uring or by threads.
//!
//! ```text
//!            submit                                         poll
//!              │                                              ▲
//!              ▼         free to go                           │
//!   slot ──► order ─────────────────► next job ──► engine ──► completed ──► finished
//!              ▲                          ▲                   │  │
//!              └── frees those that wait ─┼───────────────────┘  │
//!                                         └── more to be done ◄──┘
//! ```
//!
//! A command has a slot until it is done. It waits for those that it overlaps ([`order`]), is carried out as one request
//! to the kernel or several, one at a time ([`slot`]), by an [`engine`]; memory that the medium does not take goes by way
//! of [`bounce`] pieces. Nothing is allocated on the way: every list has room for as many commands as the device is deep.

mod bounce;
mod engine;
mod holder;
mod job;
mod medium;
mod order;
mod passed;
mod pool;
mod ring;
mod slot;

use crate::command::{Command, Done, Failure, Full};
use crate::device::{Device, Geometry};
use crate::error::Error;
use crate::region::{Pinned, RegionId};
use bounce::Bounce;
use engine::Engine;
use medium::Medium;
use order::Order;
use slot::{Next, Slot};
use std::collections::VecDeque;
use std::fmt;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use holder::Holder;

/// Most commands that can be under way, of any device.
pub(crate) const DEPTH_MAX: usize = 4096;
/// Most threads of a device.
pub(crate) const THREADS_MAX: usize = 64;

/// What there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A block device.
    Block,
}

/// Who carries commands out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Using {
    /// io_uring.
    Ring,
    /// Threads.
    Threads,
}

/// Which file or block device, and how it is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileOptions {
    /// What there is.
    pub kind: Kind,
    /// Its name.
    pub path: PathBuf,
    /// Bytes that the file is to have: it is made, or made larger. None: those that it has.
    pub bytes: Option<u64>,
    /// Room in the file is taken when it is written to.
    pub sparse: bool,
    /// Nothing is written.
    pub read_only: bool,
    /// Through the page cache, even where there is a way past it.
    pub cached: bool,
    /// Most commands under way.
    pub depth: usize,
    /// By whom. None: io_uring where it is to be had, else threads.
    pub using: Option<Using>,
    /// How many threads, where they do it.
    pub threads: usize,
}

impl FileOptions {
    /// All as usual: 128 commands under way, past the page cache if possible, by io_uring or else four threads.
    pub fn new(kind: Kind, path: &Path) -> FileOptions {
        FileOptions {
            kind,
            path: path.to_owned(),
            bytes: None,
            sparse: false,
            read_only: false,
            cached: false,
            depth: 128,
            using: None,
            threads: 4,
        }
    }

    fn name(&self) -> String {
        self.path.display().to_string()
    }

    fn manner(&self) -> Manner<'static> {
        let FileOptions { depth, using, threads, .. } = *self;
        Manner { depth, using, threads, pieces: PIECES, piece_bytes: PIECE, holder: None }
    }
}

/// How a file is worked with, whichever it is.
struct Manner<'a> {
    depth: usize,
    using: Option<Using>,
    threads: usize,
    /// Of bounce memory.
    pieces: usize,
    piece_bytes: usize,
    /// By whose rights it is written; none: the process's own.
    holder: Option<&'a Holder>,
}

/// Bounce pieces of a device of the server's.
const PIECES: usize = 32;
/// Their bytes.
const PIECE: usize = 64 << 10;

/// How a file is used that somebody passed on. Many can be had at once, so that each takes little.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PassedOptions {
    /// Through the page cache, even where there is a way past it.
    pub cached: bool,
    /// Also if its file system is a program (FUSE), which decides alone how long everything takes, dropping the device
    /// too.
    pub user_level: bool,
    /// Most commands under way.
    pub depth: usize,
    /// Pieces of 16 KiB, for commands whose memory the file does not take: so many can be under way.
    pub pieces: usize,
    /// By whom. None: io_uring where it is to be had, else threads.
    pub using: Option<Using>,
    /// How many threads, where they do it.
    pub threads: usize,
    /// By whose rights the file is written, where the process may act for other users. None: by the process's own, which
    /// may reach further than those of who passed the file.
    pub holder: Option<Holder>,
}

impl Default for PassedOptions {
    /// 32 commands under way, four pieces, past the page cache if possible, by io_uring or else one thread, by the rights
    /// of this process.
    fn default() -> PassedOptions {
        PassedOptions {
            cached: false,
            user_level: false,
            depth: 32,
            pieces: 4,
            using: None,
            threads: 1,
            holder: None,
        }
    }
}

/// A device of a file or a block device. Nobody else can open one that was opened by its name meanwhile.
pub struct File {
    /// In front of the file that it uses.
    engine: Engine,
    // All that the kernel may use while a command is under way; see `drop`.
    medium: ManuallyDrop<Medium>,
    slots: ManuallyDrop<Box<[Slot]>>,
    bounce: ManuallyDrop<Bounce>,
    free: Vec<u16>,
    order: Order,
    /// Slots whose next job is to be begun.
    runnable: Vec<u16>,
    finished: VecDeque<Done>,
}

impl File {
    /// Opens the file or device.
    ///
    /// # Errors
    /// What the kernel says, or why this is no device.
    pub fn open(options: &FileOptions) -> Result<File, Error> {
        File::over(&options.name(), &options.manner(), || Medium::open(options))
    }

    fn over(
        name: &str,
        manner: &Manner<'_>,
        open: impl FnOnce() -> Result<Medium, Error>,
    ) -> Result<File, Error> {
        let Manner { depth, threads, pieces, piece_bytes, .. } = *manner;
        for (what, value, most) in
            [("depth", depth, DEPTH_MAX), ("threads", threads, THREADS_MAX), ("pieces", pieces, DEPTH_MAX)]
        {
            if !(1..=most).contains(&value) {
                let reason = format!("its {what} would be {value}, and has to be from 1 to {most}");
                return Err(Error::Unfit { what: name.to_owned(), reason });
            }
        }
        let medium = open()?;
        let bounce = Bounce::new(pieces, piece_bytes, depth, medium.geometry.block as usize);
        let engine = Engine::new(name, manner, medium.file.as_raw_fd(), medium.is_block, bounce.all())?;
        Ok(File {
            engine,
            medium: ManuallyDrop::new(medium),
            slots: ManuallyDrop::new((0..depth).map(|_| Slot::empty()).collect()),
            bounce: ManuallyDrop::new(bounce),
            free: (0..depth as u16).rev().collect(),
            order: Order::new(depth),
            runnable: Vec::with_capacity(depth),
            finished: VecDeque::with_capacity(depth),
        })
    }

    /// A file or block device that somebody else has opened and passed on, with the right that he has: he may read it,
    /// or write it, or both, as he opened it ([`Geometry::access`]).
    ///
    /// What he passed is used for nothing but to open the same file once more, for the same, since whoever has a part in
    /// an open file description can change how it works at any time (`O_APPEND`, `O_DIRECT`). This opens it as the user
    /// of this process, who must be allowed to. The file stays his: it is not locked, and others may use it meanwhile,
    /// best not through mappings (a write past the page cache reaches them late, or never).
    ///
    /// The size is what it is now, in whole blocks. If the file becomes shorter, reading what is not there any more
    /// fails with `EIO`, and writing there makes it longer again, as any write does. Nothing else fails.
    ///
    /// What is only a name for something in the kernel (in /proc, /sys and their like) is refused: there it would matter
    /// who opens it. So are programs of another user (setuid) that would be written, whose rights would outlast that.
    ///
    /// File systems ask whoever writes, and not the descriptor, whether blocks of their reserve may be taken, quotas
    /// passed, and the rights of such programs stay on them. With [`PassedOptions::holder`] every request to the kernel is
    /// made with that user's identity and without capabilities, if this process may act for other users; and with its own
    /// user but without capabilities, if it may not. A thread of the process's then has another user for files, for which
    /// the kernel writes no core dump of the process any more (`PR_SET_DUMPABLE` in prctl(2)).
    ///
    /// It may wait for the file's file system, as may commands, which is some program's with
    /// [`PassedOptions::user_level`].
    ///
    /// # Errors
    /// Why this can be no device, or what the kernel says.
    pub fn passed(descriptor: OwnedFd, options: &PassedOptions) -> Result<File, Error> {
        let PassedOptions { depth, using, threads, pieces, .. } = *options;
        let (piece_bytes, holder) = (passed::PIECE, options.holder.as_ref());
        let manner = Manner { depth, using, threads, pieces, piece_bytes, holder };
        File::over(passed::NAME, &manner, || passed::open(descriptor, options))
    }

    /// Begins the next jobs of all that are runnable, and of those that become so.
    fn run(&mut self) {
        while let Some(number) = self.runnable.pop() {
            let File { engine, medium, slots, bounce, .. } = self;
            let slot = &mut slots[usize::from(number)];
            match slot.next(number, medium, bounce, |region, span| engine.buffer_of(region, span)) {
                Next::Job(job) => engine.start(number, job),
                Next::Wait => {}
                Next::Done(result) => self.finish(number, result),
            }
        }
    }

    fn completed(&mut self, number: u16, result: i32) {
        let File { medium, slots, bounce, .. } = self;
        match slots[usize::from(number)].completed(result, medium, bounce) {
            Ok(()) => self.runnable.push(number),
            Err(failure) => self.finish(number, Err(failure)),
        }
    }

    fn finish(&mut self, number: u16, result: Result<(), Failure>) {
        let slot = &mut self.slots[usize::from(number)];
        self.finished.push_back(Done { token: slot.token, owner: slot.owner.take(), result });
        if let Some(waiting) = slot.release().and_then(|piece| self.bounce.give(piece)) {
            self.runnable.push(waiting);
        }
        let runnable = &mut self.runnable;
        self.order.leave(number, |freed| runnable.push(freed));
        self.free.push(number);
    }

    fn give_out(&mut self, done: &mut dyn FnMut(Done)) -> usize {
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

    fn submit<'a>(&mut self, command: Command<'a>) -> Result<(), Full<'a>> {
        if self.under_way() >= self.slots.len() {
            return Err(Full(command));
        }
        let bytes = match command.check(&self.medium.geometry) {
            Ok(bytes) => bytes,
            Err(failure) => {
                self.finished.push_back(command.done(Err(failure)));
                return Ok(());
            }
        };
        // There are as many slots as commands may be under way.
        let Some(number) = self.free.pop() else { return Err(Full(command)) };
        let (range, changes) = (command.offset..command.offset + bytes, command.operation.changes());
        self.slots[usize::from(number)].fill(command, bytes, &self.medium);
        if bytes == 0 || self.order.enter(number, range, changes) {
            self.runnable.push(number);
            self.run();
        }
        Ok(())
    }

    fn poll(&mut self, done: &mut dyn FnMut(Done)) -> usize {
        let mut count = self.give_out(done);
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
        !self.finished.is_empty() || self.engine.arm()
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.engine.descriptor()
    }

    fn depth(&self) -> usize {
        self.slots.len()
    }

    #[inline]
    fn under_way(&self) -> usize {
        self.slots.len() - self.free.len() + self.finished.len()
    }

    fn registers(&self) -> bool {
        // Through the page cache everything is copied anyway.
        self.medium.direct.is_ok() && self.engine.registers()
    }

    fn register(&mut self, memory: &Arc<Pinned>) -> Result<Option<RegionId>, Error> {
        if self.registers() { self.engine.register(memory) } else { Ok(None) }
    }

    fn unregister(&mut self, region: RegionId) {
        self.engine.unregister(region);
    }

    fn explain(&self) -> String {
        let way = match &self.medium.direct {
            Ok(_) => "past the page cache".to_owned(),
            Err(reason) => format!("through the page cache ({reason})"),
        };
        let Geometry { bytes, block, .. } = self.medium.geometry;
        format!("{bytes} bytes in blocks of {block}, {way}, {}", self.engine.explain())
    }
}

impl Drop for File {
    /// The kernel must not use memory that is gone: what is under way is called back, and waited for.
    fn drop(&mut self) {
        if !self.engine.end() {
            // It cannot be waited for: better never free than free too early. The owners are in the slots.
            return;
        }
        // SAFETY: nobody uses them any more, and none is used again.
        unsafe {
            ManuallyDrop::drop(&mut self.slots);
            ManuallyDrop::drop(&mut self.bounce);
            ManuallyDrop::drop(&mut self.medium);
        }
    }
}

impl fmt::Debug for File {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "a device of {}, {} commands under way", self.explain(), self.under_way())
    }
}
