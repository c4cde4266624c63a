//! Compositors that misbehave, or that do what Weston without a screen never does.

use crate::compositor::{Behaviour, Compositor, Order, WELL};
use bywash_display::{DisplayKind, Error, Surface, SurfaceOptions};
use std::time::{Duration, Instant};

const TIMEOUT: Duration = Duration::from_millis(400);

fn open(compositor: &Compositor) -> Result<Surface, Error> {
    let options = SurfaceOptions::new(64, 48).display(compositor.name()).timeout(TIMEOUT);
    Surface::open(DisplayKind::Wayland, &options)
}

/// Presents up to so many frames, and returns the error if there is one.
fn present(surface: &mut Surface, frames: u32) -> Result<(), Error> {
    (0..frames).try_for_each(|_| surface.frame().and_then(|frame| surface.present(frame, &[])))
}

#[test]
fn a_compositor_that_returns_no_frame_is_an_error() {
    let compositor = Compositor::start(Behaviour { releases: false, ..WELL });
    let mut surface = open(&compositor).unwrap();
    let begin = Instant::now();
    let error = present(&mut surface, 10).unwrap_err();
    assert!(matches!(error, Error::NotReturned { shipped: 3, .. }), "{error}");
    assert!(begin.elapsed() >= TIMEOUT && begin.elapsed() < 10 * TIMEOUT);
    assert_eq!(surface.stats().presented, 3);
}

#[test]
fn a_window_that_nobody_sees_goes_on_slowly() {
    let compositor = Compositor::start(Behaviour { asks: false, ..WELL });
    let mut surface = open(&compositor).unwrap();
    let begin = Instant::now();
    present(&mut surface, 6).unwrap();
    surface.finish().unwrap();
    let took = begin.elapsed();
    assert!(took >= Duration::from_millis(590) && took < Duration::from_secs(5), "{took:?}");
    assert_eq!(surface.stats().unseen, 5);
}

#[test]
fn a_window_that_is_closed_is_reported() {
    let compositor = Compositor::start(WELL);
    let mut surface = open(&compositor).unwrap();
    present(&mut surface, 2).unwrap();
    compositor.order(Order::CloseWindow);
    let error = present(&mut surface, 1000).unwrap_err();
    assert!(matches!(error, Error::Closed), "{error}");
}

#[test]
fn a_refused_request_is_told_with_its_reason() {
    let compositor = Compositor::start(WELL);
    let mut surface = open(&compositor).unwrap();
    present(&mut surface, 1).unwrap();
    compositor.order(Order::Refuse);
    let error = present(&mut surface, 1000).unwrap_err();
    assert!(matches!(&error, Error::Refused { .. }), "{error}");
    assert!(error.to_string().contains("it is refused"), "{error}");
}

#[test]
fn a_compositor_without_windows_is_refused() {
    let compositor = Compositor::start(Behaviour { has_shell: false, ..WELL });
    let error = open(&compositor).unwrap_err();
    assert!(matches!(&error, Error::Unsupported { what, .. } if what.contains("xdg_wm_base")), "{error}");
}

#[test]
fn a_compositor_that_configures_no_window_is_an_error() {
    let compositor = Compositor::start(Behaviour { configures: false, ..WELL });
    let error = open(&compositor).unwrap_err();
    assert!(matches!(error, Error::Silent { what: "configured the window", .. }), "{error}");
}

#[test]
fn a_compositor_that_ends_is_gone() {
    let compositor = Compositor::start(WELL);
    let mut surface = open(&compositor).unwrap();
    present(&mut surface, 2).unwrap();
    drop(compositor);
    let error = present(&mut surface, 1000).unwrap_err();
    assert!(matches!(error, Error::Gone { .. }), "{error}");
}
