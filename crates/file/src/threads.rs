//! Records of the threads that use the data path: hazard, counters, signal state and account of each.
//!
//! A thread finds its record through one word of thread-local storage in the initial-exec model (a single
//! load, no call), which stable Rust reaches only by assembly. The word is 0 if the thread has no record yet,
//! [`BYPASS`] if the code runs in a vfork child, which borrows the parent's memory and must not touch any
//! table of this crate, and otherwise the record's address.
//!
//! Two more words of thread-local storage hold the difference between the signal mask that the program
//! believes in and the kernel's ([`blocked`], [`waiting`]). Threads without a record use them too, and a
//! forked child keeps them.
//!
//! Records live in memory that the kernel wipes in a forked child, and are never unmapped.

use crate::account::Account;
use crate::crowd::Crowd;
use crate::gate::Gate;
use crate::pool::{InChild, Pool, Zeroed};
use crate::stack;
use crate::state;
use crate::sys::{self, MaskChange, SignalSet};
use bywash_session::{Counter, FallbackReason, Shard};
use bywash_sync::{AtomicU32, AtomicU64, AtomicUsize, Ordering, Ordering::Relaxed};
use core::arch::{asm, global_asm};
use core::cell::Cell;

/// Greatest number of threads with a record; the kernel serves every call of further threads.
pub const THREADS_MAX: usize = 512;
/// Value of the thread's word in a vfork child.
pub const BYPASS: usize = 1;
/// SIGBUS (7) and SIGSEGV (11), the signals that a copy may raise; the kernel must not block them during a
/// copy.
pub const FAULT_SIGNALS: SignalSet = 1 << 6 | 1 << 10;
/// Number of tallies in a record.
const TALLIES: usize = 4;

global_asm!(
    ".pushsection .tbss,\"awT\",@nobits",
    ".p2align 3",
    ".globl bywash_thread",
    ".hidden bywash_thread",
    ".type bywash_thread,@object",
    ".size bywash_thread, 8",
    "bywash_thread: .zero 8",
    ".globl bywash_blocked",
    ".hidden bywash_blocked",
    ".type bywash_blocked,@object",
    ".size bywash_blocked, 8",
    "bywash_blocked: .zero 8",
    ".globl bywash_waiting",
    ".hidden bywash_waiting",
    ".type bywash_waiting,@object",
    ".size bywash_waiting, 8",
    "bywash_waiting: .zero 8",
    ".popsection",
);

