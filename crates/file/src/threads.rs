//! One record for each thread that uses the data path: its hazard, its counters, its signal mask.
//!
//! The record is found through one word of thread-local storage in the initial-exec model (a single load,
//! no call), which stable Rust reaches only by assembly. The word has three kinds of values: 0, the thread
//! has no record yet; [`BYPASS`], the code runs in a vfork child on borrowed memory and must not touch any
//! of our tables; else the record's address.
//!
//! Records live in memory that a forked child finds wiped, and are never unmapped.

use crate::crowd::Crowd;
use crate::process;
use crate::sys::{self, MaskChange, SignalSet};
use bywash_session::{Counter, FallbackReason, Shard};
use bywash_sync::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, Ordering::Relaxed};
use core::arch::{asm, global_asm};
use core::cell::Cell;

/// Threads that can have a record at a time; the others go to the kernel with every call.
pub const THREADS_MAX: usize = 512;
/// The thread runs in a vfork child.
pub const BYPASS: usize = 1;
/// SIGBUS (7) and SIGSEGV (11): what a copy may raise, so never blocked in the kernel's view.
pub const FAULT_SIGNALS: SignalSet = 1 << 6 | 1 << 10;
const TALLIES: usize = 4;

global_asm!(
    ".pushsection .tbss,\"awT\",@nobits",
    ".p2align 3",
    ".globl bywash_thread",
    ".hidden bywash_thread",
    ".type bywash_thread,@object",
    ".size bywash_thread, 8",
    "bywash_thread: .zero 8",
    ".popsection",
);

/// The thread's word.
#[inline(always)]
pub fn word() -> usize {
    let word: usize;
    // SAFETY: reads the calling thread's own eight bytes, whose offset the linker puts into the GOT.
    unsafe {
        asm!(
            "mov {word}, qword ptr [rip + bywash_thread@GOTTPOFF]",
            "mov {word}, qword ptr fs:[{word}]",
            word = out(reg) word, options(nostack, readonly, preserves_flags, pure),
        );
    }
    word
}

/// Sets the thread's word.
pub fn set_word(word: usize) {
    // SAFETY: writes the calling thread's own eight bytes.
    unsafe {
        asm!(
            "mov {at}, qword ptr [rip + bywash_thread@GOTTPOFF]",
            "mov qword ptr fs:[{at}], {word}",
            at = out(reg) _, word = in(reg) word, options(nostack, preserves_flags),
        );
    }
}

/// Whether the code runs in a vfork child.
#[inline]
pub fn bypassed() -> bool {
    word() == BYPASS
}

/// What a thread counted for one file and has not handed on yet.
#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) file: AtomicUsize,
    pub(crate) serial: AtomicU32,
    pub(crate) usage: [AtomicU64; 4],
}

/// One thread's record. Only `hazard` is read by others.
#[repr(C, align(128))]
pub struct Thread {
    /// The open file whose memory the thread uses just now; 0: none.
    pub hazard: AtomicUsize,
    /// The thread is in a write through the kernel for which it passed no gate.
    pub busy: AtomicUsize,
    in_use: AtomicU32,
    shard: Cell<Option<Shard>>,
    /// Which of [`FAULT_SIGNALS`] the program believes to be blocked.
    pub blocked: Cell<SignalSet>,
    /// Which of them came from somebody meanwhile and wait in the kernel, blocked indeed, until the program
    /// lets them through. A copy that faulted now would kill the process.
    pub waiting: Cell<SignalSet>,
    pub(crate) tallies: [Tally; TALLIES],
    lots: Cell<u32>,
}

impl Thread {
    /// Draws a lot that wins once in `times` draws, on average.
    #[inline]
    pub(crate) fn draw_lot(&self, times: u32) -> bool {
        const MULTIPLIER: u32 = 747_796_405;
        const INCREMENT: u32 = 2_891_336_453;
        let drawn = self.lots.get().wrapping_mul(MULTIPLIER).wrapping_add(INCREMENT);
        self.lots.set(drawn);
        (u64::from(drawn) * u64::from(times)) >> 32 == 0
    }

    /// Adds to a counter.
    #[inline(always)]
    pub fn count(&self, counter: Counter, more: u64) {
        if let Some(shard) = self.shard.get() {
            shard.add(counter, more);
        }
    }

    /// Counts a call that goes to the kernel.
    #[inline]
    pub fn count_fallback(&self, reason: FallbackReason) {
        self.count(reason.counter(), 1);
    }

