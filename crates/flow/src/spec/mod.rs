//! What the user says: endpoints and stages as text, as in `file:/var/log/x,offset=4K` or `hash:sha256`.
//!
//! A text is `KIND:ADDRESS,OPTION,OPTION=VALUE`; a backslash takes the meaning from the character behind it, so that
//! an address may have commas. A text without a kind is a path. Invariant: what can be read can be written
//! ([`std::fmt::Display`]) and read again as the same; a word that is not known is an error that names those that are.
//! Called by the command, the C and the Python library, and the planner.

mod endpoint;
mod mac;
mod shell;
mod stage;
mod words;

pub use endpoint::{Congestion, Endpoint, Ethernet, File, Listening, Tcp, Udp, Unix};
pub use mac::{Mac, Neighbour};
pub use shell::{quoted, quoted_path};
pub use stage::{HashAlgorithm, Stage};
