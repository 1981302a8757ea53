//! Looking at a running device from outside: `stats`, `top` and `trace` against `serve`, under load.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use weldfs::{At, Client, OpenFlags};

/// A device in memory, in a process of its own, with a tenant for whoever runs this.
struct Served {
    child: Child,
    socket: PathBuf,
    dir: tempfile::TempDir,
}

impl Served {
    fn start(cores: u32) -> Served {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let (socket, tenants) = (dir.path().join("socket"), dir.path().join("tenants.toml"));
        let uid = rustix::process::getuid().as_raw();
        let text = format!("[[tenant]]\nname = \"alice\"\nuids = [{uid}]\n[[tenant]]\nname = \"bob\"\nuids = [4711]\n");
        std::fs::write(&tenants, text).expect("written");
        let child = Command::new(env!("CARGO_BIN_EXE_weldfs"))
            .args(["serve", "--ram=256M", &format!("--cores={cores}"), "--policy=cfs"])
            .args([Path::new("--socket"), &socket, Path::new("--tenants"), &tenants])
            .stderr(Stdio::null())
            .spawn()
            .expect("the device starts");
        let start = Instant::now();
        while Client::connect(&socket).is_err() {
            assert!(start.elapsed() < Duration::from_secs(30), "the device answers");
            std::thread::sleep(Duration::from_millis(5));
        }
        Served { child, socket, dir }
    }

    fn command(&self, verb: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weldfs"));
        command.arg(verb).arg(&self.socket).stdin(Stdio::null());
        command
    }

