//! Opening a store: finding or creating its file, locking it, and checking its layout.
//!
//! A new store is created under a temporary name, and linked to its own name when it is complete. So a crash
//! never leaves a file of that name that is not a store. Called by [`Store::open`] and [`Store::in_memory`].

use super::Store;
use super::change::{READING, WRITING, WriteTables, begin, failed};
use super::layout::{self, DeviceRecord};
use crate::error::Error;
use redb::backends::{FileBackend, InMemoryBackend};
use redb::{
    Builder, DatabaseError, ReadableDatabase, ReadableTable, StorageBackend, StorageError, TableHandle,
};
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Greatest size of redb's cache, in bytes; redb's default is 1 GiB.
const CACHE_BYTES: usize = 4 << 20;
/// Number of attempts to open or create the store, in case other processes create and remove it meanwhile.
const ATTEMPTS: u32 = 4;

pub(super) fn open(path: &Path) -> Result<Store, Error> {
    for _ in 0..ATTEMPTS {
        match OpenOptions::new().read(true).write(true).open(path) {
            Ok(file) => return open_file(path, file),
            Err(why) if why.kind() == ErrorKind::NotFound => {
                if let Some(store) = make(path)? {
                    return Ok(store);
                }
            }
            Err(why) => return Err(io_failed("open the store", &why)),
        }
    }
    Err(io_failed("open the store", &ErrorKind::NotFound.into()))
}

fn io_failed(what: &'static str, why: &io::Error) -> Error {
    Error::Store { what, why: why.to_string() }
}

fn open_file(path: &Path, file: File) -> Result<Store, Error> {
    let length = file.metadata().map_err(|why| io_failed("open the store", &why))?.len();
    if length == 0 {
        // redb itself would turn an empty file into a new database.
        return Err(Error::NotAStore { path: path.to_owned() });
    }
    let store = open_backend(path, FileBackend::new(file).map_err(failed("open the store"))?)?;
    store.check_layout(path)?;
    Ok(store)
}

/// Creates a store. `None` if another process has created it meanwhile.
fn make(path: &Path) -> Result<Option<Store>, Error> {
    let making = |why: io::Error| io_failed("make the store", &why);
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let name = path.file_name().ok_or_else(|| making(ErrorKind::InvalidInput.into()))?;
    let mut hidden = OsString::from(".");
    hidden.push(name);
    hidden.push(format!(".{}.new", std::process::id()));
    let draft = Draft(folder.join(hidden));
    let options = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).to_owned();
    // A draft that an ended process of the same number has left behind is removed.
    let file = match options.open(&draft.0) {
        Err(why) if why.kind() == ErrorKind::AlreadyExists => {
            fs::remove_file(&draft.0).and_then(|()| options.open(&draft.0))
        }
        other => other,
    };
    let backend = FileBackend::new(file.map_err(making)?).map_err(failed("make the store"))?;
    let store = open_backend(path, backend)?;
    store.lay_out()?;
    match fs::hard_link(&draft.0, path) {
        Ok(()) => {}
        Err(why) if why.kind() == ErrorKind::AlreadyExists => return Ok(None),
        Err(why) => return Err(making(why)),
    }
    drop(draft);
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(making)?;
    Ok(Some(store))
}

/// Makes a store in memory, without a file.
pub(super) fn make_in_memory() -> Result<Store, Error> {
    let store = open_backend(Path::new("memory"), InMemoryBackend::new())?;
    store.lay_out()?;
    Ok(store)
}

/// Path of a file that is removed when the value is dropped.
struct Draft(PathBuf);

impl Drop for Draft {
    fn drop(&mut self) {
        // If removing fails, a harmless file stays behind.
        let _ = fs::remove_file(&self.0);
    }
}

pub(super) fn open_backend(path: &Path, backend: impl StorageBackend) -> Result<Store, Error> {
    // With the integrity check an altered file is refused; without it, redb may trust the file and panic
    // later.
    let opened = Builder::new()
        .set_cache_size(CACHE_BYTES)
        .set_check_integrity_on_open(true)
        .create_with_backend(backend);
    opened.map(|database| Store { database }).map_err(|why| refusal(path, why))
}

