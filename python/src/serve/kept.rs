//! Python objects that belong to the requests in flight of a queue.
//!
//! The library knows a request by the number of its entry here. The entry holds the memory lent to the
//! request, so the memory stays until the request was reaped or the queue is gone.

use crate::errors::storage_exception;
use crate::serve::buffer::Buffer;
use crate::serve::completion::Completion;
use bywash_client::{Completion as Done, RequestMemory};
use pyo3::buffer::PyUntypedBuffer;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Entries of a queue's requests in flight. Code under the lock neither waits nor runs Python.
#[derive(Default)]
pub(super) struct InFlight {
    places: Mutex<Places>,
    is_closed: AtomicBool,
}

#[derive(Default)]
struct Places {
    places: Vec<Option<Entry>>,
    free: Vec<usize>,
}

/// Python objects of one request.
pub(super) struct Entry {
    pub(super) user_data: Py<PyAny>,
    pub(super) memory: HeldMemory,
}

/// Memory of a request.
pub(super) enum HeldMemory {
    /// No memory, or the request's data was copied when it was submitted.
    None,
    /// A new bytes object to read into, to which no Python code refers yet.
    Bytes(Py<PyBytes>),
    /// The program's buffer to read into: the object, and the held buffer of the object.
    Borrowed(Py<PyAny>, PyUntypedBuffer),
    /// A buffer of the arena.
    Arena(Py<Buffer>),
    /// No memory here: the completion brings the bytes that were read.
    InCompletion,
}

impl InFlight {
    fn lock(&self) -> MutexGuard<'_, Places> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Marks the queue as closed, so that no callback is called any more.
    pub(super) fn close(&self) {
        self.is_closed.store(true, Relaxed);
    }

    pub(super) fn is_closed(&self) -> bool {
        self.is_closed.load(Relaxed)
    }

    /// Stores an entry and returns its number.
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

    /// Drops all entries after the queue is gone, and marks their arena buffers as lost.
    pub(super) fn clear(&self) {
        let places = std::mem::take(&mut *self.lock());
        for entry in places.places.into_iter().flatten() {
            if let HeldMemory::Arena(buffer) = &entry.memory {
                buffer.get().put_back(None);
            }
        }
    }

    /// Converts a completion of the library to one of Python, and removes the entry of its request.
    pub(super) fn to_completion(&self, py: Python<'_>, done: Done) -> PyResult<Completion> {
        let Done { user_data, outcome, memory: room } = done;
        let (user_data, memory) = match self.remove(user_data) {
            Some(entry) => (entry.user_data, entry.memory),
            // The queue was closed, and its entries dropped, while completions were still passed to the
            // callback.
            None => (py.None(), HeldMemory::None),
        };
        let is_done = outcome.is_ok();
        let data = match (memory, room) {
            (HeldMemory::Bytes(bytes), _) => is_done.then(|| bytes.into_any()),
            (HeldMemory::Borrowed(object, held), _) => {
                held.release(py);
                Some(object)
            }
            (HeldMemory::Arena(buffer), room) => {
                buffer.get().put_back(room);
                Some(buffer.into_any())
            }
            (HeldMemory::InCompletion, Some(RequestMemory::Own(bytes))) if is_done => {
                Some(PyBytes::new(py, &bytes).into_any().unbind())
            }
            _ => None,
        };
        let error = outcome.err().map(|error| storage_exception(py, &error).into_value(py));
        Ok(Completion::new(user_data, error, data))
    }
}
