//! `weldfs crash` end to end: what asks for nothing, or for what is not there, is a wrong command line; a run that is
//! stopped says so; a report is never lost to a path that cannot be written.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

fn crash(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_weldfs")).arg("crash").args(args).output().expect("the command runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Refused as a wrong command line, at once, and says why.
fn refused(args: &[&str], why: &str) {
    let start = Instant::now();
    let out = crash(args);
    assert_eq!(out.status.code(), Some(2), "{args:?}: {}", text(&out.stdout));
    let said = text(&out.stderr);
    assert!(said.contains(why), "{args:?}: {said}");
    assert!(said.len() < 2000 && out.stdout.is_empty(), "{args:?}: {said}");
    assert!(start.elapsed() < Duration::from_secs(20), "{args:?} took {:?}", start.elapsed());
}

fn json(path: &Path) -> serde_json::Value {
    serde_json::from_slice(&fs::read(path).expect("a report")).expect("JSON")
}

#[test]
fn what_tests_nothing_is_a_wrong_command_line() {
    refused(&["--trace", ""], "at least one step");
    refused(&["--trace", " ;"], "at least one step");
    refused(&["--trace", "creat C durable@99999.0"], "no state 99999.0");
    refused(&["--trace", "creat C durable@10.99999"], "no state 10.99999");
    refused(&["--limit", "0"], "--limit");
    refused(&["--states", "0"], "--states");
    refused(&["--jobs", "0"], "--jobs");
    refused(&["--jobs", "257"], "--jobs");
    refused(&["--jobs", "99999999999"], "--jobs");
    refused(&["--depth", "0"], "--depth");
    refused(&["--workload", "random"], "--states or --limit");
}

#[test]
fn numbers_that_no_tiny_file_system_holds_are_refused_before_anything_runs() {
    refused(&["--trace", "read_modify_write foo patch 0 4000000"], "4000000 is more than 1048576");
    refused(&["--trace", "append bar 1099511627776"], "1099511627776 is more than 1310720");
    refused(&["--trace", "append bar 4294967295"], "4294967295 is more than 1310720");
    refused(&["--trace", "append bar 2093056"], "2093056 is more than 1310720");
    refused(&["--trace", "chmod foo 77777777"], "77777777 is more than 7777");
    refused(&["--trace", "fallocate foo reserve 0 99999999"], "99999999 is more than 1310720");
}

#[test]
fn a_report_that_cannot_be_written_is_known_before_the_run() {
    let dir = tempfile::tempdir().expect("a folder");
    let nowhere = dir.path().join("no/such/folder");
    let out = crash(&["--limit", "2", "--json", nowhere.to_str().expect("text")]);
    assert_eq!(out.status.code(), Some(1));
    assert!(out.stdout.is_empty(), "nothing ran: {}", text(&out.stdout));
    assert!(text(&out.stderr).contains("no/such/folder"), "{}", text(&out.stderr));
    // No report: no file, and the old one stays.
    let (new, old) = (dir.path().join("new"), dir.path().join("old"));
    fs::write(&old, "{}".repeat(5000)).expect("writes");
    for path in [&new, &old] {
        refused(&["--trace", "creat C@9999.0", "--json", path.to_str().expect("text")], "no state");
    }
    assert!(!new.exists() && fs::read(&old).expect("reads").len() == 10_000);
    for path in [&new, &old] {
        let out = crash(&["--trace", "creat C durable", "--depth", "3", "--json", path.to_str().expect("text")]);
        assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
        let report = json(path);
        let number = |key: &str| report[key].as_u64().unwrap_or_else(|| panic!("{key}: {report}"));
        assert_eq!((report["interrupted"].as_bool(), number("bad"), number("depth")), (Some(false), 0, 3));
        assert!(number("states") >= number("unique_states") && number("unique_states") > 1, "{report}");
        assert!(number("recovery_states") > 0, "{report}");
    }
}

#[test]
fn a_signal_ends_the_run_in_order_with_an_exit_code_and_a_mark_in_the_report() {
    for signal in ["INT", "TERM"] {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("report");
        let mut run = Command::new(env!("CARGO_BIN_EXE_weldfs"));
        run.args(["crash", "--workload", "two-op", "--medium", "pmem", "--jobs", "1", "--json"]).arg(&path);
        let run = run.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the command runs");
        // Hours remain when it comes. The file of the report is made when the run is about to begin.
        let start = Instant::now();
        while !path.exists() && start.elapsed() < Duration::from_secs(30) {
            std::thread::sleep(Duration::from_millis(10));
        }
        std::thread::sleep(Duration::from_secs(1));
        let kill = Command::new("kill").args([&format!("-{signal}"), &run.id().to_string()]).status();
        assert!(kill.expect("kill runs").success());
        let out = run.wait_with_output().expect("it ends");
        assert!(start.elapsed() < Duration::from_secs(60), "{signal} took {:?}", start.elapsed());
        assert_eq!(out.status.code(), Some(130), "{signal}: {}", text(&out.stderr));
        assert!(text(&out.stdout).starts_with("stopped; until then:"), "{}", text(&out.stdout));
        assert_eq!(json(&path)["interrupted"].as_bool(), Some(true));
    }
}
