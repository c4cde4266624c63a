//! Text in fixed memory, for paths and variables.

use core::ffi::CStr;

/// At most `N - 1` bytes, with a zero byte behind them.
pub struct Text<const N: usize> {
    bytes: [u8; N],
    length: usize,
}

impl<const N: usize> Text<N> {
    /// Nothing.
    pub const fn new() -> Text<N> {
        Text { bytes: [0; N], length: 0 }
    }

    /// The parts one behind the other; `None` when they are too long.
    pub fn of(parts: &[&[u8]]) -> Option<Text<N>> {
        let mut text = Text::new();
        text.set(parts)?;
        Some(text)
    }

    /// Replaces the text by the parts, one behind the other; `None` when they are too long.
    pub fn set(&mut self, parts: &[&[u8]]) -> Option<()> {
        self.length = 0;
        parts.iter().try_for_each(|part| self.push(part))
    }

    /// Appends a part; `None` when it does not fit, or has a zero byte in it.
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

    /// The text.
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }

    /// The text as C has it.
    pub fn as_c_str(&self) -> &CStr {
        // The first zero byte is the one behind the text.
        CStr::from_bytes_until_nul(&self.bytes).unwrap_or_default()
    }
}
