//! For tests of the store and of programs that use it: the file of a store, which loses power on demand, and changes of its
//! records behind its back.
//!
//! Not for production: the file is memory, and remembers each write since the last sync.

use crate::error::Error;
use crate::store::Store;
use redb::StorageBackend;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

#[cfg(feature = "testing")]
pub use crate::store::altered::{RecordAction, RecordEdit, alter};

/// Change of the file that a power failure may lose.
#[derive(Clone, Debug)]
enum Pending {
    Write(u64, Vec<u8>),
    Length(u64),
}

/// Contents of the file that are durable, the changes since, and the contents with all changes.
#[derive(Clone, Debug, Default)]
struct State {
    synced: Vec<u8>,
    pending: Vec<Pending>,
    seen: Vec<u8>,
    /// Number of calls until the power fails; 0 for never.
    fuse: u64,
    /// Copy of the state at the moment of the failure.
    failed: Option<Box<State>>,
}

fn apply(bytes: &mut Vec<u8>, pending: &Pending) {
    match pending {
        Pending::Length(length) => bytes.resize(*length as usize, 0),
        Pending::Write(offset, data) => {
            let (from, to) = (*offset as usize, *offset as usize + data.len());
            bytes.resize(bytes.len().max(to), 0);
            bytes[from..to].copy_from_slice(data);
        }
    }
}

impl State {
    fn tell(&mut self, pending: Pending) {
        self.burn();
        apply(&mut self.seen, &pending);
        self.pending.push(pending);
    }

    fn burn(&mut self) {
        if self.fuse == 1 {
            self.failed = Some(Box::new(self.clone()));
        }
        self.fuse = self.fuse.saturating_sub(1);
    }

    /// Returns contents that may be found after a power failure: of the writes since the last sync some are there
    /// and some are not, in any order, and a write may be torn. `below` returns a random number below its argument.
    fn after_failure(&self, below: &mut dyn FnMut(u64) -> u64) -> Vec<u8> {
        let mut bytes = self.synced.clone();
        let mut pending = self.pending.clone();
        for at in (1..pending.len()).rev() {
            pending.swap(at, below(at as u64 + 1) as usize);
        }
        for mut one in pending {
            if let Pending::Write(_, data) = &mut one
                && below(4) == 0
            {
                // The write is torn at any byte, within a sector or between two.
                data.truncate(below(data.len() as u64 + 1) as usize);
            }
            if below(2) == 0 {
                apply(&mut bytes, &one);
            }
        }
        bytes
    }
}

/// File of a store, in memory, whose power a test cuts. Clones are the same file.
#[derive(Clone, Debug, Default)]
pub struct PowerCutFile(Arc<Mutex<State>>);

impl PowerCutFile {
    /// Makes a file with these contents, which are durable.
    pub fn with(bytes: Vec<u8>) -> PowerCutFile {
        let state = State { synced: bytes.clone(), seen: bytes, ..State::default() };
        PowerCutFile(Arc::new(Mutex::new(state)))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens the store in this file. An empty file gets a new one.
    ///
    /// # Errors
    /// As for [`Store::open`].
    pub fn open(&self) -> Result<Store, Error> {
        Store::over(Path::new("a file of a test"), self.clone())
    }

    /// Calls a function at an instant of the file: no write to it happens meanwhile. Returns the contents that may be found if
    /// the power fails at that instant, with what the function returned. `below` returns a random number below its argument;
    /// without it, all that was written is found, as after the end of a process.
    pub fn at_an_instant<T>(
        &self,
        act: impl FnOnce() -> T,
        below: Option<&mut dyn FnMut(u64) -> u64>,
    ) -> (Vec<u8>, T) {
        let state = self.lock();
        let done = act();
        match below {
            Some(below) => (state.after_failure(below), done),
            None => (state.seen.clone(), done),
        }
    }

    /// Returns the contents that are durable.
    pub fn durable(&self) -> Vec<u8> {
        self.lock().synced.clone()
    }

    /// Lets the power fail at the `calls`th call from now on that changes the file; 0 for never.
    pub fn fail_after(&self, calls: u64) {
        self.lock().fuse = calls;
    }

    /// Lets the power fail now.
    pub fn fail(&self) {
        let mut state = self.lock();
        state.failed = Some(Box::new(state.clone()));
    }

    /// Returns true if the power has failed.
    pub fn has_failed(&self) -> bool {
        self.lock().failed.is_some()
    }

    /// Returns contents that may be found after the failure; `None` if the power has not failed. `below` returns a random
    /// number below its argument.
    pub fn after_failure(&self, below: &mut dyn FnMut(u64) -> u64) -> Option<Vec<u8>> {
        let failed = self.lock().failed.take();
        failed.map(|failed| failed.after_failure(below))
    }
}

impl StorageBackend for PowerCutFile {
    fn len(&self) -> Result<u64, io::Error> {
        Ok(self.lock().seen.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), io::Error> {
        let state = self.lock();
        let part = state.seen.get(offset as usize..offset as usize + out.len());
        out.copy_from_slice(part.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn set_len(&self, len: u64) -> Result<(), io::Error> {
        self.lock().tell(Pending::Length(len));
        Ok(())
    }

    fn sync_data(&self) -> Result<(), io::Error> {
        let mut state = self.lock();
        state.burn();
        state.synced = state.seen.clone();
        state.pending.clear();
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), io::Error> {
        self.lock().tell(Pending::Write(offset, data.to_vec()));
        Ok(())
    }
}
