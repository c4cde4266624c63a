//! A cell whose exclusive use somebody else's protocol sees to, and which loom checks.

/// A value that is reached by one thread at a time, as some protocol of atomics sees to.
#[derive(Debug, Default)]
pub struct Cell<T>(Inner<T>);

#[cfg(not(loom))]
type Inner<T> = core::cell::UnsafeCell<T>;
#[cfg(loom)]
type Inner<T> = loom::cell::UnsafeCell<T>;

// SAFETY: whoever calls `with` promises that no other thread does so meanwhile.
unsafe impl<T: Send> Sync for Cell<T> {}

impl<T> Cell<T> {
    /// A cell with a value in it.
    pub fn new(value: T) -> Cell<T> {
        Cell(Inner::new(value))
    }

    /// Uses the value.
    ///
    /// # Safety
    /// Nobody else does so until `use_it` returns, and what others did before happened before this call.
    #[inline(always)]
    pub unsafe fn with<R>(&self, use_it: impl FnOnce(&mut T) -> R) -> R {
        #[cfg(not(loom))]
        let value = self.0.get();
        #[cfg(not(loom))]
        // SAFETY: the caller promises that nobody else uses the value until `use_it` returns.
        return use_it(unsafe { &mut *value });
        #[cfg(loom)]
        // SAFETY: the caller promises that nobody else uses the value until `use_it` returns, which loom checks.
        return self.0.with_mut(|value| use_it(unsafe { &mut *value }));
    }
}