fn refusal(path: &Path, why: DatabaseError) -> Error {
    let path = path.to_owned();
    match why {
        DatabaseError::DatabaseAlreadyOpen | DatabaseError::LockProtocolMismatch => Error::InUse { path },
        DatabaseError::UpgradeRequired(found) => Error::Damaged(format!(
            "it is a file of redb's format {found}, in which no store was ever written"
        )),
        DatabaseError::RepairAborted => Error::damaged("it cannot be repaired"),
        DatabaseError::Storage(StorageError::Io(why)) if why.kind() == ErrorKind::InvalidData => {
            Error::NotAStore { path }
        }
        DatabaseError::Storage(StorageError::Io(why)) if why.kind() == ErrorKind::UnexpectedEof => {
            Error::damaged("its end is missing")
        }
        other => Error::store("open the store")(other.into()),
    }
}

impl Store {
    /// Creates the tables of a new store.
    pub(super) fn lay_out(&self) -> Result<(), Error> {
        let transaction = begin(&self.database)?;
        let mut change = WriteTables::within(&transaction)?;
        for (key, value) in [(layout::KEY_LAYOUT, layout::LAYOUT), (layout::KEY_CHANGES, 0)] {
            change.header.insert(key, value).map_err(failed(WRITING))?;
        }
        drop(change);
        transaction.commit().map_err(failed(WRITING))
    }

    /// Converts a store of an earlier layout, `found`, to this one, in one transaction.
    fn bring_up_to_date(&self, found: u64) -> Result<(), Error> {
        let transaction = begin(&self.database)?;
        let mut change = WriteTables::within(&transaction)?;
        if found == layout::LAYOUT_WITHOUT_LABELS {
            let before = transaction.open_table(layout::DEVICES_BEFORE).map_err(failed(READING))?;
            for row in before.iter().map_err(failed(READING))? {
                let (name, record) = row.map_err(failed(READING))?;
                change.put_device(name.value(), DeviceRecord::from_before(record.value())?)?;
            }
        }
        change.header.insert(layout::KEY_LAYOUT, layout::LAYOUT).map_err(failed(WRITING))?;
        drop(change);
        if found == layout::LAYOUT_WITHOUT_LABELS {
            transaction.delete_table(layout::DEVICES_BEFORE).map_err(failed(WRITING))?;
        }
        transaction.commit().map_err(failed(WRITING))
    }

    /// Checks that the layout is known, and converts a store of an earlier layout.
    pub(super) fn check_layout(&self, path: &Path) -> Result<(), Error> {
        let transaction = self.database.begin_read().map_err(failed(READING))?;
        let mut tables = transaction.list_tables().map_err(failed(READING))?;
        if !tables.any(|table| table.name() == layout::HEADER.name()) {
            return Err(Error::NotAStore { path: path.to_owned() });
        }
        let header = transaction.open_table(layout::HEADER).map_err(|why| match why {
            redb::TableError::Storage(why) => failed(READING)(why),
            // The table has other types, so it belongs to another program.
            _ => Error::NotAStore { path: path.to_owned() },
        })?;
        let found = header.get(layout::KEY_LAYOUT).map_err(failed(READING))?.map(|found| found.value());
        match found {
            None => Err(Error::NotAStore { path: path.to_owned() }),
            Some(layout::LAYOUT) => Ok(()),
            Some(
                earlier @ (layout::LAYOUT_WITHOUT_LABELS
                | layout::LAYOUT_WITHOUT_THIN
                | layout::LAYOUT_WITHOUT_SNAPSHOTS),
            ) => self.bring_up_to_date(earlier),
            Some(0) => Err(Error::damaged("it has layout 0")),
            Some(found) => Err(Error::Newer { path: path.to_owned(), found, known: layout::LAYOUT }),
        }
    }
}
