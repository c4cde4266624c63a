//! Public names use the words of docs/glossary.md and none that its last column lists as not used.

use crate::root;
use std::fs;
use std::path::{Path, PathBuf};

/// Words that say nothing about what carries them. Names made of other words may contain them (`Workplace`).
const RIDDLES: [&str; 12] =
    ["asked", "beside", "held", "lent", "manner", "need", "place", "places", "told", "way", "ways", "wanted"];
/// Names that are made of such words and are the field's own.
const ALLOWED: [&str; 2] = ["one_way", "bywash_flow_one_way"];

/// Returns the words of the glossary's columns "not used" that are forbidden in names: single words or two, without a
/// restriction in brackets.
fn not_used(glossary: &str) -> Vec<Vec<String>> {
    let rows = glossary.lines().filter(|line| line.starts_with('|') && !line.starts_with("|---"));
    let cells = rows.filter_map(|row| row.trim_end_matches('|').rsplit('|').next());
    let entries = cells.flat_map(|cell| cell.split(','));
    entries
        .map(str::trim)
        .filter(|entry| !entry.is_empty() && !entry.contains('(') && *entry != "not used")
        .map(|entry| entry.split_whitespace().map(str::to_lowercase).collect())
        .collect()
}

/// Returns the words of a name in CamelCase or snake_case, in lower case.
fn words(name: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut before = '_';
    for letter in name.chars() {
        if letter == '_' || (letter.is_uppercase() && !before.is_uppercase()) || words.is_empty() {
            words.push(String::new());
        }
        if letter != '_' {
            words.last_mut().expect("a word").extend(letter.to_lowercase());
        }
        before = letter;
    }
    words.retain(|word| !word.is_empty());
    words
}

/// Returns the name of the public item that a line declares.
fn declared(line: &str) -> Option<&str> {
    let mut rest = line.trim_start().strip_prefix("pub ")?;
    for word in ["const ", "async ", "unsafe ", "extern \"C\" "] {
        // `pub const NAME` keeps its keyword: only `const fn` has one more.
        let is_constant = word == "const " && !rest.starts_with("const fn");
        rest = if is_constant { rest } else { rest.strip_prefix(word).unwrap_or(rest) };
    }
    let kinds = ["struct ", "enum ", "trait ", "type ", "union ", "fn ", "mod ", "const ", "static "];
    let name = kinds.iter().find_map(|kind| rest.strip_prefix(kind))?;
    let end = name.find(|letter: char| !letter.is_alphanumeric() && letter != '_').unwrap_or(name.len());
    Some(&name[..end])
}

fn sources(folder: &Path, all: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder of the tree").flatten() {
        let path = entry.path();
        if path.is_dir() {
            sources(&path, all);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            all.push(path);
        }
    }
}

#[test]
fn public_names_use_the_words_of_the_glossary() {
    let root = root();
    let glossary = fs::read_to_string(root.join("docs/glossary.md")).expect("the glossary");
    let forbidden = not_used(&glossary);
    assert!(forbidden.len() > 15, "the glossary lists {} words as not used", forbidden.len());
    let mut files = Vec::new();
    for crates in ["crates", "python", "web/wasm"] {
        sources(&root.join(crates), &mut files);
    }
    let mut bad = String::new();
    for file in files {
        let path = file.strip_prefix(&root).expect("a file of the tree");
        let is_source = path.components().any(|part| part.as_os_str() == "src");
        if !is_source {
            continue;
        }
        for (index, line) in fs::read_to_string(&file).expect("a source file").lines().enumerate() {
            let Some(name) = declared(line).filter(|name| !ALLOWED.contains(name)) else { continue };
            let words = words(name);
            let is_riddle = name == "of" || words.iter().any(|word| RIDDLES.contains(&word.as_str()));
            let synonym = forbidden
                .iter()
                .find(|entry| words.windows(entry.len()).any(|part| part == entry.as_slice()));
            if is_riddle || synonym.is_some() {
                let why = synonym
                    .map_or("a word that says nothing".into(), |words| format!("'{}'", words.join(" ")));
                bad += &format!("\n  {}:{}: {name}: {why}", path.display(), index + 1);
            }
        }
    }
    assert!(bad.is_empty(), "public names with words that docs/glossary.md does not use:{bad}");
}

#[test]
fn names_come_apart_into_words() {
    assert_eq!(words("InFlight"), ["in", "flight"]);
    assert_eq!(words("SEGMENTS_MAX"), ["segments", "max"]);
    assert_eq!(words("take_in_flight2"), ["take", "in", "flight2"]);
    assert_eq!(declared("    pub const fn words_needed<const N: usize>() {"), Some("words_needed"));
    assert_eq!(declared("pub const DEPTH: usize = 1;"), Some("DEPTH"));
    assert_eq!(declared("pub(crate) struct Hidden;"), None);
    assert_eq!(
        not_used("| a | b | ask, take back |\n| c | d | relay (in texts) |\n| e | f | |"),
        [vec!["ask".to_owned()], vec!["take".to_owned(), "back".to_owned()]]
    );
}
