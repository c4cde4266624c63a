//! Queues: many requests in flight at a time, submitted without waiting.

use crate::container::{BRIEF_BYTES, contiguous};
use crate::errors::{closed, exception, from_text, storage_exception};
use crate::options::one_of;
use crate::serve::buffer::Buffer;
use crate::serve::completion::Completion;
use crate::serve::kept::{Entry, HeldMemory, InFlight};
use crate::serve::{ACCESSES, bytes_of, copy_of_descriptor, writable};
use crate::waiting::{Attempt, Deadline, in_own_thread, in_slices};
use bywash_client::{
    Access, Completion as Done, Error, Queue as Inner, QueueDispatcher, Range, RequestMemory, SubmitError,
};
use bywash_container::Error as ContainerError;
use pyo3::exceptions::PyMemoryError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::ffi::c_int;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

/// Identifier of a volume that a queue has opened.
#[pyclass(frozen, eq, hash, module = "bywash.serve")]
#[derive(PartialEq, Eq, Hash)]
pub(crate) struct VolumeId(bywash_client::VolumeId);

/// A queue of requests that are submitted without waiting and reaped when they are complete. ``Client.queue``
/// makes it.
///
/// Offsets and lengths are in bytes, and multiples of the volume's block. Requests in flight complete in any
/// order. Each request carries ``user_data``, any object, which its ``Completion`` returns. An error that the
/// library detects is raised by the call that submits; any other error is the completion's ``error``.
/// ``NoRoomError``: ``depth`` requests are in flight, or the arena is full; reap first.
///
/// A queue has a connection of its own and is meant for one thread. Several threads take turns, and a thread
/// that waits delays the others by up to 50 ms. If the client reconnects, a call may last as long as that
/// takes.
#[pyclass(frozen, module = "bywash.serve")]
pub(crate) struct Queue {
    state: Arc<Mutex<State>>,
    kept: Arc<InFlight>,
    limit: Duration,
    depth: usize,
    /// True if a call that normally does not wait may have to, because the client connects again.
    may_wait: bool,
}

enum State {
    Here(Box<Inner>),
    Dispatched(QueueDispatcher),
    /// A thread waits in `dispatch_stop` for the last callback to end.
    Stopping,
    Closed,
}

/// Reason that a call of a queue failed.
enum QueueError {
    Library(Error),
    Dispatched,
    NotDispatched,
    Stopping,
    FromWithin,
    Forked,
    Closed,
}

impl From<Error> for QueueError {
    fn from(error: Error) -> QueueError {
        QueueError::Library(error)
    }
}

impl QueueError {
    fn raise(self, py: Python<'_>) -> PyErr {
        let busy = |text: &str| from_text(py, "BusyError", text.into());
        match self {
            QueueError::Library(error) => storage_exception(py, &error),
            QueueError::Dispatched => busy("callbacks reap the queue; call dispatch_stop() first"),
            QueueError::NotDispatched => busy("the queue has no callback; call dispatch() first"),
            QueueError::Stopping => busy("another thread waits for the end of the queue's callbacks"),
            QueueError::FromWithin => busy(
                "a callback cannot wait for its own end; stop it from another thread, or close the queue",
            ),
            QueueError::Forked => exception(py, &ContainerError::Forked),
            QueueError::Closed => closed("queue"),
        }
    }
}

/// Address that a read writes to.
struct SendPtr(NonNull<u8>);

// SAFETY: this is a plain address; the queue's `InFlight` holds the memory behind it until the request was
// reaped.
unsafe impl Send for SendPtr {}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Calls `work` with the library's queue, in every state that has one.
fn with<R>(state: &mut State, work: impl FnOnce(&mut Inner) -> R) -> Result<R, QueueError> {
    match state {
        State::Here(queue) => Ok(work(queue)),
        State::Dispatched(dispatcher) => Ok(dispatcher.with(work)),
        State::Stopping => Err(QueueError::Stopping),
        State::Closed => Err(QueueError::Closed),
    }
}

