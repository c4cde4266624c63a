//! One record for each thread that uses the data path: its hazard, its counters, its signal mask.
//!
//! The record is found through one word of thread-local storage in the initial-exec model (a single load,
//! no call), which stable Rust reaches only by assembly. The word has three kinds of values: 0, the thread
//! has no record yet; [`BYPASS`], the code runs in a vfork child on borrowed memory and must not touch any
//! of our tables; else the record's address.
//!
//! Two more words of thread-local storage say how the program's view of the signal mask differs from the
//! kernel's ([`blocked`], [`waiting`]). They hold for threads without a record too, and a forked child keeps them.
//!
//! Records live in memory that a forked child finds wiped, and are never unmapped.

use crate::account::Account;
use crate::crowd::Crowd;
use crate::gate::Gate;
use crate::open_file;
use crate::pool::{InChild, Pool, Zeroed};
use crate::process;
use crate::reclaim;
use crate::stack;
use crate::sys::{self, MaskChange, SignalSet};
use bywash_session::{Counter, FallbackReason, Shard};
use bywash_sync::{AtomicU32, AtomicU64, AtomicUsize, Ordering, Ordering::Relaxed};
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
            // SAFETY: reads the calling thread's own eight bytes, whose offset the linker puts into the GOT.
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
            // SAFETY: writes the calling thread's own eight bytes.
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
    /// The thread's word.
    "bywash_thread", word,
    /// Sets the thread's word.
    set_word
);
thread_local_word!(
    /// [`blocked`] as a word.
    "bywash_blocked", blocked_word,
    /// Sets [`blocked_word`].
    set_blocked_word
);
thread_local_word!(
    /// [`waiting`] as a word.
    "bywash_waiting", waiting_word,
    /// Sets [`waiting_word`].
    set_waiting_word
);

/// Fault signals that the program believes to be blocked in the calling thread.
pub fn blocked() -> SignalSet {
    blocked_word() as SignalSet
}

/// Sets what [`blocked`] answers.
pub fn set_blocked(signals: SignalSet) {
    set_blocked_word(signals as usize);
}

/// Fault signals that are blocked indeed in the calling thread, because one sent by somebody waits for the
/// program to let it through, or because a child is about to inherit the mask. A copy that faulted now would
/// kill the process.
#[inline(always)]
pub fn waiting() -> SignalSet {
    waiting_word() as SignalSet
}

