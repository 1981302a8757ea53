//! `weldfs bench micro` and `macro` in their quick mode: that they run, measure what they say, and tidy up. Counts are
//! compared, times never: other tests run beside this one.

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

fn bench(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weldfs"));
    command.arg("bench").args(args).stdin(Stdio::null());
    command
}

fn said(out: &Output) -> String {
    String::from_utf8_lossy(&out.stderr).into_owned()
}

/// A folder of the host's to compare with: in memory, where there is such a place, or on the disk.
fn folder(in_memory: bool) -> tempfile::TempDir {
    match Path::new("/dev/shm").is_dir() && in_memory {
        true => tempfile::tempdir_in("/dev/shm").expect("a folder in memory"),
        false => tempfile::tempdir().expect("a folder"),
    }
}

/// Runs an experiment against a peer called `here` and returns its JSON and what it printed.
fn report(dir: &tempfile::TempDir, args: &[&str]) -> (Value, String) {
    let json = dir.path().join("report.json");
    let peer = format!("here={}", dir.path().display());
    let mut command = bench(args);
    let out = command.args(["--quick", "--peer", &peer, "--json"]).arg(&json).output().expect("it runs");
    assert!(out.status.success(), "{args:?}: {}", said(&out));
    let text = std::fs::read(&json).expect("a report was written");
    let left: Vec<_> = std::fs::read_dir(dir.path()).expect("a folder").flatten().map(|e| e.file_name()).collect();
    assert_eq!(left, ["report.json"], "nothing but the report is left behind");
    (serde_json::from_slice(&text).expect("JSON"), String::from_utf8(out.stdout).expect("text"))
}

fn rows(report: &Value) -> &Vec<Value> {
    report["rows"].as_array().expect("rows")
}

fn number(row: &Value, name: &str) -> f64 {
    row[name].as_f64().unwrap_or_else(|| panic!("{name} is a number in {row}"))
}

const NUMBERS: [&str; 13] = [
    "size",
    "depth",
    "threads",
    "ns_per_op",
    "ops_per_s",
    "p50_ns",
    "p99_ns",
    "crossings",
    "payload_copies",
    "metadata_copies",
    "syscalls",
    "link_bytes",
    "flushes",
];

fn has_schema(row: &Value) {
    NUMBERS.iter().for_each(|name| assert!(number(row, name) >= 0.0, "{name} in {row}"));
    for name in ["bench", "system", "op", "phase", "medium", "durability"] {
        assert!(row[name].as_str().is_some_and(|text| !text.is_empty()), "{name} in {row}");
    }
    assert!(row["power_safe"].is_boolean() && number(row, "ops") >= 64.0 && number(row, "ns_per_op") > 0.0);
    assert!(number(row, "p50_ns") <= number(row, "p99_ns"), "{row}");
}

/// Steps of an operation: single commands or plain calls, without the sync of durable ones.
fn steps(op: &str) -> f64 {
    match op {
        "append" | "write" | "read" | "read_checksum_verify" | "append_checksum_write_gathered" => 1.0,
        "append_checksum_write" | "read_modify_write" | "read_modify_write_narrow" => 2.0,
        "open_read_write_close" | "multi_write" | "concat" => 4.0,
        "copy_range" | "compress_write" | "encrypt_write" | "stat_many" | "log_recover" => 1.0,
        "atomic_replace" => 4.0,
        "create_tree" => 13.0,
        "append_to_record" => 3.0,
        // A quarter of the logs is full: renamed, closed, made anew.
        "append_and_rotate" => 4.0 + 3.0 / 4.0,
        "index_walk" => 8.0,
        // Rewound; two looks at 32 KiB of entries at most, and one that finds no more; each name.
        "readdir_plus" => 259.0,
        _ => 3.0,
    }
}

/// What changes nothing, besides what is read by name.
const READS: [&str; 6] = ["read", "read_checksum_verify", "stat_many", "readdir_plus", "log_recover", "index_walk"];

/// Whether the report says why there is no such row.
fn says(report: &Value, what: &str) -> bool {
    report["skipped"].as_array().is_some_and(|all| all.iter().any(|s| s.as_str().is_some_and(|s| s.starts_with(what))))
}

/// Whether some row has this operation, class and system.
fn has(rows: &[Value], op: &str, class: &str, system: &str) -> bool {
    rows.iter().any(|r| r["op"] == op && r["durability"] == class && r["system"] == system)
}