/// Like [`with`], for calls that reap: fails while callbacks reap the queue.
fn reaping<R>(state: &mut State, work: impl FnOnce(&mut Inner) -> Result<R, Error>) -> Result<R, QueueError> {
    match state {
        State::Here(queue) => Ok(work(queue)?),
        State::Dispatched(_) => Err(QueueError::Dispatched),
        State::Stopping => Err(QueueError::Stopping),
        State::Closed => Err(QueueError::Closed),
    }
}

impl Queue {
    pub(super) fn new(queue: Inner, limit: Duration, may_wait: bool) -> Queue {
        Queue {
            depth: queue.depth(),
            state: Arc::new(Mutex::new(State::Here(Box::new(queue)))),
            kept: Arc::new(InFlight::default()),
            limit,
            may_wait,
        }
    }

    /// Calls `work` with the queue's state. Keeps the interpreter if `work` is brief and no wait is possible;
    /// otherwise other threads run meanwhile.
    fn on_state<R: Send>(
        &self,
        py: Python<'_>,
        is_brief: bool,
        work: impl FnOnce(&mut State) -> Result<R, QueueError> + Send,
    ) -> PyResult<R> {
        let free = match self.state.try_lock() {
            // A dispatched queue does not qualify: the call may have to wait for its thread.
            Ok(state) if is_brief && !self.may_wait && matches!(*state, State::Here(_)) => Some(state),
            Err(TryLockError::Poisoned(poisoned)) if is_brief => Some(poisoned.into_inner()),
            _ => None,
        };
        let outcome = match free {
            Some(mut state) => work(&mut state),
            None => py.detach(|| work(&mut lock(&self.state))),
        };
        outcome.map_err(|trouble| trouble.raise(py))
    }

    /// Calls the library's queue briefly, in every state that has one.
    fn look<R: Send>(
        &self,
        py: Python<'_>,
        look: impl FnOnce(&mut Inner) -> Result<R, Error> + Send,
    ) -> PyResult<R> {
        self.on_state(py, true, |state| Ok(with(state, look)??))
    }

