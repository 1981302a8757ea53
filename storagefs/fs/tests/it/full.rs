//! Full is safe: random mixes on small images of both natures that are full most of the time. What fails with ENOSPC
//! leaves nothing; unlink, truncation to less, checkpoints, writes to what is allocated or reserved never fail.

use std::collections::BTreeMap;
use std::sync::Arc;
use weldfs_ciscops::interp::Outcome;
use weldfs_ciscops::{
    At, ChecksumKind, Errno, FallocMode, Handle, Op, OpenFlags, PoolRange, StatBody, TxnMode, XattrFlags,
};
use weldfs_fs::driver::Direct;
use weldfs_journal::{ManualClock, Medium, SeededRandom};
use weldfs_media::{CowImage, CowMedium, CrashModel};
use weldfs_store::MountOptions;
use weldfs_store::fsck::fsck;
use weldfs_store::geometry::GeometryOptions;
use weldfs_store::mount::{MkfsOptions, format};
use zerocopy::FromBytes;

const BLOCK: usize = 4096;
const SRC: u32 = 8192;
const OUT: u32 = 2 << 20;
const RW: OpenFlags = OpenFlags::READ.union(OpenFlags::WRITE);

/// What must be there.
#[derive(Clone, Default)]
struct File {
    content: Vec<u8>,
    /// Blocks that are certainly held: written or reserved.
    held: Vec<bool>,
    xattr: Option<u8>,
}

impl File {
    fn holds(&self, off: usize, len: usize) -> bool {
        (off / BLOCK..(off + len).div_ceil(BLOCK)).all(|b| self.held.get(b).copied().unwrap_or(false))
    }

    fn hold(&mut self, off: usize, len: usize) {
        let end = (off + len).div_ceil(BLOCK);
        self.held.resize(self.held.len().max(end), false);
        self.held[off / BLOCK..end].fill(true);
    }

    fn write(&mut self, off: usize, data: &[u8]) {
        self.content.resize(self.content.len().max(off + data.len()), 0);
        self.content[off..off + data.len()].copy_from_slice(data);
        self.hold(off, data.len());
    }
}

struct Rng(u64);

impl Rng {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % n
    }
}

fn options() -> MountOptions {
    MountOptions {
        memory: 8 << 20,
        inline_commits: true,
        ..MountOptions::new(Arc::new(ManualClock::new(1_000_000_000)), Arc::new(SeededRandom::new(3)))
    }
}

fn ok(o: Outcome) -> Result<Outcome, Errno> {
    if o.is_ok() { Ok(o) } else { Err(Errno(o.status)) }
}

struct Full {
    medium: Arc<dyn Medium>,
    d: Direct,
    rng: Rng,
    files: BTreeMap<u64, File>,
    handles: BTreeMap<u64, Handle>,
    /// Files there may be: more than fit.
    names: u64,
    refused: u64,
    done: u64,
    what: String,
}

impl Full {
    fn new(model: CrashModel, bytes: u64, seed: u64) -> Full {
        let medium: Arc<dyn Medium> = Arc::new(CowMedium::new(CowImage::new(vec![0; bytes as usize]), model));
        let o = options();
        let geometry = GeometryOptions { log_len: Some(256 << 10), group_blocks: Some(512), ..Default::default() };
        format(&medium, &MkfsOptions { geometry, ..Default::default() }, &*o.clock, &*o.random).expect("large enough");
        let store = weldfs_fs::mount(medium.clone(), o).expect("just formatted").0;
        let (files, handles) = (BTreeMap::new(), BTreeMap::new());
        let d = Direct::new(store, 8 << 20);
        Full { medium, d, rng: Rng(seed), files, handles, names: bytes >> 17, refused: 0, done: 0, what: String::new() }
    }

    /// A crash without loss, or a clean end; sometimes fsck in between.
    fn remount(&mut self) {
        let clean = self.rng.below(2) == 0;
        self.d.close_all();
        let store = self.d.store().clone();
        match clean {
            true => store.unmount().expect("unmounting always succeeds"),
            false => store.journal().wait(store.journal().tail()).expect("durable"),
        }
        self.d = Direct::new(store, 4096);
        let report = fsck(self.medium.clone(), options(), true).expect("readable");
        assert!(report.clean, "{}: {:#?}", self.what, report.problems);
        let store = weldfs_fs::mount(self.medium.clone(), options()).expect("a full image mounts").0;
        self.d = Direct::new(store, 8 << 20);
        self.handles.clear();
        for n in self.files.keys().copied().collect::<Vec<_>>() {
            let h = self.open(n, RW).expect("it is there");
            self.handles.insert(n, h);
        }
    }

