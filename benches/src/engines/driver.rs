//! A driver's process: found, started, watched, and its answer read.

use crate::micro::Watch;
use crate::micro::sample::{Counts, Seen};
use serde::Deserialize;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

/// Between two looks at whether to stop.
const LOOK: Duration = Duration::from_millis(50);
/// A driver that says nothing for so long hangs.
const PATIENCE: Duration = Duration::from_secs(600);
/// What it has to end after it was asked to.
const GRACE: Duration = Duration::from_secs(5);

/// How the drivers come to be.
const BUILD: &str = "cmake -S integrations/engines -B target/engines && cmake --build target/engines";
/// How the one comes to be that is made of SQLite's own source.
const BUILD_BATCH: &str = "cmake -S integrations/engines -B target/engines -DSQLITE_AMALGAMATION=DIR && \
                           cmake --build target/engines, where DIR has the sqlite3.c and sqlite3.h of an SQLite";
const BUILD_EXTENSION: &str = "cargo build --release -p weldfs-sqlite";

/// The one JSON object that a driver prints, as far as it is used.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Answer {
    pub(super) engine: String,
    pub(super) operations: u64,
    pub(super) seconds: f64,
    /// Bytes of keys and values that were read or written, and of those that were written.
    pub(super) bytes: u64,
    pub(super) written: u64,
    /// The device's statistics at both ends of the clock.
    #[serde(default)]
    device_begin: Option<serde_json::Value>,
    #[serde(default)]
    device_end: Option<serde_json::Value>,
    pub(super) ended_by_time: bool,
    pub(super) p50_ns: f64,
    pub(super) p99_ns: f64,
    pub(super) p999_ns: f64,
    pub(super) verified: u64,
    pub(super) errors: u64,
    pub(super) first_error: String,
}

impl Answer {
    /// Of what a driver printed. An answer with errors, or of nothing done or verified, is an error.
    pub(super) fn parse(text: &str) -> io::Result<Answer> {
        let answer: Answer =
            serde_json::from_str(text).map_err(|e| io::Error::other(format!("the driver's answer: {e}")))?;
        match &answer {
            a if a.errors > 0 => Err(io::Error::other(format!("{} ({} errors)", a.first_error, a.errors))),
            a if a.operations == 0 || a.seconds <= 0.0 => Err(io::Error::other("the driver did nothing")),
            a if a.verified == 0 => Err(io::Error::other("the driver verified nothing")),
            _ => Ok(answer),
        }
    }

    /// What the device counted between both ends, if the driver had one; its statistics are given up.
    pub(super) fn device(&mut self) -> Option<Counts> {
        let (begin, end) = self.device_begin.take().zip(self.device_end.take())?;
        Some(Seen::of(&begin).until(&Seen::of(&end)))
    }
}

/// Looks for a file in the places where it may be.
fn find(name: &str, places: &[PathBuf], build: &str) -> Result<PathBuf, String> {
    let found = places.iter().map(|dir| dir.join(name)).find(|path| path.is_file());
    found.and_then(|path| path.canonicalize().ok()).ok_or_else(|| {
        let places: Vec<String> = places.iter().map(|p| p.display().to_string()).collect();
        format!("there is no {name} in {}. Build it: {build}, or say where it is: --drivers DIR", places.join(", "))
    })
}

/// The directory given; else beside the program, where it is installed and in the tree.
fn places(given: Option<&Path>, program: &Path, beside: &[&str]) -> Vec<PathBuf> {
    let here = program.parent().unwrap_or(Path::new("/"));
    given.map_or_else(|| beside.iter().map(|b| here.join(b)).collect(), |dir| vec![dir.to_owned()])
}

/// The driver `weldfs-drive-NAME`, or what to do about it.
pub(super) fn of(name: &str, given: Option<&Path>, program: &Path) -> Result<PathBuf, String> {
    let places = places(given, program, &["../libexec/weldfs", "../lib/weldfs", "../lib", "../engines"]);
    let build = if name == super::plan::SQLITE_BATCH { BUILD_BATCH } else { BUILD };
    find(&format!("weldfs-drive-{name}"), &places, build)
}

/// SQLite's extension, or what to do about it. In the tree it is beside the program, whatever drivers were given.
pub(super) fn extension(given: Option<&Path>, program: &Path) -> Result<PathBuf, String> {
    let mut all = given.map(|dir| vec![dir.to_owned()]).unwrap_or_default();
    all.extend(places(None, program, &["../lib", "../lib/x86_64-linux-gnu", "."]));
    find("libweldfs_sqlite.so", &all, BUILD_EXTENSION)
}

