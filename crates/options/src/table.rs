//! Rows of the tables: name, syntax, options, and a sentence on each. Plain data.

use bywash_quantity::TimeUnit;
use std::fmt;

/// A kind of endpoint, stage or device, as the user names it.
#[derive(Debug)]
pub struct Row {
    /// Name in front of the colon; `-` or nothing for a kind without a colon.
    pub name: &'static str,
    /// Form of the address, such as `HOST:PORT`; empty if there is none.
    pub address: &'static str,
    /// One sentence, in plain text and without a full stop.
    pub sentence: &'static str,
    /// Options, in the order in which messages list them.
    pub options: &'static [OptionRow],
}

/// An option of a kind.
#[derive(Debug)]
pub struct OptionRow {
    /// Name in front of the equals sign.
    pub name: &'static str,
    /// Value that the option takes.
    pub value: Value,
    /// Text of the value that counts if the option is not given; `None` if there is none.
    pub default: Option<&'static str>,
    /// Side of a flow on which the option has a meaning; [`Side::Both`] where there is no flow.
    pub side: Side,
    /// One sentence, in plain text and without a full stop.
    pub sentence: &'static str,
}

/// Value that an option takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Value {
    /// No value: the option's presence counts.
    Flag,
    /// A number of bytes, such as `64K`.
    Size,
    /// A number of bytes per second, such as `100M` or `100M/s`.
    Rate,
    /// A duration, such as `500ms`, or a number alone in this unit.
    Duration(TimeUnit),
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
    /// Returns the name as it precedes an address: with its colon, if it has one.
    pub fn prefix(&self) -> String {
        format!("{}{}", self.name, if matches!(self.name, "" | "-") { "" } else { ":" })
    }

    /// Returns the syntax without options, such as `tcp:HOST:PORT`.
    pub fn syntax(&self) -> String {
        self.prefix() + self.address
    }

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
    /// Creates a row for an option that takes no value.
    pub const fn flag(name: &'static str, sentence: &'static str) -> OptionRow {
        OptionRow::new(name, Value::Flag, sentence)
    }

    /// Creates a row without a default, for both sides.
    pub const fn new(name: &'static str, value: Value, sentence: &'static str) -> OptionRow {
        OptionRow { name, value, default: None, side: Side::Both, sentence }
    }

    /// Sets the text of the value that counts if the option is not given.
    pub const fn or(self, default: &'static str) -> OptionRow {
        OptionRow { default: Some(default), ..self }
    }

    /// Limits the option to one side of a flow.
    pub const fn only(self, side: Side) -> OptionRow {
        OptionRow { side, ..self }
    }

    /// Returns the syntax, such as `offset=SIZE` or `append`.
    pub fn syntax(&self) -> String {
        match self.value {
            Value::Flag => self.name.into(),
            value => format!("{}={value}", self.name),
        }
    }

    /// Returns the sentence with the side in front and the default behind.
    pub fn description(&self) -> String {
        let side = match self.side {
            Side::Both => "",
            Side::Source => "source: ",
            Side::Sink => "sink: ",
        };
        let default = self.default.map_or(String::new(), |default| format!(" (default {default})"));
        format!("{side}{}{default}", self.sentence)
    }
}

impl fmt::Display for Value {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Flag => Ok(()),
            Value::Size => out.write_str("SIZE"),
            Value::Rate => out.write_str("RATE"),
            Value::Duration(TimeUnit::Nanosecond) => out.write_str("NS"),
            Value::Duration(TimeUnit::Microsecond) => out.write_str("US"),
            Value::Duration(TimeUnit::Millisecond) => out.write_str("MS"),
            Value::Duration(_) => out.write_str("SECONDS"),
            Value::Number => out.write_str("N"),
            Value::Choice(words) => out.write_str(&words.join("|")),
            Value::Text(form) => out.write_str(form),
        }
    }
}
