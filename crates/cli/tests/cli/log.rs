//! `bywash log` and `bywash run --log`: messages, and the life of a keeper.

use crate::place::{TestFolder, stderr, stdout};
use crate::serve::{Serving, volume};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::{Duration, Instant};

/// A folder on a disk, where a log can be, and the command in another one.
struct Logs {
    place: TestFolder,
    disk: tempfile::TempDir,
}

impl Logs {
    fn new() -> Logs {
        Logs { place: TestFolder::new(), disk: tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.disk.path().join(name)
    }

    /// Runs `bywash log COMMAND PATH ...`.
    fn log(&self, command: &str, path: &Path, flags: &[&str]) -> Output {
        let mut bywash = self.place.bywash(&["log", command]);
        // Sockets of these keepers are apart from all others.
        bywash.env("XDG_RUNTIME_DIR", self.place.path());
        bywash.arg(path).args(flags).output().unwrap()
    }

    fn made(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        let output = self.log("create", &path, &["--size", "8M"]);
        assert!(output.status.success(), "{}", stderr(&output));
        path
    }

    /// Runs a shell script under `bywash run --log`.
    fn run(&self, log: &Path, flags: &[&str], script: &str) -> Output {
        let mut bywash = self.place.bywash(&["run", "--log"]);
        bywash.env("XDG_RUNTIME_DIR", self.place.path());
        bywash.arg(log).args(flags).args(["--", "sh", "-c", script]).output().unwrap()
    }

    fn status(&self, log: &Path) -> serde_json::Value {
        let output = self.log("status", log, &["--json"]);
        assert!(output.status.success(), "{}", stderr(&output));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Returns the message of a failure.
    fn refused(&self, output: &Output) -> String {
        assert_eq!(output.status.code(), Some(125), "{output:?}");
        stderr(output)
    }

    /// Waits until the log has no keeper.
    fn wait_for_end(&self, log: &Path) {
        let limit = Instant::now() + Duration::from_secs(20);
        // A keeper that is ending tells nothing.
        while !stdout(&self.log("status", log, &["--json"])).contains("\"state\": \"empty\"") {
            assert!(Instant::now() < limit, "the keeper stays");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

#[test]
fn a_log_is_made_shown_and_removed() {
    let logs = Logs::new();
    let path = logs.path("log");
    let made = logs.log("create", &path, &["--size", "8M"]);
    assert_eq!(stdout(&made), format!("made log {}: 8 MiB, for 16 files at a time\n", path.display()));
    let text = stdout(&logs.log("status", &path, &[]));
    for part in ["state      empty\n", "size       8 MiB, 7.8 MiB of it for records\n", "16 at most"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert_eq!(logs.status(&path)["bytes"], 8 << 20);
    let recovered = logs.log("recover", &path, &["--dry-run"]);
    assert!(stdout(&recovered).ends_with("is empty: all files have what was committed\n"));
    let recovered = logs.log("recover", &path, &["--json"]);
    let recovered: serde_json::Value = serde_json::from_slice(&recovered.stdout).unwrap();
    assert_eq!((&recovered["dry_run"], &recovered["files"]), (&false.into(), &serde_json::json!([])));
    assert!(logs.log("checkpoint", &path, &[]).status.success());
    assert!(logs.log("remove", &path, &[]).status.success());
    assert!(!path.exists());
}

#[test]
fn refusals_name_the_log_the_reason_and_the_remedy() {
    let logs = Logs::new();
    let path = logs.path("log");
    for command in ["status", "recover", "checkpoint", "remove"] {
        let message = logs.refused(&logs.log(command, &path, &[]));
        let text =
            format!("bywash: there is no log '{0}'; make one with `bywash log create {0}`\n", path.display());
        assert_eq!(message, text, "{command}");
    }
    fs::write(&path, "text").unwrap();
    let message = logs.refused(&logs.log("create", &path, &[]));
    assert!(message.contains("holds other data; name another place\n"), "{message}");
    let message = logs.refused(&logs.log("create", &logs.path("small"), &["--size", "1M"]));
    assert!(message.contains("1048576 bytes are too few for a log; give at least"), "{message}");
    let memory = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = memory.path().join("log");
    let message = logs.refused(&logs.log("create", &path, &["--size", "8M"]));
    assert!(message.contains("lies in memory (a tmpfs)") && message.contains("--volatile"), "{message}");
}

#[test]
fn a_run_refuses_what_is_no_log_before_the_program_starts() {
    let logs = Logs::new();
    let (missing, other) = (logs.path("missing"), logs.path("other"));
    fs::write(&other, vec![0; 1 << 20]).unwrap();
    for (path, part) in
        [(&missing, "there is no log"), (&other, "is no log; make one with `bywash log create`")]
    {
        let message = logs.refused(&logs.run(path, &[], "touch started"));
        assert!(message.contains(part), "{message}");
    }
    let memory = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = memory.path().join("log");
    assert!(logs.log("create", &path, &["--size", "8M", "--volatile"]).status.success());
    let message = logs.refused(&logs.run(&path, &[], "touch started"));
    assert!(
        message.contains("the keeper of the log did not start: ") && message.contains("a tmpfs"),
        "{message}"
    );
    assert!(!logs.place.path().join("started").exists());
    let output = logs.run(&path, &["--volatile"], "touch started");
    assert!(output.status.success(), "{}", stderr(&output));
    let output = logs.place.bywash(&["run", "--volatile", "--", "true"]).output().unwrap();
    assert!(logs.refused(&output).contains("--log"));
}

#[test]
fn a_keeper_serves_several_runs_is_nobodys_child_and_ends_behind_them() {
    let logs = Logs::new();
    let log = logs.made("log");
    let script = "test -r \"$BYWASH_LOG\" && echo \"$BYWASH_LOG\" && cat /proc/$$/task/$$/children";
    let first = logs.run(&log, &[], script);
    assert!(first.status.success(), "{}", stderr(&first));
    let text = stdout(&first);
    let (memory, children) = text.split_once('\n').unwrap();
    let keeper = memory.strip_prefix("/proc/").unwrap().split('/').next().unwrap();
    // The only child is the program that printed the list.
    assert!(!children.split_whitespace().any(|child| child == keeper), "{text}");
    let status = logs.status(&log);
    assert_eq!(
        (&status["state"], status["keeper"]["pid"].to_string()),
        (&"in-use".into(), keeper.to_owned())
    );
    // Another one, whose parent counts what it does, finds the same keeper.
    let second = logs.run(&log, &["--stats"], "echo \"$BYWASH_LOG\"");
    assert_eq!(stdout(&second), format!("{memory}\n"));
    let message = logs.refused(&logs.log("recover", &log, &[]));
    assert!(message.contains("is in use by a keeper"), "{message}");
    assert!(logs.log("checkpoint", &log, &[]).status.success());
    logs.wait_for_end(&log);
    assert!(!Path::new(memory).exists(), "the memory has gone with the keeper");
    let sockets = fs::read_dir(logs.place.path().join("bywash")).unwrap().count();
    assert_eq!(sockets, 0, "the keeper has removed its socket");
}

/// Runs a program that syncs a new file so many times, beside the log, and returns its report.
fn report_of(logs: &Logs, log: &Path, name: &str, syncs: u32) -> serde_json::Value {
    const SCRIPT: &str = "import os, sys\n\
        f = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)\n\
        for turn in range(int(sys.argv[2])):\n\
        \x20   os.pwrite(f, b'x' * 100, turn * 4096); os.fsync(f)\n";
    let report = logs.path(&format!("{name}.json"));
    let mut bywash = logs.place.bywash(&["run", "--stats", "--report"]);
    bywash.env("XDG_RUNTIME_DIR", logs.place.path());
    bywash.arg(&report).arg("--log").arg(log).args(["--", "/usr/bin/python3", "-c", SCRIPT]);
    let output = bywash.arg(logs.path(name)).arg(syncs.to_string()).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    // The first three syncs of a file that was just made are the kernel's.
    let told = format!("commit log {}: {} of {syncs} syncs absorbed\n", log.display(), syncs - 3);
    assert!(stderr(&output).contains(&told), "{}", stderr(&output));
    serde_json::from_slice(&fs::read(report).unwrap()).unwrap()
}

#[test]
fn each_run_is_told_of_its_own_commits_and_the_status_of_all() {
    let logs = Logs::new();
    let log = logs.made("log");
    // Kept by one run while two others come and go.
    let all = std::thread::scope(|scope| {
        let keeps = scope.spawn(|| logs.run(&log, &[], "sleep 4"));
        let runs = [("one", 30), ("other", 50)];
        let runs = runs.map(|(name, syncs)| {
            let (logs, log) = (&logs, &log);
            (syncs, scope.spawn(move || report_of(logs, log, name, syncs)))
        });
        for (syncs, run) in runs {
            let report = run.join().unwrap();
            let told = &report["log"];
            assert_eq!(told["path"], log.to_str().unwrap());
            assert_eq!(
                (&told["counters"]["commits"], &told["counters"]["kernel_first"]),
                (&(syncs - 3).into(), &3.into())
            );
            let [p50, p99, p99_9] =
                ["p50_ns", "p99_ns", "p99_9_ns"].map(|key| told["latency"][key].as_u64().unwrap());
            assert!(1000 < p50 && p50 <= p99 && p99 <= p99_9, "{told}");
            // Commits of a hundred bytes each need a block of the log at least.
            assert!(told["lag"]["bytes"].as_u64().unwrap() >= u64::from(syncs - 3) * 4096, "{told}");
            let waiting = told["lag"]["oldest_record_ms"].as_u64().unwrap();
            assert!(
                f64::from(u32::try_from(waiting).unwrap()) / 1000.0
                    <= report["wall_seconds"].as_f64().unwrap() + 5.0
            );
        }
        let all = logs.status(&log);
        assert!(all["keeper"]["oldest_record_ms"].is_u64(), "{all}");
        assert!(logs.log("checkpoint", &log, &[]).status.success());
        let then = logs.status(&log);
        assert!(then["keeper"]["oldest_record_ms"].is_null(), "{then}");
        assert_eq!(then["keeper"]["counters"]["checkpoints"], 2);
        let text = stdout(&logs.log("status", &log, &[]));
        assert!(
            text.contains("74 commits absorbed by the log\n") && text.contains("latency    50 % at most"),
            "{text}"
        );
        assert!(keeps.join().unwrap().status.success());
        all
    });
    assert_eq!(
        (&all["keeper"]["counters"]["commits"], &all["keeper"]["counters"]["kernel_first"]),
        (&74.into(), &6.into())
    );
    let report = logs.path("none.json");
    let mut bywash = logs.place.bywash(&["run", "--report"]);
    assert!(bywash.arg(&report).args(["--", "true"]).status().unwrap().success());
    let report: serde_json::Value = serde_json::from_slice(&fs::read(report).unwrap()).unwrap();
    assert!(report["log"].is_null());
}

#[test]
fn a_run_without_the_log_is_warned_while_the_log_is_in_use() {
    const SCRIPT: &str = "import os, sys\n\
        f = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)\n\
        for turn in range(4): os.pwrite(f, b'x', turn); os.fsync(f)\n";
    let logs = Logs::new();
    let (log, file) = (logs.made("log"), logs.path("file"));
    let python = |flags: &[&str]| {
        let mut bywash = logs.place.bywash(&["run"]);
        bywash.env("XDG_RUNTIME_DIR", logs.place.path());
        bywash.args(flags).args(["--", "/usr/bin/python3", "-c", SCRIPT]).arg(&file);
        let output = bywash.output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        stderr(&output)
    };
    assert_eq!(python(&["--log", log.to_str().unwrap()]), "");
    let message = python(&[]);
    let remedy = format!("end the programs of the log and run `bywash log checkpoint {}`", log.display());
    assert!(message.contains(&file.display().to_string()) && message.contains(&remedy), "{message}");
    // The remedy is one, also before the keeper has ended: the claim goes with the keeper.
    assert!(logs.log("checkpoint", &log, &[]).status.success());
    logs.wait_for_end(&log);
    assert_eq!(python(&[]), "");
}

/// A program that takes no notice of the log keeps it in use as long as it runs.
#[test]
fn a_keeper_stays_as_long_as_the_program() {
    let logs = Logs::new();
    let log = logs.made("log");
    let output = logs.run(&log, &[], "sleep 3.5; test -r \"$BYWASH_LOG\" && echo there");
    assert_eq!(stdout(&output), "there\n");
    logs.wait_for_end(&log);
}

#[test]
fn many_runs_at_once_share_one_keeper() {
    let logs = Logs::new();
    let log = logs.made("log");
    let memories: Vec<String> = std::thread::scope(|scope| {
        let runs: Vec<_> =
            (0..8).map(|_| scope.spawn(|| logs.run(&log, &[], "echo \"$BYWASH_LOG\"; sleep 0.5"))).collect();
        runs.into_iter().map(|run| run.join().unwrap()).map(|output| stdout(&output)).collect()
    });
    assert!(memories.iter().all(|memory| *memory == memories[0] && !memory.is_empty()), "{memories:?}");
    logs.wait_for_end(&log);
}

#[test]
fn a_volume_of_a_device_server_is_a_log() {
    let logs = Logs::new();
    let _serving = Serving::start(&logs.place, &["--device", "fast=mem:32M"]);
    let created = volume(&logs.place, &["create", "log", "8M", "--device", "fast"]);
    assert!(created.status.success(), "{}", stderr(&created));
    for path in ["path=mapped", "path=channel"] {
        let log = PathBuf::from(format!("volume:./socket/log,{path}"));
        let message = logs.refused(&logs.log("create", &log, &[]));
        assert!(message.contains("a volume on a memory device"), "{message}");
        let made = logs.log("create", &log, &["--volatile"]);
        assert!(stdout(&made).contains("8 MiB, for 16 files"), "{}", stderr(&made));
        let file = logs.path("orders.db");
        let update = "UPDATE t SET n = n + 1;".repeat(20);
        let script = format!(
            "sqlite3 {} 'PRAGMA journal_mode = wal; PRAGMA synchronous = full; CREATE TABLE t (n); INSERT INTO t VALUES (0); \
             {update} SELECT n FROM t'",
            file.display()
        );
        let output = logs.run(&log, &["--volatile"], &script);
        assert_eq!(stdout(&output), "wal\n20\n", "{}", stderr(&output));
        let counters = &logs.status(&log)["keeper"]["counters"];
        assert!(counters["commits"].as_u64().unwrap() >= 18, "{path}: {counters}");
        logs.wait_for_end(&log);
        assert!(logs.log("remove", &log, &[]).status.success());
        fs::remove_file(&file).unwrap();
    }
}

#[test]
fn the_unit_that_recovers_is_one() {
    crate::serve::verify_unit("bywash-log-recover@.service", "bywash-log-recover@var-lib-x.service");
}

#[test]
fn calls_that_a_prediction_makes_again_commit_to_the_log() {
    let logs = Logs::new();
    let (log, script, report) = (logs.made("log"), logs.path("script"), logs.path("report"));
    let folder = logs.path("files");
    fs::create_dir(&folder).unwrap();
    let mut text = format!("make-named 0 8192 {}\nmade 0 0\n", folder.display());
    for _ in 0..20 {
        text += "write-at 0 100 0\nsync 0 0 0\nwrite-at 0 100 4096\nsync-data 0 0 0\n";
    }
    fs::write(&script, text).unwrap();
    let mut bywash = logs.place.bywash(&["run", "--report"]);
    bywash.env("XDG_RUNTIME_DIR", logs.place.path());
    bywash.arg(&report).arg("--log").arg(&log).arg("--");
    let command = bywash.get_program().to_owned();
    let output = bywash.arg(command).args(["plan", "repeat"]).arg(&script).output().unwrap();
    let times: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| {
        panic!("{}", stderr(&output));
    });
    assert_eq!((&times["sync"]["count"], &times["sync_data"]["count"]), (&20.into(), &20.into()), "{times}");
    let report: serde_json::Value = serde_json::from_slice(&fs::read(report).unwrap()).unwrap();
    assert_eq!(report["log"]["counters"]["commits"], 40 - 3, "{report}");
    assert!(fs::read_dir(folder).unwrap().next().is_none(), "the file of the script is gone");
}
