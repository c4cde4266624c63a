//! Displays without a screen: servers that a test starts and ends, screenshots, and what windows are told; and the screen
//! of a guest.

#![allow(clippy::unwrap_used)] // a test fails by panicking

mod card;
mod image;
mod servers;
mod x11;

pub use card::Card;
pub use image::{Image, assert_shown};
pub use servers::{SCREEN, Server, ServerProcess, Weston, Xvfb};
pub use x11::Client;
