//! `bywash plan`: answers, figures, refusals.

use crate::place::{TestFolder, stderr, stdout};
use serde_json::Value;
use std::fs;
use std::process::Output;

/// The description of the guide, which is to be tried as it stands there.
const SERVER: &str = include_str!("../../../../docs/guide/server.toml");

fn plan(place: &TestFolder, words: &[&str]) -> Output {
    place.bywash(&["plan"]).args(words).output().unwrap()
}

fn plans(place: &TestFolder, words: &[&str]) -> String {
    let output = plan(place, words);
    assert!(output.status.success(), "{}", stderr(&output));
    stdout(&output)
}

#[test]
fn the_guide_s_server_is_answered_in_words_and_in_json() {
    let place = TestFolder::new();
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
    let place = TestFolder::new();
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
    assert_eq!(table.lines().count(), 1 + 3 * 2 * 4);
    assert!(table.contains("\n10 %              4                    active"), "{table}");
    let mut as_csv = sweep.to_vec();
    as_csv.push("--csv");
    let table = plans(&place, &as_csv);
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
    let place = TestFolder::new();
    // Figure 9 takes half a minute to simulate, and is drawn as figure 8 is.
    let last = if std::env::var_os("BYWASH_ALL_BARS").is_some() { 9 } else { 8 };
    for number in 2..=last {
        let named = plans(&place, &["figure", &number.to_string(), "--out", "figures"]);
        let svg = fs::read_to_string(place.path().join(format!("figures/figure-{number}.svg"))).unwrap();
        assert!(svg.starts_with("<svg") && svg.contains("conventional"));
        let csv = fs::read_to_string(place.path().join(format!("figures/figure-{number}.csv"))).unwrap();
        // Bars are nine, curves have many points.
        assert!(csv.lines().count() > if number < 8 { 20 } else { 9 }, "{csv}");
        assert!(named.contains(&format!("figure-{number}.svg")));
    }
}

/// The page of the planner's internals shows what the command prints, between two marks. The table of other
/// parameter values takes minutes to simulate, so only its row without a change is compared.
#[test]
fn the_acceptance_table_is_told_and_is_the_one_in_the_documentation() {
    const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/internals/planner.md");
    let place = TestFolder::new();
    let page = fs::read_to_string(PAGE).unwrap();
    if std::env::var_os("BYWASH_UPDATE_DOCS").is_some() {
        let (check, table) = indented(&plans(&place, &["check", "--sensitivity"]));
        let page = replaced(&page, "check", &check);
        fs::write(PAGE, replaced(&page, "sensitivity", &table)).unwrap();
        return;
    }
    let (check, _) = indented(&plans(&place, &["check"]));
    let remedy =
        "stale; to bring it up to date: BYWASH_UPDATE_DOCS=1 cargo test -p bywash-cli --test cli acceptance";
    assert_eq!(between(&page, "check"), check, "docs/internals/planner.md is {remedy}");

    let lines = |part: &str| check.lines().filter(|line| line.contains(part)).count();
    assert_eq!((lines(" computed "), lines(" simulated "), lines("; busiest ")), (18, 15, 18), "{check}");
    let ratios = check.lines().filter(|line| line.contains("  Fig. "));
    let ratios = ratios.filter_map(|line| line.split_once(", simulated ")?.1.split(' ').next()?.parse().ok());
    let cells: String = ratios.map(|ratio: f64| format!(" {ratio:.2} |")).collect();
    let row = format!("| as described |{cells}");
    assert!(between(&page, "sensitivity").contains(&row), "docs/internals/planner.md is {remedy}: {row}");
}

/// Output of `plan check`, indented as a block of code, and the Markdown table that follows it.
fn indented(printed: &str) -> (String, String) {
    let (check, table) = match printed.find("\n| | Web") {
        Some(at) => printed.split_at(at),
        None => (printed, ""),
    };
    let line = |line: &str| if line.is_empty() { "\n".into() } else { format!("    {line}\n") };
    (check.trim_end().lines().map(line).collect(), table.trim_start().into())
}

/// The part of a page between the marks of `name`.
fn between<'a>(page: &'a str, name: &str) -> &'a str {
    let (begin, end) = marks(name);
    let (_, rest) = page.split_once(&begin).unwrap();
    rest.split_once(&end).unwrap().0
}

fn replaced(page: &str, name: &str, text: &str) -> String {
    let (begin, end) = marks(name);
    page.replace(&format!("{begin}{}{end}", between(page, name)), &format!("{begin}{text}{end}"))
}

fn marks(name: &str) -> (String, String) {
    (format!("<!-- {name}:begin -->\n\n"), format!("\n<!-- {name}:end -->"))
}