macro_rules! thread_local_word {
    ($(#[$doc:meta])* $symbol:literal, $get:ident, $(#[$set_doc:meta])* $set:ident) => {
        $(#[$doc])*
        #[inline(always)]
        pub fn $get() -> usize {
            let word: usize;
            // SAFETY: reads the calling thread's own eight bytes, whose offset the linker stores in the GOT.
            unsafe {
                asm!(
                    concat!("mov {word}, qword ptr [rip + ", $symbol, "@GOTTPOFF]"),
                    "mov {word}, qword ptr fs:[{word}]",
                    word = out(reg) word, options(nostack, readonly, preserves_flags),
                );
            }
            word
        }

        $(#[$set_doc])*
        pub fn $set(word: usize) {
            // SAFETY: writes the calling thread's own eight bytes, whose offset the linker stores in the GOT.
            unsafe {
                asm!(
                    concat!("mov {at}, qword ptr [rip + ", $symbol, "@GOTTPOFF]"),
                    "mov qword ptr fs:[{at}], {word}",
                    at = out(reg) _, word = in(reg) word, options(nostack, preserves_flags),
                );
            }
        }
    };
}

thread_local_word!(
    /// Returns the thread's word: 0, [`BYPASS`], or the address of its record.
    "bywash_thread", word,
    /// Sets the thread's word.
    set_word
);
thread_local_word!(
    /// Returns [`blocked`] as a word.
    "bywash_blocked", blocked_word,
    /// Sets [`blocked_word`].
    set_blocked_word
);
thread_local_word!(
    /// Returns [`waiting`] as a word.
    "bywash_waiting", waiting_word,
    /// Sets [`waiting_word`].
    set_waiting_word
);

/// Returns the fault signals that the program believes to be blocked in the calling thread.
pub fn blocked() -> SignalSet {
    blocked_word() as SignalSet
}

/// Sets the value of [`blocked`].
pub fn set_blocked(signals: SignalSet) {
    set_blocked_word(signals as usize);
}

/// Returns the fault signals that the kernel really blocks in the calling thread, because a sent one waits
/// until the program unblocks it, or because a child is about to inherit the mask. A copy that faulted with
/// such a signal blocked would kill the process.
#[inline(always)]
pub fn waiting() -> SignalSet {
    waiting_word() as SignalSet
}

/// Sets the value of [`waiting`].
pub fn set_waiting(signals: SignalSet) {
    set_waiting_word(signals as usize);
}

/// Returns true if the code runs in a vfork child.
#[inline]
pub fn bypassed() -> bool {
    word() == BYPASS
}

/// Calls and bytes that a thread has counted for one file and not added to the file yet.
#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) file: AtomicUsize,
    pub(crate) serial: AtomicU32,
    pub(crate) usage: [AtomicU64; 4],
}

/// Record of one thread. Other threads read only `hazard`, `busy` and `in_use`.
#[repr(C, align(128))]
pub struct Thread {
    /// Address of the open file whose memory the thread uses; 0: none; 1: the thread runs a handler of the
    /// program.
    pub hazard: AtomicUsize,
    /// Stack pointer in a write through the kernel that passed no gate because the thread was alone; 0: none.
    pub busy: AtomicUsize,
    /// Stack pointer of the function that set the hazard, or [`crate::hazards::SUSPENDED`].
    pub(crate) frame: Cell<usize>,
    /// Gate that the thread is inside of.
    gate: Cell<Option<&'static Gate>>,
    inside: Cell<Inside>,
    /// Stack pointer of the function that entered the gate.
    gate_frame: Cell<usize>,
    /// 1 if the record belongs to a thread, 0 if it is free.
    in_use: AtomicU32,
    shard: Cell<Option<Shard>>,
    pub(crate) tallies: [Tally; TALLIES],
    /// Budget of the thread for warming.
    pub account: Account,
    /// State of the generator of random numbers ([`Thread::draw_lot`]).
    lots: Cell<u32>,
}

impl Thread {
    /// Returns true at random, once in `times` calls on average.
    #[inline]
    pub(crate) fn draw_lot(&self, times: u32) -> bool {
        const MULTIPLIER: u32 = 747_796_405;
        const INCREMENT: u32 = 2_891_336_453;
        let drawn = self.lots.get().wrapping_mul(MULTIPLIER).wrapping_add(INCREMENT);
        self.lots.set(drawn);
        (u64::from(drawn) * u64::from(times)) >> 32 == 0
    }

    /// Adds `more` to a counter of the thread, if the process has a record to count into.
    #[inline(always)]
    pub fn count(&self, counter: Counter, more: u64) {
        if let Some(shard) = self.shard.get() {
            shard.add(counter, more);
        }
    }

    /// Counts a call that the kernel serves for this reason.
    #[inline]
    pub fn count_fallback(&self, reason: FallbackReason) {
        self.count(reason.counter(), 1);
    }

    /// Returns true if this code runs in a signal handler that interrupted a write of the thread through the
    /// kernel.
    pub(crate) fn is_busy(&self) -> bool {
        if self.busy.load(Relaxed) != 0 || self.gate.get().is_some() {
            self.ends_writes_left_for(stack::pointer());
        }
        self.busy.load(Relaxed) != 0
    }

    /// Ends the write and leaves the gate that a thread with this stack pointer does not return to.
    pub(crate) fn ends_writes_left_for(&self, stack_pointer: usize) {
        let frame = self.busy.load(Relaxed);
        if frame != 0 && stack::is_left(frame, stack_pointer) {
            self.busy.store(0, Ordering::Release);
        }
        if self.gate.get().is_some() && stack::is_left(self.gate_frame.get(), stack_pointer) {
            self.abandon_gate();
        }
    }

    /// Leaves the gate that the record notes.
    fn abandon_gate(&self) {
        if let Some(gate) = self.gate.take() {
            match self.inside.get() {
                Inside::Mapped => gate.leave_mapped(self.token()),
                Inside::Kernel => gate.leave_kernel(false),
                Inside::KernelNoticed => gate.leave_kernel(true),
            }
        }
    }

    /// Notes that the thread enters `gate`, so that the gate is left if the thread jumps out. Returns false
    /// if another gate is noted already, which then stays.
    pub(crate) fn enters(&self, gate: &'static Gate, how: Inside) -> bool {
        if self.gate.get().is_some() {
            return false;
        }
        self.inside.set(how);
        self.gate_frame.set(stack::pointer());
        self.gate.set(Some(gate));
        true
    }

    /// Returns a number, not zero, that no other thread of the process has.
    #[inline(always)]
    pub(crate) fn token(&self) -> u32 {
        (core::ptr::from_ref(self) as usize / align_of::<Thread>()) as u32 | 1 << 31
    }

    /// Removes the note of the gate, which the thread has left.
    pub(crate) fn leaves(&self) {
        self.gate.set(None);
    }

    /// Returns true if a jump of this thread may leave a copy or a write unfinished.
    #[inline]
    pub fn is_in_the_middle(&self) -> bool {
        self.hazard.load(Relaxed) != 0 || self.busy.load(Relaxed) != 0 || self.gate.get().is_some()
    }

    /// Returns the shard of counters to the process's record.
    pub(crate) fn return_shard(&self) {
        if let (Some(record), Some(shard)) = (state::record(), self.shard.take()) {
            record.return_shard(shard);
        }
    }

    /// Frees the record for another thread. No copy uses it any more.
    pub(crate) fn free(&self) {
        self.abandon_gate();
        self.busy.store(0, Ordering::Release);
        self.in_use.store(0, Ordering::Release);
    }
}

/// Kind of presence of a thread in a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Inside {
    /// The thread copies into a mapping.
    Mapped,
    /// The thread makes a system call that readers of the file must notice.
    KernelNoticed,
    /// The thread makes a system call that readers need not notice.
    Kernel,
}

// SAFETY: all-zero bytes are valid in every field, and only the record's own thread uses the cells.
unsafe impl Zeroed for Thread {}
pub(crate) static RECORDS: Pool<Thread> = Pool::new(THREADS_MAX, InChild::Wiped);
/// Flag that more than one thread has had a record.
pub static CROWD: Crowd = Crowd::new();
/// Number of records that have been used.
static HIGHEST: AtomicUsize = AtomicUsize::new(0);

/// Makes a forked child a process of one thread, which has no record yet.
pub(crate) fn reset_child() {
    put_back!(HIGHEST, 0);
    CROWD.reset_child();
    set_word(0);
}

/// Returns the calling thread's record, and registers the thread on first use; `None` if it cannot have one.
#[inline(always)]
pub fn current() -> Option<&'static Thread> {
    let word = word();
    if word > BYPASS {
        // SAFETY: a word above BYPASS is the address of this thread's record, which is never unmapped.
        return Some(unsafe { &*(word as *const Thread) });
    }
    register(word)
}

