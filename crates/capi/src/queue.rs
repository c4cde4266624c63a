//! Many requests to volumes under way at a time, from one thread or with callbacks.
//!
//! The library knows a request by its place in `Notes`, which have what C gave along with it.

use crate::buffer::{BUFFERS, Memory, NULL_BUFFER, bywash_buffer};
use crate::error::bywash_error::BYWASH_ERROR_BUSY;
use crate::error::{Failure, answer};
use crate::handles::{BUSY, DEAD, Table, consume, handles, put};
use crate::path::{check_place, given, limit};
use crate::storage::{bywash_storage, storage};
use crate::volume::{access_of, volume_name};
use ::bywash_client::{Completion, Queue, QueueDispatcher, Room, VolumeId};
use std::ffi::{CStr, c_char, c_int};
use std::mem::replace;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

/// Requests that are submitted without waiting, over a connection of its own. Used by one thread at a time; while it has a
/// callback by any.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct bywash_queue {
    /// 0: none.
    pub id: u64,
}

handles! { bywash_queue }

/// What became of a request of a queue. This struct stays as it is.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct bywash_done {
    /// What was given with the request.
    pub user_data: u64,
    /// The buffer that went along, under a new handle: to be used again, or freed. Zero if there was none, and if it is
    /// lost, since the device did not answer in time or the server went.
    pub buffer: bywash_buffer,
    /// BYWASH_OK, or one of enum bywash_error; bywash_last_error_message() has the text for the last one that was not OK
    /// of those that one call told. BYWASH_ERROR_FULL: it was done, and its buffer was freed.
    pub error: c_int,
}

/// A queue that C has.
pub(crate) struct End {
    state: Mutex<State>,
    /// Whether calls wait for each other, since they are brief.
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

/// What C gave along with requests that are under way.
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
    /// Where what comes with the completion goes.
    pub(crate) to: Option<NonNull<u8>>,
}

// SAFETY: an address; whoever lent what is there has promised that it stays, whichever thread reaps.
unsafe impl Send for Note {}

pub(crate) static QUEUES: Table<Arc<End>> = Table::new();

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
        let Completion { user_data, outcome, room } = done;
        let Note { user_data, to } = self.remove(user_data);
        let none = bywash_buffer { id: 0 };
        let mut told = outcome.map_err(Failure::from);
        let buffer = match room {
            Some(Room::Arena(buffer)) => BUFFERS.insert(Memory::Queue(buffer)).unwrap_or_else(|full| {
                told = Err(full);
                none
            }),
            Some(Room::Own(bytes)) => {
                if let (Some(to), Ok(())) = (to, &told) {
                    // SAFETY: as many bytes as were asked for, of which the caller promises that they are there.
                    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to.as_ptr(), bytes.len()) };
                }
                none
            }
            None => none,
        };
        bywash_done { user_data, buffer, error: answer(told) }
    }
}

impl End {
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

    /// As [`End::with`], with what reaps.
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
pub(crate) fn queue(handle: bywash_queue) -> Result<Arc<End>, Failure> {
    QUEUES.look(handle, |end| end.clone())
}

/// Makes a queue with the options of a connection, over a connection of its own.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_queue_new(storage: bywash_storage, queue: *mut bywash_queue) -> c_int {
    answer(check_place(queue, NULL_QUEUE).and_then(|()| {
        let made = self::storage(storage)?.queue()?;
        let end = End {
            state: Mutex::new(State::Here(Box::new(made))),
            is_dispatched: AtomicBool::new(false),
            notes: Arc::default(),
        };
        // SAFETY: the caller's variable, which is not null.
        unsafe { put(queue, QUEUES.insert(Arc::new(end))?, NULL_QUEUE) }
    }))
}

/// Closes a queue and zeroes the handle: its volumes are closed, and what is under way is not heard of any more; memory that
/// was to be read into is not touched from here on, and buffers that are under way are freed. Callbacks are stopped as by
/// bywash_queue_dispatch_stop(); called from within one, this does not wait for it, and nothing is called after it. Zero is
/// left alone. BYWASH_ERROR_BUSY: another thread is in a call with it, or stops its callbacks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_queue_close(queue: *mut bywash_queue) -> c_int {
    let close = || {
        check_place(queue, c"the pointer to the handle is null")?;
        // SAFETY: the caller's variable, which is not null.
        let handle = unsafe { queue.read() };
        if handle.id == 0 {
            return Ok(());
        }
        let end = self::queue(handle)?;
        let mut state = end.state()?;
        if matches!(*state, State::Stopping) {
            return Err(STOPPING);
        }
        // SAFETY: as above.
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

/// Opens a volume for one of enum bywash_access, and tells the number by which requests of this queue name it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_queue_open(
    queue: bywash_queue,
    name: *const c_char,
    access: c_int,
    volume: *mut u64,
) -> c_int {
    answer(check_place(volume, NULL_ID).and_then(|()| {
        // SAFETY: the caller's text, or null.
        let (name, access) = (unsafe { volume_name(name) }?, access_of(access)?);
        let opened = self::queue(queue)?.with(|queue| Ok(queue.open(&name, access)?))?;
        // SAFETY: the caller's variable, which is not null.
        unsafe { put(volume, opened.to_word(), NULL_ID) }
    }))
}

