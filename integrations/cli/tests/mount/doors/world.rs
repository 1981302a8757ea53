//! Workers, the model beside them, and the comparison after each call.

use super::locks::{Locks, Owner};
use super::program::{Call, GIVEN, SLOTS, Step, WORKERS};
use super::worker::{Answer, DOORS, Door, Merging, Told, USERS, Worker, door, line, lock_line, spare, user};
use crate::rig::Place;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use weldfs_crash_harness::model::{At, Cred, Model, Name, Op, Reply, Stat, Time, Who};

/// By how much the device's clock may be behind the one that this test reads.
const CLOCK_SLACK: Duration = Duration::from_millis(20);

/// Longer than any file here.
const WHOLE: u64 = 4 << 20;

/// What went wrong, and at which step.
pub struct Failure {
    pub step: usize,
    pub what: String,
}

/// All workers, and where the current program runs.
pub struct World {
    workers: Vec<Worker>,
    programs: usize,
    merging: Option<Merging>,
}

fn root() -> Cred {
    Cred::root()
}

fn absolute(path: &str) -> Name {
    Name { base: None, path: path.as_bytes().to_vec() }
}

/// One run of a program.
struct Run<'w> {
    workers: &'w mut [Worker],
    model: Model,
    locks: Locks,
    /// The inode behind each open slot.
    inodes: BTreeMap<u32, u64>,
    /// When each step ran.
    windows: Vec<(SystemTime, SystemTime)>,
    /// Whether processes under `weldfs run` post changes.
    posts: bool,
    /// Steps whose changes may not be made yet, and whose: what is posted has the time at which the device makes it.
    posted: Vec<(usize, usize)>,
}

impl World {
    /// Starts a worker for each user at each door.
    pub fn start(place: &Place, socket: &Path, program: &Path) -> World {
        World::merging((place, None), socket, program, 0)
    }

    /// The same; after so many programs.
    pub fn merging((place, merging): (&Place, Option<&Merging>), socket: &Path, program: &Path, after: usize) -> World {
        let start = |worker| Worker::start(worker, (place, merging), socket, program);
        World { workers: (0..WORKERS).map(start).collect(), programs: after, merging: merging.cloned() }
    }

    /// Kills a worker, and starts another in its place.
    pub fn kill(&mut self, worker: usize, place: &Place, socket: &Path, program: &Path) {
        self.workers[worker].kill();
        self.workers[worker] = Worker::start(worker, (place, self.merging.as_ref()), socket, program);
        let dir = self.dir();
        self.workers[worker].root(&dir);
    }

    fn posts(&self) -> bool {
        self.merging.as_ref().is_none_or(|merging| ["on", "write", "attributes"].contains(&merging.setting))
    }

    /// Programs so far.
    pub fn programs(&self) -> usize {
        self.programs
    }

    fn dir(&self) -> String {
        format!("/p{}", self.programs)
    }

    /// The workers, for tests that drive them by themselves.
    pub fn workers(&mut self) -> &mut [Worker] {
        &mut self.workers
    }

    /// A fresh directory for all workers.
    pub fn fresh(&mut self) -> String {
        self.programs += 1;
        let dir = self.dir();
        // From the mount, before its workers go there: names are of the device's root.
        let mount = DOORS.iter().position(|d| *d == Door::Mount).expect("a mount") * USERS.len();
        self.workers[mount].root("/");
        self.workers[mount].ask(&format!("mkdir {dir} 511")).expect("mkdir");
        self.workers.iter_mut().for_each(|worker| worker.root(&dir));
        dir
    }

    /// Runs a program in a directory of its own, and says what the first difference to the model is.
    pub fn run(&mut self, program: &[Step]) -> Result<(), Failure> {
        self.record(program).map(drop)
    }

    /// The same; what the model had after each step, and when each ran.
    pub fn record(&mut self, program: &[Step]) -> Result<Past, Failure> {
        let begun = SystemTime::now();
        self.fresh();
        let window = (begun, SystemTime::now());
        let posts = self.posts();
        let mut run = Run {
            workers: &mut self.workers,
            model: Model::new(0o777, 0, 0, (0, 0)),
            locks: Locks::default(),
            inodes: BTreeMap::new(),
            windows: vec![window],
            posts,
            posted: Vec::new(),
        };
        let mut models = vec![run.model.clone()];
        for (i, step) in program.iter().enumerate() {
            run.step(step).map_err(|what| Failure { step: i, what })?;
            models.push(run.model.clone());
        }
        Ok(Past { models, windows: run.windows })
    }

