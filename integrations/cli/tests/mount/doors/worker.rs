//! Worker processes: each makes the calls of one user at one door, as it is told over a socket.

use super::program::{SLOTS, Step};
use crate::rig::{Place, weldfs};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use weldfs_crash_harness::model::{At, Cred, Falloc, Name, Op, SetAttr, SetTime, Who};

/// A way to the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    /// A program under `weldfs run`.
    Preload,
    /// The same program on a mount.
    Mount,
    /// A program with the crate `weldfs`.
    Api,
}

/// All doors.
pub const DOORS: [Door; 3] = [Door::Preload, Door::Mount, Door::Api];
/// Users: uid, gid, another group (0: none).
pub const USERS: [(u32, u32, u32); 3] = [(0, 0, 0), (1001, 1001, 2000), (1002, 2000, 0)];
/// Under which name a program under `weldfs run` finds the device.
const PREFIX: &str = "/weldfs-doors";
/// What tells this very program, started anew, to be a worker: the socket, and the number of the user.
pub const API_WORKER: &str = "WELDFS_DOORS_WORKER";
/// The first number of a spare slot.
const SPARES: u32 = 1000;
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// The user of a worker, as the model knows it.
pub fn user(worker: usize) -> Cred {
    let (uid, gid, group) = USERS[worker % USERS.len()];
    Cred { uid, gid, groups: if group == 0 { Vec::new() } else { vec![group] } }
}

/// The door of a worker.
pub fn door(worker: usize) -> Door {
    DOORS[worker / USERS.len()]
}

/// Compiles the program of `tests/c/door.c`; `None` without a compiler.
pub fn compiled(place: &Place) -> Option<std::path::PathBuf> {
    let program = place.path("door");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/door.c");
    let out = Command::new("cc").args(["-O1", "-g", "-Wall", "-o"]).arg(&program).arg(source).output().ok()?;
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    Some(program)
}

/// What stat(2) told, and statx(2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub nlink: u32,
    pub size: u64,
    pub ino: u64,
    pub mtime: (i64, u32),
    pub ctime: (i64, u32),
    /// `None` where the call does not tell.
    pub btime: Option<(i64, u32)>,
}

/// An answer that is no error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Words(Vec<String>),
    Bytes(Vec<u8>),
}

impl Answer {
    pub fn number(&self) -> i64 {
        match self {
            Answer::Words(words) => words[0].parse().expect("a number"),
            Answer::Bytes(bytes) => panic!("a number, and not {} bytes", bytes.len()),
        }
    }

    pub fn told(&self) -> Told {
        let Answer::Words(words) = self else { panic!("attributes, and not {self:?}") };
        let n = |at: usize| words[at].parse::<i64>().expect("a number");
        let time = |at: usize| (n(at), n(at + 1) as u32);
        Told {
            mode: n(0) as u32,
            uid: n(1) as u32,
            gid: n(2) as u32,
            nlink: n(3) as u32,
            size: n(4) as u64,
            ino: n(5) as u64,
            mtime: time(6),
            ctime: time(8),
            btime: (n(10) >= 0).then(|| time(10)),
        }
    }

    /// Entries of a directory with their types.
    pub fn names(&self) -> BTreeSet<(Vec<u8>, u32)> {
        let Answer::Words(words) = self else { panic!("names, and not {self:?}") };
        let entry = |word: &String| {
            let (name, kind) = word.rsplit_once(':').expect("a type");
            (name.as_bytes().to_vec(), kind.parse().expect("a number"))
        };
        words.iter().map(entry).collect()
    }
}

/// How programs under `weldfs run` are run: what WELDFS_AUTOMERGE says, and where they report what became of it.
#[derive(Clone, Debug)]
pub struct Merging {
    pub setting: &'static str,
    pub report: std::path::PathBuf,
}

/// A worker process.
pub struct Worker {
    child: Child,
    out: UnixStream,
    answers: BufReader<UnixStream>,
    root: String,
}

