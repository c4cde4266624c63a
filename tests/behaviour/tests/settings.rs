//! The variables that the library reads: what each one allows and forbids, seen from one case that makes
//! a file hot. Whatever they say, the program must run as it does without the library.

#![allow(clippy::unwrap_used)] // the functions below are part of the tests that call them

use bywash_behaviour::compile::Names;
use bywash_behaviour::{Counts, ProgramResult, Run, TestFolder, library, program};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

const CASE: &str = "offsets/reads_and_writes_advance";

fn built() -> &'static (PathBuf, PathBuf) {
    static BUILT: OnceLock<(PathBuf, PathBuf)> = OnceLock::new();
    BUILT.get_or_init(|| {
        let into = Path::new(env!("CARGO_TARGET_TMPDIR")).join("settings");
        std::fs::create_dir_all(&into).unwrap();
        (program("program", Names::Plain, &into).unwrap(), library())
    })
}

/// Runs the case on tmpfs with what `settings` makes of its folder's path; it must pass.
fn counts_with(settings: impl Fn(&str) -> Vec<(&'static str, String)>) -> Counts {
    let (program, library) = built();
    let places = TestFolder::all(Path::new(env!("CARGO_TARGET_TMPDIR"))).unwrap();
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
    assert_eq!(outcome, ProgramResult::Passed);
    counts
}

fn none_at_user_level(counts: Counts) {
    assert_eq!((counts.user_reads, counts.user_writes), (0, 0), "{counts:?}");
}

#[test]
fn without_settings_reads_are_served_and_writes_are_not() {
    let counts = counts_with(|_| vec![]);
    assert!(counts.user_reads > 0 && counts.user_writes == 0, "{counts:?}");
}

#[test]
fn writes_are_mapped_when_they_are_switched_on() {
    let counts = counts_with(|_| vec![("BYWASH_WRITES", "1".into())]);
    assert!(counts.user_reads > 0 && counts.user_writes > 0, "{counts:?}");
    for off in ["0", ""] {
        let counts = counts_with(|_| vec![("BYWASH_WRITES", off.into())]);
        assert_eq!(counts.user_writes, 0, "{counts:?}");
    }
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
    let user = || ("BYWASH_POSITIONS", "user".into());
    let all = counts_with(|_| vec![user()]);
    let few = counts_with(|_| vec![user(), ("BYWASH_THRESHOLD", "300".into())]);
    assert!(few.user_reads > 0 && few.user_reads * 4 < all.user_reads * 3, "{few:?} of {all:?}");
}

#[test]
fn positions_are_the_kernels_unless_said_otherwise() {
    let reads = |value: &str| counts_with(|_| vec![("BYWASH_POSITIONS", value.into())]).user_reads;
    let by_default = counts_with(|_| vec![]).user_reads;
    assert_eq!(by_default, reads("kernel"));
    assert_eq!(by_default, reads("nobody"));
    // The case reads at the position some hundreds of times.
    assert!(reads("user") > by_default + 200, "{by_default}");
}

/// Ends of a run of a case of `resources/` in these surroundings.
fn resources(case: &str, environment: Vec<(&'static str, String)>) -> (ProgramResult, Counts) {
    let (program, library) = built();
    let places = TestFolder::all(Path::new(env!("CARGO_TARGET_TMPDIR"))).unwrap();
    let folder = places[0].folder().unwrap();
    let run = Run {
        program,
        arguments: vec![format!("resources/{case}"), folder.path().to_string_lossy().into_owned()],
        library: Some(library),
        environment,
        limit: Duration::from_secs(60),
    };
    run.finish().unwrap()
}

/// Ends of a run that reads 64 MiB some times and may have 16 MiB resident in the end, with this bound.
fn large_file_with(bound: Option<&str>) -> (ProgramResult, Counts) {
    let bound = bound.map(|bound| ("BYWASH_RESIDENT", bound.to_owned()));
    let limit = ("CASE_RESIDENT_KIB", (16 << 10).to_string());
    resources("reading_a_large_file", bound.into_iter().chain([limit]).collect())
}

/// Counts of 60,000 reads of a file of 8 MiB of which half may be mapped at a time.
fn halves(environment: Vec<(&'static str, String)>) -> Counts {
    let bound = ("BYWASH_RESIDENT", "4M".to_owned());
    let environment = environment.into_iter().chain([bound]).collect();
    let (outcome, counts) = resources("reading_one_half_after_the_other", environment);
    assert_eq!(outcome, ProgramResult::Passed);
    counts
}

#[test]
fn what_is_hot_of_one_file_may_move() {
    let counts = halves(vec![]);
    // Without the windows of the first half given up it is less than half of them.
    assert!(counts.user_reads > 45_000, "{counts:?}");
    assert!((1..=8).contains(&counts.windows_evicted), "{counts:?}");
}

#[test]
fn a_window_in_use_does_not_make_room() {
    let counts = halves(vec![("CASE_EVENLY", "1".into())]);
    assert!(counts.user_reads > 15_000 && counts.windows_evicted <= 8, "{counts:?}");
}

#[test]
fn what_is_resident_of_files_is_bounded() {
    let (outcome, counts) = large_file_with(Some("8M"));
    assert_eq!(outcome, ProgramResult::Passed);
    assert!(counts.user_reads > 0, "{counts:?}");
    // Unbounded, it is all of the file: the bound is what keeps it small.
    let (outcome, _) = large_file_with(None);
    assert!(matches!(outcome, ProgramResult::Failed(_)), "{outcome:?}");
}

#[test]
fn no_room_for_windows_is_no_failure() {
    none_at_user_level(counts_with(|_| vec![("BYWASH_RESIDENT", "0".into())]));
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
