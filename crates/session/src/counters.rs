//! Names and numbers of all counters.
//!
//! A counter's number is part of the session's layout: new counters go to the end, and
//! [`crate::layout::VERSION`] rises with every change.

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident = $key:literal,)*) => {
        /// One thing that is counted. Calls are counted in calls, `*Bytes` in bytes.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Counter { $($(#[$doc])* $name,)* }

        impl Counter {
            /// Every counter, in the order of the layout.
            pub const ALL: &'static [Counter] = &[$(Counter::$name,)*];

            /// The name in reports (`snake_case`).
            pub const fn key(self) -> &'static str {
                match self { $(Counter::$name => $key,)* }
            }
        }
    };
}

counters! {
    /// Reads served from a mapping.
    UserReads = "user_reads",
    /// Bytes of those reads.
    UserReadBytes = "user_read_bytes",
    /// Writes served into a mapping.
    UserWrites = "user_writes",
    /// Bytes of those writes.
    UserWriteBytes = "user_write_bytes",
    /// Position and size look-ups (`lseek`) answered without a system call.
    UserSeeks = "user_seeks",
    /// Reads that the kernel served.
    KernelReads = "kernel_reads",
    /// Bytes of those reads.
    KernelReadBytes = "kernel_read_bytes",
    /// Writes that the kernel served.
    KernelWrites = "kernel_writes",
    /// Bytes of those writes.
    KernelWriteBytes = "kernel_write_bytes",
    /// `lseek` calls that the kernel served.
    KernelSeeks = "kernel_seeks",
    /// `fsync`, `fdatasync` and `sync_file_range` calls (always the kernel's).
    KernelSyncs = "kernel_syncs",
    /// Files opened for which a user-level data path was possible at that time.
    FilesOpened = "files_opened",
    /// Files that were given a user-level data path.
    FilesPromoted = "files_promoted",
    /// Windows mapped.
    WindowsMapped = "windows_mapped",
    /// Windows given up to make room for others.
    WindowsEvicted = "windows_evicted",
    /// Size checks made on behalf of a mapped read or write (one system call each).
    SizeChecks = "size_checks",
    /// SIGBUS caught during a copy (the file shrank, the disk was full, an I/O error).
    FaultsBus = "faults_bus",
    /// SIGSEGV caught during a copy (the program's buffer was bad).
    FaultsSegv = "faults_segv",
    /// Times the position of a file was handed back to the kernel.
    OffsetsGiven = "offsets_given",
    /// To the kernel: no data path for this descriptor (not a regular file, inherited, a stream's, ...).
    FallbackUntracked = "fallback_untracked",
    /// To the kernel: the file has not been used often enough yet, or too little was gained to warm this part.
    FallbackWarming = "fallback_warming",
    /// To the kernel: first touch of a page.
    FallbackFirstTouch = "fallback_first_touch",
    /// To the kernel: larger than the threshold.
    FallbackLarge = "fallback_large",
    /// To the kernel: a sequential transfer.
    FallbackSequential = "fallback_sequential",
    /// To the kernel: a read at or past the known end of the file.
    FallbackEnd = "fallback_end",
    /// To the kernel: a write that makes the file longer.
    FallbackGrowth = "fallback_growth",
    /// To the kernel: a write, where mapped writes are off or the file is on a disk.
    FallbackWrite = "fallback_write",
    /// To the kernel: a write that moves the file's times on, between mapped ones.
    FallbackTimes = "fallback_times",
    /// To the kernel: how the descriptor was opened (append, direct, synchronous, write-only).
    FallbackMode = "fallback_mode",
    /// To the kernel: the call asked for something only the kernel does (flags, many segments).
    FallbackFlags = "fallback_flags",
    /// To the kernel: another thread was writing the same file.
    FallbackContended = "fallback_contended",
    /// To the kernel: called from a signal handler in the middle of a copy, or by too many threads.
    FallbackNested = "fallback_nested",
    /// To the kernel: no window could be had (limits, address space).
    FallbackWindow = "fallback_window",
    /// To the kernel: a fault in the copy.
    FallbackFault = "fallback_fault",
    /// To the kernel: a call at the file's own position, which is the kernel's.
    FallbackPosition = "fallback_position",
    /// Bytes of files that were mapped at the same time at most; in a report on several processes, the sum over
    /// them.
    MappedBytesMost = "mapped_bytes_most",
}

impl Counter {
    /// Number of counters.
    pub const COUNT: usize = Counter::ALL.len();
}

/// Why a call went to the kernel: one of the `Fallback*` counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum FallbackReason {
    /// See [`Counter::FallbackUntracked`].
    Untracked = Counter::FallbackUntracked as u8,
    /// See [`Counter::FallbackWarming`].
    Warming = Counter::FallbackWarming as u8,
    /// See [`Counter::FallbackFirstTouch`].
    FirstTouch = Counter::FallbackFirstTouch as u8,
    /// See [`Counter::FallbackLarge`].
    Large = Counter::FallbackLarge as u8,
    /// See [`Counter::FallbackSequential`].
    Sequential = Counter::FallbackSequential as u8,
    /// See [`Counter::FallbackEnd`].
    End = Counter::FallbackEnd as u8,
    /// See [`Counter::FallbackGrowth`].
    Growth = Counter::FallbackGrowth as u8,
    /// See [`Counter::FallbackWrite`].
    Write = Counter::FallbackWrite as u8,
    /// See [`Counter::FallbackTimes`].
    Times = Counter::FallbackTimes as u8,
    /// See [`Counter::FallbackMode`].
    Mode = Counter::FallbackMode as u8,
    /// See [`Counter::FallbackFlags`].
    Flags = Counter::FallbackFlags as u8,
    /// See [`Counter::FallbackContended`].
    Contended = Counter::FallbackContended as u8,
    /// See [`Counter::FallbackNested`].
    Nested = Counter::FallbackNested as u8,
    /// See [`Counter::FallbackWindow`].
    Window = Counter::FallbackWindow as u8,
    /// See [`Counter::FallbackFault`].
    Fault = Counter::FallbackFault as u8,
    /// See [`Counter::FallbackPosition`].
    Position = Counter::FallbackPosition as u8,
}

impl FallbackReason {
    /// The counter that counts this reason.
    pub const fn counter(self) -> Counter {
        Counter::ALL[self as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_is_its_place_in_the_layout() {
        for (place, counter) in Counter::ALL.iter().enumerate() {
            assert_eq!(place, *counter as usize);
        }
        assert_eq!(FallbackReason::Fault.counter(), Counter::FallbackFault);
        assert_eq!(FallbackReason::Untracked.counter(), Counter::FallbackUntracked);
    }
}