impl Worker {
    /// Starts one on the device behind `socket`; `program` is door.c's, and the mount that of `place`.
    pub fn start(worker: usize, (place, merging): (&Place, Option<&Merging>), socket: &Path, program: &Path) -> Worker {
        let (ours, theirs) = UnixStream::pair().expect("a pair of sockets");
        let (uid, gid, group) = USERS[worker % USERS.len()];
        let who = [uid.to_string(), gid.to_string(), if group == 0 { "-".to_owned() } else { group.to_string() }];
        let (mut command, root) = match door(worker) {
            Door::Preload => {
                let mut command = weldfs(["run", "--mount", "never", "--prefix", PREFIX, "--socket"]);
                command.arg(socket).arg("--").arg(program).args(&who);
                if let Some(Merging { setting, report }) = merging {
                    let report = std::fs::File::options().create(true).append(true).open(report).expect("a report");
                    command.env("WELDFS_AUTOMERGE", setting).env("WELDFS_REPORT", "1").stderr(report);
                }
                (command, PREFIX.to_owned())
            }
            Door::Mount => {
                let mut command = Command::new(program);
                command.args(&who);
                (command, place.root().display().to_string())
            }
            Door::Api => {
                let mut command = Command::new(std::env::current_exe().expect("this program"));
                command.args(["--exact", "doors::api::worker", "--ignored", "--nocapture"]);
                command.env(API_WORKER, format!("{}:{}", worker % USERS.len(), socket.display()));
                (command, String::new())
            }
        };
        command.stdin(Stdio::from(OwnedFd::from(theirs))).stdout(Stdio::null());
        let child = command.spawn().expect("a worker starts");
        ours.set_read_timeout(Some(PATIENCE)).expect("a time-out");
        Worker { child, answers: BufReader::new(ours.try_clone().expect("a descriptor")), out: ours, root }
    }

    /// As a signal ends it that it cannot handle.
    pub fn kill(&mut self) {
        let pid = self.ask("pid").expect("a number").number();
        let pid = rustix::process::Pid::from_raw(pid as i32).expect("a process");
        // Under `weldfs run` it is that one's child, which ends with it.
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("kill");
        self.child.wait().expect("wait");
    }

    /// Closes everything and makes this directory of the device the root of all names.
    pub fn root(&mut self, dir: &str) {
        let line = format!("root {}{dir}", self.root);
        self.ask(&line).unwrap_or_else(|e| panic!("{line}: errno {e}"));
    }

    /// Sends a line.
    pub fn send(&mut self, line: &str) {
        self.out.write_all(format!("{line}\n").as_bytes()).expect("the worker listens");
    }

    /// The answer to what was sent: an errno, or more.
    pub fn answer(&mut self) -> Result<Answer, i32> {
        let mut line = String::new();
        let n = self.answers.read_line(&mut line).expect("an answer in time");
        assert!(n > 0, "a worker has died");
        let mut words = line.split_whitespace();
        match words.next() {
            Some("E") => Err(words.next().and_then(|n| n.parse().ok()).expect("an errno")),
            Some("O") => Ok(Answer::Words(words.map(str::to_owned).collect())),
            Some("B") => {
                let mut bytes = vec![0; words.next().and_then(|n| n.parse().ok()).expect("a length")];
                self.answers.read_exact(&mut bytes).expect("as many bytes");
                Ok(Answer::Bytes(bytes))
            }
            _ => panic!("{line:?} is no answer"),
        }
    }

