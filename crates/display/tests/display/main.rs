//! Surfaces on displays without a screen: Xvfb, Weston, and a compositor of these tests that misbehaves; and on the screen of
//! a guest.
//!
//! Failures that this looks for: pixels on the screen differ from those drawn; a frame is reused while the server
//! reads it, or never comes back; a display server that is killed or stopped hangs the program; closing a window or
//! a refused request is not reported; a display that lacks something is not named.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod compositor;
mod conformance;
#[cfg(target_arch = "x86_64")]
mod guest;
#[cfg(target_arch = "x86_64")]
mod inside;
mod misbehaving;
mod surfaces;
mod x11;
