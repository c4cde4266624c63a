//! Processes that do next to nothing: what starting one costs, by the library and by `bywash run`. Builds and scripts
//! consist of them.

use super::{Amount, Case, Done, Metric, NOT_SLOWER, Native, Reading, Stage, Workload};
use crate::child;
use crate::error::Error;
use crate::launch::{Run, Side};
use crate::place::Kind;
use crate::programs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Most that a process may cost more with the library than without it, in nanoseconds.
const LIBRARY_NS_MAX: u32 = 50_000;
/// Most that a program may cost more under `bywash run`, in nanoseconds.
const RUN_NS_MAX: u32 = 400_000;
/// A library that does nothing: glibc keeps it for old programs, and since 2.34 it is empty.
const EMPTY_LIBRARY: &str = "libutil.so.1";
/// Rounds of the configure script's tests, and those of a quick run.
const ROUNDS: u32 = 25;
const ROUNDS_QUICK: u32 = 2;

/// A shell that runs a command again and again: `sh -c LOOP sh COUNT COMMAND...`.
const LOOP: &str = "n=$1; shift; i=0; while [ $i -lt $n ]; do \"$@\" || exit 1; i=$((i+1)); done";

/// A shell that starts /bin/true.
struct Shell {
    /// Each of them by `bywash run` instead of from a shell with the library.
    by_run: bool,
}

impl Workload for Shell {
    fn prepare(&mut self, _: &Stage) -> Result<(), Error> {
        if self.by_run { launcher().map(drop) } else { find_empty_library() }
    }

    fn reset(&mut self, _: &Stage) -> Result<(), Error> {
        Ok(())
    }

    fn run(&mut self, _: &Stage, run: &Run, operations: u64) -> Result<Done, Error> {
        let kernel = Run::of_kernel();
        // Under `bywash run` the shell itself is the kernel's. The run that counts has the library in the shell.
        let is_launched = self.by_run && run.side() == Side::Bywash;
        let mut command: Command =
            if is_launched { kernel.command("/bin/sh") } else { run.command("/bin/sh") };
        command.args(["-c", LOOP, "sh", &operations.to_string()]);
        if is_launched {
            command.arg(launcher()?).args(["run", "--"]);
        }
        if run.side() == Side::Native {
            command.env("LD_PRELOAD", EMPTY_LIBRARY);
        }
        let seconds = child::run(command.arg("/bin/true"))?.wall.as_secs_f64();
        Ok(Done { rate: operations as f64 / seconds, seconds, sum: None })
    }
}

/// Tries the empty library. The loader complains about one that is not there, and goes on without it.
fn find_empty_library() -> Result<(), Error> {
    let mut command = Run::of_kernel().command("/bin/true");
    command.env("LD_PRELOAD", EMPTY_LIBRARY);
    let output = command.output().map_err(|error| Error::io("run", Path::new("/bin/true"), error))?;
    if output.status.success() && output.stderr.is_empty() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(Error::Unavailable(format!("no empty library to compare with: {}", said.trim_end())))
}

/// The program `bywash`: this one, or what starts this one, beside it or above `lib/bywash`.
fn launcher() -> Result<PathBuf, Error> {
    let own = std::env::current_exe().map_err(|error| Error::io("find", Path::new("this program"), error))?;
    let folder = own.parent().unwrap_or(Path::new("/"));
    let places = ["bywash", "../../bin/bywash"].map(|place| folder.join(place));
    places.into_iter().find(|place| place.is_file()).ok_or_else(|| {
        Error::Unavailable(format!("the program bywash is neither beside {} nor in bin", own.display()))
    })
}

/// A script as autoconf writes them: tests by small programs over small files, and by a compiler where there is one.
struct Configure;

/// Text of the configure script, whose rounds test small programs and the compiler; `$1` is the number of rounds.
const SCRIPT: &str = r##"
set -e
: > config.cache
round=0
while [ $round -lt $1 ]; do
  mkdir -p conftest.dir
  echo "round $round" > conftest.in
  sed -e 's/round/turn/' -e "s/$round/@N@/" < conftest.in > conftest.out
  if grep '^turn @N@$' conftest.out > /dev/null; then result=yes; else result=no; fi
  echo "sed_works_$round=$result" >> config.cache
  number=`expr $round + 1`
  name=`echo "have header_$number.h" | tr 'a-z./ ' 'A-Z___'`
  echo "#define $name $number" > confdefs.h
  cat confdefs.h conftest.out > conftest.c.txt
  cp conftest.c.txt conftest.dir/copy
  if cmp -s conftest.c.txt conftest.dir/copy; then result=yes; else result=no; fi
  echo "copy_$round=$result `wc -c < conftest.dir/copy | tr -d ' '`" >> config.cache
  base=`basename conftest.dir/copy`
  case `uname -s`-$base in Linux-copy) echo "system_$round=known" >> config.cache ;; esac
  if [ -n "$CC" ] && [ `expr $round % 5` = 0 ]; then
    echo "int main(void) { return sizeof(long) == 8 ? 0 : $number; }" > conftest.c
    if $CC -o conftest conftest.c 2> conftest.err && ./conftest; then result=yes; else result=no; fi
    echo "compiler_$round=$result" >> config.cache
  fi
  rm -rf conftest* confdefs.h
  round=$number
