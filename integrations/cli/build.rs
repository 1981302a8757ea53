//! Two things that a released `weldfs` holds and a development build does without: the commit that it was built from,
//! and the preload library, so that the program alone (as `cargo install` leaves it) can `run`.
//!
//! A development build does not ask git, so a commit rebuilds nothing, and it finds the library beside the program.
//! The library costs a release build nothing either: it is a dependency of this package, so cargo has it in `deps`
//! by the time this program is compiled, and the program includes that file.

use std::env;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The file that cargo makes of weldfs-preload.
const LIBRARY: &str = "libweldfs_preload.so";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=WELDFS_COMMIT");
    println!("cargo::rustc-check-cfg=cfg(carries_preload)");
    let out = PathBuf::from(variable("OUT_DIR"));
    let profile = profile_folder(&out);
    let released = match profile {
        Some(folder) => folder.ends_with("release"),
        None => variable("PROFILE") == "release",
    };
    println!("cargo::rustc-env=WELDFS_VERSION={}", version(released));
    if released {
        let library = match profile {
            Some(folder) => dependency(folder),
            None => built_apart(&out),
        };
        println!("cargo::rustc-env=WELDFS_CARRIED={}", library.display());
        println!("cargo::rustc-cfg=carries_preload");
    }
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|e| panic!("cargo sets {name}: {e}"))
}

/// `target/PROFILE`, above `build/PACKAGE-HASH/out`; `None` where cargo lays its folders out in another way.
fn profile_folder(out: &Path) -> Option<&Path> {
    let folder = out.ancestors().nth(3)?;
    (out.ends_with("out") && out.ancestors().nth(2)?.ends_with("build") && folder.join("deps").is_dir())
        .then_some(folder)
}

/// Where cargo puts the library before it compiles the program.
fn dependency(profile: &Path) -> PathBuf {
    let library = profile.join("deps").join(LIBRARY);
    // `cargo check` compiles the program and no library, and this script cannot know. It finds an empty file, which a
    // build replaces, and which a program never hands out.
    let _ = File::create_new(&library);
    library
}

/// The same library built by a cargo of its own, in a folder of its own: the outer one has locked its own.
fn built_apart(out: &Path) -> PathBuf {
    let (folder, target) = (out.join("preload"), variable("TARGET"));
    for source in ["integrations/preload", "userlib/src", "ciscops/src", "ciscops/functions/src"] {
        println!("cargo::rerun-if-changed={}", root().join(source).display());
    }
    let built = Command::new(variable("CARGO"))
        .args(["build", "--release", "--package", "weldfs-preload", "--target", &target, "--target-dir"])
        .arg(&folder)
        // Above the folder's own: what cargo builds here has to be found again.
        .env("CARGO_BUILD_BUILD_DIR", &folder)
        .current_dir(root())
        .status();
    match built {
        Ok(status) if status.success() => folder.join(target).join("release").join(LIBRARY),
        Ok(status) => panic!("building {LIBRARY}: {status}"),
        Err(e) => panic!("building {LIBRARY}: {e}"),
    }
}

fn root() -> PathBuf {
    Path::new(&variable("CARGO_MANIFEST_DIR")).join("../..")
}

/// What `--version` prints after the name: `0.1.0 (0123456789ab, 2026-01-31)`. `WELDFS_COMMIT` says what stands between
/// the parentheses where there is no git (empty: nothing).
fn version(released: bool) -> String {
    let package = variable("CARGO_PKG_VERSION");
    let commit = match env::var("WELDFS_COMMIT") {
        Ok(given) => Some(given).filter(|g| !g.is_empty()),
        Err(_) if released => commit(),
        Err(_) => Some("development build".to_owned()),
    };
    commit.map_or_else(|| package.clone(), |commit| format!("{package} ({commit})"))
}

/// The commit that is checked out, if this is a checkout.
fn commit() -> Option<String> {
    // Sources that were copied into another repository are not that repository's commit.
    let top = PathBuf::from(git(&["rev-parse", "--show-toplevel"])?);
    if top.canonicalize().ok()? != root().canonicalize().ok()? {
        return None;
    }
    // HEAD names the branch; its log grows with each commit. Both lie elsewhere in a worktree.
    for file in ["HEAD", "logs/HEAD"] {
        let path = root().join(git(&["rev-parse", "--git-path", file])?);
        // A file that is not there would have this script run again at each build.
        if path.exists() {
            println!("cargo::rerun-if-changed={}", path.display());
        }
    }
    let changed = if git(&["status", "--porcelain", "--untracked-files=no"])?.is_empty() { "" } else { ", modified" };
    let said = git(&["log", "-1", "--abbrev=12", "--format=%h, %cs"])?;
    Some(format!("{said}{changed}"))
}

fn git(args: &[&str]) -> Option<String> {
    let output = Command::new("git").args(args).current_dir(root()).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
