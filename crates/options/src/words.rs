//! Parser and printer for the words of a kind: its address and its options.

use crate::suggest;
use crate::table::{Row, Value};
use bywash_quantity::{TimeUnit, duration, rate, size};
use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::fmt::{self, Display, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// Error for a text whose address or options are wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptionError {
    text: String,
    reason: String,
}

impl OptionError {
    /// Returns the description of the mistake, without the text.
    pub fn reason(&self) -> &str {
        &self.reason
    }
}

impl Display for OptionError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "'{}': {}", self.text, self.reason)
    }
}

impl std::error::Error for OptionError {}

/// A text of a known kind, split into its address and options. An option is removed when it is taken.
pub struct Words<'a> {
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
    pub fn cut(row: &'static Row, text: &'a OsStr, rest: &'a [u8]) -> Words<'a> {
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
    pub fn rest(&self) -> &'a OsStr {
        self.rest
    }

    /// Returns the address.
    ///
    /// # Errors
    /// [`OptionError`] if the address is not UTF-8.
    pub fn address(&self) -> Result<&str, OptionError> {
        self.address.to_str().ok_or_else(|| self.error("only paths may be other than UTF-8"))
    }

    /// Returns the address as a path, which need not be UTF-8.
    ///
    /// # Errors
    /// [`OptionError`] if the address is empty.
    pub fn path(&self) -> Result<PathBuf, OptionError> {
        match self.address.is_empty() {
            true if self.row.name.is_empty() => Err(self.error("a path is missing")),
            true => Err(self.error("a path is missing behind the colon")),
            false => Ok(self.address.clone().into()),
        }
    }

    /// Checks that there is no address.
    ///
    /// # Errors
    /// [`OptionError`] if there is one.
    pub fn no_address(&self) -> Result<(), OptionError> {
        match self.address()? {
            "" => Ok(()),
            address => {
                Err(self.error(format!("nothing is expected behind the colon, and '{address}' is there")))
            }
        }
    }

    /// Creates an error that quotes the whole text.
    pub fn error(&self, reason: impl Display) -> OptionError {
        OptionError { text: self.text.to_string(), reason: reason.to_string() }
    }

    /// Takes the option `name`, which has no value. Returns true if it was given.
    ///
    /// # Errors
    /// [`OptionError`] if the option has a value.
    pub fn flag(&mut self, name: &str) -> Result<bool, OptionError> {
        match self.take(name) {
            None => Ok(false),
            Some(None) => Ok(true),
            Some(Some(value)) => {
                Err(self.error(format!("'{name}' takes no value, and '{}' is one", value.to_string_lossy())))
            }
        }
    }

    /// Takes the option `name` and parses its value with `read`. Returns `None` if the option was not given.
    ///
    /// # Errors
    /// [`OptionError`] if the value is missing or not UTF-8, or `read` refuses it.
    pub fn value<T>(
        &mut self,
        name: &str,
        read: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<Option<T>, OptionError> {
        self.raw_value(name, |value| {
            read(value.to_str().ok_or_else(|| "only paths may be other than UTF-8".to_owned())?)
        })
    }

    /// Takes the option `name`, whose value is a path. Errors are those of [`Words::value`].
    pub fn path_value(&mut self, name: &str) -> Result<Option<PathBuf>, OptionError> {
        self.raw_value(name, |value| Ok(value.into()))
    }

    fn raw_value<T>(
        &mut self,
        name: &str,
        read: impl FnOnce(OsString) -> Result<T, String>,
    ) -> Result<Option<T>, OptionError> {
        match self.take(name) {
            None => Ok(None),
            Some(None) => Err(self.error(format!("'{name}' needs a value: {name}=..."))),
            Some(Some(value)) => {
                read(value).map(Some).map_err(|reason| self.error(format!("'{name}': {reason}")))
            }
        }
    }

    /// Takes the option `name`, whose value is a size in bytes. Errors are those of [`Words::value`].
    pub fn size(&mut self, name: &str) -> Result<Option<u64>, OptionError> {
        self.value(name, |text| size(text).map_err(|error| format!("'{text}' is {error}")))
    }

    /// Takes the option `name`, whose value is a rate in bytes per second. Errors are those of
    /// [`Words::value`].
    pub fn rate(&mut self, name: &str) -> Result<Option<u64>, OptionError> {
        self.value(name, |text| rate(text).map_err(|error| format!("'{text}' is {error}")))
    }

    /// Takes the option `name`, whose value is a duration; a number alone is in the unit of the option's row.
    /// Errors are those of [`Words::value`].
    pub fn duration(&mut self, name: &str) -> Result<Option<Duration>, OptionError> {
        let unit = self.row.options.iter().find_map(|option| match option.value {
            Value::Duration(unit) if option.name == name => Some(unit),
            _ => None,
        });
        let unit = unit.unwrap_or(TimeUnit::Second);
        self.value(name, |text| duration(text, unit).map_err(|error| format!("'{text}' is {error}")))
    }

    /// Takes the option `name`, whose value is one of the words that the option's row lists; returns its
    /// index. Errors are those of [`Words::value`].
    pub fn choice(&mut self, name: &str) -> Result<Option<usize>, OptionError> {
        let words = self.row.options.iter().find_map(|option| match option.value {
            Value::Choice(words) if option.name == name => Some(words),
            _ => None,
        });
        let words = words.unwrap_or_default();
        self.value(name, |text| {
            let index = words.iter().position(|word| *word == text);
            index.ok_or_else(|| format!("there is no '{text}'{}", suggest::among(text, words)))
        })
    }

    /// Checks that every option given has been taken.
    ///
    /// # Errors
    /// [`OptionError`] if an option is left: an unknown one, or the second one of a name.
    pub fn check_all_taken(&self) -> Result<(), OptionError> {
        let Some((name, _)) = self.options.first() else { return Ok(()) };
        let known: Vec<&str> = self.row.options.iter().map(|option| option.name).collect();
        Err(self.error(match known.contains(&name.as_str()) {
            true => format!("'{name}' is there twice"),
            false if known.is_empty() => format!("there is no option '{name}', nor any other here"),
            false => format!("there is no option '{name}'{}", suggest::among(name, &known)),
        }))
    }

    fn take(&mut self, name: &str) -> Option<Option<OsString>> {
        debug_assert!(
            self.row.options.iter().any(|option| option.name == name),
            "'{name}' is not in the row of '{}'",
            self.row.name
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
pub struct Escaped<'a>(pub &'a str);

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
///
/// # Errors
/// Those of the formatter.
pub fn option(out: &mut fmt::Formatter<'_>, name: &str, value: Option<impl Display>) -> fmt::Result {
    match value {
        Some(value) => write!(out, ",{name}={}", Escaped(&value.to_string())),
        None => Ok(()),
    }
}

/// Writes `,NAME` if `is` is true.
///
/// # Errors
/// Those of the formatter.
pub fn flag(out: &mut fmt::Formatter<'_>, name: &str, is: bool) -> fmt::Result {
    if is { write!(out, ",{name}") } else { Ok(()) }
}

/// Parses a number, as a reader for [`Words::value`].
///
/// # Errors
/// A message with the text, if it is not a number of this type.
pub fn number<T: FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("'{text}' is not a number that fits"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::OptionRow;

    static ROW: Row = Row {
        name: "x",
        address: "PATH",
        sentence: "a kind for tests",
        options: &[
            OptionRow::new("offset", Value::Size, "a size"),
            OptionRow::new("late", Value::Duration(TimeUnit::Second), "a time"),
            OptionRow::new("kind", Value::Choice(&["one", "other"]), "a choice"),
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
        assert!(error.contains("offset, late, kind, flag"), "{error}");
        let mut twice = words("x,flag,flag");
        assert!(twice.flag("flag").unwrap());
        assert!(twice.check_all_taken().unwrap_err().to_string().contains("'flag' is there twice"));
    }

    #[test]
    fn values_where_they_belong() {
        let mut words = words("a,flag=1,offset,late=x");
        assert!(
            words.flag("flag").is_err() && words.size("offset").is_err() && words.duration("late").is_err()
        );
    }
}
