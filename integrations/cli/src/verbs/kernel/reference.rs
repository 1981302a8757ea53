//! The reference of a package: a program of the user's, `tests/reference`, that says what the kernel is to do.

use crate::failure::{Doing, Failure};
use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// How long the program may take for one packet.
const PATIENCE: Duration = Duration::from_secs(10);
/// Bytes of output that one packet may come to.
const OUTPUT_MAX: u64 = 64 << 20;

/// What a packet comes to, by the reference or by a back-end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// This output.
    Output(Vec<u8>),
    /// The parameters are refused: EINVAL.
    Params,
    /// The packet is refused: EBADMSG.
    Data,
    /// The back-end failed (no reference does): why.
    Lost(String),
}

/// Parameters and a packet.
type Question = (Vec<u32>, Vec<u8>);

/// The program, and what it has said so far.
pub struct Reference {
    program: PathBuf,
    known: Mutex<HashMap<Question, Outcome>>,
}

impl Reference {
    /// Of the package in `folder`.
    pub fn of(folder: &Path) -> Result<Reference, Failure> {
        // With a path in front of it: a bare name would be looked for elsewhere.
        let program = folder.join("tests/reference").canonicalize().doing("find the reference", folder)?;
        Ok(Reference { program, known: Mutex::default() })
    }

    /// What it says of a packet.
    pub fn says(&self, params: &[u32], packet: &[u8]) -> Result<Outcome, Failure> {
        let key = (params.to_vec(), packet.to_vec());
        let known = |map: &Mutex<HashMap<_, Outcome>>| map.lock().ok().and_then(|m| m.get(&key).cloned());
        if let Some(outcome) = known(&self.known) {
            return Ok(outcome);
        }
        let outcome = self.run(params, packet)?;
        if let Ok(mut map) = self.known.lock() {
            map.insert(key, outcome.clone());
        }
        Ok(outcome)
    }

    /// Has it say what it will be asked, several at a time.
    pub fn prepare(&self, questions: &[(Vec<u32>, Vec<u8>)]) -> Result<(), Failure> {
        let next = AtomicUsize::new(0);
        let work = || {
            while let Some((params, packet)) = questions.get(next.fetch_add(1, Ordering::Relaxed)) {
                self.says(params, packet)?;
            }
            Ok(())
        };
        let threads = std::thread::available_parallelism().map_or(2, |n| n.get().min(8));
        std::thread::scope(|scope| {
            let all: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
            let broken = || Failure::new("the reference could not be run");
            all.into_iter().try_for_each(|thread| thread.join().map_err(|_| broken())?)
        })
    }

    fn run(&self, params: &[u32], packet: &[u8]) -> Result<Outcome, Failure> {
        let mut command = Command::new(&self.program);
        command.args(params.iter().map(u32::to_string));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = spawn(&mut command).map_err(|e| {
            let hint = match e.kind() {
                ErrorKind::PermissionDenied => " (chmod +x makes it a program)",
                ErrorKind::NotFound => " (is the interpreter of its first line installed?)",
                _ => "",
            };
            let why = crate::failure::reason(&e);
            Failure::new(format!("cannot run the reference {}: {why}{hint}", self.program.display()))
        })?;
        let (input, output, errors) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (made, said, ended) = std::thread::scope(|scope| {
            scope.spawn(move || {
                // It need not read what it refuses.
                let _ = input.map(|mut to| to.write_all(packet));
            });
            let made = scope.spawn(move || read(output));
            let said = scope.spawn(move || read(errors));
            let ended = wait(&mut child);
            (made.join().unwrap_or_default(), said.join().unwrap_or_default(), ended)
        });
        let status = ended.doing("wait for", &self.program)?;
        let shown = self.program.display();
        let of = format!("for parameters {params:?} and a packet of {} bytes", packet.len());
        match status.map(|s| s.code()) {
            None => Err(Failure::new(format!("the reference {shown} took more than {PATIENCE:?} {of}"))),
            Some(Some(0)) => Ok(Outcome::Output(made)),
            Some(Some(22)) => Ok(Outcome::Params),
            Some(Some(74)) => Ok(Outcome::Data),
            Some(_) => {
                let said = String::from_utf8_lossy(&said);
                let last = said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it says nothing");
                let status = status.map_or_else(String::new, |s| s.to_string());
                Err(Failure::new(format!("the reference {shown} failed {of} ({status}): {last}")))
            }
        }
    }
}

/// A file that was just written may still be open for writing in a process that another thread is starting.
fn spawn(command: &mut Command) -> std::io::Result<Child> {
    let mut tries = 0;
    loop {
        match command.spawn() {
            Err(e) if e.kind() == ErrorKind::ExecutableFileBusy && tries < 100 => {
                tries += 1;
                std::thread::sleep(Duration::from_millis(5));
            }
            started => return started,
        }
    }
}

fn read(from: Option<impl Read>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let _ = from.map(|from| from.take(OUTPUT_MAX).read_to_end(&mut bytes));
    bytes
}

/// `None`: it was killed because it took too long.
fn wait(child: &mut Child) -> std::io::Result<Option<std::process::ExitStatus>> {
    let until = Instant::now() + PATIENCE;
    let mut pause = Duration::from_micros(500);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() > until {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}
