//! Links the launcher as a static program without a C library and a dynamic loader.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    for argument in ["-static", "-nostdlib", "-nostartfiles", "-Wl,--build-id=none", "-Wl,-z,noseparate-code"]
    {
        println!("cargo:rustc-link-arg-bins={argument}");
    }
}
