//! Programs of the shell: tools that read a large file from end to end (`tools`), and processes that do next to nothing,
//! whose price is that of starting one by the library and by `bywash run` (`start`). Builds and scripts consist of them.

use super::launch::{Mode, Run};
use super::{Amount, Case, Data, Done, NOT_SLOWER, Reading, case, line};
use crate::child::{self, Process};
use crate::error::{Attempt, Error};
use crate::place::{Kind, xorshift};
use crate::programs;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// Size of the file that cat, grep and tar read, of a full and of a quick run.
const LARGE_BYTES: (usize, usize) = (96 << 20, 4 << 20);
/// Size of the file that gzip and sort read, which compute more.
const MEDIUM_BYTES: (usize, usize) = (12 << 20, 1 << 20);
/// Most that a process may cost more with the library than without it, in nanoseconds.
const LIBRARY_NS_MAX: u32 = 50_000;
/// Most that a program may cost more under `bywash run`, in nanoseconds.
const RUN_NS_MAX: u32 = 400_000;
/// A library that does nothing: glibc keeps it for old programs, and since 2.34 it is empty.
const EMPTY_LIBRARY: &str = "libutil.so.1";
/// Rounds of the configure script's tests, of a full and of a quick run.
const ROUNDS: (u32, u32) = (25, 2);
/// A shell that runs a command again and again: `sh -c LOOP sh COUNT COMMAND...`.
const LOOP: &str = "n=$1; shift; i=0; while [ $i -lt $n ]; do \"$@\" || exit 1; i=$((i+1)); done";
/// A script as autoconf writes them, which tests by small programs over small files, and by the compiler `$CC` if there is
/// one; `$1` is the number of rounds.
const CONFIGURE: &str = include_str!("../../programs/configure.sh");

/// The cases of `tools` and `start`.
pub fn cases() -> Vec<Case> {
    // The file is named several times where a run would else be too short to be timed.
    let mut cases: Vec<Case> = [
        ("cat", "cat large large large large large large large large"),
        // Counting, as grep stops at the first match when its output is thrown away.
        ("grep", "grep -c -h ffff.*dam large large"),
        ("gzip", "gzip -1 -c -n medium"),
        // To a pipe or file, as tar reads nothing when its archive is /dev/null.
        ("tar", "tar --hard-dereference -cf - large large large large"),
        ("sort", "sort medium"),
    ]
    .map(|(name, line)| tool(name, line))
    .into();
    cases.push(Case {
        rival: Some(("kernel with an empty library preloaded", Some(NOT_SLOWER))),
        ..shell("shell that starts true", LIBRARY_NS_MAX, false)
    });
    cases.push(shell("bywash run true", RUN_NS_MAX, true));
    cases.push(configure());
    cases
}

/// A tool that reads the files `large` or `medium`, which it finds in its working folder: tar writes names into archives.
fn tool(name: &'static str, line: &'static str) -> Case {
    let data = match line.ends_with("large") {
        true => Data::Text("large", |stage| lines(stage.pick(LARGE_BYTES.0, LARGE_BYTES.1))),
        false => Data::Text("medium", |stage| lines(stage.pick(MEDIUM_BYTES.0, MEDIUM_BYTES.1))),
    };
    case("tools", name, ("B/s", NOT_SLOWER), Amount::Fixed, data, move |stage, run, _| {
        // Nobody looks at cat's output; a file of that size would measure the writes.
        let output = if name == "cat" { "/dev/null".into() } else { stage.output() };
        let mut command = line::command(line, stage, run, 0, &stage.folder)?;
        command.current_dir(&stage.folder).stdin(Stdio::null());
        let ended =
            Process::start(command.stdout(File::create(&output).doing("create", &output)?))?.wait()?;
        let seconds = ended.wall.as_secs_f64();
        ended.success()?;
        let sizes = line.split(' ').filter_map(|word| fs::metadata(stage.folder.join(word)).ok());
        let bytes: u64 = sizes.map(|file| file.len()).sum();
        let sum = (name != "cat").then(|| hash_of(&output)).transpose()?;
        Ok(Done { rate: bytes as f64 / seconds, seconds, sum })
    })
}

/// Lines of words, always the same.
fn lines(bytes: usize) -> Vec<u8> {
    const WORDS: [&str; 8] = ["water", "around", "a", "dam", "carries", "channel", "mapping", "page"];
    let mut text = Vec::with_capacity(bytes + 64);
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    while text.len() < bytes {
        state = xorshift(state);
        let words = [0, 3, 6, 9, 12, 15].map(|shift| WORDS[(state >> shift) as usize % WORDS.len()]);
        text.extend_from_slice(format!("{:08x} {}\n", state >> 32, words.join(" ")).as_bytes());
    }
    text.truncate(bytes);
    text
}

/// Length and hash of a file.
fn hash_of(path: &Path) -> Result<String, Error> {
    let content = fs::read(path).doing("read", path)?;
    Ok(format!("{} bytes, {:016x}", content.len(), programs::hash(content.chunks(8))))
}

