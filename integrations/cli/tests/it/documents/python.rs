//! `bindings/python`: installed as its page says into an environment of its own, then its tests and the examples in
//! Python, against the installed C library.

use super::{examples, ok, prefix, root};
use crate::skips;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// An environment with the package and fsspec in it, or why there is none.
pub(super) fn environment() -> Result<&'static Path, String> {
    static MADE: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    MADE.get_or_init(make).as_ref().map(PathBuf::as_path).map_err(Clone::clone)
}

fn make() -> Result<PathBuf, String> {
    let venv = Path::new(env!("CARGO_TARGET_TMPDIR")).join("python");
    let run = |command: &mut Command, what: &str| match command.output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(format!("{what}: {}", String::from_utf8_lossy(&output.stderr).trim())),
        Err(e) => Err(format!("{what}: {e}")),
    };
    let pip = venv.join("bin/pip");
    if !pip.exists() {
        run(Command::new("python3").args(["-m", "venv"]).arg(&venv), "python3 -m venv")?;
    }
    // What comes from the network, first: without it the tests are skipped. What follows is ours, and must not fail.
    let have = venv.join("bin/python");
    if run(Command::new(&have).args(["-c", "import fsspec, setuptools, wheel"]), "").is_err() {
        run(Command::new(&pip).args(["install", "--quiet", "fsspec", "setuptools", "wheel"]), "pip install fsspec")?;
    }
    let copy = tempfile::tempdir().map_err(|e| e.to_string())?;
    let source = copy.path().join("python");
    ok(Command::new("cp").arg("-r").arg(root().join("bindings/python")).arg(&source));
    let mut install = Command::new(&pip);
    install.args(["install", "--quiet", "--no-deps", "--no-build-isolation", "--force-reinstall"]);
    ok(install.arg(source));
    Ok(venv)
}

fn settings() -> [(&'static str, PathBuf); 2] {
    [
        ("WELDFS_LIBRARY", prefix().join("lib/libweldfs.so.0")),
        ("WELDFS_PROGRAM", PathBuf::from(env!("CARGO_BIN_EXE_weldfs"))),
    ]
}

#[test]
fn the_python_package_passes_its_tests_and_its_examples_run() {
    let venv = match environment() {
        Ok(venv) => venv,
        Err(why) => {
            skips::skip("the_python_package_passes_its_tests_and_its_examples_run", &why);
            return;
        }
    };
    let interpreter = venv.join("bin/python");
    let mut tests = Command::new(&interpreter);
    tests.args(["-m", "unittest", "discover", "-s"]).arg(root().join("bindings/python/tests"));
    tests.current_dir(venv).env("PYTHONDONTWRITEBYTECODE", "1").envs(settings());
    let said = String::from_utf8_lossy(&ok(&mut tests).stderr).into_owned();
    let ran = said.lines().find_map(|line| line.strip_prefix("Ran ")).and_then(|rest| rest.split(' ').next());
    let ran: u32 = ran.and_then(|n| n.parse().ok()).unwrap_or_default();
    assert!(ran >= 30 && !said.contains("skipped"), "{said}");
    examples::python(&interpreter, &settings());
}

#[test]
fn the_python_package_finds_the_library_beside_the_program() {
    let venv = match environment() {
        Ok(venv) => venv,
        Err(why) => {
            skips::skip("the_python_package_finds_the_library_beside_the_program", &why);
            return;
        }
    };
    // As it lies after an installation: bin/weldfs, a file of its own, and lib/ beside that.
    let home = tempfile::tempdir().expect("a temporary folder");
    let (bin, lib) = (home.path().join("bin"), home.path().join("lib"));
    std::fs::create_dir_all(&bin).expect("a folder");
    std::os::unix::fs::symlink(prefix().join("lib"), &lib).expect("a link");
    std::fs::write(bin.join("weldfs"), "#!/bin/sh\n").expect("a file");
    ok(Command::new("chmod").arg("+x").arg(bin.join("weldfs")));
    let mut ask = Command::new(venv.join("bin/python"));
    ask.args(["-c", "import weldfs; print(weldfs.library_path())"]).env_remove("WELDFS_LIBRARY");
    let said = super::text(&ok(ask.env("PATH", &bin)));
    assert_eq!(said.trim(), lib.join("libweldfs.so.0").display().to_string());
    let mut nowhere = Command::new(venv.join("bin/python"));
    nowhere.args(["-c", "import weldfs; weldfs.library_path()"]).env("WELDFS_LIBRARY", "/nowhere/libweldfs.so");
    let output = nowhere.output().expect("runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("/nowhere/libweldfs.so"), "{said}");
}
