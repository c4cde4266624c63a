//! Mutex in memory that processes share, which survives the death of its owner.
//!
//! It is the C library's robust, error-checking mutex: the kernel unlocks it when its owner ends in whatever way, and
//! tells the next owner, who repairs what the mutex protects. A thread that already has it (in a signal handler) is
//! refused instead of waiting for itself.

use core::cell::UnsafeCell;
use core::mem::MaybeUninit;

/// Mutex that processes share. It lies in shared memory only, and is used after [`RobustMutex::init`].
#[repr(C, align(8))]
pub struct RobustMutex(UnsafeCell<MaybeUninit<libc::pthread_mutex_t>>);

// SAFETY: the C library's functions, which are the only access, order themselves between threads.
unsafe impl Sync for RobustMutex {}

/// State in which a mutex was locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Previous {
    /// Its last owner unlocked it.
    Unlocked,
    /// Its last owner ended with it: what it protects may be half changed.
    Died,
}

/// Locked mutex, unlocked when dropped.
#[derive(Debug)]
pub struct Locked<'a> {
    mutex: &'a RobustMutex,
    /// State in which the mutex was found.
    pub previous: Previous,
}

impl core::fmt::Debug for RobustMutex {
    fn fmt(&self, to: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        to.write_str("RobustMutex")
    }
}

impl RobustMutex {
    /// Makes the mutex usable, unlocked. Returns false if the C library refuses.
    ///
    /// # Safety
    /// Nobody uses the mutex yet.
    pub unsafe fn init(&self) -> bool {
        // SAFETY: the attributes are a local variable; the caller promises that the mutex is not in use.
        unsafe {
            let mut attributes = MaybeUninit::<libc::pthread_mutexattr_t>::uninit();
            let attributes = attributes.as_mut_ptr();
            libc::pthread_mutexattr_init(attributes) == 0
                && libc::pthread_mutexattr_setpshared(attributes, libc::PTHREAD_PROCESS_SHARED) == 0
                && libc::pthread_mutexattr_setrobust(attributes, libc::PTHREAD_MUTEX_ROBUST) == 0
                && libc::pthread_mutexattr_settype(attributes, libc::PTHREAD_MUTEX_ERRORCHECK) == 0
                && libc::pthread_mutex_init(self.raw(), attributes) == 0
                && libc::pthread_mutexattr_destroy(attributes) == 0
        }
    }

    /// Waits for the mutex; `None` if this thread has it already.
    pub fn lock(&self) -> Option<Locked<'_>> {
        // SAFETY: the mutex was initialised, and is never destroyed.
        self.locked(unsafe { libc::pthread_mutex_lock(self.raw()) })
    }

    /// Takes the mutex if nobody has it.
    pub fn try_lock(&self) -> Option<Locked<'_>> {
        // SAFETY: the mutex was initialised, and is never destroyed.
        self.locked(unsafe { libc::pthread_mutex_trylock(self.raw()) })
    }

    fn locked(&self, answer: i32) -> Option<Locked<'_>> {
        let previous = match answer {
            0 => Previous::Unlocked,
            libc::EOWNERDEAD => {
                // SAFETY: this thread has the mutex, in the state that the call ends.
                unsafe { libc::pthread_mutex_consistent(self.raw()) };
                Previous::Died
            }
            _ => return None,
        };
        Some(Locked { mutex: self, previous })
    }

    fn raw(&self) -> *mut libc::pthread_mutex_t {
        self.0.get().cast()
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        // SAFETY: this thread has locked the mutex.
        unsafe { libc::pthread_mutex_unlock(self.mutex.raw()) };
    }
}
