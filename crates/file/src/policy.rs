//! Which way one request goes: through the mapping or through the kernel.
//!
//! Pure: facts in, choice out; the table at the end is the specification. What the rules rest on was
//! measured (docs/internals/policy.md): a first touch through a mapping reads ahead for nothing, a page that
//! is read once in passing does not earn its fault, a clean page costs a fault on its first mapped write, and
//! a mapped write to a page of a large folio makes the device write all of the folio.

use bywash_session::FallbackReason;

/// Reads of this size and more are a stream when [`STREAM_REQUESTS`] continued the one before.
pub const STREAM_READ_BYTES: usize = 4096;
/// As [`STREAM_READ_BYTES`], for writes.
pub const STREAM_WRITE_BYTES: usize = 16 * 1024;
/// Requests that each continue the one before and are no stream yet.
pub const STREAM_REQUESTS: u32 = 8;
/// Times that streams pass over a stretch of pages, on average, before they read it through the mapping. To
/// map a page costs about what one passage gains.
pub const STREAM_PASSES: u32 = 3;
/// Writes of a page since the last fsync that go to the kernel, on average, before the mapping is considered.
/// The change costs about as much as three writes (a fault, and calls to look at the folio), so a page for
/// which it does not pay loses at most a twentieth.
pub const DEFAULT_HOT_WRITES: u32 = 64;
/// Longest time for which mapped writes leave the file's times alone.
pub const TIMES_LAG_MS: u64 = 10;
/// The largest request served from a mapping when nothing else is asked for.
pub const DEFAULT_THRESHOLD: usize = 64 * 1024;

/// The way one request goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// At user level.
    Mapped,
    /// Through the kernel, and why.
    Kernel(FallbackReason),
}

/// What is known about a request before it is served.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// Bytes asked for.
    pub length: usize,
    /// The largest request that may be mapped.
    pub threshold: usize,
    /// It belongs to a stream, over pages for which mapping has not come to pay.
    pub stream: bool,
    /// It ends within the known size of the file.
    pub within_size: bool,
    /// The kernel has served each of its pages before.
    pub touched: bool,
}

/// What more is known about a write.
#[derive(Clone, Copy, Debug)]
pub struct WriteFacts {
    /// The descriptor allows it, and the file is not opened for synchronous writes.
    pub allowed: bool,
    /// Milliseconds since the file's times moved.
    pub times_age_ms: u64,
    /// Nothing stands behind the page cache: no page is ever clean and no folio too large.
    pub memory_only: bool,
    /// The hotness of its least written page.
    pub heat: Heat,
}

/// How often a page was written since the last fsync, and what is known of its folio.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Heat {
    /// Not at all.
    Clean,
    /// Now and then.
    Warm,
    /// Again and again ([`DEFAULT_HOT_WRITES`]), its folio not yet looked at.
    Hot,
    /// The folio is too large: a mapped write would make the device write more.
    Large,
    /// The folio is known to hold (nearly) nothing but dirty pages.
    Small,
}

/// The rules that reads and writes share.
#[inline(always)]
fn way(request: &Request, past_the_end: FallbackReason) -> Choice {
    if request.length > request.threshold {
        Choice::Kernel(FallbackReason::Large)
    } else if request.stream {
        Choice::Kernel(FallbackReason::Sequential)
    } else if !request.within_size {
        Choice::Kernel(past_the_end)
    } else if !request.touched {
        Choice::Kernel(FallbackReason::FirstTouch)
    } else {
        Choice::Mapped
    }
}

/// The way of a read.
#[inline(always)]
pub fn read_way(request: &Request) -> Choice {
    way(request, FallbackReason::End)
}

/// The way of a write.
#[inline(always)]
pub fn write_way(request: &Request, facts: &WriteFacts) -> Choice {
    if !facts.allowed {
        return Choice::Kernel(FallbackReason::Mode);
    }
    match way(request, FallbackReason::Growth) {
        Choice::Mapped => {}
        kernel => return kernel,
    }
    if facts.times_age_ms > TIMES_LAG_MS {
        Choice::Kernel(FallbackReason::Times)
    } else if facts.memory_only || facts.heat == Heat::Small {
        Choice::Mapped
    } else if facts.heat == Heat::Large {
        Choice::Kernel(FallbackReason::Amplify)
    } else {
        Choice::Kernel(FallbackReason::Clean)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Choice::{Kernel, Mapped};
    use FallbackReason as Why;

    const READ: Request =
        Request { length: 4096, threshold: 65536, stream: false, within_size: true, touched: true };
    const WRITE: WriteFacts =
        WriteFacts { allowed: true, times_age_ms: 0, memory_only: false, heat: Heat::Small };

    #[test]
    fn reads() {
        let table = [
            (READ, Mapped),
            (Request { length: 65536, ..READ }, Mapped),
            (Request { length: 65537, ..READ }, Kernel(Why::Large)),
            (Request { stream: true, ..READ }, Kernel(Why::Sequential)),
            (Request { within_size: false, ..READ }, Kernel(Why::End)),
            (Request { touched: false, ..READ }, Kernel(Why::FirstTouch)),
        ];
        for (request, way) in table {
            assert_eq!(read_way(&request), way, "{request:?}");
        }
    }

    #[test]
    fn writes() {
        let table = [
            (READ, WRITE, Mapped),
            (READ, WriteFacts { allowed: false, ..WRITE }, Kernel(Why::Mode)),
            (READ, WriteFacts { times_age_ms: 10, ..WRITE }, Mapped),
            (READ, WriteFacts { times_age_ms: 11, ..WRITE }, Kernel(Why::Times)),
            (READ, WriteFacts { heat: Heat::Clean, ..WRITE }, Kernel(Why::Clean)),
            (READ, WriteFacts { heat: Heat::Warm, ..WRITE }, Kernel(Why::Clean)),
            (READ, WriteFacts { heat: Heat::Hot, ..WRITE }, Kernel(Why::Clean)),
            (READ, WriteFacts { heat: Heat::Large, ..WRITE }, Kernel(Why::Amplify)),
            (READ, WriteFacts { heat: Heat::Clean, memory_only: true, ..WRITE }, Mapped),
            (Request { within_size: false, ..READ }, WRITE, Kernel(Why::Growth)),
            (Request { touched: false, ..READ }, WRITE, Kernel(Why::FirstTouch)),
            (Request { length: 1 << 20, ..READ }, WRITE, Kernel(Why::Large)),
            (Request { stream: true, ..READ }, WRITE, Kernel(Why::Sequential)),
        ];
        for (request, facts, way) in table {
            assert_eq!(write_way(&request, &facts), way, "{request:?} {facts:?}");
        }
    }
}
