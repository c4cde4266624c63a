//! Links the C library, which the standard library would otherwise link.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    for library in ["dl", "pthread", "c"] {
        println!("cargo:rustc-link-lib=dylib={library}");
    }
    println!("cargo:rustc-cdylib-link-arg=-nostartfiles");
}
