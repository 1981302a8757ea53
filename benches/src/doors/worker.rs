//! A worker process: takes samples at one door as it is told on its standard input, one line each.
//!
//! `OP MILLISECONDS` is answered by the nanoseconds of one operation, the mean over that time (or over one run of a
//! program), or by `error` and why.

use super::files::{Api, Files, Host, LARGE};
use super::{Op, sets};
use std::io::{self, BufRead, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use weldfs::{Client, Durability};
use weldfs_device::DeviceConfig;
use weldfs_kernel_shim::{Embedded, Source};

/// Names in the directory that is listed; in a quick run.
const NAMES: (u64, u64) = (10_000, 500);
/// New files between two removals.
const ROUND: u64 = 1024;
/// Large calls from the beginning of their file to its end; in a quick run.
const LARGE_CALLS: (u64, u64) = (64, 4);
/// Calls between two looks at the clock.
const BATCH: u64 = 16;

/// What a worker is told at its start.
#[derive(Clone, Debug)]
pub struct Job {
    /// "inline", "served", or "dir" for calls of libc.
    pub door: String,
    /// The image, the socket, or a directory that is there.
    pub target: PathBuf,
    /// What tar unpacks.
    pub archive: PathBuf,
    /// What git clones.
    pub repository: PathBuf,
    /// Whether changes are durable before calls return; of a device in this process.
    pub durable: bool,
    /// Small sets.
    pub quick: bool,
}

struct Worker {
    files: Box<dyn Files>,
    /// Where programs put their files.
    root: PathBuf,
    job: Job,
    /// Whether the directory that is listed has its names, and the large file its bytes.
    named: bool,
    filled: bool,
}

impl Job {
    fn of(&self, full: (u64, u64)) -> u64 {
        if self.quick { full.1 } else { full.0 }
    }
}

/// Serves samples until the standard input ends.
///
/// # Errors
/// The door cannot be opened. What fails in a sample is an answer.
pub fn run(job: Job) -> io::Result<()> {
    let root = job.target.join("weldfs-bench");
    let files: Box<dyn Files> = match job.door.as_str() {
        "inline" => {
            let durability = if job.durable { Durability::Durable } else { Durability::Volatile };
            let config = DeviceConfig { inline: Some(true), durability, ..DeviceConfig::default() };
            let device = Embedded::open(&Source::Image(job.target.clone()), config).map_err(io::Error::other)?;
            let client = Client::with(Arc::new(device))?;
            crate::served::wait_settled(std::process::id());
            Box::new(Api::new(client)?)
        }
        "served" => Box::new(Api::new(Client::connect(&job.target)?)?),
        "dir" => Box::new(Host::new(&root)?),
        other => return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{other} is no door"))),
    };
    let mut worker = Worker { files, root, job, named: false, filled: false };
    let mut out = io::stdout().lock();
    writeln!(out, "ready")?;
    out.flush()?;
    for line in io::stdin().lock().lines() {
        let line = line?;
        let (op, millis) = line.split_once(' ').unwrap_or((&line, "0"));
        let op = Op::named(op).ok_or_else(|| io::Error::other(format!("{op} is no operation")))?;
        match worker.sample(op, Duration::from_millis(millis.parse().map_err(io::Error::other)?)) {
            Ok(ns) => writeln!(out, "{ns}")?,
            Err(e) => writeln!(out, "error {}", e.to_string().replace('\n', "; "))?,
        }
        out.flush()?;
    }
    Ok(())
}

impl Worker {
    fn sample(&mut self, op: Op, time: Duration) -> io::Result<f64> {
        self.prepare(op)?;
        let large = self.job.of(LARGE_CALLS);
        match op {
            Op::Getattr => self.repeat(time, |files, _| files.getattr()),
            Op::OpenReadClose => self.repeat(time, |files, _| files.open_read_close()),
            Op::Read => self.repeat(time, |files, n| files.opened().read(n)),
            Op::Write => self.repeat(time, |files, n| files.opened().write(n)),
            Op::Create => self.create(time),
            Op::Readdir => {
                let names = self.job.of(NAMES);
                self.passes(time, 1, |files, _| match files.list()? {
                    n if n == names => Ok(()),
                    n => Err(io::Error::other(format!("{n} of {names} names"))),
                })
            }
            Op::SequentialWrite => self.passes(time, large, |files, n| files.opened().write_large(n * LARGE as u64)),
            Op::SequentialRead => self.passes(time, large, |files, n| files.opened().read_large(n * LARGE as u64)),
            Op::Tar => {
                let mut tar = Command::new("tar");
                self.program(tar.arg("xf").arg(&self.job.archive).arg("-C"), true)
            }
            Op::Git => {
                let mut git = sets::git(Path::new("/"));
                // Over the wire's protocol: between directories of one file system git would make links.
                self.program(git.args(["clone", "-q", "--no-local"]).arg(&self.job.repository), false)
            }
        }
    }

    /// What is made once, outside of the clock.
    fn prepare(&mut self, op: Op) -> io::Result<()> {
        if op == Op::Readdir && !self.named {
            (0..self.job.of(NAMES)).try_for_each(|n| self.files.make(n))?;
            self.named = true;
        }
        if matches!(op, Op::SequentialRead | Op::SequentialWrite) && !self.filled {
            (0..self.job.of(LARGE_CALLS)).try_for_each(|n| self.files.opened().write_large(n * LARGE as u64))?;
            self.filled = true;
        }
        Ok(())
    }

    fn repeat(&mut self, time: Duration, call: impl Fn(&mut dyn Files, u64) -> io::Result<()>) -> io::Result<f64> {
        let (start, mut done) = (Instant::now(), 0);
        loop {
            for n in done..done + BATCH {
                call(&mut *self.files, n)?;
            }
            done += BATCH;
            if start.elapsed() >= time {
                return Ok(start.elapsed().as_nanos() as f64 / done as f64);
            }
        }
    }

    /// Whole passes of `calls` each, one at least: a pass that is cut would leave out the end of a file.
    fn passes(
        &mut self,
        time: Duration,
        calls: u64,
        call: impl Fn(&mut dyn Files, u64) -> io::Result<()>,
    ) -> io::Result<f64> {
        let (start, mut done) = (Instant::now(), 0);
        loop {
            for n in 0..calls {
                call(&mut *self.files, n)?;
            }
            done += calls;
            if start.elapsed() >= time {
                return Ok(start.elapsed().as_nanos() as f64 / done as f64);
            }
        }
    }

    /// New files, which go again outside of the clock.
    fn create(&mut self, time: Duration) -> io::Result<f64> {
        let (mut taken, mut done) = (Duration::ZERO, 0);
        while taken < time {
            let (start, mut made) = (Instant::now(), 0);
            while made < ROUND && taken + start.elapsed() < time {
                for n in made..made + BATCH {
                    self.files.create(n)?;
                }
                made += BATCH;
            }
            taken += start.elapsed();
            done += made;
            (0..made).try_for_each(|n| self.files.remove(n))?;
        }
        Ok(taken.as_nanos() as f64 / done.max(1) as f64)
    }

    /// A program that fills a directory, whose name follows its arguments; from its start to its end. What it made goes
    /// outside of the clock.
    fn program(&self, command: &mut Command, make: bool) -> io::Result<f64> {
        let dir = self.root.join("made");
        if make {
            std::fs::create_dir(&dir)?;
        }
        let start = Instant::now();
        let out = command.arg(&dir).stdin(Stdio::null()).stdout(Stdio::null()).output();
        let taken = start.elapsed();
        let removed = std::fs::remove_dir_all(&dir);
        let out = out?;
        if !out.status.success() {
            let said = String::from_utf8_lossy(&out.stderr).trim().to_owned();
            return Err(io::Error::other(format!("{}: {said}", out.status)));
        }
        removed?;
        Ok(taken.as_nanos() as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_measures_and_leaves_nothing_that_a_sample_made() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("weldfs-bench");
        let job = Job {
            door: "dir".into(),
            target: folder.path().to_owned(),
            archive: folder.path().join("none.tar"),
            repository: folder.path().to_owned(),
            durable: false,
            quick: true,
        };
        let files = Box::new(Host::new(&root).unwrap());
        let mut worker = Worker { files, root: root.clone(), job, named: false, filled: false };
        for op in Op::ALL.into_iter().filter(|op| !op.is_program()) {
            assert!(worker.sample(op, Duration::from_millis(2)).unwrap() > 0.0, "{op:?}");
        }
        let mut left: Vec<_> = std::fs::read_dir(&root).unwrap().map(|e| e.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["file", "large", "many"]);
        assert_eq!(std::fs::metadata(root.join("large")).unwrap().len(), 4 << 20);
        let why = worker.sample(Op::Tar, Duration::ZERO).unwrap_err().to_string();
        assert!(why.contains("none.tar"), "{why}");
        assert!(!root.join("made").exists());
    }
}
