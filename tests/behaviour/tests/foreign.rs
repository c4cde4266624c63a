//! Programs that the library cannot serve start as without it, however they are executed: built with musl, with
//! AddressSanitizer, for 32 bits. What the session says of them is right.

#![allow(clippy::unwrap_used)] // the functions below are part of the tests that call them

use bywash_behaviour::compile::Names;
use bywash_behaviour::{library, program};
use bywash_session::Session;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Ways in which `executing/main.c` executes a program.
const WAYS: usize = 14;
/// Numbers of `bywash_executable::Reason`.
const STATIC: u32 = 1;
const MUSL: u32 = 2;
const THIRTY_TWO_BITS: u32 = 4;
const ADDRESS_SANITIZER: u32 = 6;

/// Prints what it finds in LD_PRELOAD.
const PRINTS: &str = r#"
#include <stdio.h>
#include <stdlib.h>
int main(void) { const char *value = getenv("LD_PRELOAD"); return puts(value ? value : "unset") < 0; }
"#;
/// The same with nothing but the C library's functions: Debian has no headers for 32 bits beside the others.
const PRINTS_BARE: &str = r#"
int puts(const char *); char *getenv(const char *); void exit(int);
void _start(void) { const char *value = getenv("LD_PRELOAD"); exit(puts(value ? value : "unset") < 0); }
"#;

/// Name, compiler and its arguments, source, number of the reason.
type Built = (&'static str, &'static str, &'static [&'static str], &'static str, u32);

const PROGRAMS: [Built; 6] = [
    ("glibc", "gcc", &[], PRINTS, 0),
    ("static", "gcc", &["-static"], PRINTS, STATIC),
    ("musl", "musl-gcc", &[], PRINTS, MUSL),
    ("sanitized", "gcc", &["-fsanitize=address"], PRINTS, ADDRESS_SANITIZER),
    ("sanitized-static", "gcc", &["-fsanitize=address", "-static-libasan"], PRINTS, 0),
    ("narrow", "gcc", NARROW, PRINTS_BARE, THIRTY_TWO_BITS),
];
const NARROW: &[&str] = &[
    "-m32",
    "-fno-stack-protector",
    "-no-pie",
    "-nostdlib",
    "/usr/lib32/libc.so.6",
    "-Wl,-dynamic-linker,/lib/ld-linux.so.2",
];

struct Site {
    folder: tempfile::TempDir,
    executing: PathBuf,
    library: PathBuf,
}

fn site() -> &'static Site {
    static SITE: OnceLock<Site> = OnceLock::new();
    SITE.get_or_init(|| {
        let into = Path::new(env!("CARGO_TARGET_TMPDIR")).join("foreign");
        fs::create_dir_all(&into).unwrap();
        let folder = tempfile::tempdir_in(&into).unwrap();
        for (name, compiler, arguments, source, _) in PROGRAMS {
            let file = folder.path().join(format!("{name}.c"));
            fs::write(&file, source).unwrap();
            let mut command = Command::new(compiler);
            command.current_dir(folder.path()).arg("-o").arg(name).arg(file).args(arguments);
            let built = command.output().unwrap_or_else(|error| {
                panic!("{compiler}: {error}; it is in Debian's gcc or musl-tools (scripts/packages test)")
            });
            let said = String::from_utf8_lossy(&built.stderr).into_owned();
            assert!(built.status.success(), "{name} (for 32 bits: Debian's libc6-i386):\n{said}");
        }
        fs::write(folder.path().join("Makefile"), "all:\n\t./musl && ./sanitized && ./glibc\n").unwrap();
        Site { executing: program("executing", Names::Plain, &into).unwrap(), library: library(), folder }
    })
}

/// Lines that were printed, each with its number, and the session's counts of programs without the library.
struct Seen {
    lines: BTreeMap<String, usize>,
    unserved: BTreeMap<(String, u32), usize>,
}

