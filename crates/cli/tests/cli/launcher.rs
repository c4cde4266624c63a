//! The launcher: what it costs, and that nobody can tell it from the command.

use crate::place::{TestFolder, bywash, stderr, stdout};
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output};

fn command() -> std::path::PathBuf {
    bywash().with_file_name("bywash-command")
}

/// Type, and bytes in memory, of each program header of a 64-bit ELF file (elf(5)).
fn program_headers(file: &[u8]) -> Vec<(u32, u64)> {
    let half = |at: usize| u16::from_le_bytes([file[at], file[at + 1]]) as usize;
    let word = |at: usize| u64::from_le_bytes(file[at..at + 8].try_into().unwrap());
    let (start, bytes, count) = (word(32) as usize, half(54), half(56));
    let headers = (0..count).map(|index| start + index * bytes);
    headers.map(|at| (u32::from_le_bytes(file[at..at + 4].try_into().unwrap()), word(at + 40))).collect()
}

#[test]
fn nothing_is_loaded_with_it_and_it_maps_less_than_half_a_mebibyte() {
    const LOAD: u32 = 1;
    const INTERPRETER: u32 = 3;
    let headers = program_headers(&fs::read(bywash()).unwrap());
    assert!(headers.iter().all(|(kind, _)| *kind != INTERPRETER), "it needs a dynamic loader");
    let mapped: u64 = headers.iter().filter(|(kind, _)| *kind == LOAD).map(|(_, bytes)| bytes).sum();
    assert!(mapped < 512 << 10, "{mapped} bytes");
    // What the headers are read with can tell the difference.
    assert!(program_headers(&fs::read(command()).unwrap()).iter().any(|(kind, _)| *kind == INTERPRETER));
}

/// Page faults of a program that ends with `status`, the ones with which it is started among them.
// wait4 waits, and tells what the process used.
#[allow(clippy::zombie_processes)]
fn page_faults(command: &mut Command, status: i32) -> i64 {
    let child = command.stderr(std::process::Stdio::null()).spawn().unwrap();
    let (mut ended, mut usage) = (0, std::mem::MaybeUninit::<libc::rusage>::zeroed());
    // SAFETY: a child of this test that nobody else waits for; all zeroes is a valid rusage.
    let usage = unsafe {
        assert_eq!(libc::wait4(child.id() as i32, &raw mut ended, 0, usage.as_mut_ptr()), child.id() as i32);
        usage.assume_init()
    };
    assert_eq!(std::process::ExitStatus::from_raw(ended).code(), Some(status));
    usage.ru_minflt + usage.ru_majflt
}

#[test]
fn it_touches_few_pages() {
    let place = TestFolder::new();
    // A static program that ends at once: the launcher, which does not find its command.
    let program = place.executable(bywash(), "lonely/program");
    let median = |faults: &dyn Fn() -> i64| {
        let mut all: Vec<i64> = (0..9).map(|_| faults()).collect();
        all.sort_unstable();
        all[4]
    };
    let alone = median(&|| page_faults(&mut place.command(&program), 125));
    let under = median(&|| page_faults(place.bywash(&["run", "--"]).arg(&program), 125));
    // A program that loads the C library alone has a hundred.
    assert!(under - alone < 60, "{under} page faults, of which the program alone has {alone}");
}

/// Runs the launcher and the command with the same `arguments`, both in an environment of `variables`.
fn both(place: &TestFolder, variables: &[(&str, &str)], arguments: &[&str]) -> [Output; 2] {
    [bywash().to_path_buf(), command()].map(|program| {
        let mut started = place.command(program);
        started.env_clear().envs(variables.iter().copied()).args(arguments).output().unwrap()
    })
}

