//! Python objects that belong to a queue's requests in flight.
//!
//! The library knows a request by the index of its entry here. The entry keeps memory that is lent to the request alive
//! until the request has been reaped or the queue has ended.

use crate::errors::storage_exception;
use crate::serve::buffer::Buffer;
use crate::serve::completion::Completion;
use bywash_client::{Completion as Done, Room};
use pyo3::buffer::PyUntypedBuffer;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Objects kept for the requests of a queue. While the lock is held no call waits and no Python code runs.
#[derive(Default)]
pub(super) struct Kept {
    places: Mutex<Places>,
    is_closed: AtomicBool,
}

#[derive(Default)]
struct Places {
    places: Vec<Option<Entry>>,
    free: Vec<usize>,
}

/// Objects that the program passed with a request.
pub(super) struct Entry {
    pub(super) user_data: Py<PyAny>,
    pub(super) memory: Memory,
}

/// The memory of a request.
pub(super) enum Memory {
    /// None, or what was given was copied.
    None,
    /// Bytes that nobody has seen yet, to be filled.
    Bytes(Py<PyBytes>),
    /// The program's buffer, to be filled, held by the second.
    Lent(Py<PyAny>, PyUntypedBuffer),
    /// Buffer of the arena.
    Arena(Py<Buffer>),
    /// Bytes that are read are returned by the completion.
    Comes,
}

impl Kept {
    fn lock(&self) -> MutexGuard<'_, Places> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nobody is to be called back any more.
    pub(super) fn close(&self) {
        self.is_closed.store(true, Relaxed);
    }

    pub(super) fn is_closed(&self) -> bool {
        self.is_closed.load(Relaxed)
    }

    /// Keeps something; answers by which number.
    pub(super) fn insert(&self, entry: Entry) -> u64 {
        let mut places = self.lock();
        let number = match places.free.pop() {
            Some(number) => number,
            None => {
                places.places.push(None);
                places.places.len() - 1
            }
        };
        places.places[number] = Some(entry);
        number as u64
    }

    pub(super) fn remove(&self, number: u64) -> Option<Entry> {
        let mut places = self.lock();
        let number = usize::try_from(number).ok()?;
        let entry = places.places.get_mut(number)?.take()?;
        places.free.push(number);
        Some(entry)
    }

    /// Lets everything go, when the queue is gone.
    pub(super) fn clear(&self) {
        let places = std::mem::take(&mut *self.lock());
        for entry in places.places.into_iter().flatten() {
            if let Memory::Arena(buffer) = &entry.memory {
                buffer.get().put_back(None);
            }
        }
    }

    /// Makes of a completion what Python gets.
    pub(super) fn finish(&self, py: Python<'_>, done: Done) -> PyResult<Completion> {
        let Done { user_data, outcome, room } = done;
        let (user_data, memory) = match self.remove(user_data) {
            Some(entry) => (entry.user_data, entry.memory),
            // The queue was closed while its completions were called back.
            None => (py.None(), Memory::None),
        };
        let is_done = outcome.is_ok();
        let data = match (memory, room) {
            (Memory::Bytes(bytes), _) => is_done.then(|| bytes.into_any()),
            (Memory::Lent(object, held), _) => {
                held.release(py);
                Some(object)
            }
            (Memory::Arena(buffer), room) => {
                buffer.get().put_back(room);
                Some(buffer.into_any())
            }
            (Memory::Comes, Some(Room::Own(bytes))) if is_done => {
                Some(PyBytes::new(py, &bytes).into_any().unbind())
            }
            _ => None,
        };
        let error = outcome.err().map(|error| storage_exception(py, &error).into_value(py));
        Ok(Completion::new(user_data, error, data))
    }
}