    fn open(&mut self, n: u64, flags: OpenFlags) -> Result<Handle, Errno> {
        let path = self.d.put(0, format!("f{n}").as_bytes());
        let o = self.d.run(Op::open(Handle::ROOT, path, flags, 0o644));
        ok(o).map(|o| Handle::from_wire(o.result))
    }

    fn data(&mut self, len: usize) -> (Vec<u8>, PoolRange) {
        let fill = self.rng.below(255) as u8;
        let data: Vec<u8> = (0..len).map(|i| fill.wrapping_add((i / 97) as u8)).collect();
        let src = self.d.put(SRC, &data);
        (data, src)
    }

    fn mode(&mut self) -> TxnMode {
        if self.rng.below(2) == 0 { TxnMode::Macro } else { TxnMode::Micro }
    }

    fn run(&mut self, op: Op, mode: TxnMode) -> Result<Outcome, Errno> {
        let durable = self.rng.below(8) == 0;
        let o = self.d.run_with(op, mode, durable);
        if o.status == Errno::NOSPC.0 {
            self.refused += 1;
        } else {
            self.done += 1;
        }
        ok(o)
    }

    /// Only ENOSPC, and only where it is allowed.
    fn refused(&self, e: Errno, must: bool) {
        assert!(e == Errno::NOSPC && !must, "{} (refused so far: {}): {e}", self.what, self.refused);
    }

    fn stat(&mut self, h: Handle) -> StatBody {
        ok(self.d.run(Op::Stat { h, out: PoolRange::new(OUT, 256) })).expect("stat");
        StatBody::read_from_bytes(&self.d.take(PoolRange::new(OUT, size_of::<StatBody>() as u32))).expect("its size")
    }

    fn check(&mut self, n: u64) {
        let (h, want) = (self.handles[&n], self.files[&n].clone());
        let stat = self.stat(h);
        assert_eq!(stat.size, want.content.len() as u64, "{}: size of f{n}", self.what);
        let held = want.held.iter().filter(|h| **h).count() as u64;
        assert!(stat.blocks512 >= held * 8, "{}: blocks of f{n}", self.what);
        for at in (0..want.content.len()).step_by(1 << 20) {
            let len = (want.content.len() - at).min(1 << 20);
            let out = PoolRange::new(OUT, len as u32);
            let o = ok(self.d.run(Op::Read { h, at: At::Offset(at as u64), out, watch: 0 })).expect("read");
            assert_eq!(o.result, len as u64);
            let found = self.d.take(out);
            if let Some(i) = (0..len).find(|i| found[*i] != want.content[at + i]) {
                panic!("{}: byte {} of f{n} is {} and not {}", self.what, at + i, found[i], want.content[at + i]);
            }
        }
        let name = self.d.put(64, b"user.x");
        let get =
            Op::GetXattr { base: h, path: PoolRange::default(), nofollow: false, name, out: PoolRange::new(OUT, 4) };
        let xattr = ok(self.d.run(get)).ok().map(|_| self.d.take(PoolRange::new(OUT, 1))[0]);
        assert_eq!(xattr, want.xattr, "{}: attribute of f{n}", self.what);
    }

    fn write_at(&mut self, n: u64) {
        let h = self.handles[&n];
        let size = self.files[&n].content.len() as u64;
        let off = self.rng.below(size + 30_000) as usize;
        let most = [200, 5000, 120_000][self.rng.below(3) as usize];
        let len = 1 + self.rng.below(most) as usize;
        let must = self.files[&n].holds(off, len);
        self.what = format!("write of {len} at {off} of f{n}, which must work: {must}");
        let (data, src) = self.data(len);
        match self.run(Op::Write { h, at: At::Offset(off as u64), src }, TxnMode::Default) {
            Ok(_) => self.files.get_mut(&n).expect("chosen").write(off, &data),
            Err(e) => self.refused(e, must),
        }
    }

