//! Links the command so that it starts quickly.
//!
//! Most of what the dynamic loader does for it is writing eight thousand addresses. Packed they are a tenth of that work
//! (DT_RELR), which loaders know since glibc 2.36.

use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_ENV").as_deref() == Ok("gnu") && loader_unpacks() {
        println!("cargo:rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}

/// Whether this machine's glibc is new enough, as getconf(1) says: `glibc 2.36`.
fn loader_unpacks() -> bool {
    let told = Command::new("getconf").arg("GNU_LIBC_VERSION").output();
    let told = told.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    let version = told.trim().rsplit(' ').next().and_then(|version| version.split_once('.'));
    let number = |text: &str| text.parse::<u32>().unwrap_or(0);
    version.is_some_and(|(major, minor)| (number(major), number(minor)) >= (2, 36))
}
