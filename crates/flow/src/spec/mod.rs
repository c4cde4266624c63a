//! The syntax of endpoints and stages, such as `file:/var/log/x,offset=4K` or `hash:sha256`.
//!
//! The syntax is `KIND:ADDRESS,OPTION,OPTION=VALUE`. A backslash removes the meaning of the character behind
//! it, so that an address may contain commas. Each kind is one [`Row`] of a table (endpoints, stages, movers:
//! see [`crate::syntax`]): parsing, messages, the command's help and the guide's tables come from these.
//! Invariant: every value can be displayed ([`std::fmt::Display`]) and parsed again to an equal value; an
//! unknown word is an error that lists the known ones.

mod shell;
pub(crate) mod suggest;
mod table;
mod words;

pub use shell::{quoted, quoted_path};
pub use table::{OptionRow, Row, Side, Value};
pub(crate) use words::{Escaped, Words, flag, number, option};
