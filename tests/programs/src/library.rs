//! The preloaded library under test.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// File name of the library.
pub const NAME: &str = "libbywash_shim.so";

/// Returns the path of the library, and builds it first.
///
/// # Panics
/// If it cannot be built.
pub fn path() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| bywash_support::built::file("bywash-shim", NAME))
}
