//! Numbers that stand for values.
//!
//! ```text
//!    63                           24 23        4 3     0
//!   +-------------------------------+-----------+-------+
//!   |          generation           |   slot    | shard |
//!   +-------------------------------+-----------+-------+
//! ```
//!
//! A slot's generation goes up by one each time that its value is taken out, so a handle of an earlier value
//! no longer fits: it is an error, never memory of somebody else. A slot whose generations are used up is not
//! used again, so that this holds for ever. Generations begin at 1: no handle is 0.
//!
//! Slots lie in blocks that never move, since C may hold a pointer into a small container. A thread makes its
//! handles in one shard, so that threads seldom meet at a lock. To insert, to take out and to look up take
//! one lock each, about 15 ns while nobody else holds it; nothing is allocated unless there were never as
//! many values at a time. No lock is held while a call waits or copies much: a value that is in use is
//! marked, and a second thread is told so (`Table::with`).
//!
//! Every function of this crate that is given a handle calls this.

use crate::error::Failure;
use crate::error::bywash_error::{BYWASH_ERROR_BUSY, BYWASH_ERROR_FULL, BYWASH_ERROR_HANDLE};
use std::cell::Cell;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// One end of a path. May be used by several threads at a time.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct bywash_path {
    /// Number of the handle; 0 is no handle.
    pub id: u64,
}

/// Listener that accepts peers at a name. May be used by several threads at a time.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct bywash_listener {
    /// Number of the handle; 0 is no handle.
    pub id: u64,
}

/// Options of one end of a path. Used by one thread at a time.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct bywash_options {
    /// Number of the handle; 0 stands for the defaults where a path is made.
    pub id: u64,
}

/// Container: memory that can be filled and shipped. Used by one thread at a time.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct bywash_container {
    /// Number of the handle; 0 is no handle.
    pub id: u64,
}

/// Received message: one container, or several that were shipped together. Used by one thread at a time.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct bywash_message {
    /// Number of the handle; 0 is no handle.
    pub id: u64,
}

/// A handle as C has it: a number in a struct of its own.
pub(crate) trait Handle: Copy {
    fn from_id(id: u64) -> Self;
    fn id(self) -> u64;
}

/// Makes handles of structs that have one number.
macro_rules! handles {
    ($($name:ident)*) => {
        $(impl $crate::handles::Handle for $name {
            fn from_id(id: u64) -> Self {
                Self { id }
            }

            fn id(self) -> u64 {
                self.id
            }
        })*
    };
}

pub(crate) use handles;

handles! { bywash_path bywash_listener bywash_options bywash_container bywash_message }

/// The values of one kind.
pub(crate) struct Table<T> {
    shards: [Shard<T>; SHARDS],
}

/// Apart from its neighbours, so that threads do not share cache lines.
#[repr(align(128))]
struct Shard<T>(Mutex<Slots<T>>);

struct Slots<T> {
    blocks: Vec<NonNull<Slot<T>>>,
    free: Vec<u32>,
}

struct Slot<T> {
    generation: u64,
    busy: bool,
    value: Option<T>,
}

// SAFETY: the slots belong to this value, which is behind a mutex; what they hold may go to other threads.
unsafe impl<T: Send> Send for Slots<T> {}

const SHARD_BITS: u32 = 4;
const SLOT_BITS: u32 = 20;
const SHARDS: usize = 1 << SHARD_BITS;
/// Most values of a kind in one shard.
const SLOTS_MAX: usize = 1 << SLOT_BITS;
const BLOCK_SLOTS: usize = 64;
const GENERATION_MAX: u64 = (1 << (64 - SHARD_BITS - SLOT_BITS)) - 1;

pub(crate) const DEAD: Failure = Failure::fixed(
    BYWASH_ERROR_HANDLE,
    c"the handle is zero, or what it stood for was freed, closed or shipped; use the one that was given out last",
);
pub(crate) const BUSY: Failure = Failure::fixed(
    BYWASH_ERROR_BUSY,
    c"another thread is in a call with this handle; let one thread at a time use it",
);
const FULL: Failure =
    Failure::fixed(BYWASH_ERROR_FULL, c"too many handles were not freed, a million of a kind; free some");

