//! `weldfs bench doors` in its quick mode: that every door has its rows, that what cannot be measured is named, and
//! that nothing is left behind. Times mean nothing here.

use super::skips::skip;
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

const CALLS: [&str; 8] =
    ["getattr", "open_read_close", "read_4k", "write_4k", "create_write_close", "readdir", "write_1m", "read_1m"];
const PROGRAMS: [&str; 2] = ["tar_x", "git_clone"];

fn doors(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weldfs"));
    command.args(["bench", "doors"]).args(args).stdin(Stdio::null());
    command
}

fn said(out: &Output) -> String {
    String::from_utf8_lossy(&out.stderr).into_owned()
}

/// A folder to compare with, the report of a run, and what was printed.
fn report(mut command: Command) -> (Value, String) {
    let (peer, out) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
    let json = out.path().join("report.json");
    command.arg("--peer").arg(format!("here={}", peer.path().display())).arg("--json").arg(&json);
    let out = command.output().expect("it runs");
    assert!(out.status.success(), "{}", said(&out));
    assert_eq!(std::fs::read_dir(peer.path()).expect("a folder").count(), 0, "nothing is left behind");
    let text = std::fs::read(&json).expect("a report was written");
    (serde_json::from_slice(&text).expect("JSON"), String::from_utf8(out.stdout).expect("text"))
}

fn has(report: &Value, op: &str, system: &str, busy: u64) -> bool {
    let rows = report["rows"].as_array().expect("rows");
    rows.iter().any(|row| row["op"] == op && row["system"] == system && row["busy"] == busy)
}

/// Whether a list of the report names something.
fn names(report: &Value, list: &str, what: &str) -> bool {
    let all = report[list].as_array().expect("a list");
    all.iter().any(|line| line.as_str().is_some_and(|line| line.starts_with(what)))
}

#[test]
fn doors_measures_every_operation_at_every_door_or_says_why_not() {
    let (report, text) = report(doors(&["--quick"]));
    assert!(report["failed"].as_array().expect("a list").is_empty(), "{report}");
    for door in ["api-inline", "api-served", "preload", "mount", "mount-exclusive", "here"] {
        if names(&report, "skipped", &format!("{door}: cannot be used here: ")) {
            assert!(door.starts_with("mount") && text.contains(&format!("skipped: {door}: ")), "{text}");
            skip(
                "doors_measures_every_operation_at_every_door_or_says_why_not",
                &format!("{door} cannot be used here"),
            );
            continue;
        }
        for busy in [0, 1] {
            assert!(CALLS.iter().all(|op| has(&report, op, door, busy)), "{door}: {report}");
            for op in PROGRAMS.into_iter().filter(|op| !names(&report, "skipped", &format!("{op}: not installed"))) {
                assert_eq!(has(&report, op, door, busy), !door.starts_with("api"), "{op}, {door}");
                assert!(names(&report, "sets", op), "{op} worked on something: {report}");
            }
        }
    }
    for row in report["rows"].as_array().expect("rows") {
        assert!(row["value"].as_f64().is_some_and(|value| value > 0.0) && row["rounds"] == 1, "{row}");
        assert!(["us", "ms", "MiB/s"].contains(&row["unit"].as_str().unwrap_or_default()), "{row}");
        assert!(row["medium"].is_string() && row["durability"].is_string() && row["power_safe"].is_boolean(), "{row}");
    }
    assert_eq!(report["profile"], "none");
    let aims = report["ratios"].as_array().expect("aims");
    assert!(aims.iter().any(|aim| aim["what"] == "read_4k, preload to api-served"), "{report}");
    assert!(text.contains("the times mean nothing"), "{text}");
}

