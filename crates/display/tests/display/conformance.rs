//! The suite that a kind of display passes.

use crate::surfaces::{draw, kind, options};
use bywash_display::{DisplayKind, Error, Frame, Rectangle, Surface, SurfaceOptions};
use bywash_support::displays::{Card, Image, Server, ServerProcess, Weston, Xvfb, assert_shown};
use std::time::{Duration, Instant};

const WIDTH: usize = 320;
const HEIGHT: usize = 240;

macro_rules! suite {
    ($($test:ident)*) => {
        mod xvfb {
            $(#[test] fn $test() { super::$test::<super::Xvfb>(); })*
        }
        mod weston {
            $(#[test] fn $test() { super::$test::<super::Weston>(); })*
        }
    };
}

suite! {
    what_is_drawn_is_shown
    a_counter_moves
    changed_parts_are_shown
    frames_come_back
    a_frame_that_is_dropped_is_free_again
    a_program_that_holds_all_frames_is_told
    a_frame_of_another_surface_is_refused
    surfaces_share_a_display
    a_killed_server_is_an_error
    a_stopped_server_is_an_error_within_the_timeout
    a_server_that_does_not_answer_is_an_error_within_the_timeout
    a_missing_server_is_named
    impossible_sizes_are_refused
}

/// Cases for a screen without a server: all but those that kill or stop it, and those with two surfaces.
#[cfg(target_arch = "x86_64")]
pub const WITHOUT_SERVER: [(&str, fn()); 7] = [
    ("what_is_drawn_is_shown", what_is_drawn_is_shown::<Card>),
    ("a_counter_moves", a_counter_moves::<Card>),
    ("changed_parts_are_shown", changed_parts_are_shown::<Card>),
    ("frames_come_back", frames_come_back::<Card>),
    ("a_frame_that_is_dropped_is_free_again", a_frame_that_is_dropped_is_free_again::<Card>),
    ("a_program_that_holds_all_frames_is_told", a_program_that_holds_all_frames_is_told::<Card>),
    ("impossible_sizes_are_refused", impossible_sizes_are_refused::<Card>),
];

pub fn surface(server: &impl Server) -> Surface {
    Surface::open(kind(server), &options(server, WIDTH as u32, HEIGHT as u32)).unwrap()
}

pub fn show(surface: &mut Surface, image: &Image) {
    let mut frame = surface.frame().unwrap();
    draw(image, &mut frame);
    surface.present(frame, &[]).unwrap();
}

/// Presents frames until an error, and returns the error and the time until it.
pub fn first_error(surface: &mut Surface) -> (Error, Duration) {
    let begin = Instant::now();
    loop {
        let outcome = surface.frame().and_then(|frame| surface.present(frame, &[]));
        if let Err(error) = outcome {
            return (error, begin.elapsed());
        }
        assert!(begin.elapsed() < Duration::from_secs(60), "no error came");
    }
}

fn what_is_drawn_is_shown<S: Server>() {
    let server = S::start();
    let mut surface = surface(&server);
    let image = Image::pattern(WIDTH, HEIGHT, 1);
    show(&mut surface, &image);
    surface.finish().unwrap();
    assert_shown(&format!("{}-drawn", server.kind()), &image, &server.screenshot());
}

fn a_counter_moves<S: Server>() {
    let server = S::start();
    let mut surface = surface(&server);
    for count in 0..45 {
        let image = Image::pattern(WIDTH, HEIGHT, count);
        show(&mut surface, &image);
        if count % 9 == 8 {
            surface.finish().unwrap();
            assert_shown(&format!("{}-counter-{count}", server.kind()), &image, &server.screenshot());
        }
    }
    assert_eq!(surface.stats().presented, 45);
}

fn changed_parts_are_shown<S: Server>() {
    let server = S::start();
    let mut surface = surface(&server);
    let mut image = Image::pattern(WIDTH, HEIGHT, 2);
    show(&mut surface, &image);
    // Two parts, one of which reaches out of the frame.
    let parts = [
        Rectangle { x: 10, y: 20, width: 30, height: 40 },
        Rectangle { x: 300, y: 200, width: 100, height: u32::MAX },
    ];
    for part in parts {
        for y in part.y..part.y.saturating_add(part.height).min(HEIGHT as u32) {
            for x in part.x..(part.x + part.width).min(WIDTH as u32) {
                image.pixels[y as usize * WIDTH + x as usize] ^= 0xff_ffff;
            }
        }
    }
    let mut frame = surface.frame().unwrap();
    draw(&image, &mut frame);
    surface.present(frame, &parts).unwrap();
    surface.finish().unwrap();
    assert_shown(&format!("{}-changed", server.kind()), &image, &server.screenshot());
}

fn frames_come_back<S: Server>() {
    let server = S::start();
    for frames in [2, 3, 16] {
        let options = options(&server, 64, 48).frames(frames);
        let mut surface = Surface::open(kind(&server), &options).unwrap();
        for _ in 0..40 {
            let frame = surface.frame().unwrap();
            surface.present(frame, &[]).unwrap();
        }
        surface.finish().unwrap();
        let stats = surface.stats();
        assert_eq!(stats.presented, 40);
        assert!(stats.returned >= 40 - 2, "{frames} frames: {stats:?}");
        // A busy machine may make a compositor late a few times.
        assert!(stats.unseen < 10, "{frames} frames: {stats:?}");
    }
}

fn a_frame_that_is_dropped_is_free_again<S: Server>() {
    let server = S::start();
    let mut surface = surface(&server);
    for _ in 0..10 {
        drop(surface.frame().unwrap());
    }
    let image = Image::pattern(WIDTH, HEIGHT, 3);
    show(&mut surface, &image);
    surface.finish().unwrap();
    assert_shown(&format!("{}-dropped", server.kind()), &image, &server.screenshot());
}

fn a_program_that_holds_all_frames_is_told<S: Server>() {
    let server = S::start();
    let mut surface = surface(&server);
    let held: Vec<Frame> = (0..3).map(|_| surface.frame().unwrap()).collect();
    let refused = surface.frame().unwrap_err();
    assert!(matches!(refused, Error::AllTaken(3)), "{refused}");
    drop(held);
    assert!(surface.frame().is_ok());
}

fn a_frame_of_another_surface_is_refused<S: Server>() {
    let server = S::start();
    let (mut one, mut other) = (surface(&server), surface(&server));
    let frame = one.frame().unwrap();
    assert!(matches!(other.present(frame, &[]), Err(Error::OtherSurface)));
    // It has gone back to its own surface.
    let held: Vec<Frame> = (0..3).map(|_| one.frame().unwrap()).collect();
    drop(held);
}

fn surfaces_share_a_display<S: Server>() {
    let server = S::start();
    let mut one = surface(&server);
    show(&mut one, &Image::pattern(WIDTH, HEIGHT, 6));
    one.finish().unwrap();
    // The second window lies upon the first one.
    let mut other = surface(&server);
    let image = Image::pattern(WIDTH, HEIGHT, 7);
    show(&mut other, &image);
    other.finish().unwrap();
    assert_shown(&format!("{}-shared", server.kind()), &image, &server.screenshot());
    for count in 0..5 {
        show(&mut one, &Image::pattern(WIDTH, HEIGHT, count));
    }
}

fn a_killed_server_is_an_error<S: ServerProcess>() {
    let mut server = S::start();
    let mut surface = surface(&server);
    show(&mut surface, &Image::pattern(WIDTH, HEIGHT, 4));
    server.kill();
    let (error, took) = first_error(&mut surface);
    assert!(matches!(error, Error::Gone { .. }), "{error}");
    assert!(error.to_string().contains(&server.name()), "{error}");
    assert!(took < Duration::from_secs(5), "{took:?}");
}

fn a_stopped_server_is_an_error_within_the_timeout<S: ServerProcess>() {
    let mut server = S::start();
    let options = options(&server, WIDTH as u32, HEIGHT as u32).timeout(Duration::from_millis(700));
    let mut surface = Surface::open(kind(&server), &options).unwrap();
    show(&mut surface, &Image::pattern(WIDTH, HEIGHT, 4));
    surface.finish().unwrap();
    server.stop();
    let (error, took) = first_error(&mut surface);
    assert!(matches!(error, Error::NotReturned { shipped: 2.., .. }), "{error}");
    assert!(took > Duration::from_millis(700) && took < Duration::from_secs(5), "{took:?}");
}

fn a_server_that_does_not_answer_is_an_error_within_the_timeout<S: ServerProcess>() {
    let mut server = S::start();
    server.stop();
    let begin = Instant::now();
    let options = options(&server, 64, 64).timeout(Duration::from_millis(500));
    let error = Surface::open(kind(&server), &options).unwrap_err();
    assert!(matches!(error, Error::Silent { what: "answered", .. }), "{error}");
    assert!(begin.elapsed() < Duration::from_secs(5));
}

fn a_missing_server_is_named<S: ServerProcess>() {
    let mut server = S::start();
    let (kind, name) = (kind(&server), server.name());
    server.kill();
    drop(server);
    let error = Surface::open(kind, &SurfaceOptions::new(64, 64).display(&name)).unwrap_err();
    assert!(matches!(error, Error::Connect { .. }), "{error}");
    assert!(error.to_string().contains(&name), "{error}");
}

fn impossible_sizes_are_refused<S: Server>() {
    let server = S::start();
    for (width, height) in [(0, 1), (1, 0), (16385, 1), (1, u32::MAX)] {
        let refused = Surface::open(kind(&server), &options(&server, width, height)).unwrap_err();
        assert!(matches!(refused, Error::Option { .. }), "{refused}");
    }
    for frames in [0, 1, 17] {
        let refused = Surface::open(kind(&server), &options(&server, 9, 9).frames(frames)).unwrap_err();
        assert!(matches!(refused, Error::Option { option: "the number of frames", .. }), "{refused}");
    }
    let refused = Surface::open(kind(&server), &options(&server, 16384, 16384)).unwrap_err();
    let reason = if kind(&server) == DisplayKind::Kms { "do not fit on a screen" } else { "2 GiB" };
    assert!(refused.to_string().contains(reason), "{refused}");
}
