//! Programs that know nothing of Bywash, run with and without it.
//!
//! Each test is a *scenario*: a function that runs real programs in a folder of its own and notes what
//! came of it (output, exit codes, files). [`compare`] plays it by the kernel alone and then under the
//! preloaded library, and asks that both notes are equal and that the library was really there. Every
//! scenario is played on a tmpfs (`/dev/shm`) and on the disk's file system (`/var/tmp`).
//!
//! ```no_run
//! use bywash_programs::{Place, Stage, compare};
//!
//! fn sorted(stage: &Stage) {
//!     stage.write("in", "b\na\n");
//!     stage.program("sort").args(["in", "-o", "out"]).run().note();
//!     stage.note_tree();
//! }
//!
//! compare(Place::Tmpfs, sorted);
//! ```
//!
//! - [`play`]: the two sides of a scenario, and their comparison
//! - [`place`]: the folders
//! - [`stage`]: what a scenario works with: one folder, one side, one transcript
//! - [`program`]: starting a program, with a limit on every wait and nobody left behind
//! - [`crew`]: several programs at once, killed in the middle: the shape of all crash loops
//! - [`process`]: ending processes by their descriptors
//! - [`installed`]: where programs are and which Debian package brings them
//! - [`library`]: building and finding the preloaded library
//! - [`counted`]: what the library counted, and what must have been
//! - [`seed`]: random numbers that can be had again
//! - [`server`]: database servers
//!
//! Environment: `BYWASH_TEST_SECONDS` (how long each crash loop goes on), `BYWASH_TEST_SEED` (as printed by
//! a failure), `BYWASH_TEST_DISK` (another folder than `/var/tmp`), `BYWASH_TEST_KEEP=1` (leave the
//! folders).

#![forbid(unsafe_code)]

pub mod counted;
pub mod crew;
pub mod installed;
pub mod library;
pub mod place;
pub mod play;
pub mod process;
pub mod program;
pub mod seed;
pub mod server;
pub mod stage;

pub use crew::Loop;
pub use place::Place;
pub use play::compare;
pub use program::{Finished, Program, Running};
pub use seed::Seed;
pub use stage::{Side, Stage};

/// Makes two tests of every scenario named: `NAME::on_tmpfs` and `NAME::on_disk`.
#[macro_export]
macro_rules! in_both_places {
    ($($scenario:ident),* $(,)?) => {
        $(mod $scenario {
            #[test]
            fn on_tmpfs() {
                $crate::compare($crate::Place::Tmpfs, super::$scenario);
            }

            #[test]
            fn on_disk() {
                $crate::compare($crate::Place::Disk, super::$scenario);
            }
        })*
    };
}
