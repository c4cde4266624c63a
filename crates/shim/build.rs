//! Links the library so that loading it costs a process little.
//!
//! The standard library refers to the unwinder, though a library that aborts at a panic never unwinds. GCC's own
//! archive of it is linked in, so that no process has to load libgcc_s for that.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-link-lib=static:+whole-archive,+verbatim=libgcc_eh.a");
}