/// A shell that starts /bin/true again and again: with the library in it, or each of them by `bywash run`.
fn shell(name: &'static str, limit_ns: u32, by_run: bool) -> Case {
    let amount = Amount::For(200, 1.5);
    let figure = ("processes/s", NOT_SLOWER);
    let case = case("start", name, figure, amount, Data::Nothing, move |_, run, operations| {
        let (kernel, launcher) = (Run::of_kernel(), by_run.then(launcher).transpose()?);
        // Under `bywash run` the shell itself is the kernel's. The run that counts has the library in the shell.
        let launcher = launcher.filter(|_| run.mode() == Mode::Bywash);
        let mut command = if launcher.is_some() { &kernel } else { run }.command("/bin/sh");
        command.args(["-c", LOOP, "sh", &operations.to_string()]);
        if let Some(launcher) = launcher {
            command.arg(launcher).args(["run", "--"]);
        }
        if run.mode() == Mode::Rival {
            find_empty_library()?;
            command.env("LD_PRELOAD", EMPTY_LIBRARY);
        }
        let seconds = child::run(command.arg("/bin/true"))?.wall.as_secs_f64();
        Ok(Done { rate: operations as f64 / seconds, seconds, sum: None })
    });
    Case {
        // The rate comes first, for the control of a row that misses its goal is read like it. It has no goal of its own:
        // the time that is added has one.
        readings: vec![(Reading::Rate, None), (Reading::Added(limit_ns), Some(1.0))],
        places: &[Kind::Tmpfs],
        ..case
    }
}

/// Tries the empty library. The loader complains about one that is not there, and goes on without it.
fn find_empty_library() -> Result<(), Error> {
    let mut command = Run::of_kernel().command("/bin/true");
    let output = command.env("LD_PRELOAD", EMPTY_LIBRARY).output().doing("run", Path::new("/bin/true"))?;
    if output.status.success() && output.stderr.is_empty() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(Error::Unavailable(format!("no empty library to compare with: {}", said.trim_end())))
}

/// The program `bywash`: this one, or the one that starts this one, beside it or above `lib/bywash`.
fn launcher() -> Result<PathBuf, Error> {
    let own = child::this_program()?;
    let folder = own.parent().unwrap_or(Path::new("/"));
    let candidates = ["bywash", "../../bin/bywash"].map(|path| folder.join(path));
    candidates.into_iter().find(|path| path.is_file()).ok_or_else(|| {
        Error::Unavailable(format!("the program bywash is neither beside {} nor in bin", own.display()))
    })
}

fn configure() -> Case {
    let (figure, data) = (("rounds/s", NOT_SLOWER), Data::Text("configure", |_| CONFIGURE.into()));
    let case = case("start", "configure script", figure, Amount::Fixed, data, |stage, run, _| {
        let (rounds, work) = (stage.pick(ROUNDS.0, ROUNDS.1), stage.work());
        fs::create_dir(&work).doing("make", &work)?;
        let mut command = run.command("/bin/sh");
        command.arg(stage.folder.join("configure")).arg(rounds.to_string());
        let compiler = programs::find("cc").map_or("", |_| "cc");
        let finished = child::run(command.current_dir(work).env("CC", compiler))?;
        let seconds = finished.wall.as_secs_f64();
        Ok(Done { rate: f64::from(rounds) / seconds, seconds, sum: Some(finished.stdout) })
    });
    Case { places: &[Kind::Tmpfs, Kind::DiskSmall], ..case }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place;
    use crate::run::Stage;
    use std::process::Command;

    #[test]
    fn the_script_finds_what_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let (place, programs) = (place::in_folder(folder.path()), programs::Programs::new(folder.path()));
        let stage = Stage { place: &place, folder: folder.path().into(), programs: &programs, quick: true };
        let configure = configure();
        configure.data.prepare(&stage).unwrap();
        let run = || {
            configure.data.reset(&stage).unwrap();
            (configure.run)(&stage, &Run::of_kernel(), 0).unwrap().sum.unwrap()
        };
        let found = run();
        for line in ["copy_0=yes 35", "copy_1=yes 35", "sed_works_1=yes", "system_1=known"] {
            assert!(found.lines().any(|found| found == line), "{line} is not in\n{found}");
        }
        assert_eq!(found.contains("compiler_0=yes"), programs::find("cc").is_some(), "{found}");
        assert!(!found.contains("=no"), "{found}");
        // A second run starts from the same state and finds the same.
        assert_eq!(run(), found);
    }

    #[test]
    fn a_shell_starts_as_many_as_it_is_told_and_text_is_the_same_every_time() {
        let shell = |count, command: &[&str]| {
            Command::new("/bin/sh").args(["-c", LOOP, "sh", count]).args(command).output().unwrap()
        };
        let output = shell("3", &["echo", "x"]);
        assert!(output.status.success() && output.stdout == b"x\nx\nx\n");
        assert!(!shell("3", &["false"]).status.success());
        let text = lines(10_000);
        assert!(text.len() == 10_000 && text == lines(10_000));
        assert!(text.iter().filter(|byte| **byte == b'\n').count() > 100);
    }
}
