//! The lock files of the workspaces that are apart from the large one name what the crates in them need by now.
//!
//! A crate of the large workspace that gets a dependency changes them, too, and nothing of the large workspace says so:
//! whoever builds them next with `--locked` is refused.

use crate::root;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// Folders of such workspaces, with their members.
const APART: [(&str, &[&str]); 3] = [
    ("fuzz", &["bywash-fuzz"]),
    ("bench/iceoryx2", &["bywash-bench-iceoryx2"]),
    ("freestanding", &["bywash-launcher", "bywash-recorder", "bywash-shim"]),
];

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The value of the first line `KEY = "VALUE"`.
fn value<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(" = \""))?;
    line.split('"').next()
}

/// Packages that a manifest names: those that are always needed, and those that features choose. All count of the member of
/// a workspace, and of others all but those of tests and examples. None is renamed, which is held here, too.
fn needed(manifest: &str, is_member: bool) -> [BTreeSet<String>; 2] {
    let mut is_in_dependencies = false;
    let mut names = [BTreeSet::new(), BTreeSet::new()];
    for line in manifest.lines() {
        if let Some(section) = line.strip_prefix('[') {
            let section = section.trim_end().trim_end_matches(']');
            let is_of_tests = section.ends_with("dev-dependencies");
            is_in_dependencies = section.ends_with("dependencies") && (is_member || !is_of_tests);
        } else if is_in_dependencies && line.contains('=') && !line.starts_with(['#', ' ']) {
            assert!(!line.contains("package ="), "this is not read: {line}");
            let end = line.find(['.', ' ', '=']).expect("a sign of equality");
            names[usize::from(line.contains("optional = true"))].insert(line[..end].to_owned());
        }
    }
    names
}

/// Packages that a lock file has, by name, each with what it needs; of those that come from elsewhere, nothing.
fn locked(lock: &str) -> BTreeMap<String, BTreeSet<String>> {
    let own = lock.split("[[package]]").skip(1).filter(|package| value(package, "source").is_none());
    own.map(|package| {
        let list = package.split("dependencies = [").nth(1).and_then(|rest| rest.split(']').next());
        // Behind a name there is a version where several are locked.
        let names = list.unwrap_or_default().split('"').skip(1).step_by(2);
        let names = names.map(|name| name.split(' ').next().unwrap_or(name).to_owned());
        (value(package, "name").expect("a package's name").to_owned(), names.collect())
    })
    .collect()
}

/// Manifests of all crates of the repository, by the names of their packages.
fn manifests() -> BTreeMap<String, String> {
    let folders = ["", "crates", "bench", "examples", "tests", "fuzz", "python", "web"]
        .map(|folder| root().join(folder));
    let below = folders.iter().flat_map(|folder| fs::read_dir(folder).expect("a folder").flatten());
    let all = below.map(|entry| entry.path()).chain(folders.iter().cloned());
    let texts = all.filter_map(|folder| fs::read_to_string(folder.join("Cargo.toml")).ok());
    texts.filter_map(|text| Some((value(&text, "name")?.to_owned(), text.clone()))).collect()
}

#[test]
fn the_lock_files_apart_are_not_stale() {
    let manifests = manifests();
    for (folder, members) in APART {
        let folder = root().join(folder);
        let locked = locked(&read(&folder.join("Cargo.lock")));
        for member in members {
            assert!(locked.contains_key(*member), "{member} is not in its own lock file");
        }
        for (name, has) in &locked {
            let manifest = manifests.get(name).unwrap_or_else(|| panic!("there is no crate {name} any more"));
            let [needs, may_have] = needed(manifest, members.contains(&name.as_str()));
            let has: BTreeSet<_> = has.difference(&may_have).cloned().collect();
            let remedy = format!("cargo update --workspace --manifest-path {}/Cargo.toml", folder.display());
            assert_eq!(has, needs, "left: {name} as locked, right: its manifest; to mend it: {remedy}");
        }
    }
}

#[test]
fn what_is_needed_is_read() {
    let manifest = "[dependencies]\nlibc.workspace = true\nbywash-x = { path = \"x\" }\ny = { optional = true }\n# none = 1\n\
                    [dev-dependencies]\ntempfile = \"3\"\n[lints]\nworkspace = true\n[build-dependencies]\ncc = \"1\"";
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
    assert_eq!(needed(manifest, false), [names(&["libc", "bywash-x", "cc"]), names(&["y"])]);
    assert_eq!(needed(manifest, true), [names(&["libc", "bywash-x", "tempfile", "cc"]), names(&["y"])]);
    let lock = "[[package]]\nname = \"a\"\ndependencies = [\n \"b\",\n \"c 1.0\",\n]\n\n[[package]]\nname = \"b\"\nsource = \"x\"\n";
    assert_eq!(locked(lock), BTreeMap::from([("a".to_owned(), names(&["b", "c"]))]));
}
