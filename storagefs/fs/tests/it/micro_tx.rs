//! Fused commands in both transaction modes: the same files and answers, what a failure leaves, and what the log says.

use std::sync::Arc;
use weldfs_ciscops::interp::{CREATED, Outcome};
use weldfs_ciscops::{At, ChecksumKind, Errno, Handle, Modify, Op, OpenFlags, PoolRange, StatBody, TxnMode};
use weldfs_fs::driver::Direct;
use weldfs_fs::{Cred, FILE_BYTES_MAX, OpCounters};
use weldfs_journal::{Lsn, ManualClock, Medium, RecordKind, SeededRandom, Verdict, scan};
use weldfs_media::{CrashModel, RamMedium, RecordingMedium};
use weldfs_store::MountOptions;
use weldfs_store::effect::{self, Effect};
use weldfs_store::micro::{self, Begin, Commit, End};
use weldfs_store::mount::{MkfsOptions, format};
use zerocopy::FromBytes;

const SRC: u32 = 8192;
const OUT: u32 = 4 << 20;
const RW: OpenFlags = OpenFlags::READ.union(OpenFlags::WRITE);
const CREATE: OpenFlags = OpenFlags::WRITE.union(OpenFlags::CREATE);
const BOTH: [TxnMode; 2] = [TxnMode::Macro, TxnMode::Micro];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum On {
    /// Byte-addressable.
    Ram,
    Block,
}

struct Fs {
    medium: Arc<dyn Medium>,
    d: Direct,
    h: Handle,
}

fn options() -> MountOptions {
    MountOptions {
        memory: 16 << 20,
        inline_commits: true,
        ..MountOptions::new(Arc::new(ManualClock::new(1_000_000_000)), Arc::new(SeededRandom::new(3)))
    }
}

impl Fs {
    /// A file `old` of 10,000 bytes behind `h`.
    fn new(on: On) -> Fs {
        let medium: Arc<dyn Medium> = match on {
            On::Ram => Arc::new(RamMedium::new(64 << 20)),
            On::Block => Arc::new(RecordingMedium::new(64 << 20, CrashModel::Block)),
        };
        let o = options();
        format(&medium, &MkfsOptions::default(), &*o.clock, &*o.random).expect("large enough");
        let store = weldfs_fs::mount(medium.clone(), o).expect("just formatted").0;
        let mut fs = Fs { medium, d: Direct::new(store, 8 << 20), h: Handle::ROOT };
        fs.h = fs.open("old", RW | OpenFlags::CREATE);
        fs.append(&[5; 10_000]);
        fs
    }

    fn open(&mut self, path: &str, flags: OpenFlags) -> Handle {
        let path = self.d.put(0, path.as_bytes());
        let o = self.d.run(Op::open(Handle::ROOT, path, flags, 0o644));
        assert!(o.is_ok(), "{o:?}");
        Handle::from_wire(o.result)
    }

    fn append(&mut self, data: &[u8]) {
        let (h, src) = (self.h, self.d.put(SRC, data));
        assert!(self.d.run(Op::Write { h, at: At::End, src }).is_ok());
    }

    fn write_close(&mut self, path: &str, flags: OpenFlags, at: At, data: &[u8]) -> Op {
        let (path, src) = (self.d.put(0, path.as_bytes()), self.d.put(SRC, data));
        Op::OpenWriteClose { base: Handle::ROOT, path, flags, mode: 0o640, at, src }
    }

    fn append_sum(&mut self, data: &[u8]) -> Op {
        let (h, src) = (self.h, self.d.put(SRC, data));
        Op::AppendChecksumWrite { h, kind: ChecksumKind::Crc32c, src }
    }

    /// Attributes and content, `None` if there is no such file.
    fn file(&mut self, path: &str) -> Option<(StatBody, Vec<u8>)> {
        let (out, range) = (PoolRange::new(OUT, 256), self.d.put(0, path.as_bytes()));
        let o = self.d.run(Op::StatPath { base: Handle::ROOT, path: range, nofollow: true, out });
        if o.status == Errno::NOENT.0 {
            return None;
        }
        let stat = StatBody::read_from_bytes(&self.d.take(out)).expect("256 bytes");
        let (path, out) = (self.d.put(0, path.as_bytes()), PoolRange::new(OUT, 1 << 20));
        let flags = OpenFlags::READ;
        let o = self.d.run(Op::OpenReadClose { base: Handle::ROOT, path, flags, offset: 0, out });
        assert!(o.is_ok(), "{o:?}");
        Some((stat, self.d.take(PoolRange::new(OUT, o.result as u32))))
    }

