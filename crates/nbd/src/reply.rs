//! Replies that wait to be sent: a header, and a payload that stays in the buffer it was read into.
//!
//! Called by `engine`, which makes them, and by `connection`, which sends many with one system call.

use crate::buffer::Buffer;
use crate::layout::{
    ALLOCATION_ID, CHUNK_BYTES, SIMPLE_REPLY_BYTES, chunk, chunk_header, errno, simple_reply,
};
use std::ops::Range;

/// Greatest size of the part of a reply before the payload, in bytes.
const HEAD_MAX: usize = CHUNK_BYTES + 12;

/// A reply, or any bytes, for a client.
#[derive(Debug)]
pub(crate) struct Reply {
    head: [u8; HEAD_MAX],
    head_bytes: usize,
    body: Body,
    /// Size of memory that the request used and that did not come back, in bytes.
    pub(crate) lost_bytes: usize,
}

/// Bytes behind the head.
#[derive(Debug)]
enum Body {
    None,
    /// The first bytes of a buffer; none for a request whose buffer is only to be given back.
    Buffer(Buffer, usize),
    /// Bytes that were encoded for this reply.
    Bytes(Vec<u8>),
}

/// Part of a read that a device has failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// Offsets in the export, in bytes.
    pub(crate) range: Range<u64>,
    /// Error value (`errno`).
    pub(crate) error: u32,
    /// Reason in words.
    pub(crate) message: String,
}

impl Reply {
    #[inline]
    fn new(head: &[u8], body: Body) -> Reply {
        let mut all = [0; HEAD_MAX];
        all[..head.len()].copy_from_slice(head);
        Reply { head: all, head_bytes: head.len(), body, lost_bytes: 0 }
    }

    /// Makes a reply of bytes as they are.
    pub(crate) fn bytes(bytes: Vec<u8>) -> Reply {
        Reply::new(&[], Body::Bytes(bytes))
    }

    /// Makes the reply of a request without payload that has succeeded, with the buffer that it used.
    #[inline]
    pub(crate) fn done(cookie: u64, buffer: Option<Buffer>) -> Reply {
        let body = buffer.map_or(Body::None, |buffer| Body::Buffer(buffer, 0));
        Reply::new(&simple_reply(0, cookie), body)
    }

    /// Makes the reply of a read of `bytes` bytes from `offset` on; `offset` is `None` for a simple reply.
    #[inline]
    pub(crate) fn data(cookie: u64, offset: Option<u64>, buffer: Buffer, bytes: usize) -> Reply {
        let Some(offset) = offset else {
            return Reply::new(&simple_reply(0, cookie), Body::Buffer(buffer, bytes));
        };
        if bytes == 0 {
            return Reply::none(cookie);
        }
        let mut head = [0; CHUNK_BYTES + 8];
        // A read has at most `PAYLOAD_MAX` bytes.
        let header = chunk_header(chunk::DONE, chunk::OFFSET_DATA, cookie, bytes as u32 + 8);
        head[..CHUNK_BYTES].copy_from_slice(&header);
        head[CHUNK_BYTES..].copy_from_slice(&offset.to_be_bytes());
        Reply::new(&head, Body::Buffer(buffer, bytes))
    }

    /// Makes the structured reply of a read of nothing.
    pub(crate) fn none(cookie: u64) -> Reply {
        Reply::new(&chunk_header(chunk::DONE, chunk::NONE, cookie, 0), Body::None)
    }

    /// Makes the reply of a request that has failed.
    pub(crate) fn error(cookie: u64, is_structured: bool, error: u32, message: &str) -> Reply {
        if !is_structured {
            return Reply::new(&simple_reply(error, cookie), Body::None);
        }
        let mut bytes = Vec::new();
        error_chunk(&mut bytes, cookie, chunk::DONE, error, message, None);
        Reply::bytes(bytes)
    }

    /// Makes the structured reply of a read of which parts have failed: a chunk for each part that was read,
    /// unless `is_whole` allows no parts, and an error for each that was not.
    pub(crate) fn partial(
        cookie: u64,
        range: Range<u64>,
        is_whole: bool,
        data: &[u8],
        failures: &mut [Failure],
    ) -> Reply {
        failures.sort_by_key(|failure| failure.range.start);
        let mut bytes = Vec::new();
        let mut chunk_of = |part: Range<u64>| {
            if !is_whole && !part.is_empty() {
                let inside = (part.start - range.start) as usize..(part.end - range.start) as usize;
                let length = inside.len() as u32 + 8;
                bytes.extend(chunk_header(0, chunk::OFFSET_DATA, cookie, length));
                bytes.extend(part.start.to_be_bytes());
                bytes.extend(&data[inside]);
            }
        };
        let mut next = range.start;
        for Failure { range, .. } in failures.iter() {
            chunk_of(next..range.start);
            next = range.end;
        }
        chunk_of(next..range.end);
        let last = failures.len().saturating_sub(1);
        for (number, failure) in failures.iter().enumerate() {
            let flags = if number == last { chunk::DONE } else { 0 };
            let Failure { range, error, message } = failure;
            error_chunk(&mut bytes, cookie, flags, *error, message, Some(range.start));
        }
        Reply::bytes(bytes)
    }

    /// Makes the reply of a block status: the whole range is allocated, as far as is known.
    pub(crate) fn status(cookie: u64, length: u32) -> Reply {
        let mut head = [0; CHUNK_BYTES + 12];
        head[..CHUNK_BYTES].copy_from_slice(&chunk_header(chunk::DONE, chunk::BLOCK_STATUS, cookie, 12));
        head[CHUNK_BYTES..][..4].copy_from_slice(&ALLOCATION_ID.to_be_bytes());
        head[CHUNK_BYTES + 4..][..4].copy_from_slice(&length.to_be_bytes());
        Reply::new(&head, Body::None)
    }

