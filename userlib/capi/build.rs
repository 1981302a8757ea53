//! The shared library's soname, `libweldfs.so.` and the major version, which changes with the binary interface; and the
//! name that programs linked against the library where it was built then look for, beside it, as install.sh makes it
//! where it installs.

use std::path::Path;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let soname = concat!("libweldfs.so.", env!("CARGO_PKG_VERSION_MAJOR"));
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,{soname}");
    // OUT_DIR is PROFILE/build/weldfs-capi-HASH/out; the library will lie in PROFILE.
    let out = std::env::var_os("OUT_DIR");
    let Some(profile) = out.as_ref().and_then(|out| Path::new(out).ancestors().nth(3)) else { return };
    for (name, target) in [(soname, "libweldfs_c.so"), ("libweldfs.so", soname)] {
        let link = profile.join(name);
        let _ = std::fs::remove_file(&link);
        if let Err(e) = std::os::unix::fs::symlink(target, &link) {
            println!(
                "cargo:warning=no link {}: {e}; programs find the built library only once installed",
                link.display()
            );
        }
    }
}
