//! Tests that run in the guest of [`crate::guest`], which has one card with one screen.

use crate::conformance::{WITHOUT_SERVER, first_error, show, surface};
use crate::surfaces::{draw, options};
use bywash_display::{DisplayKind, Error, Rectangle, Surface, SurfaceOptions};
use bywash_support::displays::{Card, Image, SCREEN, Server, assert_shown};
use bywash_support::guest::script::check_is_inside;
use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// State of the screen's connection, which can be overridden by writing.
const STATUS: &str = "/sys/class/drm/card0-Virtual-1/status";

/// Returns what the console shows, which is not all black.
fn console() -> Image {
    let shown = Card.screenshot();
    assert!(shown.pixels.iter().any(|pixel| *pixel != 0), "the console is black");
    shown
}

#[test]
#[ignore = "run in the guest"]
fn gives_the_screen_back() {
    check_is_inside();
    let before = console();
    let mut surface = surface(&Card);
    show(&mut surface, &Image::pattern(320, 240, 1));
    show(&mut surface, &Image::pattern(320, 240, 2));
    assert!(Card.screenshot() != before);
    // A flip is under way.
    drop(surface);
    assert!(Card.screenshot() == before, "the console is not shown again");
}

#[test]
#[ignore = "run in the guest"]
fn gives_the_screen_back_when_it_is_killed() {
    check_is_inside();
    let before = console();
    let mut child = Command::new("/proc/self/exe")
        .args(["--ignored", "--exact", "inside::presents_until_it_is_killed", "--nocapture"])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let end = Instant::now() + Duration::from_secs(20);
    while Card.screenshot() == before {
        assert!(Instant::now() < end, "nothing is shown");
    }
    let taken = Surface::open(DisplayKind::Kms, &options(&Card, 64, 48)).unwrap_err();
    assert!(matches!(taken, Error::Unsupported { .. }), "{taken}");
    assert!(taken.to_string().contains("another program drives the card"), "{taken}");
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(Card.screenshot() == before, "the console is not shown again");
}

#[test]
#[ignore = "run in the guest"]
fn presents_until_it_is_killed() {
    check_is_inside();
    let mut surface = surface(&Card);
    for count in 0.. {
        show(&mut surface, &Image::pattern(320, 240, count));
    }
}

#[test]
#[ignore = "run in the guest"]
fn passes_the_conformance_suite() {
    check_is_inside();
    for (name, case) in WITHOUT_SERVER {
        let start = Instant::now();
        case();
        println!("guest: case {name}, {} ms", start.elapsed().as_millis());
    }
}

#[test]
#[ignore = "run in the guest"]
fn shows_a_picture_in_the_middle() {
    check_is_inside();
    let (width, height) = (320, 240);
    // Without a name it is the first card; without a mode the one that the screen prefers.
    for (mode, (across, down)) in [(None, SCREEN), (Some((640, 480)), (640, 480))] {
        let mut options = SurfaceOptions::new(width as u32, height as u32).frames(2);
        if let Some((across, down)) = mode {
            options = options.mode(across, down);
        }
        let size = Surface::screen_size(DisplayKind::Kms, &options).unwrap();
        assert_eq!(size, Some((across as u32, down as u32)));
        let mut surface = Surface::open(DisplayKind::Kms, &options).unwrap();
        for seed in 0..5 {
            let image = Image::pattern(width, height, seed);
            let mut frame = surface.frame().unwrap();
            draw(&image, &mut frame);
            surface.present(frame, &[]).unwrap();
            surface.finish().unwrap();
            let (left, above) = ((across - width) / 2, (down - height) / 2);
            let expected = Image::new(across, down, |x, y| {
                let inside = (left..left + width).contains(&x) && (above..above + height).contains(&y);
                if inside { image.row(y - above)[x - left] } else { 0 }
            });
            assert!(Card.screenshot() == expected, "frame {seed} at {across}x{down}");
        }
    }
}