    /// Submits a request that copies or clears `bytes` bytes in this call.
    fn submit(
        &self,
        py: Python<'_>,
        bytes: usize,
        entry: Entry,
        work: impl FnOnce(&mut Inner, u64) -> Result<(), SubmitError> + Send,
    ) -> PyResult<()> {
        let number = self.kept.insert(entry);
        let submitted = self.on_state(py, bytes <= BRIEF_BYTES, |state| {
            // The memory that a refused request returns is put back below, where its entry is.
            with(state, |queue| work(queue, number))
        });
        let (refused, raised) = match submitted {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(SubmitError { error, memory: room })) => (room, storage_exception(py, &error)),
            Err(raised) => (None, raised),
        };
        if let Some(Entry { memory: HeldMemory::Arena(buffer), .. }) = self.kept.remove(number) {
            buffer.get().put_back(refused);
        }
        Err(raised)
    }

    /// Submits a request with a buffer of the arena.
    fn submit_buffer(
        &self,
        py: Python<'_>,
        buffer: &Bound<'_, Buffer>,
        user_data: Py<PyAny>,
        work: impl FnOnce(&mut Inner, bywash_client::Buffer, u64) -> Result<(), SubmitError> + Send,
    ) -> PyResult<()> {
        let inner = buffer.get().take()?;
        let bytes = inner.len();
        let entry = Entry { user_data, memory: HeldMemory::Arena(buffer.clone().unbind()) };
        // `work` takes the memory out; if the queue is not available, the memory stays here and is put back.
        let offered = Mutex::new(Some(inner));
        let submitted = self.submit(py, bytes, entry, |queue, number| {
            let inner = offered.lock().unwrap_or_else(PoisonError::into_inner).take();
            inner.map_or(Ok(()), |inner| work(queue, inner, number))
        });
        if let Some(inner) = offered.into_inner().unwrap_or_else(PoisonError::into_inner) {
            buffer.get().put_back(Some(RequestMemory::Arena(inner)));
        }
        submitted
    }

    /// Waits for the next completion.
    fn reap_until(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Done> {
        let limit = self.limit_of(timeout)?;
        let there = self.on_state(py, true, |state| reaping(state, Inner::try_reap))?;
        match there {
            Some(done) => Ok(done),
            None => self.in_slices(py, limit, Inner::reap_within),
        }
    }

    fn limit_of(&self, timeout: Option<f64>) -> PyResult<Deadline> {
        Deadline::after(Some(timeout.unwrap_or(self.limit.as_secs_f64())))
    }

    /// Waits for the queue in slices; `wait` gets the greatest time that it may take.
    fn in_slices<R: Send>(
        &self,
        py: Python<'_>,
        limit: Deadline,
        wait: impl Fn(&mut Inner, Duration) -> Result<R, Error> + Send + Sync,
    ) -> PyResult<R> {
        let waited = in_slices(py, limit, |slice| {
            Attempt::Done(match reaping(&mut lock(&self.state), |queue| wait(queue, slice)) {
                Err(QueueError::Library(Error::TimedOut { .. })) => Err(ContainerError::TimedOut),
                waited => Ok(waited),
            })
        })?;
        waited.map_err(|trouble| trouble.raise(py))
    }

    /// Fails if a read is longer than its volume, before memory for it is allocated.
    fn check_length(
        &self,
        py: Python<'_>,
        volume: bywash_client::VolumeId,
        offset: u64,
        nbytes: usize,
    ) -> PyResult<()> {
        let (length, bytes) = (nbytes as u64, self.look(py, |queue| queue.len(volume))?);
        match length <= bytes {
            true => Ok(()),
            false => {
                let volume = "the volume".into();
                Err(storage_exception(py, &Error::OutOfBounds { volume, offset, length, bytes }))
            }
        }
    }

    /// Opens a volume in a thread of its own. If a signal ends the wait, the volume may still be opened, and
    /// then stays open, unknown to the program, until the queue is closed.
    fn open_beside(
        &self,
        py: Python<'_>,
        open: impl FnOnce(&mut Inner) -> Result<bywash_client::VolumeId, Error> + Send + 'static,
    ) -> PyResult<VolumeId> {
        let state = self.state.clone();
        let opened = in_own_thread(py, move || Ok(with(&mut lock(&state), open)))?;
        let opened = opened.and_then(|opened| opened.map_err(QueueError::Library));
        opened.map(VolumeId).map_err(|trouble| trouble.raise(py))
    }

    /// Closes the queue, and drops the memory that was lent to requests once nothing can write to it any
    /// more.
    fn end(&self, py: Python<'_>) {
        self.kept.close();
        let was = py.detach(|| std::mem::replace(&mut *lock(&self.state), State::Closed));
        let is_gone_with_it = match &was {
            State::Here(_) => true,
            // Called from a callback: the dispatcher's thread still has the queue, and drops the entries when
            // it ends.
            State::Dispatched(dispatcher) => !dispatcher.is_own_callback(),
            // The thread in `dispatch_stop` drops the entries, or a close before this one has done so.
            State::Stopping | State::Closed => false,
        };
        py.detach(|| drop(was));
        if is_gone_with_it {
            self.kept.clear();
        }
    }
}

/// Ends the queue with the interpreter attached. Dropping a dispatcher waits for its callback, which may wait
/// for the interpreter, so the drop must release the interpreter meanwhile.
impl Drop for Queue {
    fn drop(&mut self) {
        Python::try_attach(|py| self.end(py));
    }
}

