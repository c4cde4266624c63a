//! `bywash plan`: loads that arrive, sweeps with response times, sizes, and what descriptions leave out.

use crate::place::{TestFolder, stderr, stdout};
use serde_json::Value;
use std::fs;
use std::process::Output;

/// A server on which each request computes for 1 ms on one processor.
const COMPUTING: &str = r#"
[machine]
processors = { count = 1, speed = "1 GHz" }
interconnect = { rate = "2 GiB/s" }
interfaces = { count = 1, rate = "1 Gbit/s" }
disks = { count = 1, rate = "100 MB/s" }

[request.dynamic]
page = "1 B"
compute = "1000000 cycles"
data = "0 B"

[costs]
server = "0 cycles/B"
tcp = "1 cycles/B"
file-system = "0 cycles/B"
system = "0 cycles/B"
"#;

fn plan(place: &TestFolder, words: &[&str]) -> Output {
    place.file("computing.toml", COMPUTING);
    place.bywash(&["plan"]).args(words).output().unwrap()
}

fn plans(place: &TestFolder, words: &[&str]) -> String {
    let output = plan(place, words);
    assert!(output.status.success(), "{words:?}: {}", stderr(&output));
    stdout(&output)
}

fn refused(place: &TestFolder, words: &[&str]) -> String {
    let output = plan(place, words);
    assert!(!output.status.success() && output.stdout.is_empty(), "{words:?}: {}", stdout(&output));
    stderr(&output)
}

#[test]
fn arrivals_are_answered_by_model_and_simulator_as_theory_says() {
    let place = TestFolder::new();
    let with = ["--set", "load.arrivals=700 /s", "--json"];
    let json = |words: &[&str]| -> Value { serde_json::from_str(&plans(&place, words)).unwrap() };
    let told = json(&[&["model", "computing.toml"], &with[..]].concat());
    assert_eq!(told.as_array().unwrap().len(), 2, "devices have no processors");
    // M/M/1 at 70 %: 3.33 ms, and M/D/1: 2.17 ms.
    let response = told[0]["performance"]["response"].as_f64().unwrap();
    assert!((response / 3.333e-3 - 1.0).abs() < 0.01, "{response}");
    let report = json(&[&["simulate", "computing.toml", "--until", "50000"], &with[..]].concat());
    let mean = report["latency"]["mean"]["mean"].as_f64().unwrap();
    assert!((mean / 2.167e-3 - 1.0).abs() < 0.05, "{mean}");
    assert_eq!((&report["load"], &report["offered"]), (&"steady".into(), &700.0.into()));
    let words = plans(&place, &["simulate", "computing.toml", "--set", "load.arrivals=700 /s"]);
    assert!(words.contains("arrivals: 700 /s, of at most 1000 /s"), "{words}");
    let p99 = words.lines().find(|line| line.starts_with("  99 %")).unwrap();
    assert!(p99.contains(" to "), "{p99}");
    let bursts =
        plans(&place, &["model", "computing.toml", "--set", "load.arrivals=700 /s", "--set", "load.burst=4"]);
    assert!(
        bursts.contains("busy with 700 /s in bursts of 4, 256 threads") && bursts.contains("13.33 ms"),
        "{bursts}"
    );
}

#[test]
fn an_overloaded_server_is_told_and_has_no_response_times() {
    let place = TestFolder::new();
    let set = ["computing.toml", "--set", "load.arrivals=1200 /s"];
    let words = plans(&place, &[&["simulate"], &set[..]].concat());
    assert!(words.contains("overloaded: 1200 /s arrive, and at most 1000 /s"), "{words}");
    assert!(words.lines().any(|line| line.starts_with("  99 %") && line.contains("no limit")), "{words}");
    let json: Value =
        serde_json::from_str(&plans(&place, &[&["simulate", "--json"], &set[..]].concat())).unwrap();
    assert_eq!((&json["load"], &json["latency"]["p99"]), (&"overloaded".into(), &Value::Null));
    let words = plans(&place, &[&["model"], &set[..]].concat());
    assert!(words.contains("1000 /s   overloaded") && words.contains("so response times grow"), "{words}");
    let words = plans(&place, &[&["compare", "--until", "2000"], &set[..]].concat());
    assert!(words.contains("overloaded") && words.contains("active is left out: the interfaces"), "{words}");
}

