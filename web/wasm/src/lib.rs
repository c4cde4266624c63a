//! Computing half of the planner's web page, compiled to WebAssembly: answers questions of the page, both in
//! JSON.
//!
//! ```
//! let go_on = &mut |_share| true;
//! assert!(bywash_page::reply(r#"{"ask": "presets"}"#, go_on).starts_with(r#"{"done":"#));
//! assert!(bywash_page::reply("what?", go_on).starts_with(r#"{"refused":"#));
//! ```
//!
//! - [`question`]: the questions of the page, and their answers; [`reading`]: parsing of descriptions
//! - [`sliders`]: the numbers of a description that the page can vary, and their ranges; [`notches`]: their
//!   positions
//! - [`presets`]: descriptions to start from
//! - [`program`]: programs inside the machine of a description
//! - `exports` (in browsers only): passing of texts between page and module
//! - `join`: a program of its own, `bywash-page-join`, which puts page and module into one file
//!
//! The page keeps a description as in a file, with its units, so that it shows what `bywash plan model`
//! prints for this file. Every answer is a pure function of its question; only a [`program::Session`] has a state, its
//! execution.

#![deny(unsafe_code)]

#[cfg(target_arch = "wasm32")]
mod exports;
pub mod notches;
pub mod presets;
pub mod program;
pub mod question;
pub mod reading;
pub mod sliders;

pub use question::reply;
