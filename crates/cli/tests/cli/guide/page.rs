//! A page of documentation: its blocks of code, and the examples that a test can run.
//!
//! An example is one of
//!
//! - a row of a table with code that begins with `bywash` and has more than the name of a subcommand; two of them if the
//!   row says "there" and "here", in which `...` stands for `bywash flow`
//! - a fenced block `sh`, whose lines are run in order
//! - a fenced block `console`, of which the lines behind `$ ` are run in order; `there $ ` and `here $ ` are a pair
//!
//! Examples that cannot be run have `<!-- not run: WHY -->` in their row, or in the line before their block.

use std::collections::BTreeSet;

/// Languages of blocks that are neither examples nor programs.
const SHOWN: &[&str] = &["text", "toml", "ini", "csv"];
/// Languages of programs.
const PROGRAMS: &[&str] = &["rust", "c", "python"];
const NOT_RUN: &str = "<!-- not run: ";

/// Commands of a page that belong together: one that runs at another host first, if any, and those that run here.
#[derive(Debug, PartialEq)]
pub struct Example {
    pub line: usize,
    pub there: Option<String>,
    pub here: Vec<String>,
}

#[derive(Debug, PartialEq)]
pub struct Page {
    pub examples: Vec<Example>,
    /// Languages of the programs.
    pub languages: BTreeSet<String>,
}

impl Page {
    /// Finds the examples of a page.
    ///
    /// # Errors
    ///
    /// Line and reason, if a block has no language, an unknown one, or an indentation instead of a fence, or shows commands
    /// without being `sh` or `console`.
    pub fn parse(text: &str) -> Result<Page, String> {
        let mut page = Page { examples: Vec::new(), languages: BTreeSet::new() };
        let mut lines = (1..).zip(text.lines());
        let mut before = "";
        let mut is_after_blank = true;
        while let Some((number, line)) = lines.next() {
            if let Some(language) = line.strip_prefix("```") {
                let block = lines.by_ref().map(|(_, line)| line).take_while(|line| *line != "```");
                let block: Vec<&str> = block.collect();
                let is_run = !before.starts_with(NOT_RUN);
                page.block(number, language, &block, is_run).map_err(|why| format!("{number}: {why}"))?;
            } else if line.starts_with("    ") && is_after_blank {
                return Err(format!("{number}: indented code; a fence says what it is"));
            } else if line.starts_with('|') && !line.contains(NOT_RUN) {
                page.examples.extend(row(line, number));
            }
            is_after_blank = line.trim().is_empty();
            if !is_after_blank {
                before = line;
            }
        }
        Ok(page)
    }

    fn block(&mut self, line: usize, language: &str, block: &[&str], is_run: bool) -> Result<(), String> {
        if PROGRAMS.contains(&language) {
            self.languages.insert(language.to_owned());
            return Ok(());
        }
        let (there, here) = match language {
            "sh" => (None, commands(block.iter().copied().filter(|line| !line.starts_with('#')))),
            "console" => (
                prompted(block, "there $ ").pop(),
                [prompted(block, "$ "), prompted(block, "here $ ")].concat(),
            ),
            _ if !SHOWN.contains(&language) => {
                return Err(format!("a block of `{language}`; one of sh, console, {SHOWN:?}, {PROGRAMS:?}"));
            }
            _ if block.iter().any(|line| line.starts_with("$ ") || line.starts_with("here $ ")) => {
                return Err(format!("commands in a block of `{language}`, which nobody runs; use console"));
            }
            _ => return Ok(()),
        };
        if here.is_empty() {
            return Err(format!("no command in a block of `{language}`"));
        }
        if is_run {
            self.examples.push(Example { line, there, here });
        }
        Ok(())
    }
}

/// Joins lines that end with a backslash to the lines behind them.
fn commands<'a>(lines: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut commands: Vec<String> = Vec::new();
    let mut is_continued = false;
    for line in lines.filter(|line| !line.is_empty()) {
        match commands.last_mut().filter(|_| is_continued) {
            Some(command) => *command += &format!("\n{line}"),
            None => commands.push(line.to_owned()),
        }
        is_continued = line.ends_with('\\');
    }
    commands
}

/// Returns the commands behind a prompt.
fn prompted(block: &[&str], prompt: &str) -> Vec<String> {
    let mut is_continued = false;
    commands(block.iter().filter_map(|line| {
        let line = if is_continued { Some(*line) } else { line.strip_prefix(prompt) };
        is_continued = line.is_some_and(|line| line.ends_with('\\'));
        line
    }))
}

/// Returns the example in a row of a table, if there is one.
fn row(line: &str, number: usize) -> Option<Example> {
    let line = line.replace("\\|", "|");
    let is_command = |code: &&str| {
        let begins = code.starts_with("bywash ") || code.starts_with("... ") || code.contains("| bywash ");
        begins && code.split(' ').count() > 2
    };
    let mut commands =
        line.split('`').skip(1).step_by(2).filter(is_command).map(|code| {
            code.strip_prefix("... ").map_or(code.to_owned(), |rest| format!("bywash flow {rest}"))
        });
    let (first, second) = (commands.next()?, commands.next());
    assert!(commands.next().is_none(), "line {number} has more than two commands: {line}");
    let (there, here) = match second {
        Some(here) => (Some(first), here),
        None => (None, first),
    };
    Some(Example { line: number, there, here: vec![here] })
}

#[test]
fn examples_are_found_where_they_are() {
    let page = "\
| what | how |
|---|---|
| a | `bywash flow a b` |
| b | there `... udp-listen:1 x`, here `make \\| bywash flow - 'y'` |
| c | `file:PATH`, `bywash run` |
| d | `bywash flow c d` <!-- not run: why not -->|
```console
$ bywash flow --explain \\
    a b
a -> b
$ true
```
```sh
# What this is:
bywash doctor
```
```console
there $ bywash flow x y
here $ bywash flow y x
```

<!-- not run: it takes a day -->
```sh
sleep 86400
```
```rust
fn main() {}
```
";
    let one = |line, there: Option<&str>, here: &[&str]| Example {
        line,
        there: there.map(str::to_owned),
        here: here.iter().map(|command| command.to_string()).collect(),
    };
    let examples = vec![
        one(3, None, &["bywash flow a b"]),
        one(4, Some("bywash flow udp-listen:1 x"), &["make | bywash flow - 'y'"]),
        one(7, None, &["bywash flow --explain \\\n    a b", "true"]),
        one(13, None, &["bywash doctor"]),
        one(17, Some("bywash flow x y"), &["bywash flow y x"]),
    ];
    assert_eq!(Page::parse(page), Ok(Page { examples, languages: ["rust".to_owned()].into() }));
}

#[test]
fn blocks_that_nobody_would_run_are_refused() {
    for (page, reason) in [
        ("```\na\n```\n", "1: a block of ``"),
        ("```text\n$ bywash doctor\n```\n", "1: commands in a block of `text`"),
        ("as:\n\n    $ bywash doctor\n", "3: indented code"),
        ("```console\nbywash doctor\n```\n", "1: no command"),
    ] {
        let refused = Page::parse(page).unwrap_err();
        assert!(refused.starts_with(reason), "{refused}");
    }
}