/// Sets what [`waiting`] answers.
pub fn set_waiting(signals: SignalSet) {
    set_waiting_word(signals as usize);
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

/// One thread's record. Only `hazard` and `busy` are read by others.
#[repr(C, align(128))]
pub struct Thread {
    /// The open file whose memory the thread uses just now; 0: none.
    pub hazard: AtomicUsize,
    /// Stack pointer in a write through the kernel for which the thread passed no gate; 0: none.
    pub busy: AtomicUsize,
    /// Stack pointer of the function that set the hazard, or [`SUSPENDED`].
    frame: Cell<usize>,
    /// Gate that the thread is inside of.
    gate: Cell<Option<&'static Gate>>,
    inside: Cell<Inside>,
    /// Stack pointer of the function that passed the gate.
    gate_frame: Cell<usize>,
    in_use: AtomicU32,
    shard: Cell<Option<Shard>>,
    pub(crate) tallies: [Tally; TALLIES],
    /// What warming may cost.
    pub account: Account,
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
    /// handler, or a fault signal is blocked indeed. A copy that the thread has left by a jump is forgotten.
    #[inline(always)]
    pub fn nested(&self) -> bool {
        (self.hazard.load(Relaxed) != 0 && !self.has_left_copy()) || waiting() != 0
    }

    /// Whether the thread is in a write through the kernel, interrupted by this code.
    pub(crate) fn is_busy(&self) -> bool {
        if self.busy.load(Relaxed) != 0 || self.gate.get().is_some() {
            self.ends_writes_left_for(stack::pointer());
        }
        self.busy.load(Relaxed) != 0
    }

    /// Publishes that the thread uses what `source` names, if it still names `wanted`; until [`Self::release`].
    #[inline(always)]
    pub(crate) fn protect(&self, source: &AtomicUsize, wanted: usize) -> bool {
        self.frame.set(stack::pointer());
        let protected = reclaim::protect(&self.hazard, source, wanted);
        if !protected {
            // Closed meanwhile, perhaps by a handler of this thread, which found the hazard in its way.
            open_file::after_release(wanted);
        }
        protected
    }

    /// The thread no longer uses what it protected.
    #[inline(always)]
    pub(crate) fn release(&self) {
        reclaim::release(&self.hazard);
    }

    /// Runs `handler`, the program's for a fault signal, without copies: it may fault in one of its own while
    /// the signal is blocked.
    pub fn without_copies(&self, handler: impl FnOnce()) {
        let (hazard, frame) = (self.hazard.load(Relaxed), self.frame.get());
        if hazard == 0 {
            self.frame.set(stack::pointer());
            self.hazard.store(HANDLING, Relaxed);
        }
        handler();
        self.frame.set(frame);
        self.hazard.store(hazard, Ordering::Release);
    }

    /// Whether the thread has left what protected something, which is then forgotten.
    #[cold]
    fn has_left_copy(&self) -> bool {
        let left = stack::is_left(self.frame.get(), stack::pointer());
        if left {
            self.abandon_copy();
        }
        left
    }

    /// Forgets a copy that does not go on.
    fn abandon_copy(&self) {
        let hazard = self.hazard.swap(0, Ordering::AcqRel);
        if hazard > HANDLING {
            open_file::after_release(hazard);
        }
    }

    /// The thread jumps to a function whose stack pointer is `target`.
    #[cold]
    pub fn jumps_to(&self, target: usize) {
        if self.hazard.load(Relaxed) != 0 && stack::is_left(self.frame.get(), target) {
            self.abandon_copy();
        }
        self.ends_writes_left_for(target);
    }

    /// Forgets a write, and leaves the gate, that a thread with this stack pointer does not come back to.
    fn ends_writes_left_for(&self, stack_pointer: usize) {
        let frame = self.busy.load(Relaxed);
        if frame != 0 && stack::is_left(frame, stack_pointer) {
            self.busy.store(0, Ordering::Release);
        }
        if self.gate.get().is_some() && stack::is_left(self.gate_frame.get(), stack_pointer) {
            self.abandon_gate();
        }
    }

    /// Leaves the gate that the thread is inside of.
    fn abandon_gate(&self) {
        if let Some(gate) = self.gate.take() {
            match self.inside.get() {
                Inside::Mapped => gate.leave_mapped(self.token()),
                Inside::Kernel => gate.leave_kernel(false),
                Inside::KernelNoticed => gate.leave_kernel(true),
            }
        }
    }

    /// Notes that the thread has passed `gate`, so that it can leave it should it jump out; false: it is
    /// inside another, and this one is not noted.
    pub(crate) fn enters(&self, gate: &'static Gate, how: Inside) -> bool {
        if self.gate.get().is_some() {
            return false;
        }
        self.inside.set(how);
        self.gate_frame.set(stack::pointer());
        self.gate.set(Some(gate));
        true
    }

    /// A number that no other thread of the process has, and not zero.
    #[inline(always)]
    pub(crate) fn token(&self) -> u32 {
        (core::ptr::from_ref(self) as usize / align_of::<Thread>()) as u32 | 1 << 31
    }

    /// The thread has left the gate that was noted.
    pub(crate) fn leaves(&self) {
        self.gate.set(None);
    }

    /// Whether a jump of this thread may leave something behind.
    #[inline]
    pub fn is_in_the_middle(&self) -> bool {
        self.hazard.load(Relaxed) != 0 || self.busy.load(Relaxed) != 0 || self.gate.get().is_some()
    }

    /// The thread saves a context to which it may come back from anywhere: a copy that is interrupted now may
    /// go on later, and nothing but its end ends it.
    pub fn saves_context(&self) {
        if self.hazard.load(Relaxed) != 0 {
            self.frame.set(SUSPENDED);
        }
    }
}

/// How a thread is inside a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Inside {
    /// It copies into a mapping.
    Mapped,
    /// It makes a system call, of which readers must know.
    KernelNoticed,
    /// It makes a system call.
    Kernel,
}

/// A hazard that names no file: the thread runs the program's handler of a fault signal.
const HANDLING: usize = 1;
/// Frame of a copy that may go on although the thread is elsewhere on its stacks.
const SUSPENDED: usize = usize::MAX;

// SAFETY: zeroes are valid in every field, and the cells are used by the record's thread alone.
unsafe impl Zeroed for Thread {}
pub(crate) static RECORDS: Pool<Thread> = Pool::new(THREADS_MAX, InChild::Wiped);
/// Whether more than one thread has a record.
pub static CROWD: Crowd = Crowd::new();
static HIGHEST: AtomicUsize = AtomicUsize::new(0);

/// In a forked child: this thread is the only one and starts afresh.
pub(crate) fn reset_child() {
    put_back!(HIGHEST, 0);
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
    // A fault signal that somebody sent and the program blocks must go on waiting: no record, no copies.
    if word == BYPASS || !process::is_ready() || sys::pending_signals() & FAULT_SIGNALS != 0 {
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
        thread.shard.set(process::record().map(|record| record.take_shard()));
        thread.account.reset();
        set_waiting(0);
        let were_blocked = sys::change_mask(MaskChange::Unblock, FAULT_SIGNALS) & FAULT_SIGNALS;
        set_blocked(blocked() | were_blocked);
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
    thread.abandon_copy();
    thread.abandon_gate();
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
    (0..HIGHEST.load(Ordering::Acquire)).filter_map(|index| RECORDS.get(index))
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
