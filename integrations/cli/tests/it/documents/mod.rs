//! What the documents and the files beside the code say is so: the examples run, the tutorial's commands work, the
//! Python package passes its tests, the board shows metrics that exist.

mod board;
mod examples;
mod kernels;
mod profiles;
mod python;
mod tutorial;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// The root of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the root of the repository")
}

/// Runs it to its end; a failure shows what it said.
fn ok(command: &mut Command) -> Output {
    let output = command.stdin(Stdio::null()).output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{out}\n{err}", output.status);
    output
}

fn text(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("text")
}

/// Where this run installed the C library, with the program beside it: as after an installation with this prefix.
fn prefix() -> &'static Path {
    static PREFIX: OnceLock<PathBuf> = OnceLock::new();
    PREFIX.get_or_init(|| {
        let prefix = Path::new(env!("CARGO_TARGET_TMPDIR")).join("documents");
        let _ = std::fs::remove_dir_all(&prefix);
        let mut install = Command::new("bash");
        install.arg(root().join("install.sh")).args(["--only", "library", "--profile", "dev", "--prefix"]);
        install.arg(&prefix);
        // `./test` has built everything in one go; by hand, the script builds what is missing.
        install.args(std::env::var_os("WELDFS_BUILT").map(|_| "--no-build"));
        ok(&mut install);
        let bin = prefix.join("bin");
        std::fs::create_dir_all(&bin).expect("a folder");
        let target = Path::new(env!("CARGO_BIN_EXE_weldfs"));
        std::os::unix::fs::symlink(target, bin.join("weldfs")).expect("a link");
        prefix
    })
}

/// PATH with this build's `weldfs` before all others.
fn path() -> std::ffi::OsString {
    let before = prefix().join("bin");
    let rest = std::env::var_os("PATH").unwrap_or_default();
    std::env::join_paths(std::iter::once(before).chain(std::env::split_paths(&rest))).expect("a PATH")
}

/// A device process over memory.
struct Device {
    child: Child,
    dir: tempfile::TempDir,
}

impl Device {
    fn in_memory(arguments: &[&OsStr]) -> Device {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let mut serve = Command::new(env!("CARGO_BIN_EXE_weldfs"));
        serve.args(["serve", "--ram", "64M", "--socket"]).arg(dir.path().join("s")).args(arguments);
        let child = serve.stdin(Stdio::null()).stderr(Stdio::null()).spawn().expect("the device starts");
        let device = Device { child, dir };
        let start = Instant::now();
        while weldfs::Client::connect(device.socket()).is_err() {
            assert!(start.elapsed() < Duration::from_secs(60), "the device answers");
            std::thread::sleep(Duration::from_millis(5));
        }
        device
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("s")
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
