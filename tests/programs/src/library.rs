//! Building and finding the preloaded library.
//!
//! Invariant: the library under test is built from the current sources, with the profile of the tests. Cargo
//! builds no `cdylib` of another crate for an integration test, so the first scenario of a process runs cargo
//! to build it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// File name of the library.
pub const NAME: &str = "libbywash_shim.so";

/// Returns the path of the library, and builds it first.
///
/// # Panics
/// If it cannot be built.
pub fn path() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| {
        let profile = profile_folder();
        build(&profile);
        let library = profile.join(NAME);
        assert!(library.is_file(), "{} was not built: cargo build -p bywash-shim", library.display());
        library
    })
}

/// Returns `<target>/<profile>`, which contains the `deps` folder of this test's binary.
fn profile_folder() -> PathBuf {
    let test = std::env::current_exe().expect("the test's own path");
    let deps = test.parent().filter(|folder| folder.ends_with("deps"));
    deps.and_then(Path::parent)
        .unwrap_or_else(|| panic!("{} is not where cargo puts tests: use cargo test", test.display()))
        .to_owned()
}

fn build(profile_folder: &Path) {
    let target = profile_folder.parent().expect("a profile's folder has a parent");
    let profile = match profile_folder.file_name().and_then(|name| name.to_str()) {
        Some("debug") | None => "dev",
        Some(other) => other,
    };
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let built = Command::new(cargo)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args(["build", "--quiet", "--package", "bywash-shim", "--profile", profile, "--target-dir"])
        .arg(target)
        .output()
        .expect("cargo can be started");
    assert!(
        built.status.success(),
        "cargo build --package bywash-shim --profile {profile} failed:\n{}",
        String::from_utf8_lossy(&built.stderr)
    );
}
