//! Runs: datagrams in contiguous memory, as the kernel takes and returns them.
//!
//! ```text
//!     heads   | head 0 | head 1 | head 2 |              `head` bytes each, or none at all
//!     body    | segment 0  | segment 1  | seg. 2 |      `segment` bytes each, the last may be shorter
//! ```
//!
//! Invariant: there are as many heads as segments, if `head` is not zero. Called by everything in this folder.

use super::name::Name;

/// Datagrams of one size, all to or from one peer; the last one may be shorter.
#[derive(Clone, Copy)]
pub(crate) struct Run<'a> {
    heads: &'a [u8],
    head: usize,
    body: &'a [u8],
    segment: usize,
    from: Option<&'a Name>,
}

impl<'a> Run<'a> {
    /// Creates a run of datagrams of `segment` bytes.
    pub(crate) fn new(body: &'a [u8], segment: usize) -> Run<'a> {
        Run { heads: &[], head: 0, body, segment: segment.max(1), from: None }
    }

    /// Creates a run of datagrams that consist of a head and `segment` bytes.
    pub(crate) fn with_heads(heads: &'a [u8], head: usize, body: &'a [u8], segment: usize) -> Run<'a> {
        let run = Run { heads, head, body, segment: segment.max(1), from: None };
        assert_eq!(heads.len(), run.count() * head, "as many heads as segments");
        run
    }

    /// Returns the same run with the address of its sender.
    pub(crate) fn from(self, from: &'a Name) -> Run<'a> {
        Run { from: Some(from), ..self }
    }

    /// Returns the address of the sender; `None` for datagrams made here.
    pub(crate) fn sender(&self) -> Option<&'a Name> {
        self.from
    }

    /// Returns the number of datagrams; an empty body is one.
    pub(crate) fn count(&self) -> usize {
        self.body.len().div_ceil(self.segment).max(1)
    }

    /// Returns the size of a datagram in bytes; the last one may be shorter.
    pub(crate) fn datagram_bytes(&self) -> usize {
        self.head + self.segment.min(self.body.len())
    }

    /// Returns the size of all datagrams, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.heads.len() + self.body.len()
    }

    /// Returns the bytes behind the heads.
    pub(crate) fn body(&self) -> &'a [u8] {
        self.body
    }

    /// Returns the two parts of datagram `number`: the head, which may be empty, and the segment.
    pub(crate) fn datagram(&self, number: usize) -> (&'a [u8], &'a [u8]) {
        let head = &self.heads[number * self.head..][..self.head];
        let from = number * self.segment;
        (head, &self.body[from..self.body.len().min(from + self.segment)])
    }

    /// Iterates over all datagrams, without heads.
    pub(crate) fn segments(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let run = *self;
        (0..run.count()).map(move |number| run.datagram(number).1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagrams_are_cut_where_they_should() {
        let run = Run::with_heads(b"abc", 1, b"0123456", 3);
        let pieces: Vec<_> = (0..run.count()).map(|number| run.datagram(number)).collect();
        assert_eq!(pieces, [(&b"a"[..], &b"012"[..]), (b"b", b"345"), (b"c", b"6")]);
        assert_eq!((run.bytes(), run.datagram_bytes()), (10, 4));
    }

    #[test]
    fn an_empty_datagram_is_one() {
        let run = Run::with_heads(b"head", 4, b"", 1400);
        assert_eq!((run.count(), run.datagram_bytes()), (1, 4));
        assert_eq!(run.datagram(0), (&b"head"[..], &b""[..]));
        assert_eq!(Run::new(b"", 0).segments().count(), 1);
    }
}
