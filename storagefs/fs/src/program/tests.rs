//! Programs over a real store: what they leave is what their steps leave as single commands, in both modes, also when a
//! step fails, when there is no room, and after the log is read back.

use crate::driver::Direct;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use weldfs_ciscops::program::{Body, Builder, Bytes, FileSlot, Micro, Place, Str, Value};
use weldfs_ciscops::{At, Errno, Handle, InodeNo, Op, OpenFlags, Outcome, PoolRange, RenameFlags, TxnMode};
use weldfs_journal::{ManualClock, Medium, SeededRandom};
use weldfs_media::{CrashModel, RecordingMedium};
use weldfs_store::geometry::GeometryOptions;
use weldfs_store::limits::BLOCK;
use weldfs_store::mount::{MkfsOptions, format};
use weldfs_store::{MountOptions, Store};

const RW: OpenFlags = OpenFlags::READ.union(OpenFlags::WRITE);
const MODES: [TxnMode; 2] = [TxnMode::Macro, TxnMode::Micro];
/// Where bodies and data lie in the pool.
const BODY: u32 = 0;
const DATA: u32 = 64 << 10;
const NAMES: [&str; 6] = ["a", "b", "d/a", "d/b", "e", "d"];

/// Type and permission bits, links, content.
type Tree = BTreeMap<String, (u32, u32, Vec<u8>)>;

struct Rig {
    medium: Arc<RecordingMedium>,
    direct: Direct,
    hash_bits: u32,
}

fn options(hash_bits: u32) -> MountOptions {
    let (clock, random) = (Arc::new(ManualClock::default()), Arc::new(SeededRandom::new(7)));
    MountOptions { inline_commits: true, hash_bits, ..MountOptions::new(clock, random) }
}

fn rig(model: CrashModel, hash_bits: u32) -> Rig {
    let medium: Arc<RecordingMedium> = Arc::new(RecordingMedium::new(4 << 20, model));
    let dynamic: Arc<dyn Medium> = medium.clone();
    let geometry = GeometryOptions { log_len: Some(512 << 10), ..Default::default() };
    let mkfs = MkfsOptions { geometry, inline_max: Some(512), ..Default::default() };
    format(&dynamic, &mkfs, &ManualClock::default(), &SeededRandom::new(1)).unwrap();
    let (store, _) = crate::mount(dynamic, options(hash_bits)).unwrap();
    let mut r = Rig { medium, direct: Direct::new(store, 1 << 20), hash_bits };
    r.single(Step::Mkdir(5)).unwrap();
    r.single(Step::Write { name: 0, at: Some(0), len: 9000, fill: 1 }).unwrap();
    r.single(Step::Write { name: 2, at: Some(0), len: 300, fill: 2 }).unwrap();
    r.direct.store().checkpoint().unwrap();
    r
}

#[derive(Clone, Copy, Debug)]
enum Step {
    /// Opens or creates, and writes.
    Write {
        name: usize,
        at: Option<u64>,
        len: u32,
        fill: u8,
    },
    Truncate {
        name: usize,
        size: u64,
    },
    /// Opens, emptied or created.
    Empty(usize),
    Copy {
        from: usize,
        to: usize,
        off: u64,
        len: u64,
    },
    Unlink(usize),
    Rename(usize, usize),
    Link(usize, usize),
    Mkdir(usize),
    Rmdir(usize),
    Chmod(usize, u16),
}

fn fill(len: u32, with: u8) -> Vec<u8> {
    (0..len).map(|i| (i as u8).wrapping_mul(31) ^ (i >> 8) as u8 ^ with | 1).collect()
}

fn done(o: Outcome) -> Result<(u64, u64), Errno> {
    if o.is_ok() { Ok((o.result, o.result2)) } else { Err(Errno(o.status)) }
}

impl Rig {
    fn run(&mut self, op: Op) -> Result<(u64, u64), Errno> {
        done(self.direct.run(op))
    }

    fn path(&self, name: usize, at: u32) -> PoolRange {
        self.direct.put(DATA + at, NAMES[name].as_bytes())
    }

    fn opened(&mut self, name: usize, flags: OpenFlags) -> Result<Handle, Errno> {
        let path = self.path(name, 0);
        let op = Op::open(Handle::ROOT, path, flags, 0o644);
        self.run(op).map(|(h, _)| Handle::from_wire(h))
    }