    /// A rewrite of what is held: some of it, wherever it is.
    fn overwrite(&mut self, n: u64) {
        let held: Vec<usize> = self.files[&n].held.iter().enumerate().filter(|h| *h.1).map(|h| h.0).collect();
        let Some(first) = held.get(self.rng.below(held.len().max(1) as u64) as usize).copied() else { return };
        let run = held.iter().skip_while(|b| **b != first).zip(first..).take_while(|(b, i)| **b == *i).count();
        let off = first * BLOCK + self.rng.below(BLOCK as u64) as usize;
        let len = 1 + self.rng.below((run.min(60) * BLOCK - off % BLOCK) as u64) as usize;
        self.what = format!("overwrite of {len} at {off} of f{n}");
        let (h, (data, src)) = (self.handles[&n], self.data(len));
        match self.run(Op::Write { h, at: At::Offset(off as u64), src }, TxnMode::Default) {
            Ok(_) => self.files.get_mut(&n).expect("chosen").write(off, &data),
            Err(e) => self.refused(e, true),
        }
    }

    fn append_sum(&mut self, n: u64) {
        let len = 1 + self.rng.below(9000) as usize;
        let mode = self.mode();
        self.what = format!("append of {len} with checksum to f{n}, {mode:?}");
        let (h, (mut data, src)) = (self.handles[&n], self.data(len));
        match self.run(Op::AppendChecksumWrite { h, kind: ChecksumKind::Crc32c, src }, mode) {
            Ok(_) => {
                data.extend(weldfs_functions::crc32c(&data).to_le_bytes());
                let at = self.files[&n].content.len();
                self.files.get_mut(&n).expect("chosen").write(at, &data);
            }
            Err(e) => self.refused(e, false),
        }
    }

    fn put(&mut self, n: u64) {
        let len = self.rng.below(150_000) as usize;
        let mode = self.mode();
        let fresh = !self.files.contains_key(&n);
        self.what = format!("open, write {len}, close of f{n} (new: {fresh}), {mode:?}");
        let (data, src) = self.data(len);
        let path = self.d.put(0, format!("f{n}").as_bytes());
        let flags = OpenFlags::WRITE | OpenFlags::CREATE | OpenFlags::TRUNC;
        let op = Op::OpenWriteClose { base: Handle::ROOT, path, flags, mode: 0o644, at: At::Offset(0), src };
        match self.run(op, mode) {
            Ok(_) => {
                let xattr = self.files.get(&n).and_then(|f| f.xattr);
                let mut file = File { xattr, ..File::default() };
                file.write(0, &data);
                self.files.insert(n, file);
                if fresh {
                    let h = self.open(n, RW).expect("just written");
                    self.handles.insert(n, h);
                }
            }
            Err(e) => {
                self.refused(e, false);
                assert_eq!(self.open(n, RW).is_err(), fresh, "{}: a refused command made a file", self.what);
            }
        }
    }

    fn reserve(&mut self, n: u64) {
        let size = self.files[&n].content.len() as u64;
        let (off, len) = (self.rng.below(size + 9000), 1 + self.rng.below(400_000));
        self.what = format!("fallocate of {len} at {off} of f{n}");
        let h = self.handles[&n];
        match self.run(Op::Fallocate { h, mode: FallocMode::KeepSize, off, len }, TxnMode::Default) {
            Ok(_) => self.files.get_mut(&n).expect("chosen").hold(off as usize, len as usize),
            Err(e) => self.refused(e, false),
        }
    }

    fn cut(&mut self, n: u64) {
        let size = self.files[&n].content.len() as u64;
        let to = self.rng.below(size + 1);
        self.what = format!("truncation of f{n} from {size} to {to}");
        let h = self.handles[&n];
        if let Err(e) = self.run(Op::Truncate { h, size: to }, TxnMode::Default) {
            self.refused(e, true);
        }
        let file = self.files.get_mut(&n).expect("chosen");
        file.content.truncate(to as usize);
        file.held.truncate((to as usize).div_ceil(BLOCK));
    }

    fn unlink(&mut self, n: u64) {
        self.what = format!("unlink of f{n}");
        let path = self.d.put(0, format!("f{n}").as_bytes());
        if let Err(e) = self.run(Op::Unlink { base: Handle::ROOT, path }, TxnMode::Default) {
            self.refused(e, true);
        }
        self.files.remove(&n);
        if let Some(h) = self.handles.remove(&n) {
            ok(self.d.run(Op::Close { h })).expect("close");
        }
    }

