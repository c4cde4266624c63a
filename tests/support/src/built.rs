//! Programs of other packages that tests start, and libraries that they load or link. Cargo builds neither for a test, so a
//! test that needs one builds it.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Variable of the environment that says that the whole workspace has been built, so that no test has to.
const IS_BUILT: &str = "BYWASH_BUILT";
/// Packages of the workspace in `freestanding`.
const FREESTANDING: [&str; 3] = ["bywash-launcher", "bywash-recorder", "bywash-shim"];

/// Builds the programs and libraries of `package` with the profile of the running test, from the sources as they are, and
/// returns the path of its file `name`. Builds nothing if the environment has `BYWASH_BUILT`, as in `make unit`: cargo would build
/// `package` alone with other features than the whole workspace, and replace a file that another test uses.
///
/// # Panics
/// If cargo cannot build it, or `name` is not among what it built.
pub fn file(package: &str, name: &str) -> PathBuf {
    let folder = profile_folder();
    if std::env::var_os(IS_BUILT).is_none() {
        build(package, &folder);
    }
    let file = folder.join(name);
    assert!(file.is_file(), "{} was not built: make built", file.display());
    file
}

/// Builds the launcher, the preloaded library and the recorder with the profile of the running test, as [`file()`] builds
/// one; returns the path of the launcher, which finds the others beside it.
///
/// # Panics
/// If cargo cannot build them.
pub fn launcher() -> PathBuf {
    file("bywash-shim", "libbywash_shim.so");
    file("bywash-recorder", "libbywash_recorder.so");
    file("bywash-launcher", "bywash")
}

/// Builds packages with a feature that the workspace is not built with, unoptimised, into `<target>/<folder>`, and returns
/// the folder of what was built.
///
/// # Panics
/// If cargo cannot build them.
pub fn apart(folder: &str, packages: &[&str], feature: &str) -> PathBuf {
    let profile_folder = profile_folder();
    let target = profile_folder.parent().expect("a profile's folder has a parent").join(folder);
    for package in packages {
        cargo_build(package, &["--features", feature], "dev".as_ref(), &target);
    }
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
    cargo_build(package, &[], profile, target);
}

fn cargo_build(package: &str, options: &[&str], profile: &OsStr, target: &Path) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let workspace = if FREESTANDING.contains(&package) { root.join("freestanding") } else { root };
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(workspace).args(["build", "--quiet", "--offline", "--package", package]).args(options);
    let built = cargo.arg("--profile").arg(profile).arg("--target-dir").arg(target).output();
    let built = built.unwrap_or_else(|error| panic!("{cargo:?} cannot be started: {error}"));
    assert!(built.status.success(), "{cargo:?} failed:\n{}", String::from_utf8_lossy(&built.stderr));
}
