//! Changes of a file that no note of a write tells, each behind a commit: the process first commits what the file holds, then
//! changes it in place in one of the ways of [`Method`], and makes that durable.

use super::history::Target;
use super::program::Process;
use super::{UNSEEN, UNSEEN_BYTES, version_word};
use nix::fcntl::{FallocateFlags, fallocate};
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::process::{Command, Stdio};

/// Way in which a file is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// By a shared mapping of another process.
    Mapping,
    /// By a process that has the descriptor but no preloaded library.
    Descriptor,
    /// By a descriptor whose writes are durable when they return (O_SYNC).
    Synchronous,
    /// Its first block is removed.
    Collapse,
    /// By io_uring of another process.
    Ring,
    /// A block of zeroes is inserted in front.
    Insert,
    /// By a call of another process that is durable when it returns (RWF_DSYNC).
    Flag,
    /// By a write of another process past the page cache that is durable when it returns (O_DIRECT and O_DSYNC).
    Direct,
    /// By sendfile(2) of another process to a descriptor whose writes are durable when they return.
    Send,
    /// By a write after the file got the attribute that makes all writes durable (chattr(1), S).
    Attribute,
}

impl Method {
    /// All of them.
    pub const ALL: [Method; 10] = [
        Method::Mapping,
        Method::Descriptor,
        Method::Synchronous,
        Method::Collapse,
        Method::Ring,
        Method::Insert,
        Method::Flag,
        Method::Direct,
        Method::Send,
        Method::Attribute,
    ];

    /// Returns the method by which a version is written over the one before; `None` if the file is made anew instead.
    pub fn of_version(version: u64) -> Option<Method> {
        (version % 2 == 1).then(|| Method::ALL[(version / 2) as usize % Method::ALL.len()])
    }

    /// Returns true if the file changes its size on the way, or has zeroes.
    pub fn moves_blocks(self) -> bool {
        matches!(self, Method::Collapse | Method::Insert)
    }
}

/// Number of syncs after which a new file is logged by whatever the log does with young files.
const SYNCS_OF_A_LOGGED_FILE: usize = 5;
/// Size of a block that is removed or inserted, in bytes.
pub(super) const BLOCK_BYTES: u64 = 4096;

impl Process<'_> {
    /// Makes a version of the file.
    pub(super) fn unseen(&mut self, version: u64, memory: &Path) -> io::Result<()> {
        let path = self.data.join(Target::Unseen.name());
        let Some(method) = Method::of_version(version) else {
            std::fs::remove_file(&path)?;
            let file = File::options().write(true).create_new(true).open(&path)?;
            file.write_all_at(&bytes_of(version, UNSEEN_BYTES), 0)?;
            self.sync(&file)?;
            return self.sync_folder();
        };
        let file = File::options().read(true).write(true).open(&path)?;
        for _ in 0..SYNCS_OF_A_LOGGED_FILE {
            file.write_all_at(&bytes_of(version - 1, UNSEEN_BYTES), 0)?;
            self.sync(&file)?;
        }
        let program = memory.join(UNSEEN);
        let numbers = [version_word(version), UNSEEN_BYTES].map(|number| number.to_string());
        let mode = format!("{method:?}").to_lowercase();
        match method {
            Method::Mapping | Method::Ring => {
                ended(Command::new(&program).arg(mode).arg(&path).args(&numbers))?
            }
            Method::Flag | Method::Direct | Method::Send => {
                return ended(Command::new(&program).arg(mode).arg(&path).args(&numbers));
            }
            Method::Attribute => {
                ended(Command::new("chattr").arg("+S").arg(&path))?;
                file.write_all_at(&bytes_of(version, UNSEEN_BYTES), 0)?;
                return ended(Command::new("chattr").arg("-S").arg(&path));
            }
            Method::Descriptor => {
                let output = Stdio::from(file.try_clone()?);
                let mut command = Command::new(&program);
                ended(command.arg(mode).args(numbers).stdout(output).env_remove("LD_PRELOAD"))?;
            }
            Method::Synchronous => {
                let flag = if self.is_careless { 0 } else { nix::libc::O_SYNC };
                let synced = File::options().write(true).custom_flags(flag).open(&path)?;
                return synced.write_all_at(&bytes_of(version, UNSEEN_BYTES), 0);
            }
            Method::Collapse => {
                let front = FallocateFlags::FALLOC_FL_COLLAPSE_RANGE;
                fallocate(&file, front, 0, BLOCK_BYTES as i64)?;
                file.write_all_at(&bytes_of(version, UNSEEN_BYTES), 0)?;
            }
            Method::Insert => {
                let front = FallocateFlags::FALLOC_FL_INSERT_RANGE;
                fallocate(&file, front, 0, BLOCK_BYTES as i64)?;
                file.write_all_at(&bytes_of(version, UNSEEN_BYTES), 0)?;
                file.set_len(UNSEEN_BYTES)?;
            }
        }
        self.sync(&file)
    }
}

fn bytes_of(version: u64, length: u64) -> Vec<u8> {
    version_word(version).to_le_bytes().iter().copied().cycle().take(length as usize).collect()
}

fn ended(command: &mut Command) -> io::Result<()> {
    match command.status()? {
        status if status.success() => Ok(()),
        status => Err(io::Error::other(format!("{command:?} failed: {status}"))),
    }
}