    /// Whether a copy must not begin: one of this thread was interrupted and this code runs in a signal
    /// handler, or a fault signal is blocked indeed.
    #[inline(always)]
    pub fn nested(&self) -> bool {
        self.hazard.load(Relaxed) != 0 || self.waiting.get() != 0
    }
}

static RECORDS: AtomicPtr<Thread> = AtomicPtr::new(core::ptr::null_mut());
/// Whether more than one thread has a record.
pub static CROWD: Crowd = Crowd::new();
static HIGHEST: AtomicUsize = AtomicUsize::new(0);

/// Makes room for the records.
pub(crate) fn prepare() -> bool {
    let bytes = THREADS_MAX * size_of::<Thread>();
    let Some(at) = sys::map_memory(bytes) else { return false };
    if !sys::advise(at, bytes, sys::Advice::WipeOnFork) {
        return false;
    }
    RECORDS.store(at.cast(), Ordering::Release);
    true
}

/// In a forked child: this thread is the only one and starts afresh.
pub(crate) fn reset_child() {
    HIGHEST.store(0, Relaxed);
    CROWD.reset_child();
    set_word(0);
}

/// The calling thread's record, made on first use.
#[inline(always)]
pub fn current() -> Option<&'static Thread> {
    let word = word();
    if word > BYPASS {
        // SAFETY: a word above BYPASS is the address of this thread's record, which stays mapped.
        return Some(unsafe { &*(word as *const Thread) });
    }
    register(word)
}

/// The calling thread's record if it has one.
#[inline]
pub fn known() -> Option<&'static Thread> {
    let word = word();
    // SAFETY: as in `current`.
    (word > BYPASS).then(|| unsafe { &*(word as *const Thread) })
}

#[cold]
fn register(word: usize) -> Option<&'static Thread> {
    let base = RECORDS.load(Ordering::Acquire);
    // A fault signal that somebody sent and the program blocks must go on waiting: no record, no copies.
    if word == BYPASS || base.is_null() || sys::pending_signals() & FAULT_SIGNALS != 0 {
        return None;
    }
    if !CROWD.join(|| in_use().map(|thread| &thread.busy)) {
        return None;
    }
    for index in 0..THREADS_MAX {
        // SAFETY: `base` has THREADS_MAX records; zeroes are a valid record.
        let thread = unsafe { &*base.add(index) };
        if thread.in_use.load(Relaxed) != 0
            || thread.in_use.compare_exchange(0, 1, Ordering::Acquire, Relaxed).is_err()
        {
            continue;
        }
        HIGHEST.fetch_max(index + 1, Ordering::SeqCst);
        thread.shard.set(process::record().map(|record| record.take_shard()));
        thread.waiting.set(0);
        thread.blocked.set(sys::change_mask(MaskChange::Unblock, FAULT_SIGNALS) & FAULT_SIGNALS);
        set_word(core::ptr::from_ref(thread) as usize);
        if let Some(hooks) = process::hooks() {
            (hooks.on_register)(thread);
        }
        return Some(thread);
    }
    None
}

/// The thread ends: its record is free for another.
pub fn unregister(thread: &'static Thread) {
    crate::usage::hand_on(thread);
    if let (Some(record), Some(shard)) = (process::record(), thread.shard.take()) {
        record.return_shard(shard);
    }
    set_word(0);
    thread.hazard.store(0, Ordering::Release);
    thread.busy.store(0, Ordering::Release);
    thread.in_use.store(0, Ordering::Release);
}

/// Whether no thread but this one has had a record so far. A thread that gets one later passes a full fence
/// before it looks at any table.
pub fn alone() -> bool {
    HIGHEST.load(Ordering::SeqCst) <= usize::from(known().is_some())
}

/// All records that have been used.
fn records() -> impl Iterator<Item = &'static Thread> {
    let base = RECORDS.load(Ordering::Acquire);
    // SAFETY: as in `register`.
    (0..HIGHEST.load(Ordering::Acquire)).map(move |index| unsafe { &*base.add(index) })
}

/// The records of threads.
fn in_use() -> impl Iterator<Item = &'static Thread> {
    records().filter(|thread| thread.in_use.load(Ordering::Acquire) != 0)
}

/// The hazards of all threads.
pub fn hazards() -> impl Iterator<Item = &'static AtomicUsize> {
    records().map(|thread| &thread.hazard)
}

/// The hazards of all threads but this one.
pub fn other_hazards() -> impl Iterator<Item = &'static AtomicUsize> {
    let mine = known().map(|thread| &raw const thread.hazard);
    hazards().filter(move |hazard| Some(&raw const **hazard) != mine)
}
