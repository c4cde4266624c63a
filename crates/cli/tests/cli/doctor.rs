//! `bywash doctor` as a table and as JSON, also where little is allowed.

use crate::place::{TestFolder, stderr, stdout};
use serde_json::Value;

fn findings(place: &TestFolder, prepare: impl Fn(&mut std::process::Command)) -> Value {
    let mut command = place.bywash(&["doctor", "--json"]);
    prepare(&mut command);
    let output = command.output().unwrap();
    assert!(output.status.success());
    serde_json::from_str(&stdout(&output)).unwrap()
}

#[test]
fn json_has_the_machine_the_paths_and_the_costs() {
    let value = findings(&TestFolder::new(), |_| {});
    assert_eq!(value["version"], 1);
    assert!(value["machine"]["cores"].as_u64().unwrap() >= 1);
    assert!(value["costs"][0]["ns"].as_f64().unwrap() > 1.0);
    assert_eq!(value["copying"].as_array().unwrap().len() % 6, 0);
    for path in value["paths"].as_array().unwrap() {
        assert_ne!(path["usable"].as_bool().unwrap(), path["remedy"].is_string(), "{path}");
    }
    let library = &value["paths"][0];
    assert_eq!((&library["name"], &library["usable"]), (&"preloaded library".into(), &true.into()));
    let accelerators = value["paths"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|path| path["name"].as_str().unwrap().starts_with("accelerator "));
    let accelerators: Vec<&Value> = accelerators.collect();
    assert_eq!(
        (&accelerators[0]["name"], &accelerators[0]["usable"]),
        (&"accelerator cpu".into(), &true.into())
    );
}

#[test]
fn the_table_says_usable_or_why_not() {
    let output = TestFolder::new().bywash(&["doctor"]).env_remove("XDG_RUNTIME_DIR").output().unwrap();
    assert!(output.status.success());
    // Drivers of graphics cards are asked, and have nothing to say of their own.
    assert_eq!(stderr(&output), "");
    let table = stdout(&output);
    for part in ["preloaded library", "io_uring", "huge pages", "system call", "--threshold"] {
        assert!(table.contains(part), "{part} is missing:\n{table}");
    }
    assert!(table.lines().all(|line| line.chars().count() <= 100), "{table}");
}

#[test]
fn one_core_is_a_finding_and_no_failure() {
    let value = findings(&TestFolder::new(), |command| {
        use std::os::unix::process::CommandExt;
        // SAFETY: sched_setaffinity is a plain system call on memory of this frame.
        unsafe {
            command.pre_exec(|| {
                let mut set: libc::cpu_set_t = std::mem::zeroed();
                libc::sched_getaffinity(0, size_of_val(&set), &raw mut set);
                let first = (0..libc::CPU_SETSIZE as usize).find(|cpu| libc::CPU_ISSET(*cpu, &set));
                libc::CPU_ZERO(&mut set);
                libc::CPU_SET(first.unwrap_or(0), &mut set);
                match libc::sched_setaffinity(0, size_of_val(&set), &raw const set) {
                    0 => Ok(()),
                    _ => Err(std::io::Error::last_os_error()),
                }
            });
        }
    });
    assert_eq!(value["machine"]["cores"], 1);
    let line = &value["costs"][1];
    assert_eq!(line["name"], "cache_line_round_trip_ns");
    assert!(line["ns"].is_null() && line["why_not"].as_str().unwrap().contains("one core"));
}

#[test]
fn a_temporary_folder_that_is_not_there_is_a_finding_with_a_remedy() {
    let value = findings(&TestFolder::new(), |command| {
        command.env("TMPDIR", "/no/such/folder");
    });
    let paths = value["paths"].as_array().unwrap();
    let finding = paths.iter().find(|path| path["name"] == "mapped files in /no/such/folder").unwrap();
    assert_eq!(finding["usable"], false);
    assert!(finding["remedy"].as_str().unwrap().contains("TMPDIR"));
}