/// The shard in which this thread makes its handles.
fn own_shard() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static OWN: Cell<usize> = const { Cell::new(usize::MAX) };
    }
    let own = OWN.get();
    if own != usize::MAX {
        return own;
    }
    let own = NEXT.fetch_add(1, Relaxed) % SHARDS;
    OWN.set(own);
    own
}

impl<T> Table<T> {
    pub(crate) const fn new() -> Table<T> {
        Table {
            shards: [const { Shard(Mutex::new(Slots { blocks: Vec::new(), free: Vec::new() })) }; SHARDS],
        }
    }

    fn lock(&self, shard: usize) -> MutexGuard<'_, Slots<T>> {
        self.shards[shard].0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_of(&self, handle: impl Handle) -> MutexGuard<'_, Slots<T>> {
        self.lock(handle.id() as usize % SHARDS)
    }

    /// Keeps a value. Fails if there are too many of them in this thread's shard.
    pub(crate) fn insert<H: Handle>(&self, value: T) -> Result<H, Failure> {
        self.offer(value).map_err(|(failure, _)| failure)
    }

    /// As [`Table::insert`], but gives back what it does not keep.
    pub(crate) fn offer<H: Handle>(&self, value: T) -> Result<H, (Failure, T)> {
        let shard = own_shard();
        let mut slots = self.lock(shard);
        let number = match slots.free.pop().map_or_else(|| slots.grow(), Ok) {
            Ok(number) => number,
            Err(failure) => return Err((failure, value)),
        };
        let slot = slots.at(number);
        // SAFETY: the slot is one of the table's, and this thread has the lock.
        let slot = unsafe { &mut *slot.as_ptr() };
        slot.value = Some(value);
        let place = u64::from(number) << SHARD_BITS | shard as u64;
        Ok(H::from_id(slot.generation << (SHARD_BITS + SLOT_BITS) | place))
    }

    /// Takes a value out. The handle is dead from here on.
    pub(crate) fn remove(&self, handle: impl Handle) -> Result<T, Failure> {
        let mut slots = self.lock_of(handle);
        let (number, slot) = slots.find(handle)?;
        // SAFETY: the slot is one of the table's, this thread has the lock, and no call is in it (`find`).
        let slot = unsafe { &mut *slot.as_ptr() };
        let value = slot.value.take().ok_or(DEAD)?;
        slot.generation += 1;
        if slot.generation < GENERATION_MAX {
            slots.free.push(number);
        }
        Ok(value)
    }

    /// Looks at a value for a moment, under the lock.
    pub(crate) fn look<R>(&self, handle: impl Handle, look: impl FnOnce(&mut T) -> R) -> Result<R, Failure> {
        let slots = self.lock_of(handle);
        let (_, slot) = slots.find(handle)?;
        // SAFETY: the slot is one of the table's, this thread has the lock, and no call is in it (`find`).
        let slot = unsafe { &mut *slot.as_ptr() };
        slot.value.as_mut().map(look).ok_or(DEAD)
    }

    /// As [`Table::look`], for what may fail.
    pub(crate) fn try_look<R>(
        &self,
        handle: impl Handle,
        look: impl FnOnce(&mut T) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        self.look(handle, look)?
    }

    /// Does what may take time with a value, without the lock; others are told that it is in use.
    pub(crate) fn with<R>(
        &self,
        handle: impl Handle,
        work: impl FnOnce(&mut T) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        let slots = self.lock_of(handle);
        let (_, slot) = slots.find(handle)?;
        // SAFETY: the slot is one of the table's, this thread has the lock, and no call is in it (`find`).
        unsafe { (*slot.as_ptr()).busy = true };
        drop(slots);
        // SAFETY: slots do not move, and while one is busy nobody else touches its value.
        let done = unsafe { &mut (*slot.as_ptr()).value }.as_mut().map_or(Err(DEAD), work);
        let slots = self.lock_of(handle);
        // SAFETY: the slot is one of the table's, and this thread has the lock.
        unsafe { (*slot.as_ptr()).busy = false };
        drop(slots);
        done
    }
}

