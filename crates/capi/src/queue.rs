//! Many requests to volumes in flight at a time, from one thread or with callbacks.
//!
//! The library knows a request by its place in `Notes`, which have what C gave along with it.

use crate::buffer::{BUFFERS, BufferSource, NULL_BUFFER, bywash_buffer};
use crate::client::{bywash_client, client};
use crate::error::bywash_error::BYWASH_ERROR_BUSY;
use crate::error::{Failure, answer};
use crate::handles::{BUSY, DEAD, Table, consume, handles, put};
use crate::path::{check_place, given, limit};
use crate::volume::{access_of, volume_name};
use ::bywash_client::{Completion, Queue, QueueDispatcher, RequestMemory, VolumeId};
use std::ffi::{CStr, c_char, c_int};
use std::mem::replace;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

/// Queue of requests that are submitted without waiting, over a connection of its own. Used by one thread at
/// a time; by any number of threads while a callback is set.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct bywash_queue {
    /// Number of the handle; 0 is no handle.
    pub id: u64,
}

handles! { bywash_queue }

/// Completion of a request of a queue. The layout will not change.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct bywash_done {
    /// Value of `user_data` in the request.
    pub user_data: u64,
    /// Buffer of the request under a new handle, to be reused or freed. Zero if the request had none, and if
    /// the buffer is lost because the device exceeded its timeout or the server ended.
    pub buffer: bywash_buffer,
    /// BYWASH_OK, or one of enum bywash_error. bywash_last_error_message() returns the message of the last
    /// failed request among those that one call reaped. BYWASH_ERROR_FULL: the request succeeded, and its
    /// buffer was freed.
    pub error: c_int,
}

/// A queue that C has.
pub(crate) struct QueueEnd {
    state: Mutex<State>,
    /// True while a dispatcher thread reaps and calls back. Calls of other threads take the lock then, and hold
    /// it only briefly.
    pub(crate) is_dispatched: AtomicBool,
    pub(crate) notes: Arc<Notes>,
}

pub(crate) enum State {
    /// Those who call reap.
    Here(Box<Queue>),
    /// A thread that calls back.
    Dispatched(QueueDispatcher),
    /// A thread waits for the last callback.
    Stopping,
    Gone,
}

/// Values that the C program passed with requests in flight.
#[derive(Default)]
pub(crate) struct Notes {
    places: Mutex<Places>,
    /// Nobody is to hear of them any more.
    pub(crate) is_closed: AtomicBool,
}

#[derive(Default)]
struct Places {
    notes: Vec<Note>,
    free: Vec<u64>,
}

#[derive(Clone, Copy)]
pub(crate) struct Note {
    pub(crate) user_data: u64,
    /// Memory for the bytes that the completion returns.
    pub(crate) to: Option<NonNull<u8>>,
}

// SAFETY: an address; whoever lent what is there has promised that it stays, whichever thread reaps.
unsafe impl Send for Note {}

pub(crate) static QUEUES: Table<Arc<QueueEnd>> = Table::new();

const NULL_QUEUE: &CStr = c"the pointer for the new queue is null";
const NULL_ID: &CStr = c"the pointer for the volume's number is null";
const NULL_COUNT: &CStr = c"the pointer for the number is null";
const DISPATCHED: Failure =
    Failure::fixed(BYWASH_ERROR_BUSY, c"callbacks reap; call bywash_queue_dispatch_stop() first");
pub(crate) const STOPPING: Failure =
    Failure::fixed(BYWASH_ERROR_BUSY, c"another thread waits for the end of the queue's callbacks");

impl Notes {
    fn lock(&self) -> MutexGuard<'_, Places> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a note; answers by which number.
    pub(crate) fn insert(&self, note: Note) -> u64 {
        let mut places = self.lock();
        match places.free.pop() {
            Some(number) => {
                places.notes[number as usize] = note;
                number
            }
            None => {
                places.notes.push(note);
                places.notes.len() as u64 - 1
            }
        }
    }