/// The operations with an opcode of their own, and their variants.
const PLAIN: &str = "append_checksum_write,append_checksum_write_gathered,append,write,read,open_write_close,\
                     open_read_close,open_read_close_copied,open_read_close_batched,open_write_close_batched,\
                     open_read_write_close,read_checksum_verify,read_modify_write,read_modify_write_narrow";
/// Those that travel as programs, and listings and lookups of many names.
const PROGRAMS: &str = "atomic_replace,copy_range,concat,compress_write,encrypt_write,create_tree,stat_many,\
                        readdir_plus,log_recover,append_to_record,append_and_rotate,index_walk,multi_write";

#[test]
fn micro_measures_programs_against_what_the_host_does_instead() {
    let only = format!("--only={PROGRAMS}");
    let systems = "--systems=weldfs-fused,weldfs-unfused,hostdir,posix,uring";
    let (report, _) = report(&folder(true), &["micro", "--phases=burst", "--depths=1", &only, systems]);
    let rows = rows(&report);
    rows.iter().for_each(has_schema);
    rows.iter().for_each(counts_are_right);
    assert!(!rows.iter().any(|r| r["system"] == "weldfs-embedded"), "it was not asked for");
    for op in PROGRAMS.split(',') {
        let (class, reads) =
            if op == "atomic_replace" { ("durable", false) } else { ("volatile", READS.contains(&op)) };
        assert!(has(rows, op, class, "weldfs-fused"), "{op}");
        assert_eq!(has(rows, op, "durable", "weldfs-fused"), !reads, "{op}: what changes nothing has one class");
        let single = !["stat_many", "readdir_plus", "log_recover"].contains(&op);
        assert_eq!(has(rows, op, class, "weldfs-unfused"), single, "{op}");
        assert!(has(rows, op, class, "posix:here") || says(&report, "here, durable"), "{op}");
    }
    for op in ["copy_range", "concat", "compress_write", "encrypt_write", "stat_many", "multi_write"] {
        assert!(has(rows, op, "volatile", "uring:here") != says(&report, "uring:here"), "{op}");
    }
}

#[test]
fn programs_keep_their_order_with_many_in_flight() {
    let only = format!("--only={PROGRAMS}");
    let args = ["micro", "--phases=burst", "--depths=32", &only, "--systems=weldfs-fused,uring", "--classes=volatile"];
    let (report, _) = report(&folder(true), &args);
    rows(&report).iter().for_each(counts_are_right);
    assert!(has(rows(&report), "concat", "volatile", "weldfs-fused"));
}

#[test]
fn new_files_and_their_directories_are_synced_on_a_disk() {
    let args = ["micro", "--phases=burst", "--depths=1", "--classes=durable", "--systems=weldfs-fused,posix"];
    let only = "--only=atomic_replace,create_tree,append_and_rotate,multi_write";
    let (report, _) = report(&folder(false), &[&args[..], &[only]].concat());
    rows(&report).iter().for_each(counts_are_right);
    for op in ["atomic_replace", "create_tree", "append_and_rotate", "multi_write"] {
        let plain = has(rows(&report), op, "durable", "posix:here");
        assert!(plain != says(&report, "here, durable"), "{op}: a row, or a reason");
    }
}

#[test]
fn micro_measures_every_operation_on_every_system_and_counts_what_they_did() {
    let (report, text) = report(&folder(true), &["micro", "--phases=burst", &format!("--only={PLAIN}")]);
    for name in ["machine", "build", "rows", "sequences", "targets", "skipped", "peers"] {
        assert!(!report[name].is_null(), "{name}");
    }
    assert_eq!(report["quick"], true);
    assert!(text.contains("the times mean nothing"));
    let rows = rows(&report);
    rows.iter().for_each(has_schema);
    rows.iter().for_each(counts_are_right);
    for system in ["weldfs-fused", "weldfs-unfused", "weldfs-embedded", "posix:here"] {
        assert!(has(rows, "read_checksum_verify", "volatile", system), "{system}");
    }
    for op in ["append_checksum_write", "open_write_close", "open_read_write_close", "read_modify_write"] {
        assert!(has(rows, op, "volatile", "hostdir:here"), "{op}");
        for system in ["weldfs-fused", "weldfs-unfused", "weldfs-embedded"] {
            assert!(has(rows, op, "volatile", system) && has(rows, op, "durable", system), "{op}, {system}");
        }
        assert!(has(rows, op, "volatile", "posix:here"), "{op}");
        assert!(has(rows, op, "volatile", "uring:here") != says(&report, "uring:here"), "{op}");
    }
    assert!(
        report["sequences"].as_array().is_some_and(|s| s.len() >= 3 * 3),
        "three sequences, three systems at least"
    );
}