    fn remount(&mut self) {
        self.d.close_all();
        self.d.store().unmount().expect("the medium is healthy");
        self.d = Direct::new(weldfs_fs::mount(self.medium.clone(), options()).expect("unmounted cleanly").0, 8 << 20);
    }

    /// The log is what a crash right now would leave: another store recovers from it, this one is gone.
    fn recover(&mut self) {
        let journal = self.d.store().journal().clone();
        journal.wait(journal.tail()).expect("durable");
        self.d = Direct::new(weldfs_fs::mount(self.medium.clone(), options()).expect("recovers").0, 8 << 20);
    }

    /// Runs an op; gives its outcome, cost and records.
    fn traced(&mut self, op: Op, mode: TxnMode) -> (Outcome, OpCounters, Vec<Logged>) {
        let (from, before) = (self.d.store().journal().tail(), self.d.counters());
        let outcome = self.d.run_with(op, mode, true);
        let after = self.d.counters();
        let cost = OpCounters {
            payload_copies: after.payload_copies - before.payload_copies,
            bytes_in: after.bytes_in - before.bytes_in,
            bytes_out: after.bytes_out - before.bytes_out,
            blocks_written: after.blocks_written - before.blocks_written,
            ..OpCounters::default()
        };
        (outcome, cost, self.log(from))
    }

    fn log(&self, from: Lsn) -> Vec<Logged> {
        let journal = self.d.store().journal();
        let segments = journal.segments_at(Lsn::NONE);
        let mut all = Vec::new();
        let area = self.d.store().geometry().log;
        scan(&*self.medium, &area, &segments, area.first_lsn(), &mut |r| {
            if r.header.lsn >= from {
                let h = r.header.head;
                let (bytes, payload) = (r.end.0 - r.header.lsn.0, r.payload.to_vec());
                all.push(Logged { kind: h.kind, micro: h.micro_index, txn: h.txn, bytes, payload });
            }
            Verdict::Ok
        })
        .expect("a sound log");
        all
    }
}

struct Logged {
    kind: RecordKind,
    micro: u16,
    txn: u64,
    bytes: u64,
    payload: Vec<u8>,
}

fn kinds(log: &[Logged]) -> Vec<(RecordKind, u16)> {
    log.iter().map(|r| (r.kind, r.micro)).collect()
}

type Make = fn(&mut Fs) -> Op;

/// A fused op of every kind, each on its way to success.
fn good() -> Vec<(&'static str, Make)> {
    vec![
        ("create and write a block", |fs| fs.write_close("new", CREATE, At::Offset(0), &[1; 4096])),
        ("create and write little", |fs| fs.write_close("new", CREATE, At::Offset(3), b"abc")),
        ("create and write much", |fs| fs.write_close("new", CREATE, At::Offset(100), &[2; 70_000])),
        ("create with nothing to write", |fs| fs.write_close("new", CREATE, At::Offset(0), b"")),
        ("rewrite", |fs| fs.write_close("old", CREATE | OpenFlags::TRUNC, At::Offset(0), &[3; 4096])),
        ("rewrite less", |fs| fs.write_close("old", CREATE | OpenFlags::TRUNC, At::Offset(4090), &[3; 10])),
        ("overwrite", |fs| fs.write_close("old", CREATE, At::Offset(4000), &[4; 5000])),
        ("append to the end", |fs| fs.write_close("old", CREATE, At::End, &[4; 9000])),
        ("read and write", |fs| {
            let (path, src) = (fs.d.put(0, b"old"), fs.d.put(SRC, &[6; 4096]));
            let flags = RW | OpenFlags::CREATE;
            let (out, at) = (PoolRange::new(OUT, 8192), At::Offset(4096));
            Op::OpenReadWriteClose { base: Handle::ROOT, path, flags, mode: 0, read_off: 4000, out, at, src }
        }),
        ("read nothing of what is cut, and write", |fs| {
            let (path, src) = (fs.d.put(0, b"old"), fs.d.put(SRC, &[6; 10]));
            let (out, at) = (PoolRange::new(OUT, 8192), At::Offset(2));
            let flags = RW | OpenFlags::TRUNC;
            Op::OpenReadWriteClose { base: Handle::ROOT, path, flags, mode: 0, read_off: 0, out, at, src }
        }),
        ("append a sum to little", |fs| fs.append_sum(b"hello")),
        ("append a sum to a block, unaligned", |fs| fs.append_sum(&[7; 4096])),
        ("append a sum to a block", |fs| {
            fs.append(&[8; 12_288 - 10_000]);
            fs.append_sum(&[7; 4096])
        }),
        ("append a sum across a block's end", |fs| {
            fs.append(&[8; 12_288 - 10_000]);
            fs.append_sum(&[7; 4094])
        }),
        ("append a sum to much", |fs| fs.append_sum(&[7; 300_000])),
        ("append a sum of nothing", |fs| fs.append_sum(b"")),
        ("modify a field", |fs| {
            let (h, out) = (fs.h, PoolRange::new(OUT, 8));
            Op::ReadModifyWrite { h, offset: 4092, len: 8, modify: Modify::Add(9), out }
        }),
    ]
}

