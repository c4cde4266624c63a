//! Links the library so that loading it costs a process little.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{env, fs};

/// The C library, which the standard library would bring along. Before glibc 2.34 two of its parts were libraries of their
/// own.
const LIBRARIES: [&str; 3] = ["dl", "pthread", "c"];

/// Arguments for the linker's driver.
const ARGUMENTS: [&str; 5] = [
    // Without the functions of C++'s and profilers' start-up, which would run in every process.
    "-nostartfiles",
    // Calls from one exported function to another are not looked up by name.
    "-Wl,-Bsymbolic-functions",
    // One segment that is written, and no change of its protection: the addresses of the C library's functions are among
    // what is written later anyway.
    "-Wl,-z,norelro",
    // GNU ld puts constants and code into one segment by this, ld.lld by `ONE_SEGMENT`.
    "-Wl,-z,noseparate-code",
    // Segments begin with a page, so that what is written at the start lies on one. A linker that does not know this
    // says so, and links.
    "-Wl,-z,separate-loadable-segments",
];

/// Puts constants and code into one segment: each segment is a mapping that every process makes, every fork copies and
/// every exit removes. Linkers that do not know it refuse to link.
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

/// Returns true if the compiler and linker of this build can link an empty library with `argument`.
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

/// An option of the compiler's whose value is a path.
fn named(option: &str, path: &Path) -> OsString {
    let mut text = OsString::from(option);
    text.push(path);
    text
}
