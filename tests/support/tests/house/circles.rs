//! Modules of a crate do not use each other in circles.
//!
//! Held for the children of each module: whatever lies below one child counts as that child. A module and its
//! own children may use each other, since they are one unit to everybody else. Tests are not looked at.

use crate::root;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Folders of crates whose modules still use each other in circles.
const NOT_YET: &[&str] = &[
    "bench/src",
    "crates/capi/src",
    "crates/channel/src",
    "crates/client/src",
    "crates/container/src",
    "crates/device/src",
    "crates/link/src",
    "crates/model/src",
    "crates/shim/src",
    "crates/sim/src",
    "crates/vhost/src",
    "crates/volume/src",
    "fuzz/src",
    "tests/support/src",
];

/// Names of a module and of those that it lies in, from the crate's root on.
type Module = Vec<String>;

/// Source texts of a crate, by module.
type Sources = BTreeMap<Module, String>;

/// Children of one module that a child uses, each with a path that shows it.
type Uses = BTreeMap<String, BTreeMap<String, String>>;

/// Finds the folders below `folder` that hold the root of a crate, except for those of tests.
fn crates(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder of the tree").flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        if path.is_dir() && !["target", "node_modules", "tests"].map(Into::into).contains(&name) {
            crates(&path, found);
        } else if (name == "lib.rs" || name == "main.rs") && !found.contains(&folder.to_owned()) {
            found.push(folder.to_owned());
        }
    }
}

