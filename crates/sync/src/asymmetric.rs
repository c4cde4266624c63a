//! A pair of fences of which one is nearly free.
//!
//! Invariant: if thread A does `store x; light_fence(); load y` and thread B does `store y; heavy_fence();
//! load x`, then at least one of them sees the other's store. Where the kernel lacks membarrier(2) both
//! fences are ordinary full fences: [`prepare_fences`] finds out, once, before the first use.
//!
//! The *shared* pair does the same between processes (`MEMBARRIER_CMD_GLOBAL_EXPEDITED`). There whoever uses
//! a pair says whether both parties have prepared.

#[cfg(not(loom))]
mod real {
    use core::sync::atomic::{AtomicBool, Ordering::Relaxed, Ordering::SeqCst, compiler_fence, fence};

    /// True when the heavy fence reaches every thread of the process by itself. It is written in every process at its
    /// start, so it lies among data that is written then anyway, and not on a page of its own.
    #[unsafe(link_section = ".data")]
    static EXPEDITED: AtomicBool = AtomicBool::new(false);

    const GLOBAL_EXPEDITED: usize = 1 << 1;
    const REGISTER_GLOBAL_EXPEDITED: usize = 1 << 2;
    const REGISTER_PRIVATE_EXPEDITED: usize = 1 << 4;
    const PRIVATE_EXPEDITED: usize = 1 << 3;

    /// Registers the process with the kernel; to be called before the first fence, and again in a forked
    /// child.
    pub fn prepare_fences() {
        let is_there = membarrier(REGISTER_PRIVATE_EXPEDITED) == 0;
        // In a forked child a store would copy the page.
        if EXPEDITED.load(Relaxed) != is_there {
            EXPEDITED.store(is_there, Relaxed);
        }
    }

    /// The frequent side: no instruction at all where membarrier(2) is there, a full fence elsewhere.
    #[inline(always)]
    pub fn light_fence() {
        if EXPEDITED.load(Relaxed) {
            compiler_fence(SeqCst);
        } else {
            fence(SeqCst);
        }
    }

    /// The rare side: a full fence on every thread of this process (some microseconds).
    pub fn heavy_fence() {
        fence(SeqCst);
        if EXPEDITED.load(Relaxed) {
            let answer = membarrier(PRIVATE_EXPEDITED);
            assert!(answer == 0, "membarrier was registered and yet refused");
        }
    }

    /// Asks that the heavy fences of other processes reach the threads of this one. False: the kernel does not
    /// offer that, and every fence between processes must be a full one.
    pub fn prepare_shared_fences() -> bool {
        membarrier(REGISTER_GLOBAL_EXPEDITED) == 0
    }

    /// The frequent side between processes: no instruction where both parties are `prepared`.
    #[inline(always)]
    pub fn light_shared_fence(prepared: bool) {
        if prepared {
            compiler_fence(SeqCst);
        } else {
            fence(SeqCst);
        }
    }

    /// The rare side between processes: a full fence on every thread of every process that has prepared
    /// (some microseconds).
    pub fn heavy_shared_fence(prepared: bool) {
        fence(SeqCst);
        if prepared {
            // It was registered, so it is there. Were it refused, a wake-up would be late, not lost: whoever
            // waits looks again before long.
            membarrier(GLOBAL_EXPEDITED);
        }
    }

    #[cfg(target_arch = "x86_64")]
    fn membarrier(command: usize) -> isize {
        const SYS_MEMBARRIER: isize = 324;
        let answer: isize;
        // SAFETY: membarrier(2) takes three integers and touches no memory of ours; the instruction
        // clobbers rcx and r11 as declared.
        unsafe {
            core::arch::asm!(
                "syscall",
                inlateout("rax") SYS_MEMBARRIER => answer,
                in("rdi") command, in("rsi") 0, in("rdx") 0,
                lateout("rcx") _, lateout("r11") _, options(nostack),
            );
        }
        answer
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn membarrier(_command: usize) -> isize {
        -1
    }
}

#[cfg(loom)]
mod real {
    use loom::sync::atomic::{Ordering::SeqCst, fence};

    /// Nothing to prepare in the model.
    pub fn prepare_fences() {}

    /// In the model both sides are full fences.
    pub fn light_fence() {
        fence(SeqCst);
    }

    /// In the model both sides are full fences.
    pub fn heavy_fence() {
        fence(SeqCst);
    }

    /// Nothing to prepare in the model.
    pub fn prepare_shared_fences() -> bool {
        true
    }

    /// In the model both sides are full fences.
    pub fn light_shared_fence(_prepared: bool) {
        fence(SeqCst);
    }

    /// In the model both sides are full fences.
    pub fn heavy_shared_fence(_prepared: bool) {
        fence(SeqCst);
    }
}

pub use real::{
    heavy_fence, heavy_shared_fence, light_fence, light_shared_fence, prepare_fences, prepare_shared_fences,
};