    /// What a client does without programs.
    fn single(&mut self, step: Step) -> Result<(), Errno> {
        let base = Handle::ROOT;
        match step {
            Step::Write { name, at, len, fill: with } => {
                let h = self.opened(name, RW | OpenFlags::CREATE)?;
                let src = self.direct.put(DATA + 4096, &fill(len, with));
                let at = at.map_or(At::End, At::Offset);
                let wrote = self.run(Op::Write { h, at, src });
                self.run(Op::Close { h })?;
                wrote.map(drop)
            }
            Step::Truncate { name, size } => {
                let h = self.opened(name, RW)?;
                let cut = self.run(Op::Truncate { h, size });
                self.run(Op::Close { h })?;
                cut.map(drop)
            }
            Step::Empty(name) => {
                let h = self.opened(name, RW | OpenFlags::CREATE | OpenFlags::TRUNC)?;
                self.run(Op::Close { h }).map(drop)
            }
            Step::Copy { from, to, off, len } => {
                let h = self.opened(from, RW)?;
                let out = PoolRange::new(DATA + 4096, len as u32);
                let n = self.run(Op::Read { h, at: At::Offset(off), out, watch: 0 }).map(|(n, _)| n as u32);
                self.run(Op::Close { h })?;
                let h = self.opened(to, RW | OpenFlags::CREATE)?;
                let src = PoolRange::new(out.off, n?);
                let wrote = self.run(Op::Write { h, at: At::End, src });
                self.run(Op::Close { h })?;
                wrote.map(drop)
            }
            Step::Unlink(name) => self.run(Op::Unlink { base, path: self.path(name, 0) }).map(drop),
            Step::Rmdir(name) => self.run(Op::Rmdir { base, path: self.path(name, 0) }).map(drop),
            Step::Mkdir(name) => self.run(Op::Mkdir { base, path: self.path(name, 0), mode: 0o755 }).map(drop),
            Step::Rename(a, b) => {
                let (from, to) = (self.path(a, 0), self.path(b, 100));
                let flags = RenameFlags::empty();
                self.run(Op::Rename { from_base: base, from, to_base: base, to, flags }).map(drop)
            }
            Step::Link(a, b) => {
                let (from, to) = (self.path(a, 0), self.path(b, 100));
                self.run(Op::Link { from_base: base, from, to_base: base, to, follow: false }).map(drop)
            }
            Step::Chmod(name, mode) => {
                use weldfs_ciscops::{SetAttrBody, SetAttrMask};
                use zerocopy::IntoBytes;
                let set = SetAttrBody { mask: SetAttrMask::MODE.bits(), mode: mode.into(), ..SetAttrBody::default() };
                let (path, set) = (self.path(name, 0), self.direct.put(DATA + 4096, set.as_bytes()));
                self.run(Op::SetAttrPath { base, path, nofollow: true, set }).map(drop)
            }
        }
    }

    /// Runs a finished program; its pool ranges lie one after the other.
    fn program(&mut self, body: &Body, mode: TxnMode, payload: &[Vec<u8>]) -> Outcome {
        let (mut at, mut ranges) = (DATA, Vec::new());
        for bytes in payload {
            ranges.push(self.direct.put(at, bytes));
            at += bytes.len() as u32;
        }
        let range = self.direct.put(BODY, &body.bind(&ranges).unwrap());
        self.direct.run_with(Body::op(range), mode, true)
    }

    fn steps(&mut self, steps: &[Step], mode: TxnMode) -> Outcome {
        let mut b = Builder::new();
        let mut payload = Vec::new();
        steps.iter().for_each(|s| add(&mut b, &mut payload, *s));
        self.program(&b.finish().unwrap(), mode, &payload)
    }

    fn tree(&self) -> Tree {
        let mut all = BTreeMap::new();
        walk(self.direct.store(), InodeNo::ROOT, "", &mut all);
        all
    }

    /// The tree that a mount of what is on the medium shows.
    fn tree_again(&self) -> Tree {
        let store = self.direct.store();
        store.make_durable(store.journal().tail()).unwrap();
        let medium = Arc::new(RecordingMedium::from_bytes(self.medium.to_bytes(), CrashModel::Pmem));
        let (store, _) = crate::mount(medium, options(self.hash_bits)).unwrap();
        let mut all = BTreeMap::new();
        walk(&store, InodeNo::ROOT, "", &mut all);
        all
    }
}

