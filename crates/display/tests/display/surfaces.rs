//! Surfaces of the tests, and drawing in them.

use bywash_display::{DisplayKind, Frame, SurfaceOptions};
use bywash_support::displays::{Image, Server};
use std::time::Duration;

pub fn options(server: &impl Server, width: u32, height: u32) -> SurfaceOptions {
    SurfaceOptions::new(width, height).display(server.name()).timeout(Duration::from_secs(10))
}

pub fn kind(server: &impl Server) -> DisplayKind {
    DisplayKind::named(server.kind()).unwrap()
}

/// Draws an image. The byte that the display ignores is 255, since Weston copies it into its own picture and
/// weston-screenshooter takes it for opacity.
pub fn draw(image: &Image, frame: &mut Frame) {
    for y in 0..image.height {
        frame.write_pixels(0, y as u32, image.row(y).iter().map(|pixel| pixel | 0xff00_0000));
    }
}
