//! A controller in software, for tests of drivers: carries out commands from memory, and misbehaves on demand.
//!
//! Not for production: it keeps everything in memory, takes a lock for each access, and is slow. Its time passes only when
//! somebody looks at the clock or lets it pass, so that timeouts need no waiting.

mod execute;
mod model;
mod options;
mod state;

pub use model::Model;
pub use options::{ModelCounts, ModelNamespace, ModelOptions};
