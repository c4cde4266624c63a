//! Links the command so that it starts quickly, and finds the planner's page for it (feature `page`).
//!
//! Most of the dynamic loader's work is writing eight thousand addresses. Packed relocations (DT_RELR), which glibc
//! reads from 2.36 on, reduce this work to a tenth.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, exit};

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if env::var_os("CARGO_FEATURE_PAGE").is_some() {
        let Some(page) = page() else {
            eprintln!("the feature 'page' needs target/page/index.html, which `make page` makes");
            exit(1);
        };
        println!("cargo:rerun-if-changed={}", page.display());
        println!("cargo:rustc-env=BYWASH_PAGE={}", page.display());
    }
    if env::var("CARGO_CFG_TARGET_ENV").as_deref() == Ok("gnu") && loader_unpacks() {
        println!("cargo:rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}

/// Finds the planner's page in the target folder, which is an ancestor of this script's output folder.
fn page() -> Option<PathBuf> {
    let out = PathBuf::from(env::var_os("OUT_DIR")?);
    let mut pages = out.ancestors().map(|folder: &Path| folder.join("page/index.html"));
    pages.find(|page| page.is_file())
}

/// Returns true if this machine's glibc is 2.36 or newer and so reads packed relocations; getconf(1) prints
/// its version as `glibc 2.36`.
fn loader_unpacks() -> bool {
    let told = Command::new("getconf").arg("GNU_LIBC_VERSION").output();
    let told = told.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    let version = told.trim().rsplit(' ').next().and_then(|version| version.split_once('.'));
    let number = |text: &str| text.parse::<u32>().unwrap_or(0);
    version.is_some_and(|(major, minor)| (number(major), number(minor)) >= (2, 36))
}
