//! Reasons for calls to the kernel, in words that require no knowledge of the library.

use bywash_session::Counter;

/// Describes the event that a `Fallback*` counter counts; `None` for other counters.
pub fn reason(counter: Counter) -> Option<&'static str> {
    Some(match counter {
        Counter::FallbackUntracked => "not a file that can be mapped, or opened before the program started",
        Counter::FallbackWarming => "file, or this part of it, not used often enough yet",
        Counter::FallbackFirstTouch => "first use of this part of the file",
        Counter::FallbackLarge => "larger than the threshold",
        Counter::FallbackSequential => "long sequential transfer, which the kernel does faster",
        Counter::FallbackEnd => "at or past the end of the file",
        Counter::FallbackGrowth => "write that makes the file longer",
        Counter::FallbackWrite => "write, which is the kernel's (but on tmpfs with --writes)",
        Counter::FallbackTimes => "write that moves the file's times on",
        Counter::FallbackMode => "opened for append, direct, synchronous or write-only use",
        Counter::FallbackFlags => "asked for something only the kernel does",
        Counter::FallbackContended => "another thread was writing the same file",
        Counter::FallbackNested => "from a signal handler during a copy, or too many threads",
        Counter::FallbackWindow => "no address space left for a mapping",
        Counter::FallbackFault => "the copy met a fault (file cut short, disk full, bad buffer)",
        Counter::FallbackPosition => "at the file's own position, which is kept by the kernel",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fallback_and_nothing_else_has_words() {
        for counter in Counter::ALL {
            assert_eq!(
                counter.key().starts_with("fallback_"),
                reason(*counter).is_some(),
                "{}",
                counter.key()
            );
        }
    }
}
