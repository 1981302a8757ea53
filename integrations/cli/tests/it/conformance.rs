//! docs/COMMANDS.md put to real devices by a client that was written from that page alone, in another language:
//! `integrations/conformance`.

use crate::life::{Place, Running, is_root, ok, serve, weldfs};
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn client() -> Command {
    let mut command = Command::new("python3");
    command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/../conformance")).env("PYTHONDONTWRITEBYTECODE", "1");
    command
}

/// Runs all cases; every one must hold. Those that may be left out, for want of rights or because a directory of the
/// host does not promise them, are counted: a device of which too little was asked has not passed.
fn holds(socket: &Path, asked_at_least: u64, left_out: u64) {
    let Output { status, stdout, stderr } = client().arg(socket).arg("--json").output().expect("python3 runs");
    let stderr = String::from_utf8_lossy(&stderr);
    let report: serde_json::Value = serde_json::from_slice(&stdout).unwrap_or_else(|e| panic!("{e}: {stderr}"));
    let cases = report["cases"].as_array().expect("cases");
    let of = |state: &str| cases.iter().filter(|c| c["state"] == state).map(|c| format!("\n{c}")).collect::<String>();
    assert!(status.success() && report["failed"] == 0, "{}{stderr}", of("failed"));
    let without_rights = if is_root() { 0 } else { 10 };
    assert!(report["skipped"].as_u64() <= Some(left_out + without_rights), "{}", of("skipped"));
    assert!(report["ok"].as_u64() >= Some(asked_at_least - without_rights), "{} cases", report["ok"]);
}

#[test]
fn what_the_page_of_the_wire_promises_holds_on_pmem() {
    let place = Place::new();
    let image = place.path("a.img");
    ok(weldfs(["mkfs", "--size=48M", "--medium=pmem"]).arg(&image));
    let _device = serve(&image, &[]);
    holds(&place.path("a.img.sock"), 110, 0);
}

#[test]
fn what_the_page_of_the_wire_promises_holds_on_a_disk_and_two_cores() {
    let place = Place::new();
    let image = place.image();
    let _device = serve(&image, &["--cores=2"]);
    holds(&place.path("a.img.sock"), 110, 0);
}

#[test]
fn what_the_page_of_the_wire_promises_holds_for_a_directory_of_the_host_as_far_as_it_has_it() {
    let place = Place::new();
    let dir = place.path("dir");
    std::fs::create_dir(&dir).expect("mkdir");
    let mut command = weldfs(["serve", "--hostdir"]);
    let _device = Running::start(command.arg(&dir).stderr(Stdio::null()));
    ok(weldfs(["wait"]).arg(&dir));
    holds(&place.path("dir.sock"), 85, 30);
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
