//! Rows of the tables of endpoints and stages: name, syntax, options, and a sentence on each.
//!
//! Plain data. The modules of the endpoints and stages define their rows; the parser, error messages, the
//! command's help and the test of the guide read them.

use std::fmt;

/// A kind of endpoint or stage, as the user names it.
#[derive(Debug)]
pub struct Row {
    pub(crate) name: &'static str,
    pub(crate) address: &'static str,
    pub(crate) sentence: &'static str,
    pub(crate) options: &'static [OptionRow],
}

/// An option of an endpoint or stage.
#[derive(Debug)]
pub struct OptionRow {
    pub(crate) name: &'static str,
    pub(crate) value: Value,
    pub(crate) default: &'static str,
    pub(crate) side: Side,
    pub(crate) sentence: &'static str,
}

/// Value that an option takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Value {
    /// No value: the option's presence counts.
    Flag,
    /// A number of bytes, such as `64K`.
    Size,
    /// A time, such as `2` or `0.5` seconds.
    Seconds,
    /// A whole number.
    Number,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// Text of this form.
    Text(&'static str),
}

/// Side of a flow on which an option has a meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// As a source and as a sink.
    Both,
    /// As a source only.
    Source,
    /// As a sink only.
    Sink,
}

impl Row {
    /// Returns the name in front of the colon, or `-`.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the name as it precedes an address: with its colon, except `-`.
    pub(crate) fn prefix(&self) -> String {
        format!("{}{}", self.name, if self.name == "-" { "" } else { ":" })
    }

    /// Returns the syntax without options, such as `tcp:HOST:PORT`.
    pub fn syntax(&self) -> String {
        self.prefix() + self.address
    }

    /// Returns one sentence, in plain text and without a full stop.
    pub fn sentence(&self) -> &'static str {
        self.sentence
    }

    /// Returns the options, in the order in which messages list them.
    pub fn options(&self) -> &'static [OptionRow] {
        self.options
    }
}

impl Row {
    /// Returns the options without those of `other`, if this row begins with all of these; else all options.
    pub fn options_beyond(&self, other: &Row) -> &'static [OptionRow] {
        let is_same = |(one, other): (&OptionRow, &OptionRow)| one.name == other.name;
        let begins_alike = self.options.iter().zip(other.options).all(is_same);
        match begins_alike && self.options.len() >= other.options.len() {
            true => &self.options[other.options.len()..],
            false => self.options,
        }
    }
}

impl OptionRow {
    /// Returns the name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the value that the option takes.
    pub fn value(&self) -> Value {
        self.value
    }

    /// Returns the text of the value that counts if the option is not given; `None` if there is none.
    pub fn default(&self) -> Option<&'static str> {
        Some(self.default).filter(|text| !text.is_empty())
    }

    /// Returns the side of a flow on which the option has a meaning.
    pub fn side(&self) -> Side {
        self.side
    }

    /// Returns one sentence, in plain text and without a full stop.
    pub fn sentence(&self) -> &'static str {
        self.sentence
    }

    /// Returns the syntax, such as `offset=SIZE` or `append`.
    pub fn syntax(&self) -> String {
        match self.value {
            Value::Flag => self.name.into(),
            value => format!("{}={value}", self.name),
        }
    }

    /// Creates a row for an option that takes no value.
    pub(crate) const fn flag(name: &'static str, sentence: &'static str) -> OptionRow {
        OptionRow::new(name, Value::Flag, sentence)
    }

    /// Creates a row without a default, for both sides.
    pub(crate) const fn new(name: &'static str, value: Value, sentence: &'static str) -> OptionRow {
        OptionRow { name, value, default: "", side: Side::Both, sentence }
    }

    /// Sets the text of the value that counts if the option is not given.
    pub(crate) const fn or(self, default: &'static str) -> OptionRow {
        OptionRow { default, ..self }
    }

    /// Limits the option to one side of a flow.
    pub(crate) const fn only(self, side: Side) -> OptionRow {
        OptionRow { side, ..self }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Flag => Ok(()),
            Value::Size => out.write_str("SIZE"),
            Value::Seconds => out.write_str("SECONDS"),
            Value::Number => out.write_str("N"),
            Value::Choice(words) => out.write_str(&words.join("|")),
            Value::Text(form) => out.write_str(form),
        }
    }
}
