//! Surfaces: windows of a display whose frames are containers, so that a frame is handed over without a copy.
//!
//! A program draws into a frame, in memory that the display server has mapped, and presents it. From then on the
//! server owns the frame, until it returns it; see [`bywash_container::Pool`].
//!
//! ```no_run
//! use bywash_display::{DisplayKind, Surface, SurfaceOptions};
//!
//! let kind = DisplayKind::detect().unwrap_or(DisplayKind::X11);
//! let mut surface = Surface::open(kind, &SurfaceOptions::new(640, 480).title("Fade"))?;
//! for blue in 0..=255 {
//!     let mut frame = surface.frame()?; // waits until the display asks for one
//!     frame.fill(blue);
//!     surface.present(frame, &[])?;
//! }
//! # Ok::<(), bywash_display::Error>(())
//! ```
//!
//! - [`Surface`], [`SurfaceOptions`], [`SurfaceStats`]: a window
//! - [`Frame`], [`Rectangle`]: the memory to draw into, and the parts of it that have changed
//! - [`DisplayKind`]: Wayland, X11, or a screen without a server (KMS)
//! - [`Error`]: every error of this crate
//!
//! A display server that dies, or that returns no frame within [`SurfaceOptions::timeout`], is an error, not a
//! hang. A Wayland compositor can write to the frames; this crate never reads them.
//!
//! Inside: `backend` is the interface that each kind of display implements, `wayland`, `x11` and `kms` are the three;
//! `memory` is that of a frame.

#![forbid(unsafe_code)]

mod backend;
mod error;
mod kind;
mod kms;
mod memory;
mod surface;
mod wayland;
mod x11;

pub use backend::{PIXEL_BYTES, Rectangle};
pub use error::Error;
pub use kind::DisplayKind;
pub use surface::{Frame, SIDE_MAX, Surface, SurfaceOptions, SurfaceStats};
