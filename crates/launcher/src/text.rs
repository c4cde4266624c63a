//! Strings in fixed memory, for paths and variables.

use core::ffi::CStr;

/// A string of at most `N - 1` bytes, followed by a zero byte.
pub struct Text<const N: usize> {
    bytes: [u8; N],
    length: usize,
}

impl<const N: usize> Text<N> {
    /// Returns an empty string.
    pub const fn new() -> Text<N> {
        Text { bytes: [0; N], length: 0 }
    }

    /// Joins the parts; `None` if they are too long or contain a zero byte.
    pub fn concat(parts: &[&[u8]]) -> Option<Text<N>> {
        let mut text = Text::new();
        text.set(parts)?;
        Some(text)
    }

    /// Replaces the string by the joined parts; `None` if they are too long or contain a zero byte.
    pub fn set(&mut self, parts: &[&[u8]]) -> Option<()> {
        self.length = 0;
        parts.iter().try_for_each(|part| self.push(part))
    }

    /// Appends a part; `None` if it does not fit or contains a zero byte.
    pub fn push(&mut self, part: &[u8]) -> Option<()> {
        let end = self.length.checked_add(part.len()).filter(|end| *end < N)?;
        if part.contains(&0) {
            return None;
        }
        self.bytes.get_mut(self.length..end)?.copy_from_slice(part);
        *self.bytes.get_mut(end)? = 0;
        self.length = end;
        Some(())
    }

    /// Returns the bytes of the string.
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }

    /// Returns the string as a C string.
    pub fn as_c_str(&self) -> &CStr {
        // `push` refuses zero bytes, so the first one is the terminator.
        CStr::from_bytes_until_nul(&self.bytes).unwrap_or_default()
    }
}