#[test]
fn a_sweep_has_response_times_as_table_csv_json_and_plot() {
    let place = TestFolder::new();
    let sweep = ["--sweep", "load.arrivals=200 /s:1000 /s:400 /s", "--until", "5000"];
    let simulate =
        |more: &[&str]| plans(&place, &[&["simulate", "computing.toml"], &sweep[..], more].concat());
    let table = simulate(&["--plot", "load.svg"]);
    assert_eq!(table.lines().count(), 2 + 3, "{table}");
    assert!(
        table.contains("\n600 /s") && table.contains("overloaded: response times have no limit"),
        "{table}"
    );
    let svg = fs::read_to_string(place.path().join("load.svg")).unwrap();
    assert!(svg.starts_with("<svg") && svg.contains("p999") && svg.contains("200 /s"));
    let csv = simulate(&["--csv"]);
    let rows: Vec<Vec<&str>> = csv.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!((rows.len(), rows[0][0], rows[0][1]), (4, "load.arrivals", "load"));
    let at = |name: &str| rows[0].iter().position(|one| *one == name).unwrap();
    let p99 = |row: usize| rows[row][at("p99 s")].parse::<f64>().unwrap();
    assert!(p99(1) < p99(2) && p99(3).is_infinite() && rows[3][1] == "overloaded", "{csv}");
    let json: Value = serde_json::from_str(&simulate(&["--json"])).unwrap();
    assert_eq!((&json[1]["at"][0], &json[1]["report"]["load"]), (&600.0.into(), &"steady".into()));

    let model = |more: &[&str]| {
        let sweep = ["model", "computing.toml", "--sweep", "load.threads=1:101:50"];
        plans(&place, &[&sweep[..], more].concat())
    };
    let table = model(&["--plot", "threads.svg"]);
    assert_eq!(table.lines().filter(|line| line.contains("conventional  ")).count(), 3, "{table}");
    let csv = model(&["--csv"]);
    let rows: Vec<Vec<&str>> = csv.lines().map(|line| line.split(',').collect()).collect();
    let response = rows[0].iter().position(|one| *one == "conventional response s").unwrap();
    let times: Vec<f64> = rows[1..].iter().map(|row| row[response].parse().unwrap()).collect();
    assert!(times.windows(2).all(|two| two[0] < two[1]), "{csv}");
    assert!(fs::read_to_string(place.path().join("threads.svg")).unwrap().contains("user-level"));
    let both = [
        "simulate",
        "computing.toml",
        "--sweep",
        "load.threads=1:2:1",
        "--sweep",
        "machine.disks.count=1:2:1",
    ];
    let told = refused(&place, &[&both[..], &["--plot", "out.svg"]].concat());
    assert!(told.contains("a plot has one number along its axis"), "{told}");
    let told = refused(&place, &["simulate", "computing.toml", "--sweep", "load.burst=1:2:1"]);
    assert!(told.contains("load.burst is 2, and must be 1 unless load.arrivals is given"), "{told}");
}

