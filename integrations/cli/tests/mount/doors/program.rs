//! Random programs: calls through doors, drawn from a seed.

use super::worker::{DOORS, USERS};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use weldfs_crash_harness::model::{At, Falloc, Name, Op, SetAttr, SetTime, Who};

/// Open files of one worker.
pub const SLOTS: u32 = 4;
/// Workers: each user at each door.
pub const WORKERS: usize = DOORS.len() * USERS.len();
/// Calls of a program.
const STEPS: usize = 120;
/// The same of one in bursts, of which there are several kinds.
const STEPS_OF_BURSTS: usize = 200;
/// Seconds from which on a time was given by a program; below, the number of the step that left it.
pub const GIVEN: i64 = 1_000_000_000;

/// A call.
#[derive(Clone, Debug)]
pub enum Call {
    /// One that the model of POSIX knows.
    Plain(Op),
    /// copy_file_range(2): slots, offsets in them, bytes.
    Copy { from: u32, to: u32, from_at: u64, to_at: u64, len: u64 },
    /// flock(2) without waiting: LOCK_SH, LOCK_EX or LOCK_UN.
    Flock { slot: u32, kind: i32 },
    /// fcntl(2): F_SETLK or F_GETLK, or those of open file descriptions.
    Lock { slot: u32, description: bool, kind: i16, start: u64, len: u64, get: bool },
    /// All three doors show the tree that the model has.
    Compare,
}

/// A call, the worker that makes it, and in which of several ways.
#[derive(Clone, Debug)]
pub struct Step {
    pub worker: usize,
    pub call: Call,
    /// Which function of libc.
    pub how: u8,
}

impl Step {
    /// Whether the device answers it, whatever came before it, and not the kernel or the library: of a name, but not
    /// from an open directory, which may be closed. What its process had posted before is done then.
    pub fn waits(&self) -> bool {
        match &self.call {
            Call::Plain(Op::Open { name, .. } | Op::Mkdir { name, .. } | Op::Rmdir { name } | Op::Unlink { name }) => {
                name.base.is_none()
            }
            _ => false,
        }
    }
}

/// The program of a seed.
pub fn program(seed: u64) -> Vec<Step> {
    let all: Vec<usize> = (0..WORKERS).collect();
    program_of(seed, &all)
}

/// The same where programs do what programs do: they open a file, write, change and close it. Only `workers` do, and
/// `others` may make a call at any time.
pub fn program_in_bursts(seed: u64, workers: &[usize], others: &[usize]) -> Vec<Step> {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut steps = prologue();
    while steps.len() < STEPS_OF_BURSTS {
        let worker = workers[rng.random_range(0..workers.len())];
        for op in burst(&mut rng, worker) {
            let how = if rng.random_bool(0.5) { 0 } else { rng.random_range(1..3) };
            steps.push(Step { worker, call: Call::Plain(op), how });
            if rng.random_bool(0.2) {
                steps.push(step(&mut rng, others));
            }
        }
    }
    steps
}

/// Names of one directory that a program looks at, one after the other.
fn glances(rng: &mut StdRng) -> Vec<Op> {
    let name = name(rng);
    let at = name.path.iter().rposition(|b| *b == b'/').map_or(0, |slash| slash + 1);
    let mut glance = || {
        let last = *["a", "b", "c", "d", "e"].choose(rng).unwrap();
        let path = [&name.path[..at], last.as_bytes()].concat();
        let nofollow = rng.random_bool(0.7) || in_sticky(&path);
        Op::Stat { who: Who::Path(Name { base: None, path }, nofollow) }
    };
    (0..10).map(|_| glance()).collect()
}

/// A file that is longer than what comes along with an open is written, and read: in order, here and there, and again.
fn readings(rng: &mut StdRng, worker: usize) -> Vec<Op> {
    let (slot, name) = (slot(rng, worker), name(rng));
    let create = if in_sticky(&name.path) { libc::O_CREAT | libc::O_EXCL } else { libc::O_CREAT };
    let follow = if in_sticky(&name.path) { libc::O_NOFOLLOW } else { 0 };
    let long = rng.random_range(17_000..60_000);
    let opens = |flags| Op::Open { name: name.clone(), flags, mode: 0o666, slot };
    let mut ops = vec![opens(libc::O_WRONLY | create)];
    ops.push(Op::Write { slot, at: At::Offset(0), data: pattern(rng.random(), long) });
    let set = SetAttr { atime: set_time(rng), mtime: set_time(rng), ..SetAttr::NONE };
    ops.extend([Op::SetAttr { who: Who::Slot(slot), set }, Op::Close { slot }]);
    ops.push(opens(libc::O_RDONLY | follow));
    for _ in 0..rng.random_range(6..16) {
        let place = if rng.random_bool(0.5) { At::Current } else { At::Offset(rng.random_range(0..long)) };
        ops.push(Op::Read { slot, at: place, len: rng.random_range(1..9_000) });
    }
    if rng.random_bool(0.8) {
        ops.push(Op::Close { slot });
    }
    ops
}

