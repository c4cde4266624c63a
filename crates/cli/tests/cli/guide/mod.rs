//! The examples of the guides, as they are printed: each is run, and none may fail.
//!
//! An example is a row of a table with code that begins with `bywash` (two of them where it says "there" and
//! "here", in which `...` stands for `bywash flow`), a line behind a `$ ` in a fenced block, or a fenced
//! block of `sh`. One that cannot be run has `<!-- not run: WHY -->` in its row, or in the line before its
//! block; see CONTRIBUTING.md.

use crate::place::{TestFolder, bywash, stderr};
use std::fs;
use std::path::Path;
use std::process::Command;

/// Seconds after which an example that serves is ended.
const SECONDS_MAX: &str = "10";
/// Bytes of the device that examples write on.
const DEVICE_BYTES: u64 = 16 << 20;

/// Example of a guide: a line that runs at another host first, if any, and a line that runs here.
#[derive(Debug, PartialEq)]
struct Example {
    line: usize,
    there: Option<String>,
    here: String,
}

/// The examples of a page.
fn examples(page: &str) -> Vec<Example> {
    let mut examples = Vec::new();
    let mut fence: Option<(&str, bool, String, usize)> = None;
    let mut before = "";
    for (number, line) in page.lines().enumerate() {
        let line_number = number + 1;
        match (&mut fence, line.trim_start().strip_prefix("```")) {
            (None, Some(kind)) => {
                fence =
                    Some((kind.trim(), !before.starts_with("<!-- not run: "), String::new(), line_number));
            }
            (Some((kind, runs, text, begin)), Some(_)) => {
                if *kind == "sh" && *runs {
                    examples.push(Example { line: *begin, there: None, here: std::mem::take(text) });
                }
                fence = None;
            }
            (Some((_, runs, text, _)), None) => {
                if let Some(command) = line.strip_prefix("$ bywash ").filter(|_| *runs) {
                    let here = format!("bywash {command}");
                    examples.push(Example { line: line_number, there: None, here });
                }
                *text += line;
                text.push('\n');
            }
            (None, None) if line.starts_with('|') && !line.contains("<!-- not run: ") => {
                examples.extend(row(line, line_number));
            }
            _ => {}
        }
        if !line.trim().is_empty() {
            before = line;
        }
    }
    examples
}

/// The example in a row of a table, if there is one.
fn row(line: &str, number: usize) -> Option<Example> {
    let line = line.replace("\\|", "|");
    let is_command =
        |code: &&str| code.starts_with("bywash ") || code.starts_with("... ") || code.contains("| bywash ");
    let commands: Vec<String> = line
        .split('`')
        .skip(1)
        .step_by(2)
        .filter(is_command)
        .map(|code| code.strip_prefix("... ").map_or(code.to_owned(), |rest| format!("bywash flow {rest}")))
        .collect();
    match commands.as_slice() {
        [] => None,
        [here] => Some(Example { line: number, there: None, here: here.clone() }),
        [there, here] => Some(Example { line: number, there: Some(there.clone()), here: here.clone() }),
        _ => panic!("line {number} has more than two commands: {line}"),
    }
}

/// A device that is gone when the test ends.
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

/// Runs all examples of a page of the repository.
fn run_examples(page: &str, at_least: usize) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(page);
    let examples = examples(&fs::read_to_string(path).unwrap());
    assert!(examples.len() >= at_least, "{page}: only {} examples are found", examples.len());
    let world = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/guide/world.sh");
    for example in examples {
        let place = TestFolder::new();
        let device = Device::make(&place);
        let ran = place
            .command("unshare")
            .args(["--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc", "bash"])
            .arg(&world)
            .env("BYWASH", bywash())
            .env("DEVICE", &device.0)
            .env("THERE", example.there.as_deref().unwrap_or(""))
            .env("HERE", &example.here)
            .env("SECONDS_MAX", SECONDS_MAX)
            .output()
            .unwrap();
        assert!(ran.status.success(), "{page}:{}: {example:?}\n{}", example.line, stderr(&ran));
    }
}

#[test]
fn the_examples_of_flows() {
    run_examples("docs/guide/flow.md", 12);
}

#[test]
fn examples_are_found_where_they_are() {
    let page = "\
| what | how |
|---|---|
| a | `bywash flow a b` |
| b | there `... udp-listen:1 x`, here `make \\| bywash flow - 'y'` |
| c | `file:PATH` |
| d | `bywash flow c d` <!-- not run: why not -->|
```text
$ bywash flow --explain a b
a -> b
```
```sh
bywash doctor
```

<!-- not run: it takes a day -->
```sh
sleep 86400
```
";
    let one = |line, there: Option<&str>, here: &str| Example {
        line,
        there: there.map(str::to_owned),
        here: here.to_owned(),
    };
    assert_eq!(
        examples(page),
        [
            one(3, None, "bywash flow a b"),
            one(4, Some("bywash flow udp-listen:1 x"), "make | bywash flow - 'y'"),
            one(8, None, "bywash flow --explain a b"),
            one(11, None, "bywash doctor\n"),
        ]
    );
}