/// Reads the modules of the crate whose root lies in `folder`.
fn read(folder: &Path, module: &Module, sources: &mut Sources) {
    for entry in fs::read_dir(folder).expect("a folder of the crate").flatten() {
        let path = entry.path();
        let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
        if path.is_dir() {
            // Another crate may lie below this one.
            if name != "tests" && !path.join("main.rs").exists() && !path.join("lib.rs").exists() {
                read(&path, &below(module, &name), sources);
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") && !name.ends_with("tests") {
            let is_own = name == "mod" || module.is_empty() && (name == "lib" || name == "main");
            let module = if is_own { module.clone() } else { below(module, &name) };
            sources.insert(module, code(&fs::read_to_string(&path).expect("a source file")));
        }
    }
}

fn below(module: &Module, name: &str) -> Module {
    module.iter().cloned().chain([name.to_owned()]).collect()
}

/// Returns a source text without its comments and without the items that only tests have.
fn code(text: &str) -> String {
    let mut lines = text.lines().map(|line| line.split("//").next().unwrap_or_default());
    let mut kept = String::new();
    while let Some(line) = lines.next() {
        if !["#[cfg(test)]", "#[cfg(loom)]", "#[cfg(all(test"].iter().any(|of| line.trim().starts_with(of)) {
            kept.extend([line, "\n"]);
            continue;
        }
        // The item ends with a semicolon, or with the brace that closes its first one.
        let mut depth = 0_i32;
        for line in lines.by_ref() {
            depth += line.matches('{').count() as i32 - line.matches('}').count() as i32;
            let is_attribute = line.trim().starts_with("#[");
            if depth <= 0 && !is_attribute && line.trim_end().ends_with(['}', ';', ',']) {
                break;
            }
        }
    }
    kept
}

/// Writes out a tree of imports, such as `a::{b, c::{d, e}}`, as one path each.
fn expanded(tree: &str) -> Vec<String> {
    let Some((before, inside)) = tree.split_once('{') else {
        return vec![tree.split(" as ").next().unwrap_or_default().trim().to_owned()];
    };
    let inside = inside.trim_end().trim_end_matches('}');
    // A brace that this has taken too many of is given back to the last branch.
    let missing = inside.matches('{').count().saturating_sub(inside.matches('}').count());
    let inside = format!("{inside}{}", "}".repeat(missing));
    let mut branches = vec![String::new()];
    let mut depth = 0;
    for letter in inside.chars() {
        depth += i32::from(letter == '{') - i32::from(letter == '}');
        match letter {
            ',' if depth == 0 => branches.push(String::new()),
            _ => branches.last_mut().expect("a branch").push(letter),
        }
    }
    let branches = branches.iter().map(|branch| branch.trim()).filter(|branch| !branch.is_empty());
    branches.flat_map(|branch| expanded(&format!("{}{branch}", before.trim()))).collect()
}

/// Returns the paths of all imports of a module, each with true if it is an export as well.
fn imports(text: &str) -> Vec<(String, bool)> {
    let mut found = Vec::new();
    for statement in text.split(';') {
        let Some(at) =
            statement.rfind("use ").filter(|at| !statement[..*at].ends_with(char::is_alphanumeric))
        else {
            continue;
        };
        let line = statement[..at].lines().last().unwrap_or_default().trim();
        if line.is_empty() || line.starts_with("pub") {
            let tree = statement[at + 4..].replace('\n', " ");
            found.extend(expanded(&tree).into_iter().map(|path| (path, line.starts_with("pub"))));
        }
    }
    found
}

/// Returns all paths in a module that begin with `crate` or `super`, or with the name of a child.
fn paths(text: &str, children: &BTreeSet<&str>) -> Vec<String> {
    let is_name = |letter: char| letter.is_alphanumeric() || letter == '_' || letter == ':';
    let words = text.split(|letter| !is_name(letter)).filter(|word| word.contains("::"));
    let is_inside = |word: &&str| {
        let first = word.split("::").next().unwrap_or_default();
        first == "crate" || first == "super" || children.contains(first)
    };
    words.filter(is_inside).map(str::to_owned).collect()
}

/// A crate whose paths can be followed to the module that they lead to.
struct Crate {
    sources: Sources,
    /// Modules that names lead to, by the module that exports them.
    exports: BTreeMap<(Module, String), Module>,
}

impl Crate {
    fn new(sources: Sources) -> Crate {
        let mut new = Crate { sources, exports: BTreeMap::new() };
        for (module, text) in &new.sources {
            for (path, _) in imports(text).into_iter().filter(|import| import.1) {
                let name = path.rsplit("::").next().unwrap_or_default().to_owned();
                if let Some(target) = new.target(module, &path).filter(|target| target != module) {
                    new.exports.insert((module.clone(), name), target);
                }
            }
        }
        new
    }

    /// Returns the module that a path in `module` leads to; `None` if that is another crate's.
    fn target(&self, module: &Module, path: &str) -> Option<Module> {
        let mut names = path.split("::").peekable();
        let mut at = module.clone();
        match *names.peek()? {
            "crate" => at = Module::new(),
            "self" | "super" => {}
            name if self.sources.contains_key(&below(module, name)) => {}
            _ => return None,
        }
        for name in names {
            match name {
                "crate" | "self" => {}
                "super" => drop(at.pop()),
                _ if self.sources.contains_key(&below(&at, name)) => at.push(name.to_owned()),
                _ => return Some(self.exports.get(&(at.clone(), name.to_owned())).cloned().unwrap_or(at)),
            }
        }
        Some(at)
    }

    /// Returns the uses among the children of each module.
    fn uses(&self) -> BTreeMap<Module, Uses> {
        let mut all: BTreeMap<Module, Uses> = BTreeMap::new();
        for (module, text) in &self.sources {
            let depth = module.len();
            let children = self.sources.keys().filter(|key| key.len() > depth && key.starts_with(module));
            let children = children.map(|child| child[depth].as_str()).collect();
            // A module passes what its children export on to others, which is no use of its own.
            let is_passed = |path: &str| self.target(module, path).is_some_and(|to| to.starts_with(module));
            let imports = imports(text).into_iter().filter(|(path, is_pub)| !is_pub || !is_passed(path));
            for path in imports.map(|import| import.0).chain(paths(text, &children)) {
                let Some(target) = self.target(module, &path) else { continue };
                let common = module.iter().zip(&target).take_while(|(one, other)| one == other).count();
                if common < depth && common < target.len() {
                    let of = all.entry(module[..common].to_vec()).or_default();
                    let used = of.entry(module[common].clone()).or_default();
                    let example = format!("{} in {}", path.trim_end_matches(':'), module.join("/"));
                    used.insert(target[common].clone(), example);
                }
            }
        }
        all
    }

    /// Returns one circle, as lines that each name a use; none if there is no circle.
    fn circle(&self) -> Vec<String> {
        for mut uses in self.uses().into_values() {
            // Whoever uses nobody that is left is in no circle.
            loop {
                let left: BTreeSet<String> = uses.keys().cloned().collect();
                uses.values_mut().for_each(|used| used.retain(|name, _| left.contains(name)));
                uses.retain(|_, used| !used.is_empty());
                if uses.len() == left.len() {
                    break;
                }
            }
            let mut walk: Vec<&String> = uses.keys().take(1).collect();
            while let Some(last) = walk.last() {
                let next = uses[*last].keys().next().expect("a use");
                if let Some(begin) = walk.iter().position(|name| *name == next) {
                    walk.push(next);
                    let steps = walk[begin..].windows(2);
                    let line = |step: &[&String]| format!("{} uses {}", step[0], step[1]);
                    return steps
                        .map(|step| format!("{} ({})", line(step), uses[step[0]][step[1]]))
                        .collect();
                }
                walk.push(next);
            }
        }
        Vec::new()
    }
}

#[test]
fn modules_do_not_use_each_other_in_circles() {
    let mut found = Vec::new();
    for folder in ["crates", "bench", "examples", "python", "web", "fuzz"] {
        crates(&root().join(folder), &mut found);
    }
    crates(&root().join("tests/support/src"), &mut found);
    assert!(found.len() > 20, "only {} crates were found", found.len());
    let mut wrong = String::new();
    for folder in found {
        let mut sources = Sources::new();
        read(&folder, &Module::new(), &mut sources);
        let circle = Crate::new(sources).circle();
        let path = folder.strip_prefix(root()).expect("a path below the root").to_string_lossy().into_owned();
        if NOT_YET.contains(&path.as_str()) {
            if circle.is_empty() {
                wrong.push_str(&format!("\n{path}: no circle any more, so it goes from the list"));
            }
        } else if !circle.is_empty() {
            wrong.push_str(&format!("\n{path}:\n  {}", circle.join("\n  ")));
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn a_circle_is_found_through_exports_and_folders() {
    let circle = |texts: &[(&str, &str)]| {
        let module =
            |path: &str| path.split('/').filter(|name| !name.is_empty()).map(str::to_owned).collect();
        Crate::new(texts.iter().map(|(path, text)| (module(path), code(text))).collect()).circle()
    };
    let lib = ("", "mod a;\nmod b;\npub use a::{Thing, other as One};");
    let deep = ("b/deep", "use crate::Thing;\n");
    assert_eq!(
        circle(&[lib, ("a", "pub(crate) fn f() { crate::b::g() }"), ("b", "mod deep;"), deep]),
        ["a uses b (crate::b::g in a)", "b uses a (crate::Thing in b/deep)"]
    );
    let parent = ("b", "mod deep;\nuse deep::X;\n// crate::c\n");
    let tests = "use super::b;\n#[cfg(test)]\nmod tests {\n    use crate::c::{self, X};\n}\n";
    let child = ("b/deep", "use super::super::c::{Y, z::{W}};");
    assert!(circle(&[lib, ("a", tests), parent, child, ("c", "")]).is_empty());
    assert_eq!(circle(&[lib, ("a", tests), parent, child, ("c", "use super::b;")]).len(), 2);
}
