//! The table of dependencies in ARCHITECTURE.md is what the manifests say.

use crate::root;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;

/// A crate's folder, and the crates of this workspace that its manifest names.
type Dependencies = BTreeMap<String, BTreeSet<String>>;

/// The names behind `bywash-` at the beginning of a manifest's lines, in whichever section of dependencies but those
/// of tests.
fn named_in(manifest: &str) -> BTreeSet<String> {
    let mut in_dependencies = false;
    let mut names = BTreeSet::new();
    for line in manifest.lines() {
        if line.starts_with('[') {
            let section = line.trim_end();
            in_dependencies = section.ends_with("dependencies]") && !section.ends_with("dev-dependencies]");
        } else if in_dependencies && let Some(rest) = line.strip_prefix("bywash-") {
            let is_of_name = |letter: &char| letter.is_ascii_alphanumeric() || *letter == '-';
            let name: String = rest.chars().take_while(is_of_name).collect();
            // The example `http` is the package `bywash-example-http` in the folder `examples/http`.
            names.insert(name.replace("example-", "examples/"));
        }
    }
    names
}

fn from_manifests() -> Dependencies {
    let mut all = Dependencies::new();
    for folder in ["crates", "bench", "examples", "python", "tests", "web", "fuzz"] {
        let manifests = fs::read_dir(root().join(folder))
            .expect("a folder of crates")
            .flatten()
            .map(|entry| entry.path());
        for path in manifests.chain([root().join(folder)]) {
            let Ok(manifest) = fs::read_to_string(path.join("Cargo.toml")) else { continue };
            let name = path
                .strip_prefix(root())
                .expect("a path below the root")
                .to_string_lossy()
                .replace("crates/", "");
            all.insert(name, named_in(&manifest));
        }
    }
    all
}

/// The rows `| CRATE | uses, uses |` under the heading "Who uses whom".
fn from_the_drawing() -> Dependencies {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("ARCHITECTURE.md");
    let section = text.split("### Who uses whom").nth(1).expect("a heading 'Who uses whom'");
    section
        .lines()
        .skip_while(|line| !line.starts_with("|---"))
        .skip(1)
        .take_while(|line| line.starts_with('|'))
        .map(|line| {
            let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
            let used = cells[1].split(',').map(|name| name.trim().trim_matches('`').to_owned());
            (cells[0].trim_matches('`').to_owned(), used.filter(|name| name != "-").collect())
        })
        .collect()
}

#[test]
fn the_drawing_is_true() {
    assert_eq!(from_the_drawing(), from_manifests(), "left: ARCHITECTURE.md, right: the manifests");
}

#[test]
fn only_dependencies_are_read() {
    let manifest = "[package]\nbywash-x = 1\n[dependencies]\nbywash-file.workspace = true\nbywash-example-http = 2\nlibc = \"1\"\n[dev-dependencies]\nbywash-y = 1";
    assert_eq!(named_in(manifest), BTreeSet::from(["examples/http".to_owned(), "file".to_owned()]));
}