    /// Has one call made.
    pub fn ask(&mut self, line: &str) -> Result<Answer, i32> {
        self.send(line);
        self.answer()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // It ends when nothing asks it any more.
        let _ = self.out.shutdown(std::net::Shutdown::Both);
        if std::thread::panicking() {
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }
}

/// A slot of a worker's that no program uses.
pub fn spare(worker: usize) -> u32 {
    SPARES + worker as u32
}

/// The number that a worker knows a slot by.
fn own(slot: u32) -> u32 {
    if slot >= SPARES { SLOTS } else { slot % SLOTS }
}

fn name(name: &Name) -> String {
    let path = String::from_utf8_lossy(&name.path);
    name.base.map_or_else(|| path.to_string(), |slot| format!("@{}:{path}", own(slot)))
}

fn at(at: At) -> String {
    match at {
        At::Offset(at) => at.to_string(),
        At::Current => "c".to_owned(),
        At::End => unreachable!("no call of POSIX"),
    }
}

/// FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE and FALLOC_FL_ZERO_RANGE.
fn mode(mode: Falloc) -> i32 {
    const KEEP: i32 = 1;
    const PUNCH: i32 = 2;
    const ZERO: i32 = 16;
    match mode {
        Falloc::Reserve => 0,
        Falloc::KeepSize => KEEP,
        Falloc::Punch => PUNCH | KEEP,
        Falloc::Zero => ZERO,
        Falloc::ZeroKeepSize => ZERO | KEEP,
    }
}

fn time(time: SetTime) -> String {
    match time {
        SetTime::Omit => format!("0 {}", libc::UTIME_OMIT),
        SetTime::Now => format!("0 {}", libc::UTIME_NOW),
        SetTime::To((sec, nsec)) => format!("{sec} {nsec}"),
    }
}

fn id(id: Option<u32>) -> i64 {
    id.map_or(-1, i64::from)
}

fn set_attr(who: &Who, set: &SetAttr) -> String {
    let (target, fd, nofollow) = match who {
        Who::Slot(slot) => (own(*slot).to_string(), "f", String::new()),
        Who::Path(path, nofollow) => (name(path), "", format!(" {}", u8::from(*nofollow))),
    };
    if let Some(mode) = set.mode {
        return format!("{fd}chmod {target} {mode}");
    }
    if let Some(size) = set.size {
        return format!("{} {target} {size}", if fd.is_empty() { "resize" } else { "truncate" });
    }
    if set.uid.is_some() || set.gid.is_some() {
        return format!("{fd}chown {target}{nofollow} {} {}", id(set.uid), id(set.gid));
    }
    format!("{fd}utimes {target}{nofollow} {} {}", time(set.atime), time(set.mtime))
}

/// The line that has a call made.
pub fn line(op: &Op, how: u8) -> String {
    match op {
        Op::Open { name: n, flags, mode, slot } => format!("open {} {} {flags} {mode} {how}", own(*slot), name(n)),
        Op::Close { slot } => format!("close {}", own(*slot)),
        Op::Read { slot, at: a, len } => format!("read {} {} {len} {how}", own(*slot), at(*a)),
        Op::Write { slot, at: a, data } => {
            // The pattern's seed, from its first byte: both set the lowest bit.
            format!("write {} {} {} {} {how}", own(*slot), at(*a), data.len(), data.first().unwrap_or(&1))
        }
        Op::Truncate { slot, size } => format!("truncate {} {size}", own(*slot)),
        Op::Fallocate { slot, mode: m, off, len } => format!("allocate {} {} {off} {len}", own(*slot), mode(*m)),
        Op::Seek { slot, whence, off } => format!("seek {} {whence} {off}", own(*slot)),
        Op::Stat { who: Who::Slot(slot) } => format!("fstat {} {how}", own(*slot)),
        Op::Stat { who: Who::Path(n, nofollow) } => format!("stat {} {} {how}", name(n), u8::from(*nofollow)),
        Op::SetAttr { who, set } => set_attr(who, set),
        Op::ReadDir { slot } => format!("list {}", own(*slot)),
        Op::Mkdir { name: n, mode } => format!("mkdir {} {mode}", name(n)),
        Op::Rmdir { name: n } => format!("rmdir {}", name(n)),
        Op::Unlink { name: n } => format!("unlink {}", name(n)),
        Op::Rename { from, to, noreplace, exchange } => {
            format!("rename {} {} {}", name(from), name(to), u8::from(*noreplace) | u8::from(*exchange) << 1)
        }
        Op::Link { from: Who::Path(from, nofollow), to } => {
            format!("link {} {} {}", name(from), name(to), u8::from(*nofollow))
        }
        Op::Symlink { target, name: n } => format!("symlink {} {}", String::from_utf8_lossy(target), name(n)),
        Op::Readlink { name: n } => format!("readlink {}", name(n)),
        Op::Access { name: n, mask } => format!("access {} {mask}", name(n)),
        Op::SetXattr { who: Who::Path(n, _), key, value, create, replace } => {
            let flags = u8::from(*create) | u8::from(*replace) << 1;
            format!("setx {} {} {} {flags}", name(n), String::from_utf8_lossy(key), value.len())
        }
        Op::GetXattr { who: Who::Path(n, _), key, .. } => format!("getx {} {}", name(n), String::from_utf8_lossy(key)),
        Op::ListXattr { who: Who::Path(n, _), .. } => format!("listx {}", name(n)),
        Op::RemoveXattr { who: Who::Path(n, _), key } => format!("rmx {} {}", name(n), String::from_utf8_lossy(key)),
        other => unreachable!("no program has {other:?}"),
    }
}

/// The line of a lock's call.
pub fn lock_line(slot: u32, description: bool, kind: i16, start: u64, len: u64, get: bool) -> String {
    let space = if description { "ofd" } else { "posix" };
    format!("lock {} {space} {kind} {start} {len} {}", own(slot), u8::from(get))
}

/// A step in one line, for a failure's report.
pub fn shown(step: &Step) -> String {
    let who = format!("{:?} as {}", door(step.worker), user(step.worker).uid);
    match &step.call {
        super::program::Call::Plain(op) => format!("{who}: {}", line(op, step.how)),
        other => format!("{who}: {other:?}"),
    }
}
