//! Parser and printer for the words of an endpoint or stage: a kind, an address, options.

use super::suggest;
use super::table::Row;
use crate::error::Error;
use crate::size;
use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::fmt::{self, Display, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// An endpoint or stage of a known kind, split into its address and options.
pub(crate) struct Words<'a> {
    row: &'static Row,
    text: Cow<'a, str>,
    /// Text behind the kind, as it was given.
    rest: &'a OsStr,
    /// Text between the kind and the first comma, unescaped.
    address: OsString,
    options: Vec<(String, Option<OsString>)>,
}

impl<'a> Words<'a> {
    /// Splits `rest`, the part of `text` behind the kind that `row` describes.
    pub(crate) fn cut(row: &'static Row, text: &'a OsStr, rest: &'a [u8]) -> Words<'a> {
        let mut parts = pieces(rest).into_iter();
        let address = OsString::from_vec(parts.next().unwrap_or_default());
        let options = parts.map(|part| {
            let (name, value) = match part.iter().position(|byte| *byte == b'=') {
                Some(at) => (&part[..at], Some(OsString::from_vec(part[at + 1..].to_vec()))),
                None => (&part[..], None),
            };
            (String::from_utf8_lossy(name).into_owned(), value)
        });
        Words {
            row,
            text: text.to_string_lossy(),
            rest: OsStr::from_bytes(rest),
            address,
            options: options.collect(),
        }
    }

    /// Returns everything behind the kind as it was given: commas and backslashes have no meaning in it.
    pub(crate) fn rest(&self) -> &'a OsStr {
        self.rest
    }

    /// Returns the address.
    ///
    /// # Errors
    /// [`Error::Usage`] if the address is not UTF-8.
    pub(crate) fn address(&self) -> Result<&str, Error> {
        self.address.to_str().ok_or_else(|| self.usage_error("only paths may be other than UTF-8"))
    }

    /// Returns the address as a path, which need not be UTF-8.
    ///
    /// # Errors
    /// [`Error::Usage`] if the address is empty.
    pub(crate) fn path(&self) -> Result<PathBuf, Error> {
        match self.address.is_empty() {
            true => Err(self.usage_error("a path is missing behind the colon")),
            false => Ok(self.address.clone().into()),
        }
    }

    /// Checks that there is no address.
    ///
    /// # Errors
    /// [`Error::Usage`] if there is one.
    pub(crate) fn no_address(&self) -> Result<(), Error> {
        match self.address()? {
            "" => Ok(()),
            address => {
                Err(self
                    .usage_error(format!("nothing is expected behind the colon, and '{address}' is there")))
            }
        }
    }

    /// Creates an [`Error::Usage`] that quotes the whole text.
    pub(crate) fn usage_error(&self, what: impl Display) -> Error {
        Error::Usage(format!("'{}': {what}", self.text))
    }

    /// Takes the option `name`, which has no value. Returns true if it was given.
    ///
    /// # Errors
    /// [`Error::Usage`] if the option has a value.
    pub(crate) fn flag(&mut self, name: &str) -> Result<bool, Error> {
        match self.take(name) {
            None => Ok(false),
            Some(None) => Ok(true),
            Some(Some(value)) => Err(self
                .usage_error(format!("'{name}' takes no value, and '{}' is one", value.to_string_lossy()))),
        }
    }