/// What is asked when the clock is about to start, and when it has stopped: the driver waits for both answers.
pub(super) trait Ends {
    fn ready(&mut self) -> io::Result<()>;
    fn done(&mut self) -> io::Result<()>;
}

/// A process group that ends when this is dropped: `weldfs run`, its device and the driver, or the driver alone.
struct Running(Child);

impl Running {
    fn signal(&self, signal: rustix::process::Signal) {
        if let Some(group) = rustix::process::Pid::from_raw(self.0.id() as i32) {
            // A group without a process left needs no signal.
            let _ = rustix::process::kill_process_group(group, signal);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if matches!(self.0.try_wait(), Ok(Some(_))) {
            return;
        }
        self.signal(rustix::process::Signal::TERM);
        let start = Instant::now();
        while start.elapsed() < GRACE && matches!(self.0.try_wait(), Ok(None)) {
            thread::sleep(LOOK);
        }
        self.signal(rustix::process::Signal::KILL);
        let _ = self.0.wait();
    }
}

/// Runs a driver to its end. `Interrupted` when `watch` says so meanwhile.
pub(super) fn run(command: &mut Command, ends: &mut dyn Ends, watch: &mut dyn Watch) -> io::Result<Answer> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // Ctrl-C is for this process alone, which ends the driver.
    let mut running = Running(command.process_group(0).spawn()?);
    let missing = || io::Error::other("a pipe is missing");
    let mut input = running.0.stdin.take().ok_or_else(missing)?;
    let mut output = running.0.stdout.take().ok_or_else(missing)?;
    let errors = running.0.stderr.take().ok_or_else(missing)?;
    let answer = thread::spawn(move || {
        let mut text = String::new();
        output.read_to_string(&mut text).map(|_| text)
    });
    let (say, said) = mpsc::channel();
    thread::spawn(move || {
        // A line for which no reader is left is for no one.
        BufReader::new(errors).lines().map_while(Result::ok).try_for_each(|line| say.send(line))
    });
    let (mut complaint, mut last) = (String::new(), Instant::now());
    loop {
        if watch.stop() {
            return Err(crate::micro::interrupted());
        }
        let line = match said.recv_timeout(LOOK) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) if last.elapsed() > PATIENCE => {
                return Err(io::Error::other(format!("the driver said nothing for {} s", PATIENCE.as_secs())));
            }
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => break,
        };
        last = Instant::now();
        match line.split_once(' ') {
            Some(("progress", percent)) => watch.part(percent.parse::<f64>().unwrap_or(0.0) / 100.0),
            _ if line == "ready" => ends.ready().and_then(|()| input.write_all(b"\n"))?,
            _ if line == "done" => ends.done().and_then(|()| input.write_all(b"\n"))?,
            _ if complaint.is_empty() => complaint = line,
            _ => {}
        }
    }
    drop(input);
    let status = running.0.wait()?;
    let text = answer.join().map_err(|_| io::Error::other("the driver's answer was not read"))??;
    if !status.success() && text.trim().is_empty() {
        let why = if complaint.is_empty() { format!("the driver ended with {status}") } else { complaint };
        return Err(io::Error::other(why));
    }
    Answer::parse(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"{"engine": "E 1", "workload": "w", "operations": 5, "seconds": 0.5, "bytes": 580,
        "written": 464, "ended_by_time": false, "p50_ns": 4, "p99_ns": 5, "p999_ns": 6, "max_ns": 7, "verified": 5,
        "errors": 0, "first_error": ""}"#;

    #[derive(Default)]
    struct Seen(Vec<&'static str>, f64, bool);
    impl Ends for Seen {
        fn ready(&mut self) -> io::Result<()> {
            self.0.push("ready");
            Ok(())
        }
        fn done(&mut self) -> io::Result<()> {
            self.0.push("done");
            Ok(())
        }
    }
    impl Watch for Seen {
        fn plan(&mut self, _: u64, _: f64) {}
        fn at(&mut self, _: &str, _: bool) {}
        fn part(&mut self, share: f64) {
            self.1 = share;
        }
        fn stop(&self) -> bool {
            self.2
        }
    }

    fn shell(script: &str, stop: bool) -> (io::Result<Answer>, Seen, f64) {
        let (mut ends, mut watch) = (Seen::default(), Seen(Vec::new(), 0.0, stop));
        let answer = run(Command::new("sh").args(["-c", script]), &mut ends, &mut watch);
        (answer, ends, watch.1)
    }

    #[test]
    fn an_answer_with_errors_or_of_nothing_is_an_error() {
        assert_eq!(Answer::parse(GOOD).map(|a| (a.operations, a.p999_ns)).ok(), Some((5, 6.0)));
        let with = |from: &str, to: &str| Answer::parse(&GOOD.replace(from, to)).map_err(|e| e.to_string());
        let wrong = with(r#""errors": 0"#, r#""errors": 2"#).expect_err("two values were wrong");
        assert!(wrong.contains("2 errors"), "{wrong}");
        assert!(with(r#""verified": 5"#, r#""verified": 0"#).is_err());
        assert!(with(r#""operations": 5"#, r#""operations": 0"#).is_err());
        assert!(Answer::parse("").is_err());
    }

    #[test]
    fn what_a_device_counted_is_between_both_ends() {
        let mut answer = Answer::parse(GOOD).expect("an answer");
        assert!(answer.device().is_none(), "there is no device");
        let at = |n: u64| {
            let log = format!(r#"{{"flushes": {n}, "bytes": {}, "checkpoint_bytes": {n}}}"#, 10 * n);
            format!(r#"{{"total": {{"commands": {n}, "data_bytes": {n}}}, "log": {log}}}"#)
        };
        let ends = format!(r#""device_begin": {}, "device_end": {}, "verified""#, at(3), at(10));
        let mut answer = Answer::parse(&GOOD.replace(r#""verified""#, &ends)).expect("an answer");
        let counts = answer.device().expect("both ends");
        assert_eq!((counts.crossings, counts.flushes, counts.log_bytes, counts.medium_bytes), (7, 7, 70, 84));
    }

    #[test]
    fn a_driver_waits_at_both_ends_of_its_clock_and_says_how_far_it_is() {
        let script = format!("echo ready >&2; read a; echo progress 40 >&2; echo done >&2; read b; echo '{GOOD}'");
        let (answer, ends, share) = shell(&script, false);
        assert_eq!((answer.expect("it ends").operations, share), (5, 0.4));
        assert_eq!(ends.0, ["ready", "done"]);
    }

    #[test]
    fn what_a_driver_complains_of_is_the_error_and_a_wrong_answer_is_not_lost() {
        let (answer, ..) = shell("echo cannot open >&2; exit 3", false);
        assert_eq!(answer.expect_err("no database").to_string(), "cannot open");
        let wrong = GOOD.replace(r#""errors": 0"#, r#""errors": 1"#);
        let (answer, ..) = shell(&format!("echo '{wrong}'; exit 1"), false);
        assert!(answer.expect_err("a wrong value").to_string().contains("1 errors"));
        assert!(shell("exit 4", false).0.expect_err("nothing was said").to_string().contains("4"));
    }

    #[test]
    fn a_driver_ends_when_the_run_is_to_stop() {
        let start = Instant::now();
        let (answer, ..) = shell("sleep 60 & sleep 60", true);
        assert_eq!(answer.expect_err("it was stopped").kind(), io::ErrorKind::Interrupted);
        assert!(start.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn a_missing_driver_is_said_with_how_to_build_it() {
        let dir = tempfile::tempdir().expect("a folder");
        let why = of("leveldb", Some(dir.path()), Path::new("/usr/bin/weldfs")).expect_err("it is not there");
        assert!(why.contains("weldfs-drive-leveldb") && why.contains(BUILD) && why.contains("--drivers"), "{why}");
        std::fs::write(dir.path().join("weldfs-drive-leveldb"), "").expect("it is written");
        assert!(of("leveldb", Some(dir.path()), Path::new("/usr/bin/weldfs")).is_ok());
        // The installed one.
        let (bin, libexec) = (dir.path().join("bin"), dir.path().join("libexec/weldfs"));
        [&bin, &libexec].iter().for_each(|d| std::fs::create_dir_all(d).expect("a folder"));
        std::fs::write(libexec.join("weldfs-drive-rocksdb"), "").expect("it is written");
        assert!(of("rocksdb", None, &bin.join("weldfs")).is_ok());
        assert!(extension(None, &bin.join("weldfs")).is_err());
        let why = of("sqlite-batch", None, &bin.join("weldfs")).expect_err("it is not there");
        assert!(why.contains("SQLITE_AMALGAMATION"), "{why}");
    }
}
