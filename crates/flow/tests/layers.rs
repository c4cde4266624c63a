//! Holds the layers that `src/lib.rs` draws: a module uses only modules that stand before it there.

#![allow(clippy::unwrap_used)] // helpers of the tests

use std::fs;
use std::path::{Path, PathBuf};

/// Returns the modules in the order in which the drawing in `lib.rs` names them.
fn layers(lib: &str) -> Vec<String> {
    let drawing = lib.split("```text").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let lines = drawing.lines().filter_map(|line| line.strip_prefix("//!     "));
    lines.flat_map(|line| modules(line).map(str::to_owned).collect::<Vec<_>>()).collect()
}

/// Returns the words of a line up to the bar in front of the remark.
fn modules(line: &str) -> impl Iterator<Item = &str> {
    line.split('|').next().unwrap_or_default().split_whitespace()
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true if path.file_name().unwrap() == "tests" => {}
            true => found.extend(sources(&path)),
            false => found.push(path),
        }
    }
    found
}

/// Returns the names behind each `crate::` in the code of a file, without its comments and tests.
fn used(text: &str) -> Vec<String> {
    let code = text.split("\n#[cfg(test)]\nmod ").next().unwrap_or_default();
    let code = code.split("\n#[cfg(test)]\npub(crate) mod tests").next().unwrap_or_default();
    let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    lines
        .flat_map(|line| line.split("crate::").skip(1).collect::<Vec<_>>())
        .map(|rest| rest.chars().take_while(|letter| letter.is_alphanumeric() || *letter == '_').collect())
        .collect()
}

#[test]
fn a_module_uses_only_modules_before_it() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let lib = fs::read_to_string(src.join("lib.rs")).unwrap();
    let layers = layers(&lib);
    let place = |name: &str| layers.iter().position(|known| known == name);
    let declared: Vec<&str> = lib
        .lines()
        .filter_map(|line| line.trim_start_matches("pub ").strip_prefix("mod ")?.strip_suffix(';'))
        .collect();
    for name in &declared {
        assert!(place(name).is_some(), "the drawing in lib.rs lacks '{name}'");
    }
    assert_eq!(declared.len(), layers.len(), "the drawing in lib.rs has a module that is not there");
    let mut wrong = Vec::new();
    for path in sources(&src) {
        let inside = path.strip_prefix(&src).unwrap();
        let module = inside.components().next().unwrap().as_os_str().to_str().unwrap();
        let module = module.trim_end_matches(".rs");
        if module == "lib" {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        for name in used(&text).into_iter().filter(|name| name != module) {
            match place(&name) {
                None => wrong.push(format!("{}: crate::{name} is no module", inside.display())),
                Some(other) if Some(other) > place(module) => {
                    wrong.push(format!("{}: {module} uses {name}, which stands behind it", inside.display()));
                }
                Some(_) => {}
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
