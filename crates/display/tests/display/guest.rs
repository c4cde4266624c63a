//! Screens without a display server, in a guest with a display adapter. The tests of [`crate::inside`] are run there.

use bywash_support::displays::SCREEN;
use bywash_support::guest::script::INSIDE;
use bywash_support::guest::{Guest, Screen};

#[test]
fn a_screen_without_a_server() {
    let screen = Screen::new(SCREEN.0, SCREEN.1);
    let script = r#"
echo 0 > /sys/class/graphics/fbcon/cursor_blink
echo 'The text console of this guest' > /dev/tty0
inside gives_the_screen_back
inside gives_the_screen_back_when_it_is_killed
inside passes_the_conformance_suite
inside shows_a_picture_in_the_middle
inside refuses_impossible_screens
inside ends_when_the_screen_is_unplugged
inside ends_when_the_card_is_gone
say passed
"#;
    run(screen, script);
}

#[test]
#[ignore = "fetches a kernel of its own, 110 MB"]
fn a_screen_whose_adapter_is_told_of_damage() {
    let script = r#"
inside passes_the_conformance_suite
inside tells_the_adapter_of_changed_parts_alone
say passed
"#;
    run(Screen::with_damage(), script);
}

fn run(screen: Screen, script: &str) {
    let guest = Guest::without_disk().screen(&screen).program("tests", &std::env::current_exe().unwrap());
    let mut running = guest.boot(&format!("{INSIDE}{script}"));
    screen.answer();
    running.wait_for("passed");
    running.wait_for_end();
}
