//! Options of paths by the names of their classes, as the roles of child processes use them.

#![allow(dead_code, reason = "each test uses a part of this")]

use bywash_container::{HugePages, Options};
use bywash_support::peers::wait_by_name;

/// Classes whose receivers can read the contents: all but `forward`.
pub const CLASSES: [&str; 3] = ["checked", "trusted", "sealed"];

/// Returns the options for a class and a way of waiting.
pub fn options(class: &str, wait: &str) -> Options {
    let options = Options::new().arena_bytes(1 << 20).huge_pages(HugePages::No);
    let options = match class {
        "checked" => options,
        // SAFETY: the peer is this test, which uses the library as intended and writes to nothing that it
        // shipped.
        "trusted" => unsafe { options.trusted() },
        "sealed" => options.sealed(),
        "forward" => options.forward(),
        other => panic!("no class: {other}"),
    };
    options.wait(wait_by_name(wait))
}
