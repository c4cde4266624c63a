//! Several sources: refused, with the commands that do what was meant.
//!
//! `bywash flow a b c FOLDER/` is a line that cp(1) would take. Between the source and the sink of a flow
//! only stages are allowed, so a word there that is no stage, but the name of a file, was meant as one more
//! source.

use bywash_flow::syntax::{quoted, quoted_path};
use bywash_flow::{Error, Stage};
use std::ffi::{OsStr, OsString};
use std::path::Path;

/// Returns the error for several sources; `None` if no word in place of a stage is the name of a file.
pub fn refused(source: &OsStr, between: &[OsString], sink: &OsStr) -> Option<Error> {
    let (stages, others): (Vec<&OsString>, Vec<&OsString>) =
        between.iter().partition(|word| Stage::try_from(word.as_os_str()).is_ok());
    let second = others.iter().find(|word| Path::new(word).exists())?;
    let sources: Vec<&Path> =
        std::iter::once(source).chain(others.iter().map(|word| word.as_os_str())).map(Path::new).collect();
    let names = sources.iter().map(|path| quoted_path(path)).collect::<Vec<_>>().join(" ");
    let stages: String =
        stages.iter().map(|stage| format!("{} ", quoted(&stage.to_string_lossy()))).collect();
    let to = quoted_path(Path::new(sink));
    let instead = match (sources.iter().any(|source| source.is_dir()), Path::new(sink).is_dir()) {
        (false, true) => {
            format!(
                "one flow for each: for source in {names}; do bywash flow \"$source\" {stages}{to} || break; done"
            )
        }
        (true, true) => format!("copy the trees: cp -a {names} {to}"),
        (_, false) => {
            format!("one after the other as an archive: tar -cf - {names} | bywash flow - {stages}{to}")
        }
    };
    let second = second.display();
    Some(Error::Usage(format!(
        "'{second}' is no stage but one more source, and a flow has one source; {instead}"
    )))
}
