//! Crates that are published: what their manifests say, and their README.md, which the documentation of `lib.rs` makes.

use crate::root;
use std::fs;
use std::path::Path;

/// Command that writes every text that these tests compare.
pub const UPDATE: &str = "BYWASH_UPDATE_DOCS=1 cargo test -p bywash-support --test house";

/// Returns the folder names in `crates` of the crates that are published.
pub fn published() -> Vec<String> {
    let folders = fs::read_dir(root().join("crates")).expect("the folder of crates").flatten();
    let mut names: Vec<String> = folders
        .filter(|folder| manifest(&folder.path()).lines().any(|line| line == "publish = true"))
        .map(|folder| folder.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    assert!(names.len() > 10, "only {names:?} are published");
    names
}

fn manifest(folder: &Path) -> String {
    fs::read_to_string(folder.join("Cargo.toml")).unwrap_or_default()
}

/// Returns nothing if a file has this text. Writes it if the environment has `BYWASH_UPDATE_DOCS`, else says that it differs
/// and in which line.
pub fn update(path: &Path, text: &str) -> String {
    let before = fs::read_to_string(path).unwrap_or_default();
    if before == text {
        return String::new();
    }
    if std::env::var_os("BYWASH_UPDATE_DOCS").is_some() {
        fs::write(path, text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        return String::new();
    }
    let mut lines = before.lines().zip(text.lines()).enumerate();
    let line = lines.find(|(_, (old, new))| old != new);
    let detail = line
        .map_or("its end".into(), |(index, (old, new))| format!("line {}: '{old}', now '{new}'", index + 1));
    format!("\n  {}: {detail}", path.display())
}

/// Returns the text of the documentation at the head of a source file.
fn documentation(source: &str) -> String {
    let lines = source.lines().map_while(|line| line.strip_prefix("//!"));
    lines.map(|line| format!("{}\n", line.strip_prefix(' ').unwrap_or(line))).collect()
}

/// Returns the first paragraph of a documentation, with links to items as plain code.
fn paragraph(documentation: &str) -> String {
    let first = documentation.split("\n\n").next().unwrap_or_default().trim_end();
    first.replace("[`", "`").replace("`]", "`")
}

/// Returns the first example in Rust, without the lines that documentation hides.
fn example(documentation: &str) -> Option<String> {
    let mut lines = documentation.lines();
    loop {
        match lines.find(|line| line.starts_with("```"))? {
            "```" | "```no_run" => break,
            _ => lines.find(|line| *line == "```")?,
        };
    }
    let shown =
        lines.take_while(|line| *line != "```").filter(|line| *line != "#" && !line.starts_with("# "));
    Some(shown.map(|line| format!("{line}\n")).collect())
}

fn readme(name: &str) -> String {
    let source = fs::read_to_string(root().join("crates").join(name).join("src/lib.rs")).expect("lib.rs");
    let documentation = documentation(&source);
    let title = if name == "bywash" { name.to_owned() } else { format!("bywash-{name}") };
    let example = example(&documentation)
        .unwrap_or_else(|| panic!("{name}: the documentation of lib.rs has no example"));
    let part = if name == "bywash" {
        "The command `bywash`, which runs unmodified programs with their file data at user level, is the crate `bywash-cli`."
    } else {
        "Part of Bywash: user-level, copy-free I/O for Linux."
    };
    let introduction = paragraph(&documentation);
    format!(
        "# {title}\n\n{introduction}\n\n```rust\n{example}```\n\n{part}\n\nLicence: Apache-2.0 or MIT, as you prefer.\n"
    )
}

#[test]
fn readmes_are_what_the_documentation_makes() {
    let mut stale = String::new();
    for name in published() {
        stale += &update(&root().join("crates").join(&name).join("README.md"), &readme(&name));
    }
    assert!(stale.is_empty(), "README.md differs from lib.rs; to write it anew: {UPDATE}{stale}");
}

#[test]
fn manifests_say_what_a_registry_shows() {
    for name in published() {
        let folder = root().join("crates").join(&name);
        let manifest = manifest(&folder);
        for key in ["description", "keywords", "categories", "readme"] {
            let begin = format!("{key} = ");
            assert!(
                manifest.lines().any(|line| line.starts_with(&begin)),
                "crates/{name}/Cargo.toml has no {key}"
            );
        }
        for licence in ["LICENSE-APACHE", "LICENSE-MIT"] {
            assert!(folder.join(licence).exists(), "crates/{name} has no {licence}");
        }
        let dependencies =
            manifest.split("[dependencies]").nth(1).and_then(|rest| rest.split("\n[").next()).unwrap_or("");
        for line in dependencies.lines().filter_map(|line| line.strip_prefix("bywash-")) {
            let used = &line[..line.find([' ', '.']).unwrap_or(line.len())];
            assert!(
                published().iter().any(|name| name == used),
                "{name} is published and needs {used}, which is not"
            );
        }
    }
}

#[test]
fn readmes_have_the_first_example() {
    let source = "//! First [`Thing`].\n//!\n//! Second.\n//!\n//! ```text\n//! no\n//! ```\n//!\n//! ```\n//! a();\n//! # hidden();\n//! ```\nx";
    let documentation = documentation(source);
    assert_eq!(paragraph(&documentation), "First `Thing`.");
    assert_eq!(example(&documentation).as_deref(), Some("a();\n"));
}
