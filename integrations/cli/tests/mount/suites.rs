//! Public suites over a mount: pjdfstest and fsx, the crates. `./test mount` builds them into target/tools.

use crate::rig::{Place, usable};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Operations of fsx, over all of its runs.
const FSX_OPS: u64 = 1_000_000;

/// Operations of one run: what fsx 0.3.2 maps to read it never unmaps, so that every later change of the file costs the
/// kernel more, until mmap(2) fails at vm.max_map_count (65,530).
const FSX_RUN: u64 = 5_000;

fn tree() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A program of a suite: where `./test` puts it, else in PATH.
pub fn suite(test: &str, name: &str) -> Option<PathBuf> {
    let built = tree().join("target/tools/bin").join(name);
    if built.exists() {
        return Some(built);
    }
    let found = Command::new("sh").args(["-c", &format!("command -v {name}")]).output().expect("sh");
    if found.status.success() {
        return Some(String::from_utf8(found.stdout).expect("text").trim().into());
    }
    crate::skips::skip(test, &format!("needs {name} (cargo install {name}, or ./test mount)"));
    None
}

/// A file of `testing/mount`.
pub fn config(name: &str) -> PathBuf {
    tree().join("testing/mount").join(name)
}

/// Cases of pjdfstest below a mount; what it says.
fn pjdfstest(program: &Path, place: &Place, config: &Path, cases: &[&str]) -> (bool, String) {
    let second = place.path("second");
    let _ = std::fs::create_dir(&second);
    let mut command = Command::new(program);
    command.arg("-c").arg(config).arg("-s").arg(&second).arg("-p").arg(place.at("suite")).args(cases);
    let out = command.output().expect("runs");
    (out.status.success(), String::from_utf8_lossy(&out.stdout).into_owned())
}

#[test]
fn pjdfstest_holds_but_for_what_is_named() {
    let test = "pjdfstest_holds_but_for_what_is_named";
    if !usable(test) {
        return;
    }
    let Some(program) = suite(test, "pjdfstest") else { return };
    // With the package fuse3, and without WeldFS's, `mount -o remount` starts a program that is not there.
    let remounts = !Path::new("/sbin/mount.fuse").exists() || Path::new("/sbin/mount.fuse.weldfs").exists();
    if !remounts {
        crate::skips::skip(test, "remounts need /sbin/mount.fuse.weldfs, which install.sh --prefix /usr makes");
    }
    for options in [&["--allow-other", "-o", "suid"][..], &["--allow-other", "--exclusive", "-o", "suid"]] {
        let place = Place::new("256M");
        let mounted = place.mount(options);
        std::fs::create_dir(place.at("suite")).expect("mkdir");
        let text = std::fs::read_to_string(config("pjdfstest.toml")).expect("read");
        let with_remounts = |yes| text.replace("allow_remount = true", &format!("allow_remount = {yes}"));
        let file = place.path("pjdfstest.toml");
        // The suite itself leaves a file open for writing in `open::interact_2gb` or nearby, so that no later remount
        // is possible in the same run, and which cases are later depends on how it was linked: remounts have a run of
        // their own.
        std::fs::write(&file, with_remounts(false)).expect("write");
        let (well, said) = pjdfstest(&program, &place, &file, &[]);
        let wrong: Vec<&str> =
            said.lines().filter(|line| line.ends_with("FAILED") || line.contains("UNEXPECTEDLY")).collect();
        assert!(wrong.is_empty(), "{options:?}: {wrong:#?}\n{said}");
        let summary = said.lines().find(|line| line.contains("total")).unwrap_or_default();
        assert!(well && summary.contains("Summary: 0 failed"), "{options:?}: {summary}");
        println!("{options:?}: {summary}");
        std::fs::write(&file, with_remounts(remounts)).expect("write");
        let (well, said) = pjdfstest(&program, &place, &file, &["erofs"]);
        assert!(well && said.contains("Summary: 0 failed"), "{options:?}: {said}");
        mounted.unmount();
        place.is_clean();
    }
}

#[test]
fn fsx_finds_nothing() {
    let test = "fsx_finds_nothing";
    if !usable(test) {
        return;
    }
    let Some(program) = suite(test, "fsx") else { return };
    let total = std::env::var("WELDFS_FSX_OPS").map_or(FSX_OPS, |n| n.parse().expect("WELDFS_FSX_OPS is a number"));
    for options in [&[][..], &["--exclusive"]] {
        let place = Place::new("128M");
        let mounted = place.mount(options);
        for (run, done) in (0..total / 2).step_by(FSX_RUN as usize).enumerate() {
            let seed = (u64::from(std::process::id()) + run as u64).to_string();
            let count = FSX_RUN.min(total / 2 - done).to_string();
            let mut command = Command::new(&program);
            command.arg("-f").arg(config("fsx.toml")).args(["-N", &count, "-S", &seed]);
            let out = command.args(["-P"]).arg(place.path("")).arg(place.at("file")).output().expect("runs");
            let said = [out.stdout, out.stderr].concat();
            assert!(out.status.success(), "{options:?}, seed {seed}: {}", String::from_utf8_lossy(&said));
        }
        mounted.unmount();
        place.is_clean();
    }
}
