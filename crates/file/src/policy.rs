//! Choice between the mapping and the kernel for one request.
//!
//! The functions are pure: facts in, choice out. The tables in the tests are the specification. The rules
//! rest on measurements (docs/internals/policy.md): a first access through a mapping reads ahead in vain, a
//! page that is read once in passing does not earn back its page fault, and a copy into a mapping can be
//! neither undone nor made atomic against SIGKILL, so the kernel serves writes unless the user asked for
//! mapped ones.
//!
//! [`crate::open_file`] calls this module.

use bywash_session::FallbackReason;

/// Least size in bytes of the reads that make a stream, after more than [`STREAM_REQUESTS`] requests that
/// each continued the one before.
pub const STREAM_READ_BYTES: usize = 4096;
/// Least size in bytes of the writes that make a stream; otherwise like [`STREAM_READ_BYTES`].
pub const STREAM_WRITE_BYTES: usize = 16 * 1024;
/// Greatest number of requests that each continue the one before and do not make a stream yet.
pub const STREAM_REQUESTS: u32 = 8;
/// Longest time after the last write by the kernel in which writes may be mapped, in milliseconds. Mapped
/// writes leave the file's times as they are, so the times are at most this old.
pub const TIMES_LAG_MS: u64 = 10;
/// Default of [`Settings::threshold`](crate::state::Settings::threshold): size of the largest request that
/// is served from a mapping, in bytes.
pub const DEFAULT_THRESHOLD: usize = 64 * 1024;

/// Way that one request is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// The request is served at user level, through the mapping.
    Mapped,
    /// The kernel serves the request, for this reason.
    Kernel(FallbackReason),
}

/// Facts about a request, known before it is served.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// Length of the request, in bytes.
    pub length: usize,
    /// Length of the largest request that may be mapped, in bytes.
    pub threshold: usize,
    /// True if the request belongs to a stream and touches pages that are not mapped.
    pub stream: bool,
    /// True if the request ends within the known size of the file.
    pub within_size: bool,
    /// True if each page of the request was in the page cache when it was last noted.
    pub touched: bool,
}

/// Facts about a write, in addition to those of its [`Request`].
#[derive(Clone, Copy, Debug)]
pub struct WriteFacts {
    /// True if the user asked for mapped writes and the file exists only in memory (tmpfs).
    pub mapped_writes: bool,
    /// True if the descriptor may write, and neither appends nor writes synchronously.
    pub allowed: bool,
    /// Time since the kernel last wrote the file and updated its times, in milliseconds.
    pub times_age_ms: u64,
}

/// Applies the rules that reads and writes share; `past_the_end` is the reason for a request that ends behind
/// the known size.
#[inline(always)]
fn way(request: &Request, past_the_end: FallbackReason) -> Route {
    if request.length > request.threshold {
        Route::Kernel(FallbackReason::Large)
    } else if request.stream {
        Route::Kernel(FallbackReason::Sequential)
    } else if !request.within_size {
        Route::Kernel(past_the_end)
    } else if !request.touched {
        Route::Kernel(FallbackReason::FirstTouch)
    } else {
        Route::Mapped
    }
}

/// Chooses how a read is served.
#[inline(always)]
pub fn route_read(request: &Request) -> Route {
    way(request, FallbackReason::End)
}

/// Chooses how a write is served.
#[inline(always)]
pub fn route_write(request: &Request, facts: &WriteFacts) -> Route {
    if !facts.mapped_writes {
        return Route::Kernel(FallbackReason::Write);
    }
    if !facts.allowed {
        return Route::Kernel(FallbackReason::Mode);
    }
    match way(request, FallbackReason::Growth) {
        Route::Mapped if facts.times_age_ms > TIMES_LAG_MS => Route::Kernel(FallbackReason::Times),
        choice => choice,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use FallbackReason as Why;
    use Route::{Kernel, Mapped};

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
            assert_eq!(route_read(&request), way, "{request:?}");
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
            assert_eq!(route_write(&request, &facts), way, "{request:?} {facts:?}");
        }
    }
}
