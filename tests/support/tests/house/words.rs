//! Doc comments are in plain words, as far as a program can tell: see docs/glossary.md and CONTRIBUTING.md.

use crate::root;
use std::fs;
use std::path::{Path, PathBuf};

/// Words that leave a reader without a subject if a doc comment begins with them.
const NEVER: [&str; 8] = ["Of", "That", "So many", "So often", "As there", "Whose", "Who", "Whether"];
/// Words that announce a question where a statement should be.
const QUESTIONS: [&str; 3] = ["What", "Where", "How"];
/// Share of doc comments that may begin with one of [`QUESTIONS`], in percent.
const QUESTIONS_MAX: usize = 2;
/// Sentences under `# Errors` that name no condition.
const EMPTY: [&str; 6] =
    ["What the kernel says", "What the system says", "As there", "What failed", "Why not", "What went wrong"];

/// A doc comment: consecutive lines that begin with `///` or `//!`.
struct DocComment {
    file: PathBuf,
    line: usize,
    text: Vec<String>,
}

impl DocComment {
    fn begins_with(&self, words: &[&str]) -> bool {
        words.iter().any(|word| {
            let rest = self.text[0].strip_prefix(word);
            rest.is_some_and(|rest| !rest.starts_with(|letter: char| letter.is_alphanumeric()))
        })
    }

    /// Returns true if a section `# Errors` names no condition.
    fn has_empty_errors(&self) -> bool {
        let mut lines = self.text.iter().skip_while(|line| *line != "# Errors").skip(1);
        let Some(first) = lines.find(|line| !line.is_empty()) else {
            return self.text.iter().any(|line| line == "# Errors");
        };
        EMPTY.iter().any(|empty| first.starts_with(empty))
    }
}

impl std::fmt::Display for DocComment {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}:{}: {}", self.file.display(), self.line, self.text[0])
    }
}

/// Returns the text of a line of a doc comment.
fn text_of(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let text = line.strip_prefix("///").or_else(|| line.strip_prefix("//!"))?;
    (!text.starts_with('/')).then(|| text.trim())
}

fn doc_comments(file: &Path, source: &str) -> Vec<DocComment> {
    let mut found: Vec<DocComment> = Vec::new();
    let mut is_open = false;
    for (index, line) in source.lines().enumerate() {
        match (text_of(line), is_open) {
            (Some(text), true) => found.last_mut().expect("an open one").text.push(text.to_owned()),
            (Some(text), false) => {
                found.push(DocComment { file: file.into(), line: index + 1, text: vec![text.to_owned()] });
            }
            (None, _) => {}
        }
        is_open = text_of(line).is_some();
    }
    found
}

/// Adds the doc comments of all Rust files below a folder.
fn collect(root: &Path, folder: &Path, all: &mut Vec<DocComment>) {
    for entry in fs::read_dir(root.join(folder)).expect("a folder of the tree").flatten() {
        let name = entry.file_name();
        let path = folder.join(&name);
        let is_built = name == "target" || name == "node_modules" || name.to_string_lossy().starts_with('.');
        if is_built {
            continue;
        }
        if entry.path().is_dir() {
            collect(root, &path, all);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let source = fs::read_to_string(entry.path()).expect("a source file");
            all.extend(doc_comments(&path, &source));
        }
    }
}

#[test]
fn doc_comments_say_what_things_are() {
    let mut all = Vec::new();
    collect(&root(), Path::new(""), &mut all);
    let list =
        |found: &[&DocComment]| found.iter().map(|comment| format!("\n  {comment}")).collect::<String>();
    let never: Vec<_> = all.iter().filter(|comment| comment.begins_with(&NEVER)).collect();
    assert!(never.is_empty(), "doc comments without a subject:{}", list(&never));
    let empty: Vec<_> = all.iter().filter(|comment| comment.has_empty_errors()).collect();
    assert!(empty.is_empty(), "sections '# Errors' that name no condition:{}", list(&empty));
    let questions: Vec<_> = all.iter().filter(|comment| comment.begins_with(&QUESTIONS)).collect();
    assert!(
        questions.len() * 100 <= all.len() * QUESTIONS_MAX,
        "{} of {} doc comments begin with a question word, more than {QUESTIONS_MAX} %:{}",
        questions.len(),
        all.len(),
        list(&questions)
    );
}

#[test]
fn riddles_are_told_from_statements() {
    let source = "/// Of one.\nfn a() {}\n/// Offset in bytes.\n//// no\n/// What is asked.\n///\n/// # Errors\n/// As there.\n";
    let found = doc_comments(Path::new("x"), source);
    assert_eq!(found.iter().map(|comment| comment.line).collect::<Vec<_>>(), [1, 3, 5]);
    let is = |words: &[&str]| found.iter().map(|comment| comment.begins_with(words)).collect::<Vec<_>>();
    assert_eq!(is(&NEVER), [true, false, false]);
    assert_eq!(is(&QUESTIONS), [false, false, true]);
    assert_eq!(found.iter().map(DocComment::has_empty_errors).collect::<Vec<_>>(), [false, false, true]);
}
