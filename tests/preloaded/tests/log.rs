//! Programs that commit to a log through the preloaded library: what was acknowledged is in the log or made durable by the
//! kernel, and no record is live that would undo what is newer.
//!
//! Each test makes a log and its memory as a keeper does, runs a program under the library, and reads the log. The program
//! keeps a copy of its file, `base`, when the kernel has just made the file durable; the log, replayed onto it, must give
//! the file as it is at the end.

#![allow(clippy::unwrap_used)] // helpers of the tests

use bywash_log::read;
use bywash_log::shared::{AGE_NS, Counter, State};
use bywash_preloaded::{library, output};
use bywash_support::log::{LogReader, TestLog};
use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::Ordering::Relaxed;

/// A log, and a folder for files.
struct Place {
    folder: tempfile::TempDir,
    log: TestLog,
}

impl Place {
    fn new() -> Place {
        // Not on a tmpfs, whose files cannot be logged.
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let log = TestLog::new(&folder.path().join("log"), 8000, 16);
        Place { folder, log }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Prepares a command that uses the library and the log.
    fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command.env("LD_PRELOAD", library()).env("BYWASH_LOG", self.log.memory_path()).stdin(Stdio::null());
        command
    }

    /// Runs a case; returns what it printed.
    fn run(&self, case: &str) -> String {
        self.run_with(case, &[])
    }

    fn run_with(&self, case: &str, environment: &[(&str, &str)]) -> String {
        let mut command = self.command(cases());
        command.arg(case).arg(self.path("file")).envs(environment.iter().copied());
        succeeds(&mut command, case)
    }

    fn counted(&self, counter: Counter) -> u64 {
        self.log.shared().counted(counter)
    }

    /// Checks that so many syncs were absorbed, and that the log replayed onto the base gives the file `name`.
    fn check(&self, commits: u64, name: &str) {
        let all = [
            Counter::Commits,
            Counter::Clean,
            Counter::KernelFirst,
            Counter::KernelChanged,
            Counter::KernelLarge,
            Counter::KernelFull,
            Counter::KernelUnsuited,
            Counter::Marks,
        ];
        let counted = all.map(|counter| (counter, self.counted(counter)));
        assert_eq!(self.counted(Counter::Commits), commits, "{counted:?}");
        let mut files = BTreeMap::from([(self.path(name), std::fs::read(self.path("base")).unwrap())]);
        replay(&self.path("log"), &mut files);
        let there = std::fs::read(self.path(name)).unwrap();
        let replayed = &files[&self.path(name)];
        let other = there.iter().zip(replayed).position(|(one, other)| one != other);
        assert_eq!((there.len(), None), (replayed.len(), other), "first difference; {counted:?}");
    }
}

fn succeeds(command: &mut Command, what: &str) -> String {
    let output = command.output().unwrap();
    let (printed, errors) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{what}: {:?}\n{printed}{errors}", output.status);
    assert_eq!(errors, "", "{what}");
    printed.into_owned()
}

/// Writes the live records of a log into copies of the files, as recovery does.
fn replay(log: &Path, copies: &mut BTreeMap<PathBuf, Vec<u8>>) {
    let mut log_file = LogReader::open(log);
    let superblock = read::superblock(&mut log_file).unwrap();
    let files = read::files(&mut log_file, &superblock).unwrap();
    read::batches(&mut log_file, &superblock, |record, bytes| {
        let Some(file) = files.get(&record.file).filter(|file| file.is_live(record.sequence)) else { return };
        let path = PathBuf::from(String::from_utf8(file.identity().path.to_vec()).unwrap());
        let copy = copies.get_mut(&path).unwrap_or_else(|| panic!("live records of {}", path.display()));
        let end = record.offset as usize + bytes.len();
        copy.resize(copy.len().max(record.size as usize).max(end), 0);
        copy[record.offset as usize..end].copy_from_slice(bytes);
    })
    .unwrap();
}

/// Returns the program of the cases.
fn cases() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/log/cases.c");
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("log-cases");
        let mut command = Command::new("cc");
        command.args(["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror"]);
        command.args(["-D_GNU_SOURCE", "-D_FORTIFY_SOURCE=2", "-pthread"]);
        output(command.arg("-o").arg(&program).arg(source));
        program
    })
}

