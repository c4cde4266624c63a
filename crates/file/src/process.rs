//! Beginning, forking and stopping of the data path: carried out over the tables of all modules.
//!
//! All state that must not survive a fork lies in memory that the kernel wipes in the child
//! (MADV_WIPEONFORK). So even a fork that the library did not see leaves the child with empty tables, and the
//! kernel serves every request of that child. [`reset_child`] then gives the child a data path of its own.
//!
//! The preloaded library calls this module; no other module of this crate does.

use crate::state::{self, Hooks, LOCK, Settings};
use crate::{copy, open_file, table, threads, window};
use bywash_session::Record;
use bywash_sync::prepare_fences;

/// Starts the data path: files get data paths from the first call on that could be served. Makes one system
/// call; [`state::wake`] does the rest, because most processes never make such a call.
///
/// # Safety
/// Must be called once.
pub unsafe fn begin(settings: Settings, record: Option<Record>, hooks: Hooks) {
    // SAFETY: the caller promises that this is the only call.
    unsafe { state::begin(settings, record, hooks, set_up) };
}

/// Sets up the tables. Returns false if another thread is doing so, and also if memory is exhausted or a
/// limit forbids data paths; in the second case the kernel serves every request for good. A child that was
/// forked during the set-up finds the lock held, and the kernel serves its requests.
#[cold]
fn set_up() -> bool {
    let Some(_held) = LOCK.try_hold() else { return false };
    let Some(hooks) = state::hooks().filter(|_| state::is_dormant()) else { return state::is_ready() };
    let prepared = (hooks.on_set_up)()
        && threads::RECORDS.prepare()
        && window::POOL.prepare()
        && open_file::POOL.prepare()
        && table::KNOWN.prepare()
        && table::TABLE.prepare()
        && state::prepare_alive();
    copy::prepare();
    // The process may have stepped aside during the set-up.
    let is_set_up = state::end_set_up(prepared);
    if is_set_up {
        table::after_set_up();
    }
    is_set_up
}

/// Calls a method of every pool and returns the results as a tuple.
macro_rules! for_each_pool {
    ($method:ident) => {
        (
            threads::RECORDS.$method(),
            window::POOL.$method(),
            open_file::POOL.$method(),
            table::KNOWN.$method(),
            table::TABLE.$method(),
        )
    };
}

/// Gives a forked child a data path of its own: empty tables, a record of its own, and its inherited
/// descriptors as candidates with a shared position.
///
/// # Safety
/// The calling thread must be the only thread of a forked child.
pub unsafe fn reset_child(record: Option<Record>) {
    LOCK.reset_child();
    for_each_pool!(reset_child);
    threads::reset_child();
    window::reset_child();
    open_file::reset_child();
    // SAFETY: the caller promises that this is the only thread of the process.
    unsafe { state::set_record(record) };
    prepare_fences();
    state::set_alive();
    table::reset_child();
}

/// Stops all data paths for good, because the process begins something that they are incompatible with (a
/// seccomp filter, an address-space limit, an io_uring of its own).
pub fn step_aside() {
    if state::step_aside() {
        table::forget_all();
    }
}

/// Stops all data paths and unmaps the reserved part of every pool, before the program locks its memory
/// (mlockall), so that the tables do not count against it. Returns the address and the size in bytes of the
/// part that remains of each pool.
pub fn step_aside_and_shrink() -> [(*mut u8, usize); 5] {
    step_aside();
    for_each_pool!(trim);
    for_each_pool!(usable).into()
}
