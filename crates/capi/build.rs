//! Gives the shared library the name that programs look for: `libbywash.so.MAJOR`. Releases that break what
//! the header says get another one.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let major = env!("CARGO_PKG_VERSION_MAJOR");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libbywash.so.{major}");
}