    fn ok(&self, verb: &str, args: &[&str]) -> String {
        let out = self.command(verb).args(args).output().expect("the command runs");
        assert!(out.status.success(), "{verb} {args:?}: {}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).expect("text")
    }

    fn json(&self, verb: &str, args: &[&str]) -> Value {
        serde_json::from_str(&self.ok(verb, args)).expect("JSON")
    }

    /// Runs `body` while three clients keep the device busy with fused commands.
    fn under_load<T>(&self, body: impl FnOnce() -> T) -> T {
        let stop = Arc::new(AtomicBool::new(false));
        let clients: Vec<_> = (0..3)
            .map(|t| {
                let (client, stop) = (Client::connect(&self.socket).expect("attached"), stop.clone());
                let flags = OpenFlags::WRITE | OpenFlags::CREATE | OpenFlags::TRUNC;
                std::thread::spawn(move || {
                    while !stop.load(Relaxed) {
                        let data = &[t as u8; 50_000][..];
                        client
                            .open_write_close(format!("/load-{t}"), flags, 0o644, At::Offset(0), data)
                            .expect("written");
                    }
                })
            })
            .collect();
        let out = body();
        stop.store(true, Relaxed);
        clients.into_iter().for_each(|c| c.join().expect("a client"));
        out
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // A test that failed leaves no device behind; who ends properly does not mind.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn signal(child: &Child, signal: Signal) {
    let pid = Pid::from_raw(child.id() as i32).expect("a process");
    kill_process(pid, signal).expect("a signal");
}

fn failure(out: &Output) -> (Option<i32>, String) {
    (out.status.code(), String::from_utf8_lossy(&out.stderr).into_owned())
}

#[test]
fn stats_tells_people_and_machines_the_same() {
    let served = Served::start(1);
    let client = Client::connect(&served.socket).expect("attached");
    (0..5).for_each(|n| client.write(format!("/{n}"), &[1; 10_000]).expect("written"));
    let json = served.json("stats", &["--json"]);
    let alice = json["tenants"].as_array().into_iter().flatten().find(|t| t["name"] == "alice").expect("she is there");
    assert_eq!((&alice["payload_bytes_in"], &json["total"]["payload_bytes_in"]), (&50_000.into(), &50_000.into()));
    assert!(
        alice["latency"]["total"]["p99_ns"].as_u64() > Some(0) && alice["latency"]["total"].get("buckets").is_none()
    );
    let detailed = served.json("stats", &["--json", "--buckets", "--tenant", "alice"]);
    assert_eq!(detailed["tenants"].as_array().map(Vec::len), Some(1));
    assert!(detailed["tenants"][0]["latency"]["total"]["buckets"].as_array().is_some_and(|b| !b.is_empty()));

    let page = served.ok("stats", &["--prometheus"]);
    assert!(page.contains("\nweldfs_payload_in_bytes_total{tenant=\"alice\"} 50000\n"));
    assert!(page.contains("\nweldfs_payload_in_bytes_total{tenant=\"bob\"} 0\n"));
    assert!(page.lines().any(|l| l.starts_with("weldfs_latency_seconds_bucket{tenant=\"alice\",le=\"+Inf\"} ")));
    let text = served.ok("stats", &["--inodes"]);
    for word in ["payload_bytes_in", "48.8K", "policy cfs", "alice", "bob", "inode", "core"] {
        assert!(text.contains(word), "{word} in {text}");
    }
}

#[test]
fn what_cannot_be_shown_is_said_in_one_sentence() {
    let served = Served::start(1);
    let out = served.command("stats").args(["--tenant", "carol"]).output().expect("runs");
    assert!(matches!(failure(&out), (Some(1), why) if why.contains("carol")));
    let out = served.command("stats").args(["--prometheus", "--json"]).output().expect("runs");
    assert_eq!(failure(&out).0, Some(2));
    for verb in [&["stats"][..], &["top", "--once"], &["trace", "-o", "/dev/null"]] {
        let (verb, args) = verb.split_first().expect("a verb");
        let out =
            Command::new(env!("CARGO_BIN_EXE_weldfs")).arg(verb).arg("/nowhere").args(args).output().expect("runs");
        assert!(matches!(failure(&out), (Some(1), why) if why.contains("no device serves /nowhere")), "{verb}");
    }
    let missing = served.dir.path().join("no/such/folder");
    let out = served.command("trace").args([Path::new("-o"), &missing]).output().expect("runs");
    assert!(matches!(failure(&out), (Some(1), why) if why.contains("no/such/folder")));
}

#[test]
fn watching_shows_each_interval_alone_until_it_is_interrupted() {
    let served = Served::start(1);
    served.under_load(|| {
        let mut command = served.command("stats");
        let mut child = command.args(["--json", "--watch=0.2"]).stdout(Stdio::piped()).spawn().expect("runs");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines().take(3);
        for line in lines {
            let v: Value = serde_json::from_str(&line.expect("a line")).expect("JSON");
            let (ns, busy) = (v["interval_ns"].as_u64().expect("ns"), v["cores"][0]["busy_ns"].as_u64().expect("ns"));
            assert!(ns >= 100_000_000 && busy > 0 && busy <= ns + 50_000_000, "{busy} of {ns}");
            assert!(v["total"]["commands"].as_u64() > Some(0));
        }
        signal(&child, Signal::INT);
        assert!(child.wait().expect("it ends").success());
    });
}

#[test]
fn top_once_says_who_uses_the_device() {
    let served = Served::start(2);
    let (json, text) = served.under_load(|| {
        let json = served.json("top", &["--once", "--json", "--interval=0.4", "--inodes"]);
        (json, served.ok("top", &["--once", "--interval=0.2"]))
    });
    let alice = &json["tenants"][0];
    assert_eq!(alice["name"], "alice", "largest share first");
    assert!(alice["share"].as_f64() > Some(0.99) && alice["ops_per_s"].as_f64() > Some(1.0));
    assert!(alice["backlogged"].as_f64() > Some(0.0) && alice["depth"].as_f64() > Some(0.0));
    assert!(alice["service_p99_ns"].as_u64() >= alice["service_p50_ns"].as_u64());
    assert_eq!(json["cores"].as_array().map(Vec::len), Some(2));
    let busy: f64 = json["cores"].as_array().into_iter().flatten().filter_map(|c| c["busy"].as_f64()).sum();
    assert!(busy > 0.0 && busy <= 2.0 && json["inode_queues"].is_array());
    assert!(
        text.lines().any(|l| l.starts_with("alice ")) && text.lines().filter(|l| l.starts_with("core ")).count() == 2
    );
    assert!(!text.contains('\u{1b}'), "plain text holds no escape");
}

#[test]
fn top_without_a_terminal_prints_a_table_per_interval() {
    let served = Served::start(1);
    let mut child = served.command("top").arg("--interval=0.1").stdout(Stdio::piped()).spawn().expect("runs");
    let mut tables = BufReader::new(child.stdout.take().expect("piped")).lines().map_while(Result::ok);
    for _ in 0..2 {
        assert!(tables.any(|l| l.starts_with("TENANT ")), "another table");
    }
    signal(&child, Signal::TERM);
    assert!(child.wait().expect("it ends").success());
}

/// The spans of a file by track, with what was checked of each.
fn spans(file: &Value) -> Vec<Vec<(f64, f64)>> {
    let events = file["traceEvents"].as_array().expect("events");
    let cores = || events.iter().filter(|e| e["pid"] == 1);
    let tracks: Vec<u64> = cores().filter(|e| e["name"] == "thread_name").filter_map(|e| e["tid"].as_u64()).collect();
    let mut by_track = vec![Vec::new(); tracks.len()];
    for e in cores().filter(|e| e["ph"] == "X") {
        let at = tracks.iter().position(|t| Some(*t) == e["tid"].as_u64()).expect("every span's core has a track");
        assert_eq!(&e["args"]["tenant"], "alice");
        assert!(e["args"]["operation"].is_string() && e["args"]["cost_us"].is_number());
        by_track[at].push((e["ts"].as_f64().expect("ts"), e["dur"].as_f64().expect("dur")));
    }
    by_track
}

fn read(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).expect("the file")).expect("JSON")
}

