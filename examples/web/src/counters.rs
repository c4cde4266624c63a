//! Counts of what the server has done.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counts of one thread of the server. Nothing but numbers, so no order among them is kept.
        #[derive(Debug, Default)]
        #[repr(align(128))]
        pub struct Counters {
            $($(#[$doc])* pub $name: Counter,)*
        }

        /// Sums of the counts of all threads.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Totals {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Totals {
            /// Adds the counts of a thread.
            pub fn add(&mut self, counters: &Counters) {
                $(self.$name += counters.$name.0.load(Ordering::Relaxed);)*
            }
        }

        impl fmt::Display for Totals {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                let counts = [$((stringify!($name), self.$name)),*];
                for (index, (name, count)) in counts.into_iter().enumerate() {
                    write!(formatter, "{}{name} {count}", if index == 0 { "" } else { ", " })?;
                }
                Ok(())
            }
        }
    };
}

counters! {
    /// Connections accepted.
    connections,
    /// Connections refused because there were too many.
    refused,
    /// Requests answered, whatever the status.
    requests,
    /// Parts of files that were found in the cache.
    hits,
    /// Parts of files that were read from the folder.
    misses,
    /// Bytes of contents in the responses, as far as they were handed to connections.
    bytes,
    /// Responses with a status of 400 or more.
    errors,
    /// Responses that were broken off because the file changed or could not be read any more.
    broken,
}

/// One count.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds to the count.
    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }
}
