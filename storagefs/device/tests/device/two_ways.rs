//! Commands that run to completion where they are taken, and the same with tickets, in slots: the same answers, the
//! same bytes for the client, the same bytes on the medium. As it comes, while a checkpoint is under way, and where
//! nothing that was looked up is kept.

use std::sync::Arc;

use weldfs_ciscops::flags::{AccessMask, ChecksumKind, OpenFlags, RenameFlags};
use weldfs_ciscops::{
    At, Command, CqConsumer, Durability, Handle, Modify, Op, PoolRange, QueueMemory, SetAttrBody, SetAttrMask,
    SharedRegion, SqProducer, TxnMode, WireTime,
};
use weldfs_device::{Device, DeviceConfig, Session};
use weldfs_fs::Cred;
use weldfs_journal::{ManualClock, Medium, SeededRandom};
use weldfs_media::{CowImage, CowMedium, CrashModel, RamMedium};
use weldfs_store::mount::{MkfsOptions, format};
use weldfs_store::{MountOptions, Store};
use zerocopy::IntoBytes;

mod programs;

const MEDIUM: u64 = 24 << 20;
const POOL: u32 = 256 << 10;
/// Payload from the client, names, and what comes back.
const SRC: u32 = 0;
const NAMES: u32 = 96 << 10;
const OUT: u32 = 128 << 10;

struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }

    fn one_of<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len() as u64) as usize]
    }
}

struct Client {
    sq: SqProducer,
    cq: CqConsumer,
    pool: SharedRegion,
    handles: Vec<Handle>,
    _session: Session,
}

impl Client {
    fn new(device: &Device, cred: Cred) -> Client {
        let session = device.attach(cred, [0; 16], b"").unwrap();
        let parts = session.new_queue_local(16, POOL).unwrap();
        let memory = QueueMemory::new(parts.region, &parts.layout).unwrap();
        let pool = memory.pool(&parts.layout).unwrap();
        let (sq, cq) = (SqProducer::new(memory.clone()), CqConsumer::new(memory));
        Client { sq, cq, pool, handles: Vec::new(), _session: session }
    }

    fn name(&self, at: u32, name: &str) -> PoolRange {
        let range = PoolRange::new(NAMES + at * 256, name.len() as u32);
        self.pool.slice(range).unwrap().copy_from(name.as_bytes());
        range
    }

    fn run(&mut self, cmd: &Command, turn: &mut dyn FnMut() -> bool) -> [u64; 4] {
        self.sq.push(&cmd.encode()).unwrap();
        self.sq.publish();
        let cqe = loop {
            if let Some(cqe) = self.cq.pop() {
                break cqe;
            }
            turn();
        };
        self.cq.release();
        if let (Op::Open { .. }, 0) = (&cmd.op, cqe.status) {
            self.handles.push(Handle::from_wire(cqe.result));
        }
        cqe.to_words()
    }
}

/// What one way came to.
#[derive(PartialEq)]
struct Came {
    answers: Vec<(Op, [u64; 4])>,
    pools: Vec<u64>,
    medium: Vec<u8>,
    /// Commands that the device counted, bytes from clients, and checkpoints.
    counted: [u64; 3],
}

fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3))
}

const PATHS: [&str; 12] = ["a", "b", "c", "d", "d/a", "d/b", "d/e", "d/e/a", "link", "d/../a", "/d/./b", "d/link/x"];

