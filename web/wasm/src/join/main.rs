//! Joins the planner's page into one file that opens by itself: from a server, from a disk, or as an
//! attachment.
//!
//!     bywash-page-join PAGE-FOLDER ENGINE.gz PROGRAMS.gz OUT.html
//!
//! ENGINE is a WebAssembly module and PROGRAMS an executable, both compressed by gzip.
//! Without PROGRAMS.gz the page has no examples of programs, and says why: the reason is in PROGRAMS.reason.
//!
//! - [`modules`]: joins the scripts of a folder into one
//! - [`page`]: inserts scripts, style and engine into the page, with the policy that restricts it
//! - [`error`]: the errors of joining
//!
//! `make page` calls this program.

#![forbid(unsafe_code)]

mod error;
mod modules;
mod page;

use error::Error;
use page::Parts;
use std::path::Path;
use std::process::ExitCode;
use std::{env, fs};

fn main() -> ExitCode {
    let words: Vec<_> = env::args_os().skip(1).collect();
    let [folder, engine, programs, out] = &words[..] else {
        eprintln!("usage: bywash-page-join PAGE-FOLDER ENGINE.gz PROGRAMS.gz OUT.html");
        return ExitCode::from(2);
    };
    match join(Path::new(folder), Path::new(engine), Path::new(programs), Path::new(out)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bywash-page-join: {error}");
            ExitCode::FAILURE
        }
    }
}

fn join(folder: &Path, engine: &Path, programs: &Path, out: &Path) -> Result<(), Error> {
    let cannot = |path: &Path, source| Error::File { path: path.into(), source };
    let text = |name: &str| {
        let path = folder.join(name);
        fs::read_to_string(&path).map_err(|source| cannot(&path, source))
    };
    let engine = fs::read(engine).map_err(|source| cannot(engine, source))?;
    let [script, worker] = [modules::joined("page.js", &text)?, modules::joined("worker.js", &text)?];
    let style = &text("page.css")?;
    let reason = fs::read_to_string(programs.with_extension("reason"));
    let programs = match (&reason, fs::read(programs)) {
        (Ok(reason), _) => Err(reason.trim()),
        (Err(_), Ok(bytes)) => Ok(bytes),
        (Err(_), Err(source)) => return Err(cannot(programs, source)),
    };
    let programs = programs.as_deref().map_err(|reason| *reason);
    let parts = Parts { style, script: &script, worker: &worker, engine: &engine, programs };
    let joined = page::filled(&text("index.html")?, &parts)?;
    if let Some(parent) = out.parent() {
        fs::create_dir_all(parent).map_err(|source| cannot(parent, source))?;
    }
    // An unchanged file keeps its modification time, so that nothing which includes it is built again.
    if fs::read_to_string(out).is_ok_and(|before| before == joined) {
        return Ok(());
    }
    fs::write(out, joined).map_err(|source| cannot(out, source))
}
