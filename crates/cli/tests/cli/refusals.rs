//! Refusals: each message names the file or flag, the reason and the remedy, and nothing was started.

use crate::place::{TestFolder, stderr};
use std::fs;

/// Runs `touch started` under `bywash run` with `flags`; answers the message of the refusal.
fn refused(place: &TestFolder, flags: &[&str]) -> String {
    let output = place.bywash(&["run"]).args(flags).args(["--", "touch", "started"]).output().unwrap();
    assert_eq!(output.status.code(), Some(125), "{flags:?}: {}", stderr(&output));
    assert!(!place.path().join("started").exists(), "{flags:?}");
    stderr(&output)
}

#[test]
fn a_wrong_threshold_says_how_to_write_one() {
    let place = TestFolder::new();
    for wrong in ["64X", "", "1.5M", "99999999999999999999", "-1"] {
        let message = refused(&place, &[&format!("--threshold={wrong}")]);
        assert!(message.contains("--threshold <SIZE>"), "{message}");
        let reason = if wrong.len() > 10 { "too large" } else { "as in 4096, 64K or 1M" };
        assert!(message.contains(reason), "{message}");
    }
}

#[test]
fn a_prefix_with_a_colon_or_without_anything_is_refused() {
    let place = TestFolder::new();
    for flag in ["--only", "--except"] {
        let message = refused(&place, &[flag, "/a:b"]);
        assert!(message.starts_with(&format!("bywash: {flag} '/a:b': has a colon in it")), "{message}");
        assert!(message.contains("; give "), "{message}");
        let message = refused(&place, &[flag, ""]);
        assert!(message.contains(flag), "{message}");
    }
}

#[test]
fn a_report_that_cannot_be_written_is_found_before_the_program_starts() {
    let place = TestFolder::new();
    fs::create_dir(place.path().join("folder")).unwrap();
    for wrong in ["no/such/folder/r.json", "folder"] {
        let message = refused(&place, &["--report", wrong]);
        assert!(message.starts_with(&format!("bywash: --report '{wrong}': cannot write it: ")), "{message}");
        assert!(message.contains("; name a file"), "{message}");
    }
}

#[test]
fn no_empty_report_is_left_and_no_old_one_lost_when_the_program_cannot_start() {
    let place = TestFolder::new();
    place.file("old.json", "precious");
    for report in ["new.json", "old.json"] {
        let output = place.bywash(&["run", "--report", report, "--", "./missing"]).output().unwrap();
        assert_eq!(output.status.code(), Some(127));
    }
    assert!(!place.path().join("new.json").exists());
    assert_eq!(fs::read(place.path().join("old.json")).unwrap(), b"precious");
}

/// A copy of the command in a folder of its own, without the library.
fn lonely_copy(place: &TestFolder, folder: &str) -> std::path::PathBuf {
    let command = crate::place::bywash().with_file_name("bywash-command");
    place.executable(&command, &format!("{folder}/bywash-command"));
    place.executable(crate::place::bywash(), &format!("{folder}/bywash"))
}

#[test]
fn a_missing_library_names_the_places_and_the_remedy() {
    let place = TestFolder::new();
    let copy = lonely_copy(&place, "opt/bin");
    let output = place.command(&copy).args(["run", "--", "touch", "started"]).output().unwrap();
    assert_eq!(output.status.code(), Some(125));
    let message = stderr(&output);
    let root = place.path().canonicalize().unwrap();
    for tried in ["opt/bin", "opt/lib/bywash", "opt/lib"] {
        let tried = root.join(tried).join("libbywash_shim.so");
        assert!(message.contains(&format!("\n  {}\n", tried.display())), "{message}");
    }
    assert!(message.contains("make install"), "{message}");
    assert!(!place.path().join("started").exists());
}

#[test]
fn the_library_is_found_where_it_is_installed() {
    let place = TestFolder::new();
    let copy = lonely_copy(&place, "opt/bin");
    fs::create_dir_all(place.path().join("opt/lib/bywash")).unwrap();
    let library = place.path().join("opt/lib/bywash/libbywash_shim.so");
    fs::copy(crate::place::bywash().with_file_name("libbywash_shim.so"), &library).unwrap();
    let output = place.command(&copy).args(["run", "--", "sh", "-c", "echo $LD_PRELOAD"]).output().unwrap();
    let expected = library.canonicalize().unwrap();
    assert_eq!(crate::place::stdout(&output), format!("{}\n", expected.display()));
    assert_eq!(stderr(&output), "");
}

#[test]
fn a_library_whose_path_the_loader_would_split_is_refused() {
    let place = TestFolder::new();
    let copy = lonely_copy(&place, "my tools");
    place.file("my tools/libbywash_shim.so", "");
    let output = place.command(&copy).args(["run", "--", "true"]).output().unwrap();
    assert_eq!(output.status.code(), Some(125));
    assert!(stderr(&output).contains("my tools/libbywash_shim.so' has a space or a colon in it"));
}
