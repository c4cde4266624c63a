//! Counters of the operations of an end.

use bywash_sync::{AtomicU64, Ordering::Relaxed};

/// A counter to which, mostly, one thread at a time adds.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `more`. The load and the store are separate, since an atomic addition costs more: concurrent
    /// additions may get lost.
    #[inline(always)]
    pub fn add(&self, more: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(more), Relaxed);
    }

    /// Raises the count to `least` if it is lower; as [`Counter::add`], for one thread at a time.
    #[inline]
    pub fn raise(&self, least: u64) {
        self.set(self.get().max(least));
    }

    /// Replaces the count.
    #[inline]
    pub fn set(&self, count: u64) {
        self.0.store(count, Relaxed);
    }

    /// Returns the present count.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// Counters of an end's waits and of its peer's wake-ups.
#[derive(Debug, Default)]
pub struct Waits {
    /// Waits that ended while the end was spinning.
    pub spins: Counter,
    /// Spins that were given up.
    pub vain_spins: Counter,
    /// Sleeps that began with a fence on all cores (membarrier(2)).
    pub heavy_fences: Counter,
    /// Sleeps on a futex.
    pub futex_sleeps: Counter,
    /// Sleeps on the socket.
    pub socket_sleeps: Counter,
    /// Wake-ups of the peer by a futex.
    pub futex_wakes: Counter,
    /// Wake-ups of the peer by a doorbell through the socket.
    pub doorbells: Counter,
}

/// Defines `Counters`, which an end updates, and `Stats`, which its users read. Both have the named counts
/// and those of [`Waits`](crate::Waits). The figures after `=>` are only in `Stats`: `Counters::read` sets
/// them to 0, and the end fills them in.
#[macro_export]
macro_rules! counters {
    ($end:literal; $($(#[$about:meta])* $name:ident,)* $(=> $($(#[$about_now:meta])* $now:ident,)*)?) => {
        /// The counters of one end.
        #[derive(Debug, Default)]
        pub(crate) struct Counters {
            $(pub(crate) $name: $crate::Counter,)*
            pub(crate) waits: $crate::Waits,
        }

        impl AsRef<$crate::Waits> for Counters {
            fn as_ref(&self) -> &$crate::Waits {
                &self.waits
            }
        }

        #[doc = concat!("What one end of a ", $end, " has done so far. Counts may be off by some where several threads use the end.")]
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Stats {
            $($(#[$about])* pub $name: u64,)*
            $($($(#[$about_now])* pub $now: u64,)*)?
            /// Waits that ended while the end was spinning.
            pub spins: u64,
            /// Spins that were given up, to sleep.
            pub vain_spins: u64,
            /// Sleeps that began with a fence on all cores (membarrier(2)).
            pub heavy_fences: u64,
            /// Sleeps on a futex.
            pub futex_sleeps: u64,
            /// Sleeps on the socket.
            pub socket_sleeps: u64,
            /// Wake-ups of the peer by a futex.
            pub futex_wakes: u64,
            /// Wake-ups of the peer by a doorbell through the socket.
            pub doorbells: u64,
        }

        impl Counters {
            pub(crate) fn read(&self) -> Stats {
                Stats {
                    $($name: self.$name.get(),)*
                    $($($now: 0,)*)?
                    spins: self.waits.spins.get(),
                    vain_spins: self.waits.vain_spins.get(),
                    heavy_fences: self.waits.heavy_fences.get(),
                    futex_sleeps: self.waits.futex_sleeps.get(),
                    socket_sleeps: self.waits.socket_sleeps.get(),
                    futex_wakes: self.waits.futex_wakes.get(),
                    doorbells: self.waits.doorbells.get(),
                }
            }
        }
    };
}