    /// Takes a note out whose number [`Notes::insert`] has answered.
    pub(crate) fn remove(&self, number: u64) -> Note {
        let mut places = self.lock();
        places.free.push(number);
        places.notes[number as usize]
    }

    /// Makes of a completion what C gets.
    ///
    /// # Safety
    /// What was lent to the request is still there.
    pub(crate) unsafe fn finish(&self, done: Completion) -> bywash_done {
        let Completion { user_data, outcome, memory: room } = done;
        let Note { user_data, to } = self.remove(user_data);
        let none = bywash_buffer { id: 0 };
        let mut told = outcome.map_err(Failure::from);
        let buffer = match room {
            Some(RequestMemory::Arena(buffer)) => {
                BUFFERS.insert(BufferSource::Queue(buffer)).unwrap_or_else(|full| {
                    told = Err(full);
                    none
                })
            }
            Some(RequestMemory::Own(bytes)) => {
                if let (Some(to), Ok(())) = (to, &told) {
                    // SAFETY: as many bytes as were asked for, of which the caller promises that they are
                    // there.
                    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to.as_ptr(), bytes.len()) };
                }
                none
            }
            None => none,
        };
        bywash_done { user_data, buffer, error: answer(told) }
    }
}

impl QueueEnd {
    /// The state, if no other thread is in a call with it, or will be for a moment only.
    pub(crate) fn state(&self) -> Result<MutexGuard<'_, State>, Failure> {
        match self.state.try_lock() {
            Ok(state) => Ok(state),
            Err(TryLockError::Poisoned(poisoned)) => Ok(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) if self.is_dispatched.load(Relaxed) => {
                Ok(self.state.lock().unwrap_or_else(PoisonError::into_inner))
            }
            Err(TryLockError::WouldBlock) => Err(BUSY),
        }
    }

    /// Does something with the library's queue.
    pub(crate) fn with<R>(&self, work: impl FnOnce(&mut Queue) -> Result<R, Failure>) -> Result<R, Failure> {
        match &mut *self.state()? {
            State::Here(queue) => work(queue),
            State::Dispatched(dispatcher) => dispatcher.with(work),
            State::Stopping => Err(STOPPING),
            State::Gone => Err(DEAD),
        }
    }

    /// As [`ClientEnd::with`], with what reaps.
    fn reaping<R>(&self, work: impl FnOnce(&mut Queue) -> Result<R, Failure>) -> Result<R, Failure> {
        match &mut *self.state()? {
            State::Here(queue) => work(queue),
            State::Dispatched(_) => Err(DISPATCHED),
            State::Stopping => Err(STOPPING),
            State::Gone => Err(DEAD),
        }
    }
}

/// A queue that stays as long as the answer.
pub(crate) fn queue(handle: bywash_queue) -> Result<Arc<QueueEnd>, Failure> {
    QUEUES.look(handle, |end| end.clone())
}

/// Creates a queue over a new connection, with the options of an existing one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_queue_new(client: bywash_client, queue: *mut bywash_queue) -> c_int {
    answer(check_place(queue, NULL_QUEUE).and_then(|()| {
        let made = self::client(client)?.queue()?;
        let end = QueueEnd {
            state: Mutex::new(State::Here(Box::new(made))),
            is_dispatched: AtomicBool::new(false),
            notes: Arc::default(),
        };
        // SAFETY: not null, so valid by the header's rule, and the variable is the caller's.
        unsafe { put(queue, QUEUES.insert(Arc::new(end))?, NULL_QUEUE) }
    }))
}

