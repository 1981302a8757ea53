//! What is said when something cannot be done: one line that names what and why.

use crate::images::{Bench, Served, fails, ok, weldfs};
use crate::life::Running;
use std::fs;
use std::process::{Command, Stdio};

fn one_line(args: &[&str], code: i32, words: &[&str]) {
    let (got, said) = fails(args);
    assert!(got == code && said.lines().count() == 1, "{args:?}: {got}: {said}");
    for word in words {
        assert!(said.contains(word), "{args:?}: {word} in: {said}");
    }
    assert!(!said.contains("os error"), "{said}");
}

#[test]
fn changes_that_make_no_sense_say_why() {
    let bench = Bench::new();
    bench.image("a.img", "pmem");
    let at = |path: &str| bench.inside("a.img", path);
    ok(["mkdir", "-p", &at("/d/e")]);
    one_line(&["mv", &at("/d"), &at("/d/e")], 1, &["/d to", "/d/e/d: that is itself, or inside it"]);
    one_line(&["ln", &at("/d"), &at("/x")], 1, &["cannot make link", "/d is a directory", "-s"]);
    let file = bench.path("f");
    fs::write(&file, b"x").expect("write");
    let file = file.to_str().expect("text");
    for verb in ["put", "cp"] {
        one_line(&[verb, file, &at("/none/x")], 1, &["/none/x: there is no directory", "a.img:/none"]);
        one_line(&[verb, file, &at("/none/")], 1, &["there is no directory", "a.img:/none/"]);
    }
    let nowhere = bench.path("none/x");
    one_line(&["get", &at("/"), nowhere.to_str().expect("text")], 1, &["there is no directory", "/none"]);
    one_line(&["put", "-", &at("/")], 2, &["say", "a.img:/NAME"]);
    let image = bench.path("a.img");
    let image = image.to_str().expect("text");
    one_line(&["exec", image, "open /h; size -> n"], 2, &["line 1, column", "a file is opened r, w or rw"]);
    // With --json as without.
    let out = weldfs(["exec", image, "open /h r; size -> n", "--json"]);
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.code() == Some(1) && said.lines().count() == 1 && said.contains("micro-op 1"), "{said}");
    assert!(String::from_utf8_lossy(&out.stdout).contains("\"ENOENT\""));
    // What is left out of a tree is told as everything is.
    fs::create_dir(bench.path("t")).expect("mkdir");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        bench.path("t/fifo"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .expect("mkfifo");
    let out = weldfs(["put", bench.path("t").to_str().expect("text"), &at("/")]);
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success() && said.starts_with("weldfs: ") && said.trim_end().ends_with(": left out"), "{said}");
}

#[test]
fn what_mkfs_cannot_make_is_said_with_what_it_can() {
    let bench = Bench::new();
    let image = bench.path("b.img");
    let image = image.to_str().expect("text");
    for wrong in ["1", "0", "48M", "4T"] {
        one_line(
            &["mkfs", image, "--size=48M", "--log-size", wrong],
            2,
            &["--log-size must be 256.0K to ", " on 48.0M"],
        );
        assert!(!bench.path("b.img").exists());
    }
    ok(["mkfs", image, "--size=48M", "--log-size=256K"]);
    let served = Served::start(&bench.path("b.img"));
    one_line(&["mkfs", "--force", image, "--size=48M"], 1, &["being served at", "b.img.sock"]);
    served.term();
    one_line(&["mkfs", "--force", bench.dir.path().to_str().expect("text"), "--size=48M"], 1, &["a directory"]);
}

