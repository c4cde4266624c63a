//! `--stats` and `--report`.

use crate::place::{TestFolder, stderr, stdout};
use bywash_session::{Counter, Session};
use serde_json::Value;
use std::ffi::CString;
use std::fs;
use std::time::{Duration, Instant};

/// Not a test of its own: a program that counts into the session as the library does, from its own record.
/// `bywash run` starts it below.
#[test]
#[ignore = "is started by the other tests"]
fn counting_program() {
    let path = CString::new(std::env::var("BYWASH_SESSION").unwrap()).unwrap();
    let record = Session::open(&path).unwrap().claim().unwrap();
    record.describe(std::process::id(), 1, 77, b"/bin/counting");
    let shard = record.take_shard();
    shard.add(Counter::UserReads, 1_000_000);
    shard.add(Counter::UserReadBytes, 512_000_000);
    shard.add(Counter::KernelReads, 250_000);
    shard.add(Counter::FallbackFirstTouch, 250_000);
    record.add_file(b"/data/counted.db", [1_000_000, 512_000_000, 250_000, 0]);
    if std::env::var_os("COUNTING_DIES").is_some() {
        std::process::abort();
    }
    if std::env::var_os("COUNTING_STAYS").is_some() {
        std::thread::sleep(Duration::from_secs(5));
    }
}

/// Runs [`counting_program`] under `bywash run` with `flags`.
fn count(place: &TestFolder, flags: &[&str], dies: bool) -> std::process::Output {
    let mut command = place.bywash(&["run"]);
    command.args(flags).arg("--").arg(std::env::current_exe().unwrap());
    command.args(["--ignored", "--exact", "report::counting_program"]);
    if dies {
        command.env("COUNTING_DIES", "1");
    }
    command.output().unwrap()
}

fn read(place: &TestFolder, name: &str) -> Value {
    serde_json::from_str(&fs::read_to_string(place.path().join(name)).unwrap()).unwrap()
}

/// The record of [`counting_program`] in a report; the library may have made another for the same process.
fn counted(report: &Value) -> &Value {
    let processes = report["processes"].as_array().unwrap();
    processes.iter().find(|process| process["program"] == "/bin/counting").unwrap()
}

#[test]
fn the_report_has_what_was_counted() {
    let place = TestFolder::new();
    assert!(count(&place, &["--report", "r.json"], false).status.success());
    let report = read(&place, "r.json");
    assert_eq!((&report["version"], &report["loaded"]), (&1.into(), &true.into()));
    assert_eq!(report["exit"], serde_json::json!({"status": 0}));
    assert!(report["total"]["user_reads"].as_u64().unwrap() >= 1_000_000);
    assert_eq!(report["total"]["files"][0]["path"], "/data/counted.db");
    let process = counted(&report);
    assert_eq!((&process["user_reads"], &process["kernel_reads"]), (&1_000_000.into(), &250_000.into()));
    assert_eq!((&process["user_read_bytes"], &process["started_ns"]), (&512_000_000.into(), &77.into()));
}

#[test]
fn what_a_killed_program_counted_is_not_lost() {
    let place = TestFolder::new();
    count(&place, &["--report", "r.json"], true);
    let report = read(&place, "r.json");
    assert_eq!(report["exit"], serde_json::json!({"signal": libc::SIGABRT}));
    assert_eq!(counted(&report)["user_reads"], 1_000_000);
}

#[test]
fn the_table_goes_to_standard_error_and_says_it_in_words() {
    let place = TestFolder::new();
    let output = count(&place, &["--stats"], false);
    let table = stderr(&output);
    assert!(!stdout(&output).contains("bywash:"));
    for part in [
        "exit status 0",
        "at user level",
        "1,000,000",
        "79.9 %",
        "first use of this part",
        "/data/counted.db",
    ] {
        assert!(table.contains(part), "{part} is missing:\n{table}");
    }
}

#[test]
fn an_old_report_is_replaced_not_overwritten_in_part() {
    let place = TestFolder::new();
    place.file("r.json", "x".repeat(100_000));
    assert!(place.sh(&["--report", "r.json"], "true").status.success());
    assert_eq!(read(&place, "r.json")["version"], 1);
}

#[test]
fn the_report_may_be_a_pipe_and_changing_the_folder_does_not_move_it() {
    let place = TestFolder::new();
    let output = place.sh(&["--report", "/dev/stdout"], "cd /");
    let report: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(report["program"][0], "sh");
}