#[test]
fn both_modes_give_the_same_files_answers_and_payload_copies() {
    for on in [On::Ram, On::Block] {
        for (what, make) in good() {
            let ends = BOTH.map(|mode| {
                let mut fs = Fs::new(on);
                let op = make(&mut fs);
                let (outcome, cost, _) = fs.traced(op, mode);
                assert!(outcome.is_ok(), "{what}: {outcome:?}");
                let before = (fs.file("old"), fs.file("new"));
                fs.recover();
                assert_eq!((fs.file("old"), fs.file("new")), before, "{what}, {mode:?} on {on:?}: after recovery");
                fs.remount();
                assert_eq!((fs.file("old"), fs.file("new")), before, "{what}, {mode:?} on {on:?}: after a checkpoint");
                // How many blocks carry it may differ: in a MicroTx a trailer is a patch on the block before.
                (outcome, before, OpCounters { blocks_written: 0, ..cost })
            });
            assert_eq!(ends[0], ends[1], "{what} on {on:?}");
        }
    }
}

#[test]
fn a_block_of_payload_is_copied_once_and_written_once_in_both_modes() {
    for on in [On::Ram, On::Block] {
        for mode in BOTH {
            let mut fs = Fs::new(on);
            let op = fs.write_close("new", CREATE, At::Offset(0), &[1; 4096]);
            let (_, cost, _) = fs.traced(op, mode);
            assert_eq!((cost.payload_copies, cost.blocks_written), (1, u32::from(fs.d.store().inline_max() < 4096)));
        }
        let mut fs = Fs::new(on);
        fs.append(&[8; 12_288 - 10_000]);
        let op = fs.append_sum(&[7; 4096 * 8]);
        let (_, cost, _) = fs.traced(op, TxnMode::Micro);
        assert_eq!((cost.payload_copies, cost.blocks_written), (1, 8), "the trailer needs no block");
    }
}

#[test]
fn the_log_of_a_micro_tx_is_one_begin_a_commit_per_change_and_one_end() {
    use RecordKind::{Begin as B, End as E, Micro as M, Op as O};
    for on in [On::Ram, On::Block] {
        let create: &[_] = &[(B, 0), (M, 0), (M, 1), (E, 0)];
        let read: &[_] = &[(B, 0), (M, 0), (M, 2), (E, 0)];
        let append: &[_] = &[(B, 0), (M, 1), (M, 2), (E, 0)];
        let one: &[_] = &[(O, 0)];
        for ((what, make), want) in good().into_iter().zip([
            create, create, create, one, create, create, one, one, one, read, append, append, append, append, append,
            one, one,
        ]) {
            let mut fs = Fs::new(on);
            let op = make(&mut fs);
            let (outcome, _, log) = fs.traced(op, TxnMode::Micro);
            assert_eq!(kinds(&log), want, "{what} on {on:?}");
            assert!(log.iter().all(|r| r.txn == log[0].txn && (r.txn == 0) == (want == one)), "{what}: ids");
            if want == one {
                continue;
            }
            let begin = Begin::decode(&log[0].payload).expect("a begin record");
            assert_eq!(begin.command().expect("a command").op, op);
            assert_eq!(End::decode(&log[3].payload).expect("an end record").outcome, outcome);
            let next = fs.append_sum(b"next");
            let (_, _, later) = fs.traced(next, TxnMode::Micro);
            assert_eq!(later[0].txn, log[0].txn + 1, "{what}: the next id");
        }
    }
}