/// Closes a queue and zeroes the handle. The queue's volumes are closed, requests in flight get no
/// completion, the memory of reads in flight is not touched any more, and buffers in flight are freed.
/// Callbacks stop as by bywash_queue_dispatch_stop(); if a callback itself closes the queue, the call does
/// not wait, and no callback follows. A zero handle is ignored. BYWASH_ERROR_BUSY: another thread is in a
/// call with the queue, or stops its callbacks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_queue_close(queue: *mut bywash_queue) -> c_int {
    let close = || {
        check_place(queue, c"the pointer to the handle is null")?;
        // SAFETY: not null, so valid by the header's rule, and the variable is the caller's.
        let handle = unsafe { queue.read() };
        if handle.id == 0 {
            return Ok(());
        }
        let end = self::queue(handle)?;
        let mut state = end.state()?;
        if matches!(*state, State::Stopping) {
            return Err(STOPPING);
        }
        // SAFETY: the header's rule: the caller keeps its pointers valid until the call returns.
        unsafe { consume(&QUEUES, queue) }?;
        end.notes.is_closed.store(true, Relaxed);
        let was = replace(&mut *state, State::Gone);
        drop(state);
        // Without the lock: it may wait for a callback, which may want it.
        drop(was);
        Ok(())
    };
    answer(close())
}

/// Opens a volume with rights of enum bywash_access, and returns the number by which requests of this queue
/// name it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_queue_open(
    queue: bywash_queue,
    name: *const c_char,
    access: c_int,
    volume: *mut u64,
) -> c_int {
    answer(check_place(volume, NULL_ID).and_then(|()| {
        // SAFETY: the header's rule: a pointer is null or valid, here to a text that ends with a zero.
        let (name, access) = (unsafe { volume_name(name) }?, access_of(access)?);
        let opened = self::queue(queue)?.with(|queue| Ok(queue.open(&name, access)?))?;
        // SAFETY: not null, so valid by the header's rule, and the variable is the caller's.
        unsafe { put(volume, opened.to_word(), NULL_ID) }
    }))
}

/// Like bywash_queue_open(), but for a descriptor of the program; see bywash_volume_open_descriptor().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_queue_open_descriptor(
    queue: bywash_queue,
    fd: c_int,
    volume: *mut u64,
) -> c_int {
    answer(check_place(volume, NULL_ID).and_then(|()| {
        let file = given(fd)?;
        let opened = self::queue(queue)?.with(|queue| Ok(queue.open_descriptor(file)?))?;
        // SAFETY: not null, so valid by the header's rule, and the variable is the caller's.
        unsafe { put(volume, opened.to_word(), NULL_ID) }
    }))
}

/// Closes a volume of a queue. BYWASH_ERROR_BUSY: requests of the volume are in flight, or were not reaped.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_queue_close_volume(queue: bywash_queue, volume: u64) -> c_int {
    answer(self::queue(queue).and_then(|end| end.with(|queue| Ok(queue.close(VolumeId::from_word(volume))?))))
}

/// Reaps up to `most` completions into `done` and returns their number in `count`. Waits for the first one up
/// to `timeout_ns` nanoseconds (0: not at all; negative: as long as the options of the connection say).
///
/// BYWASH_ERROR_TIMED_OUT: no completion arrived. BYWASH_ERROR_IDLE: no request is in flight.
/// BYWASH_ERROR_BUSY: a dispatcher reaps. Every other error ended the queue, and is returned after all
/// completions were reaped.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_queue_reap(
    queue: bywash_queue,
    timeout_ns: i64,
    done: *mut bywash_done,
    most: usize,
    count: *mut usize,
) -> c_int {
    let places = check_place(done, c"the pointer for what is done is null")
        .and_then(|()| check_place(count, NULL_COUNT));
    answer(places.and_then(|()| {
        let end = self::queue(queue)?;
        end.reaping(|queue| {
            let mut told = 0;
            let mut tell = |completion: Completion| {
                // SAFETY: the header's rule: the caller's array has `most` elements, and no more completions than
                // that are reaped below. Memory that was lent to the queue stays until this function returns.
                unsafe { done.add(told).write(end.notes.finish(completion)) };
                told += 1;
            };
            if most > 0 {
                let first = match limit(timeout_ns) {
                    Some(Duration::ZERO) => queue.try_reap()?.ok_or(Failure::NOT_NOW)?,
                    Some(limit) => queue.reap_within(limit)?,
                    None => queue.reap()?,
                };
                tell(first);
                // What ends the queue is told by the next call.
                let _ = queue.reap_each(most - 1, &mut tell);
            }
            // SAFETY: not null, so valid by the header's rule, and the variable is the caller's.
            unsafe { put(count, told, NULL_COUNT) }
        })
    }))
}