#[pymethods]
impl Queue {
    /// Opens a volume by its name, for ``"read"``, ``"write"`` or ``"read-write"``. Returns the identifier of
    /// the volume in requests of this queue.
    #[pyo3(signature = (name, access=None), text_signature = "($self, name, access='read')")]
    fn open(&self, py: Python<'_>, name: String, access: Option<&Bound<'_, PyAny>>) -> PyResult<VolumeId> {
        let access: Access =
            access.map_or(Ok(ACCESSES[0].1), |access| one_of("access", access, &ACCESSES))?;
        self.open_beside(py, move |queue| queue.open(&name, access))
    }

    /// Opens a file that the program has opened: see ``Client.open_descriptor``.
    fn open_descriptor(&self, py: Python<'_>, file: &Bound<'_, PyAny>) -> PyResult<VolumeId> {
        let file = copy_of_descriptor(file)?;
        self.open_beside(py, move |queue| queue.open_descriptor(file))
    }

    /// Closes a volume. Raises ``BusyError`` if requests of the volume are in flight, or were not reaped.
    fn close_volume(&self, py: Python<'_>, volume: &VolumeId) -> PyResult<()> {
        self.look(py, |queue| queue.close(volume.0))
    }

    /// Returns the size of a volume, in bytes.
    fn length(&self, py: Python<'_>, volume: &VolumeId) -> PyResult<u64> {
        self.look(py, |queue| queue.len(volume.0))
    }

    /// Returns the block size of a volume, in bytes.
    fn block(&self, py: Python<'_>, volume: &VolumeId) -> PyResult<u32> {
        self.look(py, |queue| queue.block(volume.0))
    }

    /// Returns the way that a volume's bytes move, as text: see ``Volume.path``.
    fn path(&self, py: Python<'_>, volume: &VolumeId) -> PyResult<String> {
        Ok(self.look(py, |queue| queue.path(volume.0))?.to_string())
    }

    /// Allocates memory of the arena, to be submitted without a copy. Raises ``TooLargeError`` if the arena
    /// is smaller, and ``NoRoomError`` if too much of it is in use.
    fn alloc(&self, py: Python<'_>, nbytes: usize) -> PyResult<Buffer> {
        self.look(py, |queue| queue.alloc(nbytes)).map(Buffer::new)
    }

    /// Submits a read of ``nbytes`` bytes from ``offset`` on. The completion's ``data`` holds them, as bytes.
    #[pyo3(signature = (volume, offset, nbytes, user_data=None))]
    fn read(
        &self,
        py: Python<'_>,
        volume: &VolumeId,
        offset: u64,
        nbytes: usize,
        user_data: Option<Py<PyAny>>,
    ) -> PyResult<()> {
        let (volume, user_data) = (volume.0, user_data.unwrap_or_else(|| py.None()));
        self.check_length(py, volume, offset, nbytes)?;
        let bytes = PyBytes::new_with(py, nbytes, |_| Ok(()))?;
        let to = NonNull::new(bytes.as_bytes().as_ptr().cast_mut());
        let to = SendPtr(to.ok_or_else(|| PyMemoryError::new_err("there is no memory for the bytes"))?);
        let entry = Entry { user_data, memory: HeldMemory::Bytes(bytes.unbind()) };
        self.submit(py, nbytes, entry, move |queue, number| {
            let to = { to }.0;
            // SAFETY: `to` points to `nbytes` bytes of a new object to which no Python code refers;
            // `InFlight` holds it until the request has been reaped or the queue is gone.
            unsafe { queue.read_to(volume, offset, to, nbytes, number) }
        })
    }