#[test]
fn a_block_image_on_a_disk_and_durable_changes_are_said() {
    let place = tempfile::tempdir().expect("a folder");
    let dir = place.path().display().to_string();
    let args =
        ["--quick", "--medium=block", "--durable", "--doors=api-served,host", "--only=getattr,write_4k", "--dir", &dir];
    let (report, _) = report(doors(&args));
    let rows = report["rows"].as_array().expect("rows");
    let served = rows.iter().find(|row| row["system"] == "api-served").expect("a row");
    assert!(served["medium"].as_str().is_some_and(|medium| medium.starts_with("block image")), "{served}");
    assert_eq!(
        (&served["durability"], rows.len()),
        (&"durable".into(), 8),
        "two operations, two doors, with and without"
    );
    assert_eq!(std::fs::read_dir(place.path()).expect("a folder").count(), 0, "nothing is left behind");
}

#[test]
fn a_mount_that_cannot_be_is_named_and_the_others_are_measured() {
    let name = "a_mount_that_cannot_be_is_named_and_the_others_are_measured";
    if !rustix::process::geteuid().is_root() || !Path::new("/dev/fuse").exists() {
        return skip(name, "needs root and a /dev/fuse, to hide it");
    }
    // In mounts of its own, something that is no /dev/fuse stands in its place.
    let mut command = Command::new("unshare");
    let script = "mount --bind /dev/null /dev/fuse && exec \"$0\" \"$@\"";
    command.args(["-m", "sh", "-c", script, env!("CARGO_BIN_EXE_weldfs"), "bench", "doors", "--quick"]);
    command.args(["--only=getattr", "--doors=mount,mount-exclusive,preload,host"]).stdin(Stdio::null());
    let (report, text) = report(command);
    for door in ["mount", "mount-exclusive"] {
        assert!(names(&report, "skipped", &format!("{door}: cannot be used here: weldfs: cannot mount")), "{report}");
        assert!(text.contains(&format!("skipped: {door}: ")) && !has(&report, "getattr", door, 0), "{text}");
    }
    assert!(has(&report, "getattr", "preload", 0) && has(&report, "getattr", "here", 0));
}

#[test]
fn what_doors_cannot_run_is_refused_in_one_sentence() {
    let here = tempfile::tempdir().expect("a folder");
    let peer = |name: &str| format!("--peer={name}={}", here.path().display());
    for args in [
        &["--only=nothing"][..],
        &["--doors=window"],
        &["--medium=ram"],
        &["--rounds=0"],
        &["--millis=1"],
        &["--busy=65"],
        &["--quick", "--rounds=3"],
        &["--dir=/no/such/directory"],
        &["--peer=here"],
        &["--peer=here=/no/such/directory"],
        &[&peer("mount")],
        &[&peer("")],
    ] {
        let out = doors(args).output().expect("it runs");
        assert_eq!(out.status.code(), Some(2), "{args:?}: {}", said(&out));
    }
    let out = doors(&["--quick", &peer("a"), &peer("a")]).output().expect("it runs");
    assert_eq!(out.status.code(), Some(1));
    assert!(said(&out).contains("two peers are called a"), "{}", said(&out));
    let out = doors(&["--help"]).output().expect("it runs");
    assert!(String::from_utf8_lossy(&out.stdout).contains("mount-exclusive"));
}

#[test]
fn an_interrupted_run_of_doors_says_what_it_has_and_leaves_nothing_behind() {
    let dir = tempfile::tempdir().expect("a folder");
    let peer = format!("here={}", dir.path().display());
    let mut command = doors(&["--only=getattr", "--doors=host,preload", "--millis=1000", "--peer", &peer]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let start = Instant::now();
    while std::fs::read_dir(dir.path()).expect("a folder").next().is_none() && start.elapsed() < Duration::from_secs(60)
    {
        std::thread::sleep(Duration::from_millis(20));
    }
    let pid = rustix::process::Pid::from_raw(child.id() as i32).expect("a process");
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("a signal");
    let out = child.wait_with_output().expect("it ends");
    assert_eq!(out.status.code(), Some(130), "{}", said(&out));
    assert_eq!(std::fs::read_dir(dir.path()).expect("a folder").count(), 0);
}
