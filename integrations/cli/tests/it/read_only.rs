//! Verbs that only look need leave to read, write nothing, and keep no other from looking.

use crate::images::{Bench, Served, fails, json, ok, tree, weldfs};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};

/// Every verb that only looks, on an image with the tree `/tree`.
fn looks(image: &str, out: &str) -> Vec<Vec<String>> {
    let at = |path: &str| format!("{image}:{path}");
    let lines = [
        vec!["ls".to_owned(), "-lR".to_owned(), at("/")],
        vec!["cat".to_owned(), at("/tree/sub/small")],
        vec!["get".to_owned(), at("/tree"), out.to_owned()],
        vec!["stat".to_owned(), at("/tree/link")],
        vec!["find".to_owned(), at("/"), "--name".to_owned(), "sm*".to_owned()],
        vec!["df".to_owned(), image.to_owned()],
        vec!["du".to_owned(), at("/")],
    ];
    lines.into()
}

fn well(args: &[String], out: &Output) {
    assert!(out.status.success(), "{args:?}: {}: {}", out.status, String::from_utf8_lossy(&out.stderr));
    assert!(args[0] == "get" || !out.stdout.is_empty(), "{args:?} says nothing");
}

#[test]
fn looking_at_an_unclean_image_writes_nothing_and_says_what_is_shown() {
    for medium in ["pmem", "block"] {
        let bench = Bench::new();
        let image = bench.image("a.img", medium);
        tree(&bench.path("tree"));
        let served = Served::start(&image);
        ok(["put", bench.path("tree").to_str().expect("text"), &bench.inside("a.img", "/")]);
        served.kill();
        let before = fs::read(&image).expect("read");
        for (i, args) in
            looks(image.to_str().expect("text"), bench.path("out").to_str().expect("text")).iter().enumerate()
        {
            let out = weldfs(args);
            well(args, &out);
            let said = String::from_utf8_lossy(&out.stderr);
            assert!(
                said.contains("not closed cleanly") && said.contains("vouches for") && said.lines().count() == 2,
                "{args:?}: {said}"
            );
            assert!(fs::read(&image).expect("read") == before, "{args:?} (number {i}) wrote to the image");
        }
        assert_eq!(fs::read(bench.path("out/sub/small")).expect("read"), b"some text\n");
        // What changes it recovers it, says so, and then there is nothing to say.
        let run = weldfs(["run", "--mount", "never", "--image", image.to_str().expect("text"), "mkdir", "/weld/new"]);
        let said = String::from_utf8_lossy(&run.stderr);
        assert!(run.status.success() && said.contains("vouches for"), "{said}");
        let out = weldfs(["ls", &bench.inside("a.img", "/")]);
        assert_eq!((String::from_utf8_lossy(&out.stdout), out.stderr.len()), ("new\ntree\n".into(), 0));
        // A device tells for as long as it runs how the log had ended.
        let mounted = || json(&ok(["stats", "--json", &format!("{}.sock", image.display())]))["mounted"].clone();
        let served = Served::start(&image);
        assert_eq!(mounted()["clean"], true);
        ok(["mkdir", &bench.inside("a.img", "/more")]);
        served.kill();
        let served = Served::start(&image);
        let end = mounted();
        assert!(end["clean"] == false && end["tail_lsn"].as_u64() >= end["watermark"].as_u64(), "{end}");
        served.term();
    }
}

#[test]
fn many_look_at_once() {
    let bench = Bench::new();
    let image = bench.image("a.img", "pmem");
    tree(&bench.path("tree"));
    ok(["put", bench.path("tree").to_str().expect("text"), &bench.inside("a.img", "/")]);
    let reader = fs::File::open(&image).expect("open");
    rustix::fs::flock(&reader, rustix::fs::FlockOperation::NonBlockingLockShared).expect("another one looks");
    for args in looks(image.to_str().expect("text"), bench.path("out").to_str().expect("text")) {
        well(&args, &weldfs(&args));
    }
    // Who changes it has it alone.
    let (code, why) = fails(["mkdir", &bench.inside("a.img", "/d")]);
    assert!(code == 1 && why.contains("in use"), "{why}");
}

/// As a user without rights of its own, with a copy of the program where that user finds it.
fn as_nobody(program: &Path, args: &[String]) -> Output {
    let mut command = Command::new(program);
    command.args(args).current_dir("/").uid(65534).gid(65534).output().expect("runs")
}

#[test]
fn an_image_that_one_may_only_read_can_be_looked_at() {
    if !rustix::process::geteuid().is_root() {
        return crate::skips::skip(
            "an_image_that_one_may_only_read_can_be_looked_at",
            "needs root, to be somebody else",
        );
    }
    let bench = Bench::new();
    fs::set_permissions(bench.dir.path(), fs::Permissions::from_mode(0o755)).expect("chmod");
    let image = bench.image("a.img", "pmem");
    tree(&bench.path("tree"));
    ok(["put", bench.path("tree").to_str().expect("text"), &bench.inside("a.img", "/")]);
    fs::set_permissions(&image, fs::Permissions::from_mode(0o444)).expect("chmod");
    let program = bench.path("weldfs");
    fs::copy(env!("CARGO_BIN_EXE_weldfs"), &program).expect("copy");
    let open = bench.path("open");
    fs::create_dir(&open).expect("mkdir");
    fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).expect("chmod");
    // `run.sh` of the tree is not for every user.
    ok(["chmod", "a+rx", &bench.inside("a.img", "/tree/run.sh")]);
    for args in looks(image.to_str().expect("text"), open.join("out").to_str().expect("text")) {
        well(&args, &as_nobody(&program, &args));
    }
    let change = ["mkdir".to_owned(), bench.inside("a.img", "/d")];
    let out = as_nobody(&program, &change);
    let why = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(out.status.code() == Some(1) && why.contains("Permission denied") && why.contains("only read"), "{why}");
    fs::set_permissions(&image, fs::Permissions::from_mode(0o600)).expect("chmod");
    let out = as_nobody(&program, &["ls".to_owned(), bench.inside("a.img", "/")]);
    let why = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(out.status.code() == Some(1) && why.contains("Permission denied") && why.contains("its owner"), "{why}");
}