#[test]
fn a_simulation_is_told_in_words_and_in_json() {
    let place = TestFolder::new();
    let words = plans(&place, &["simulate", "preset:carrera-table-4", "--until", "2000"]);
    assert!(words.starts_with("conventional: 2000 requests in "), "{words}");
    assert!(words.contains("busiest          memory bus"), "{words}");
    let run = |more: &[&str]| -> Value {
        let mut all = vec!["simulate", "preset:carrera-table-4", "--json"];
        all.extend(more);
        if !more.contains(&"--until") {
            all.extend(["--until", "2000"]);
        }
        serde_json::from_str(&plans(&place, &all)).unwrap()
    };
    let one = run(&["--as", "active"]);
    assert_eq!((&one["architecture"], &one["is_whole"]), (&"active".into(), &true.into()));
    assert_eq!(one, run(&["--as", "active"]), "the same seed is the same run");
    assert_ne!(one, run(&["--as", "active", "--seed", "2"]));
    let several = run(&["--as", "active", "--replications", "3"]);
    assert_eq!(several["requests"], 6000);
    let switched = run(&["--as", "active", "--set", "machine.interconnect.rate=2 GB/s"]);
    let rate = |report: &Value| report["throughput"]["mean"].as_f64().unwrap();
    assert!(rate(&switched) > 1.3 * rate(&one));
    let timed = run(&["--until", "50ms"]);
    assert!((timed["seconds"].as_f64().unwrap() - 0.05).abs() < 1e-9);
}

#[test]
fn descriptions_are_compared_side_by_side() {
    let place = TestFolder::new();
    place.file("server.toml", SERVER);
    let structures = plans(&place, &["compare", "server.toml", "--until", "1000"]);
    let line = |text: &str, name: &str| text.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
    assert!(line(&structures, "structure").contains("direct"), "{structures}");
    place.file("fast.toml", SERVER.replace("1.5 GHz", "6 GHz"));
    let two = plans(&place, &["compare", "server.toml", "fast.toml", "--until", "1000"]);
    assert!(two.lines().next().unwrap().contains("fast") && line(&two, "busiest").contains("disks"), "{two}");
    let json: Value =
        serde_json::from_str(&plans(&place, &["compare", "server.toml", "--until", "500", "--json"]))
            .unwrap();
    assert_eq!((json.as_array().unwrap().len(), &json[3]["name"]), (4, &"direct".into()));
}

#[test]
fn a_timeline_has_what_happened() {
    let place = TestFolder::new();
    plans(&place, &["simulate", "preset:carrera-table-2", "--until", "50", "--trace", "out.json"]);
    let text = fs::read_to_string(place.path().join("out.json")).unwrap();
    let json: Value = serde_json::from_str(&text).unwrap();
    let events = json["traceEvents"].as_array().unwrap();
    let spans: Vec<&Value> = events.iter().filter(|event| event["ph"] == "X").collect();
    assert!(spans.len() > 200, "{}", spans.len());
    // On a track of the stations nothing overlaps.
    let mut until = std::collections::HashMap::new();
    for span in spans.iter().filter(|span| span["pid"] == 1) {
        let (from, length) = (span["ts"].as_f64().unwrap(), span["dur"].as_f64().unwrap());
        let end = until.insert(span["tid"].as_u64(), from + length).unwrap_or(0.0);
        assert!(from >= end - 1e-6, "{span}");
    }
    let named = |name: &str| events.iter().any(|event| event["args"]["name"].as_str() == Some(name));
    assert!(named("processors") && named("disks 3"));
}

#[test]
fn presets_are_listed_and_printed_to_be_used() {
    let place = TestFolder::new();
    let listed = plans(&place, &["presets"]);
    for line in listed.lines() {
        let name = line.split(' ').next().unwrap();
        place.file("preset.toml", plans(&place, &["presets", name]));
        plans(&place, &["model", "preset.toml"]);
    }
    assert!(listed.contains("carrera-table-4"));
}

#[test]
fn a_signal_ends_a_simulation_with_what_there_is() {
    let place = TestFolder::new();
    let words = ["plan", "simulate", "preset:carrera-table-4", "--until", "1000000000"];
    let mut child = place.bywash(&words).stdout(std::process::Stdio::piped()).spawn().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(700));
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let mut text = String::new();
    std::io::Read::read_to_string(&mut child.stdout.take().unwrap(), &mut text).unwrap();
    assert!(child.wait().unwrap().success());
    assert!(text.starts_with("stopped before its end"), "{text}");
}

#[test]
fn what_is_wrong_is_named() {
    let place = TestFolder::new();
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
        (&["figure", "10"], "2 to 9"),
        (&["figure", "2", "--out", "/proc/none"], "/proc/none"),
        (&["simulate", "preset:none"], "there are today-25g"),
        (&["presets", "none"], "there are today-25g"),
        (&["simulate", "preset:carrera-table-2", "--set", "load.threads"], "KEY=VALUE"),
        (&["simulate", "preset:carrera-table-2", "--set", "load.threads=0"], "load.threads is 0"),
        (&["simulate", "preset:carrera-table-2", "--set", "load.threads=5e6"], "too many to simulate"),
        (&["simulate", "preset:carrera-table-2", "--set", "load.threads=1e9"], "at most 10000000"),
        (&["simulate", "preset:carrera-table-2", "--trace", "/proc/none/out"], "/proc/none/out"),
        (&["simulate", "preset:carrera-table-2", "--as", "passive"], "there are conventional, user-level"),
        (&["simulate", "preset:carrera-table-2", "--until", "soon"], "a number of requests"),
    ] {
        let output = plan(&place, words);
        assert_eq!(output.status.code(), Some(125));
        assert!(stderr(&output).contains(wanted), "{}", stderr(&output));
    }
}
