//! `bywash plan`: answers, figures, refusals.

use crate::place::{Place, stderr, stdout};
use serde_json::Value;
use std::fs;
use std::process::Output;

/// The description of the guide, which is to be tried as it stands there.
const SERVER: &str = include_str!("../../../../docs/guide/server.toml");

fn plan(place: &Place, words: &[&str]) -> Output {
    place.bywash(&["plan"]).args(words).output().unwrap()
}

fn plans(place: &Place, words: &[&str]) -> String {
    let output = plan(place, words);
    assert!(output.status.success(), "{}", stderr(&output));
    stdout(&output)
}

#[test]
fn the_guide_s_server_is_answered_in_words_and_in_json() {
    let place = Place::new();
    place.file("server.toml", SERVER);
    let words = plans(&place, &["model", "server.toml"]);
    let line = |name: &str| words.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
    assert!(line("conventional").contains("165.4 MiB/s  processors"), "{words}");
    assert!(line("active").contains("268.0 MiB/s  disks"), "{words}");
    let json: Value = serde_json::from_str(&plans(&place, &["model", "server.toml", "--json"])).unwrap();
    assert_eq!(json[0]["architecture"], "conventional");
    assert!((json[2]["bound"]["throughput"].as_f64().unwrap() / 1048576.0 - 268.0).abs() < 0.1);
    assert!(json[2]["closed"]["response"].as_f64().unwrap() > 0.0);
}

#[test]
fn a_sweep_is_a_table() {
    let place = Place::new();
    place.file("server.toml", SERVER);
    let sweep = [
        "model",
        "server.toml",
        "--sweep",
        "request.web.miss=0 %:20 %:10 %",
        "--sweep",
        "machine.disks.count=1:4:3",
    ];
    let table = plans(&place, &sweep);
    assert_eq!(table.lines().count(), 1 + 3 * 2);
    assert!(table.starts_with("request.web.miss,machine.disks.count,conventional B/s,"));
    let mut as_json = sweep.to_vec();
    as_json.push("--json");
    let points: Value = serde_json::from_str(&plans(&place, &as_json)).unwrap();
    assert_eq!(points.as_array().unwrap().len(), 6);
    assert_eq!(points[5]["at"], serde_json::json!([0.2, 4.0]));
}

#[test]
fn figures_are_written_with_their_numbers() {
    let place = Place::new();
    let named = plans(&place, &["figure", "all", "--out", "figures"]);
    for number in 2..=7 {
        let svg = fs::read_to_string(place.path().join(format!("figures/figure-{number}.svg"))).unwrap();
        assert!(svg.starts_with("<svg") && svg.contains("conventional"));
        let csv = fs::read_to_string(place.path().join(format!("figures/figure-{number}.csv"))).unwrap();
        assert!(csv.lines().count() > 20, "{csv}");
        assert!(named.contains(&format!("figure-{number}.svg")));
    }
}

#[test]
fn the_acceptance_table_is_told() {
    let place = Place::new();
    let words = plans(&place, &["check"]);
    assert!(words.contains("18 lines, 2 differ"), "{words}");
    let json: Value = serde_json::from_str(&plans(&place, &["check", "--json"])).unwrap();
    assert_eq!(json.as_array().unwrap().len(), 18);
}

#[test]
fn what_is_wrong_is_named() {
    let place = Place::new();
    for (from, to, wanted) in [
        ("2 GiB/s", "2 GHz", "line 5"),
        ("miss", "mis", "line 11"),
        ("\"10 %\"", "\"300 %\"", "at most 100 %"),
        ("[request.web]", "[request.ftp]", "ftp"),
    ] {
        place.file("server.toml", SERVER.replace(from, to));
        let output = plan(&place, &["model", "server.toml"]);
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(125), "{said}");
        assert!(said.contains("server.toml") && said.contains(wanted), "{to}: {said}");
    }
    for (words, wanted) in [
        (&["model", "none.toml"][..], "cannot read 'none.toml'"),
        (&["figure", "8"], "2 to 7"),
        (&["figure", "all", "--out", "/proc/none"], "/proc/none"),
    ] {
        let output = plan(&place, words);
        assert_eq!(output.status.code(), Some(125));
        assert!(stderr(&output).contains(wanted), "{}", stderr(&output));
    }
}
