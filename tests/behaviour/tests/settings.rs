//! The variables that the library reads: what each one allows and forbids, seen from one case that makes
//! a file hot. Whatever they say, the program must run as it does without the library.

#![allow(clippy::unwrap_used)] // the functions below are part of the tests that call them

use bywash_behaviour::compile::Names;
use bywash_behaviour::{Counts, Outcome, Place, Run, library, program};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

const CASE: &str = "offsets/reads_and_writes_advance";

fn built() -> &'static (PathBuf, PathBuf) {
    static BUILT: OnceLock<(PathBuf, PathBuf)> = OnceLock::new();
    BUILT.get_or_init(|| {
        let into = Path::new(env!("CARGO_TARGET_TMPDIR")).join("settings");
        std::fs::create_dir_all(&into).unwrap();
        (program("program", Names::Plain, &into).unwrap(), library().unwrap())
    })
}

/// Runs the case on tmpfs with what `settings` makes of its folder's path; it must pass.
fn counts_with(settings: impl Fn(&str) -> Vec<(&'static str, String)>) -> Counts {
    let (program, library) = built();
    let places = Place::all(Path::new(env!("CARGO_TARGET_TMPDIR"))).unwrap();
    let folder = places[0].folder().unwrap();
    let path = folder.path().to_string_lossy().into_owned();
    let run = Run {
        program,
        arguments: vec![CASE.into(), path.clone()],
        library: Some(library),
        environment: settings(&path),
        limit: Duration::from_secs(60),
    };
    let (outcome, counts) = run.finish().unwrap();
    assert_eq!(outcome, Outcome::Passed);
    counts
}

fn none_at_user_level(counts: Counts) {
    assert_eq!((counts.user_reads, counts.user_writes), (0, 0), "{counts:?}");
}

#[test]
fn without_settings_files_are_served() {
    let counts = counts_with(|_| vec![]);
    assert!(counts.user_reads > 0 && counts.user_writes > 0, "{counts:?}");
}

#[test]
fn off_serves_nothing() {
    none_at_user_level(counts_with(|_| vec![("BYWASH_OFF", "1".into())]));
}

#[test]
fn only_serves_what_lies_under_a_prefix() {
    let counts = counts_with(|folder| vec![("BYWASH_ONLY", format!("/nowhere:{folder}"))]);
    assert!(counts.user_reads > 0, "{counts:?}");
    none_at_user_level(counts_with(|_| vec![("BYWASH_ONLY", "/nowhere:/elsewhere".into())]));
}

#[test]
fn except_leaves_out_what_lies_under_a_prefix() {
    let counts = counts_with(|_| vec![("BYWASH_EXCEPT", "/nowhere".into())]);
    assert!(counts.user_reads > 0, "{counts:?}");
    none_at_user_level(counts_with(|folder| vec![("BYWASH_EXCEPT", format!("/nowhere:{folder}"))]));
}

#[test]
fn a_prefix_ends_at_a_name() {
    let half = |folder: &str| folder[..folder.len() - 1].to_string();
    none_at_user_level(counts_with(|folder| vec![("BYWASH_ONLY", half(folder))]));
    let counts = counts_with(|folder| vec![("BYWASH_EXCEPT", half(folder))]);
    assert!(counts.user_reads > 0, "{counts:?}");
}

#[test]
fn the_threshold_bounds_what_is_served() {
    let all = counts_with(|_| vec![]);
    let few = counts_with(|_| vec![("BYWASH_THRESHOLD", "300".into())]);
    assert!(few.user_reads > 0 && few.user_reads * 4 < all.user_reads * 3, "{few:?} of {all:?}");
}

#[test]
fn no_room_for_windows_is_no_failure() {
    none_at_user_level(counts_with(|_| vec![("BYWASH_WINDOWS", "0".into())]));
}

#[test]
fn without_a_session_the_program_runs() {
    for session in ["", "/nowhere", "/proc/self/exe", "/dev/null"] {
        counts_with(|_| vec![("BYWASH_SESSION", session.into())]);
    }
}

#[test]
fn a_library_that_is_missing_changes_nothing() {
    let counts = counts_with(|_| vec![("LD_PRELOAD", "/nowhere/libbywash_shim.so".into())]);
    assert_eq!(counts, Counts::default());
}