/// What one program does with one file, or with the names in one directory.
fn burst(rng: &mut StdRng, worker: usize) -> Vec<Op> {
    match rng.random_range(0..20) {
        0..4 => return glances(rng),
        4..7 => return readings(rng, worker),
        _ => {}
    }
    let slot = slot(rng, worker);
    let name = name(rng);
    let create = if in_sticky(&name.path) { libc::O_CREAT | libc::O_EXCL } else { libc::O_CREAT };
    let kind = *[libc::O_WRONLY | create, libc::O_RDWR | create, libc::O_RDONLY].choose(rng).unwrap();
    let cut = if kind & create != 0 && rng.random_bool(0.3) { libc::O_TRUNC } else { 0 };
    let append = if rng.random_bool(0.2) { libc::O_APPEND } else { 0 };
    let reads = kind == libc::O_RDONLY;
    let follow = if reads && in_sticky(&name.path) { libc::O_NOFOLLOW } else { 0 };
    let mut ops = vec![Op::Open { name, flags: kind | cut | append | follow, mode: 0o666, slot }];
    for _ in 0..rng.random_range(1..7) {
        let here = Who::Slot(slot);
        let len = rng.random_range(0..9_000);
        ops.push(match rng.random_range(0..12) {
            0..6 if reads => Op::Read { slot, at: at(rng), len },
            0..6 => Op::Write { slot, at: at(rng), data: pattern(rng.random(), len) },
            6 | 7 if !reads => {
                Op::SetAttr { who: here, set: SetAttr { mode: Some(permissions(rng)), ..SetAttr::NONE } }
            }
            8 | 9 if !reads => {
                let set = SetAttr { atime: set_time(rng), mtime: set_time(rng), ..SetAttr::NONE };
                Op::SetAttr { who: here, set }
            }
            10 => {
                Op::Seek { slot, whence: *[libc::SEEK_SET, libc::SEEK_CUR].choose(rng).unwrap(), off: len as i64 / 3 }
            }
            _ => Op::Stat { who: here },
        });
    }
    if rng.random_bool(0.8) {
        ops.push(Op::Close { slot });
    }
    ops
}

/// The same where only these workers make calls.
fn program_of(seed: u64, workers: &[usize]) -> Vec<Step> {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut steps = prologue();
    steps.extend((0..STEPS).map(|_| step(&mut rng, workers)));
    steps.push(Step { worker: 0, call: Call::Compare, how: 0 });
    steps
}

/// A few directories that all users may use, and a file that is open at every door, so that calls meet.
fn prologue() -> Vec<Step> {
    let name = |path: &str| Name { base: None, path: path.as_bytes().to_vec() };
    let sticky = |set| Op::SetAttr { who: Who::Path(name("/s"), false), set };
    let first = [
        Op::Mkdir { name: name("/a"), mode: 0o777 },
        Op::Mkdir { name: name("/b"), mode: 0o777 },
        Op::Mkdir { name: name("/s"), mode: 0o770 },
        sticky(SetAttr { gid: Some(2000), ..SetAttr::NONE }),
        sticky(SetAttr { mode: Some(0o1770), ..SetAttr::NONE }),
    ];
    let open = |worker: usize, flags| {
        let slot = worker as u32 * SLOTS;
        let op = Op::Open { name: name("/c"), flags: libc::O_RDWR | libc::O_CREAT | flags, mode: 0o666, slot };
        Step { worker, call: Call::Plain(op), how: 0 }
    };
    let steps = first.into_iter().map(|op| Step { worker: 0, call: Call::Plain(op), how: 0 });
    let opens = (0..WORKERS).map(|worker| open(worker, if worker % 2 == 0 { libc::O_APPEND } else { 0 }));
    steps.chain(opens).collect()
}

/// A path: one to three components of few names, or one in the sticky directory.
fn path(rng: &mut StdRng) -> Vec<u8> {
    let names = ["a", "b", "c", "d"];
    let relative = rng.random_bool(0.5);
    let mut path = String::from(if relative { "" } else { "/" });
    if rng.random_bool(0.15) {
        path += "s/";
        path += names.choose(rng).unwrap();
        return path.into_bytes();
    }
    for depth in 0..*[1, 1, 1, 2, 2, 3].choose(rng).unwrap() {
        if depth > 0 {
            path.push('/');
        }
        path += names.choose(rng).unwrap();
    }
    path.into_bytes()
}