/// As bywash_queue_open(), of a file that the program has opened; see bywash_volume_open_descriptor().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_queue_open_descriptor(
    queue: bywash_queue,
    fd: c_int,
    volume: *mut u64,
) -> c_int {
    answer(check_place(volume, NULL_ID).and_then(|()| {
        let file = given(fd)?;
        let opened = self::queue(queue)?.with(|queue| Ok(queue.open_descriptor(file)?))?;
        // SAFETY: the caller's variable, which is not null.
        unsafe { put(volume, opened.to_word(), NULL_ID) }
    }))
}

/// Closes a volume of a queue. BYWASH_ERROR_BUSY: requests of it are under way, or were not reaped.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_queue_close_volume(queue: bywash_queue, volume: u64) -> c_int {
    answer(self::queue(queue).and_then(|end| end.with(|queue| Ok(queue.close(VolumeId::of_word(volume))?))))
}

/// Tells up to `most` requests that are done at `done`, and how many at `count`, waiting for the first one no longer than
/// `timeout_ns` (0: not at all; negative: as long as the options of the connection say).
///
/// BYWASH_ERROR_TIMED_OUT; BYWASH_ERROR_IDLE: nothing is under way; BYWASH_ERROR_BUSY: callbacks reap; else what ended the
/// queue, when everything that was under way has been told.
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
                // SAFETY: the caller's array, which has more places than were told; see below. What was lent is there
                // until this returns.
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
            // SAFETY: the caller's variable, which is not null.
            unsafe { put(count, told, NULL_COUNT) }
        })
    }))
}

/// Waits until `least` requests are done and can be reaped, or all that are under way if these are fewer, but no longer than
/// `timeout_ns` (negative: as long as the options of the connection say): a thread that sleeps is woken once for all of them. A
/// queue that has ended is told of by bywash_queue_reap().
///
/// BYWASH_ERROR_TIMED_OUT: what is done by then can be reaped. BYWASH_ERROR_BUSY: callbacks reap.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_queue_wait(queue: bywash_queue, least: usize, timeout_ns: i64) -> c_int {
    answer(self::queue(queue).and_then(|end| {
        end.reaping(|queue| {
            let limit = limit(timeout_ns).unwrap_or_else(|| queue.limit());
            Ok(queue.wait_for(least, limit)?)
        })
    }))
}

/// Takes a buffer of `bytes` from the arena of a queue, for bywash_queue_read_buffer() and bywash_queue_write_buffer(), again
/// and again. What is in it is what was in it when it was used last, or zeros. It is a buffer as those of clients:
/// bywash_buffer_write(), bywash_buffer_read(), and of a server that is trusted bywash_buffer_map(). Free it by
/// bywash_buffer_free(), before or after the queue is closed.
///
/// BYWASH_ERROR_TOO_LARGE: larger than the arena. BYWASH_ERROR_NO_ROOM: others have the arena.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_queue_alloc(
    queue: bywash_queue,
    bytes: usize,
    buffer: *mut bywash_buffer,
) -> c_int {
    answer(check_place(buffer, NULL_BUFFER).and_then(|()| {
        let made = self::queue(queue)?.with(|queue| Ok(queue.alloc(bytes)?))?;
        // SAFETY: the caller's variable, which is not null.
        unsafe { put(buffer, BUFFERS.insert(Memory::Queue(made))?, NULL_BUFFER) }
    }))
}

/// Tells how many requests were submitted and not reaped.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_queue_under_way(queue: bywash_queue, count: *mut usize) -> c_int {
    let found = self::queue(queue).and_then(|end| end.with(|queue| Ok(queue.under_way())));
    // SAFETY: the caller's variable, or null.
    answer(found.and_then(|found| unsafe { put(count, found, NULL_COUNT) }))
}

/// For event loops: tells at `is_done` 1 if something is done already; else 0, and the descriptor at `fd` becomes readable when
/// something is done or the server is gone. The descriptor stays the library's, and is another one after the queue has
/// connected again: ask each time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_queue_arm(queue: bywash_queue, is_done: *mut c_int, fd: *mut c_int) -> c_int {
    let places = check_place(is_done, NULL_COUNT).and_then(|()| check_place(fd, NULL_COUNT));
    answer(places.and_then(|()| {
        let (armed, number) =
            self::queue(queue)?.reaping(|queue| Ok((queue.arm()?, queue.as_fd().as_raw_fd())))?;
        // SAFETY: the caller's variables, which are not null.
        unsafe {
            is_done.write(c_int::from(armed));
            fd.write(number);
        }
        Ok(())
    }))
}
