//! Displays without a screen: servers that a test starts and ends, screenshots, and what windows are told.

#![allow(clippy::unwrap_used)] // a test fails by panicking

mod image;
mod servers;
mod x11;

pub use image::{Image, assert_shown};
pub use servers::{SCREEN, Server, Weston, Xvfb};
pub use x11::Client;
