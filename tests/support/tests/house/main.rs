//! Checks of the repository itself: its drawing, its lock files, its published tables and crates, its words.

mod api;
mod circles;
mod drawing;
mod locks;
mod map;
mod measured;
mod names;
mod published;
mod words;

use std::path::{Path, PathBuf};

/// Returns the root of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}