    /// Whether all doors show now what the model had after so many steps, with nothing open any more.
    pub fn shows(&mut self, past: &Past, steps: usize) -> Result<(), String> {
        let dir = self.dir();
        self.workers.iter_mut().for_each(|worker| worker.root(&dir));
        let mut model = past.models[steps].clone();
        for (slot, _) in model.clone().slots() {
            model.apply(&root(), &Op::Close { slot }).map_err(|e| format!("errno {e} at a close"))?;
        }
        let posts = self.posts();
        let mut run = Run {
            workers: &mut self.workers,
            model,
            locks: Locks::default(),
            inodes: BTreeMap::new(),
            windows: past.windows.clone(),
            posts,
            posted: Vec::new(),
        };
        run.compare()
    }
}

/// A program that ran.
pub struct Past {
    models: Vec<Model>,
    windows: Vec<(SystemTime, SystemTime)>,
}

impl Past {
    /// Steps that it made.
    pub fn steps(&self) -> usize {
        self.models.len() - 1
    }
}

/// Differences of errno that POSIX leaves open, or that the kernel decides before a file system is asked.
fn same_errno(at: Door, op: &Op, model: i32, real: i32) -> bool {
    // At a mount the kernel compares kinds of files before the device is asked for permission (docs/MOUNT.md).
    let kind = [libc::EISDIR, libc::ENOTDIR, libc::ENOTEMPTY, libc::EEXIST].contains(&real);
    let permission = [libc::EPERM, libc::EACCES].contains(&model);
    // And of two names it looks up both, before it asks for permission to change either.
    let missing = matches!(op, Op::Rename { .. } | Op::Link { .. }) && real == libc::ENOENT;
    if at == Door::Mount && permission && (kind || missing) {
        return true;
    }
    let either = |a: i32, b: i32| [model, real] == [a, b] || [model, real] == [b, a];
    model == real
        || match op {
            // "EBADF or EINVAL", says POSIX of a file that is not open for writing.
            Op::Truncate { .. } => either(libc::EBADF, libc::EINVAL),
            // Two names, one of which starts at a closed descriptor: the kernel walks the other one first, or not.
            Op::Rename { .. } => {
                model == libc::EBADF && [libc::ENOENT, libc::ENOTDIR, libc::EACCES, libc::ELOOP].contains(&real)
            }
            Op::SetAttr { who: Who::Slot(_), set } if set.size.is_some() => either(libc::EBADF, libc::EINVAL),
            _ => false,
        }
}

