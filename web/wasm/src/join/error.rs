//! Errors of joining a page.

use std::io;
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("'{}': {source}", .path.display())]
    File { path: PathBuf, source: io::Error },

    #[error("{module}, line {line}: {reason}")]
    Module { module: String, line: usize, reason: &'static str },

    #[error("index.html has {count} places for {place}, and must have one")]
    Place { place: &'static str, count: usize },

    #[error("{what} has '{text}' in it, which would end it in the page: write it otherwise")]
    Ends { what: &'static str, text: &'static str },
}