#[test]
fn the_most_load_and_the_fewest_processors_are_found_with_their_neighbours() {
    let place = TestFolder::new();
    let short = ["--until", "5000", "--replications", "4"];
    let most = [&["size", "computing.toml", "--most", "load", "--p99", "6ms"], &short[..]].concat();
    let words = plans(&place, &most);
    assert!(
        words.starts_with("at most ")
            && words.contains("requests a second: p99 within 6.00 ms (conventional"),
        "{words}"
    );
    assert!(words.contains("bound by processors") && words.contains("answer"), "{words}");
    let json: Value = serde_json::from_str(&plans(&place, &[&most[..], &["--json"]].concat())).unwrap();
    // M/D/1 has 99 % within 6 service times at a load of 0.63.
    let (answer, above) =
        (json["answer"]["value"].as_f64().unwrap(), json["above"]["value"].as_f64().unwrap());
    assert!((570.0..630.0).contains(&answer) && (629.0..690.0).contains(&above), "{answer} {above}");
    let set = ["--set", "load.arrivals=3500 /s"];
    let fewest = ["size", "computing.toml", "--fewest", "processors", "--p999", "1 s"];
    let words = plans(&place, &[&fewest[..], &set[..], &short[..]].concat());
    assert!(words.starts_with("at least 4 processors: p999 within 1.00 s"), "{words}");
    assert!(words.contains("3 processors overload the server"), "{words}");
}

#[test]
fn a_size_that_cannot_be_is_refused_in_words() {
    let place = TestFolder::new();
    let short = ["--until", "2000", "--replications", "2"];
    let ask = |words: &[&str]| refused(&place, &[&["size", "computing.toml"], words, &short[..]].concat());
    let told = ask(&["--most", "load", "--p99", "500us"]);
    assert!(told.contains("so nothing holds p99 within 500.00 us; bound by processors"), "{told}");
    let told = ask(&["--fewest", "disks", "--p99", "1 s", "--set", "load.arrivals=2000 /s"]);
    assert!(told.contains("with 1024 disks the server is overloaded"), "{told}");
    for (words, wanted) in [
        (&["--most", "load"][..], "--p99 <TIME>"),
        (&["--p99", "1ms"], "--most <WHAT>"),
        (&["--most", "load", "--fewest", "disks", "--p99", "1ms"], "cannot be used with"),
        (&["--most", "load", "--p99", "1ms", "--p50", "1ms"], "cannot be used with"),
        (&["--most", "load", "--p99", "10"], "give a time"),
        (&["--most", "load", "--p99", "0ms"], "give a time"),
        (&["--most", "disks", "--p99", "1ms"], "[possible values: load]"),
        (&["--fewest", "disks", "--p99", "1ms", "--as", "active"], "the interfaces have no processor"),
    ] {
        let told = ask(words);
        assert!(told.contains(wanted), "{words:?}: {told}");
    }
}

#[test]
fn costs_that_are_left_out_are_told_once_and_not_where_they_are_set() {
    let place = TestFolder::new();
    place.file("server.toml", include_str!("../../../../docs/guide/server.toml"));
    let told = |more: &[&str]| stderr(&plan(&place, &[&["model", "server.toml"], more].concat()));
    assert_eq!(
        told(&[]),
        "server.toml: costs that it leaves out are those of a paper of 2003: server 0.15 cycles/B, tcp 3.8 cycles/B, \
         file-system 1.5 cycles/B, system 4.55 cycles/B; presets have today's\n"
    );
    let some = told(&["--set", "costs.tcp=1 cycles/B", "--set", "costs.system=1 cycles/B"]);
    assert!(
        some.ends_with(": server 0.15 cycles/B, file-system 1.5 cycles/B; presets have today's\n"),
        "{some}"
    );
    assert_eq!(stderr(&plan(&place, &["model", "computing.toml"])), "");
    assert_eq!(stderr(&plan(&place, &["model", "preset:nas"])), "");
}

#[test]
fn a_machine_without_device_processors_has_two_structures() {
    let place = TestFolder::new();
    for preset in ["preset:today-25g", "preset:today-10g", "preset:cloud-small", "preset:nas"] {
        let words = plans(&place, &["model", preset]);
        assert!(words.contains("active is left out: the ") && words.contains("\nuser-level "), "{words}");
        let told = refused(&place, &["simulate", preset, "--as", "direct", "--until", "100"]);
        assert!(told.contains("have no processor, on which direct servers run"), "{told}");
        plans(&place, &["simulate", preset, "--until", "2000"]);
    }
}