#[test]
fn the_client_s_bytes_are_an_input_and_the_trailer_is_a_patch() {
    for on in [On::Ram, On::Block] {
        for len in [5, 4096, 60_000] {
            let mut fs = Fs::new(on);
            let op = fs.append_sum(&vec![9; len]);
            let (_, _, log) = fs.traced(op, TxnMode::Micro);
            let begin = Begin::decode(&log[0].payload).expect("a begin record");
            let input = &begin.inputs[0];
            assert_eq!((begin.inputs.len(), input.micro, input.off, input.len), (1, 1, 10_000, len as u64));
            assert!(begin.flags.contains(RW) && begin.generation != 0 && begin.dir.0 == 0);
            let write = Commit::decode(&log[1].payload).expect("a commit");
            assert!(matches!(write.effects[..], [Effect::Input { input: 0, .. }, Effect::SetAttr(_)]));
            assert_eq!((write.regs.file, write.regs.last.len), (begin.file.0, len as u64));
            let trailer = Commit::decode(&log[2].payload).expect("a commit");
            let patch = |e: &Effect| matches!(e, Effect::Patch { .. });
            assert!(trailer.effects.iter().any(patch), "{:?}", trailer.effects);
            assert!(trailer.effects.iter().all(|e| patch(e) || matches!(e, Effect::SetAttr(_))));
            assert!(log.iter().all(|r| effect::decode(&r.payload).is_err()), "nobody takes it for an operation");
        }
    }
}

#[test]
fn the_records_of_a_block_with_its_sum_are_short() {
    let mut fs = Fs::new(On::Ram);
    let op = fs.append_sum(&[9; 4096]);
    let (_, _, log) = fs.traced(op, TxnMode::Micro);
    let bytes: Vec<u64> = log.iter().map(|r| r.bytes).collect();
    assert!(bytes[0] <= 256, "{bytes:?}");
    assert!(bytes.iter().sum::<u64>() <= 704, "{bytes:?}");
}

#[test]
fn a_command_that_leaves_the_mode_to_the_device_is_one_record_up_to_64_kib() {
    for on in [On::Ram, On::Block] {
        for (len, one) in [(5, true), (4096, true), (64 << 10, true), (68 << 10, false)] {
            let content = |mode| {
                let mut fs = Fs::new(on);
                let op = fs.append_sum(&vec![9; len]);
                let (outcome, _, log) = fs.traced(op, mode);
                fs.recover();
                (outcome, kinds(&log), fs.file("old").expect("the file is there").1)
            };
            let (ours, log, bytes) = content(TxnMode::Default);
            let (asked, steps, same) = content(TxnMode::Micro);
            assert_eq!((ours, &bytes), (asked, &same), "{len} bytes on {on:?}");
            assert_eq!(log, if one { vec![(RecordKind::Op, 0)] } else { steps }, "{len} bytes on {on:?}");
        }
    }
}

#[test]
fn a_micro_tx_that_fails_at_its_second_change_keeps_the_first() {
    for on in [On::Ram, On::Block] {
        for data in [&[1; 4096][..], b"little"] {
            let mut fs = Fs::new(on);
            let op = fs.write_close("new", CREATE, At::Offset(FILE_BYTES_MAX), data);
            let free = fs.d.store().statfs().free;
            let (outcome, _, log) = fs.traced(op, TxnMode::Macro);
            assert_eq!((outcome.status, outcome.micro_done, outcome.micro_failed), (Errno::FBIG.0, 0, 2));
            assert!(log.is_empty() && fs.file("new").is_none(), "a MacroTx leaves nothing");
            let op = fs.write_close("new", CREATE, At::Offset(FILE_BYTES_MAX), data);
            let (outcome, _, log) = fs.traced(op, TxnMode::Default);
            assert_eq!((outcome.status, outcome.micro_done, outcome.micro_failed), (Errno::FBIG.0, 1, 2));
            assert_eq!(kinds(&log), [(RecordKind::Begin, 0), (RecordKind::Micro, 0), (RecordKind::End, 0)]);
            let end = End::decode(&log[2].payload).expect("an end record");
            assert_eq!((end.verdict, end.outcome), (micro::Verdict::Failed, outcome));
            let (stat, content) = fs.file("new").expect("the file was created");
            assert!(content.is_empty() && stat.size == 0);
            fs.recover();
            assert_eq!(fs.file("new").map(|f| f.1), Some(vec![]), "and stays so");
            assert_eq!(fs.d.store().statfs().free, free, "nothing of the failed write is kept");
        }
    }
}

