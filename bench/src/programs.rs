//! The small C programs that drive a library as any user of it would, compiled when they are first needed.
//!
//! They know nothing of bywash. Their sources are part of the command, so that an installed command has them
//! too; what was compiled is kept under a name that holds a hash of the source.

use crate::child;
use crate::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// One of the programs.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    name: &'static str,
    source: &'static str,
    libraries: &'static [&'static str],
    header: Option<&'static str>,
    package: &'static str,
}

/// Plain reads and writes.
pub const MICRO: Program = Program {
    name: "micro",
    source: include_str!("../programs/micro.c"),
    libraries: &["-lpthread"],
    header: None,
    package: "libc6-dev",
};

/// Berkeley DB.
pub const BERKELEY: Program = Program {
    name: "berkeley",
    source: include_str!("../programs/berkeley.c"),
    libraries: &["-ldb"],
    header: Some("db.h"),
    package: "libdb5.3-dev",
};

/// SQLite.
pub const SQLITE: Program = Program {
    name: "sqlite",
    source: include_str!("../programs/sqlite.c"),
    libraries: &["-lsqlite3"],
    header: Some("sqlite3.h"),
    package: "libsqlite3-dev",
};

/// Compiles programs into a folder and remembers them there.
pub struct Programs {
    folder: PathBuf,
}

impl Programs {
    /// Keeps compiled programs in `folder`.
    pub fn new(folder: &Path) -> Programs {
        Programs { folder: folder.to_path_buf() }
    }

    /// The executable of `program`, compiled if it is not there yet.
    ///
    /// # Errors
    /// [`Error::Missing`] with the Debian package when the compiler or a header is missing; the compiler's own
    /// words when it fails for another reason.
    pub fn executable(&self, program: &Program) -> Result<PathBuf, Error> {
        let target = self.folder.join(format!("{}-{:016x}", program.name, hash(program.source)));
        if target.is_file() {
            return Ok(target);
        }
        if !installed("cc") {
            return Err(Error::Missing { what: "cc".into(), package: "gcc" });
        }
        let source = self.folder.join(format!("{}.c", program.name));
        fs::write(&source, program.source).map_err(|error| Error::io("write", &source, error))?;
        if let Some(header) = program.header {
            let include = format!("-include{header}");
            let mut probe = Command::new("cc");
            probe.args(["-E", "-x", "c", include.as_str(), "-o", "/dev/null", "/dev/null"]);
            if let Err(Error::Failed { .. }) = child::run(&mut probe) {
                return Err(Error::Missing { what: header.into(), package: program.package });
            }
        }
        let fresh = self.folder.join(format!("{}-{}", program.name, std::process::id()));
        let mut compile = Command::new("cc");
        compile.arg("-O2").arg("-o").arg(&fresh).arg(&source).args(program.libraries);
        child::run(&mut compile)?;
        fs::rename(&fresh, &target).map_err(|error| Error::io("move into place", &target, error))?;
        Ok(target)
    }
}

/// Finds `name` on the path, or in the folders for administrators, which a user's path may lack.
pub fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    folders.map(|folder| folder.join(name)).find(|file| file.is_file())
}

/// Returns true if `name` can be run.
pub fn installed(name: &str) -> bool {
    find(name).is_some()
}

/// The program `name`, or the package to install.
///
/// # Errors
/// [`Error::Missing`].
pub fn require(name: &str, package: &'static str) -> Result<PathBuf, Error> {
    find(name).ok_or_else(|| Error::Missing { what: name.into(), package })
}

/// FNV-1a.
fn hash(text: &str) -> u64 {
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_compiled_once() {
        let folder = tempfile::tempdir().unwrap();
        let programs = Programs::new(folder.path());
        let first = programs.executable(&MICRO).unwrap();
        let made = fs::metadata(&first).unwrap().modified().unwrap();
        assert_eq!(programs.executable(&MICRO).unwrap(), first);
        assert_eq!(fs::metadata(&first).unwrap().modified().unwrap(), made);
    }

    #[test]
    fn a_missing_header_names_its_package() {
        let folder = tempfile::tempdir().unwrap();
        let program = Program { name: "none", header: Some("no/such/header.h"), package: "no-dev", ..MICRO };
        let error = Programs::new(folder.path()).executable(&program).unwrap_err();
        assert_eq!(error.to_string(), "no/such/header.h is not installed: apt-get install no-dev");
    }

    #[test]
    fn what_is_not_installed_names_its_package() {
        assert!(require("sh", "dash").is_ok());
        let error = require("no-such-program", "nothing").unwrap_err();
        assert!(error.is_absence() && error.to_string().contains("apt-get install nothing"));
    }
}