/// Waits until `least` completions can be reaped, or all requests in flight are completed if these are fewer,
/// but at most `timeout_ns` nanoseconds (negative: as long as the options of the connection say). A sleeping
/// thread is woken once for all of them. bywash_queue_reap() reports the end of a queue.
///
/// BYWASH_ERROR_TIMED_OUT: fewer completions arrived, and these can be reaped. BYWASH_ERROR_BUSY: a
/// dispatcher reaps.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_queue_wait(queue: bywash_queue, least: usize, timeout_ns: i64) -> c_int {
    answer(self::queue(queue).and_then(|end| {
        end.reaping(|queue| {
            let limit = limit(timeout_ns).unwrap_or_else(|| queue.limit());
            Ok(queue.wait_for(least, limit)?)
        })
    }))
}

/// Allocates a buffer of `bytes` bytes in the arena of a queue, for repeated use with
/// bywash_queue_read_buffer() and bywash_queue_write_buffer(). The contents are those of the last use of the
/// memory, or zeros. Access the buffer by bywash_buffer_write() and bywash_buffer_read(), and if the server
/// is trusted by bywash_buffer_map(). Free the buffer by bywash_buffer_free(), before or after the queue is
/// closed.
///
/// BYWASH_ERROR_TOO_LARGE: `bytes` exceeds the arena. BYWASH_ERROR_NO_ROOM: other buffers occupy the arena.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_queue_alloc(
    queue: bywash_queue,
    bytes: usize,
    buffer: *mut bywash_buffer,
) -> c_int {
    answer(check_place(buffer, NULL_BUFFER).and_then(|()| {
        let made = self::queue(queue)?.with(|queue| Ok(queue.alloc(bytes)?))?;
        // SAFETY: not null, so valid by the header's rule, and the variable is the caller's.
        unsafe { put(buffer, BUFFERS.insert(BufferSource::Queue(made))?, NULL_BUFFER) }
    }))
}

/// Returns the number of requests in flight: submitted and not reaped.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_queue_in_flight(queue: bywash_queue, count: *mut usize) -> c_int {
    let found = self::queue(queue).and_then(|end| end.with(|queue| Ok(queue.in_flight())));
    // SAFETY: the header's rule: a pointer is null or valid, here to a variable of the caller.
    answer(found.and_then(|found| unsafe { put(count, found, NULL_COUNT) }))
}

/// Prepares an event loop. `is_done` 1: a completion can be reaped now. `is_done` 0: the descriptor `fd`
/// becomes readable when a request is completed or the server ends. The descriptor remains the library's and
/// changes when the queue reconnects: call this function each time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_queue_arm(queue: bywash_queue, is_done: *mut c_int, fd: *mut c_int) -> c_int {
    let places = check_place(is_done, NULL_COUNT).and_then(|()| check_place(fd, NULL_COUNT));
    answer(places.and_then(|()| {
        let (armed, number) =
            self::queue(queue)?.reaping(|queue| Ok((queue.arm()?, queue.as_fd().as_raw_fd())))?;
        // SAFETY: not null, so valid by the header's rule, and the variables are the caller's.
        unsafe {
            is_done.write(c_int::from(armed));
            fd.write(number);
        }
        Ok(())
    }))
}
