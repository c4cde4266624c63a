//! Video: the pixels of frames as files hold them, the clock of streams, and the conversion of frames into the pixels of
//! a display.
//!
//! Called by [`crate::endpoint`] for `display:`, and by [`crate::media`].

#![cfg_attr(not(feature = "display"), allow(dead_code, reason = "only a display uses all of it"))]

mod clock;
#[cfg(feature = "display")]
mod colour;
mod format;
mod stream;

pub(crate) use clock::{Clock, Tolerance, Turn};
#[cfg(feature = "display")]
pub(crate) use colour::Painter;
#[cfg(feature = "display")]
pub(crate) use format::FORMAT_NAMES;
pub(crate) use format::{Picture, PixelFormat, Rate};
pub(crate) use stream::{FrameStream, Step};
