//! Flags for the linker.

fn main() {
    // libfabric unloads its providers at the end of a process, when threads may still be in them.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo::rerun-if-changed=build.rs");
}
