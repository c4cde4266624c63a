//! Test of a program that relies on its own SIGSEGV and SIGBUS handlers while its files are served at user
//! level.

use bywash_programs::{ScenarioRun, on_both_file_systems};

on_both_file_systems!(own_handlers);

fn own_handlers(stage: &ScenarioRun) {
    let driver = stage.driver("own_handlers", &["-lpthread"]);
    for when in ["before", "after", "both"] {
        stage.program(&driver).args([when, "file"]).run().note().ok();
    }
    stage.expect_served(&driver);
    stage.note_tree();
}