fn walk(store: &Store, dir: InodeNo, above: &str, all: &mut Tree) {
    let mut names = Vec::new();
    store
        .blocking(|| {
            names.clear();
            store.dirents(dir, 0, &mut |d| {
                names.push((String::from_utf8(d.name.to_vec()).unwrap(), d.ino));
                true
            })
        })
        .unwrap();
    for (name, ino) in names {
        let path = format!("{above}{name}");
        let rec = store.blocking(|| store.inode(ino)).unwrap().expect("the inode of an entry");
        let mut content = Vec::new();
        if rec.is_dir() {
            walk(store, ino, &format!("{path}/"), all);
        } else {
            for blk in 0..rec.size.div_ceil(BLOCK as u64) {
                let mut block = [0; BLOCK];
                store.blocking(|| store.read_block(ino, blk, &mut block)).unwrap();
                content.extend_from_slice(&block);
            }
            content.truncate(rec.size as usize);
        }
        assert!(all.insert(path, (rec.mode, rec.nlink, content)).is_none(), "a name twice");
    }
}

fn add(b: &mut Builder, payload: &mut Vec<Vec<u8>>, step: Step) {
    let base = Handle::ROOT;
    let name = |b: &mut Builder, name: usize| b.string(NAMES[name].as_bytes());
    // One slot for files that are changed, one for those that are read.
    let open = |b: &mut Builder, slot: u8, at: usize, flags| {
        let (file, path) = (FileSlot(slot), b.string(NAMES[at].as_bytes()));
        b.push(Micro::Open { file, base, path, flags, mode: 0o644, created: None });
        file
    };
    match step {
        Step::Write { name, at, len, fill: with } => {
            let file = open(b, 0, name, RW | OpenFlags::CREATE);
            let from = Bytes::Pool(b.pool(len));
            payload.push(fill(len, with));
            let place = at.map_or(Place::End, |off| Place::At(Value::Imm(off)));
            b.push(Micro::Write { file, place, from, fold: None, at: None });
        }
        Step::Truncate { name, size } => {
            let file = open(b, 0, name, RW);
            b.push(Micro::Truncate { file, size: Value::Imm(size) });
        }
        Step::Empty(name) => drop(open(b, 0, name, RW | OpenFlags::CREATE | OpenFlags::TRUNC)),
        Step::Copy { from, to, off, len } => {
            let from = open(b, 1, from, RW);
            let to = open(b, 0, to, RW | OpenFlags::CREATE);
            let (off, len, place) = (Value::Imm(off), Value::Imm(len), Place::End);
            b.push(Micro::CopyRange { from, off, len, max: 0, to, place, count: None });
        }
        Step::Unlink(n) => {
            let path = name(b, n);
            b.push(Micro::Unlink { base, path });
        }
        Step::Rmdir(n) => {
            let path = name(b, n);
            b.push(Micro::Rmdir { base, path });
        }
        Step::Mkdir(n) => {
            let path = name(b, n);
            b.push(Micro::Mkdir { base, path, mode: 0o755 });
        }
        Step::Rename(x, y) => {
            let (from, to): (Str, Str) = (name(b, x), name(b, y));
            b.push(Micro::Rename { from_base: base, from, to_base: base, to, flags: RenameFlags::empty() });
        }
        Step::Link(x, y) => {
            let (from, to) = (Some(name(b, x)), name(b, y));
            b.push(Micro::Link { from_base: base, from, to_base: base, to, follow: false });
        }
        Step::Chmod(n, mode) => {
            let (path, mode) = (Some(name(b, n)), Some(mode));
            let (size, nofollow) = (None, true);
            b.push(Micro::SetAttr { base, path, nofollow, mode, size, atime_now: false, mtime_now: false });
        }
    }
}

/// A program against its steps as single commands.
fn compare(steps: &[Step], mode: TxnMode, model: CrashModel, hash_bits: u32) {
    let (mut a, mut b) = (rig(model, hash_bits), rig(model, hash_bits));
    let before = a.tree();
    let outcome = a.steps(steps, mode);
    let failed = steps.iter().find_map(|s| b.single(*s).err());
    let what = format!("{mode:?} {model:?} {steps:?}: {outcome:?}");
    assert_eq!(outcome.status, failed.map_or(0, |e| e.0), "{what}");
    let want = match (failed, mode) {
        (Some(_), TxnMode::Macro) => before,
        _ => b.tree(),
    };
    let same = |found: Tree, when: &str| {
        for name in found.keys().chain(want.keys()) {
            let (x, y) = (found.get(name), want.get(name));
            let short = |t: Option<&(u32, u32, Vec<u8>)>| t.map(|t| (t.0, t.1, t.2.len()));
            assert!(x == y, "{when}: {name}: {:?}, should be {:?}: {what}", short(x), short(y));
        }
    };
    same(a.tree(), "at once");
    same(a.tree_again(), "read back");
    a.direct.store().checkpoint().unwrap();
    same(a.tree_again(), "after a checkpoint");
}

