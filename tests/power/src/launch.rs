//! Programs of a test: started apart from the rest of the machine, ended with the test, and never waited for without limit.
//!
//! Invariant: each program is the first of a process namespace of its own. When it ends, or the harness does, the kernel
//! kills all its descendants; none is left that could use a disk.

use crate::disk::Format;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Commands that are put around a workload, and the place of the log that they use. `{log}` in them stands for the path of the log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Launch {
    /// Runs once on the disks as they were made, such as `bywash log create {log}`.
    pub prepare: Vec<String>,
    /// Words before the command line of a workload, such as `bywash run --log {log} --`.
    pub prefix: Vec<String>,
    /// Runs after each cut, before the check, such as `bywash log recover --crashed {log}`.
    pub recover: Vec<String>,
    /// File system of a disk of its own for the log; without one, the log lies beside the data.
    pub log: Option<Format>,
}

impl Launch {
    /// Reads BYWASH_POWER_PREPARE, BYWASH_POWER_PREFIX and BYWASH_POWER_RECOVER: words with spaces between them; and
    /// BYWASH_POWER_LOG: `ext4`, `xfs` or `raw`. What is not set is empty: the kernel alone.
    ///
    /// # Panics
    /// If BYWASH_POWER_LOG is something else.
    pub fn from_environment() -> Launch {
        let words = |name: &str| {
            let text = std::env::var(name).unwrap_or_default();
            text.split_whitespace().map(str::to_owned).collect()
        };
        Launch {
            prepare: words("BYWASH_POWER_PREPARE"),
            prefix: words("BYWASH_POWER_PREFIX"),
            recover: words("BYWASH_POWER_RECOVER"),
            log: std::env::var("BYWASH_POWER_LOG").ok().map(|name| match name.as_str() {
                "ext4" => Format::Ext4,
                "xfs" => Format::Xfs,
                "raw" => Format::Raw,
                other => panic!("BYWASH_POWER_LOG={other}: ext4, xfs or raw is needed"),
            }),
        }
    }

    /// Returns the commands around a workload that commits by a log of `bywash run --log`, which were built with the test.
    ///
    /// # Panics
    /// If they cannot be built.
    pub fn with_commit_log() -> Launch {
        bywash_support::built::file("bywash-cli", "bywash-command");
        Launch::with_commit_log_of(&bywash_support::built::launcher())
    }

    /// Returns the commands around a workload that commits by a log of this `bywash`.
    pub fn with_commit_log_of(program: &Path) -> Launch {
        let words = |text: &str| {
            std::iter::once(program.display().to_string()).chain(text.split(' ').map(str::to_owned)).collect()
        };
        Launch {
            prepare: words("log create {log} --size 8M"),
            prefix: words("run --log {log} --"),
            recover: words("log recover --crashed {log}"),
            log: None,
        }
    }

    /// Returns the commands of [`Launch::with_commit_log`] with a fault of the log (`crates/log/src/mutants.rs`), which are
    /// built apart from all others; with none if the name is empty.
    ///
    /// # Panics
    /// If they cannot be built.
    pub fn with_mutant(mutant: &str) -> Launch {
        static FOLDER: OnceLock<PathBuf> = OnceLock::new();
        let folder = FOLDER.get_or_init(build_mutants);
        let words = |program: &str, text: &str| {
            let variable = format!("MUTANT_OF_BYWASH={mutant}");
            let program = folder.join(program).display().to_string();
            ["env".to_owned(), variable, program]
                .into_iter()
                .chain(text.split(' ').map(str::to_owned))
                .collect()
        };
        Launch {
            prefix: words("bywash", "run --log {log} --"),
            recover: words("bywash-power", "recover --crashed {log}"),
            ..Launch::with_commit_log()
        }
    }

    /// Returns words with the path of the log put in.
    pub fn with_log(words: &[String], log: &Path) -> Vec<String> {
        words.iter().map(|word| word.replace("{log}", &log.to_string_lossy())).collect()
    }
}