#[test]
fn micro_syncs_on_a_disk_and_goes_over_the_log_in_the_steady_phase() {
    let only = "--only=append_checksum_write,open_write_close";
    let (report, _) = report(&folder(false), &["micro", only, "--depths=1", "--markdown"]);
    let rows = rows(&report);
    rows.iter().for_each(has_schema);
    rows.iter().for_each(counts_are_right);
    for op in ["append_checksum_write", "open_write_close"] {
        let plain = has(rows, op, "durable", "posix:here");
        assert!(plain != says(&report, "here, durable"), "{op}: a row, or a reason");
        let steady = |r: &&Value| r["op"] == op && r["phase"] == "steady" && r["system"] == "weldfs-fused";
        assert!(rows.iter().filter(steady).any(|r| number(r, "log_lengths") > 0.0), "{op}");
    }
    // Where the folder is on a disk there are WeldFS rows on the same disk to compare with.
    if report["peers"][0]["on_disk"] == true {
        assert!(rows.iter().any(|r| r["system"] == "weldfs-fused" && r["medium"] == "block image on a disk"));
    }
}

/// Operations in one command: eight files of a batch, 64 names, a third of a listing, else one.
fn in_a_command(op: &str) -> f64 {
    match op {
        "stat_many" => 64.0,
        // Two answers with entries, and one without.
        "readdir_plus" => 1.0 / 3.0,
        op if op.ends_with("_batched") => 8.0,
        _ => 1.0,
    }
}

/// What holds for every operation, whoever does it and however busy the machine is.
fn counts_are_right(row: &Value) {
    let (op, size) = (row["op"].as_str().unwrap_or_default(), number(row, "size"));
    let durable = row["durability"] == "durable";
    let writes = !op.contains("read_close") && !READS.contains(&op);
    match row["system"].as_str().unwrap_or_default() {
        "weldfs-fused" | "weldfs-embedded" | "hostdir:here" => {
            // Eight operations in one command, where they go in batches.
            assert_eq!(number(row, "crossings"), 1.0 / in_a_command(op), "{row}");
        }
        // What the host copies by one call is a read and a write each.
        "weldfs-unfused" => {
            let twice = if matches!(op, "copy_range" | "concat") { 2.0 } else { 1.0 };
            assert_eq!(number(row, "crossings"), steps(op) * twice, "{row}");
        }
        "posix:here" => {
            // Every new file of its own, and the directory whose entries changed.
            let each = match op {
                "atomic_replace" => 2.0,
                "create_tree" => 5.0,
                "multi_write" => 4.0,
                // The directory, too, where a log was renamed.
                "append_and_rotate" => 1.0 + 1.0 / 4.0,
                _ => 1.0,
            };
            let syncs = if durable && writes { each } else { 0.0 };
            assert_eq!((number(row, "syscalls"), number(row, "flushes")), (steps(op) + syncs, syncs), "{row}");
        }
        _ => {}
    }
    // The payload went over, and for a fused read-modify-write only the field did.
    let fused = row["system"].as_str().is_some_and(|s| s == "weldfs-fused" || s == "weldfs-embedded");
    match op {
        "read_modify_write" | "read_modify_write_narrow" if fused => {
            assert!((64.0..512.0).contains(&number(row, "link_bytes")), "{row}");
        }
        // Only the field goes over here as well; a host directory's device does not count it.
        "read_modify_write_narrow" => {}
        "read_modify_write" if row["system"] == "hostdir:here" => {}
        // What is moved is names and attributes, or stays inside.
        "copy_range" | "concat" | "stat_many" | "readdir_plus" | "log_recover" | "append_to_record" => {}
        // The device counts no bytes that a program fills a buffer with; elsewhere a frame is shorter than its payload.
        "compress_write" | "encrypt_write" if fused || row["system"] == "hostdir:here" => {}
        "compress_write" => assert!(number(row, "link_bytes") >= size / 4.0, "{row}"),
        _ => assert!(number(row, "link_bytes") >= size, "{row}"),
    }
    if fused && matches!(op, "append" | "write" | "read" | "open_write_close" | "open_read_close" | "read_modify_write")
    {
        assert_eq!(number(row, "payload_copies"), 1.0, "{row}");
    }
    if fused && durable && row["phase"] == "burst" && row["depth"] == 1 {
        // One for each command, which is one for eight operations of a batch.
        assert!(number(row, "flushes") >= 1.0 / in_a_command(op), "{row}");
    }
}