#[test]
fn a_program_finds_what_the_command_would_have_given_it() {
    let place = TestFolder::new();
    let folder = place.path().display().to_string();
    place.script("bin/tool", "#!/usr/bin/env -S env -0 SCRIPT=1\n");
    place.script("bin/bare", "echo no interpreter \"$0\" \"$@\"; env\n");
    place.file("bin/forbidden", "echo never\n");
    fs::create_dir(place.path().join("bin/folder")).unwrap();
    let paths = [
        "/usr/bin:/bin",
        "",
        &format!(":/nowhere:{folder}/bin:/usr/bin"),
        &format!("{folder}/bin/tool:/bin"),
    ];
    let preloads = ["", "/a.so", "/before/libbywash_shim.so:/a.so /b.so", "libbywash_shim.so"];
    let programs: [&[&str]; 12] = [
        &["env", "-0"],
        &["/usr/bin/env", "-0", "--unset=X"],
        &["sh", "-c", "cat /proc/$$/cmdline; exit 7", "--off", "--"],
        &["tool"],
        &["./bin/tool"],
        &["bare", "a b", ""],
        &["./bin/bare"],
        &["./bin/forbidden"],
        &["forbidden"],
        &["folder"],
        &["no-such-program"],
        &["./no/such/program"],
    ];
    let run = |path: &str, preload: &str, flags: &[&str], program: &[&str]| {
        let variables =
            [("PATH", path), ("LD_PRELOAD", preload), ("BYWASH_WRITES", "0"), ("X", "y=z"), ("E", "")];
        compare(&place, &variables, &[&["run"], flags, program].concat());
    };
    for preload in preloads {
        for flags in [&[][..], &["--off"], &["--writes", "--off", "--"]] {
            run(paths[0], preload, flags, programs[0]);
        }
    }
    for path in paths {
        for program in programs {
            run(path, "", &["--"], program);
        }
    }
    compare(&place, &[], &["run", "--", "env", "-0"]);
}

/// Asserts that the launcher and the command give the same.
fn compare(place: &TestFolder, variables: &[(&str, &str)], arguments: &[&str]) {
    let [launched, commanded] = both(place, variables, arguments);
    let case = format!("{variables:?} {arguments:?}");
    assert_eq!(stdout(&launched), stdout(&commanded), "{case}");
    // The dynamic loader tells of libraries that are missing once for each program that it starts.
    let told =
        |output: &Output| stderr(output).lines().filter(|line| !line.contains("ld.so")).collect::<String>();
    assert_eq!(told(&launched), told(&commanded), "{case}");
    assert_eq!(launched.status, commanded.status, "{case}");
}

#[test]
fn a_large_environment_is_passed_on() {
    let place = TestFolder::new();
    let many: Vec<(String, String)> = (0..9_000).map(|n| (format!("V{n}"), n.to_string())).collect();
    let mut variables: Vec<(&str, &str)> = many.iter().map(|(name, value)| (&name[..], &value[..])).collect();
    variables.push(("PATH", "/usr/bin:/bin"));
    compare(&place, &variables, &["run", "--", "env", "-0"]);
    let long = format!("/{}.so", "x/".repeat(9_000));
    compare(&place, &[("PATH", "/usr/bin:/bin"), ("LD_PRELOAD", &long)], &["run", "--", "env", "-0"]);
}

#[test]
fn the_command_has_the_name_by_which_it_was_started() {
    let place = TestFolder::new();
    let mut flow = place.bywash(&["flow", "-", "-"]);
    let mut child = flow
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    let proc = Path::new("/proc").join(child.id().to_string());
    while fs::read_link(proc.join("exe")).unwrap() != command().canonicalize().unwrap()
        || fs::read_to_string(proc.join("comm")).unwrap() != "bywash\n"
    {
        assert!(std::time::Instant::now() < deadline, "{:?}", fs::read_to_string(proc.join("comm")));
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_missing_command_is_named_with_the_remedy() {
    let place = TestFolder::new();
    let copy = place.executable(bywash(), "opt/bin/bywash");
    let output = place.command(copy).arg("doctor").output().unwrap();
    assert_eq!(output.status.code(), Some(125));
    let message = stderr(&output);
    let root = place.path().canonicalize().unwrap();
    assert!(message.starts_with("bywash: the program bywash-command cannot be started"), "{message}");
    for tried in ["opt/bin/bywash-command", "opt/lib/bywash/bywash-command"] {
        assert!(message.contains(&format!("\n  {}\n", root.join(tried).display())), "{message}");
    }
    assert!(message.contains("make install"), "{message}");
}

#[test]
fn installed_it_finds_the_command_and_the_library() {
    let place = TestFolder::new();
    let copy = place.executable(bywash(), "usr/bin/bywash");
    place.executable(&command(), "usr/lib/bywash/bywash-command");
    let library =
        place.executable(&bywash().with_file_name("libbywash_shim.so"), "usr/lib/bywash/libbywash_shim.so");
    for program in [&copy, &place.path().join("usr/lib/bywash/bywash-command")] {
        let output = place.command(program).args(["run", "--", "printenv", "LD_PRELOAD"]).output().unwrap();
        assert_eq!(
            stdout(&output).trim_end(),
            library.canonicalize().unwrap().to_str().unwrap(),
            "{program:?}"
        );
    }
    let output = place.command(&copy).args(["run", "--stats", "true"]).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
}
