//! Environments with packages of Python, each made once by `venv` and `pip`, and scripts that run in one.
//!
//! They lie in `BASE/bywash-bench/programs`, where they are made, since they cannot be moved. The last file of each,
//! `installed`, names the packages that it has.

use crate::child;
use crate::error::{Attempt, Error};
use crate::programs;
use serde::de::DeserializeOwned;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Environment with an interpreter and the packages.
pub struct Python {
    program: PathBuf,
    /// Folder of the scripts and their arguments.
    folder: PathBuf,
}

impl Python {
    /// Makes the environment `name` in `programs` unless it is there, with `packages` and their versions; scripts are
    /// written to `folder`.
    pub fn prepare(programs: &Path, folder: &Path, name: &str, packages: &[&str]) -> Result<Python, Error> {
        let home = programs.join(name);
        let python = Python { program: home.join("bin/python"), folder: folder.to_path_buf() };
        let (mark, wanted) = (home.join("installed"), packages.join("\n"));
        if fs::read_to_string(&mark).is_ok_and(|installed| installed == wanted) && python.program.exists() {
            return Ok(python);
        }
        let mut make = Command::new(programs::require("python3", "python3")?);
        make.args(["-m", "venv", "--clear"]).arg(&home);
        let mut install = Command::new(&python.program);
        install.args(["-I", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"]);
        install.args(["--retries", "1", "--timeout", "10", "--only-binary", ":all:"]).args(packages);
        // Without a network, packages cannot be had.
        child::run(&mut make).and_then(|_| child::run(&mut install)).map_err(Error::into_absence)?;
        fs::write(&mark, wanted).doing("write", &mark)?;
        Ok(python)
    }

    /// Runs the source of the script `name` with `order` as JSON, and parses the JSON that it prints.
    pub fn run<T: DeserializeOwned>(
        &self,
        name: &str,
        source: &str,
        order: &serde_json::Value,
    ) -> Result<T, Error> {
        let [script, told] = ["py", "json"].map(|end| self.folder.join(name).with_extension(end));
        fs::write(&script, source).doing("write", &script)?;
        fs::write(&told, order.to_string()).doing("write", &told)?;
        // Isolated: nothing of the user's own packages and variables.
        let finished = child::run(Command::new(&self.program).arg("-I").arg(&script).arg(&told))?;
        serde_json::from_str(&finished.stdout).map_err(|error| Error::failed(name, error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_is_told_and_answers_or_says_why_not() {
        let folder = tempfile::tempdir().unwrap();
        let python = Python { program: programs::find("python3").unwrap(), folder: folder.path().into() };
        let run = |source| python.run::<u32>("sum", source, &serde_json::json!([1, 2, 4]));
        let source = "import json, sys\nprint(json.dumps(sum(json.load(open(sys.argv[1])))))";
        assert_eq!(run(source).unwrap(), 7);
        assert!(run("raise SystemExit('no such net')").unwrap_err().to_string().ends_with("no such net"));
        assert!(run("print('seven')").unwrap_err().to_string().starts_with("sum"));
    }
}
