//! The small C programs that drive a library as any user of it would, compiled when they are first needed.
//!
//! They know nothing of bywash. Their sources are part of the command, so that an installed command has them
//! too; what was compiled is kept under a name that holds a hash of the source.

use crate::child;
use crate::error::{Attempt, Error};
use std::fs;
use std::hash::{DefaultHasher, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A program and its source, the flag that links its library, and the header of that with its Debian package.
type Program = (&'static str, &'static str, &'static str, &'static str, &'static str);

const PROGRAMS: [Program; 4] = [
    ("micro", include_str!("../../programs/micro.c"), "-lpthread", "pthread.h", "libc6-dev"),
    ("berkeley", include_str!("../../programs/berkeley.c"), "-ldb", "db.h", "libdb5.3-dev"),
    ("commit", include_str!("../../programs/commit.c"), "-lc", "unistd.h", "libc6-dev"),
    ("sqlite", include_str!("../../programs/sqlite.c"), "-lsqlite3", "sqlite3.h", "libsqlite3-dev"),
];

/// Header that the programs share, by its name.
const LATENCY: (&str, &str) = ("latency.h", include_str!("../../programs/latency.h"));

/// Debian packages, and programs of them.
const PACKAGES: [(&str, &[&str]); 10] = [
    ("fio", &["fio"]),
    ("grep", &["grep"]),
    ("gzip", &["gzip"]),
    ("mariadb-client", &["mariadb", "mariadb-admin"]),
    ("mariadb-server", &["mariadb-install-db", "mariadbd"]),
    ("postgresql", &["initdb", "pg_isready", "pgbench", "postgres", "psql"]),
    ("rocksdb-tools", &["db_bench"]),
    ("sysbench", &["sysbench"]),
    ("tar", &["tar"]),
    ("util-linux", &["setpriv", "unshare"]),
];

/// Compiles programs into a folder and remembers them there.
pub struct Programs {
    folder: PathBuf,
}

impl Programs {
    pub fn new(folder: &Path) -> Programs {
        Programs { folder: folder.to_path_buf() }
    }

    /// The executable of the program `name`, compiled if it is one of ours and not there yet. What is missing (a program,
    /// the compiler, a header) is named with its Debian package.
    pub fn executable(&self, name: &str) -> Result<PathBuf, Error> {
        if let Some(program) = PROGRAMS.iter().find(|program| program.0 == name) {
            return self.compiled(program);
        }
        let package = PACKAGES.iter().find(|(_, programs)| programs.contains(&name));
        require(name, package.map_or("coreutils", |package| package.0))
    }

    fn compiled(&self, &(name, text, library, header, package): &Program) -> Result<PathBuf, Error> {
        let whole = [text, LATENCY.1].concat();
        let target = self.folder.join(format!("{name}-{:016x}", hash(whole.as_bytes())));
        if target.is_file() {
            return Ok(target);
        }
        require("cc", "gcc")?;
        let [source, shared] = [format!("{name}.c"), LATENCY.0.into()].map(|file| self.folder.join(file));
        for (file, text) in [(&source, text), (&shared, LATENCY.1)] {
            fs::write(file, text).doing("write", file)?;
        }
        let mut probe = Command::new("cc");
        probe.args(["-E", "-x", "c", &format!("-include{header}"), "-o", "/dev/null", "/dev/null"]);
        if let Err(Error::Failed { .. }) = child::run(&mut probe) {
            return Err(Error::Missing { what: header.into(), package });
        }
        let fresh = self.folder.join(format!("{name}-{}", std::process::id()));
        child::run(Command::new("cc").arg("-O2").arg("-o").arg(&fresh).arg(&source).arg(library))?;
        fs::rename(&fresh, &target).doing("move into place", &target)?;
        Ok(target)
    }
}

/// Returns the folders in which programs are found: that of the newest PostgreSQL, which comes before its wrappers on the
/// path, those of the path, and those for administrators, which a user's path may lack.
pub fn folders() -> Vec<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let version =
        |entry: fs::DirEntry| Some((entry.file_name().to_str()?.parse::<u32>().ok()?, entry.path()));
    let newest = versions.filter_map(version).max().map(|(_, folder)| folder.join("bin"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = newest.into_iter().chain(std::env::split_paths(&path));
    folders.chain(["/usr/sbin".into(), "/sbin".into()]).collect()
}

/// Finds `name` in the folders of programs.
pub fn find(name: &str) -> Option<PathBuf> {
    folders().into_iter().map(|folder| folder.join(name)).find(|file| file.is_file())
}

pub fn require(name: &str, package: &'static str) -> Result<PathBuf, Error> {
    find(name).ok_or_else(|| Error::Missing { what: name.into(), package })
}

pub(crate) fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_compiled_once_and_what_is_missing_names_its_package() {
        let folder = tempfile::tempdir().unwrap();
        let programs = Programs::new(folder.path());
        let first = programs.executable("micro").unwrap();
        let made = fs::metadata(&first).unwrap().modified().unwrap();
        assert_eq!(programs.executable("micro").unwrap(), first);
        assert_eq!(fs::metadata(&first).unwrap().modified().unwrap(), made);
        let headless = ("none", "", "", "no/such.h", "no-dev");
        let error = programs.compiled(&headless).unwrap_err();
        assert_eq!(error.to_string(), "no/such.h is not installed: apt-get install no-dev");
        let error = require("no-such-program", "nothing").unwrap_err();
        assert!(error.is_absence() && error.to_string().contains("apt-get install nothing"));
    }
}
