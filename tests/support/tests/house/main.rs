//! Checks of the repository itself: its drawing, its lock files, its published tables, its words.

mod circles;
mod drawing;
mod locks;
mod measured;
mod names;
mod words;

use std::path::{Path, PathBuf};

/// Returns the root of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}