fn op(r: &mut Random, client: &Client) -> Op {
    use OpenFlags as F;
    let h = match r.below(12) {
        0 => Handle::ROOT,
        1 => Handle::from_wire(0x7_0000_0003),
        _ if client.handles.is_empty() => Handle::ROOT,
        _ => client.handles[r.below(client.handles.len() as u64) as usize],
    };
    let path = client.name(0, r.one_of(&PATHS));
    let second = client.name(1, r.one_of(&PATHS));
    let base = Handle::ROOT;
    let off = r.one_of(&[0, 1, 100, 4095, 4096, 5000, 8192, 20_000, 1 << 20]);
    let len = r.one_of(&[0u32, 1, 17, 300, 4096, 5000, 8192, 40_000]);
    let src = PoolRange::new(SRC, len);
    let out = PoolRange::new(OUT, len);
    let at = r.one_of(&[At::Offset(off), At::Offset(off), At::End]);
    let body = PoolRange::new(OUT, 256);
    let mode = r.one_of(&[0o644, 0o600, 0o666, 0o400, 0o6755]);
    match r.below(24) {
        0 | 1 => {
            let access = r.one_of(&[F::READ, F::WRITE, F::READ | F::WRITE, F::READ | F::WRITE | F::APPEND]);
            let how = r.one_of(&[F::empty(), F::CREATE, F::CREATE | F::EXCL, F::CREATE | F::TRUNC, F::TRUNC]);
            Op::open(base, path, access | how, mode)
        }
        2 if client.handles.len() > 6 => Op::Close { h },
        2 | 3 => Op::Read { h, at: r.one_of(&[At::Offset(off), At::Current]), out, watch: 0 },
        4 => Op::Read { h, at: At::Offset(off), out, watch: 0 },
        5 => Op::Write { h, at: r.one_of(&[at, At::Current]), src },
        6 if r.below(2) == 0 => Op::Write { h, at, src },
        6 => {
            let right = weldfs_functions::crc32c(&client.pool.slice(src).unwrap().to_vec());
            // When a large one is found wrong, blocks were taken or were not: the next ones lie elsewhere.
            let sum = if len <= 300 { r.one_of(&[right, right, right ^ 1]) } else { right };
            Op::WriteVerified { h, at: r.one_of(&[at, At::Current]), src, kind: ChecksumKind::Crc32c, sum }
        }
        7 => Op::Truncate { h, size: off },
        8 => r.one_of(&[Op::Fsync { h }, Op::Fdatasync { h }, Op::Syncfs]),
        9 => Op::Stat { h, out: body },
        10 => Op::StatPath { base: h, path, nofollow: r.below(2) == 0, out: body },
        11 => Op::Mkdir { base, path, mode: r.one_of(&[0o755, 0o777, 0o700]) },
        12 => r.one_of(&[Op::Rmdir { base, path }, Op::Unlink { base, path }, Op::Unlink { base, path }]),
        13 => {
            let flags = r.one_of(&[RenameFlags::empty(), RenameFlags::NOREPLACE, RenameFlags::EXCHANGE]);
            Op::Rename { from_base: base, from: path, to_base: base, to: second, flags }
        }
        14 => Op::Link { from_base: base, from: path, to_base: base, to: second, follow: r.below(2) == 0 },
        15 => Op::Symlink { target: second, base, path },
        16 => Op::Access { base, path, mask: AccessMask::from_bits_truncate(r.below(8) as u8), nofollow: false },
        17 | 18 => {
            let how = r.one_of(&[F::empty(), F::CREATE, F::CREATE | F::EXCL, F::CREATE | F::TRUNC]);
            Op::OpenWriteClose { base, path, flags: F::WRITE | how, mode, at, src }
        }
        22 => {
            let set = attributes(r);
            let range = PoolRange::new(NAMES + 2 * 256, set.len() as u32);
            client.pool.slice(range).unwrap().copy_from(&set);
            Op::SetAttr { h, set: range }
        }
        19 => Op::OpenReadClose { base, path, flags: F::READ, offset: off, out },
        21 => Op::ReadChecksumVerify { h, kind: ChecksumKind::Crc32c, offset: off, len, out },
        20 => Op::AppendChecksumWrite { h, kind: ChecksumKind::Crc32c, src },
        _ => {
            let (len, out) = (64, PoolRange::new(OUT, 64));
            Op::ReadModifyWrite { h, offset: off, len, modify: Modify::Patch(PoolRange::new(SRC, 64)), out }
        }
    }
}