fn step() -> impl Strategy<Value = Step> {
    let n = 0..NAMES.len();
    let off = prop_oneof![Just(0u64), 0..13_000u64, Just(4096), Just(8192)];
    let len = prop_oneof![1..200u32, Just(4096), 1..14_000u32];
    prop_oneof![
        4 => (n.clone(), proptest::option::of(off.clone()), len, any::<u8>())
            .prop_map(|(name, at, len, fill)| Step::Write { name, at, len, fill }),
        2 => (n.clone(), off.clone()).prop_map(|(name, size)| Step::Truncate { name, size }),
        1 => n.clone().prop_map(Step::Empty),
        1 => (n.clone(), n.clone(), off, 1..10_000u64)
            .prop_map(|(from, to, off, len)| Step::Copy { from, to, off, len }),
        1 => n.clone().prop_map(Step::Unlink),
        2 => (n.clone(), n.clone()).prop_map(|(a, b)| Step::Rename(a, b)),
        1 => (n.clone(), n.clone()).prop_map(|(a, b)| Step::Link(a, b)),
        1 => n.clone().prop_map(Step::Mkdir),
        1 => n.clone().prop_map(Step::Rmdir),
        1 => (n, 0..0o777u16).prop_map(|(name, mode)| Step::Chmod(name, mode)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, max_shrink_iters: 300, ..ProptestConfig::default() })]

    #[test]
    fn a_program_leaves_what_its_steps_leave(
        steps in proptest::collection::vec(step(), 1..6), micro: bool, block: bool, weak: bool,
    ) {
        let mode = if micro { TxnMode::Micro } else { TxnMode::Macro };
        let model = if block { CrashModel::Block } else { CrashModel::Pmem };
        compare(&steps, mode, model, if weak { 1 } else { 51 });
    }
}

#[test]
fn what_is_written_cut_and_grown_again_reads_as_zeros_in_between() {
    for mode in MODES {
        for model in [CrashModel::Pmem, CrashModel::Block] {
            for len in [200, 9000] {
                for size in [0, 100, 4096, 5000] {
                    let write = |fill| Step::Write { name: 4, at: Some(0), len, fill };
                    let truncate = |size| Step::Truncate { name: 4, size };
                    compare(&[write(1), truncate(size), truncate(12_000)], mode, model, 51);
                    let old = Step::Write { name: 0, at: Some(3000), len, fill: 9 };
                    let cut = Step::Truncate { name: 0, size };
                    let grown = Step::Write { name: 0, at: Some(10_000), len: 50, fill: 3 };
                    compare(&[old, cut, grown, old], mode, model, 51);
                }
            }
        }
    }
}

#[test]
fn what_a_program_cuts_off_an_old_block_never_comes_back() {
    for mode in MODES {
        for model in [CrashModel::Pmem, CrashModel::Block] {
            // In the record, and in blocks.
            for (at, len) in [(3000, 50), (3000, 5000), (50, 20), (8000, 4000)] {
                for size in [0, 100, 4096, 5000] {
                    let cut = Step::Truncate { name: 0, size };
                    let write = Step::Write { name: 0, at: Some(at), len, fill: 9 };
                    let grow = Step::Truncate { name: 0, size: 12_000 };
                    let copy = Step::Copy { from: 0, to: 4, off: 0, len: 9500 };
                    compare(&[cut, write], mode, model, 51);
                    compare(&[cut, grow, copy], mode, model, 51);
                    compare(&[cut, write, Step::Truncate { name: 0, size: size / 2 }, grow, copy], mode, model, 51);
                }
            }
        }
    }
}

#[test]
fn names_made_and_used_in_one_program_share_buckets_with_others() {
    for mode in MODES {
        let write = |name, fill| Step::Write { name, at: Some(0), len: 700, fill };
        let cases: [&[Step]; 6] = [
            // Atomic replacement.
            &[write(4, 7), Step::Rename(4, 0)],
            &[Step::Unlink(0), write(0, 5), write(1, 6), Step::Unlink(0)],
            &[write(1, 1), write(4, 2), Step::Unlink(1), write(1, 3), Step::Unlink(4), Step::Rename(1, 4)],
            &[Step::Unlink(2), Step::Rmdir(5), Step::Mkdir(5), write(3, 4), Step::Rename(3, 2)],
            &[Step::Unlink(2), write(3, 1), Step::Rmdir(5)],
            // Into a directory that has another name by then.
            &[Step::Rename(5, 4), Step::Mkdir(5), write(2, 4), Step::Rename(4, 1)],
        ];
        for steps in cases {
            compare(steps, mode, CrashModel::Pmem, 1);
            compare(steps, mode, CrashModel::Pmem, 51);
        }
    }
}