    /// Submits a read of as many bytes as ``buffer`` has. A ``Buffer`` of this queue is not copied. Any other
    /// buffer may be written by the library until the request was reaped or the queue is closed. The
    /// completion's ``data`` is the buffer.
    #[pyo3(signature = (volume, offset, buffer, user_data=None))]
    fn read_into(
        &self,
        py: Python<'_>,
        volume: &VolumeId,
        offset: u64,
        buffer: &Bound<'_, PyAny>,
        user_data: Option<Py<PyAny>>,
    ) -> PyResult<()> {
        let (volume, user_data) = (volume.0, user_data.unwrap_or_else(|| py.None()));
        if let Ok(buffer) = buffer.cast::<Buffer>() {
            return self.submit_buffer(py, buffer, user_data, |queue, inner, number| {
                queue.read(volume, offset, inner, number)
            });
        }
        let held = writable(buffer)?;
        let nbytes = held.len_bytes();
        let to = SendPtr(NonNull::new(held.buf_ptr().cast()).unwrap_or(NonNull::dangling()));
        let entry = Entry { user_data, memory: HeldMemory::Borrowed(buffer.clone().unbind(), held) };
        self.submit(py, nbytes, entry, move |queue, number| {
            let to = { to }.0;
            // SAFETY: `InFlight` holds the buffer until the request has been reaped or the queue is gone; the
            // buffer has `nbytes` bytes and is writable. A thread that uses it meanwhile mixes up the bytes,
            // as with any call that reads into a buffer.
            unsafe { queue.read_to(volume, offset, to, nbytes, number) }
        })
    }

    /// Submits a write of all bytes of ``data``. A ``Buffer`` of this queue is not copied, and is the
    /// completion's ``data``; any other buffer is copied before this returns. With ``durable``, the bytes are
    /// durable when the request completes.
    #[pyo3(signature = (volume, offset, data, durable=false, user_data=None))]
    fn write(
        &self,
        py: Python<'_>,
        volume: &VolumeId,
        offset: u64,
        data: &Bound<'_, PyAny>,
        durable: bool,
        user_data: Option<Py<PyAny>>,
    ) -> PyResult<()> {
        let (volume, user_data) = (volume.0, user_data.unwrap_or_else(|| py.None()));
        if let Ok(buffer) = data.cast::<Buffer>() {
            return self.submit_buffer(py, buffer, user_data, |queue, inner, number| {
                queue.write(volume, offset, inner, durable, number)
            });
        }
        let data = contiguous(data)?;
        // SAFETY: the bytes are valid while `data` is held; a thread that writes to them meanwhile mixes them
        // up.
        let from = unsafe { bytes_of(&data) };
        let entry = Entry { user_data, memory: HeldMemory::None };
        self.submit(py, from.len(), entry, |queue, number| {
            queue.write_from(volume, offset, from, durable, number)
        })
    }

    /// Submits a flush: see ``Volume.flush``. It covers the writes that were reaped before.
    #[pyo3(signature = (volume, user_data=None))]
    fn flush(&self, py: Python<'_>, volume: &VolumeId, user_data: Option<Py<PyAny>>) -> PyResult<()> {
        let entry = entry_of(py, user_data);
        self.submit(py, 0, entry, |queue, number| queue.flush(volume.0, number))
    }

    /// Submits a discard: see ``Volume.discard``.
    #[pyo3(signature = (volume, offset, nbytes, user_data=None))]
    fn discard(
        &self,
        py: Python<'_>,
        volume: &VolumeId,
        offset: u64,
        nbytes: u64,
        user_data: Option<Py<PyAny>>,
    ) -> PyResult<()> {
        let entry = entry_of(py, user_data);
        self.submit(py, 0, entry, |queue, number| queue.discard(volume.0, offset, nbytes, number))
    }

    /// Submits a request that writes zeros: see ``Volume.write_zeroes``.
    #[pyo3(signature = (volume, offset, nbytes, durable=false, user_data=None))]
    fn write_zeroes(
        &self,
        py: Python<'_>,
        volume: &VolumeId,
        offset: u64,
        nbytes: u64,
        durable: bool,
        user_data: Option<Py<PyAny>>,
    ) -> PyResult<()> {
        let entry = entry_of(py, user_data);
        let bytes = usize::try_from(nbytes).unwrap_or(usize::MAX);
        self.submit(py, bytes, entry, |queue, number| {
            queue.write_zeroes(volume.0, offset, nbytes, durable, number)
        })
    }

