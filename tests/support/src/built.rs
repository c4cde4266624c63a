//! Libraries that tests load or link. Cargo builds no file of a `cdylib` or `staticlib` for a test, so a test that needs
//! one builds it.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Variable of the environment that says that the whole workspace has been built, so that no test has to.
const IS_BUILT: &str = "BYWASH_BUILT";

/// Builds the libraries of `package` with the profile of the running test, from the sources as they are, and returns the
/// path of its file `name`. Builds nothing if the environment has `BYWASH_BUILT`, as in `make unit`: cargo would build
/// `package` alone with other features than the whole workspace, and replace a file that another test uses.
///
/// # Panics
/// If cargo cannot build it, or `name` is not among what it built.
pub fn library(package: &str, name: &str) -> PathBuf {
    let folder = profile_folder();
    if std::env::var_os(IS_BUILT).is_none() {
        build(package, &folder);
    }
    let library = folder.join(name);
    assert!(library.is_file(), "{} was not built: cargo build -p {package}", library.display());
    library
}

/// Builds packages with features that the workspace is not built with, unoptimised, into `<target>/<folder>`, and returns the
/// folder of what was built.
///
/// # Panics
/// If cargo cannot build them.
pub fn apart(folder: &str, packages: &[&str], features: &[&str]) -> PathBuf {
    let profile_folder = profile_folder();
    let target = profile_folder.parent().expect("a profile's folder has a parent").join(folder);
    let packages = packages.iter().flat_map(|package| ["--package", package]);
    let features = ["--features".to_owned(), features.join(",")];
    cargo_build(packages.map(str::to_owned).chain(features), "dev".as_ref(), &target);
    target.join("debug")
}

/// Returns `<target>/<profile>`, which contains the `deps` folder of the running test.
fn profile_folder() -> PathBuf {
    let test = std::env::current_exe().expect("the test's own path");
    let deps = test.parent().filter(|folder| folder.ends_with("deps"));
    let folder = deps.and_then(Path::parent);
    folder
        .unwrap_or_else(|| panic!("{} is not where cargo puts tests: use cargo test", test.display()))
        .to_owned()
}

fn build(package: &str, folder: &Path) {
    let profile = folder.file_name().filter(|name| *name != "debug").unwrap_or("dev".as_ref());
    let target = folder.parent().expect("a profile's folder has a parent");
    cargo_build(["--package".to_owned(), package.to_owned()], profile, target);
}

fn cargo_build(what: impl IntoIterator<Item = String>, profile: &OsStr, target: &Path) {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(env!("CARGO_MANIFEST_DIR")).args(["build", "--quiet", "--offline"]).args(what);
    let built = cargo.arg("--profile").arg(profile).arg("--target-dir").arg(target).output();
    let built = built.unwrap_or_else(|error| panic!("{cargo:?} cannot be started: {error}"));
    assert!(built.status.success(), "{cargo:?} failed:\n{}", String::from_utf8_lossy(&built.stderr));
}
