//! Parser and printer for the words of an endpoint or stage: a kind, an address, options.

use crate::Error;
use crate::size;
use std::fmt::{self, Display, Write};
use std::str::FromStr;
use std::time::Duration;

/// An endpoint or stage, split into its address and options.
pub(super) struct Words<'a> {
    text: &'a str,
    /// Text in front of the first comma, unescaped.
    pub(super) address: String,
    options: Vec<(String, Option<String>)>,
}

impl<'a> Words<'a> {
    /// Splits `rest`, the part of `text` behind its kind.
    pub(super) fn cut(text: &'a str, rest: &str) -> Words<'a> {
        let mut parts = pieces(rest).into_iter();
        let address = parts.next().unwrap_or_default();
        let options = parts.map(|part| match part.split_once('=') {
            Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
            None => (part, None),
        });
        Words { text, address, options: options.collect() }
    }

    /// Creates an [`Error::Usage`] that quotes the whole text.
    pub(super) fn usage_error(&self, what: impl Display) -> Error {
        Error::Usage(format!("'{}': {what}", self.text))
    }

    /// Takes the option `name`, which has no value. Returns true if it was given.
    ///
    /// # Errors
    /// [`Error::Usage`] if the option has a value.
    pub(super) fn flag(&mut self, name: &str) -> Result<bool, Error> {
        match self.take(name) {
            None => Ok(false),
            Some(None) => Ok(true),
            Some(Some(value)) => {
                Err(self.usage_error(format!("'{name}' takes no value, and '{value}' is one")))
            }
        }
    }

    /// Takes the option `name` and parses its value with `read`. Returns `None` if the option was not given.
    ///
    /// # Errors
    /// [`Error::Usage`] if the value is missing or `read` refuses it.
    pub(super) fn value<T>(
        &mut self,
        name: &str,
        read: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<Option<T>, Error> {
        match self.take(name) {
            None => Ok(None),
            Some(None) => Err(self.usage_error(format!("'{name}' needs a value: {name}=..."))),
            Some(Some(value)) => {
                read(&value).map(Some).map_err(|reason| self.usage_error(format!("'{name}': {reason}")))
            }
        }
    }

    /// Takes the option `name`, whose value is a size in bytes. Errors are those of [`Words::value`].
    pub(super) fn size(&mut self, name: &str) -> Result<Option<u64>, Error> {
        self.value(name, size::parse)
    }

    /// Takes the option `name`, whose value is a time in seconds. Errors are those of [`Words::value`].
    pub(super) fn seconds(&mut self, name: &str) -> Result<Option<Duration>, Error> {
        self.value(name, |text| {
            text.parse::<f64>()
                .ok()
                .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
                .ok_or_else(|| format!("'{text}' is no time: give seconds, as in 2 or 0.5"))
        })
    }

    /// Checks that every option given has been taken. `known` lists the possible options, for the message.
    ///
    /// # Errors
    /// [`Error::Usage`] if an option is left: an unknown one, or the second one of a name.
    pub(super) fn check_all_taken(&self, known: &[&str]) -> Result<(), Error> {
        let Some((name, _)) = self.options.first() else { return Ok(()) };
        Err(self.usage_error(match known {
            [] => format!("there is no option '{name}', nor any other here"),
            known => {
                format!("there is no option '{name}' (or it is there twice); there are {}", known.join(", "))
            }
        }))
    }

    fn take(&mut self, name: &str) -> Option<Option<String>> {
        let at = self.options.iter().position(|option| option.0 == name)?;
        Some(self.options.remove(at).1)
    }
}

/// Splits a text at its commas, except escaped ones, and removes the backslashes.
fn pieces(text: &str) -> Vec<String> {
    // The splits are at ASCII bytes, so every piece is still UTF-8.
    byte_pieces(text.as_bytes()).iter().map(|piece| String::from_utf8_lossy(piece).into_owned()).collect()
}

/// Splits any bytes like [`Words::cut`]. Returns at least one piece.
pub(super) fn byte_pieces(text: &[u8]) -> Vec<Vec<u8>> {
    let mut pieces = vec![Vec::new()];
    let mut bytes = text.iter().copied();
    while let Some(byte) = bytes.next() {
        let last = pieces.len() - 1;
        match byte {
            b'\\' => pieces[last].extend(bytes.next()),
            b',' => pieces.push(Vec::new()),
            other => pieces[last].push(other),
        }
    }
    pieces
}

/// Text that displays with a backslash in front of each comma and backslash, as an address needs it.
pub(super) struct Escaped<'a>(pub(super) &'a str);

impl Display for Escaped<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for letter in self.0.chars() {
            if matches!(letter, ',' | '\\') {
                out.write_char('\\')?;
            }
            out.write_char(letter)?;
        }
        Ok(())
    }
}

/// Writes `,NAME=VALUE` if there is a value.
pub(super) fn option(out: &mut fmt::Formatter<'_>, name: &str, value: Option<impl Display>) -> fmt::Result {
    match value {
        Some(value) => write!(out, ",{name}={}", Escaped(&value.to_string())),
        None => Ok(()),
    }
}

/// Writes `,NAME` if `is` is true.
pub(super) fn flag(out: &mut fmt::Formatter<'_>, name: &str, is: bool) -> fmt::Result {
    if is { write!(out, ",{name}") } else { Ok(()) }
}

/// Parses a number, as a reader for [`Words::value`].
pub(super) fn number<T: FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("'{text}' is not a number that fits"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commas_separate_but_behind_a_backslash() {
        assert_eq!(pieces(r"a\,b,c=d\\,e"), ["a,b", r"c=d\", "e"]);
        assert_eq!(pieces(""), [""]);
        assert_eq!(Escaped(r"a,b\c").to_string(), r"a\,b\\c");
    }

    #[test]
    fn what_nobody_asked_for_is_named() {
        let mut words = Words::cut("file:x,ofset=1", "x,ofset=1");
        assert_eq!(words.size("offset").unwrap(), None);
        let error = words.check_all_taken(&["offset", "length"]).unwrap_err().to_string();
        assert!(error.contains("'file:x,ofset=1'") && error.contains("no option 'ofset'"), "{error}");
        assert!(error.contains("offset, length"), "{error}");
    }

    #[test]
    fn values_where_they_belong() {
        let mut words = Words::cut("x", "a,flag=1,size,late=x");
        assert!(words.flag("flag").is_err() && words.size("size").is_err() && words.seconds("late").is_err());
    }
}
