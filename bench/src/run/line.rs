//! Command lines of cases, as text with placeholders.
//!
//! | placeholder | becomes |
//! |---|---|
//! | `{folder}` | the folder of the bench on the file system of the run |
//! | `{work}` | the folder that the program works in |
//! | `{ops}` | the number of operations |
//! | `{=NAME}` | the path of the program NAME |
//! | `{A\|B}` | `A`, or `B` in a quick run |
//! | `{A~B}` | `A`, or `B` on the side of the rival |
//!
//! Words end at spaces, before placeholders are replaced; a word that is empty then is left out. The first word is one of
//! the C programs, or a program of the path.

use super::launch::{Mode, Run};
use super::{Amount, Case, Data, Done, Stage, case, unreadable};
use crate::child;
use crate::error::{Attempt, Error};
use std::fs;
use std::path::Path;
use std::process::Command;

/// A case whose run is the program of `line`, from whose output `read` takes the figures.
pub fn program(
    bench: &'static str,
    name: impl Into<String>,
    figure: (&'static str, f64),
    amount: Amount,
    data: Data,
    line: String,
    read: fn(&str) -> Option<Done>,
) -> Case {
    case(bench, name, figure, amount, data, move |stage, run, operations| {
        let output = child::run(&mut command(&line, stage, run, operations, &stage.work())?)?.stdout;
        read(&output).ok_or_else(|| unreadable(bench, &output))
    })
}

/// The folder `name`, which the program of `line` fills.
pub fn loaded(name: &str, line: String) -> Data {
    let fill = move |stage: &Stage, master: &Path| {
        fs::create_dir_all(master).doing("create", master)?;
        child::run(&mut command(&line, stage, &Run::of_kernel(), 0, master)?).map(drop)
    };
    Data::Tree(name.into(), Box::new(fill))
}

/// The command of `line` on the side of `run`.
pub fn command(line: &str, stage: &Stage, run: &Run, operations: u64, work: &Path) -> Result<Command, Error> {
    let value = |name: &str| {
        Ok(match (name, name.split_once('|'), name.split_once('~')) {
            ("folder", ..) => stage.folder.display().to_string(),
            ("work", ..) => work.display().to_string(),
            ("ops", ..) => operations.to_string(),
            (_, Some((full, quick)), _) => stage.pick(full, quick).to_owned(),
            (.., Some((_, rival))) if run.mode() == Mode::Rival => rival.to_owned(),
            (.., Some((usual, _))) => usual.to_owned(),
            _ => stage.programs.executable(name.trim_start_matches('='))?.display().to_string(),
        })
    };
    let (program, words) = line.split_once(' ').unwrap_or((line, ""));
    let path = stage.programs.executable(program)?;
    let changes_user = program == "unshare";
    let mut command = if changes_user { run.command_of_other_user(path) } else { run.command(path) };
    for word in words.split(' ') {
        let mut parts = word.split('{');
        let mut text = parts.next().unwrap_or_default().to_owned();
        for (name, rest) in parts.filter_map(|part| part.split_once('}')) {
            text += &value(name)?;
            text += rest;
        }
        command.args((!text.is_empty()).then_some(text));
    }
    Ok(command)
}
