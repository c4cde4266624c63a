//! Tests of windows of X11 that those of Wayland do not share.

use crate::surfaces::{draw, options};
use bywash_display::{DisplayKind, Error, Surface, SurfaceOptions};
use bywash_support::displays::{Client, Image, SCREEN, Server, Xvfb, assert_shown};

#[test]
fn a_closed_window_is_reported() {
    let server = Xvfb::start();
    let mut surface =
        Surface::open(DisplayKind::X11, &options(&server, 100, 80).title("to be closed ✓")).unwrap();
    let frame = surface.frame().unwrap();
    surface.present(frame, &[]).unwrap();
    Client::connect(&server.name()).close_window("to be closed ✓");
    let closed = std::iter::from_fn(|| Some(surface.frame().err())).take(100).flatten().next();
    assert!(matches!(closed, Some(Error::Closed)), "{closed:?}");
}

#[test]
fn what_was_covered_is_shown_again() {
    let server = Xvfb::start();
    let mut surface = Surface::open(DisplayKind::X11, &options(&server, 200, 100)).unwrap();
    let image = Image::pattern(200, 100, 5);
    let mut frame = surface.frame().unwrap();
    draw(&image, &mut frame);
    surface.present(frame, &[]).unwrap();
    surface.finish().unwrap();
    let client = Client::connect(&server.name());
    client.cover_and_uncover();
    assert!(image.position_in(&client.screenshot()).is_none());
    // The surface learns of it when it looks for events; meanwhile the program draws the next frame.
    let next = surface.frame().unwrap();
    surface.finish().unwrap();
    drop(next);
    assert_shown("x11-uncovered", &image, &client.screenshot());
}

#[test]
fn frames_are_bytes_that_nobody_else_can_write() {
    let server = Xvfb::start();
    let mut surface = Surface::open(DisplayKind::X11, &options(&server, 64, 64)).unwrap();
    let image = Image::new(64, 64, |x, y| if x > y { 0x40_8020 } else { 0xf0_0f0f });
    let mut frame = surface.frame().unwrap();
    let bytes: Vec<u8> = image.pixels.iter().flat_map(|pixel| pixel.to_le_bytes()).collect();
    frame.bytes_mut().unwrap().copy_from_slice(&bytes);
    surface.present(frame, &[]).unwrap();
    surface.finish().unwrap();
    assert_shown("x11-bytes", &image, &server.screenshot());
}

#[test]
fn another_format_of_pixels_is_refused() {
    let server = Xvfb::with_screen(SCREEN, 16);
    let refused = Surface::open(DisplayKind::X11, &options(&server, 64, 64)).unwrap_err();
    assert!(matches!(refused, Error::Unsupported { .. }), "{refused}");
    assert!(refused.to_string().contains("XRGB8888"), "{refused}");
}

#[test]
fn a_display_of_another_machine_is_refused() {
    let options = SurfaceOptions::new(64, 64).display("localhost:77");
    let refused = Surface::open(DisplayKind::X11, &options).unwrap_err().to_string();
    assert!(refused.contains("passes no descriptors"), "{refused}");
    let nonsense = Surface::open(DisplayKind::X11, &options.display("nonsense")).unwrap_err().to_string();
    assert!(nonsense.contains("':0'"), "{nonsense}");
}
