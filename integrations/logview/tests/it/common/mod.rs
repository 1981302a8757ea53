//! The store's effects as this crate's, written out by hand: whoever adds an effect must say here what it looks like
//! from outside.
#![allow(dead_code)]

use std::sync::Arc;
use weldfs_ciscops::{
    At, ChecksumKind, ChecksumState, Command, FallocMode, Handle, InodeNo, Op, OpenFlags, Outcome, PoolRange,
    Registers, RenameFlags, Written, XattrFlags,
};
use weldfs_fs::driver::Direct;
use weldfs_journal::{ManualClock, Medium, RecordKind, SeededRandom};
use weldfs_logview as view;
use weldfs_media::RamMedium;
use weldfs_store::codec::DecodeError;
use weldfs_store::cred::Cred;
use weldfs_store::effect::{self, AttrDelta, BlockState, Effect, attr};
use weldfs_store::geometry::GeometryOptions;
use weldfs_store::micro::{Begin, Commit, Detect, End, Input, Verdict};
use weldfs_store::mount::{MkfsOptions, format};
use weldfs_store::outcomes::OutcomeRec;
use weldfs_store::record::{InodeRec, Time};
use weldfs_store::{Group, MountOptions};

fn time(t: Time) -> view::Time {
    view::Time { seconds: t.sec, nanoseconds: t.nsec }
}

fn inode(r: &InodeRec) -> view::Inode {
    view::Inode {
        generation: r.generation,
        mode: r.mode,
        uid: r.uid,
        gid: r.gid,
        links: r.nlink,
        project: r.project,
        tenant: r.tenant,
        flags: r.flags,
        size: r.size,
        blocks: r.blocks,
        rdev: r.rdev,
        parent: r.parent.0,
        birth: r.birth.0,
        atime: time(r.atime),
        mtime: time(r.mtime),
        ctime: time(r.ctime),
        btime: time(r.btime),
        target: view::Name(r.target.as_deref().unwrap_or_default().to_vec()),
    }
}

fn data(bytes: &[u8]) -> view::Data {
    view::Data(bytes.to_vec())
}

fn name(bytes: &[u8]) -> view::Name {
    view::Name(bytes.to_vec())
}

/// One effect of the store as an outsider sees it.
pub fn seen(e: &Effect) -> view::Effect {
    let ino = e.ino().0;
    match e {
        Effect::PutInode(r) => view::Effect::InodeMade { inode: ino, fields: Box::new(inode(r)) },
        Effect::SetAttr(d) => {
            let has = |bit: u16| d.mask & bit != 0;
            let set = view::Attributes {
                size: has(attr::SIZE).then_some(d.size),
                mode: has(attr::MODE).then_some(d.mode),
                uid: has(attr::UID).then_some(d.uid),
                gid: has(attr::GID).then_some(d.gid),
                links: has(attr::NLINK).then_some(d.nlink),
                flags: has(attr::FLAGS).then_some(d.flags),
                parent: has(attr::PARENT).then_some(d.parent.0),
                atime: has(attr::ATIME).then_some(time(d.atime)),
                mtime: has(attr::MTIME).then_some(time(d.mtime)),
                ctime: has(attr::CTIME).then_some(time(d.ctime)),
            };
            view::Effect::AttributesSet { inode: ino, set: Box::new(set) }
        }
        Effect::DropInode(_) => view::Effect::InodeGone { inode: ino },
        Effect::PutDirent { cookie, ino: names, ftype, mark, name: n, .. } => view::Effect::EntrySet {
            inode: ino,
            entry: view::Entry { cookie: *cookie, names: names.0, mark: *mark, file_type: *ftype, name: name(n) },
        },
        Effect::DelDirent { cookie, .. } => view::Effect::EntryGone { inode: ino, cookie: *cookie },
        Effect::PutXattr { slot, name: n, value, .. } => {
            view::Effect::XattrSet { inode: ino, slot: *slot, name: name(n), value: data(value) }
        }
        Effect::DelXattr { slot, .. } => view::Effect::XattrGone { inode: ino, slot: *slot },
        Effect::Map { blk, addr, count, state, crcs, .. } => {
            let written = *state == BlockState::Written;
            let (block, address, blocks) = (*blk, addr.0, *count);
            view::Effect::Mapped {
                inode: ino,
                run: view::Block { block, address, blocks, written, crc32c: crcs.to_vec() },
            }
        }
        Effect::Patch { off, bytes, .. } => view::Effect::Bytes { inode: ino, offset: *off, bytes: data(bytes) },
        Effect::Zero { off, len, .. } => view::Effect::Zeros { inode: ino, offset: *off, length: *len },
        Effect::Unmap { blk, count, .. } => view::Effect::Hole { inode: ino, block: *blk, blocks: *count },
        Effect::Cut { blk, end, .. } => view::Effect::Cut { inode: ino, block: *blk, end: *end },
        Effect::Orphan { .. } => view::Effect::LastNameGone { inode: ino },
        Effect::Adopt { .. } => view::Effect::NameAgain { inode: ino },
        Effect::ReclaimStep { cut, blk, count, .. } => {
            view::Effect::ReclaimStep { inode: ino, stamp: *cut, block: *blk, blocks: *count }
        }
        Effect::Input { input, .. } => view::Effect::Adopted { inode: ino, input: *input },
        Effect::ReclaimDone { cut, .. } => view::Effect::ReclaimDone { inode: ino, stamp: *cut },
        Effect::Outcome(o) => view::Effect::Outcome { inode: ino, outcome: Box::new(outcome(o)) },
    }
}

