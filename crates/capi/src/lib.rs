//! The C library: containers, paths, pools, channels, volumes, flows and surfaces for programs that are not written in Rust.
//!
//! The functions do the same as [`bywash_container`], [`bywash_channel`], [`::bywash_client`], [`bywash_flow`] and
//! [`bywash_display`], whose documentation says why. Here are the C names, handles in place of owned values, numbers in
//! place of error enums. The comments of
//! the exported items become `include/bywash.h` (`tests/header.rs` holds both together), so they are written for who
//! reads C.
//!
//! - [`error`]: what a function answers, and the text that goes with it
//! - [`handles`]: numbers that stand for values, and why a dead one does no harm
//! - [`options`], [`path`]: how two programs come together
//! - [`container`], [`ship`], [`message`]: what moves
//! - [`channel_options`], [`channel`]: how the two ends of a channel are made, and what they have in common
//! - [`channel_client`], [`buffer`], [`dispatch`]: the side that asks
//! - [`channel_server`], [`request`]: the side that answers
//! - [`client`], [`volume`], [`pieces`]: volumes of a device server, by calls that wait
//! - [`queue`], [`queue_request`], [`queue_dispatch`]: and by calls that do not
//! - [`administer`]: what its administrator asks
//! - [`pool`]: containers for a process that maps an arena by itself
//! - [`surface_options`], [`surface`]: windows and screens, whose frames are not copied
//! - [`flow`], [`running`], [`text`]: flows, flows that were started, and what both tell
//!
//! No panic crosses into C: the library is built with `panic = "abort"`, and an `extern "C"` function aborts in
//! any other build as well.

#![expect(non_camel_case_types, reason = "these are the names of the C header")]
#![expect(clippy::missing_safety_doc, reason = "the header's opening says what holds for all functions")]

pub mod administer;
pub mod buffer;
mod bytes;
pub mod channel;
pub mod channel_client;
pub mod channel_options;
pub mod channel_server;
pub mod client;
pub mod container;
pub mod dispatch;
pub mod error;
pub mod flow;
pub mod handles;
pub mod message;
pub mod options;
pub mod path;
pub mod pieces;
pub mod pool;
pub mod queue;
pub mod queue_dispatch;
pub mod queue_request;
pub mod request;
pub mod running;
pub mod ship;
pub mod surface;
pub mod surface_options;
pub mod text;
pub mod volume;
