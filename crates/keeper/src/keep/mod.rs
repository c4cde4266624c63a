//! The keeper of a log: the process that has the log while programs commit to it.
//!
//! It recovers the log, makes the memory that the programs share, and waits: for programs that want room, for requests at its
//! socket ([`desk`]), and for the end of all programs. Everything that takes time is done here and not in the programs
//! ([`checkpoint`]).
//!
//! # End
//!
//! When no client is there and no program has had the memory for [`IDLE_LIMIT`], or at SIGTERM: the state says that the
//! log has ended, so that every sync is the kernel's; whoever is writing a batch finishes it; all files are made durable;
//! and the superblocks say that the log is empty, in a new period. Programs that are still there go on with the kernel.

mod checkpoint;
mod desk;
mod files;
mod rewrite;
mod volume;

use crate::error::Error;
use crate::log_file::{Access, LogFile, VolumeFile};
use crate::recover::{Recovery, recover};
use crate::{place, rights, runtime, sys};
use bywash_log::commit::Log;
use bywash_log::layout::Superblock;
use bywash_log::shared::{SHARED_BYTES, Shared, State};
use bywash_log::{in_use, sys as log_sys};
use checkpoint::Checkpointer;
use desk::{Desk, used_blocks};
use rustix::fs::MemfdFlags;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::{Duration, Instant};

/// Time without programs and clients after which the keeper ends.
pub const IDLE_LIMIT: Duration = Duration::from_secs(2);
/// Greatest time between two looks at everything, in nanoseconds: less than a second, as [`log_sys::wait`] demands.
const LOOK_NS: u32 = 999_999_999;
/// Time between two checkpoints of which the first one has failed.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// A keeper that runs.
struct Keeper {
    log_file: Arc<LogFile>,
    shared: Shared,
    epoch: u64,
    desk: Arc<Desk>,
    checkpointer: Checkpointer,
    /// Value of `room_wanted` at the last checkpoint.
    room_wanted: u32,
    /// Beginning of the time without programs and clients.
    idle_since: Option<Instant>,
    /// Time before which nothing is tried again.
    retry_at: Option<Instant>,
    is_told_to_end: Arc<AtomicBool>,
    /// The memory, which programs open by this process's descriptor.
    _memory: OwnedFd,
}

/// Keeps a log until no program uses it any more. Calls `ready` when programs can attach.
///
/// # Errors
/// [`Error::InUse`] if there is a keeper already; those of recovery; [`Error::Volatile`] unless `is_volatile_allowed`;
/// [`Error::Failed`] or [`Error::NotEmptied`] at the end.
pub fn keep(path: &Path, is_volatile_allowed: bool, ready: impl FnOnce()) -> Result<(), Error> {
    let log_file = LogFile::open(path, Access::Write)?;
    let mut superblock = log_file.superblock()?;
    rights::check_owner(&log_file, &superblock)?;
    place::check(&log_file, is_volatile_allowed)?;
    log_file.lock()?;
    // Another keeper may have written it until now.
    superblock = log_file.superblock()?;
    log_file.check_unused(superblock.epoch)?;
    let mut recovery =
        Recovery { is_dry_run: false, has_crashed: false, given_up: &[], before: &mut |_| true };
    recover(&log_file, &mut superblock, &mut recovery)?;
    let log_file = Arc::new(log_file);
    let mut keeper = Keeper::new(&log_file, superblock)?;
    let path = runtime::socket_to_listen(&log_file, superblock.owner)?;
    let socket = keeper.desk.open(&path)?;
    let relay = volume::serve(&log_file, keeper.shared, &path, |memory| keeper.desk.pass(memory))?;
    keeper.checkpointer.prepare()?;
    keeper.shared.set_state(State::Running);
    ready();
    let ended = keeper.run();
    drop((socket, relay));
    ended
}

