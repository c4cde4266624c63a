//! Compares programs under the preloaded library with the same programs without it.
//!
//! Two programs in C do what programs do to files, through libc, knowing nothing of Bywash:
//!
//! - `program/`: *call by call*. A named case for each thing that must stay as the kernel has it. A case
//!   knows what the kernel does, and fails without the library too if it is wrong about that.
//! - `model/`: *at random*. Operations drawn from a seed are done on one file through libc and on its twin
//!   by the system call instruction, which no library sees; every result must be the same.
//!
//! The tests (`tests/cases.rs`, `tests/model.rs`, and `tests/settings.rs` for the `BYWASH_*` variables,
//! `tests/foreign.rs` for programs that cannot be served) run them with and without the library, on tmpfs and
//! on a disk's file system, and read from the session's counters that the library did serve what it should: a
//! test that passes because the library did nothing shows nothing.
//!
//! ```text
//! cargo test -p bywash-behaviour                           # both
//! cargo test -p bywash-behaviour --test cases -- offsets   # the cases whose name contains `offsets`
//! BYWASH_MODEL_SECONDS=7200 cargo test -p bywash-behaviour --test model
//! BYWASH_MODEL_SEED=17 cargo test -p bywash-behaviour --test model
//! ```
//!
//! - [`compile`]: the two programs and the library, built when a test starts
//! - [`place`]: the file systems that a test uses
//! - [`run`]: one program run to its end, and what was counted meanwhile

pub mod compile;
pub mod place;
pub mod run;

pub use compile::{Error, library, program};
pub use place::TestFolder;
pub use run::{Counts, ProgramResult, Run};
