//! Where programs are and which Debian package brings them.
//!
//! A test whose program is missing fails and names the package: a test that skips is not noticed.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// What the programs get as PATH: Debian's own, without what a developer put before it.
pub const SEARCH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";

/// The path of the program `name`; a name with a slash is a path already.
///
/// # Panics
/// When it is not installed.
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

/// Debian keeps the programs of each version of PostgreSQL beside one another and off PATH.
fn postgresql_folders() -> Vec<PathBuf> {
    let Ok(versions) = fs::read_dir("/usr/lib/postgresql") else { return Vec::new() };
    let mut folders: Vec<PathBuf> = versions.flatten().map(|version| version.path().join("bin")).collect();
    folders.sort();
    folders.reverse();
    folders
}

/// The Debian 12 package that brings `name`, where it is not the package's own name.
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

/// Whether `program` is a script, which an interpreter runs, and no binary.
pub fn is_script(program: &Path) -> bool {
    fs::read(program).is_ok_and(|bytes| bytes.starts_with(b"#!"))
}

/// Fails unless `path` (a header, a folder of tests, ...) is there.
///
/// # Panics
/// When it is not.
pub fn require(path: &str, package: &str) {
    assert!(
        Path::new(path).exists(),
        "{path} is not installed: Debian package {package} (`make packages` installs all that the tests need)"
    );
}
