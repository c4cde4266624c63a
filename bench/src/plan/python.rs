//! An environment that has SimPy and NumPy, made once by `venv` and `pip`, and scripts that run in it.
//!
//! It lies in `BASE/bywash-bench/programs/python`, where it is made, since it cannot be moved. Its last file, `installed`,
//! names the packages that it has.

use crate::child;
use crate::error::Error;
use crate::programs;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Packages with the versions that the bench compares with.
const PACKAGES: [&str; 2] = ["simpy==4.1.2", "numpy==2.4.6"];

/// Python program that is part of the command.
#[derive(Clone, Copy, Debug)]
pub struct Script {
    /// Name of its files, without extension.
    pub name: &'static str,
    /// Source code.
    pub source: &'static str,
}

/// Environment with an interpreter and the packages.
pub struct Python {
    program: PathBuf,
    /// Folder of the scripts and their arguments.
    folder: PathBuf,
}

impl Python {
    /// Makes the environment in `programs` unless it is there; scripts are written to `folder`.
    ///
    /// # Errors
    /// [`Error::Missing`] if there is no Python, [`Error::Unavailable`] if the packages cannot be installed.
    pub fn prepare(programs: &Path, folder: &Path) -> Result<Python, Error> {
        let home = programs.join("python");
        let python = Python { program: home.join("bin/python"), folder: folder.to_path_buf() };
        let (mark, wanted) = (home.join("installed"), PACKAGES.join("\n"));
        if fs::read_to_string(&mark).is_ok_and(|installed| installed == wanted) && python.program.exists() {
            return Ok(python);
        }
        let mut make = Command::new(programs::require("python3", "python3")?);
        make.args(["-m", "venv", "--clear"]).arg(&home);
        let mut install = Command::new(&python.program);
        install.args(["-I", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"]);
        install.args(["--retries", "1", "--timeout", "10", "--only-binary", ":all:"]).args(PACKAGES);
        child::run(&mut make).and_then(|_| child::run(&mut install)).map_err(absence)?;
        fs::write(&mark, wanted).map_err(|error| Error::io("write", &mark, error))?;
        Ok(python)
    }

    /// Runs `script` with `order` as JSON, and parses the JSON that it prints.
    ///
    /// # Errors
    /// [`Error::Failed`] with the script's message.
    pub fn run<T: DeserializeOwned>(&self, script: Script, order: &impl Serialize) -> Result<T, Error> {
        let source = self.folder.join(format!("{}.py", script.name));
        let told = self.folder.join(format!("{}.json", script.name));
        let failed = |error: serde_json::Error| Error::failed(script.name, error.to_string());
        let order = serde_json::to_string(order).map_err(failed)?;
        for (path, text) in [(&source, script.source), (&told, order.as_str())] {
            fs::write(path, text).map_err(|error| Error::io("write", path, error))?;
        }
        // Isolated: nothing of the user's own packages and variables.
        let finished = child::run(Command::new(&self.program).arg("-I").arg(&source).arg(&told))?;
        serde_json::from_str(&finished.stdout).map_err(failed)
    }
}

/// Makes an absence of a failed installation: without a network, packages cannot be had.
fn absence(error: Error) -> Error {
    match error {
        Error::Failed { .. } => {
            Error::Unavailable(format!("{} cannot be installed: {error}", PACKAGES.join(" and ")))
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The interpreter of the machine, without packages.
    fn bare(folder: &Path) -> Python {
        Python { program: programs::find("python3").unwrap(), folder: folder.to_path_buf() }
    }

    #[test]
    fn a_script_is_told_and_answers() {
        let folder = tempfile::tempdir().unwrap();
        let source = "import json, sys\nprint(json.dumps(sum(json.load(open(sys.argv[1])))))";
        let sum: u32 = bare(folder.path()).run(Script { name: "sum", source }, &[1, 2, 4]).unwrap();
        assert_eq!(sum, 7);
    }

    #[test]
    fn a_script_that_fails_says_why() {
        let folder = tempfile::tempdir().unwrap();
        let run = |source| bare(folder.path()).run::<u32>(Script { name: "broken", source }, &0).unwrap_err();
        assert!(run("raise SystemExit('no such net')").to_string().ends_with("no such net"));
        assert!(run("print('seven')").to_string().starts_with("broken"));
    }

    #[test]
    fn an_environment_is_made_once_and_again_for_other_packages() {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().join("python");
        fs::create_dir_all(home.join("bin")).unwrap();
        fs::write(home.join("bin/python"), "").unwrap();
        fs::write(home.join("installed"), PACKAGES.join("\n")).unwrap();
        let python = Python::prepare(folder.path(), folder.path()).unwrap();
        assert_eq!(python.program, home.join("bin/python"));
        let error = absence(Error::failed("pip", "ended".into()));
        assert!(error.is_absence() && error.to_string().contains("cannot be installed: pip ended"));
        assert!(!absence(Error::Interrupted).is_absence());
    }
}
