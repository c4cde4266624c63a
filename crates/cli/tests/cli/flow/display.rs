//! Frames in windows (`display:`), on Xvfb and Weston.

use super::{BackgroundChild, LIMIT, flow, flows};
use crate::place::{TestFolder, stderr};
use bywash_support::displays::{Client, Image, Server, ServerProcess, Weston, Xvfb, assert_shown};
use serde_json::Value;
use std::time::{Duration, Instant};

macro_rules! on_both {
    ($($test:ident)*) => {
        mod xvfb {
            $(#[test] fn $test() { super::$test::<super::Xvfb>(); })*
        }
        mod weston {
            $(#[test] fn $test() { super::$test::<super::Weston>(); })*
        }
    };
}

on_both! {
    a_y4m_file_is_shown_at_its_own_rate
    raw_frames_are_shown_and_none_is_dropped
    a_picture_is_scaled
    a_display_that_is_killed_ends_the_flow
    a_display_that_is_stopped_ends_the_flow
}

const WIDTH: usize = 160;
const HEIGHT: usize = 120;

/// Text of the endpoint of a server.
fn display(server: &impl Server, options: &str) -> String {
    format!("display:{},name={},{options}", server.kind(), server.name())
}

/// Looks at the screen until it shows the image.
fn wait_for(server: &impl Server, name: &str, image: &Image) {
    let end = Instant::now() + LIMIT;
    while image.position_in(&server.screenshot()).is_none() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_shown(name, image, &server.screenshot());
}

/// Luma of frame `number`: a gradient, with a block that moves.
fn luma(number: usize, x: usize, y: usize) -> u8 {
    match (10..20).contains(&y) && (number * 8..number * 8 + 16).contains(&x) {
        true => 235,
        false => 16 + (x + y) as u8 % 200,
    }
}

/// Frames without colour: the screen shows their luma, which 16 to 235 is stretched to 0 to 255.
fn gray(number: usize) -> Image {
    Image::new(WIDTH, HEIGHT, |x, y| {
        let value = ((u32::from(luma(number, x, y)) - 16) * 298 + 128) >> 8;
        value.min(255) * 0x01_0101
    })
}

fn y4m(header: &str, frames: usize) -> Vec<u8> {
    let mut bytes = format!("YUV4MPEG2 W{WIDTH} H{HEIGHT} {header}\n").into_bytes();
    for number in 0..frames {
        bytes.extend_from_slice(b"FRAME\n");
        bytes.extend((0..HEIGHT).flat_map(|y| (0..WIDTH).map(move |x| luma(number, x, y))));
        bytes.extend(vec![128; WIDTH * HEIGHT / 2]);
    }
    bytes
}

fn presentation(json: &[u8]) -> Value {
    let report: Value = serde_json::from_slice(json).unwrap();
    report["presentations"][0].clone()
}

fn a_y4m_file_is_shown_at_its_own_rate<S: Server>() {
    let (server, place) = (S::start(), TestFolder::new());
    place.file("slow.y4m", y4m("F1:2 Ip C420jpeg", 2));
    let running = BackgroundChild::flow(&place, &["--json", "slow.y4m", &display(&server, "title=slow")]);
    for number in 0..2 {
        wait_for(&server, &format!("flow-{}-{number}", server.kind()), &gray(number));
    }
    let told = presentation(&running.succeeds().stdout);
    assert_eq!((&told["display"], &told["width"]), (&server.kind().into(), &WIDTH.into()));
    assert_eq!((&told["frames_shown"], &told["frames_dropped"]), (&2.into(), &0.into()));

    place.file("fast.y4m", y4m("F20:1", 30));
    let begin = Instant::now();
    let told = presentation(&flows(&place, &["--json", "fast.y4m", &display(&server, "fps=source")]).stdout);
    let took = begin.elapsed().as_secs_f64();
    let count = |name: &str| told[name].as_u64().unwrap();
    assert!(took >= 1.49, "{took} s for 30 frames, 20 a second");
    assert_eq!(count("frames_shown") + count("frames_dropped"), 30, "{told}");
    assert!(count("frames_shown") >= 8, "at least every fourth is shown: {told}");
}

/// Frame `number` in bytes of red, green and blue, and as the screen shows it.
fn rgb(number: usize) -> (Vec<u8>, Image) {
    let image = Image::pattern(WIDTH, HEIGHT, number);
    (image.pixels.iter().flat_map(|pixel| pixel.to_be_bytes()[1..].to_vec()).collect(), image)
}

fn raw_frames_are_shown_and_none_is_dropped<S: Server>() {
    let (server, place) = (S::start(), TestFolder::new());
    place.file("frames", (0..90).flat_map(|number| rgb(number).0).collect::<Vec<u8>>());
    let raw = format!("size={WIDTH}x{HEIGHT},format=rgb");
    let told = presentation(&flows(&place, &["--json", "frames", &display(&server, &raw)]).stdout);
    assert_eq!((&told["frames_shown"], &told["frames_dropped"]), (&90.into(), &0.into()), "{told}");
    assert_eq!(told["frames_late"], 0);
    // The last frame of a slow stream is seen for as long as each.
    place.file("two", [rgb(7).0, rgb(8).0].concat());
    let to = display(&server, &format!("{raw},fps=1/2"));
    let running = BackgroundChild::flow(&place, &["two", &to]);
    wait_for(&server, &format!("flow-{}-raw-7", server.kind()), &rgb(7).1);
    wait_for(&server, &format!("flow-{}-raw-8", server.kind()), &rgb(8).1);
    let told = running.succeeds();
    assert!(stderr(&told).contains("2 frames shown on"), "{}", stderr(&told));
}

fn a_picture_is_scaled<S: Server>() {
    let (server, place) = (S::start(), TestFolder::new());
    let (bytes, image) = rgb(9);
    place.file("frame", bytes);
    for (scale, width, height) in [("3", 3 * WIDTH, 3 * HEIGHT), ("100x77", 100, 77)] {
        let to = display(&server, &format!("size={WIDTH}x{HEIGHT},format=rgb,fps=1/3,scale={scale}"));
        let running = BackgroundChild::flow(&place, &["frame", &to]);
        let scaled = Image::new(width, height, |x, y| image.row(y * HEIGHT / height)[x * WIDTH / width]);
        wait_for(&server, &format!("flow-{}-scaled-{scale}", server.kind()), &scaled);
        running.succeeds();
    }
}

/// Starts a flow of frames without end, and waits until they are shown.
fn endless<S: Server>(server: &S, place: &TestFolder, options: &str) -> BackgroundChild {
    let to = display(server, &format!("size={WIDTH}x{HEIGHT},{options}"));
    let running = BackgroundChild::flow(place, &["random:,seed=5", &to]);
    let begin = server.screenshot();
    let end = Instant::now() + LIMIT;
    while server.screenshot() == begin {
        assert!(Instant::now() < end, "nothing is shown");
    }
    running
}

fn a_display_that_is_killed_ends_the_flow<S: ServerProcess>() {
    let (mut server, place) = (S::start(), TestFolder::new());
    let running = endless(&server, &place, "fps=max");
    server.kill();
    let ended = running.finish();
    assert_eq!(ended.status.code(), Some(1), "{}", stderr(&ended));
    assert!(stderr(&ended).contains("is gone"), "{}", stderr(&ended));
}

fn a_display_that_is_stopped_ends_the_flow<S: ServerProcess>() {
    for pace in ["fps=max", "fps=50"] {
        let (mut server, place) = (S::start(), TestFolder::new());
        let running = endless(&server, &place, &format!("{pace},timeout=1"));
        server.stop();
        let begin = Instant::now();
        let ended = running.finish();
        assert_eq!(ended.status.code(), Some(1), "{}", stderr(&ended));
        assert!(stderr(&ended).contains("within 1 s"), "{}", stderr(&ended));
        assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
    }
}

#[test]
fn a_window_that_is_closed_ends_the_flow() {
    let (server, place) = (Xvfb::start(), TestFolder::new());
    let running = endless(&server, &place, "fps=max,title=of the flow");
    Client::connect(&server.name()).close_window("of the flow");
    let ended = running.finish();
    assert_eq!(ended.status.code(), Some(1));
    assert!(stderr(&ended).contains("the window was closed"), "{}", stderr(&ended));
}

#[test]
fn a_flow_to_a_display_is_cancelled_while_it_waits() {
    let (server, place) = (Xvfb::start(), TestFolder::new());
    place.file("slow.y4m", y4m("F1:100", 2));
    let running = BackgroundChild::flow(&place, &["slow.y4m", &display(&server, "title=x")]);
    wait_for(&server, "flow-cancelled", &gray(0));
    running.signal("TERM");
    let begin = Instant::now();
    assert!(!running.finish().status.success());
    assert!(begin.elapsed() < Duration::from_secs(10));
}

#[test]
fn what_cannot_be_shown_is_told() {
    let (server, place) = (Xvfb::start(), TestFolder::new());
    let to = display(&server, "title=x");
    place.file("cut.y4m", &y4m("F25:1", 2)[..30000]);
    place.file("text", "this is text");
    place.file("still.y4m", y4m("C420", 1));
    place.file("deep.y4m", y4m("F25:1 C420p10", 1));
    for (from, to, said) in [
        ("cut.y4m", to.as_str(), "the data ended within frame 2"),
        ("text", &to, "is no y4m"),
        ("still.y4m", &to, "says no rate"),
        ("deep.y4m", &to, "C420p10"),
        ("still.y4m", &display(&server, "fps=max,scale=20000x1"), "is no size"),
        ("still.y4m", "display:x11,name=:9999,fps=max", "cannot connect to x11 display ':9999'"),
        ("still.y4m", "display:wayland,name=/nowhere/x,fps=max", "cannot connect to wayland display"),
    ] {
        let refused = flow(&place, &[from, to]);
        assert!(!refused.status.success(), "{from} {to}");
        assert!(stderr(&refused).contains(said), "{from} {to}: {}", stderr(&refused));
    }
    let nowhere = place
        .bywash(&["flow", "still.y4m", "display:"])
        .env_remove("DISPLAY")
        .env_remove("WAYLAND_DISPLAY")
        .output()
        .unwrap();
    assert!(stderr(&nowhere).contains("neither WAYLAND_DISPLAY nor DISPLAY is set"), "{}", stderr(&nowhere));
}

#[test]
fn the_environment_names_the_display() {
    let (server, place) = (Xvfb::start(), TestFolder::new());
    place.file("frames.y4m", y4m("F25:1", 3));
    let told = place
        .bywash(&["flow", "--json", "frames.y4m", "display:"])
        .env("DISPLAY", server.name())
        .env_remove("WAYLAND_DISPLAY")
        .output()
        .unwrap();
    assert!(told.status.success(), "{}", stderr(&told));
    assert_eq!(presentation(&told.stdout)["display"], "x11");
}