    /// Submits a compare-and-write: see ``Volume.compare_and_write``. If the volume held other bytes, the
    /// completion's error is a ``DiffersError``.
    #[pyo3(signature = (volume, offset, expected, new, user_data=None))]
    fn compare_and_write(
        &self,
        py: Python<'_>,
        volume: &VolumeId,
        offset: u64,
        expected: &Bound<'_, PyAny>,
        new: &Bound<'_, PyAny>,
        user_data: Option<Py<PyAny>>,
    ) -> PyResult<()> {
        let (expected, new) = (contiguous(expected)?, contiguous(new)?);
        // SAFETY: the bytes are valid while both buffers are held; a thread that writes to them meanwhile
        // mixes them up.
        let (expected, new) = unsafe { (bytes_of(&expected), bytes_of(&new)) };
        self.submit(py, new.len(), entry_of(py, user_data), |queue, number| {
            queue.compare_and_write(volume.0, offset, expected, new, number)
        })
    }

    /// Submits a read of ranges of several volumes: 1 to 32 tuples ``(volume, offset, nbytes)``. The
    /// completion's ``data`` holds the bytes of all ranges, one after the other.
    #[pyo3(signature = (ranges, user_data=None))]
    fn read_many(
        &self,
        py: Python<'_>,
        ranges: Vec<(PyRef<'_, VolumeId>, u64, usize)>,
        user_data: Option<Py<PyAny>>,
    ) -> PyResult<()> {
        let mut sum = 0usize;
        let mut asked = Vec::with_capacity(ranges.len());
        for (volume, offset, length) in &ranges {
            let (volume, offset, length) = (volume.0, *offset, *length);
            self.check_length(py, volume, offset, length)?;
            sum = sum.saturating_add(length);
            asked.push(Range { volume, offset, length });
        }
        let mut room = Vec::new();
        room.try_reserve_exact(sum).map_err(|error| PyMemoryError::new_err(error.to_string()))?;
        room.resize(sum, 0);
        let entry = Entry { memory: HeldMemory::InCompletion, ..entry_of(py, user_data) };
        self.submit(py, sum, entry, |queue, number| queue.read_many(&asked, room, number))
    }

    /// Submits a write to ranges of several volumes: 1 to 32 tuples ``(volume, offset, data)``. The data is
    /// copied before this returns.
    #[pyo3(signature = (pieces, durable=false, user_data=None))]
    fn write_many(
        &self,
        py: Python<'_>,
        pieces: Vec<(PyRef<'_, VolumeId>, u64, Bound<'_, PyAny>)>,
        durable: bool,
        user_data: Option<Py<PyAny>>,
    ) -> PyResult<()> {
        let mut held = Vec::with_capacity(pieces.len());
        for (volume, offset, data) in &pieces {
            held.push((volume.0, *offset, contiguous(data)?));
        }
        // SAFETY: the bytes are valid while `held` holds their buffers; a thread that writes to them
        // meanwhile mixes them up.
        let given: Vec<_> =
            held.iter().map(|(volume, offset, data)| (*volume, *offset, unsafe { bytes_of(data) })).collect();
        let sum = given.iter().map(|piece| piece.2.len()).sum();
        self.submit(py, sum, entry_of(py, user_data), |queue, number| {
            queue.write_many(&given, durable, number)
        })
    }

    /// Waits for the next completion. ``timeout`` is in seconds; None: the client's ``limit``. Raises
    /// ``TimedOut`` when the timeout expires, ``IdleError`` if no request is in flight, and ``ServerGone``
    /// when the server is gone and all requests in flight have been reaped.
    #[pyo3(signature = (timeout=None))]
    fn reap(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Completion> {
        let done = self.reap_until(py, timeout)?;
        self.kept.to_completion(py, done)
    }

    /// Like ``reap``, but without waiting: returns None when no request is complete.
    fn try_reap(&self, py: Python<'_>) -> PyResult<Option<Completion>> {
        let done = self.on_state(py, true, |state| reaping(state, Inner::try_reap))?;
        done.map(|done| self.kept.to_completion(py, done)).transpose()
    }

    /// Like ``reap``, but returns a list of 1 to ``most`` completions: the first one, and those that are
    /// complete by then. ``most`` of None stands for ``depth``.
    #[pyo3(signature = (most=None, timeout=None))]
    fn reap_many(
        &self,
        py: Python<'_>,
        most: Option<usize>,
        timeout: Option<f64>,
    ) -> PyResult<Vec<Completion>> {
        let most = most.unwrap_or(self.depth);
        if most == 0 {
            return Ok(Vec::new());
        }
        let first = self.reap_until(py, timeout)?;
        let rest = self.on_state(py, true, |state| {
            let mut rest = Vec::new();
            // An error that ends the queue is raised by the next call.
            let _ = reaping(state, |queue| queue.reap_each(most - 1, |done| rest.push(done)));
            Ok(rest)
        })?;
        std::iter::once(first).chain(rest).map(|done| self.kept.to_completion(py, done)).collect()
    }

    /// Waits until ``least`` requests can be reaped, or all requests in flight if these are fewer. A thread
    /// that sleeps is woken once for all of them. ``timeout`` is in seconds; None: the client's ``limit``.
    /// Raises ``TimedOut`` when the timeout expires; the requests that are complete by then can be reaped. If
    /// the server is gone, the wait ends, and reaping raises the error.
    #[pyo3(signature = (least, timeout=None))]
    fn wait(&self, py: Python<'_>, least: usize, timeout: Option<f64>) -> PyResult<()> {
        let limit = self.limit_of(timeout)?;
        self.in_slices(py, limit, |queue, slice| queue.wait_for(least, slice))
    }

    /// Prepares ``fileno()`` for an event loop; call this when ``try_reap`` has returned None. False:
    /// ``fileno()`` becomes readable when a request completes or the server is gone. True: a request is
    /// complete already, call ``try_reap`` again.
    fn arm(&self, py: Python<'_>) -> PyResult<bool> {
        self.on_state(py, true, |state| reaping(state, Inner::arm))
    }

    /// Returns the queue's descriptor: wait for it to become readable, and do nothing else with it. The
    /// descriptor changes when the queue connects again, so call this each time.
    fn fileno(&self, py: Python<'_>) -> PyResult<c_int> {
        self.look(py, |queue| Ok(queue.as_fd().as_raw_fd()))
    }

    /// Calls ``callback(completion)`` for each request that completes, in a thread of its own, until
    /// ``dispatch_stop()`` or ``close()``. Calls ``on_end(error)`` once if an error ends the queue. An
    /// exception in a callback is passed to ``sys.unraisablehook``. A callback may submit requests. No other
    /// thread can reap meanwhile (``BusyError``). The thread keeps references to both functions and what they
    /// refer to, so close the queue.
    #[pyo3(signature = (callback, on_end=None))]
    fn dispatch(&self, py: Python<'_>, callback: Py<PyAny>, on_end: Option<Py<PyAny>>) -> PyResult<()> {
        let kept = self.kept.clone();
        let call = move |done: Result<Done, Error>| {
            // Without an interpreter no callback can run.
            Python::try_attach(|py| {
                let called = match done {
                    // The queue was closed, from within a callback, so the callback is not called again.
                    Ok(done) if kept.is_closed() => return drop(kept.to_completion(py, done)),
                    Err(_) if kept.is_closed() => return,
                    Ok(done) => kept.to_completion(py, done).and_then(|done| callback.call1(py, (done,))),
                    Err(error) => match &on_end {
                        Some(on_end) => on_end.call1(py, (storage_exception(py, &error).into_value(py),)),
                        None => return,
                    },
                };
                if let Err(raised) = called {
                    raised.write_unraisable(py, Some(callback.bind(py)));
                }
            });
        };
        self.on_state(py, false, |state| match std::mem::replace(state, State::Closed) {
            State::Here(queue) => {
                *state = State::Dispatched(queue.dispatch(call)?);
                Ok(())
            }
            other => {
                let trouble = match &other {
                    State::Closed => QueueError::Closed,
                    State::Stopping => QueueError::Stopping,
                    _ => QueueError::Dispatched,
                };
                *state = other;
                Err(trouble)
            }
        })
    }

    /// Waits for the callback that is running, if any, and ends callbacks. ``reap`` can be used again.
    fn dispatch_stop(&self, py: Python<'_>) -> PyResult<()> {
        let dispatcher =
            self.on_state(py, false, |state| match std::mem::replace(state, State::Stopping) {
                State::Dispatched(dispatcher) if dispatcher.is_own_callback() => {
                    *state = State::Dispatched(dispatcher);
                    Err(QueueError::FromWithin)
                }
                State::Dispatched(dispatcher) => Ok(dispatcher),
                other => {
                    let trouble = match &other {
                        State::Closed => QueueError::Closed,
                        State::Stopping => QueueError::Stopping,
                        _ => QueueError::NotDispatched,
                    };
                    *state = other;
                    Err(trouble)
                }
            })?;
        // The lock must be free here: the callback may need it.
        let stopped = py.detach(|| dispatcher.stop());
        let (next, outcome) = match stopped {
            Ok(queue) => (State::Here(Box::new(queue)), Ok(())),
            Err(dispatcher) => (State::Dispatched(dispatcher), Err(QueueError::Forked)),
        };
        let left = py.detach(|| {
            let mut state = lock(&self.state);
            match *state {
                State::Stopping => {
                    *state = next;
                    None
                }
                // The queue was closed meanwhile.
                _ => Some(next),
            }
        });
        if left.is_some() {
            py.detach(|| drop(left));
            self.kept.clear();
        }
        outcome.map_err(|trouble| trouble.raise(py))
    }

    /// Number of requests that were submitted and not reaped.
    #[getter]
    fn in_flight(&self, py: Python<'_>) -> PyResult<usize> {
        self.look(py, |queue| Ok(queue.in_flight()))
    }

    /// Greatest number of requests in flight.
    #[getter]
    fn depth(&self) -> usize {
        self.depth
    }

    /// Number of the queue's connection in the server's reports.
    #[getter]
    fn number(&self, py: Python<'_>) -> PyResult<u64> {
        self.look(py, |queue| Ok(queue.number()))
    }

    /// Number of times that the queue has connected again.
    #[getter]
    fn reconnects(&self, py: Python<'_>) -> PyResult<u64> {
        self.look(py, |queue| Ok(queue.reconnects()))
    }

    /// Number of bytes of the arena that are not reused, since a device that did not complete in time may
    /// still write there.
    #[getter]
    fn lost_bytes(&self, py: Python<'_>) -> PyResult<usize> {
        self.look(py, |queue| Ok(queue.lost_bytes()))
    }

    /// Closes the queue and its volumes. Requests in flight are not reported any more, and buffers that were
    /// lent to them belong to the program again.
    fn close(&self, py: Python<'_>) {
        self.end(py);
    }

    /// True if the queue was closed.
    #[getter]
    fn closed(&self, py: Python<'_>) -> bool {
        py.detach(|| matches!(*lock(&self.state), State::Closed))
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_why))]
    fn __exit__(&self, py: Python<'_>, _why: &Bound<'_, PyAny>) {
        self.end(py);
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        match self.in_flight(py) {
            Ok(count) => format!("<bywash.serve.Queue: {count} of {} in flight>", self.depth),
            Err(_) => "<bywash.serve.Queue: closed>".into(),
        }
    }
}

/// Returns the entry of a request that uses no memory of the program.
fn entry_of(py: Python<'_>, user_data: Option<Py<PyAny>>) -> Entry {
    Entry { user_data: user_data.unwrap_or_else(|| py.None()), memory: HeldMemory::None }
}