/// Cases with the number of syncs that the log absorbs, and the name of the file at the end.
macro_rules! cases {
    ($($(#[$doc:meta])* $name:ident: $commits:expr, $file:expr;)*) => {
        $(
            $(#[$doc])*
            #[test]
            fn $name() {
                let place = Place::new();
                place.run(stringify!($name));
                place.check($commits, $file);
                // Each sync of a case has something to make durable.
                assert_eq!(place.counted(Counter::Clean), 0);
            }
        )*
    };
}

cases! {
    overwrite: 2, "file";
    grow: 20, "file";
    position: 6, "file";
    append: 12, "file";
    vectors: 7, "file";
    write_only: 5, "file";
    write_only_locked: 1, "file";
    write_only_anew: 1, "file";
    by_number: 2, "file";
    forked: 2, "file";
    borrowed: 2, "file";
    duplicates: 3, "file";
    reopened: 1, "file";
    truncated: 2, "file";
    truncated_by_name: 1, "file";
    opened_anew: 1, "file";
    stream_anew: 1, "file";
    punched: 2, "file";
    renamed: 2, "file2";
    folder_renamed: 2, "folder2/file";
    replaced: 3, "file";
    unlinked: 2, "file";
    linked: 2, "second";
    attributes: 2, "file";
    mapped: 1, "file";
    mapped_first: 0, "file";
    mapped_in_vain: 2, "file";
    streams: 0, "file";
    streams_beside: 0, "file";
    streams_later: 1, "file";
    synchronous: 5, "file";
    synchronous_first: 2, "file";
    synchronous_attribute: 0, "file";
    synchronous_flags: 6, "file";
    synchronous_position: 8, "file";
    synchronous_append: 6, "file";
    synchronous_limits: 2, "file";
    synchronous_small_limit: 0, "file";
    synchronous_alone: 1, "file";
    synchronous_denied: 1, "file";
    synchronous_direct: 1, "file";
    synchronous_direct_later: 2, "file";
    synchronous_closing: 5, "file";
    synchronous_locked: 1, "file";
    synchronous_stream: 1, "file";
    synchronous_large: 2, "file";
    synchronous_filled: 1, "file";
    synchronous_passed_on: 1, "file";
    synchronous_borrowed: 1, "file";
    synchronous_shared: 400, "file";
    synchronous_shared_append: 400, "file";
    transfers: 2, "file";
    unserved: 1, "file";
    executed: 1, "file";
    ring: 1, "file";
    passed_on: 1, "file";
    asynchronous: 1, "file";
    all_files: 3, "file";
    all_by_sync: 1, "file";
    all_of_a_disk: 1, "file";
    direct: 3, "file";
    closing: 5, "file";
    threads: 400, "file";
    two_processes: 3, "file";
}

#[test]
fn a_handler_commits_in_the_middle_of_a_commit() {
    let place = Place::new();
    place.run("signals");
    assert!(place.counted(Counter::Commits) >= 500);
    place.check(place.counted(Counter::Commits), "file");
}

#[test]
fn writes_beside_commits_are_committed() {
    let place = Place::new();
    place.run("raced");
    assert!(place.counted(Counter::Commits) > 10);
    place.check(place.counted(Counter::Commits), "file");
}

#[test]
fn writes_of_a_killed_process_are_committed() {
    let place = Place::new();
    place.run("killed");
    assert!(place.counted(Counter::Commits) >= 30);
    place.check(place.counted(Counter::Commits), "file");
}

#[test]
fn durable_writes_of_a_killed_process_are_in_the_log() {
    let place = Place::new();
    let acknowledged: usize = place.run("synchronous_killed").trim().parse().unwrap();
    assert!(place.counted(Counter::Commits) >= 20);
    let mut files = BTreeMap::from([(place.path("file"), std::fs::read(place.path("base")).unwrap())]);
    replay(&place.path("log"), &mut files);
    let there = std::fs::read(place.path("file")).unwrap();
    let replayed = &files[&place.path("file")];
    assert!(acknowledged >= 65536 + 2 * 20 * 512, "{acknowledged}");
    assert_eq!(replayed[..acknowledged], there[..acknowledged]);
}

#[test]
fn a_cancelled_thread_leaves_no_lock() {
    let place = Place::new();
    place.run("cancelled");
    assert!(place.counted(Counter::Commits) > 20);
    place.check(place.counted(Counter::Commits), "file");
}

/// A file younger than the log's age joins at the third sync by a descriptor, an older one at the first: the sync behind is
/// absorbed.
#[test]
fn a_young_file_joins_at_the_third_sync() {
    const HOUR_NS: u64 = 3_600_000_000_000;
    let cases =
        [("young", HOUR_NS, 5), ("young_durable", HOUR_NS, 3), ("aged", AGE_NS, 1), ("aged", HOUR_NS, 2)];
    for (case, age_ns, first) in cases {
        let place = Place::new();
        place.log.shared().header().age_ns.store(age_ns, Relaxed);
        place.run(case);
        let has_joined = (case, age_ns) != ("aged", HOUR_NS);
        if !has_joined {
            std::fs::copy(place.path("file"), place.path("base")).unwrap();
        }
        place.check(has_joined.into(), "file");
        assert_eq!(place.counted(Counter::KernelFirst), first, "{case} at an age of {age_ns} ns");
    }
}

#[test]
fn other_paths_and_a_log_that_has_ended_are_the_kernels() {
    for (environment, state) in [
        (vec![("BYWASH_ONLY", "/var/empty")], State::Running),
        (vec![("BYWASH_EXCEPT", env!("CARGO_TARGET_TMPDIR"))], State::Running),
        (vec![], State::Ended),
        (vec![], State::Failed),
    ] {
        let place = Place::new();
        place.log.shared().set_state(state);
        place.run_with("plain", &environment);
        place.check(0, "file");
        assert_eq!(place.counted(Counter::Batches), 0);
    }
    let place = Place::new();
    place.run("plain");
    assert_eq!(place.counted(Counter::Commits), 3);
    assert_eq!(place.counted(Counter::Clean), 3);
}

/// Whichever way is faster here, both are tried.
#[test]
fn syncs_are_tried_by_the_log_and_by_the_kernel() {
    let place = Place::new();
    place.log.shared().header().without_trials.store(0, std::sync::atomic::Ordering::Relaxed);
    place.run("tried");
    let (commits, by_kernel) = (place.counted(Counter::Commits), place.counted(Counter::KernelFaster));
    assert!(commits >= 120 && by_kernel >= 4, "{commits} by the log, {by_kernel} by the kernel");
    // Each sync is one of these; the first by the kernel in a row makes the records dead and is not counted as faster.
    let others = place.counted(Counter::KernelFirst) + place.counted(Counter::KernelChanged);
    assert!(commits + by_kernel + others <= 402, "{commits} {by_kernel} {others}");
    place.check(commits, "file");
}

#[test]
fn a_folder_that_has_not_changed_is_durable() {
    let place = Place::new();
    place.run("folders");
    assert_eq!(place.counted(Counter::Clean), 2);
    // Left out, it is the kernel's.
    let place = Place::new();
    place.run_with("folders", &[("BYWASH_ONLY", "/var/empty")]);
    assert_eq!(place.counted(Counter::Clean), 0);
}

#[test]
fn a_program_without_the_memory_of_its_log_says_so() {
    let place = Place::new();
    let mut command = place.command(cases());
    command.arg("plain").arg(place.path("file")).env("BYWASH_LOG", "/none");
    let output = command.output().unwrap();
    assert!(output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("commit log cannot be used (error 2)"));
}

/// Runs transactions of SQLite, and cuts the power by copying the log. Returns the syncs that were absorbed, and those that
/// were not.
fn sqlite(mode: &str, beside: &str) -> (u64, u64) {
    const TRANSACTIONS: usize = 100;
    let place = Place::new();
    let (database, log) = (place.path("db"), place.path("log"));
    let second = place.path(&format!("db-{beside}"));
    let cut = place.path("cut");
    std::fs::create_dir(&cut).unwrap();
    let copy = |from: &Path, to: &str| format!(".shell cp {} {}\n", from.display(), cut.join(to).display());
    let mut script = format!(
        "pragma journal_mode={mode}; pragma synchronous=full;\n\
         create table t(n integer primary key, text);\ninsert into t values(0, 'zero');\n"
    );
    script += &copy(&database, "db");
    script += &copy(&second, &format!("db-{beside}"));
    for number in 1..=TRANSACTIONS {
        script += &format!("insert into t values({number}, hex(randomblob({})));\n", number * 7);
    }
    script += &copy(&log, "log");
    let script_path = place.path("script");
    std::fs::write(&script_path, script).unwrap();
    let mut command = place.command("/usr/bin/sqlite3");
    command.arg("-bail").arg(&database).stdin(File::open(&script_path).unwrap());
    succeeds(&mut command, mode);

    let (copied, copied_second) = (cut.join("db"), cut.join(format!("db-{beside}")));
    let mut files = BTreeMap::from([
        (database, std::fs::read(&copied).unwrap()),
        (second, std::fs::read(&copied_second).unwrap()),
    ]);
    replay(&cut.join("log"), &mut files);
    for (path, contents) in files {
        std::fs::write(cut.join(path.file_name().unwrap()), contents).unwrap();
    }
    let mut check = Command::new("/usr/bin/sqlite3");
    check.arg(&copied).arg("pragma integrity_check; select count(*) from t;");
    assert_eq!(succeeds(&mut check, "check"), format!("ok\n{}\n", TRANSACTIONS + 1));
    let by_kernel = [Counter::KernelFirst, Counter::KernelChanged, Counter::KernelUnsuited];
    (place.counted(Counter::Commits), by_kernel.iter().map(|counter| place.counted(*counter)).sum())
}

#[test]
fn transactions_of_sqlite_survive_with_a_persistent_journal() {
    let (commits, by_kernel) = sqlite("persist", "journal");
    assert!(commits >= 300 && by_kernel < 10, "{commits} syncs were absorbed, {by_kernel} were not");
}

#[test]
fn transactions_of_sqlite_survive_with_a_write_ahead_log() {
    let (commits, by_kernel) = sqlite("wal", "wal");
    assert!(commits >= 100 && by_kernel < 10, "{commits} syncs were absorbed, {by_kernel} were not");
}

/// Lets a file of 1 MiB join the log, and keeps it as the kernel has made it durable.
fn joined(place: &Place) {
    const SCRIPT: &str = "import os, shutil, sys\n\
        path, base = sys.argv[1:]\n\
        f = os.open(path, os.O_RDWR | os.O_CREAT)\n\
        os.pwrite(f, b'a' * 2**20, 0); os.fsync(f)\n\
        shutil.copyfile(path, base)\n";
    let mut command = place.command("/usr/bin/python3");
    command.arg("-c").arg(SCRIPT).arg(place.path("file")).arg(place.path("base"));
    succeeds(&mut command, "python3");
}

#[test]
fn durable_writes_of_fio_are_committed() {
    for (engine, jobs, sync) in [("psync", 1, "dsync"), ("sync", 1, "sync"), ("pvsync2", 4, "dsync")] {
        let place = Place::new();
        joined(&place);
        let mut command = place.command("/usr/bin/fio");
        command.args(["--name=durable", "--rw=randwrite", "--bs=512-5k", "--size=1M", "--number_ios=100"]);
        command.args(["--ioengine", engine, "--sync", sync, "--numjobs", &jobs.to_string()]);
        command.arg("--filename").arg(place.path("file")).arg("--output").arg(place.path("output"));
        succeeds(&mut command, "fio");
        place.check(100 * jobs, "file");
    }
}

/// dd writes by its standard output, which the C library may write too without being seen: the kernel's.
#[test]
fn durable_writes_of_dd_are_the_kernels() {
    for flag in ["dsync", "sync"] {
        let place = Place::new();
        joined(&place);
        let to = format!("of={}", place.path("file").display());
        let mut command = place.command("/bin/dd");
        command.args(["if=/dev/urandom", &to, &format!("oflag={flag}"), "bs=4k", "count=50", "conv=notrunc"]);
        let output = command.args(["seek=3", "status=none"]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        std::fs::copy(place.path("file"), place.path("base")).unwrap();
        place.check(0, "file");
    }
}

#[test]
fn python_commits() {
    const SCRIPT: &str = "import os, shutil, sys\n\
        path, base = sys.argv[1:]\n\
        f = open(path, 'w+b')\n\
        f.write(b'a' * 10000); f.flush(); os.fsync(f.fileno())\n\
        shutil.copyfile(path, base)\n\
        for turn in range(50):\n\
        \x20   f.seek(turn * 150); f.write(b'%d' % turn); f.flush(); os.fdatasync(f.fileno())\n\
        os.pwritev(f.fileno(), [b'x', b'yz'], 5000); os.fsync(f.fileno())\n";
    let place = Place::new();
    let mut command = place.command("/usr/bin/python3");
    command.arg("-c").arg(SCRIPT).arg(place.path("file")).arg(place.path("base"));
    succeeds(&mut command, "python3");
    place.check(51, "file");
}

/// Prints what a write and a commit cost; see CONTRIBUTING.md for how to run what is ignored.
#[test]
#[ignore = "measures"]
fn costs() {
    let place = Place::new();
    println!("with a log:\n{}", place.run("measure"));
    let mut command = Command::new(cases());
    command.arg("measure").arg(place.path("file2"));
    println!("kernel:\n{}", succeeds(&mut command, "measure"));
    let mut command = Command::new(cases());
    command.arg("measure").arg(place.path("file3")).env("LD_PRELOAD", library());
    println!("library without a log:\n{}", succeeds(&mut command, "measure"));
}
