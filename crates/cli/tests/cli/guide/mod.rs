//! The examples of README.md and the guides, as they are printed: each is run, and none may fail.
//!
//! - [`page`]: a page's blocks and the examples in them
//!
//! `world.sh` makes the hosts, devices and files that examples name. CONTRIBUTING.md says how a page shows an example.

mod page;

use crate::place::{TestFolder, bywash, stderr};
use page::{Example, Page};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Commands that serve until a signal ends them, by a part of their line.
const SERVES: &[&str] = &["bywash serve --", "bywash plan web", ",fork ", "bywash flow udp-listen:5000 udp:"];
/// Time that a command which serves is given, in seconds.
const SERVES_FOR: &str = "3";
/// Size of the device that examples write on, in bytes.
const DEVICE_BYTES: u64 = 16 << 20;

/// Test files that compile or run the programs in a page, by language of the programs. Each names the page.
const PROGRAMS: &[(&str, &str, &[&str])] = &[
    ("README.md", "rust", &["crates/bywash/tests/readme.rs"]),
    ("README.md", "c", &["crates/capi/tests/c.rs"]),
    ("README.md", "python", &["python/tests/test_guide.py"]),
    ("python/README.md", "python", &["python/tests/test_guide.py", "python/tests/test_serve.py"]),
    ("docs/guide/channels.md", "rust", &["crates/bywash/src/lib.rs"]),
    ("docs/guide/channels.md", "c", &["crates/capi/tests/c.rs"]),
    ("docs/guide/containers.md", "rust", &["crates/bywash/src/lib.rs"]),
    ("docs/guide/containers.md", "c", &["crates/capi/tests/c.rs"]),
    ("docs/guide/containers.md", "python", &["python/tests/test_guide.py"]),
    ("docs/guide/displays.md", "rust", &["crates/bywash/src/lib.rs"]),
    ("docs/guide/displays.md", "c", &["crates/capi/tests/c.rs"]),
    ("docs/guide/displays.md", "python", &["python/tests/test_surfaces.py"]),
    ("docs/guide/flow.md", "rust", &["crates/bywash/src/lib.rs"]),
    ("docs/guide/flow.md", "c", &["crates/capi/tests/c.rs"]),
    ("docs/guide/flow.md", "python", &["python/tests/test_guide.py"]),
    ("docs/guide/nvme.md", "rust", &["crates/client/tests/server.rs"]),
    ("docs/guide/plan.md", "python", &["python/tests/test_guide.py"]),
    ("docs/guide/serve.md", "rust", &["crates/client/tests/server.rs"]),
    ("docs/guide/serve.md", "c", &["crates/capi/tests/c.rs"]),
    ("docs/guide/serve.md", "python", &["python/tests/test_serve.py"]),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(page: &str) -> Page {
    let text = fs::read_to_string(root().join(page)).unwrap();
    Page::parse(&text).unwrap_or_else(|reason| panic!("{page}:{reason}"))
}

/// Pages whose examples are run.
fn pages() -> BTreeSet<String> {
    let guides = fs::read_dir(root().join("docs/guide")).unwrap();
    let guides = guides.map(|entry| format!("docs/guide/{}", entry.unwrap().file_name().to_string_lossy()));
    let others = ["README.md", "python/README.md"].map(str::to_owned);
    guides.filter(|page| page.ends_with(".md")).chain(others).collect()
}

/// A loop device, which is detached when the test ends.
struct Device(String);

impl Device {
    fn make(place: &TestFolder) -> Device {
        let image = place.file("device.image", "");
        fs::OpenOptions::new().write(true).open(&image).unwrap().set_len(DEVICE_BYTES).unwrap();
        let made = Command::new("losetup").args(["--find", "--show"]).arg(&image).output().unwrap();
        assert!(made.status.success(), "{} (this test needs root)", stderr(&made));
        Device(String::from_utf8(made.stdout).unwrap().trim().to_owned())
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // There is nothing else to do about it.
        let _ = Command::new("losetup").args(["--detach", &self.0]).status();
    }
}

/// Returns a script of bash that runs commands in order and fails with the first that fails.
///
/// A command that serves must still run when its time is over. After a command in the background the script waits for the
/// sockets that the command's options name.
fn script(commands: &[String]) -> String {
    let mut script = String::new();
    for command in commands {
        if command.contains("bywash plan web") && !cfg!(feature = "page") {
            eprintln!("left out, since there is no page in this command: {command}");
            continue;
        }
        // crates/cli/tests/kms.rs runs such a flow in a guest. Here it would take somebody's screen.
        if command.contains("display:kms") {
            eprintln!("left out, since there is no screen to take: {command}");
            continue;
        }
        let is_in_background = command.trim_end().ends_with('&');
        if !is_in_background && SERVES.iter().any(|part| command.contains(part)) {
            script += &format!("must_serve {SERVES_FOR} sh -c {}\n", quoted(command));
            continue;
        }
        script += command;
        script.push('\n');
        if is_in_background {
            let words: Vec<&str> = command.split([' ', '\n', '\\']).filter(|word| !word.is_empty()).collect();
            for option in words.windows(2) {
                if ["--socket", "--metrics", "--vhost-user", "--nbd"].contains(&option[0]) {
                    let parts = option[1].rsplit('=').map(|part| part.trim_start_matches("unix:"));
                    let address = { parts }.find(|part| part.starts_with('/'));
                    let path = address.or_else(|| option[1].split(',').next()).unwrap();
                    script += &format!("wait_for {}\n", path.split(',').next().unwrap());
                }
            }
        }
    }
    script
}

/// Returns `text` as one word of the shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

/// Runs all examples of a page of the repository.
fn run_examples(page: &str, at_least: usize) {
    let examples = read(page).examples;
    assert!(examples.len() >= at_least, "{page}: only {} examples are found", examples.len());
    let world = root().join("crates/cli/tests/cli/guide/world.sh").canonicalize().unwrap();
    for Example { line, there, here } in examples {
        let place = TestFolder::new();
        let device = Device::make(&place);
        let ran = place
            .command("unshare")
            .args(["--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc", "bash"])
            .arg(&world)
            .env("BYWASH", bywash())
            .env("DOCS", root().join("docs").canonicalize().unwrap())
            .env("DEVICE", &device.0)
            .env("THERE", there.as_deref().unwrap_or(""))
            .env("HERE", script(&here))
            .output()
            .unwrap();
        let said = stderr(&ran);
        assert!(ran.status.success(), "{page}:{line}: {there:?} {here:?}\n{said}");
        assert!(!said.contains("cannot be preloaded"), "{page}:{line}: the library is not there\n{said}");
    }
}

#[test]
fn the_examples_of_the_readme() {
    run_examples("README.md", 1);
}

#[test]
fn the_examples_of_run() {
    run_examples("docs/guide/run.md", 4);
}

#[test]
fn the_examples_of_log() {
    run_examples("docs/guide/log.md", 2);
}

#[test]
fn the_examples_of_flow() {
    run_examples("docs/guide/flow.md", 14);
}

#[test]
fn the_examples_of_displays() {
    run_examples("docs/guide/displays.md", 7);
}

#[test]
fn the_examples_of_live_streams() {
    run_examples("docs/guide/live.md", 8);
}

#[test]
fn the_examples_of_accelerators() {
    run_examples("docs/guide/accelerators.md", 3);
}

#[test]
fn the_examples_of_serve() {
    run_examples("docs/guide/serve.md", 4);
}

#[test]
fn the_examples_of_virtual_machines() {
    run_examples("docs/guide/virtual-machines.md", 2);
}

#[test]
fn the_examples_of_nbd() {
    run_examples("docs/guide/nbd.md", 2);
}

#[test]
fn the_examples_of_nvme() {
    run_examples("docs/guide/nvme.md", 1);
}

#[test]
fn the_examples_of_plan() {
    run_examples("docs/guide/plan.md", 4);
}

#[test]
fn no_page_has_an_example_that_nobody_runs() {
    let tests = include_str!("mod.rs");
    let mut programs = BTreeSet::new();
    for page in pages() {
        let Page { examples, languages } = read(&page);
        let is_run = tests.contains(&format!("run_examples(\"{page}\""));
        assert_eq!(
            is_run,
            !examples.is_empty(),
            "{page}: has {} examples; a test here runs them",
            examples.len()
        );
        programs.extend(languages.into_iter().map(|language| (page.clone(), language)));
    }
    let known = PROGRAMS.iter().map(|(page, language, _)| (page.to_string(), language.to_string()));
    assert_eq!(
        programs,
        known.collect(),
        "pages and their languages; PROGRAMS names who compiles or runs them"
    );
    for (page, _, files) in PROGRAMS {
        for file in *files {
            let name = page.strip_prefix("docs/guide/").unwrap_or(page);
            let text = fs::read_to_string(root().join(file)).unwrap();
            assert!(text.contains(name), "{file} does not name {page}");
        }
    }
}

#[test]
fn commands_that_serve_are_ended() {
    let commands = ["bywash serve --socket /a &", "bywash doctor", "bywash serve --metrics /b,mode=660"];
    assert_eq!(
        script(&commands.map(str::to_owned)),
        "bywash serve --socket /a &\nwait_for /a\nbywash doctor\n\
         must_serve 3 sh -c 'bywash serve --metrics /b,mode=660'\n"
    );
    let volume = ["bywash serve \\\n --vhost-user root=/c,mode=660 &".to_owned()];
    assert!(script(&volume).ends_with("wait_for /c\n"));
    let volume = ["bywash serve --nbd root=unix:/d,mode=660 &".to_owned()];
    assert!(script(&volume).ends_with("wait_for /d\n"));
}
