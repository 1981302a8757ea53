//! The shared library's soname: the major version, which changes with the binary interface.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libweldfs.so.0");
}