/// Whether it lies in the sticky directory. Links followed there, and files opened with O_CREAT there, are for the
/// host's kernel to refuse (fs.protected_symlinks, fs.protected_regular), at the mount only.
fn in_sticky(path: &[u8]) -> bool {
    path.strip_prefix(b"/").unwrap_or(path).starts_with(b"s/")
}

fn name(rng: &mut StdRng) -> Name {
    Name { base: None, path: path(rng) }
}

/// A name that may start at an open directory of the worker's.
fn name_from(rng: &mut StdRng, worker: usize) -> Name {
    let mut name = name(rng);
    if rng.random_bool(0.15) && !in_sticky(&name.path) {
        if name.path[0] == b'/' {
            name.path.remove(0);
        }
        name.base = Some(slot(rng, worker));
    }
    name
}

fn slot(rng: &mut StdRng, worker: usize) -> u32 {
    worker as u32 * SLOTS + rng.random_range(0..SLOTS)
}

fn who(rng: &mut StdRng, worker: usize) -> Who {
    if rng.random_bool(0.4) { Who::Slot(slot(rng, worker)) } else { Who::Path(name_from(rng, worker), false) }
}

fn offset(rng: &mut StdRng) -> u64 {
    match rng.random_range(0..10) {
        0..6 => rng.random_range(0..20_000),
        6..9 => rng.random_range(0..6) * 4096,
        _ => (1 << 20) + rng.random_range(0..3) * 4095,
    }
}

fn length(rng: &mut StdRng) -> u64 {
    match rng.random_range(0..20) {
        0..8 => rng.random_range(0..700),
        8..15 => rng.random_range(0..13_000),
        15..19 => rng.random_range(1..5) * 4096,
        _ => rng.random_range(60_000..300_000),
    }
}

/// The bytes that a write of this length and seed writes; door.c has the same.
pub fn pattern(seed: u8, len: u64) -> Vec<u8> {
    (0..len).map(|i| ((i as u8).wrapping_mul(31) ^ seed) | 1).collect()
}

fn at(rng: &mut StdRng) -> At {
    if rng.random_bool(0.5) { At::Current } else { At::Offset(offset(rng)) }
}

fn permissions(rng: &mut StdRng) -> u32 {
    *[0o777, 0o777, 0o755, 0o700, 0o644, 0o666, 0o600, 0o555, 0o070, 0o007, 0o2777, 0o4755].choose(rng).unwrap()
}

fn open(rng: &mut StdRng, worker: usize) -> Op {
    let mut flags = *[libc::O_RDONLY, libc::O_WRONLY, libc::O_RDWR, libc::O_RDWR].choose(rng).unwrap();
    let bits = [
        (libc::O_CREAT, 0.6),
        (libc::O_EXCL, 0.15),
        (libc::O_TRUNC, 0.2),
        (libc::O_APPEND, 0.3),
        (libc::O_NOFOLLOW, 0.15),
    ];
    for (bit, chance) in bits {
        if rng.random_bool(chance) {
            flags |= bit;
        }
    }
    if rng.random_bool(0.2) {
        flags = libc::O_RDONLY | libc::O_DIRECTORY;
    }
    let mut name = name_from(rng, worker);
    if in_sticky(&name.path) {
        flags = if flags & libc::O_CREAT != 0 { flags | libc::O_EXCL } else { flags | libc::O_NOFOLLOW };
    }
    if flags & libc::O_CREAT == 0 {
        // What it means is not defined.
        flags &= !libc::O_EXCL;
    }
    let (mode, slot) = (permissions(rng), slot(rng, worker));
    // A slot is closed when its next file is there, and the model closes it before.
    if name.base == Some(slot) {
        name.base = None;
    }
    Op::Open { name, flags, mode, slot }
}

fn set_time(rng: &mut StdRng) -> SetTime {
    SetTime::To((GIVEN + rng.random_range(0..1_000_000_000), rng.random_range(0..1_000_000_000)))
}

fn attributes(rng: &mut StdRng) -> SetAttr {
    let id = |rng: &mut StdRng| rng.random_bool(0.6).then(|| *[0u32, 1001, 1002, 2000].choose(rng).unwrap());
    match rng.random_range(0..6) {
        0 | 1 => SetAttr { mode: Some(permissions(rng)), ..SetAttr::NONE },
        2 => SetAttr { uid: id(rng), gid: id(rng).or(Some(2000)), ..SetAttr::NONE },
        3 => SetAttr { size: Some(offset(rng)), ..SetAttr::NONE },
        4 => SetAttr { atime: SetTime::Now, mtime: SetTime::Now, ..SetAttr::NONE },
        _ => SetAttr { atime: set_time(rng), mtime: set_time(rng), ..SetAttr::NONE },
    }
}

