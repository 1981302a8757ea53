//! `weldfs demo`: what it says is so, and its JSON has all of it.

use crate::images::{Bench, json};
use crate::skips::skip;
use std::process::{Command, Stdio};

/// The demo where /dev/shm has no room for a measurement, which takes most of its time; none, said, where that cannot
/// be arranged.
pub(crate) fn unmeasured(test: &str, options: &str) -> Option<Command> {
    let narrow = |script: &str| {
        let mut command = Command::new("unshare");
        let script = format!("mount -t tmpfs -o size=1M none /dev/shm && {script}");
        command.args(["--mount", "--map-root-user", "sh", "-c", &script, "sh", env!("CARGO_BIN_EXE_weldfs")]);
        command.stdin(Stdio::null());
        command
    };
    if !narrow("true").output().is_ok_and(|out| out.status.success()) {
        skip(test, "no mount namespace with a small /dev/shm may be made here (unshare, mount)");
        return None;
    }
    Some(narrow(&format!("exec \"$1\" demo {options}")))
}

#[test]
fn slots_answer_as_the_host_does_move_less_and_lose_nothing() {
    let name = "demo::slots_answer_as_the_host_does_move_less_and_lose_nothing";
    let Some(mut command) = unmeasured(name, "--quick --json") else { return };
    let bench = Bench::new();
    let out = command.env("TMPDIR", bench.dir.path()).output().expect("runs");
    let text = String::from_utf8(out.stdout).expect("text");
    assert!(out.status.success(), "{text}\n{}", String::from_utf8_lossy(&out.stderr));
    let facts = json(&text);
    assert_eq!((&facts["good"], facts["chapters"].as_array().map(Vec::len)), (&true.into(), Some(2)));
    let number = |value: &serde_json::Value| value.as_u64().expect("a number");
    let questions = facts["slots"]["questions"].as_array().expect("questions");
    assert_eq!(questions.iter().map(|q| q["kernel"].as_str()).collect::<Vec<_>>(), [Some("grep"), Some("sql")]);
    for asked in questions {
        let link = |who: &str| number(&asked[who]["link_bytes_in"]) + number(&asked[who]["link_bytes_out"]);
        let bytes = number(&asked["bytes"]);
        assert!(asked["same"] == true && number(&asked["found"]) > 0, "{asked}");
        assert!(link("host") > bytes && link("drive") * 10 < bytes, "{asked}");
        assert_eq!((number(&asked["drive"]["slot_bytes_in"]), number(&asked["host"]["slot_bytes_in"])), (bytes, 0));
        assert!(number(&asked["drive"]["slot_ns"]) > 0, "{asked}");
    }
    let log = &facts["slots"]["log"];
    let (before, verdict) = (number(&log["acknowledged_before"]), &log["verdict"]);
    assert!(before > 0 && number(&log["counted"]["slot_packets"]) >= before, "{log}");
    assert!(number(&verdict["acknowledged"]) >= before && verdict["lost"] == 0 && verdict["half"] == 0, "{log}");
    assert_eq!(number(&log["counted"]["slot_fallbacks"]), 0, "{log}");
    // RTL where it is built; else, or where it is of no use and why is said, the model.
    let rtl = log["library"].is_string() && log["unused"].is_null();
    assert_eq!(log["backend"], if rtl { "rtl" } else { "model" }, "{log}");
}
