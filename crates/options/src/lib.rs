//! Tables of options, and what is made from them.
//!
//! A thing that a user names on a command line, such as `file:/var/log/x,offset=4K`, consists of a kind, an
//! address and options: `KIND:ADDRESS,OPTION,OPTION=VALUE`. Each kind is one [`Row`]: its name, the form of its
//! address, one sentence, and an [`OptionRow`] for each option. The parser ([`Words`]), error messages
//! ([`among`]), help texts ([`help`]) and the tables of the guides ([`guide`]) come from these rows.
//!
//! ```
//! use bywash_options::{OptionRow, Row, Value, Words};
//! use std::ffi::OsStr;
//!
//! static ROW: Row = Row {
//!     name: "file",
//!     address: "PATH",
//!     sentence: "a file",
//!     options: &[OptionRow::new("offset", Value::Size, "offset of the first byte")],
//! };
//!
//! let mut words = Words::cut(&ROW, OsStr::new("file:/x,offset=4K"), b"/x,offset=4K");
//! assert_eq!(words.path()?.to_str(), Some("/x"));
//! assert_eq!(words.size("offset")?, Some(4096));
//! words.check_all_taken()?;
//!
//! let mut words = Words::cut(&ROW, OsStr::new("file:/x,ofset=4K"), b"/x,ofset=4K");
//! assert_eq!(words.size("offset")?, None);
//! let error = words.check_all_taken().unwrap_err().to_string();
//! assert_eq!(error, "'file:/x,ofset=4K': there is no option 'ofset'; did you mean 'offset'? There are offset");
//! # Ok::<_, bywash_options::OptionError>(())
//! ```
//!
//! A backslash removes the meaning of the character behind it, so that an address may contain commas.

#![forbid(unsafe_code)]

mod suggest;
mod table;
mod text;
mod words;

pub use suggest::among;
pub use table::{OptionRow, Row, Side, Value};
pub use text::{guide, help, help_entry};
pub use words::{Escaped, OptionError, Words, flag, number, option};
