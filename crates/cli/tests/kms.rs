//! `bywash flow ... display:kms` on the screen of a guest, which has no display server.
//!
//! This test program runs in the guest as well: the tests below [`inside`] are run there, and are ignored on the host.

#![cfg(target_arch = "x86_64")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use bywash_support::displays::SCREEN;
use bywash_support::guest::script::INSIDE;
use bywash_support::guest::{Guest, Screen};
use std::path::Path;

#[test]
#[ignore = "fetches a kernel of its own, 70 MB; `bywash-display` tests such a screen always"]
fn frames_are_shown_without_a_server() {
    let screen = Screen::new(SCREEN.0, SCREEN.1);
    let script = r#"
echo 0 > /sys/class/graphics/fbcon/cursor_blink
echo 'The text console of this guest' > /dev/tty0
inside a_picture_fits_the_screen
inside an_interrupted_flow_gives_the_screen_back
say passed
"#;
    let mut running = Guest::without_disk()
        .screen(&screen)
        .program("bywash", Path::new(env!("CARGO_BIN_EXE_bywash-command")))
        .program("tests", &std::env::current_exe().unwrap())
        .boot(&format!("{INSIDE}{script}"));
    screen.answer();
    running.wait_for("passed");
    running.wait_for_end();
}

mod inside {
    use bywash_support::displays::{Card, Image, Server};
    use bywash_support::guest::script::check_is_inside;
    use std::process::{Child, Command};
    use std::time::{Duration, Instant};

    fn flow(source: &str, sink: &str) -> Child {
        Command::new("/sbin/bywash").args(["flow", source, sink]).spawn().unwrap()
    }

    /// Looks at the screen until it is as expected.
    fn wait_until(what: &str, is_expected: impl Fn(&Image) -> bool) {
        let end = Instant::now() + Duration::from_secs(20);
        while !is_expected(&Card.screenshot()) {
            assert!(Instant::now() < end, "{what} is not shown");
        }
    }

    #[test]
    #[ignore = "run in the guest"]
    fn a_picture_fits_the_screen() {
        check_is_inside();
        let image = Image::pattern(160, 100, 3);
        let bytes: Vec<u8> =
            image.pixels.iter().flat_map(|pixel| pixel.to_be_bytes()[1..].to_vec()).collect();
        std::fs::write("/tmp/frame", bytes).unwrap();
        let to = "display:kms,size=160x100,format=rgb,fps=1/3,scale=fit,mode=640x480";
        let mut running = flow("/tmp/frame", to);
        let fitting = Image::new(640, 480, |x, y| match y.checked_sub(40) {
            Some(y) if y < 400 => image.row(y / 4)[x / 4],
            _ => 0,
        });
        wait_until("the picture", |screen| *screen == fitting);
        assert!(running.wait().unwrap().success());
    }

    #[test]
    #[ignore = "run in the guest"]
    fn an_interrupted_flow_gives_the_screen_back() {
        check_is_inside();
        let before = Card.screenshot();
        assert!(before.pixels.iter().any(|pixel| *pixel != 0), "the console is black");
        let mut running = flow("random:,seed=5", "display:kms,size=160x120");
        wait_until("a frame", |screen| *screen != before);
        let killed = Command::new("kill").args(["-INT", &running.id().to_string()]).status().unwrap();
        assert!(killed.success());
        let ended = running.wait().unwrap();
        assert!(!ended.success(), "{ended}");
        wait_until("the console", |screen| *screen == before);
    }
}