    /// Returns the bytes before the payload, and the payload.
    #[inline]
    pub(crate) fn parts(&self) -> [&[u8]; 2] {
        let body = match &self.body {
            Body::None => &[],
            Body::Buffer(buffer, bytes) => &buffer.bytes()[..*bytes],
            Body::Bytes(bytes) => &bytes[..],
        };
        [&self.head[..self.head_bytes], body]
    }

    /// Returns the number of bytes to send.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        let body = match &self.body {
            Body::None => 0,
            Body::Buffer(_, bytes) => *bytes,
            Body::Bytes(bytes) => bytes.len(),
        };
        self.head_bytes + body
    }

    /// Returns the buffer to give back.
    #[inline]
    pub(crate) fn into_buffer(self) -> Option<Buffer> {
        match self.body {
            Body::Buffer(buffer, _) => Some(buffer),
            Body::None | Body::Bytes(_) => None,
        }
    }

    /// Adds the buffer that a failed request used, so that it is given back.
    pub(crate) fn lost(mut self, bytes: usize) -> Reply {
        self.lost_bytes = bytes;
        self
    }
}

/// Appends an error chunk; with an offset it says where the error is.
fn error_chunk(out: &mut Vec<u8>, cookie: u64, flags: u16, error: u32, message: &str, offset: Option<u64>) {
    debug_assert_ne!(error, 0);
    let error = if error == 0 { errno::EIO } else { error };
    let message = &message.as_bytes()[..message.len().min(MESSAGE_MAX)];
    let kind = if offset.is_some() { chunk::ERROR_OFFSET } else { chunk::ERROR };
    let length = 6 + message.len() + offset.map_or(0, |_| 8);
    out.extend(chunk_header(flags, kind, cookie, length as u32));
    out.extend(error.to_be_bytes());
    out.extend((message.len() as u16).to_be_bytes());
    out.extend(message);
    out.extend(offset.map(u64::to_be_bytes).into_iter().flatten());
}

/// Greatest length of a message in an error chunk, in bytes.
const MESSAGE_MAX: usize = 512;

const _: () = assert!(SIMPLE_REPLY_BYTES <= HEAD_MAX);

#[cfg(test)]
mod tests {
    use super::*;

    fn text(reply: &Reply) -> Vec<u8> {
        let bytes = reply.parts().concat();
        assert_eq!(bytes.len(), reply.len());
        bytes
    }

    #[test]
    fn the_data_of_a_read_are_behind_their_header() {
        let mut buffer = Buffer::new(4096);
        buffer.bytes_mut()[..4].copy_from_slice(b"data");
        let reply = Reply::data(7, None, buffer, 4);
        assert_eq!(text(&reply), b"\x67\x44\x66\x98\0\0\0\0\0\0\0\0\0\0\0\x07data");
        let reply = Reply::data(7, Some(512), reply.into_buffer().unwrap(), 4);
        let chunk = b"\x66\x8e\x33\xef\0\x01\0\x01\0\0\0\0\0\0\0\x07\0\0\0\x0c\0\0\0\0\0\0\x02\0data";
        assert_eq!(text(&reply), chunk);
        let reply = Reply::data(7, Some(512), reply.into_buffer().unwrap(), 0);
        assert_eq!(text(&reply), b"\x66\x8e\x33\xef\0\x01\0\0\0\0\0\0\0\0\0\x07\0\0\0\0");
    }

    #[test]
    fn an_error_has_a_message_where_replies_are_structured() {
        assert_eq!(text(&Reply::error(7, false, 22, "no")), b"\x67\x44\x66\x98\0\0\0\x16\0\0\0\0\0\0\0\x07");
        let chunk = b"\x66\x8e\x33\xef\0\x01\x80\x01\0\0\0\0\0\0\0\x07\0\0\0\x08\0\0\0\x16\0\x02no";
        assert_eq!(text(&Reply::error(7, true, 22, "no")), chunk);
    }

    #[test]
    fn parts_that_were_read_come_before_the_errors_of_others() {
        let failure = |range| Failure { range, error: 5, message: "x".into() };
        let data: Vec<u8> = (0..8).collect();
        let mut failures = [failure(106..107), failure(102..104)];
        let reply = Reply::partial(7, 100..108, false, &data, &mut failures);
        let mut expected = Vec::new();
        for (offset, bytes) in [(100u64, &[0u8, 1][..]), (104, &[4, 5]), (107, &[7])] {
            expected.extend(chunk_header(0, 1, 7, 8 + bytes.len() as u32));
            expected.extend(offset.to_be_bytes());
            expected.extend(bytes);
        }
        for (flags, offset) in [(0, 102u64), (1, 106)] {
            expected.extend(chunk_header(flags, (1 << 15) + 2, 7, 15));
            expected.extend(b"\0\0\0\x05\0\x01x");
            expected.extend(offset.to_be_bytes());
        }
        assert_eq!(text(&reply), expected);
        let whole = Reply::partial(7, 100..108, true, &data, &mut failures);
        assert_eq!(text(&whole), expected[expected.len() - 70..]);
    }

    #[test]
    fn a_block_status_has_one_extent() {
        let chunk = b"\x66\x8e\x33\xef\0\x01\0\x05\0\0\0\0\0\0\0\x07\0\0\0\x0c\0\0\0\x01\0\0\x10\0\0\0\0\0";
        assert_eq!(text(&Reply::status(7, 4096)), chunk);
    }
}