impl Keeper {
    fn new(log_file: &Arc<LogFile>, superblock: Superblock) -> Result<Keeper, Error> {
        let path = log_file.path();
        let failed = || Error::io("make the memory of", path);
        let number = |number| failed()(io::Error::from_raw_os_error(number));
        let memory = rustix::fs::memfd_create(c"bywash-log", MemfdFlags::CLOEXEC)
            .map_err(|error| failed()(error.into()))?;
        rustix::fs::ftruncate(&memory, SHARED_BYTES as u64).map_err(|error| failed()(error.into()))?;
        let name = sys::c_path(log_file.locks().1).map_err(failed())?;
        let shared =
            Shared::prepare(memory.as_raw_fd(), &superblock, log_file.identity()?, &name).map_err(number)?;
        if log_file.volume().is_some() {
            shared.set_name(&sys::c_path(path).map_err(failed())?).map_err(number)?;
        }
        shared.header().keeper.store(std::process::id(), Relaxed);
        let is_told_to_end = Arc::new(AtomicBool::new(false));
        for signal in [SIGTERM, SIGINT] {
            signal_hook::flag::register(signal, Arc::clone(&is_told_to_end)).map_err(failed())?;
        }
        let memory_path = format!("/proc/{}/fd/{}", std::process::id(), memory.as_raw_fd());
        let log = Log::new(shared).map_err(number)?;
        Ok(Keeper {
            log_file: Arc::clone(log_file),
            shared,
            epoch: superblock.epoch,
            desk: Arc::new(Desk::new(shared, Arc::clone(log_file), memory_path)),
            checkpointer: Checkpointer::new(log, Arc::clone(log_file), superblock),
            room_wanted: 0,
            idle_since: None,
            retry_at: None,
            is_told_to_end,
            _memory: memory,
        })
    }

    /// Works until the end.
    fn run(&mut self) -> Result<(), Error> {
        let word = &self.shared.header().room_wanted;
        loop {
            let seen = word.load(SeqCst);
            if !self.shared.is_running() {
                return Err(self.abandon());
            }
            if self.is_told_to_end.load(SeqCst) || self.is_idle()? {
                return self.end();
            }
            if let Err(error) = self.check_volume().and_then(|()| self.look(seen)) {
                sys::log(&error.to_string());
                self.checkpointer.fail(&error);
                continue;
            }
            log_sys::wait(word, seen, LOOK_NS);
        }
    }

    /// Checks that the server of a log on a volume lives.
    fn check_volume(&self) -> Result<(), Error> {
        let checked = self.log_file.volume().map_or(Ok(()), VolumeFile::check);
        checked.map_err(Error::io("reach the server of", self.log_file.path()))
    }

    /// Makes a checkpoint if there is a reason.
    fn look(&mut self, room_wanted: u32) -> Result<(), Error> {
        let round = self.desk.requested_round();
        let may_retry = self.retry_at.is_none_or(|at| at <= Instant::now());
        let half = self.shared.geometry().map_or(u64::MAX, |geometry| geometry.area_blocks() / 2);
        let has_reason = room_wanted != self.room_wanted
            || used_blocks(&self.shared) > half
            || self.checkpointer.failed() > 0;
        if round.is_none() && !(has_reason && may_retry) {
            return self.checkpointer.free_numbers();
        }
        self.room_wanted = room_wanted;
        let failed = self.checkpointer.checkpoint()?;
        self.retry_at = (failed > 0).then(|| Instant::now() + RETRY_INTERVAL);
        self.desk.failed.store(failed, Relaxed);
        if let Some(round) = round {
            self.desk.made(round, failed);
        }
        self.checkpointer.free_numbers()
    }

    /// Returns true if the keeper may end: then no program can open the memory any more.
    fn is_idle(&mut self) -> Result<bool, Error> {
        let fd = self.log_file.locks().0.as_raw_fd();
        let failed = || Error::number("lock", self.log_file.path());
        if self.desk.has_clients() || in_use::is_used(fd, self.epoch).map_err(failed())? {
            self.idle_since = None;
            return Ok(false);
        }
        let since = *self.idle_since.get_or_insert_with(Instant::now);
        // The lock is taken at the end only: a program that opens the memory meanwhile would be refused.
        Ok(since.elapsed() >= IDLE_LIMIT && in_use::lock(fd, self.epoch).map_err(failed())?)
    }

    /// Ends in order.
    fn end(&mut self) -> Result<(), Error> {
        self.desk.close();
        self.shared.set_state(State::Ended);
        self.checkpointer.drain();
        let failed = match self.checkpointer.finish() {
            Ok(failed) => failed,
            Err(error) => {
                self.checkpointer.fail(&error);
                return Err(self.abandon());
            }
        };
        if let Some(round) = self.desk.requested_round() {
            self.desk.made(round, failed);
        }
        if failed == 0 {
            return Ok(());
        }
        Err(Error::NotEmptied { path: self.log_file.path().to_owned(), files: failed })
    }

    /// Ends because the log file has failed.
    fn abandon(&mut self) -> Error {
        self.desk.close();
        self.checkpointer.drain();
        let left = self.checkpointer.abandon();
        let path = self.log_file.path().to_owned();
        if left > 0 {
            return Error::NotEmptied { path, files: left };
        }
        let number = self.shared.header().failure.load(Relaxed) as i32;
        Error::Failed { path, source: io::Error::from_raw_os_error(number) }
    }
}