fn run(command: &mut Command, preload: &str) -> Seen {
    let session = Session::create().unwrap();
    let folder = site().folder.path();
    let path = format!("/nowhere:.:{}", std::env::var("PATH").unwrap());
    let output = command
        .current_dir(folder)
        .env("PATH", path)
        .env("LD_PRELOAD", preload)
        .env("BYWASH_SESSION", session.path().to_str().unwrap())
        .env_remove("BYWASH_OFF")
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}: {}{}", output.status, text(&output.stdout), text(&output.stderr));
    assert_eq!(text(&output.stderr), "");
    let mut seen = Seen { lines: BTreeMap::new(), unserved: BTreeMap::new() };
    for line in text(&output.stdout).lines() {
        *seen.lines.entry(line.to_owned()).or_default() += 1;
    }
    for program in session.unserved() {
        let name = program.program.rsplit('/').next().unwrap().to_owned();
        assert!(Path::new(&program.program).is_absolute(), "{program:?}");
        assert!(program.pid > 0 && program.parent > 0 && program.pid != program.parent, "{program:?}");
        *seen.unserved.entry((name, program.reason)).or_default() += 1;
    }
    seen
}

fn executed(name: &str, preload: &str) -> Seen {
    run(Command::new(&site().executing).arg(name), preload)
}

fn once(line: &str, times: usize) -> BTreeMap<String, usize> {
    BTreeMap::from([(line.to_owned(), times)])
}

#[test]
fn every_way_to_execute_each_kind_of_program_works() {
    let library = site().library.to_str().unwrap();
    for (name, _, _, _, reason) in PROGRAMS {
        let seen = executed(name, library);
        let stays = reason == 0 || reason == STATIC;
        assert_eq!(seen.lines, once(if stays { library } else { "unset" }, WAYS), "{name}");
        let noted = if reason == 0 { 0 } else { WAYS };
        assert_eq!(seen.unserved.get(&(name.to_owned(), reason)).copied().unwrap_or(0), noted, "{name}");
        assert_eq!(seen.unserved.values().sum::<usize>(), noted, "{name}: {:?}", seen.unserved);
    }
}

#[test]
fn other_preloaded_libraries_stay() {
    let other = "/nowhere/libother.so";
    let both = format!("{}:libm.so.6", site().library.display());
    assert_eq!(executed("static", &both).lines, once(&both, WAYS));
    // musl's loader would look for it; this program has none of the kind.
    let mut command = Command::new("sh");
    command.args(["-c", "LD_PRELOAD=\"$LD_PRELOAD:/nowhere/libother.so\" ./narrow 2>/dev/null"]);
    assert_eq!(run(&mut command, site().library.to_str().unwrap()).lines, once(other, 1));
}

#[test]
fn grandchildren_of_make_and_of_shells_start() {
    let library = site().library.to_str().unwrap();
    let seen = run(Command::new("make").arg("-s"), library);
    assert_eq!(seen.lines, BTreeMap::from([("unset".to_owned(), 2), (library.to_owned(), 1)]));
    assert_eq!(seen.unserved.len(), 2, "{:?}", seen.unserved);
}

#[test]
fn a_large_environment_and_a_program_that_cannot_be_executed_are_no_trouble() {
    let library = site().library.to_str().unwrap();
    let mut command = Command::new(&site().executing);
    command.arg("musl").envs((0..3000).map(|number| (format!("VARIABLE_{number}"), "x")));
    assert_eq!(run(&mut command, library).lines, once("unset", WAYS));
    // While a file is open for writing it cannot be executed (ETXTBSY): no note of it stays.
    let script = "cp musl busy; exec 9>>busy; ./busy 2>/dev/null; echo $?";
    let seen = run(Command::new("bash").args(["-c", script]), library);
    assert_eq!((seen.lines, seen.unserved), (once("126", 1), BTreeMap::new()));
}
