//! Which way one request goes: through the mapping or through the kernel.
//!
//! Pure: facts in, choice out; the table at the end is the specification. The rules rest on measurements
//! (docs/internals/policy.md): a first touch through a mapping reads ahead for nothing, a page that is read
//! once in passing does not earn its fault, and a copy into a mapping can be neither undone nor made atomic
//! against SIGKILL, so writes are the kernel's unless the user asked for mapped ones.

use bywash_session::FallbackReason;

/// Reads of this size and more are a stream when [`STREAM_REQUESTS`] continued the one before.
pub const STREAM_READ_BYTES: usize = 4096;
/// As [`STREAM_READ_BYTES`], for writes.
pub const STREAM_WRITE_BYTES: usize = 16 * 1024;
/// Requests that each continue the one before and are no stream yet.
pub const STREAM_REQUESTS: u32 = 8;
/// Longest time, in milliseconds, for which mapped writes leave the file's times as they are.
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
    /// It belongs to a stream, over pages of which some are not mapped.
    pub stream: bool,
    /// It ends within the known size of the file.
    pub within_size: bool,
    /// The kernel has served each of its pages before.
    pub touched: bool,
}

/// Facts about a write, beside those of its [`Request`].
#[derive(Clone, Copy, Debug)]
pub struct WriteFacts {
    /// Mapped writes were asked for, and the file lies in memory alone (tmpfs).
    pub mapped_writes: bool,
    /// The descriptor may write, and neither appends nor writes synchronously.
    pub allowed: bool,
    /// Milliseconds since the kernel wrote the file last, which moved its times.
    pub times_age_ms: u64,
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
    if !facts.mapped_writes {
        return Choice::Kernel(FallbackReason::Write);
    }
    if !facts.allowed {
        return Choice::Kernel(FallbackReason::Mode);
    }
    match way(request, FallbackReason::Growth) {
        Choice::Mapped if facts.times_age_ms > TIMES_LAG_MS => Choice::Kernel(FallbackReason::Times),
        choice => choice,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Choice::{Kernel, Mapped};
    use FallbackReason as Why;

    const READ: Request =
        Request { length: 4096, threshold: 65536, stream: false, within_size: true, touched: true };
    const WRITE: WriteFacts = WriteFacts { mapped_writes: true, allowed: true, times_age_ms: 0 };

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
            (READ, WriteFacts { mapped_writes: false, ..WRITE }, Kernel(Why::Write)),
            (READ, WriteFacts { mapped_writes: false, allowed: false, ..WRITE }, Kernel(Why::Write)),
            (READ, WriteFacts { allowed: false, ..WRITE }, Kernel(Why::Mode)),
            (READ, WriteFacts { times_age_ms: 10, ..WRITE }, Mapped),
            (READ, WriteFacts { times_age_ms: 11, ..WRITE }, Kernel(Why::Times)),
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