#[test]
fn a_fused_operation_makes_no_system_call_while_both_sides_poll() {
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        crate::skips::skip(
            "bench_smoke: a_fused_operation_makes_no_system_call_while_both_sides_poll",
            "one core: client and device cannot both poll",
        );
        return;
    }
    // Whoever else uses the cores may put one side to sleep: some quiet moment shows what polling costs.
    let args = ["micro", "--phases=burst", "--depths=1", "--only=open_write_close,append"];
    let (mut least, start, dir) = (f64::INFINITY, Instant::now(), folder(true));
    while least > 0.0 && start.elapsed() < Duration::from_secs(120) {
        let (report, _) = report(&dir, &args);
        let fused = rows(&report).iter().filter(|r| r["system"] == "weldfs-fused");
        least = fused.map(|r| number(r, "syscalls")).fold(least, f64::min);
    }
    assert_eq!(least, 0.0, "system calls per operation, at best");
}

#[test]
fn what_cannot_be_run_is_refused_in_one_sentence() {
    for args in [
        &["micro", "--only=nothing"][..],
        &["micro", "--sizes=100"],
        &["micro", "--depths=33"],
        &["micro", "--peer=here"],
        &["micro", "--peer=here=/no/such/directory"],
        &["micro", "--sequences", "--sizes=4K"],
        &["macro", "--only=database"],
        &["macro", "--threads=0"],
        &["macro", "--quick", "--seconds=5"],
        &["macro", "--set=2G"],
        &["micro", "--quick", "--rounds=1"],
        &["micro", "--systems=ext4"],
        &["macro", "--systems=weldfs-embedded"],
        &["macro", "--peers=ext4"],
        &["micro", "--prepare", "--peers=zfs"],
        &["fairness", "--only=b-weights", "--policy=rr"],
    ] {
        let out = bench(args).output().expect("it runs");
        assert_eq!(out.status.code(), Some(2), "{args:?}: {}", said(&out));
    }
}

/// Starts a long run against a directory, interrupts it, and returns how it ended.
fn interrupted(verb: &str, dir: &Path) -> Output {
    let peer = format!("here={}", dir.display());
    let mut command = bench(&[verb, "--peer", &peer]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let start = Instant::now();
    while std::fs::read_dir(dir).expect("a folder").next().is_none() && start.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(20));
    }
    let pid = rustix::process::Pid::from_raw(child.id() as i32).expect("a process");
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("a signal");
    child.wait_with_output().expect("it ends")
}

#[test]
fn an_interrupted_run_ends_in_order_and_leaves_nothing_behind() {
    for verb in ["micro", "macro"] {
        let dir = folder(true);
        let out = interrupted(verb, dir.path());
        assert_eq!(out.status.code(), Some(130), "{verb}: {}", said(&out));
        assert!(said(&out).contains("the experiment was interrupted"), "{verb}: {}", said(&out));
        assert_eq!(std::fs::read_dir(dir.path()).expect("a folder").count(), 0, "{verb}");
    }
}