fn outcome(o: &OutcomeRec) -> view::Outcome {
    view::Outcome {
        identity: view::Identity { client: hex(&o.id.client), queue: o.id.queue },
        sequence: o.id.sequence,
        uid: o.id.uid,
        status: o.outcome.status as u32,
        micro_done: o.outcome.micro_done,
        micro_failed: o.outcome.micro_failed,
        result: o.outcome.result,
        result2: o.outcome.result2,
    }
}

fn list(effects: &[Effect]) -> Vec<view::Effect> {
    effects.iter().map(seen).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn begin(b: &Begin) -> view::Begin {
    let q = &b.sqe;
    view::Begin {
        command: view::Sqe {
            opcode: q.opcode,
            flags: q.flags,
            aux: q.aux,
            sequence: q.sequence,
            handle: q.handle,
            offset: q.offset,
            length: q.length,
            pool_off: q.pool_off,
            pool_off2: q.pool_off2,
            length2: q.length2,
            imm: hex(&q.imm),
        },
        now: time(b.now),
        uid: b.cred.uid,
        gid: b.cred.gid,
        groups: b.cred.groups.to_vec(),
        directory: b.dir.0,
        name: name(&b.name),
        file: b.file.0,
        generation: b.generation,
        open_flags: b.flags.bits().into(),
        detect: b.detect.as_ref().map(|d| view::Identity { client: hex(&d.client), queue: d.queue }),
        inputs: b
            .inputs
            .iter()
            .map(|i| view::Input { micro: i.micro, offset: i.off, bytes: i.len, effects: list(&i.effects) })
            .collect(),
        planned: b.plan.as_ref().map(|p| (p.steps, end(&p.end))),
    }
}

fn micro(c: &Commit) -> view::Commit {
    let r = &c.regs;
    let registers = view::Registers {
        file: r.file,
        created: r.created,
        read: r.read,
        first: r.first.map(|w| (w.off, w.len)),
        last: r.first.map(|_| (r.last.off, r.last.len)),
        checksum: r.sum.value(),
        checksum_bytes: r.sum.len(),
    };
    view::Commit { registers, effects: list(&c.effects) }
}

fn end(e: &End) -> view::End {
    let o = &e.outcome;
    view::End {
        verdict: match e.verdict {
            Verdict::Done => "done",
            Verdict::Failed => "failed",
            Verdict::Cut => "cut",
        },
        micro_done: o.micro_done,
        micro_failed: o.micro_failed,
        errno: o.status as u32,
        result: o.result,
        result2: o.result2,
    }
}

/// A payload as the store reads it, as an outsider sees it, and whether the blocks it maps hold what it says.
pub fn content(kind: RecordKind, payload: &[u8]) -> Result<(view::Content, Vec<Effect>), DecodeError> {
    Ok(match kind {
        RecordKind::Pad | RecordKind::Watermark => (view::Content::None, Vec::new()),
        RecordKind::Op => {
            let effects = effect::decode(payload)?;
            (view::Content::Effects(list(&effects)), effects)
        }
        RecordKind::Begin => {
            let b = Begin::decode(payload)?;
            let effects = b.inputs.iter().flat_map(|i| i.effects.clone()).collect();
            (view::Content::Begin(Box::new(begin(&b))), effects)
        }
        RecordKind::Micro => {
            let c = Commit::decode(payload)?;
            (view::Content::Micro(Box::new(micro(&c))), c.effects)
        }
        RecordKind::End => (view::Content::End(Box::new(end(&End::decode(payload)?))), Vec::new()),
    })
}

pub fn options() -> MountOptions {
    MountOptions::new(Arc::new(ManualClock::new(1_000_000_000)), Arc::new(SeededRandom::new(5)))
}

/// Bytes of the log of these images.
pub const LOG_LEN: u64 = 512 << 10;

/// A fresh image whose records start at multiples of `align`.
pub fn fresh(align: u32) -> Arc<dyn Medium> {
    let medium: Arc<dyn Medium> = Arc::new(RamMedium::new(6 << 20));
    let geometry = GeometryOptions { log_len: Some(LOG_LEN), log_align: align, ..Default::default() };
    let mkfs = MkfsOptions { geometry, ..Default::default() };
    let o = options();
    format(&medium, &mkfs, &*o.clock, &*o.random).expect("formats");
    medium
}

/// The medium's bytes.
pub fn bytes_of(medium: &dyn Medium) -> Vec<u8> {
    let mut bytes = vec![0; medium.info().len as usize];
    medium.read(0, &mut bytes).expect("reads");
    bytes
}

/// A medium of these bytes.
pub fn medium_of(bytes: &[u8]) -> Arc<dyn Medium> {
    let medium = RamMedium::new(bytes.len() as u64);
    medium.write(0, bytes).expect("writes");
    Arc::new(medium)
}

const SRC: u32 = 64 << 10;
const OUT: u32 = 4 << 20;

/// A bit of everything, through the commands.
pub fn workload(d: &mut Direct) {
    let root = Handle::ROOT;
    let rw = OpenFlags::READ | OpenFlags::WRITE;
    let put = |d: &Direct, at: u32, bytes: &[u8]| d.put(at, bytes);
    let run = |d: &mut Direct, op: Op| d.run(op);
    let a = put(d, 0, b"a");
    let b = put(d, 512, b"b \xff\n");
    let dir = put(d, 1024, b"dir");
    run(d, Op::Mkdir { base: root, path: dir, mode: 0o755 });
    let made = run(d, Op::open(root, a, rw | OpenFlags::CREATE, 0o644));
    let h = Handle::from_wire(made.result);
    for (at, len) in [(At::Offset(0), 100u32), (At::Offset(5000), 9000), (At::End, 40_000), (At::Offset(8192), 4096)] {
        let src = put(d, SRC, &vec![7; len as usize]);
        run(d, Op::Write { h, at, src });
    }
    let src = put(d, SRC, &[9; 5000]);
    run(d, Op::AppendChecksumWrite { h, kind: ChecksumKind::Crc32c, src });
    run(d, Op::Fallocate { h, mode: FallocMode::Reserve, off: 1 << 20, len: 1 << 20 });
    run(d, Op::Fallocate { h, mode: FallocMode::Punch, off: 8192, len: 12_000 });
    run(d, Op::Truncate { h, size: 10_001 });
    let value = put(d, 4096, b"value");
    let key = put(d, 2048, b"user.k");
    let flags = XattrFlags::empty();
    run(d, Op::SetXattr { base: root, path: a, nofollow: false, name: key, value, flags });
    run(d, Op::RemoveXattr { base: root, path: a, nofollow: false, name: key });
    run(d, Op::Link { from_base: root, from: a, to_base: root, to: b, follow: false });
    let flags = RenameFlags::empty();
    let inside = put(d, 1536, b"dir/c");
    run(d, Op::Rename { from_base: root, from: b, to_base: root, to: inside, flags });
    let link = put(d, 2560, b"link");
    run(d, Op::Symlink { base: root, path: link, target: a });
    run(d, Op::Unlink { base: root, path: inside });
    run(d, Op::Unlink { base: root, path: a });
    run(d, Op::Close { h });
    for i in 0..20u32 {
        let path = put(d, 0, format!("f{i}").as_bytes());
        let src = put(d, SRC, &vec![i as u8; 300 * i as usize + 1]);
        let (flags, at) = (OpenFlags::WRITE | OpenFlags::CREATE, At::Offset(0));
        run(d, Op::OpenWriteClose { base: root, path, flags, mode: 0o600, at, src });
    }
    let out = PoolRange::new(OUT, 4096);
    run(d, Op::Statfs { out });
    while d.store().reclaim_step().expect("reclaims") {}
}

/// An image with a bit of everything in its log; the last part of it not durable when `torn`.
pub fn image(align: u32, torn: bool) -> Vec<u8> {
    let medium = fresh(align);
    let (store, _) = weldfs_fs::mount(medium.clone(), options()).expect("mounts");
    let mut d = Direct::new(store, 8 << 20);
    workload(&mut d);
    if !torn {
        let end = d.store().journal().tail();
        d.store().journal().wait(end).expect("durable");
        d.store().journal().idle();
        let path = d.put(0, b"after");
        d.run(Op::Mkdir { base: Handle::ROOT, path, mode: 0o700 });
    }
    bytes_of(&*medium)
}

/// A valid payload of a kind; `i` varies it.
pub fn payload(kind: RecordKind, i: u64) -> Vec<u8> {
    let file = InodeNo(300 + i % 7);
    let size = AttrDelta::new(file).size(i).mode(0o600).mtime(Time { sec: -5, nsec: 7 });
    let effects = vec![Effect::SetAttr(size); 1 + i as usize % 60];
    let patch = Effect::Patch { ino: file, off: i, bytes: smallvec::smallvec![i as u8; 9] };
    match kind {
        RecordKind::Begin if i % 4 == 3 => planned(i, file, vec![effects, vec![patch]]),
        RecordKind::Begin => {
            let h = Handle { index: 1, generation: 2 };
            let src = PoolRange::new(4096, 4096);
            let op = Op::AppendChecksumWrite { h, kind: ChecksumKind::Crc32c, src };
            let named = i.is_multiple_of(2);
            Begin {
                sqe: Command::new(i, op).encode(),
                now: Time { sec: 1 - i as i64, nsec: 2 },
                cred: Cred { uid: 5, gid: i as u32, groups: (0..i as u32 % 5).collect() },
                dir: InodeNo(u64::from(named)),
                name: Box::from(if named { &b"n\xff\n"[..] } else { b"" }),
                file,
                generation: 9,
                flags: OpenFlags::READ | OpenFlags::WRITE,
                detect: (i % 3 == 1).then_some(Detect { client: [i as u8; 16], queue: 0x0102 }),
                inputs: smallvec::smallvec![Input { micro: 1, off: i, len: 9, effects: vec![patch] }],
                plan: None,
            }
            .encode()
        }
        RecordKind::Micro => {
            let first = (i % 2 == 1).then_some(Written { off: i, len: 4096 });
            let regs = Registers {
                file: file.0,
                created: i % 3 == 2,
                read: (i % 5 == 1).then_some(i),
                first,
                last: first.map_or(Written::default(), |_| Written { off: 2 * i, len: 4 }),
                sum: ChecksumState::resume(i as u32, i),
            };
            let adopt = Effect::Input { ino: file, input: 0 };
            Commit { regs, effects: effects.into_iter().chain([adopt]).collect() }.encode()
        }
        RecordKind::End => {
            let cut = i % 3 == 1;
            let status = if cut { 5 } else { 0 };
            let verdict = if cut { Verdict::Cut } else { Verdict::Done };
            let outcome = Outcome { status, micro_done: 1, micro_failed: u16::from(cut), result: i, result2: !i };
            End { verdict, outcome }.encode()
        }
        RecordKind::Op | RecordKind::Pad | RecordKind::Watermark => effect::encode(&effects),
    }
}

/// A begin record of a program.
fn planned(i: u64, file: InodeNo, groups: Vec<Vec<Effect>>) -> Vec<u8> {
    let op = Op::Program { body: PoolRange::new(4096, 100) };
    let outcome = Outcome { status: 0, micro_done: 9, micro_failed: 0, result: i, result2: 1 };
    let group = |(n, effects): (usize, Vec<Effect>)| Group {
        index: 2 * n as u16,
        commit: Commit { regs: Registers::default(), effects },
    };
    let mut groups: Vec<Group> = groups.into_iter().enumerate().map(group).collect();
    let mut begin = Begin {
        sqe: Command::new(i, op).with_mode(weldfs_ciscops::TxnMode::Micro).encode(),
        now: Time { sec: 1 - i as i64, nsec: 2 },
        cred: Cred::new(5, i as u32),
        dir: InodeNo(0),
        name: Box::default(),
        file,
        generation: 0,
        flags: OpenFlags::empty(),
        detect: (i % 3 == 1).then_some(Detect { client: [i as u8; 16], queue: 0x0102 }),
        inputs: smallvec::smallvec![],
        plan: None,
    };
    begin.plan_groups(&mut groups, 9, End { verdict: Verdict::Done, outcome });
    begin.encode()
}