#[test]
fn a_program_that_is_led_elsewhere_starts_over_with_what_it_lacked() {
    for mode in MODES {
        let mut r = rig(CrashModel::Pmem, 51);
        let mut b = Builder::new();
        let (from, to) = (b.string(b"d"), b.string(b"moved"));
        let base = Handle::ROOT;
        b.push(Micro::Rename { from_base: base, from, to_base: base, to, flags: RenameFlags::empty() });
        let file = b.open(base, b"moved/a", RW, 0);
        let from = b.literal(b"new bytes");
        b.push(Micro::Write { file, place: Place::At(Value::Imm(0)), from, fold: None, at: None });
        let outcome = r.program(&b.finish().unwrap(), mode, &[]);
        assert!(outcome.is_ok(), "{outcome:?}");
        assert_eq!(r.tree()["moved/a"].2[..9], *b"new bytes");
        assert_eq!(r.tree(), r.tree_again());
    }
}

#[test]
fn more_inodes_than_a_set_holds_are_refused_before_anything_is_done() {
    let mut r = rig(CrashModel::Pmem, 51);
    let base = Handle::ROOT;
    for i in 0..20 {
        let path = r.direct.put(DATA, format!("n{i}").as_bytes());
        r.run(Op::Mkdir { base, path, mode: 0o755 }).unwrap();
    }
    let before = r.tree();
    let rmdirs = |count: usize| {
        let mut b = Builder::new();
        for i in 0..count {
            let path = b.string(format!("n{i}").as_bytes());
            b.push(Micro::Rmdir { base, path });
        }
        b.finish().unwrap()
    };
    let refused = r.program(&rmdirs(16), TxnMode::Macro, &[]);
    assert_eq!(Errno(refused.status), Errno::TOOBIG, "sixteen and their directory");
    assert_eq!(r.tree(), before);
    assert!(r.program(&rmdirs(15), TxnMode::Macro, &[]).is_ok());
    assert_eq!(r.tree().len(), before.len() - 15);
}

#[test]
fn no_room_midway_leaves_nothing_in_either_mode() {
    for mode in MODES {
        let mut r = rig(CrashModel::Pmem, 51);
        // Fills the image, but for a few blocks.
        let mut n = 0;
        while r.single(Step::Write { name: 1, at: None, len: 100_000, fill: n }).is_ok() {
            n += 1;
        }
        assert!(n > 3);
        let before = r.tree();
        let steps = [
            Step::Write { name: 4, at: Some(0), len: 5000, fill: 1 },
            Step::Rename(4, 0),
            Step::Write { name: 3, at: Some(0), len: 200_000, fill: 2 },
        ];
        let outcome = r.steps(&steps, mode);
        assert_eq!(Errno(outcome.status), Errno::NOSPC);
        assert_eq!(outcome.micro_done, 0);
        assert_eq!(r.tree(), before);
        assert_eq!(r.tree_again(), before);
        // What overwrites or removes needs no room.
        let over = [Step::Write { name: 0, at: Some(100), len: 5000, fill: 1 }, Step::Unlink(1)];
        assert!(r.steps(&over, mode).is_ok());
        assert_eq!(r.tree(), r.tree_again());
    }
}

/// Fills the image but for a few blocks; a file of 400,000 bytes is the last but one.
fn full() -> Rig {
    let mut r = rig(CrashModel::Pmem, 51);
    r.single(Step::Write { name: 4, at: Some(0), len: 400_000, fill: 3 }).unwrap();
    for len in [100_000, 10_000, 4096] {
        while r.single(Step::Write { name: 1, at: None, len, fill: 1 }).is_ok() {}
    }
    r
}

#[test]
fn a_name_that_a_program_gives_to_another_file_is_no_file_to_overwrite() {
    let big = Step::Write { name: 4, at: Some(0), len: 400_000, fill: 4 };
    // What was there stays: it is open.
    let cases: [&[Step]; 3] = [
        &[Step::Unlink(4), big],
        &[Step::Rename(2, 4), big],
        &[Step::Truncate { name: 4, size: 0 }, Step::Unlink(4), big],
    ];
    for mode in MODES {
        for steps in cases {
            let mut r = full();
            let h = r.opened(4, RW).unwrap();
            let before = r.tree();
            let outcome = r.steps(steps, mode);
            assert_eq!((Errno(outcome.status), outcome.micro_done), (Errno::NOSPC, 0), "{mode:?} {steps:?}");
            assert_eq!(r.tree(), before, "{mode:?} {steps:?}");
            assert!(r.direct.store().ledger().logical_free() >= 0);
            r.run(Op::Close { h }).unwrap();
        }
    }
}