#[test]
fn a_report_that_cannot_be_finished_keeps_the_programs_status() {
    let place = TestFolder::new();
    let output = place.sh(&["--report", "/dev/full"], "exit 5");
    assert_eq!(output.status.code(), Some(5));
    assert!(stderr(&output).starts_with("bywash: --report '/dev/full': cannot write it: No space left"));
}

#[test]
fn a_broken_pipe_for_the_table_keeps_the_programs_status() {
    let place = TestFolder::new();
    let mut command = place.bywash(&["run", "--stats", "--", "sh", "-c", "sleep 0.2; exit 6"]);
    let mut child = command.stderr(std::process::Stdio::piped()).spawn().unwrap();
    drop(child.stderr.take());
    assert_eq!(child.wait().unwrap().code(), Some(6));
}

#[test]
fn a_static_program_runs_and_is_said_not_to_have_loaded_the_library() {
    let place = TestFolder::new();
    place.file("p.c", "int main(void) { return 4; }\n");
    let built = place.command("cc").args(["-static", "-o", "p", "p.c"]).status().unwrap();
    assert!(built.success(), "cc -static");
    let output = place.bywash(&["run", "--stats", "--report", "r.json", "--", "./p"]).output().unwrap();
    assert_eq!(output.status.code(), Some(4));
    let table = stderr(&output);
    assert!(table.contains("./p did not load the library (statically linked)"), "{table}");
    let report = read(&place, "r.json");
    assert_eq!(
        (&report["loaded"], &report["not_loaded_because"]),
        (&false.into(), &"statically linked".into())
    );
}

#[test]
fn the_library_counts_every_read_and_write_of_an_unmodified_program() {
    let place = TestFolder::new();
    place.file("data", vec![7; 512 * 400]);
    let script = "dd if=data of=copy bs=512 2>/dev/null; dd if=copy of=again bs=4096 2>/dev/null";
    assert!(place.sh(&["--report", "r.json"], script).status.success());
    let report = read(&place, "r.json");
    assert_eq!(report["loaded"], true);
    let sum =
        |names: [&str; 2]| names.map(|name| report["total"][name].as_u64().unwrap()).iter().sum::<u64>();
    // Two copies of the file, and what the programs read at their start.
    assert!(sum(["user_reads", "kernel_reads"]) >= 450, "{report}");
    assert!(sum(["user_read_bytes", "kernel_read_bytes"]) >= 2 * 512 * 400, "{report}");
    assert!(sum(["user_writes", "kernel_writes"]) >= 450, "{report}");
    assert!(sum(["user_write_bytes", "kernel_write_bytes"]) >= 2 * 512 * 400, "{report}");
    let names: Vec<&str> =
        report["processes"].as_array().unwrap().iter().map(|p| p["program"].as_str().unwrap()).collect();
    assert_eq!(names.iter().filter(|name| name.ends_with("/dd")).count(), 2, "{names:?}");
}

#[test]
fn a_process_that_outlives_the_program_is_not_waited_for_but_said() {
    let place = TestFolder::new();
    let begin = Instant::now();
    let counting = std::env::current_exe().unwrap();
    let script = format!(
        "{} --ignored --exact report::counting_program </dev/null >/dev/null 2>&1 & echo $!; sleep 0.5",
        counting.display()
    );
    let mut command = place.bywash(&["run", "--stats", "--", "sh", "-c", &script]);
    let output = command.env("COUNTING_STAYS", "1").output().unwrap();
    let daemon: i32 = stdout(&output).trim().parse().unwrap();
    // SAFETY: what the script above started, which sleeps.
    unsafe { libc::kill(daemon, libc::SIGKILL) };
    assert!(begin.elapsed() < Duration::from_secs(4));
    let table = stderr(&output);
    assert!(table.contains("1 process still running, counted up to now"), "{table}");
}

#[test]
fn a_run_within_a_run_counts_for_the_outer_one() {
    let place = TestFolder::new();
    let bywash = crate::place::bywash().to_str().unwrap();
    let inner = format!("{bywash} run -- sh -c 'echo $BYWASH_SESSION'; echo $BYWASH_SESSION");
    let output = place.sh(&["--stats"], &inner);
    let text = stdout(&output);
    let sessions: Vec<&str> = text.lines().collect();
    assert_eq!(sessions.len(), 2);
    assert_eq!(sessions[0], sessions[1]);
}
