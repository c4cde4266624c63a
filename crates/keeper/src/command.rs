//! Commands for logs: each opens the log, locks it if no keeper has it, and takes no more rights than the owner's.

use crate::client::Client;
use crate::contents::Contents;
use crate::error::Error;
use crate::log_file::{Access, LogFile};
use crate::recover::{Recovery, recover};
use crate::report::{LiveFile, LogState, Recovered, Status};
use crate::rights;
use bywash_log::layout::{BLOCK, Superblock};
use std::path::Path;

/// Recovers the log at a path, with the rights of its owner: a process of root's has no others afterwards.
///
/// # Errors
/// [`Error::InUse`] or [`Error::Orphaned`] while programs use the log; those of [`recover`] and of the log's rights.
pub fn recover_at(path: &Path, recovery: &mut Recovery<'_>) -> Result<Recovered, Error> {
    let access = if recovery.is_dry_run { Access::Read } else { Access::Write };
    let log_file = LogFile::open(path, access)?;
    log_file.lock()?;
    let mut superblock = log_file.superblock()?;
    log_file.check_unused(superblock.epoch)?;
    rights::become_owner(&log_file, &superblock)?;
    recover(&log_file, &mut superblock, recovery)
}

/// Makes all files durable that have records in the log: by its keeper, or by a recovery if none runs.
///
/// # Errors
/// Those of [`Client::checkpoint`] and [`recover_at`].
pub fn checkpoint_at(path: &Path) -> Result<(), Error> {
    if let Some(client) = Client::connect(path)? {
        return client.checkpoint();
    }
    let mut recovery =
        Recovery { is_dry_run: false, has_crashed: false, given_up: &[], before: &mut |_| true };
    recover_at(path, &mut recovery).map(drop)
}

/// Returns the state of the log at a path.
///
/// # Errors
/// Those of [`LogFile::open`], [`LogFile::superblock`] and [`Contents::read`]; [`Error::InUse`] if a command has the log.
pub fn status_at(path: &Path) -> Result<Status, Error> {
    let log_file = LogFile::open(path, Access::Read)?;
    let superblock = log_file.superblock()?;
    let owner = rights::owner(&log_file, &superblock)?;
    let mut status = described(&log_file, &superblock);
    if let Some(client) = Client::connect_to(&log_file, owner)? {
        let keeper = client.status()?;
        status.state = LogState::InUse;
        status.files.clone_from(&keeper.files);
        status.keeper = Some(keeper);
        return Ok(status);
    }
    log_file.lock()?;
    let superblock = log_file.superblock()?;
    let contents = Contents::read(&log_file, &superblock)?;
    for (number, live) in &contents.live {
        let path = String::from_utf8_lossy(contents.files[number].identity().path).into_owned();
        status.files.push(LiveFile { path, records: Some(live.records), bytes: Some(live.bytes) });
    }
    if !status.files.is_empty() {
        status.state = LogState::Records;
    }
    Ok(status)
}

fn described(log_file: &LogFile, superblock: &Superblock) -> Status {
    let geometry = superblock.geometry;
    Status {
        log: log_file.path().to_owned(),
        id: superblock.id.iter().map(|byte| format!("{byte:02x}")).collect(),
        state: LogState::Empty,
        owner: superblock.owner,
        bytes: geometry.blocks * BLOCK as u64,
        area_bytes: geometry.area_blocks() * BLOCK as u64,
        files_max: geometry.files,
        files: Vec::new(),
        keeper: None,
    }
}