#[test]
#[ignore = "run in the guest"]
fn refuses_impossible_screens() {
    check_is_inside();
    let refused = |options: &SurfaceOptions| Surface::open(DisplayKind::Kms, options).unwrap_err();
    let error = refused(&SurfaceOptions::new(64, 48).mode(641, 481));
    assert!(error.to_string().contains("no mode 641x481; it has 800x600, "), "{error}");
    let error = refused(&SurfaceOptions::new(1024, 16));
    assert!(error.to_string().contains("do not fit on a screen of 800x600"), "{error}");
    let error = refused(&SurfaceOptions::new(64, 48).display("/dev/dri/card7"));
    assert!(matches!(error, Error::Connect { .. }), "{error}");
    let error = refused(&SurfaceOptions::new(64, 48).display("/dev/null"));
    assert!(error.to_string().contains("it is no display adapter"), "{error}");
}

#[test]
#[ignore = "run in the guest"]
fn tells_the_adapter_of_changed_parts_alone() {
    check_is_inside();
    let (width, height) = (320, 240);
    let part = Rectangle { x: 100, y: 50, width: 60, height: 30 };
    let images: Vec<Image> = (0..7).map(|seed| Image::pattern(width, height, seed)).collect();
    // The first image, but for the part, which is that of image `seed`.
    let changed = |seed: usize| {
        Image::new(width, height, |x, y| {
            let is_changed = (100..160).contains(&x) && (50..80).contains(&y);
            images[if is_changed { seed } else { 0 }].row(y)[x]
        })
    };
    let mut surface = surface(&Card);
    let mut present = |image: &Image, damage: &[Rectangle]| {
        let mut frame = surface.frame().unwrap();
        draw(image, &mut frame);
        surface.present(frame, damage).unwrap();
        surface.finish().unwrap();
    };
    present(&images[0], &[]);
    // Each slot is shown whole at its first time, and with what changed since afterwards.
    for seed in 1..6 {
        present(&changed(seed), &[part]);
        assert_shown(&format!("kms-part-{seed}"), &changed(seed), &Card.screenshot());
    }
    // All of the frame is drawn, but only the part is said to have changed.
    present(&images[6], &[part]);
    assert_shown("kms-part-alone", &changed(6), &Card.screenshot());
}

#[test]
#[ignore = "run in the guest"]
fn ends_when_the_screen_is_unplugged() {
    check_is_inside();
    let mut surface = surface(&Card);
    show(&mut surface, &Image::pattern(320, 240, 1));
    fs::write(STATUS, "off").unwrap();
    let (error, took) = first_error(&mut surface);
    assert!(matches!(error, Error::Gone { .. }), "{error}");
    assert!(error.to_string().contains("its screen was unplugged"), "{error}");
    assert!(took < Duration::from_secs(5), "{took:?}");
    drop(surface);
    let error = Surface::open(DisplayKind::Kms, &SurfaceOptions::new(64, 48)).unwrap_err();
    assert!(matches!(error, Error::NoDisplay(_)), "{error}");
    assert!(error.to_string().contains("no screen is connected"), "{error}");
    fs::write(STATUS, "detect").unwrap();
}

#[test]
#[ignore = "run in the guest"]
fn ends_when_the_card_is_gone() {
    check_is_inside();
    let mut surface = surface(&Card);
    show(&mut surface, &Image::pattern(320, 240, 1));
    let driver = "/sys/bus/virtio/drivers/virtio_gpu";
    let devices = fs::read_dir(driver).unwrap().map(|entry| entry.unwrap().file_name());
    let device = devices.filter_map(|name| name.into_string().ok()).find(|name| name.starts_with("virtio"));
    fs::write(format!("{driver}/unbind"), device.unwrap()).unwrap();
    let (error, took) = first_error(&mut surface);
    assert!(matches!(error, Error::Gone { .. }), "{error}");
    assert!(took < Duration::from_secs(5), "{took:?}");
}
