//! Ways in which programs write a log.

/// Size of the longest path of a socket, in bytes, with its zero byte.
pub const SOCKET_MAX: usize = 108;

/// Memory of a device server that a log lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Size of the memory, in bytes.
    pub bytes: u64,
    /// Size of each file that the memory consists of, in bytes; the last one may be shorter.
    pub chunk_bytes: u64,
    /// Size of the page of words, in bytes.
    pub page_bytes: u64,
    /// Index of the word of the keeper's right.
    pub index: u64,
    /// Greatest value of the word with which the right is valid.
    pub valid_up_to: u64,
}

impl Window {
    /// Returns the number of files that the memory consists of, if the sizes make sense.
    pub fn chunks(&self) -> Option<u64> {
        let is_whole = |bytes: u64| bytes > 0 && bytes.is_multiple_of(4096);
        let has_word = self.index < self.page_bytes / 8;
        (is_whole(self.chunk_bytes) && is_whole(self.page_bytes) && self.bytes > 0 && has_word)
            .then(|| self.bytes.div_ceil(self.chunk_bytes))
    }
}

/// Way in which programs write a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteMethod {
    /// Each program by a descriptor of its own, of the file or device at the log's path.
    Descriptor,
    /// By requests to the keeper (`relay`).
    Relay,
    /// By copies into memory that the keeper passes at its socket (`window`).
    Window(Window),
}