#[test]
fn a_traces_spans_do_not_overlap_and_add_up_to_the_counters() {
    let served = Served::start(2);
    let path = served.dir.path().join("trace.json");
    let path_text = path.to_str().expect("text");
    let before = served.json("stats", &["--json"]);
    served.under_load(|| served.ok("trace", &["-o", path_text, "--seconds=0.4", "--limit=1000000"]));
    let after = served.json("stats", &["--json"]);
    let file = read(&path);
    assert_eq!(file["otherData"]["dropped"], 0);
    let tracks = spans(&file);
    assert_eq!(tracks.len(), 2);
    for (core, spans) in tracks.iter().enumerate() {
        // Times have three decimals: a nanosecond of rounding in a sum of two floats.
        assert!(spans.windows(2).all(|w| w[0].0 + w[0].1 <= w[1].0 + 1e-3), "spans of core {core} overlap");
        let facts = &file["otherData"]["cores"][core];
        assert_eq!(facts["slices"].as_u64(), Some(spans.len() as u64));
        let (sum_us, busy_ns) = (spans.iter().map(|s| s.1).sum::<f64>(), facts["busy_ns"].as_f64().expect("ns"));
        assert!((sum_us * 1e3 - busy_ns).abs() <= spans.len() as f64 + 1.0, "{sum_us} us against {busy_ns} ns");
        let counted = |v: &Value| v["cores"][core]["busy_ns"].as_f64().expect("ns");
        assert!(busy_ns <= counted(&after) - counted(&before), "the recording is a part of what was counted");
    }
    assert!(tracks.iter().map(Vec::len).sum::<usize>() > 10);
    let fused = |e: &&Value| e["args"]["operation"] == "open_write_close" && e["args"]["micro_op"].as_u64() > Some(0);
    assert!(file["traceEvents"].as_array().into_iter().flatten().filter(fused).count() > 0);
}

