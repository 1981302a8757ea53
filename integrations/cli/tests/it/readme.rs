//! The README's "Try it" runs as it stands there, line by line, in an empty folder.

use super::life::Place;
use std::fs;
use std::path::Path;
use std::process::Command;

#[test]
fn what_the_readme_says_to_try_works() {
    if Command::new("sqlite3").arg("--version").output().is_err() {
        return super::skips::skip("readme::what_the_readme_says_to_try_works", "sqlite3 is not installed");
    }
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    let text = fs::read_to_string(readme).expect("README.md");
    let section = text.split("\n## Try it\n").nth(1).expect("a section").split("\n## ").next().expect("its text");
    let block = section.split("```").nth(1).expect("a block of commands");
    assert!(block.lines().count() > 8, "{block}");
    let place = Place::new();
    // `top` is for a terminal; everything else runs as it is.
    let script: String = block.lines().filter(|l| !l.starts_with("weldfs top")).map(|l| format!("{l}\n")).collect();
    let bin = Path::new(env!("CARGO_BIN_EXE_weldfs")).parent().expect("a folder");
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap_or_default());
    let script = format!("set -e\ntrap 'left=$(jobs -p); [ -z \"$left\" ] || kill $left; wait' EXIT\n{script}");
    let mut shell = Command::new("bash");
    shell.args(["-c", &script]).current_dir(place.path("")).env("PATH", path).env("WELDFS_CONFIG", "");
    // Into a file: what is left running by a failure holds a pipe open.
    let log = fs::File::create(place.path("log")).expect("a file");
    shell.stdout(log.try_clone().expect("a descriptor")).stderr(log);
    let status = shell.status().expect("runs");
    assert!(status.success(), "{status}: {}", fs::read_to_string(place.path("log")).expect("its words"));
}