done
sort config.cache > config.status
cat config.status
"##;

impl Workload for Configure {
    fn prepare(&mut self, stage: &Stage) -> Result<(), Error> {
        stage.place.write_content(&stage.folder.join("configure"), SCRIPT.as_bytes())
    }

    fn reset(&mut self, stage: &Stage) -> Result<(), Error> {
        let work = stage.folder.join("configured");
        match std::fs::remove_dir_all(&work) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(Error::io("remove", &work, error));
            }
            _ => {}
        }
        std::fs::create_dir(&work).map_err(|error| Error::io("make", &work, error))
    }

    fn run(&mut self, stage: &Stage, run: &Run, _: u64) -> Result<Done, Error> {
        let rounds = if stage.quick { ROUNDS_QUICK } else { ROUNDS };
        let compiler = if programs::installed("cc") { "cc" } else { "" };
        let mut command = run.command("/bin/sh");
        command.arg(stage.folder.join("configure")).arg(rounds.to_string());
        command.current_dir(stage.folder.join("configured")).env("CC", compiler);
        let finished = child::run(&mut command)?;
        let seconds = finished.wall.as_secs_f64();
        Ok(Done { rate: f64::from(rounds) / seconds, seconds, sum: Some(finished.stdout) })
    }
}

/// The `start` bench.
pub fn cases() -> Vec<Case> {
    let added = |limit_ns| Metric {
        reading: Reading::Added { limit_ns },
        unit: "ns",
        // The limit over what is added.
        goal: Some(1.0),
    };
    // The rate comes first, for the control of a row that misses its goal is read like it.
    // It has no goal of its own: the time that is added has one.
    let rate = Metric { goal: None, ..Metric::rate("processes/s", NOT_SLOWER) };
    let by_library = vec![rate, added(LIBRARY_NS_MAX)];
    let by_run = vec![rate, added(RUN_NS_MAX)];
    let case = |name: &str, metrics, places, amount, work| Case {
        bench: "start",
        name: name.into(),
        metrics,
        places,
        amount,
        native: None,
        in_quick: true,
        work,
    };
    let processes = Amount::For { first: 200, seconds: 1.5 };
    let memory: &[Kind] = &[Kind::Tmpfs];
    vec![
        Case {
            native: Some(Native::rival("kernel with an empty library preloaded", NOT_SLOWER)),
            ..case("shell that starts true", by_library, memory, processes, Box::new(Shell { by_run: false }))
        },
        case("bywash run true", by_run, memory, processes, Box::new(Shell { by_run: true })),
        case(
            "configure script",
            vec![Metric::rate("rounds/s", NOT_SLOWER)],
            &[Kind::Tmpfs, Kind::DiskSmall],
            Amount::Fixed,
            Box::new(Configure),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place;

    #[test]
    fn the_script_finds_what_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let (place, programs) = (place::in_folder(folder.path()), programs::Programs::new(folder.path()));
        let stage = Stage { place: &place, folder: folder.path().into(), programs: &programs, quick: true };
        let mut configure = Configure;
        configure.prepare(&stage).unwrap();
        configure.reset(&stage).unwrap();
        let done = configure.run(&stage, &Run::of_kernel(), 0).unwrap();
        let found = done.sum.unwrap();
        for line in ["copy_0=yes 35", "copy_1=yes 35", "sed_works_1=yes", "system_1=known"] {
            assert!(found.lines().any(|found| found == line), "{line} is not in\n{found}");
        }
        assert_eq!(found.contains("compiler_0=yes"), programs::installed("cc"), "{found}");
        assert!(!found.contains("=no"), "{found}");
        // A second run starts from the same state and finds the same.
        configure.reset(&stage).unwrap();
        assert_eq!(configure.run(&stage, &Run::of_kernel(), 0).unwrap().sum.unwrap(), found);
    }

    #[test]
    fn a_shell_starts_as_many_as_it_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let script = format!("echo x >> {}", log.display());
        let output = Command::new("/bin/sh").args(["-c", LOOP, "sh", "3", "sh", "-c", &script]).status();
        assert!(output.unwrap().success());
        assert_eq!(std::fs::read_to_string(log).unwrap(), "x\nx\nx\n");
        assert!(!Command::new("/bin/sh").args(["-c", LOOP, "sh", "3", "false"]).status().unwrap().success());
    }
}