impl<T> Slots<T> {
    fn at(&self, number: u32) -> NonNull<Slot<T>> {
        let block = self.blocks[number as usize / BLOCK_SLOTS];
        // SAFETY: a block has `BLOCK_SLOTS` slots, and the remainder of a division by that number is less.
        unsafe { block.add(number as usize % BLOCK_SLOTS) }
    }

    /// The slot of a handle that is alive and not in use.
    fn find(&self, handle: impl Handle) -> Result<(u32, NonNull<Slot<T>>), Failure> {
        let number = (handle.id() >> SHARD_BITS) as usize % SLOTS_MAX;
        if number / BLOCK_SLOTS >= self.blocks.len() {
            return Err(DEAD);
        }
        let slot = self.at(number as u32);
        // SAFETY: the slot is one of the table's, and the caller has the lock; `with` does not touch these.
        let (generation, busy) = unsafe { ((*slot.as_ptr()).generation, (*slot.as_ptr()).busy) };
        match generation == handle.id() >> (SHARD_BITS + SLOT_BITS) {
            true if busy => Err(BUSY),
            true => Ok((number as u32, slot)),
            false => Err(DEAD),
        }
    }

    /// Adds a block; answers its first slot.
    #[cold]
    fn grow(&mut self) -> Result<u32, Failure> {
        let first = self.blocks.len() * BLOCK_SLOTS;
        if first >= SLOTS_MAX {
            return Err(FULL);
        }
        let block: Box<[Slot<T>]> =
            (0..BLOCK_SLOTS).map(|_| Slot { generation: 1, busy: false, value: None }).collect();
        // Never given back: handles are looked up in it until the program ends.
        self.blocks.push(NonNull::from(Box::leak(block)).cast());
        let all = self.blocks.len() * BLOCK_SLOTS;
        self.free.extend((first as u32 + 1..all as u32).rev());
        Ok(first as u32)
    }
}

/// Writes an answer where C wants it.
///
/// # Safety
/// `to` is null, or leads to room for the value that this thread may write.
pub(crate) unsafe fn put<V>(to: *mut V, value: V, null: &'static std::ffi::CStr) -> Result<(), Failure> {
    if to.is_null() {
        return Err(Failure::null(null));
    }
    // SAFETY: not null, and the caller promises that it is valid then.
    unsafe { to.write(value) };
    Ok(())
}

/// As [`put`], for a struct that may grow: C gets as many bytes as it says that there is room for, and zeros
/// where it knows of more than there is.
///
/// # Safety
/// `to` is null, or leads to `size` bytes that this thread may write.
pub(crate) unsafe fn put_sized<V: Copy>(
    to: *mut V,
    size: usize,
    value: V,
    null: &'static std::ffi::CStr,
) -> Result<(), Failure> {
    if to.is_null() {
        return Err(Failure::null(null));
    }
    let bytes = size.min(size_of::<V>());
    // SAFETY: not null, the rest is what the caller promises; what is copied is no longer than either.
    unsafe {
        to.cast::<u8>().write_bytes(0, size);
        std::ptr::copy_nonoverlapping((&raw const value).cast::<u8>(), to.cast::<u8>(), bytes);
    }
    Ok(())
}