impl Run<'_> {
    fn step(&mut self, step: &Step) -> Result<(), String> {
        let now = self.windows.len() as i64;
        self.model.now = (now, 0);
        let begun = SystemTime::now();
        // The window of a step is open while it is compared: it is closed before the next one begins, but for what is
        // posted, which is surely made when its process is answered something.
        self.windows.push((begun - CLOCK_SLACK, begun + Duration::from_secs(3600)));
        let result = match &step.call {
            Call::Plain(op) => self.plain(step, op),
            Call::Copy { from, to, from_at, to_at, len } => self.copy(step, (*from, *to), (*from_at, *to_at), *len),
            Call::Flock { slot, kind } => self.flock(step, *slot, *kind),
            Call::Lock { slot, description, kind, start, len, get } => {
                self.lock(step, *slot, *description, *kind, (*start, *len), *get)
            }
            Call::Compare => self.compare(),
        };
        self.posted.push((step.worker, now as usize));
        let all = matches!(step.call, Call::Compare);
        let over = all || step.waits() || door(step.worker) != Door::Preload || !self.posts;
        let end = SystemTime::now() + CLOCK_SLACK;
        for (_, step) in self.posted.extract_if(.., |(worker, _)| all || over && *worker == step.worker) {
            self.windows[step].1 = end;
        }
        result
    }

    fn ask(&mut self, step: &Step, line: &str) -> Result<Answer, i32> {
        self.workers[step.worker].ask(line)
    }

    /// What is behind a slot goes: its locks before it. A mount gives the locks of a description back some time after
    /// close(2) (the kernel does not wait for RELEASE), so they are given back first.
    fn let_go(&mut self, step: &Step, slot: u32) {
        if door(step.worker) == Door::Mount && self.locks.of_description(slot) {
            let ino = self.inodes[&slot];
            let unlock = libc::F_UNLCK as i16;
            self.ask(step, &lock_line(slot, true, unlock, 0, 0, false)).expect("unlocking");
            self.locks.set(ino, Owner::Slot(slot), unlock, 0, 0).expect("unlocking");
            self.ask(step, &format!("flock {} {}", slot % SLOTS, libc::LOCK_UN)).expect("unlocking");
            self.locks.flock(ino, slot, libc::LOCK_UN).expect("unlocking");
        }
    }

    fn gone(&mut self, worker: usize, slot: u32) {
        if let Some(ino) = self.inodes.remove(&slot) {
            self.locks.closed(ino, worker, slot);
        }
    }

    fn plain(&mut self, step: &Step, op: &Op) -> Result<(), String> {
        let cred = user(step.worker);
        if self.left_out(step, op) {
            return Ok(());
        }
        let replaces = match op {
            Op::Open { slot, .. } | Op::Close { slot } => Some(*slot),
            _ => None,
        };
        if let Some(slot) = replaces {
            self.let_go(step, slot);
        }
        // An open into a slot in use is an open, and then a close.
        let before = self.model.clone();
        if let Op::Open { slot, .. } = op
            && before.slots().iter().any(|(s, _)| s == slot)
            && before.clone().apply(&cred, op).is_ok()
        {
            self.model.apply(&cred, &Op::Close { slot: *slot }).map_err(|e| format!("errno {e} at a close"))?;
        }
        let expected = self.model.apply(&cred, op);
        let mut found = self.ask(step, &line(op, step.how));
        // The kernel knows a directory by a name that another session has taken from it (docs/MOUNT.md).
        if let (Door::Mount, Op::Rename { from, to, .. }, Err(libc::ESTALE)) = (door(step.worker), op, &found) {
            for name in [from, to] {
                let look = Op::Stat { who: Who::Path(name.clone(), true) };
                let _ = self.ask(step, &line(&look, 0));
            }
            println!("ESTALE at a mount: {}", line(op, step.how));
            found = self.ask(step, &line(op, step.how));
        }
        if found.is_ok()
            && let Some(slot) = replaces
        {
            self.gone(step.worker, slot);
            if let (Op::Open { .. }, Ok(answer)) = (op, &found) {
                self.inodes.insert(slot, answer.number() as u64);
            }
        }
        self.alike(door(step.worker), op, &expected, &found)?;
        match op {
            Op::Write { slot, at: At::Current, .. } if found.is_ok() && self.appends(*slot) => self.settle(step, *slot),
            _ => Ok(()),
        }
    }

    /// Behind an append at a mount the kernel counts the offset from where it took the end to be, and others may have
    /// moved the end (docs/MOUNT.md): the model goes on from there.
    fn settle(&mut self, step: &Step, slot: u32) -> Result<(), String> {
        if door(step.worker) != Door::Mount {
            return Ok(());
        }
        let here = |whence, off| Op::Seek { slot, whence, off };
        let told = self.ask(step, &line(&here(libc::SEEK_CUR, 0), 0)).map_err(|e| format!("errno {e} for lseek"))?;
        self.model.apply(&root(), &here(libc::SEEK_SET, told.number())).map(drop).map_err(|e| format!("errno {e}"))
    }

    /// Calls that a door documents to answer differently.
    fn left_out(&self, step: &Step, op: &Op) -> bool {
        let slots = self.model.slots();
        let directory = |slot: &u32| slots.iter().any(|(s, dir)| s == slot && *dir);
        match op {
            // How far a directory reaches is its file system's affair, and the kernel's.
            Op::Seek { slot, .. } => directory(slot),
            // Listed by a duplicate, whose close gives back the locks that the process has of a file.
            Op::ReadDir { slot } => !directory(slot),
            // At a mount, names from an open directory need the right to search the whole way there.
            _ if door(step.worker) == Door::Mount && !step.worker.is_multiple_of(USERS.len()) => from_slot(op),
            _ => false,
        }
    }

    fn alike(
        &self,
        at: Door,
        op: &Op,
        expected: &Result<Reply, i32>,
        found: &Result<Answer, i32>,
    ) -> Result<(), String> {
        let differ = || Err(format!("the model says {}, the door {}", brief(expected), brief(found)));
        match (expected, found) {
            (Err(model), Err(real)) if same_errno(at, op, *model, *real) => Ok(()),
            // glibc's readdir takes the end of a removed directory for the end of a listing.
            (Err(libc::ENOENT), Ok(Answer::Words(words))) if matches!(op, Op::ReadDir { .. }) && words.is_empty() => {
                Ok(())
            }
            (Ok(reply), Ok(answer)) => match (reply, answer) {
                (Reply::Unit, Answer::Words(_)) => Ok(()),
                (Reply::Number(n), Answer::Words(_)) if answer.number() == *n as i64 => Ok(()),
                (Reply::Wrote(_, n), Answer::Words(_)) if answer.number() == *n as i64 => Ok(()),
                (Reply::Bytes(a), Answer::Bytes(b)) if a == b => Ok(()),
                (Reply::Bytes(a), Answer::Bytes(b)) => Err(different_bytes(a, b)),
                (Reply::Stat(stat), Answer::Words(_)) => self.same_stat(stat, &answer.told()),
                (Reply::Names(a), Answer::Words(_)) if *a == answer.names() => Ok(()),
                (Reply::Names(a), Answer::Bytes(b)) => {
                    let names: BTreeSet<_> =
                        b.split(|c| *c == 0).filter(|n| !n.is_empty()).map(|n| (n.to_vec(), 0)).collect();
                    if *a == names { Ok(()) } else { differ() }
                }
                _ => differ(),
            },
            _ => differ(),
        }
    }

    fn same_stat(&self, model: &Stat, real: &Told) -> Result<(), String> {
        let plain =
            |mode, uid, gid, nlink, size| format!("mode {mode:o} uid {uid} gid {gid} nlink {nlink} size {size}");
        // A directory's size is its file system's affair.
        let size = if model.mode & libc::S_IFMT == libc::S_IFDIR { real.size } else { model.size };
        let expected = plain(model.mode, model.uid, model.gid, model.nlink, size);
        let found = plain(real.mode, real.uid, real.gid, real.nlink, real.size);
        if expected != found {
            return Err(format!("the model says {expected}, the door {found}"));
        }
        let times = [("mtime", model.mtime, Some(real.mtime)), ("ctime", model.ctime, Some(real.ctime))];
        for (which, model, real) in times.into_iter().chain([("btime", model.btime, real.btime)]) {
            if let Some(real) = real {
                self.same_time(which, model, real)?;
            }
        }
        Ok(())
    }

    /// A time that a program gave is that time; one that a step left lies within that step.
    fn same_time(&self, which: &str, model: Time, real: Time) -> Result<(), String> {
        if model.0 >= GIVEN {
            return if model == real { Ok(()) } else { Err(format!("{which}: given {model:?}, told {real:?}")) };
        }
        let (from, to) = self.windows[model.0 as usize];
        let at = UNIX_EPOCH + Duration::new(real.0 as u64, real.1);
        if from <= at && at <= to {
            return Ok(());
        }
        let step = self.windows.iter().position(|(from, to)| *from <= at && at <= *to);
        let step = step.map_or("none".to_owned(), |window| format!("step {}", window as i64 - 1));
        Err(format!("{which}: left by step {}, but the time is that of {step}", model.0 - 1))
    }

    /// Reading, and writing elsewhere what was read.
    fn copy(&mut self, step: &Step, slots: (u32, u32), at: (u64, u64), len: u64) -> Result<(), String> {
        let cred = user(step.worker);
        let inode = |slot| self.inodes.get(&slot);
        let (Some(from), Some(to)) = (inode(slots.0), inode(slots.1)) else { return Ok(()) };
        // Ranges of one file that meet are EINVAL: of no interest here. Files opened with O_APPEND are EBADF.
        if from == to {
            return Ok(());
        }
        if door(step.worker) == Door::Mount {
            // The kernel copies as far as it knows the file to reach, and others may have moved its end
            // (docs/MOUNT.md).
            self.ask(step, &format!("fstat {} 0", slots.0 % SLOTS)).map_err(|e| format!("errno {e} for fstat"))?;
        }
        let line = format!("copy {} {} {} {} {len}", slots.0 % SLOTS, slots.1 % SLOTS, at.0, at.1);
        let found = self.ask(step, &line);
        let mut ahead = self.model.clone();
        let read = ahead.apply(&cred, &Op::Read { slot: slots.0, at: At::Offset(at.0), len });
        let done = read.and_then(|read| {
            let Reply::Bytes(data) = read else { return Err(libc::EIO) };
            ahead.apply(&cred, &Op::Write { slot: slots.1, at: At::Offset(at.1), data })
        });
        match (done, found) {
            // It wrote at the end, where a copy is refused.
            (Ok(Reply::Wrote(offset, _)), Err(libc::EBADF)) if offset != at.1 => Ok(()),
            (Ok(Reply::Wrote(_, n)), Ok(answer)) if answer.number() == n as i64 => {
                self.model = ahead;
                Ok(())
            }
            (Ok(Reply::Wrote(..)), Err(libc::EBADF)) if self.appends(slots.1) => Ok(()),
            // Of a directory: EISDIR where the file system sees it, EBADF and EINVAL where the kernel does.
            (Err(libc::EISDIR | libc::EBADF), Err(libc::EISDIR | libc::EBADF | libc::EINVAL)) => Ok(()),
            (expected, found) => Err(format!("the model says {}, the door {}", brief(&expected), brief(&found))),
        }
    }

    /// Whether what is written through a slot goes to the end, wherever it is meant for.
    fn appends(&self, slot: u32) -> bool {
        let mut ahead = self.model.clone();
        let far = Op::Write { slot, at: At::Offset(1 << 30), data: vec![1] };
        matches!(ahead.apply(&root(), &far), Ok(Reply::Wrote(offset, _)) if offset != 1 << 30)
    }

    /// Whether a slot's file may be read and written through it.
    fn access(&self, slot: u32) -> (bool, bool) {
        let mut ahead = self.model.clone();
        let readable = ahead.apply(&root(), &Op::Read { slot, at: At::Offset(0), len: 0 }).is_ok();
        let writable = ahead.apply(&root(), &Op::Write { slot, at: At::Offset(0), data: Vec::new() }).is_ok();
        (readable, writable)
    }

    /// Whether a worker's user may open the file of a slot by one of its names, with all access or that of the slot.
    fn opens_again(&self, worker: usize, slot: u32) -> bool {
        let own = match self.access(slot) {
            (true, true) => libc::O_RDWR,
            (false, true) => libc::O_WRONLY,
            (_, false) => libc::O_RDONLY,
        };
        let stat = self.model.clone().apply(&root(), &Op::Stat { who: Who::Slot(slot) });
        let tree = self.model.tree();
        let mut names = tree.entries.iter().filter(|(_, entry)| stat == Ok(Reply::Stat(entry.stat.clone())));
        names.any(|(path, _)| {
            [libc::O_RDWR, own].into_iter().any(|flags| {
                let name = Name { base: None, path: [b"/", &path[..]].concat() };
                let open = Op::Open { name, flags: flags | libc::O_NOFOLLOW, mode: 0, slot: u32::MAX };
                self.model.clone().apply(&user(worker), &open).is_ok()
            })
        })
    }

    fn flock(&mut self, step: &Step, slot: u32, kind: i32) -> Result<(), String> {
        let Some(ino) = self.inodes.get(&slot).copied() else { return Ok(()) };
        // On Linux a lock that is to be replaced is given back first, and lost when the new one is refused.
        if kind != libc::LOCK_UN {
            self.locks.flock(ino, slot, libc::LOCK_UN).expect("unlocking");
            self.ask(step, &format!("flock {} {}", slot % SLOTS, libc::LOCK_UN)).expect("unlocking");
        }
        let expected = self.locks.flock(ino, slot, kind);
        let found = self.ask(step, &format!("flock {} {kind}", slot % SLOTS));
        if expected.err() == found.as_ref().err().copied() {
            return Ok(());
        }
        Err(format!("the model says {}, the door {}", brief(&expected), brief(&found)))
    }

    fn lock(
        &mut self,
        step: &Step,
        slot: u32,
        description: bool,
        kind: i16,
        (start, len): (u64, u64),
        get: bool,
    ) -> Result<(), String> {
        let Some(ino) = self.inodes.get(&slot).copied() else { return Ok(()) };
        if self.model.slots().iter().any(|(s, dir)| *s == slot && *dir) {
            return Ok(());
        }
        let owner = if description { Owner::Slot(slot) } else { Owner::Process(step.worker) };
        let found = self.ask(step, &lock_line(slot, description, kind, start, len, get));
        // A file that cannot be opened again has one description at a mount, for one owner of ranges (docs/MOUNT.md).
        if door(step.worker) == Door::Mount && found == Err(libc::ENOLCK) && !self.opens_again(step.worker, slot) {
            return Ok(());
        }
        if get {
            let Ok(Answer::Words(words)) = found else { return Err(format!("the door says {}", brief(&found))) };
            let n = |at: usize| words[at].parse::<i64>().expect("a number");
            return self.locks.told(ino, owner, kind, (start, len), (n(0), n(1), n(2)));
        }
        let (readable, writable) = self.access(slot);
        let expected = match kind {
            kind if kind == libc::F_RDLCK as i16 && !readable => Err(libc::EBADF),
            kind if kind == libc::F_WRLCK as i16 && !writable => Err(libc::EBADF),
            _ => self.locks.set(ino, owner, kind, start, len),
        };
        if expected.err() == found.as_ref().err().copied() {
            return Ok(());
        }
        Err(format!("the model says {}, the door {}", brief(&expected), brief(&found)))
    }

    /// Every door shows the model's tree: attributes, names, contents, and the same inodes.
    fn compare(&mut self) -> Result<(), String> {
        let tree = self.model.tree();
        let mut inodes: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
        for (at, door) in DOORS.iter().enumerate() {
            let worker = at * USERS.len();
            let by = |path: &[u8], what: String| format!("{door:?} at {}: {what}", String::from_utf8_lossy(path));
            for (path, entry) in &tree.entries {
                let name = if path.is_empty() { "/".into() } else { String::from_utf8_lossy(path) };
                let told = self.workers[worker].ask(&format!("stat {name} 1 2"));
                let told = told.map_err(|e| by(path, format!("errno {e} for stat")))?.told();
                self.same_stat(&entry.stat, &told).map_err(|what| by(path, what))?;
                let first = *inodes.entry(entry.first_path.clone()).or_insert(told.ino);
                if first != told.ino {
                    return Err(by(path, format!("inode {} and not {first}", told.ino)));
                }
                self.contents(worker, &name, entry.stat.mode).map_err(|what| by(path, what))?;
            }
        }
        Ok(())
    }

    /// Opens it in the worker's spare slot, reads or lists it, and closes it: which gives the process's own locks on it
    /// back, as any close does.
    fn contents(&mut self, worker: usize, name: &str, mode: u32) -> Result<(), String> {
        let path = absolute(name);
        if mode & libc::S_IFMT == libc::S_IFLNK {
            return self.look(worker, &Op::Readlink { name: path }).map(drop);
        }
        let directory = mode & libc::S_IFMT == libc::S_IFDIR;
        let (slot, flags) =
            (spare(worker), if directory { libc::O_RDONLY | libc::O_DIRECTORY } else { libc::O_RDONLY });
        let opened = self.look(worker, &Op::Open { name: path, flags, mode: 0, slot })?;
        let read = Op::Read { slot, at: At::Offset(0), len: WHOLE };
        self.look(worker, &if directory { Op::ReadDir { slot } } else { read })?;
        self.look(worker, &Op::Close { slot })?;
        self.locks.closed(opened.number() as u64, worker, slot);
        Ok(())
    }

    /// One call by root, and by the model.
    fn look(&mut self, worker: usize, op: &Op) -> Result<Answer, String> {
        let line = line(op, 0);
        let found = self.workers[worker].ask(&line);
        let expected = self.model.apply(&root(), op);
        self.alike(door(worker), op, &expected, &found).map_err(|what| format!("{line}: {what}"))?;
        found.map_err(|e| format!("{line}: errno {e}"))
    }
}

