//! Passes linker options that make loading the library cheap for a process.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{env, fs};

/// C library, which the standard library would otherwise link. Before glibc 2.34 two of its parts were
/// separate libraries.
const LIBRARIES: [&str; 3] = ["dl", "pthread", "c"];

/// Arguments for the linker's driver.
const ARGUMENTS: [&str; 5] = [
    // Leaves out the start-up functions of C++ and of profilers, which would run in every process.
    "-nostartfiles",
    // Calls from one exported function to another need no look-up by name.
    "-Wl,-Bsymbolic-functions",
    // Makes one segment writable throughout, without a later change of its protection. The addresses of the C
    // library's functions lie among data that is written later anyway.
    "-Wl,-z,norelro",
    // Makes GNU ld put constants and code into one segment; ld.lld does so by `ONE_SEGMENT`.
    "-Wl,-z,noseparate-code",
    // Makes segments begin at a page boundary, so that data which is written at the start lies on one page. A
    // linker that does not know this option prints a warning and links.
    "-Wl,-z,separate-loadable-segments",
];

/// Puts constants and code into one segment, because every process maps each segment, every fork copies the
/// mapping and every exit removes it. Linkers that do not know this option refuse to link.
const ONE_SEGMENT: &str = "-Wl,--no-rosegment";

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    for library in LIBRARIES {
        println!("cargo:rustc-link-lib=dylib={library}");
    }
    for argument in ARGUMENTS {
        println!("cargo:rustc-cdylib-link-arg={argument}");
    }
    if links_with(ONE_SEGMENT) {
        println!("cargo:rustc-cdylib-link-arg={ONE_SEGMENT}");
    }
}

/// Returns true if an empty library can be linked with `argument`, by the compiler and linker of this crate.
fn links_with(argument: &str) -> bool {
    let set = |name: &str| env::var_os(name).filter(|value| !value.is_empty());
    let (Some(compiler), Some(folder), Some(target)) = (set("RUSTC"), set("OUT_DIR"), set("TARGET")) else {
        panic!("cargo sets RUSTC, OUT_DIR and TARGET for build scripts");
    };
    let folder = PathBuf::from(folder);
    let source = folder.join("empty.rs");
    if let Err(error) = fs::write(&source, "") {
        panic!("cannot write {}: {error}", source.display());
    }
    let mut command = Command::new(compiler);
    command.arg("--crate-type=cdylib").arg("--target").arg(target);
    command.arg("-o").arg(folder.join("empty.so")).arg(&source);
    if let Some(linker) = set("RUSTC_LINKER") {
        command.arg("-C").arg(named("linker=", Path::new(&linker)));
    }
    if let Some(flags) = env::var("CARGO_ENCODED_RUSTFLAGS").ok().filter(|flags| !flags.is_empty()) {
        command.args(flags.split('\x1f'));
    }
    command.arg("-C").arg(format!("link-arg={argument}"));
    let linked = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    linked.is_ok_and(|status| status.success())
}

/// Returns an option of the compiler with a path as its value.
fn named(option: &str, path: &Path) -> OsString {
    let mut text = OsString::from(option);
    text.push(path);
    text
}