    fn set_xattr(&mut self, n: u64) {
        self.what = format!("attribute of f{n}");
        let value = self.rng.below(200) as u8;
        let (name, val) = (self.d.put(64, b"user.x"), self.d.put(128, &[value]));
        let (h, path) = (self.handles[&n], PoolRange::default());
        let op = Op::SetXattr { base: h, path, nofollow: false, name, value: val, flags: XattrFlags::empty() };
        match self.run(op, TxnMode::Default) {
            Ok(_) => self.files.get_mut(&n).expect("chosen").xattr = Some(value),
            Err(e) => self.refused(e, false),
        }
    }

    fn step(&mut self) {
        let n = self.rng.below(self.names);
        if !self.files.contains_key(&n) {
            self.put(n);
        } else {
            match self.rng.below(40) {
                0..8 => self.write_at(n),
                8..18 => self.overwrite(n),
                18..26 => self.append_sum(n),
                26..29 => self.put(n),
                29..32 => self.reserve(n),
                32..34 => self.cut(n),
                34..36 => self.unlink(n),
                36..38 => self.set_xattr(n),
                _ => {
                    self.what = "checkpoint".into();
                    self.d.store().checkpoint().expect("a checkpoint always succeeds");
                }
            }
        }
        if self.files.contains_key(&n) {
            self.check(n);
        }
    }
}

fn run(model: CrashModel, bytes: u64, seed: u64, rounds: u64) {
    let mut f = Full::new(model, bytes, seed);
    for round in 0..rounds {
        f.step();
        if round % 500 == 499 {
            f.what = format!("remount after round {round}");
            f.remount();
            for n in f.files.keys().copied().collect::<Vec<_>>() {
                f.check(n);
            }
        }
    }
    println!("{model:?}, {bytes} bytes, seed {seed}: {} done, {} refused", f.done, f.refused);
    assert!(f.refused * 20 > rounds && f.done * 3 > rounds, "{} refused, {} done", f.refused, f.done);
    for n in f.files.keys().copied().collect::<Vec<_>>() {
        f.unlink(n);
    }
    f.d.store().reclaim_all().expect("reclaim always succeeds");
    f.d.store().checkpoint().expect("a checkpoint always succeeds");
    f.remount();
    f.put(0);
    assert!(f.files.contains_key(&0), "an emptied image can be used again");
}

fn rounds() -> u64 {
    std::env::var("WELDFS_FULL_ROUNDS").ok().and_then(|v| v.parse().ok()).unwrap_or(3000)
}

#[test]
fn nothing_that_must_work_fails_on_a_full_pmem_image_and_what_fails_leaves_nothing() {
    run(CrashModel::Pmem, 5 << 20, 11, rounds());
    run(CrashModel::Pmem, 9 << 20, 12, rounds());
}

#[test]
fn nothing_that_must_work_fails_on_a_full_block_image_and_what_fails_leaves_nothing() {
    run(CrashModel::Block, 5 << 20, 21, rounds());
    run(CrashModel::Block, 9 << 20, 22, rounds());
}

/// Made longer by truncation, a file ends in a hole: what is written there takes a new block, and on a full image none
/// is left for it, however the command says where it writes.
#[test]
fn a_write_at_an_end_that_lies_in_a_hole_is_refused_on_a_full_image() {
    for model in [CrashModel::Pmem, CrashModel::Block] {
        let mut full = Full::new(model, 5 << 20, 7);
        let long = full.open(0, RW | OpenFlags::CREATE).expect("there is room");
        let short = full.open(1, RW | OpenFlags::CREATE).expect("there is room");
        let src = full.d.put(SRC, &[7; 6000]);
        while full.run(Op::Write { h: long, at: At::End, src: PoolRange { len: 4096, ..src } }, TxnMode::Macro).is_ok()
        {
        }
        for n in 1..=24u64 {
            let size = n * 4096 + 1;
            full.run(Op::Truncate { h: short, size }, TxnMode::Macro).expect("a hole takes no block");
            let kind = ChecksumKind::Crc32c;
            let op = match n % 4 {
                0 => Op::AppendChecksumWrite { h: short, kind, src },
                1 => Op::Write { h: short, at: At::End, src },
                2 => Op::Write { h: short, at: At::Offset(size), src },
                _ => Op::Write { h: short, at: At::End, src: PoolRange { len: 1, ..src } },
            };
            assert_eq!(full.run(op, TxnMode::Default), Err(Errno::NOSPC), "{n}: {op:?}");
        }
        full.remount();
    }
}
