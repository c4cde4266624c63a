//! What an end has done so far.

use bywash_sync::{AtomicU64, Ordering::Relaxed};

/// A number that one thread at a time adds to, mostly.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Not one atomic addition, which would cost more: a count may be lost where threads meet.
    #[inline(always)]
    pub fn add(&self, more: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(more), Relaxed);
    }

    /// How far it has come.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// How an end has waited, and woken its peer.
#[derive(Debug, Default)]
pub struct Waits {
    /// Times that what was waited for came while spinning.
    pub spins: Counter,
    /// Times that spinning was given up.
    pub vain_spins: Counter,
    /// Sleeps that began with a fence on all cores (membarrier(2)).
    pub heavy_fences: Counter,
    /// Sleeps on a futex.
    pub futex_sleeps: Counter,
    /// Sleeps on the socket.
    pub socket_sleeps: Counter,
    /// Times that the peer was woken by a futex.
    pub futex_wakes: Counter,
    /// Times that the peer was woken through the socket.
    pub doorbells: Counter,
}

/// Makes `Counters`, what an end counts, and `Stats`, what its users read: the counts that are named, how it
/// has waited, and behind `=>` the figures of the moment, which are 0 in what `Counters` reads: the end fills them in.
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
            /// Times that what was waited for came while spinning.
            pub spins: u64,
            /// Times that spinning was given up, to sleep.
            pub vain_spins: u64,
            /// Sleeps that began with a fence on all cores (membarrier(2)).
            pub heavy_fences: u64,
            /// Sleeps on a futex.
            pub futex_sleeps: u64,
            /// Sleeps on the socket.
            pub socket_sleeps: u64,
            /// Times that the peer was woken by a futex.
            pub futex_wakes: u64,
            /// Times that the peer was woken through the socket.
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
