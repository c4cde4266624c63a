//! What an end of a path has done so far.

use bywash_sync::{AtomicU64, Ordering::Relaxed};

/// A number that one thread at a time adds to, mostly.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// Not one atomic addition, which would cost more: a count may be lost where threads meet.
    #[inline(always)]
    pub(crate) fn add(&self, more: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(more), Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

macro_rules! counters {
    ($($(#[$about:meta])* $name:ident,)*) => {
        /// The counters of one end.
        #[derive(Debug, Default)]
        pub(crate) struct Counters {
            $(pub(crate) $name: Counter,)*
        }

        /// What one end of a path has done so far. Counts may be off by some where several threads use the end.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Stats {
            $($(#[$about])* pub $name: u64,)*
        }

        impl Counters {
            pub(crate) fn read(&self) -> Stats {
                Stats { $($name: self.$name.get(),)* }
            }
        }
    };
}

counters! {
    /// Messages shipped.
    shipped,
    /// Bytes in them.
    shipped_bytes,
    /// Messages received.
    received,
    /// Bytes in them.
    received_bytes,
    /// Messages shipped or received in a ring's entry itself, so that their bytes were copied.
    inline,
    /// Bytes that were copied out by [`copy_to`](crate::Received::copy_to) and its kin.
    copied_out_bytes,
    /// Containers shipped on as they came.
    forwarded,
    /// Times that what was waited for came while spinning.
    spins,
    /// Sleeps on a futex.
    futex_sleeps,
    /// Sleeps on the socket.
    socket_sleeps,
    /// Times that the peer was woken by a futex.
    futex_wakes,
    /// Times that the peer was woken through the socket.
    doorbells,
    /// Times that there was no room at first.
    no_room,
}