/// Builds the preloaded library and recovery with all faults, puts the command beside them, and returns their folder. The
/// command looks for the library in its own folder.
fn build_mutants() -> PathBuf {
    let command = bywash_support::built::file("bywash-cli", "bywash-command");
    bywash_support::built::launcher();
    let folder = bywash_support::built::apart("mutants", &["bywash-shim", "bywash-power"], "mutants");
    for name in ["bywash", "bywash-command"] {
        let (from, to) = (command.with_file_name(name), folder.join(name));
        // Of an earlier build; there may be none.
        let _ = fs::remove_file(&to);
        fs::hard_link(&from, &to).unwrap_or_else(|error| panic!("{}: {error}", to.display()));
    }
    folder
}

/// Returns the beginning of a command line whose program is confined to a process namespace; the words after it are the
/// program's.
pub fn confined() -> Command {
    let mut command = Command::new("setpriv");
    command.args(CONFINEMENT);
    command
}

/// Arguments of setpriv(1) that confine a program. Memory of System V, which outlives processes, goes with its namespace.
const CONFINEMENT: [&str; 10] = [
    "--pdeathsig",
    "KILL",
    "--",
    "unshare",
    "--pid",
    "--ipc",
    "--fork",
    "--kill-child",
    "--mount-proc",
    "--",
];

/// Runs a command and returns its output. Its messages are kept in the folder `memory` meanwhile.
///
/// # Errors
/// A sentence that names the command if it cannot be started, fails, or takes longer than `limit`.
pub fn run(command: &mut Command, memory: &Path, limit: Duration) -> Result<String, String> {
    let said = [memory.join("stdout"), memory.join("stderr")];
    for (path, is_error) in said.iter().zip([false, true]) {
        let file =
            File::create(path).map_err(|error| format!("cannot create {}: {error}", path.display()))?;
        if is_error {
            command.stderr(file)
        } else {
            command.stdout(file)
        };
    }
    let status = wait(command, limit)?;
    let [output, messages] = said.map(|path| fs::read(path).unwrap_or_default());
    let [output, messages] = [&output, &messages].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    match status.success() {
        true => Ok(output),
        false => Err(format!("{}: {status}: {output}{messages}", line(command))),
    }
}

fn wait(command: &mut Command, limit: Duration) -> Result<ExitStatus, String> {
    let mut child = command.spawn().map_err(|error| format!("cannot run {}: {error}", line(command)))?;
    let end = Instant::now() + limit;
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Ok(status),
            Err(error) => return Err(format!("cannot wait for {}: {error}", line(command))),
            Ok(None) if Instant::now() > end => {
                // Ends its namespace, too. An error means that it has ended by itself.
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("{} did not end within {} s", line(command), limit.as_secs()));
            }
            Ok(None) => std::thread::sleep(Duration::from_micros(500)),
        }
    }
}

/// Returns the command line without the words that confine it.
fn line(command: &Command) -> String {
    let words: Vec<String> = std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    let begin = if words[0] == "setpriv" { words.len().min(1 + CONFINEMENT.len()) } else { 0 };
    words[begin..].join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_names_the_command() {
        if !rustix::process::geteuid().is_root() {
            return println!("left out: only root can confine programs");
        }
        let folder = tempfile::tempdir().unwrap();
        let failed =
            run(confined().args(["sh", "-c", "echo why; exit 3"]), folder.path(), LIMIT).unwrap_err();
        assert!(failed.starts_with("sh -c echo why; exit 3: exit status: 3: why"), "{failed}");
    }

    #[test]
    fn descendants_end_with_the_program() {
        if !rustix::process::geteuid().is_root() {
            return println!("left out: only root can confine programs");
        }
        let folder = tempfile::tempdir().unwrap();
        let begun = Instant::now();
        let script = "sleep 987654 & test $$ = 1 && echo begun";
        assert_eq!(run(confined().args(["sh", "-c", script]), folder.path(), LIMIT).unwrap(), "begun\n");
        let late =
            run(confined().args(["sleep", "60"]), folder.path(), Duration::from_millis(100)).unwrap_err();
        assert!(late.contains("sleep 60 did not end") && begun.elapsed() < LIMIT, "{late}");
        let is_left = |entry: fs::DirEntry| {
            fs::read(entry.path().join("cmdline")).is_ok_and(|line| line == b"sleep\x00987654\0")
        };
        assert!(!fs::read_dir("/proc").unwrap().flatten().any(is_left));
    }

    const LIMIT: Duration = Duration::from_secs(20);
}
