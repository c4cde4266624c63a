//! Endpoints and stages as the user writes them, such as `file:/var/log/x,offset=4K` or `hash:sha256`.
//!
//! The syntax is `KIND:ADDRESS,OPTION,OPTION=VALUE`. A backslash removes the meaning of the character behind
//! it, so that an address may contain commas. A text without a kind is a path. Invariant: every value can be
//! displayed ([`std::fmt::Display`]) and parsed again to an equal value; an unknown word is an error that
//! lists the known ones. Called by the command, the C and Python libraries, and the planner.

mod endpoint;
mod mac;
mod shell;
mod stage;
mod words;

pub use endpoint::{Congestion, Endpoint, Ethernet, File, Listening, Tcp, Udp, Unix};
pub use mac::{Mac, Neighbour};
pub use shell::{quoted, quoted_path};
pub use stage::{HashAlgorithm, Stage};
