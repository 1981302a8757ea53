//! docs/COMMANDS.md put to real devices by a client that was written from that page alone, in another language:
//! `integrations/conformance`.

use crate::life::{Place, Running, is_root, ok, serve, weldfs};
use rustix::process::Signal;
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

fn python(file: &str) -> Command {
    let mut command = Command::new("python3");
    let home = concat!(env!("CARGO_MANIFEST_DIR"), "/../conformance");
    command.arg(format!("{home}/{file}")).env("PYTHONDONTWRITEBYTECODE", "1");
    command
}

fn client() -> Command {
    python("")
}

/// Runs all cases; every one must hold. Those that may be left out, for want of rights or because a directory of the
/// host does not promise them, are counted: a device of which too little was asked has not passed. The last case ends
/// the device, with something left to do.
fn holds(mut device: Running, socket: &Path, asked_at_least: u64, left_out: u64) {
    let Output { status, stdout, stderr } = client().arg(socket).args(["--json", "--stop"]).output().expect("it runs");
    let stderr = String::from_utf8_lossy(&stderr);
    let report: serde_json::Value = serde_json::from_slice(&stdout).unwrap_or_else(|e| panic!("{e}: {stderr}"));
    let cases = report["cases"].as_array().expect("cases");
    let of = |state: &str| cases.iter().filter(|c| c["state"] == state).map(|c| format!("\n{c}")).collect::<String>();
    assert!(status.success() && report["failed"] == 0, "{}{stderr}", of("failed"));
    let without_rights = if is_root() { 0 } else { 10 };
    assert!(report["skipped"].as_u64() <= Some(left_out + without_rights), "{}", of("skipped"));
    assert!(report["ok"].as_u64() >= Some(asked_at_least - without_rights), "{} cases", report["ok"]);
    assert_eq!(device.ends(), Some(0));
}

/// What the last case had published, of which one half is done when a device ends.
fn left_behind(image: &Path) {
    let root = format!("{}:/", image.display());
    assert!(is_clean(image));
    assert_eq!(ok(&mut weldfs(["ls", &root])), "kept\n");
    assert_eq!(ok(&mut weldfs(["cat", &format!("{root}kept")])), "until the end");
}

fn is_clean(image: &Path) -> bool {
    let info: serde_json::Value = serde_json::from_str(&ok(weldfs(["info", "--json"]).arg(image))).expect("JSON");
    info["clean"].as_bool().expect("a fact")
}

#[test]
fn what_the_page_of_the_wire_promises_holds_on_pmem() {
    let place = Place::new();
    let image = place.path("a.img");
    ok(weldfs(["mkfs", "--size=48M", "--medium=pmem"]).arg(&image));
    holds(serve(&image, &[]), &place.path("a.img.sock"), 128, 0);
    left_behind(&image);
}

#[test]
fn what_the_page_of_the_wire_promises_holds_on_a_disk_and_two_cores() {
    let place = Place::new();
    let image = place.image();
    holds(serve(&image, &["--cores=2"]), &place.path("a.img.sock"), 128, 0);
    left_behind(&image);
}

#[test]
fn what_the_page_of_the_wire_promises_holds_for_a_directory_of_the_host_as_far_as_it_has_it() {
    let place = Place::new();
    let dir = place.path("dir");
    std::fs::create_dir(&dir).expect("mkdir");
    let mut command = weldfs(["serve", "--hostdir"]);
    let device = Running::start(command.arg(&dir).stderr(Stdio::null()));
    ok(weldfs(["wait"]).arg(&dir));
    holds(device, &place.path("dir.sock"), 107, 21);
    assert_eq!(std::fs::read(dir.join("kept")).expect("it is there"), b"until the end");
    assert_eq!(std::fs::read_dir(&dir).expect("readable").count(), 1, "nothing else is");
}

/// A client that has published what takes a device many seconds, and begins when it is told to end.
fn backlog(socket: &Path) -> Running {
    let mut command = python("backlog.py");
    let mut client = Running::start(command.arg(socket).stdin(Stdio::piped()).stdout(Stdio::piped()));
    let mut said = String::new();
    BufReader::new(client.0.stdout.take().expect("a pipe")).read_line(&mut said).expect("a line");
    assert_eq!(said, "ready\n");
    client
}

fn durable_is_there(image: &Path) {
    assert_eq!(ok(&mut weldfs(["cat", &format!("{}:/durable", image.display())])), "kept");
}

#[test]
fn a_second_signal_a_second_later_ends_a_device_that_is_ending_as_a_crash_does() {
    for second in [Signal::TERM, Signal::INT] {
        let place = Place::new();
        let image = place.image();
        let mut device = serve(&image, &[]);
        let _client = backlog(&place.path("a.img.sock"));
        device.signal(Signal::TERM);
        std::thread::sleep(Duration::from_millis(300));
        // As a signal that is sent to a process and to its group arrives.
        device.signal(Signal::TERM);
        std::thread::sleep(Duration::from_millis(1500));
        assert!(device.0.try_wait().expect("waits").is_none(), "it had nothing left to do, or took the first for two");
        device.signal(second);
        device.ends();
        let status = device.0.wait().expect("it has ended");
        assert_eq!(status.signal(), Some(second.as_raw()), "{status}");
        assert!(!is_clean(&image));
        durable_is_there(&image);
    }
}

#[test]
fn a_device_that_is_told_to_end_drops_what_is_left_after_three_seconds() {
    let place = Place::new();
    let image = place.image();
    let mut device = serve(&image, &[]);
    let _client = backlog(&place.path("a.img.sock"));
    let start = Instant::now();
    device.signal(Signal::TERM);
    assert_eq!((device.ends(), is_clean(&image)), (Some(0), true));
    let took = start.elapsed();
    assert!(took < Duration::from_secs(10), "{took:?}");
    durable_is_there(&image);
}

#[test]
fn the_client_of_the_page_says_when_it_has_asked_nothing() {
    let place = Place::new();
    let none = client().arg(place.path("none.sock")).output().expect("python3 runs");
    assert_eq!(none.status.code(), Some(2), "{}", String::from_utf8_lossy(&none.stderr));
    let list = client().args(["--list", "--only", "rings"]).output().expect("python3 runs");
    assert!(list.status.success() && list.stdout.split(|b| *b == b'\n').count() > 10);
    let typo = client().args(["--list", "--only", "no such case"]).output().expect("python3 runs");
    assert!(typo.stdout.is_empty());
    let typo = client().arg(place.path("none.sock")).args(["--only", "no such case"]).output().expect("python3 runs");
    assert_eq!(typo.status.code(), Some(1), "nothing was asked");
}
