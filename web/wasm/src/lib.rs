//! The half of the planner's page that computes, compiled for browsers: questions in, answers out, both JSON.
//!
//! ```
//! let go_on = &mut |_share| true;
//! assert!(bywash_page::answer(r#"{"ask": "presets"}"#, go_on).starts_with(r#"{"done":"#));
//! assert!(bywash_page::answer("what?", go_on).starts_with(r#"{"refused":"#));
//! ```
//!
//! - [`question`]: what can be asked, and the answers; [`reading`]: descriptions as they come in
//! - [`sliders`]: the numbers of a description that can be moved, and how far; [`notches`]: their positions
//! - [`presets`]: descriptions to begin with
//! - `exports` (in browsers only): how texts come in and out
//!
//! The page keeps a description as it would be in a file, with its units, so that what it shows is what
//! `bywash plan model` answers for that file. Everything here is a function of the question.

#![deny(unsafe_code)]

#[cfg(target_arch = "wasm32")]
mod exports;
pub mod notches;
pub mod presets;
pub mod question;
pub mod reading;
pub mod sliders;

pub use question::answer;