    /// Takes the option `name` and parses its value with `read`. Returns `None` if the option was not given.
    ///
    /// # Errors
    /// [`Error::Usage`] if the value is missing or not UTF-8, or `read` refuses it.
    pub(crate) fn value<T>(
        &mut self,
        name: &str,
        read: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<Option<T>, Error> {
        self.raw_value(name, |value| {
            read(value.to_str().ok_or_else(|| "only paths may be other than UTF-8".to_owned())?)
        })
    }

    /// Takes the option `name`, whose value is a path. Errors are those of [`Words::value`].
    pub(crate) fn path_value(&mut self, name: &str) -> Result<Option<PathBuf>, Error> {
        self.raw_value(name, |value| Ok(value.into()))
    }

    fn raw_value<T>(
        &mut self,
        name: &str,
        read: impl FnOnce(OsString) -> Result<T, String>,
    ) -> Result<Option<T>, Error> {
        match self.take(name) {
            None => Ok(None),
            Some(None) => Err(self.usage_error(format!("'{name}' needs a value: {name}=..."))),
            Some(Some(value)) => {
                read(value).map(Some).map_err(|reason| self.usage_error(format!("'{name}': {reason}")))
            }
        }
    }

    /// Takes the option `name`, whose value is a size in bytes. Errors are those of [`Words::value`].
    pub(crate) fn size(&mut self, name: &str) -> Result<Option<u64>, Error> {
        self.value(name, size::parse)
    }

    /// Takes the option `name`, whose value is a time in seconds. Errors are those of [`Words::value`].
    pub(crate) fn seconds(&mut self, name: &str) -> Result<Option<Duration>, Error> {
        self.value(name, |text| {
            text.parse::<f64>()
                .ok()
                .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
                .ok_or_else(|| format!("'{text}' is no time: give seconds, as in 2 or 0.5"))
        })
    }

    /// Checks that every option given has been taken.
    ///
    /// # Errors
    /// [`Error::Usage`] if an option is left: an unknown one, or the second one of a name.
    pub(crate) fn check_all_taken(&self) -> Result<(), Error> {
        let Some((name, _)) = self.options.first() else { return Ok(()) };
        let known: Vec<&str> = self.row.options().iter().map(|option| option.name()).collect();
        Err(self.usage_error(match known.contains(&name.as_str()) {
            true => format!("'{name}' is there twice"),
            false if known.is_empty() => format!("there is no option '{name}', nor any other here"),
            false => format!("there is no option '{name}'{}", suggest::among(name, &known)),
        }))
    }

    fn take(&mut self, name: &str) -> Option<Option<OsString>> {
        debug_assert!(
            self.row.options().iter().any(|option| option.name() == name),
            "'{name}' is not in the row of '{}'",
            self.row.name()
        );
        let at = self.options.iter().position(|option| option.0 == name)?;
        Some(self.options.remove(at).1)
    }
}

/// Splits a text at its commas, except escaped ones, and removes the backslashes. Returns at least one piece.
fn pieces(text: &[u8]) -> Vec<Vec<u8>> {
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
pub(crate) struct Escaped<'a>(pub(crate) &'a str);

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
pub(crate) fn option(out: &mut fmt::Formatter<'_>, name: &str, value: Option<impl Display>) -> fmt::Result {
    match value {
        Some(value) => write!(out, ",{name}={}", Escaped(&value.to_string())),
        None => Ok(()),
    }
}

/// Writes `,NAME` if `is` is true.
pub(crate) fn flag(out: &mut fmt::Formatter<'_>, name: &str, is: bool) -> fmt::Result {
    if is { write!(out, ",{name}") } else { Ok(()) }
}

/// Parses a number, as a reader for [`Words::value`].
pub(crate) fn number<T: FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("'{text}' is not a number that fits"))
}

#[cfg(test)]
mod tests {
    use super::super::table::{OptionRow, Value};
    use super::*;

    static ROW: Row = Row {
        name: "x",
        address: "PATH",
        sentence: "a kind for tests",
        options: &[
            OptionRow::new("offset", Value::Size, "a size"),
            OptionRow::new("late", Value::Seconds, "a time"),
            OptionRow::flag("flag", "a flag"),
        ],
    };

    fn words(rest: &'static str) -> Words<'static> {
        Words::cut(&ROW, OsStr::new("x:..."), rest.as_bytes())
    }

    #[test]
    fn commas_separate_but_behind_a_backslash() {
        assert_eq!(pieces(br"a\,b,c=d\\,e"), [&b"a,b"[..], br"c=d\", b"e"]);
        assert_eq!(pieces(b""), [b""]);
        assert_eq!(Escaped(r"a,b\c").to_string(), r"a\,b\\c");
    }

    #[test]
    fn what_nobody_asked_for_is_named() {
        let mut unknown = words("x,ofset=1");
        assert_eq!(unknown.size("offset").unwrap(), None);
        let error = unknown.check_all_taken().unwrap_err().to_string();
        assert!(error.contains("'x:...': there is no option 'ofset'; did you mean 'offset'?"), "{error}");
        assert!(error.contains("offset, late, flag"), "{error}");
        let mut twice = words("x,flag,flag");
        assert!(twice.flag("flag").unwrap());
        assert!(twice.check_all_taken().unwrap_err().to_string().contains("'flag' is there twice"));
    }

    #[test]
    fn values_where_they_belong() {
        let mut words = words("a,flag=1,offset,late=x");
        assert!(
            words.flag("flag").is_err() && words.size("offset").is_err() && words.seconds("late").is_err()
        );
    }
}
