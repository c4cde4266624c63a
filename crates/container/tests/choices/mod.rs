//! Paths by the words that stand for their classes in a role.

#![allow(dead_code, reason = "each test uses a part of this")]

use bywash_container::{HugePages, Options};
use bywash_peers::wait_by_name;

/// Classes, without the one that maps nothing.
pub const CLASSES: [&str; 3] = ["checked", "trusted", "sealed"];

/// Options by a class and a way of waiting.
pub fn options(class: &str, wait: &str) -> Options {
    let options = Options::new().arena_bytes(1 << 20).huge_pages(HugePages::No);
    let options = match class {
        "checked" => options,
        // SAFETY: the peer is this test, which uses the library as it is.
        "trusted" => unsafe { options.trusted() },
        "sealed" => options.sealed(),
        "forward" => options.forward(),
        other => panic!("no class: {other}"),
    };
    options.wait(wait_by_name(wait))
}
