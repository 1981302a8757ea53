//! What a copy has of the mode of what was copied: `put`, `get` and `cp`.

use crate::images::{Bench, json, ok};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

fn text(path: &Path) -> &str {
    path.to_str().expect("text")
}

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("chmod");
}

fn mode_of(path: &Path) -> u32 {
    fs::symlink_metadata(path).expect("there").mode() & 0o7777
}

fn mode_in(at: &str) -> u32 {
    let mode = json(&ok(["stat", "--json", at]))[0]["mode"].as_str().expect("text").to_owned();
    u32::from_str_radix(&mode, 8).expect("octal")
}

/// A file and a directory with every bit that lends rights, under `t`.
fn lending(bench: &Bench) {
    fs::create_dir_all(bench.path("t/d")).expect("mkdir");
    fs::write(bench.path("t/program"), b"#!/bin/sh\nid\n").expect("write");
    chmod(&bench.path("t/program"), 0o6755);
    chmod(&bench.path("t/d"), 0o7755);
}

#[test]
fn copies_make_no_program_run_as_another_user() {
    let bench = Bench::new();
    bench.image("a.img", "pmem");
    bench.image("b.img", "block");
    lending(&bench);
    let a = |path: &str| bench.inside("a.img", path);
    ok(["put", text(&bench.path("t")), &a("/")]);
    assert_eq!((mode_in(&a("/t/program")), mode_in(&a("/t/d"))), (0o755, 0o1755), "put");
    // As whoever made the image may have left them there.
    ok(["chmod", "6755", &a("/t/program")]);
    ok(["chmod", "7755", &a("/t/d")]);
    ok(["get", &a("/t"), text(&bench.path("out"))]);
    assert_eq!((mode_of(&bench.path("out/program")), mode_of(&bench.path("out/d"))), (0o755, 0o1755), "get");
    ok(["get", &a("/t/program"), text(&bench.path("named"))]);
    assert_eq!(mode_of(&bench.path("named")), 0o755, "get of one file");
    ok(["cp", &a("/t"), &a("/copy")]);
    assert_eq!((mode_in(&a("/copy/program")), mode_in(&a("/copy/d"))), (0o755, 0o1755), "cp inside an image");
    ok(["cp", &a("/t"), &bench.inside("b.img", "/t")]);
    let b = ["/t/program", "/t/d"].map(|path| mode_in(&bench.inside("b.img", path)));
    assert_eq!(b, [0o755, 0o1755], "cp between images");
    assert_eq!((mode_in(&a("/t/program")), mode_in(&a("/t/d"))), (0o6755, 0o7755), "the source keeps its own");
}

#[test]
fn directories_end_with_the_mode_of_what_was_copied() {
    let bench = Bench::new();
    bench.image("a.img", "pmem");
    let a = |path: &str| bench.inside("a.img", path);
    fs::create_dir_all(bench.path("t/sub")).expect("mkdir");
    fs::write(bench.path("t/sub/f"), b"x").expect("write");
    for dir in ["t/sub", "t"] {
        chmod(&bench.path(dir), 0o555);
    }
    ok(["put", "-p", text(&bench.path("t")), &a("/t")]);
    assert_eq!((mode_in(&a("/t")), mode_in(&a("/t/sub"))), (0o555, 0o555), "put");
    let kept = fs::metadata(bench.path("t")).expect("there").mtime();
    let stat = json(&ok(["stat", "--json", &a("/t")]))[0].clone();
    assert!(stat["mtime"].as_str().is_some_and(|t| t.starts_with(&format!("{kept}."))), "{stat} {kept}");
    ok(["get", &a("/t"), text(&bench.path("out"))]);
    assert_eq!((mode_of(&bench.path("out")), mode_of(&bench.path("out/sub"))), (0o555, 0o555), "get");
    assert_eq!(fs::read(bench.path("out/sub/f")).expect("there"), b"x");
    ok(["cp", &a("/t"), &a("/copy")]);
    assert_eq!((mode_in(&a("/copy")), mode_in(&a("/copy/sub"))), (0o555, 0o555), "cp");
    // What was there before keeps the mode that it had.
    fs::create_dir_all(bench.path("into/t")).expect("mkdir");
    chmod(&bench.path("into/t"), 0o711);
    ok(["get", &a("/t"), text(&bench.path("into"))]);
    assert_eq!((mode_of(&bench.path("into/t")), mode_of(&bench.path("into/t/sub"))), (0o711, 0o555));
    for dir in ["t/sub", "t", "out/sub", "out", "into/t/sub"] {
        chmod(&bench.path(dir), 0o755);
    }
}