#[test]
fn a_served_directory_goes_by_its_name() {
    let bench = Bench::new();
    let dir = bench.path("dir");
    fs::create_dir(&dir).expect("mkdir");
    let mut serve = Command::new(env!("CARGO_BIN_EXE_weldfs"));
    let device = Running::start(serve.args(["serve", "--hostdir"]).arg(&dir).stderr(Stdio::null()));
    let dir = dir.to_str().expect("text");
    ok(["wait", dir]);
    assert!(ok(["info", dir]).contains("hostdir") && ok(["info", "--json", dir]).contains("dir.sock"));
    assert!(ok(["top", "--once", "--interval=0.1", dir]).contains("hostdir"));
    one_line(&["info", "--log", dir], 2, &["a directory; a log is in an image"]);
    for verb in ["fsck", "scrub"] {
        one_line(&[verb, dir], 8, &["a directory", "is for an image"]);
    }
    one_line(&["tune", dir], 1, &["a directory of the host", "no settings"]);
    one_line(&["trace", "-o", "/dev/null", dir], 1, &["a directory of the host", "no device to record"]);
    ok(["stop", dir]);
    drop(device);
    one_line(&["info", dir], 1, &["no device serves"]);
}

#[test]
fn what_keeps_a_client_from_a_device_is_said() {
    let bench = Bench::new();
    let image = bench.image("a.img", "pmem");
    let dead = bench.path("dead.sock");
    drop(std::os::unix::net::UnixListener::bind(&dead).expect("bind"));
    let dead = dead.to_str().expect("text");
    for args in [["ls", &format!("{dead}:/")], ["info", dead], ["tune", dead]] {
        one_line(&args, 1, &["no device listens there; the socket was left behind"]);
    }
    one_line(&["run", "--socket", dead, "true"], 1, &["no device listens there"]);
    let nowhere = bench.path("none/s");
    let serve = ["serve", image.to_str().expect("text"), "--socket", nowhere.to_str().expect("text")];
    one_line(&serve, 1, &["cannot make the socket: there is no folder", "serve makes none"]);
    let long = bench.path(&"y".repeat(120));
    let serve = ["serve", image.to_str().expect("text"), "--socket", long.to_str().expect("text")];
    one_line(&serve, 1, &["a socket's name can have 86 bytes, not 120"]);
    let served = Served::start(&image);
    for token in ["nonsense", "00112233445566778899aabbccddeeff"] {
        let mut ls = Command::new(env!("CARGO_BIN_EXE_weldfs"));
        let out = ls.args(["ls", &bench.inside("a.img", "/")]).env("WELDFS_TENANT_TOKEN", token).output();
        let out = out.expect("runs");
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.code() == Some(1) && said.contains("WELDFS_TENANT_TOKEN is no token of this"), "{said}");
    }
    for verb in ["info", "stop", "wait", "ls"] {
        let place = if verb == "ls" { bench.inside("a.img", "/") } else { image.display().to_string() };
        let mut command = Command::new(env!("CARGO_BIN_EXE_weldfs"));
        let out = command.args([verb, &place]).env("WELDFS_WAIT", "soon").output().expect("runs");
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.code() == Some(2) && said.contains("WELDFS_WAIT must be seconds"), "{verb}: {said}");
    }
    served.term();
}

#[test]
fn usage_says_what_can_be_named_and_help_has_help() {
    for verb in ["info", "exec", "tune", "tenants", "top", "trace", "stats", "wait", "stop"] {
        let help = ok([verb, "--help"]);
        assert!(help.contains("<SOCKET|IMAGE|DIR>"), "{verb}: {help}");
    }
    assert_eq!(ok(["help", "--help"]), ok(["help"]));
    assert_eq!(ok(["help", "-h"]), ok(["help"]));
}

#[test]
fn find_takes_owners_by_name_and_refuses_numbers_below_none() {
    let bench = Bench::new();
    bench.image("a.img", "pmem");
    let root = bench.inside("a.img", "/");
    let uid = rustix::process::geteuid().as_raw().to_string();
    assert_eq!(ok(["find", &root, "--uid", &uid]), "/\n");
    if uid == "0" {
        assert_eq!(ok(["find", &root, "--uid", "root", "--gid", "root"]), "/\n");
        assert_eq!(ok(["find", &root, "--uid", "65534"]), "");
    }
    for (option, value) in
        [("--uid", "no such user"), ("--uid", "-1"), ("--gid", "-1"), ("--inode", "-1"), ("--max-depth", "-1")]
    {
        let (code, said) = fails(["find", &root, option, value]);
        assert!(code == 2 && said.contains(&format!("invalid value '{value}' for '{option}")), "{said}");
    }
}