#[test]
fn a_trailer_that_does_not_fit_fails_behind_its_payload() {
    for (on, len) in [(On::Ram, 4096), (On::Ram, 100), (On::Block, 20_000)] {
        for mode in BOTH {
            let mut fs = Fs::new(on);
            let size = FILE_BYTES_MAX - len as u64;
            let h = fs.h;
            assert!(fs.d.run(Op::Truncate { h, size }).is_ok());
            let op = fs.append_sum(&vec![7; len]);
            let (outcome, _, log) = fs.traced(op, mode);
            assert_eq!((outcome.status, outcome.micro_failed), (Errno::FBIG.0, 3));
            let grown = mode == TxnMode::Micro;
            assert_eq!((outcome.micro_done, log.len()), if grown { (2, 3) } else { (0, 0) });
            let out = PoolRange::new(OUT, len as u32);
            for _ in 0..2 {
                let path = fs.d.put(0, b"old");
                let flags = OpenFlags::READ;
                let o = fs.d.run(Op::OpenReadClose { base: Handle::ROOT, path, flags, offset: size, out });
                assert_eq!(o.result, if grown { len as u64 } else { 0 }, "{mode:?}");
                assert!(!grown || fs.d.take(out).iter().all(|b| *b == 7));
                fs.recover();
            }
        }
    }
}

#[test]
fn a_failure_before_any_change_logs_nothing() {
    let mut fs = Fs::new(On::Ram);
    let excl = fs.write_close("old", CREATE | OpenFlags::EXCL, At::Offset(0), b"x");
    let (outcome, _, log) = fs.traced(excl, TxnMode::Default);
    assert_eq!((outcome.status, outcome.micro_done, outcome.micro_failed), (Errno::EXIST.0, 0, 1));
    assert!(log.is_empty());
    let far = fs.write_close("old", CREATE, At::Offset(FILE_BYTES_MAX), b"x");
    let (outcome, _, log) = fs.traced(far, TxnMode::Default);
    assert_eq!((outcome.status, outcome.micro_done, outcome.micro_failed), (Errno::FBIG.0, 1, 2));
    assert!(log.is_empty(), "opening changed nothing");
}

#[test]
fn a_caller_in_very_many_groups_commits_as_one_record() {
    let mut fs = Fs::new(On::Ram);
    let cred = Cred { uid: 0, gid: 0, groups: (0..=micro::GROUPS_MAX as u32).collect() };
    fs.d.set_cred(cred);
    let op = fs.append_sum(&[1; 5000]);
    let (outcome, _, log) = fs.traced(op, TxnMode::Micro);
    assert!(outcome.is_ok());
    assert_eq!(kinds(&log), [(RecordKind::Op, 0)]);
    let op = fs.write_close("new", CREATE, At::Offset(FILE_BYTES_MAX), b"x");
    let (outcome, _, log) = fs.traced(op, TxnMode::Micro);
    assert_eq!((outcome.micro_done, kinds(&log)), (1, vec![(RecordKind::Op, 0)]));
    fs.recover();
    assert_eq!(fs.file("new").map(|f| f.1), Some(vec![]));
}

#[test]
fn results_name_what_was_created_and_where() {
    for mode in BOTH {
        let mut fs = Fs::new(On::Ram);
        let op = fs.write_close("new", CREATE, At::Offset(5), b"abc");
        let o = fs.d.run_with(op, mode, false);
        assert_eq!((o.result, o.result2, o.micro_done, o.micro_failed), (3, 5 | CREATED, 3, 0));
        let op = fs.append_sum(b"abc");
        let o = fs.d.run_with(op, mode, false);
        assert_eq!((o.result, o.result2), (10_000, sum()));
    }
}

fn sum() -> u64 {
    let mut s = weldfs_ciscops::ChecksumState::new();
    s.update(b"abc");
    s.value().into()
}