/// A change of attributes, now and then one that none may make, or that is none.
fn attributes(r: &mut Random) -> Vec<u8> {
    let time = WireTime::new(r.below(1 << 31) as i64, r.one_of(&[0, 999_999_999, 1_000_000_000]));
    // Eight bits are known.
    let bits = r.one_of(&[1 << 8, 1 << 8, 1 << 9]);
    let body = SetAttrBody {
        mask: r.below(bits) as u32 & r.one_of(&[!SetAttrMask::SIZE.bits(), u32::MAX]),
        mode: r.one_of(&[0o644, 0o4755, 0o2755, 0o10_000]),
        uid: r.one_of(&[0, 1000, u32::MAX]),
        gid: r.one_of(&[0, 1000, u32::MAX]),
        size: r.one_of(&[0, 100, 5000]),
        atime: time,
        mtime: time,
        ..SetAttrBody::default()
    };
    body.as_bytes().to_vec()
}

/// What is written to directly, or a disk.
#[derive(Clone, Copy, PartialEq)]
enum On {
    Ram,
    Disk,
}

/// What commands find.
#[derive(Clone, Copy, PartialEq, Debug)]
enum State {
    /// What those before them left: all that changed is in memory, and so is what was looked up.
    AsItComes,
    /// The same with a checkpoint under way: layers are frozen, what commands change lies above them, and the tree
    /// below is the one from before.
    Frozen,
    /// All metadata in the tree, and no inode, name or page of it in memory.
    Evicted,
}

/// Commands between the end of a checkpoint, when the next one begins, and its own end.
const FROZEN_FOR: u64 = 8;

impl State {
    /// Brings the store into it before command `n`.
    fn set(self, on: On, store: &Store, n: u64) {
        match self {
            State::AsItComes => {}
            State::Frozen if n.is_multiple_of(FROZEN_FOR) => {
                store.checkpoint().unwrap();
                store.freeze_layers();
            }
            State::Frozen => {}
            State::Evicted => {
                store.checkpoint().unwrap();
                store.set_cache_budget(0);
                store.set_cache_budget(store.cache_budget_max());
                store.overlay().base(0).pages.forget_all();
                // A disk's block cache keeps a few blocks of files, whatever its budget.
                assert!(on == On::Disk || store.cached() == 0, "before command {n}");
                assert_eq!(store.overlay().base(0).pages.stats().cached, 0, "before command {n}");
            }
        }
    }
}

fn way((on, state): (On, State), seed: u64, count: u64, at_once: bool, make: fn(&mut Random, &Client) -> Op) -> Came {
    let medium: Arc<dyn Medium> = match on {
        On::Ram => Arc::new(RamMedium::new(MEDIUM)),
        On::Disk => Arc::new(CowMedium::new(CowImage::new(vec![0; MEDIUM as usize]), CrashModel::Block)),
    };
    let (clock, random) = (Arc::new(ManualClock::default()), Arc::new(SeededRandom::new(seed)));
    format(&medium, &MkfsOptions::default(), &*clock, &*random).unwrap();
    let (store, _) = weldfs_fs::mount(medium.clone(), MountOptions::new(clock, random)).unwrap();
    let config = DeviceConfig { durability: Durability::Volatile, at_once, ..DeviceConfig::default() };
    let (mut answers, mut pools) = (Vec::new(), Vec::new());
    let counted = Device::on_this_thread(store.clone(), config, |device, turn| {
        let mut clients = [Cred::root(), Cred::new(1000, 1000)].map(|cred| Client::new(device, cred));
        let mut r = Random(seed | 1);
        for n in 0..count {
            let client = &mut clients[usize::from(r.below(4) == 0)];
            let fill: Vec<u8> = (0..40_000u64).map(|i| (i * 31 + n) as u8).collect();
            client.pool.slice(PoolRange::new(SRC, 40_000)).unwrap().copy_from(&fill);
            let op = make(&mut r, client);
            let mut cmd = Command::new(n, op);
            if r.below(4) == 0 {
                cmd = cmd.with_durability(Durability::Durable);
            }
            if matches!(op, Op::Program { .. }) {
                cmd = cmd.with_mode(r.one_of(&[TxnMode::Default, TxnMode::Default, TxnMode::Macro, TxnMode::Micro]));
            }
            state.set(on, &store, n);
            answers.push((op, client.run(&cmd, turn)));
            pools.push(hash(&client.pool.slice(PoolRange::new(0, POOL)).unwrap().to_vec()));
        }
        let total = device.stats().total;
        [total.commands, total.payload_bytes_in, store.stats().checkpoints]
    })
    .unwrap();
    let mut bytes = vec![0; MEDIUM as usize];
    medium.read(0, &mut bytes).unwrap();
    Came { answers, pools, medium: bytes, counted }
}

