//! Stages of a flow: hashing, compression, limits, copies.

use super::{assert_same, flow, flows, names, noise, run};
use crate::place::{TestFolder, stderr, stdout};
use std::fs;

#[test]
fn hashes_are_those_of_the_tools() {
    let place = TestFolder::new();
    place.file("from", noise((5 << 20) + 3));
    for (algorithm, tool) in [("sha256", "sha256sum"), ("sha512", "sha512sum")] {
        let wanted = stdout(&run(place.command(tool).arg("from")));
        let wanted = wanted.split(' ').next().unwrap();
        let told = stderr(&flows(&place, &["--hash", algorithm, "from", "to"]));
        assert!(told.contains(&format!("{algorithm} {wanted}")), "{told}");
        flows(&place, &["from", &format!("hash:{algorithm},expect={wanted}"), "to"]);
    }
    fs::remove_file(place.path().join("to")).unwrap();
    let other = format!("hash:sha256,expect={}", "00".repeat(32));
    let refused = flow(&place, &["from", &other, "to"]);
    assert!(stderr(&refused).contains("was expected") && refused.status.code() == Some(1));
    assert_eq!(names(place.path()), ["from", "to.partial"], "what is wrong does not get the name");
}

#[test]
fn compression_is_that_of_zstd() {
    let place = TestFolder::new();
    let from = place.file("from", [noise(1 << 20), vec![7; 3 << 20]].concat());
    flows(&place, &["from", "compress:zstd", "packed"]);
    run(place.command("zstd").args(["-q", "-d", "-o", "to", "packed"]));
    assert_same(&from, &place.path().join("to"));
    run(place.command("zstd").args(["-q", "-19", "--long=27", "-o", "packed19", "from"]));
    flows(&place, &["packed19", "decompress:", "to19"]);
    assert_same(&from, &place.path().join("to19"));
    let damaged = flow(&place, &["from", "decompress:", "to"]);
    assert!(stderr(&damaged).contains("not zstd, or damaged"), "{}", stderr(&damaged));
}

#[test]
fn a_tee_feeds_another_sink() {
    let place = TestFolder::new();
    let from = place.file("from", noise(2 << 20));
    flows(&place, &["from", "tee:copy", "compress:zstd", "tee:packed", "decompress:", "to"]);
    for name in ["copy", "to"] {
        assert_same(&from, &place.path().join(name));
    }
    assert!(fs::metadata(place.path().join("packed")).unwrap().len() > 0);
}

#[test]
fn through_programs() {
    let place = TestFolder::new();
    let from = place.file("from", noise(4 << 20));
    flows(&place, &["from", "exec:gzip -1 | cat", "exec:gzip -d", "hash:blake3", "to"]);
    assert_same(&from, &place.path().join("to"));
    // One that has read enough is no failure.
    flows(&place, &["from", "exec:head -c 10", "to"]);
    assert_eq!(fs::read(place.path().join("to")).unwrap(), noise(10));
    // Nor is one of which no more is wanted: it hears so, or it would wait for ever, and the flow with it.
    for stages in [["exec:cat", "limit:1000000"], ["exec:cat | cat", "hash:sha256"], ["exec:yes", "limit:7"]]
    {
        let said = flows(&place, &["--quiet", "from", stages[0], stages[1], "limit:7", "to"]);
        assert_eq!(stderr(&said), "", "{stages:?}");
        assert_eq!(fs::metadata(place.path().join("to")).unwrap().len(), 7, "{stages:?}");
    }
    for (command, said) in [
        ("exec:cat; exit 3", "status 3"),
        ("exec:kill -9 $$", "signal 9"),
        ("exec:cat; kill -13 $$", "signal 13"),
        ("exec:no-such", "127"),
    ] {
        let failed = flow(&place, &["from", command, "not"]);
        assert!(stderr(&failed).contains(said), "{command}: {}", stderr(&failed));
        assert!(!place.path().join("not").exists(), "{command}");
    }
}

#[test]
fn limits_count_where_they_stand() {
    let place = TestFolder::new();
    place.file("from", vec![7; 1 << 20]);
    flows(&place, &["from", "compress:zstd", "packed"]);
    flows(&place, &["packed", "decompress:", "limit:1000", "to"]);
    assert_eq!(fs::read(place.path().join("to")).unwrap(), vec![7; 1000]);
    flows(&place, &["--limit", "100", "from", "limit:50", "to"]);
    assert_eq!(fs::read(place.path().join("to")).unwrap().len(), 50);
}

#[test]
fn the_plan_is_explained() {
    let place = TestFolder::new();
    place.file("from", noise(1 << 20));
    let told = stdout(&flows(&place, &["--explain", "from", "exec:cat", "to"]));
    for said in ["file:from -> exec:cat", "exec:cat -> file:to", "mover", "not", "by value", "reflink"] {
        assert!(told.contains(said), "'{said}' is not in {told}");
    }
    assert_eq!(names(place.path()), ["from"], "nothing is made");
    let json: serde_json::Value =
        serde_json::from_slice(&flows(&place, &["--explain", "--json", "from", "to"]).stdout).unwrap();
    assert!(json[0]["movers"][0]["mover"].is_string() && json[0]["others"].is_array(), "{json}");
}

#[test]
fn the_report_is_for_machines_too() {
    let place = TestFolder::new();
    place.file("from", noise(1 << 20));
    let json: serde_json::Value =
        serde_json::from_slice(&flows(&place, &["--json", "from", "hash:sha256", "to"]).stdout).unwrap();
    assert_eq!(
        (&json["version"], &json["bytes"], &json["whole"]),
        (&1.into(), &(1 << 20).into(), &true.into())
    );
    assert_eq!(json["hashes"][0]["digits"].as_str().unwrap().len(), 64);
    let failed = flow(&place, &["--json", "from", "exec:false", "to"]);
    let json: serde_json::Value = serde_json::from_slice(&failed.stdout).unwrap();
    assert!(json["error"].as_str().unwrap().contains("'false' ended") && json["whole"] == false, "{json}");
}
