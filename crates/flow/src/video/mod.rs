//! Video: the pixels of frames as files hold them, and their conversion into the pixels of a display.
//!
//! Called by [`crate::endpoint`] for `display:`.

mod clock;
mod colour;
mod format;
mod stream;

pub(crate) use clock::{Clock, Turn};
pub(crate) use colour::Painter;
pub(crate) use format::{FORMAT_NAMES, Picture, PixelFormat, Rate};
pub(crate) use stream::{FrameStream, Step};