/// Both ways of `count` commands for each seed: how many there were, and how many of them were refused.
fn both(on: (On, State), seeds: u64, count: u64, make: fn(&mut Random, &Client) -> Op) -> (usize, usize) {
    let (mut refused, mut all) = (0, 0);
    for seed in 1..=seeds {
        let (a, b) = (way(on, seed * 7919, count, true, make), way(on, seed * 7919, count, false, make));
        for (n, (x, y)) in a.answers.iter().zip(&b.answers).enumerate() {
            assert_eq!(x, y, "command {n} of seed {seed}");
            assert_eq!(a.pools[n], b.pools[n], "what command {n} of seed {seed} gave its client: {x:?}");
        }
        assert_eq!(a.counted, b.counted, "commands, bytes and checkpoints counted, seed {seed}");
        // When a disk is written, and with which watermark in its log, is a matter of time.
        let differ = a.medium.iter().zip(&b.medium).position(|(x, y)| x != y).filter(|_| on.0 == On::Ram);
        assert_eq!(differ, None, "the first byte of the medium that differs, of seed {seed}");
        all += a.answers.len();
        refused += a.answers.iter().filter(|(_, words)| words[1] as i32 != 0).count();
    }
    (all, refused)
}

#[test]
fn at_once_and_with_tickets_answers_and_bytes_are_the_same() {
    for (on, seeds) in [(On::Ram, 24), (On::Disk, 12)] {
        let (all, refused) = both((on, State::AsItComes), seeds, 400, op);
        assert!(refused * 5 > all && refused * 5 < 4 * all, "{refused} of {all} were refused");
    }
}

/// A single command now and then, else a program.
fn mixed(r: &mut Random, client: &Client) -> Op {
    if r.below(3) == 0 { op(r, client) } else { programs::program(r, client) }
}

#[test]
fn so_they_are_of_programs() {
    let (all, refused) = both((On::Ram, State::AsItComes), 24, 400, mixed);
    assert!(refused * 5 > all && refused * 5 < 4 * all, "{refused} of {all} were refused");
}

/// Single commands and programs, in a state that the store is brought into before each. On a disk what is cold is
/// waited for, and so a command that looks something up is over at once in none of the evicted runs: what they show is
/// that one that is given up for that has left nothing.
fn are_the_same(state: State) {
    for (on, seeds, make) in
        [(On::Ram, 8, op as fn(&mut Random, &Client) -> Op), (On::Disk, 6, op), (On::Ram, 8, mixed)]
    {
        let (all, refused) = both((on, state), seeds, 400, make);
        assert!(refused * 5 > all && refused * 5 < 4 * all, "{refused} of {all} were refused");
    }
}

#[test]
fn so_they_are_while_a_checkpoint_is_under_way() {
    are_the_same(State::Frozen);
}

#[test]
fn so_they_are_where_everything_is_read_from_the_tree() {
    are_the_same(State::Evicted);
}
