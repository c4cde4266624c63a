//! Text of an error with its causes, which wgpu-core keeps apart.

use std::error::Error;

/// Returns the text of an error and of those that caused it.
pub(super) fn chain(error: &impl Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}
