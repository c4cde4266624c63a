//! Other projects' programs, run with and without Bywash.
//!
//! Each test is a *scenario*: a function that runs real programs in a folder of its own and notes their
//! results (output, exit codes, files). [`compare`] runs the scenario by the kernel alone and then with the
//! preloaded library. It checks that both transcripts are equal, and that the library was really loaded.
//! Every scenario runs on a tmpfs (`/dev/shm`) and on the disk's file system (`/var/tmp`).
//!
//! ```no_run
//! use bywash_programs::{FileSystemKind, ScenarioRun, compare};
//!
//! fn sorted(run: &ScenarioRun) {
//!     run.write("in", "b\na\n");
//!     run.program("sort").args(["in", "-o", "out"]).run().note();
//!     run.note_tree();
//! }
//!
//! compare(FileSystemKind::Tmpfs, sorted);
//! ```
//!
//! - [`play`]: runs of a scenario on both sides, and the comparison of their transcripts
//! - [`place`]: the folders that scenarios run in
//! - [`stage`]: the environment of a scenario: one folder, one side, one transcript
//! - [`program`]: starting a program, with a timeout on every wait, and without leaving processes behind
//! - [`crew`]: crash loops: several programs at the same time, killed in the middle of their work
//! - [`process`]: ending processes by their descriptors
//! - [`installed`]: paths of programs, and the Debian packages that contain them
//! - [`library`]: building and finding the preloaded library
//! - [`counted`]: counters of the library, and checks of what they must be
//! - [`seed`]: reproducible random numbers
//! - [`server`]: database servers
//!
//! Environment variables: `BYWASH_TEST_SECONDS` (least duration of each crash loop), `BYWASH_TEST_SEED` (as
//! printed by a failure), `BYWASH_TEST_DISK` (another folder than `/var/tmp`), `BYWASH_TEST_KEEP=1` (keep the
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

pub use crew::CrashRounds;
pub use place::FileSystemKind;
pub use play::compare;
pub use program::{Finished, Program, Running};
pub use seed::Seed;
pub use stage::{ScenarioRun, Side};

/// Makes two tests of every scenario named: `NAME::on_tmpfs` and `NAME::on_disk`.
#[macro_export]
macro_rules! on_both_file_systems {
    ($($scenario:ident),* $(,)?) => {
        $(mod $scenario {
            #[test]
            fn on_tmpfs() {
                $crate::compare($crate::FileSystemKind::Tmpfs, super::$scenario);
            }

            #[test]
            fn on_disk() {
                $crate::compare($crate::FileSystemKind::Disk, super::$scenario);
            }
        })*
    };
}
