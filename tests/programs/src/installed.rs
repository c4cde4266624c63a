//! Paths of programs, and the Debian packages that contain them.
//!
//! A test whose program is missing fails and names the package, since nobody would notice a skipped test.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// PATH of the programs under test: Debian's own folders, without those that a developer may have added.
pub const SEARCH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";

/// Returns the path of the program `name`. A name with a slash is a path already.
///
/// # Panics
/// If the program is not installed.
pub fn find(name: &str) -> PathBuf {
    if name.contains('/') {
        return PathBuf::from(name);
    }
    let folders = SEARCH.split(':').map(PathBuf::from).chain(postgresql_folders());
    folders.map(|folder| folder.join(name)).find(|path| is_program(path)).unwrap_or_else(|| {
        panic!(
            "{name} is not installed: Debian package {} (`make packages` installs all that the tests need)",
            package(name)
        )
    })
}

fn is_program(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

/// Returns the folders of PostgreSQL's programs, newest version first. Debian keeps them out of PATH.
fn postgresql_folders() -> Vec<PathBuf> {
    let Ok(versions) = fs::read_dir("/usr/lib/postgresql") else { return Vec::new() };
    let mut folders: Vec<PathBuf> = versions.flatten().map(|version| version.path().join("bin")).collect();
    folders.sort();
    folders.reverse();
    folders
}

/// Returns the Debian 12 package that contains the program `name`.
fn package(name: &str) -> &str {
    match name {
        "db_bench" | "sst_dump" | "ldb" => "rocksdb-tools",
        "mariadbd" | "mariadb-install-db" | "mariadb-admin" | "mariadb-check" | "mariadb" => "mariadb-server",
        "initdb" | "postgres" | "pgbench" | "psql" | "pg_amcheck" | "pg_checksums" | "pg_ctl"
        | "pg_isready" => "postgresql",
        "cc" => "gcc",
        "su" => "util-linux",
        "chfn" => "passwd",
        "cmp" => "diffutils",
        "find" | "xargs" => "findutils",
        "cat" | "cp" | "dd" | "sha256sum" | "sort" => "coreutils",
        name if name.starts_with("db5.3_") => "db5.3-util",
        name => name,
    }
}

/// Returns true if `program` is a script that an interpreter runs, and not a binary.
pub fn is_script(program: &Path) -> bool {
    fs::read(program).is_ok_and(|bytes| bytes.starts_with(b"#!"))
}

/// Checks that `path` (a header, a folder of tests, ...) exists.
///
/// # Panics
/// If it does not exist, with the name of the package.
pub fn require(path: &str, package: &str) {
    assert!(
        Path::new(path).exists(),
        "{path} is not installed: Debian package {package} (`make packages` installs all that the tests need)"
    );
}
