//! Links the library so that loading it costs a process little.

/// The C library, which the standard library would bring along. Before glibc 2.34 two of its parts were libraries of their
/// own.
const LIBRARIES: [&str; 3] = ["dl", "pthread", "c"];

/// Arguments for the linker's driver.
const ARGUMENTS: [&str; 4] = [
    // Without the functions of C++'s and profilers' start-up, which would run in every process.
    "-nostartfiles",
    // Calls from one exported function to another are not looked up by name.
    "-Wl,-Bsymbolic-functions",
    // One segment that is written, and no change of its protection: the addresses of the C library's functions are among
    // what is written later anyway.
    "-Wl,-z,norelro",
    // Segments begin with a page, so that what is written at the start lies on one. A linker that does not know this
    // says so, and links.
    "-Wl,-z,separate-loadable-segments",
];

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    for library in LIBRARIES {
        println!("cargo:rustc-link-lib=dylib={library}");
    }
    for argument in ARGUMENTS {
        println!("cargo:rustc-cdylib-link-arg={argument}");
    }
}