fn from_slot(op: &Op) -> bool {
    let of = |who: &Who| matches!(who, Who::Path(Name { base: Some(_), .. }, _));
    let based = |name: &Name| name.base.is_some();
    match op {
        Op::Open { name, .. }
        | Op::Mkdir { name, .. }
        | Op::Rmdir { name }
        | Op::Unlink { name }
        | Op::Readlink { name } => based(name),
        Op::Rename { from, to, .. } => based(from) || based(to),
        Op::Stat { who } | Op::SetAttr { who, .. } => of(who),
        _ => false,
    }
}

fn different_bytes(a: &[u8], b: &[u8]) -> String {
    let first = a.iter().zip(b).position(|(a, b)| a != b).unwrap_or(a.len().min(b.len()));
    let shown = |bytes: &[u8]| {
        let mut text = String::new();
        for byte in bytes.iter().skip(first).take(8) {
            let _ = write!(text, " {byte:02x}");
        }
        text
    };
    format!("the model reads {} bytes, the door {}; from {first} on{} and{}", a.len(), b.len(), shown(a), shown(b))
}

fn brief<T: std::fmt::Debug, E: std::fmt::Debug>(result: &Result<T, E>) -> String {
    let mut text = format!("{result:?}");
    if text.len() > 300 {
        text.truncate(300);
        text += "...";
    }
    text
}