#[test]
fn a_system_that_fails_is_named_the_others_are_kept_and_the_exit_code_says_so() {
    let (dir, out) = (folder(true), tempfile::tempdir().expect("a folder"));
    let (peer, json) = (format!("gone={}", dir.path().display()), out.path().join("report.json"));
    let only = ["--quick", "--only=web-server", "--threads=1", "--systems=weldfs-fused,posix", "--peer", &peer];
    let mut command = bench(&["macro"]);
    let child = command.args(only).arg("--json").arg(&json).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = child.spawn().expect("it starts");
    // Whatever is made there goes at once: plain calls cannot do their work.
    while child.try_wait().expect("a child").is_none() {
        for entry in std::fs::read_dir(dir.path()).expect("a folder").flatten() {
            let _ = std::fs::remove_dir_all(entry.path());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let out = child.wait_with_output().expect("it ends");
    assert_eq!(out.status.code(), Some(1), "{}", said(&out));
    assert!(said(&out).contains("a cell failed: posix:gone: web-server, 1 thread(s): "), "{}", said(&out));
    assert!(String::from_utf8_lossy(&out.stdout).contains("FAILED: posix:gone: web-server"));
    let report: Value = serde_json::from_slice(&std::fs::read(&json).expect("a report")).expect("JSON");
    let systems: Vec<_> = rows(&report).iter().map(|r| r["system"].as_str().unwrap_or_default()).collect();
    assert_eq!(systems, ["weldfs-fused"]);
    assert_eq!(report["failed"][0]["system"], "posix:gone");
}

/// Filebench's operations in a turn, and commands or calls: fused, single (which are those of plain calls, too).
const SERVERS: [(&str, f64, f64, f64); 4] = [
    ("mail-server", 13.0, 4.0, 13.0),
    ("file-server", 11.0, 5.0, 11.0),
    ("web-server", 31.0, 11.0, 31.0),
    ("web-proxy", 19.0, 7.0, 19.0),
];

#[test]
fn macro_runs_every_server_on_every_system_and_counts_what_was_fused() {
    let (report, text) = report(&folder(true), &["macro", "--threads=1,2"]);
    assert_eq!(report["quick"], true);
    assert!(text.contains("the figures mean nothing") && text.contains("share of operations"));
    let rows = rows(&report);
    for (server, operations, fused, single) in SERVERS {
        for threads in [1, 2] {
            let row = |system: &str| {
                let of = |r: &&Value| r["personality"] == server && r["threads"] == threads && r["system"] == system;
                rows.iter().find(of).unwrap_or_else(|| panic!("{server}, {threads} thread(s), {system}"))
            };
            let near = |row: &Value, due: f64| {
                let found = number(row, "crossings") * operations;
                assert!((found - due).abs() < 0.01, "{found} instead of {due}: {row}");
            };
            near(row("weldfs-fused"), fused);
            near(row("weldfs-unfused"), single);
            // Where nothing is kept there is no mail server, and the report says so.
            let plain = server != "mail-server" || report["peers"][0]["fs"] != "tmpfs";
            assert!(plain || says(&report, "here, mail-server"));
            let systems = ["weldfs-fused", "weldfs-unfused", "posix:here"].into_iter().take(2 + usize::from(plain));
            systems.clone().skip(2).for_each(|system| near(row(system), single));
            assert!(
                number(row("weldfs-fused"), "fused_share") > 0.8 && number(row("weldfs-unfused"), "fused_share") == 0.0
            );
            for system in systems {
                let row = row(system);
                assert!(number(row, "ops") >= operations && number(row, "ops_per_s") > 0.0, "{row}");
                assert!(number(row, "link_bytes") > 0.0 && number(row, "data_bytes") > 1e6, "{row}");
                let syncs = number(row, "flushes") * operations;
                assert!(server != "mail-server" || syncs > 0.5, "the mail server syncs twice a turn: {row}");
            }
        }
    }
}

#[test]
fn a_mail_server_on_a_disk_syncs_twice_a_turn_and_systems_can_be_left_out() {
    let args = ["macro", "--threads=1", "--only=mail-server", "--systems=weldfs-fused,posix"];
    let (report, _) = report(&folder(false), &args);
    let rows = rows(&report);
    assert!(rows.iter().all(|r| r["system"] == "weldfs-fused" || r["system"] == "posix:here"), "{rows:?}");
    let plain: Vec<_> = rows.iter().filter(|r| r["system"] == "posix:here").collect();
    assert!(plain.len() == 1 || says(&report, "here, mail-server"), "a row, or a reason");
    for row in plain {
        assert_eq!((number(row, "crossings") * 13.0).round(), 13.0, "{row}");
        assert_eq!((number(row, "flushes") * 13.0).round(), 2.0, "{row}");
    }
}

/// Runs the experiment on weights, a second each, until every tenant had commands that ended, three times at most: on a
/// busy machine a tenant's process may get no processor for as long.
fn weights_experiment(json: &Path, svg: &Path) -> Value {
    for _ in 0..3 {
        let mut command =
            bench(&["fairness", "--quick", "--only", "b-weights", "--policy", "cfs", "--simulate", "--cores=1"]);
        let out = command.arg("--json").arg(json).arg("--svg").arg(svg).output().expect("it runs");
        assert!(out.status.success(), "{}", said(&out));
        let report: Value = serde_json::from_slice(&std::fs::read(json).expect("a report")).expect("JSON");
        let tenants = || rows(&report).iter().flat_map(|row| row["tenants"].as_array().expect("tenants"));
        if tenants().all(|t| number(t, "ops_per_s") > 0.0) {
            return report;
        }
    }
    panic!("three times a tenant did nothing for a second");
}

/// Tenants of an experiment: names, weights, and which of them must have ended commands.
fn has_tenants(row: &Value, expected: &[(&str, u64)]) {
    let tenants = row["tenants"].as_array().expect("tenants");
    let found: Vec<_> =
        tenants.iter().map(|t| (t["name"].as_str().unwrap_or(""), number(t, "weight") as u64)).collect();
    assert_eq!(found, expected, "{row}");
    for t in tenants {
        let [p50, p99, p999] = ["p50_us", "p99_us", "p999_us"].map(|name| number(t, name));
        assert!(0.0 < p50 && p50 <= p99 && p99 <= p999, "{t}");
        assert!(number(t, "ops_per_s") > 0.0 && number(t, "device_ns") > 0.0 && number(t, "slowdown") > 0.0, "{t}");
    }
    assert!((0.0..=1.0 + 1e-9).contains(&number(row, "jain")), "{row}");
}

#[test]
fn fairness_runs_with_a_process_per_tenant_and_reports_rows_and_verdicts() {
    let dir = folder(true);
    let (json, svg) = (dir.path().join("report.json"), dir.path().join("plots"));
    let report = weights_experiment(&json, &svg);
    assert!(report["machine"]["cpu"].is_string() && report["profile"].is_string() && report["quick"] == true);
    let names: Vec<_> = rows(&report).iter().map(|r| r["experiment"].as_str().unwrap_or("")).collect();
    assert_eq!(names, ["b-weights, 1:1:1", "b-weights, 1:2:4"]);
    assert!(rows(&report).iter().all(|r| r["policy"] == "cfs"));
    has_tenants(&rows(&report)[0], &[("random-4K-100", 100), ("append-64K-100", 100), ("read-16K-100", 100)]);
    has_tenants(&rows(&report)[1], &[("random-4K-100", 100), ("append-64K-200", 200), ("read-16K-400", 400)]);
    let verdicts = report["verdicts"].as_array().expect("verdicts");
    assert_eq!(verdicts.len(), 4, "two rows and their predictions: {verdicts:?}");
    for v in verdicts {
        assert!(v["aim"].is_string() && v["sense"] == "at most" && number(v, "bound") > 1.0, "{v}");
        assert_eq!(v["verdict"], "not judged", "whether an aim is met is no matter of a second on a busy machine");
    }
    assert!(svg.join("fairness-b-weights.svg").is_file());
    let twice = bench(&["fairness", "--quick", "--rounds", "2"]).output().expect("it runs");
    assert_eq!(twice.status.code(), Some(2), "{}", said(&twice));
}

#[test]
fn busy_times_every_operation_served_embedded_and_by_the_host_with_and_without_company() {
    let dir = folder(true);
    for load in ["spin", "compile"] {
        if load == "compile" && Command::new("cc").arg("--version").output().is_err() {
            super::skips::skip("bench_smoke::busy_times_every_operation", "cc is not installed");
            continue;
        }
        let (report, text) = report(&dir, &["busy", "--load", load]);
        std::fs::remove_file(dir.path().join("report.json")).expect("the report goes");
        assert!(text.contains(&format!("busy processes: {load}")), "{text}");
        let rows = rows(&report);
        for op in ["append_checksum_write", "open_write_close", "read", "stat"] {
            let both = &[1.0, 32.0][..];
            for (system, depths) in [("host", &[1.0][..]), ("served", both), ("embedded", both), ("inline", both)] {
                for (depth, busy) in depths.iter().flat_map(|d| [(*d, 0.0), (*d, 1.0)]) {
                    let is = |row: &&Value| {
                        row["op"] == op
                            && row["system"] == system
                            && number(row, "depth") == depth
                            && number(row, "busy") == busy
                    };
                    let row = rows.iter().find(is).unwrap_or_else(|| panic!("{op} {system} {depth} {busy}: {text}"));
                    assert!(number(row, "ops") > 0.0 && number(row, "p50") <= number(row, "p99"), "{row}");
                    assert!(number(row, "p50") > 0.0 && number(row, "to_idle") > 0.0, "{row}");
                }
            }
        }
        assert_eq!(rows.len(), 4 * 2 * 7);
    }
}
