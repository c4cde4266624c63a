//! Counts of what a server has done.

use std::sync::atomic::{AtomicU64, Ordering};

/// Defines the struct `Counters`, the counts of one thread, and the struct `Totals`, sums of the counts of several threads,
/// which is displayed as names and numbers.
#[macro_export]
macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counts of one thread of the server. Nothing but numbers, so no order among them is kept.
        #[derive(Debug, Default)]
        #[repr(align(128))]
        pub struct Counters {
            $($(#[$doc])* pub $name: $crate::Counter,)*
        }

        /// Sums of the counts of all threads.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Totals {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Totals {
            /// Adds the counts of a thread.
            pub fn add(&mut self, counters: &Counters) {
                $(self.$name += counters.$name.get();)*
            }
        }

        impl std::fmt::Display for Totals {
            fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let counts = [$((stringify!($name), self.$name)),*];
                for (index, (name, count)) in counts.into_iter().enumerate() {
                    write!(formatter, "{}{name} {count}", if index == 0 { "" } else { ", " })?;
                }
                Ok(())
            }
        }
    };
}

/// One count.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds to the count.
    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }
    /// Returns the count.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