/// Takes the value of the handle at `place` out of its table, and zeroes the handle. None: it was zero.
///
/// # Safety
/// `place` is null, or leads to a handle that this thread may write.
pub(crate) unsafe fn consume<T, H: Handle>(table: &Table<T>, place: *mut H) -> Result<Option<T>, Failure> {
    if place.is_null() {
        return Err(Failure::null(c"the pointer to the handle is null; pass the address of the variable"));
    }
    // SAFETY: not null, and the caller promises that it is valid then.
    let handle = unsafe { place.read() };
    if handle.id() == 0 {
        return Ok(None);
    }
    let value = table.remove(handle)?;
    // SAFETY: the header's rule: the caller keeps its pointers valid until the call returns.
    unsafe { place.write(H::from_id(0)) };
    Ok(Some(value))
}

/// As [`consume`], where zero will not do.
///
/// # Safety
/// As [`consume`].
pub(crate) unsafe fn consume_live<T, H: Handle>(table: &Table<T>, place: *mut H) -> Result<T, Failure> {
    // SAFETY: the caller keeps the contract in this function's Safety section.
    unsafe { consume(table, place) }?.ok_or(DEAD)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_dies_with_its_value() {
        let table = Table::new();
        let first: bywash_path = table.insert(1).unwrap();
        assert_ne!(first.id, 0);
        assert_eq!(table.look(first, |value| *value).unwrap(), 1);
        assert_eq!(table.remove(first).unwrap(), 1);
        assert!(table.remove(first).is_err());
        let second: bywash_path = table.insert(2).unwrap();
        assert_ne!(first.id, second.id, "the slot is the same, the generation is not");
        assert!(table.look(first, |_| ()).is_err());
        assert_eq!(table.look(second, |value| *value).unwrap(), 2);
    }

    #[test]
    fn rubbish_is_no_handle() {
        let table = Table::new();
        table.insert::<bywash_path>(1).unwrap();
        for id in [0, 1, 16, 1 << 24 | 1 << 23, u64::MAX, 2 << 24, 1 << 63] {
            assert!(table.look(bywash_path { id }, |_| ()).is_err(), "{id:x}");
        }
    }

    #[test]
    fn what_is_in_use_cannot_be_taken() {
        let table = Table::new();
        let handle: bywash_path = table.insert(1).unwrap();
        let busy =
            table.with(handle, |_| Ok(table.remove(handle).is_err() && table.look(handle, |_| ()).is_err()));
        assert!(busy.unwrap());
        assert_eq!(table.remove(handle).unwrap(), 1);
    }

    #[test]
    fn a_slot_whose_generations_are_used_up_is_left() {
        let table = Table::new();
        let handle: bywash_path = table.insert(1).unwrap();
        {
            let slots = table.lock_of(handle);
            let (_, slot) = slots.find(handle).unwrap();
            // SAFETY: the slot is one of the table's, and this thread has the lock.
            unsafe { (*slot.as_ptr()).generation = GENERATION_MAX - 1 };
        }
        let last = bywash_path { id: (handle.id % (1 << 24)) | ((GENERATION_MAX - 1) << 24) };
        table.remove(last).unwrap();
        let other: bywash_path = table.insert(2).unwrap();
        assert_ne!(other.id % (1 << 24), handle.id % (1 << 24));
    }

    #[test]
    fn what_finds_no_room_comes_back() {
        let table = Table::new();
        let first: bywash_path = table.insert(0).unwrap();
        for number in 1..SLOTS_MAX {
            table.insert::<bywash_path>(number).unwrap();
        }
        assert_eq!(table.offer::<bywash_path>(7).map_err(|(_, value)| value).unwrap_err(), 7);
        table.remove(first).unwrap();
        assert!(table.offer::<bywash_path>(7).is_ok());
    }

    #[test]
    fn thousands_at_a_time_from_several_threads() {
        let table = Table::new();
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let table = &table;
                scope.spawn(move || {
                    let all: Vec<bywash_path> =
                        (0..2000).map(|number| table.insert(thread * 10_000 + number).unwrap()).collect();
                    for (number, handle) in all.into_iter().enumerate() {
                        assert_eq!(table.remove(handle).unwrap(), thread * 10_000 + number as u64);
                    }
                });
            }
        });
    }
}
