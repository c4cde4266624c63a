//! The public items of each published crate are those in docs/api, so that a change of an interface is seen in a commit.
//!
//! The listings are made from the source files alone, in which `pub use` is followed to the item that it exports: under
//! the name that users write. They need no compiler, and have these limits:
//!
//! - Macros are not expanded. A macro that is called in a public module is listed as it is called; an item that a macro
//!   makes in a private module and that is exported from there is listed as `pub use`, with the macro's call.
//! - An item of another crate is listed as `pub use`; that crate's own listing shows it.
//! - Derived traits are listed as attributes, and automatic traits (`Send`, `Sync`) are not listed.
//! - Conditions (`#[cfg]`) are listed where they stand at the item itself, not those of its module or its `pub use`. Items
//!   that only tests or loom compile are left out.
//! - Values of constants are listed only if they are literals or sums and products.

mod listing;
mod tree;

use crate::published::{UPDATE, published, update};
use crate::root;
use tree::Tree;

#[test]
fn the_public_items_are_those_in_docs_api() {
    let mut stale = String::new();
    for name in published() {
        let tree = Tree::read(&root().join("crates").join(&name).join("src/lib.rs"));
        let title = if name == "bywash" { name.clone() } else { format!("bywash-{name}") };
        let text = format!("// Public items of {title}\n\n{}", listing::listing(&tree));
        stale += &update(&root().join(format!("docs/api/{title}.txt")), &text);
    }
    assert!(stale.is_empty(), "interfaces differ from their listings; to write them anew: {UPDATE}{stale}");
}

#[test]
fn exports_are_followed_to_the_item() {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).expect("a file");
    write(
        "lib.rs",
        "mod inner; pub use inner::{Shown as Renamed, both}; pub use std::io::Error; mod hidden { pub struct No; }",
    );
    write(
        "inner.rs",
        "/// Doc.\n#[non_exhaustive] pub struct Shown { pub a: u8, b: u8 }\n\
         impl Shown { pub fn f(&self) -> u8 { 1 } fn g() {} } impl Clone for Shown { fn clone(&self) -> Self { Shown { a: 1, b: 2 } } }\n\
         mod deep { pub fn both() {} } pub use deep::*;\n#[cfg(test)] pub struct Tested;",
    );
    let text = listing::listing(&Tree::read(&folder.path().join("lib.rs")));
    let expected = "// crate\n\npub use std::io::Error;\n\n// as Renamed\n#[non_exhaustive]\npub struct Shown {\n    pub a: u8,\n    \
                    // private fields\n}\nimpl Clone for Shown {}\nimpl Shown {\n    pub fn f(&self) -> u8 {}\n}\n\npub fn both() {}\n";
    assert_eq!(text, expected);
}