fn on_names(rng: &mut StdRng, worker: usize) -> Op {
    match rng.random_range(0..34) {
        0..9 => open(rng, worker),
        9..12 => Op::Mkdir { name: name_from(rng, worker), mode: permissions(rng) },
        12 => Op::Rmdir { name: name_from(rng, worker) },
        13..16 => Op::Unlink { name: name_from(rng, worker) },
        16..20 => {
            let kind = rng.random_range(0..10);
            let (from, to) = (name_from(rng, worker), name_from(rng, worker));
            Op::Rename { from, to, noreplace: kind == 0, exchange: kind == 1 }
        }
        20 | 21 => Op::Link { from: Who::Path(name(rng), rng.random()), to: name(rng) },
        22 => {
            let target = *["a", "b/c", "c", "d", "a/b", "b"].choose(rng).unwrap();
            Op::Symlink { target: target.as_bytes().to_vec(), name: name(rng) }
        }
        23 => Op::Readlink { name: name_from(rng, worker) },
        24 => Op::Access { name: name(rng), mask: rng.random_range(0..8) },
        25 | 26 => Op::ReadDir { slot: slot(rng, worker) },
        27 | 28 => Op::Stat { who: who(rng, worker) },
        29..32 => {
            let (mut who, set) = (who(rng, worker), attributes(rng));
            // truncate(2) has no form that starts at a directory.
            if let (Who::Path(name, _), Some(_)) = (&mut who, set.size) {
                name.base = None;
            }
            Op::SetAttr { who, set }
        }
        32 => {
            let (key, kind) = (xattr(rng), rng.random_range(0..6));
            let value = pattern(7, rng.random_range(0..300));
            let who = Who::Path(name(rng), false);
            Op::SetXattr { who, key, value, create: kind == 0, replace: kind == 1 }
        }
        _ => {
            let (who, room) = (Who::Path(name(rng), false), 4096);
            match rng.random_range(0..3) {
                0 => Op::GetXattr { who, key: xattr(rng), room },
                1 => Op::ListXattr { who, room },
                _ => Op::RemoveXattr { who, key: xattr(rng) },
            }
        }
    }
}

fn xattr(rng: &mut StdRng) -> Vec<u8> {
    ["user.a", "user.b"].choose(rng).unwrap().as_bytes().to_vec()
}

fn on_files(rng: &mut StdRng, worker: usize) -> Op {
    let slot = slot(rng, worker);
    let modes = [Falloc::Reserve, Falloc::KeepSize, Falloc::Punch, Falloc::Zero, Falloc::ZeroKeepSize];
    match rng.random_range(0..17) {
        0..6 => {
            let len = length(rng);
            Op::Write { slot, at: at(rng), data: pattern(rng.random(), len) }
        }
        6..11 => Op::Read { slot, at: at(rng), len: length(rng) },
        11 | 12 => Op::Truncate { slot, size: offset(rng) },
        13 => Op::Fallocate {
            slot,
            mode: *modes.choose(rng).unwrap(),
            off: offset(rng),
            len: 1 + rng.random_range(0..20_000),
        },
        14 | 15 => {
            let whences = [libc::SEEK_SET, libc::SEEK_CUR, libc::SEEK_END, libc::SEEK_DATA, libc::SEEK_HOLE];
            Op::Seek { slot, whence: *whences.choose(rng).unwrap(), off: rng.random_range(-5..20_000) }
        }
        _ => Op::Close { slot },
    }
}

fn on_locks(rng: &mut StdRng, worker: usize) -> Call {
    let slot = slot(rng, worker);
    if rng.random_bool(0.35) {
        let kind = *[libc::LOCK_SH, libc::LOCK_EX, libc::LOCK_UN].choose(rng).unwrap();
        return Call::Flock { slot, kind };
    }
    let kind = *[libc::F_RDLCK, libc::F_WRLCK, libc::F_WRLCK, libc::F_UNLCK].choose(rng).unwrap() as i16;
    let (start, len) = (rng.random_range(0..60), rng.random_range(0..40));
    let get = rng.random_bool(0.2) && kind != libc::F_UNLCK as i16;
    Call::Lock { slot, description: rng.random_bool(0.3), kind, start, len, get }
}

fn step(rng: &mut StdRng, workers: &[usize]) -> Step {
    let worker = workers[rng.random_range(0..workers.len())];
    let call = match rng.random_range(0..100) {
        0..45 => Call::Plain(on_names(rng, worker)),
        45..82 => Call::Plain(on_files(rng, worker)),
        82..95 => on_locks(rng, worker),
        95..98 => Call::Copy {
            from: slot(rng, worker),
            to: slot(rng, worker),
            from_at: rng.random_range(0..12_000),
            to_at: rng.random_range(0..12_000),
            len: rng.random_range(1..9_000),
        },
        _ => Call::Compare,
    };
    Step { worker, call, how: rng.random_range(0..3) }
}