/// What viewers show of slots: a track each, sessions with the steps of their kernels inside, and what they moved.
#[test]
fn a_trace_shows_slots_as_tracks_of_their_own() {
    let served = Served::start(1);
    let client = Client::connect(&served.socket).expect("attached");
    client.write("/text", &b"one\nan error\nthree\n".repeat(200_000)).expect("written");
    let device = |path: &str| format!("{}:{path}", served.socket.display());
    let weldfs = |args: &[&str]| {
        let out = Command::new(env!("CARGO_BIN_EXE_weldfs")).args(args).output().expect("runs");
        assert!(out.status.success(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
        out.stdout
    };
    let add = ["virt", "add", &device("/errors"), "--kernel=grep", "--param=text:error", &device("/text")];
    weldfs(&add);
    let path = served.dir.path().join("trace.json");
    let mut trace = served.command("trace").arg("-o").arg(&path).stderr(Stdio::piped()).spawn().expect("runs");
    let mut said = BufReader::new(trace.stderr.take().expect("piped")).lines().map_while(Result::ok);
    assert!(said.any(|l| l.starts_with("recording")), "it records");
    let hits = weldfs(&["cat", &device("/errors")]);
    signal(&trace, Signal::INT);
    assert!(trace.wait().expect("it ends").success());
    let said = said.last().expect("what it wrote");
    assert!(said.contains(" spans of slots in "), "{said}");
    let file = read(&path);
    assert_eq!(file["otherData"]["slots"].as_array().map(Vec::len), Some(4), "three, and the locked one");
    let events = file["traceEvents"].as_array().expect("events");
    let slots: Vec<&Value> = events.iter().filter(|e| e["pid"] == 2).collect();
    let names: Vec<_> = slots.iter().filter(|e| e["name"] == "thread_name").map(|e| &e["args"]["name"]).collect();
    assert_eq!(names, ["slot 0", "slot 1", "slot 2", "slot 3"]);
    let of = |category: &str| slots.iter().filter(|e| e["cat"] == category).copied().collect::<Vec<_>>();
    let (sessions, steps, loads) = (of("session"), of("step"), of("load"));
    assert_eq!((sessions.len(), loads.len()), (1, 1), "{sessions:?}");
    let (session, load) = (sessions[0], loads[0]);
    assert_eq!(load["args"]["session"], session["args"]["session"]);
    let process = slots.iter().find(|e| e["name"] == "process_name").map(|e| &e["args"]["name"]);
    assert_eq!(process, Some(&Value::from("card")));
    assert_eq!((&session["name"], &load["name"]), (&"alice: grep".into(), &"loading grep".into()));
    assert_eq!((&session["args"]["bytes_in"], &session["args"]["bytes_out"]), (&3_800_000.into(), &hits.len().into()));
    assert!(load["args"]["slot_us"].as_f64() > Some(200_000.0), "the time of loading is modelled: {load}");
    let sum = |key: &str| steps.iter().map(|s| s["args"][key].as_u64().expect("a number")).sum::<u64>();
    assert_eq!((sum("bytes_in"), Some(sum("cycles"))), (3_800_000, session["args"]["cycles"].as_u64()));
    let time = |e: &Value| (e["ts"].as_f64().expect("ts"), e["dur"].as_f64().expect("dur"));
    let (begin, dur) = time(session);
    for step in steps {
        let (at, long) = time(step);
        assert!(step["tid"] == session["tid"] && begin <= at + 1e-3 && at + long <= begin + dur + 1e-3, "{step}");
    }
}

#[test]
fn a_trace_that_is_full_or_interrupted_is_whole_and_says_what_is_missing() {
    let served = Served::start(1);
    let path = served.dir.path().join("trace.json");
    let out = served.under_load(|| {
        let mut command = served.command("trace");
        command.args([Path::new("-o"), &path]).arg("--limit=7").stderr(Stdio::piped());
        let mut child = command.spawn().expect("runs");
        let mut text = String::new();
        let mut stderr = BufReader::new(child.stderr.take().expect("piped"));
        stderr.read_line(&mut text).expect("a line");
        assert!(text.contains("until Ctrl-C"));
        std::thread::sleep(Duration::from_millis(200));
        signal(&child, Signal::INT);
        stderr.read_to_string(&mut text).expect("text");
        assert!(child.wait().expect("it ends").success(), "{text}");
        text
    });
    let file = read(&path);
    assert_eq!(spans(&file)[0].len(), 7);
    let dropped = file["otherData"]["dropped"].as_u64().expect("a number");
    assert!(dropped > 0 && out.contains(&format!("{dropped} more had no room")), "{dropped}: {out}");
}

/// Ends within a few seconds; without an end of its own the test ends it.
fn ends(mut child: Child) -> Output {
    let start = Instant::now();
    while child.try_wait().expect("it can be waited for").is_none() {
        if start.elapsed() > Duration::from_secs(20) {
            let _ = child.kill();
            panic!("it goes on");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    child.wait_with_output().expect("it has ended")
}

#[test]
fn a_trace_of_a_device_that_is_gone_ends_with_an_error_and_takes_no_file_with_it() {
    let mut served = Served::start(1);
    let (fresh, kept) = (served.dir.path().join("fresh.json"), served.dir.path().join("kept.json"));
    std::fs::write(&kept, "an earlier recording").expect("write");
    let begin = |output: &Path| {
        let mut command = served.command("trace");
        let mut child = command.arg("-o").arg(output).stderr(Stdio::piped()).spawn().expect("runs");
        let mut byte = [0];
        child.stderr.as_mut().expect("piped").read_exact(&mut byte).expect("it says that it records");
        child
    };
    let first = begin(&fresh);
    let second = served.command("trace").arg("-o").arg(&kept).output().expect("runs");
    assert!(matches!(failure(&second), (Some(1), why) if why.contains("another client is recording")));
    served.child.kill().expect("signal");
    served.child.wait().expect("it is gone");
    let said = failure(&ends(first));
    assert!(said.0 == Some(1) && said.1.contains("the device is gone"), "{said:?}");
    assert!(!fresh.exists(), "an empty file is no recording");
    assert_eq!(std::fs::read_to_string(&kept).expect("there"), "an earlier recording");
}

#[test]
fn a_trace_goes_to_standard_output_to_devices_and_in_the_place_of_an_older_one() {
    let served = Served::start(1);
    let record = |output: &str| served.ok("trace", &["--seconds=0.1", "-o", output]);
    let text = record("-");
    assert!(serde_json::from_str::<Value>(&text).expect("JSON")["traceEvents"].is_array(), "{text}");
    assert_eq!(record("/dev/null"), "");
    let path = served.dir.path().join("trace.json");
    std::fs::write(&path, "x".repeat(1 << 20)).expect("write");
    record(path.to_str().expect("text"));
    assert!(read(&path)["traceEvents"].is_array());
}

/// `top` on a terminal of 80 by 24 characters that the test holds the other end of.
struct OnTerminal {
    child: Child,
    other_end: std::fs::File,
    tty: std::fs::File,
    seen: Vec<u8>,
    before: String,
}

impl OnTerminal {
    fn start(served: &Served) -> OnTerminal {
        use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
        grantpt(&master).expect("granted");
        unlockpt(&master).expect("unlocked");
        let name = ptsname(&master, Vec::new()).expect("a name");
        let mut open = std::fs::File::options();
        let tty = open.read(true).write(true).open(name.to_str().expect("text")).expect("its end");
        let size = rustix::termios::Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
        rustix::termios::tcsetwinsize(&tty, size).expect("a size");
        rustix::fs::fcntl_setfl(&master, rustix::fs::OFlags::NONBLOCK).expect("not blocking");
        let before = modes(&tty);
        let end = || Stdio::from(tty.try_clone().expect("another descriptor"));
        let child = Command::new(env!("CARGO_BIN_EXE_weldfs"))
            .arg("top")
            .arg(&served.socket)
            .arg("--interval=0.1")
            .env("TERM", "xterm")
            .stdin(end())
            .stdout(end())
            .stderr(end())
            .spawn()
            .expect("runs");
        OnTerminal { child, other_end: std::fs::File::from(master), tty, seen: Vec::new(), before }
    }

    /// Reads until this text came.
    fn wait_for(&mut self, text: &str) {
        let start = Instant::now();
        while !self.seen.windows(text.len()).any(|w| w == text.as_bytes()) {
            let shown = String::from_utf8_lossy(&self.seen);
            assert!(start.elapsed() < Duration::from_secs(20), "{text:?} in {shown:?}");
            let mut bytes = [0; 4096];
            match self.other_end.read(&mut bytes) {
                Ok(n) => self.seen.extend_from_slice(&bytes[..n]),
                Err(_) => std::thread::sleep(Duration::from_millis(5)),
            }
        }
    }

    fn modes(&self) -> String {
        modes(&self.tty)
    }
}

fn modes(tty: &std::fs::File) -> String {
    let t = rustix::termios::tcgetattr(tty).expect("modes");
    format!("{:?} {:?} {:?}", t.input_modes, t.output_modes, t.local_modes)
}

#[test]
fn the_terminal_is_as_before_after_q_ctrl_c_and_a_signal() {
    let served = Served::start(1);
    for key in [Some(b"q"), Some(b"\x03"), None] {
        let mut top = OnTerminal::start(&served);
        top.wait_for("\u{1b}[?1049h");
        top.wait_for("TENANT");
        top.wait_for("alice");
        assert_ne!(top.modes(), top.before, "keys come one by one while it runs");
        match key {
            Some(key) => top.other_end.write_all(key).expect("a key"),
            None => signal(&top.child, Signal::TERM),
        }
        top.wait_for("\u{1b}[?1049l");
        assert!(top.child.wait().expect("it ends").success());
        assert_eq!(top.modes(), top.before);
    }
}