/// Returns the calling thread's record, if it has one.
#[inline]
pub fn known() -> Option<&'static Thread> {
    let word = word();
    // SAFETY: a word above BYPASS is the address of this thread's record, which is never unmapped.
    (word > BYPASS).then(|| unsafe { &*(word as *const Thread) })
}

/// Adds `more` to a counter of the calling thread; does nothing if the thread has no record.
pub fn count(counter: Counter, more: u64) {
    if let Some(thread) = known() {
        thread.count(counter, more);
    }
}

#[cold]
fn register(word: usize) -> Option<&'static Thread> {
    // A record would unblock the fault signals in the kernel, but a signal that was sent while the program
    // blocks it must stay pending. So such a thread gets no record.
    if word == BYPASS || !state::is_ready() || sys::pending_signals() & FAULT_SIGNALS != 0 {
        return None;
    }
    if !CROWD.join(|| in_use().map(|thread| &thread.busy)) {
        return None;
    }
    for index in 0..THREADS_MAX {
        let thread = RECORDS.get_or_grow(index)?;
        if thread.in_use.load(Relaxed) != 0
            || thread.in_use.compare_exchange(0, 1, Ordering::Acquire, Relaxed).is_err()
        {
            continue;
        }
        HIGHEST.fetch_max(index + 1, Ordering::SeqCst);
        thread.shard.set(state::record().map(|record| record.take_shard()));
        thread.account.reset();
        set_waiting(0);
        let were_blocked = sys::change_mask(MaskChange::Unblock, FAULT_SIGNALS) & FAULT_SIGNALS;
        set_blocked(blocked() | were_blocked);
        set_word(core::ptr::from_ref(thread) as usize);
        if let Some(hooks) = state::hooks() {
            (hooks.on_register)();
        }
        return Some(thread);
    }
    None
}

/// Returns true if no other thread has had a record so far. A thread that gets a record later passes a full
/// fence before it reads any table.
pub fn alone() -> bool {
    HIGHEST.load(Ordering::SeqCst) <= usize::from(known().is_some())
}

/// Returns every record that has been used, also those that are free again.
fn records() -> impl Iterator<Item = &'static Thread> {
    (0..HIGHEST.load(Ordering::Acquire)).filter_map(|index| RECORDS.get(index))
}

/// Returns every record that belongs to a thread.
fn in_use() -> impl Iterator<Item = &'static Thread> {
    records().filter(|thread| thread.in_use.load(Ordering::Acquire) != 0)
}

/// Returns the hazards of all threads.
pub fn hazards() -> impl Iterator<Item = &'static AtomicUsize> {
    records().map(|thread| &thread.hazard)
}

/// Returns the hazards of all threads but the calling one.
pub fn other_hazards() -> impl Iterator<Item = &'static AtomicUsize> {
    let mine = known().map(|thread| &raw const thread.hazard);
    hazards().filter(move |hazard| Some(&raw const **hazard) != mine)
}
