//! `bywash plan calibrate` and `bywash plan validate`: this machine is measured, described, and held against
//! the description.

use crate::place::{TestFolder, stderr, stdout};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Output;
use std::sync::{Mutex, PoisonError};

/// Lock by which a test measures while no other test of this file does.
static MEASURING: Mutex<()> = Mutex::new(());

fn plan(place: &TestFolder, words: &[&str]) -> Output {
    let _alone = MEASURING.lock().unwrap_or_else(PoisonError::into_inner);
    place.bywash(&["plan"]).args(words).output().unwrap()
}

fn plans(place: &TestFolder, words: &[&str]) -> String {
    let output = plan(place, words);
    assert!(output.status.success(), "{}", stderr(&output));
    stdout(&output)
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

/// The number in front of a quantity's unit, which must be this one.
fn number(quantity: &Value, unit: &str) -> f64 {
    let (number, found) = quantity.as_str().unwrap().split_once(' ').unwrap();
    assert_eq!(found, unit, "{quantity}");
    number.parse().unwrap()
}

fn is_empty(folder: &Path) -> bool {
    fs::read_dir(folder).unwrap().count() == 0
}

#[test]
fn what_is_written_can_be_planned_with_and_nothing_else_is_left() {
    let place = TestFolder::new();
    fs::create_dir(place.path().join("disk")).unwrap();
    let told = plans(&place, &["calibrate", "--quick", "--dir", "disk", "--out", "here.toml"]);
    assert!(told.contains("system call") && told.contains("written: here.toml"), "{told}");
    assert!(is_empty(&place.path().join("disk")));
    let text = fs::read_to_string(place.path().join("here.toml")).unwrap();
    for key in ["speed", "rate", "latency", "spread", "channels", "tcp", "file-system", "system", "call"] {
        let line = text.lines().position(|line| line.starts_with(&format!("{key} = "))).unwrap();
        assert!(text.lines().nth(line - 1).unwrap().starts_with("# "), "{key} is not explained:\n{text}");
    }
    let words = plans(&place, &["model", "here.toml"]);
    assert!(words.starts_with(' ') && words.contains("conventional"), "{words}");
    let sweep = ["model", "here.toml", "--sweep", "machine.disks.flash.channels=1:8:1", "--csv"];
    assert_eq!(plans(&place, &sweep).lines().count(), 9);
}

/// Within what any machine of the last twenty years and of the next ten may have, on a busy day, built
/// without optimisation.
#[test]
fn numbers_are_those_of_a_machine() {
    let place = TestFolder::new();
    let answer = json(&plans(&place, &["calibrate", "--quick", "--json"]));
    let measured = |what: &str, unit: &str| {
        let all = answer["measurements"].as_array().unwrap().iter();
        let found = all.filter(|one| one["what"] == what && one["unit"] == unit).collect::<Vec<_>>();
        let [one] = found[..] else { panic!("{what} is there {} times", found.len()) };
        let of = |key: &str| one[key].as_f64().unwrap();
        assert!(of("low") <= of("median") && of("median") <= of("high"), "{one}");
        of("median")
    };
    for (what, unit, least, most) in [
        ("system call", "s", 1e-8, 1e-4),
        ("system call", "cycles", 10.0, 1e6),
        ("copy of 8 KiB", "B/s", 1e8, 1e13),
        ("copy by all processors", "B/s", 1e8, 1e13),
        ("line of memory, in no order", "s", 1e-9, 1e-5),
        ("read of 4 KiB, page cache", "s", 1e-8, 1e-2),
        ("write of 128 KiB, page cache", "s", 1e-7, 1.0),
        ("message by pipe, same processor", "s", 1e-7, 1e-1),
        ("message by TCP, any processor", "s", 1e-7, 1e-1),
        ("one connection over loopback", "B/s", 1e6, 1e12),
        ("reads of 4 KiB past the page cache, 1 at a time", "/s", 1.0, 1e8),
        ("reading in order past the page cache", "B/s", 1e5, 1e13),
    ] {
        let value = measured(what, unit);
        assert!((least..most).contains(&value), "{what}: {value} {unit}");
    }
    let description = &answer["description"];
    assert!(description["machine"]["processors"]["count"].as_f64().unwrap() >= 1.0);
    assert!((0.1..20.0).contains(&number(&description["machine"]["processors"]["speed"], "GHz")));
    assert!(number(&description["costs"]["call"], "cycles") > 10.0);
    assert!(number(&description["costs"]["tcp"], "cycles/B") > 0.0);
    assert!(is_empty(place.path()));
}

#[test]
fn every_run_is_predicted_and_measured() {
    let place = TestFolder::new();
    plans(&place, &["calibrate", "--quick", "--out", "here.toml"]);
    let answer = json(&plans(&place, &["validate", "here.toml", "--quick", "--json"]));
    let rows = answer["rows"].as_array().unwrap();
    // Those of the example servers, too, where they have been built.
    let command = Path::new(env!("CARGO_BIN_EXE_bywash-command"));
    let servers = ["bywash-web", "bywash-video"].map(|name| command.with_file_name(name).is_file());
    assert_eq!(rows.len(), 7 + servers.into_iter().filter(|is_built| *is_built).count());
    for row in rows {
        let of = |key: &str| row[key].as_f64().unwrap();
        for key in ["model", "simulated", "measured", "low", "high"] {
            assert!(of(key) > 0.0 && of(key).is_finite(), "{row}");
        }
        for (key, predicted) in [("model_error", of("model")), ("simulated_error", of("simulated"))] {
            let [low, median, high] = ["low", "median", "high"].map(|part| row[key][part].as_f64().unwrap());
            assert!(low <= median && median <= high, "{row}");
            // A prediction that is the same in all turns is off by most where the least was measured.
            let is_server = row["run"].as_str().unwrap().starts_with("bywash-");
            assert!(is_server || (median - (predicted / of("measured") - 1.0)).abs() < 1e-9, "{row}");
        }
        // The same description by two ways: what they differ by is the distribution of service times.
        assert!((of("model") / of("simulated") - 1.0).abs() < 0.4, "{row}");
    }
    fs::remove_file(place.path().join("here.toml")).unwrap();
    assert!(is_empty(place.path()));
}

#[test]
fn without_a_description_the_machine_is_described_in_each_turn() {
    let place = TestFolder::new();
    let words = plans(&place, &["validate", "--quick"]);
    for run in ["copying a file", "page cache, 2 threads", "device, 1 thread", "loopback, 4 clients"] {
        let line = words.lines().find(|line| line.contains(run)).unwrap_or_else(|| panic!("{run}:\n{words}"));
        assert_eq!(line.matches('%').count(), 2, "{line}");
    }
    assert!(is_empty(place.path()));
}

#[test]
fn a_folder_that_cannot_be_used_is_named_with_the_remedy() {
    let place = TestFolder::new();
    for command in ["calibrate", "validate"] {
        for folder in ["none", "/proc"] {
            let output = plan(&place, &[command, "--quick", "--dir", folder]);
            let said = stderr(&output);
            assert_eq!(output.status.code(), Some(125), "{said}");
            assert!(said.contains(&format!("'{folder}'")) && said.contains("--dir"), "{said}");
        }
    }
    let output = plan(&place, &["calibrate", "--quick", "--dir", "none", "--out", "new.toml"]);
    assert_eq!(output.status.code(), Some(125));
    assert!(is_empty(place.path()), "nothing was written");
}

#[test]
fn a_description_that_cannot_be_written_is_refused_before_anything_is_measured() {
    let place = TestFolder::new();
    let output = plan(&place, &["calibrate", "--out", "none/here.toml", "--dir", "none"]);
    assert_eq!(output.status.code(), Some(125));
    assert!(stderr(&output).contains("none/here.toml"), "{}", stderr(&output));
    assert!(!stderr(&output).contains("--dir"), "that folder was not looked at");
    let output = plan(&place, &["validate", "none.toml"]);
    assert!(stderr(&output).contains("cannot read 'none.toml'"), "{}", stderr(&output));
}

/// A disk without room: an error that says so, and nothing on it afterwards.
#[test]
fn a_full_disk_is_said_to_be_full() {
    let place = TestFolder::new();
    let small = place.path().join("small");
    fs::create_dir(&small).unwrap();
    let mount = format!(
        "mount -t tmpfs -o size=1m none {} && exec \"$0\" plan calibrate --quick --dir {}",
        small.display(),
        small.display()
    );
    let bywash = place.bywash(&[]).get_program().to_owned();
    let output = place.command("unshare").args(["-rm", "sh", "-c", &mount]).arg(bywash).output().unwrap();
    let said = stderr(&output);
    if said.contains("unshare") || said.contains("mount") {
        return eprintln!("no namespaces here: {said}");
    }
    assert_eq!(output.status.code(), Some(125), "{said}");
    assert!(said.contains("small") && said.contains("No space left"), "{said}");
}
