//! Files that ARCHITECTURE.md names exist, its drawing names every crate, and the Rust version that texts state is the one
//! of the manifests.

use crate::root;
use std::fs;

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Returns the paths in backticks: everything below a folder of the repository.
fn paths(text: &str) -> Vec<&str> {
    let folders = [
        "bench/",
        "crates/",
        "docs/",
        "examples/",
        "freestanding/",
        "fuzz/",
        "python/",
        "scripts/",
        "tests/",
        "web/",
    ];
    let spans = text.split('`').skip(1).step_by(2);
    spans
        .filter(|span| folders.iter().any(|folder| span.starts_with(folder)) && !span.contains([' ', '*']))
        .collect()
}

/// Returns the greatest `rust-version` of the manifests, as text.
fn rust_version_max() -> String {
    let folders = fs::read_dir(root().join("crates")).expect("the folder of crates").flatten();
    let manifests = folders.map(|folder| folder.path().join("Cargo.toml")).chain([root().join("Cargo.toml")]);
    let texts = manifests.filter_map(|path| fs::read_to_string(path).ok());
    let versions = texts.filter_map(|text| stated(&text, "rust-version = \"").map(str::to_owned));
    let minor = |version: &String| version.split('.').nth(1).and_then(|minor| minor.parse::<u32>().ok());
    versions.max_by_key(minor).expect("a rust-version")
}

/// Returns the version behind `before` in a text.
fn stated<'a>(text: &'a str, before: &str) -> Option<&'a str> {
    let rest = &text[text.find(before)? + before.len()..];
    Some(&rest[..rest.find(|letter: char| letter != '.' && !letter.is_ascii_digit())?])
}

#[test]
fn files_that_the_architecture_names_exist() {
    let text = read("ARCHITECTURE.md");
    let paths = paths(&text);
    assert!(paths.len() > 60, "ARCHITECTURE.md names {} files", paths.len());
    let missing: Vec<_> = paths.into_iter().filter(|path| !root().join(path).exists()).collect();
    assert!(missing.is_empty(), "ARCHITECTURE.md names files that do not exist: {missing:?}");
}

#[test]
fn the_drawing_names_every_crate() {
    let text = read("ARCHITECTURE.md");
    let drawing = text.split("```").nth(1).expect("the drawing");
    for folder in fs::read_dir(root().join("crates")).expect("the folder of crates").flatten() {
        let name = folder.file_name().to_string_lossy().into_owned();
        let is_drawn = drawing.lines().any(|line| line.split_whitespace().next() == Some(&name));
        assert!(is_drawn, "the drawing in ARCHITECTURE.md has no line for crates/{name}");
    }
}

#[test]
fn texts_state_the_rust_version_of_the_manifests() {
    let all = rust_version_max();
    let libraries = read("Cargo.toml");
    let libraries = stated(&libraries, "rust-version = \"").expect("the version of the workspace");
    assert_eq!(stated(&read("README.md"), "a Rust toolchain ("), Some(all.as_str()), "README.md");
    let contributing = read("CONTRIBUTING.md");
    assert_eq!(stated(&contributing, "needs Rust "), Some(all.as_str()), "CONTRIBUTING.md");
    assert_eq!(stated(&contributing, "libraries need "), Some(libraries), "CONTRIBUTING.md");
}

#[test]
fn paths_and_versions_are_read() {
    assert_eq!(paths("`crates/a.rs` b `c` `tests/*` `docs/x y` `web/z`"), ["crates/a.rs", "web/z"]);
    assert_eq!(stated("needs Rust 1.90 or", "Rust "), Some("1.90"));
}
