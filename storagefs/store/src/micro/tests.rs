//! The bytes of the three payloads: golden, reversible, and never trusted.

use super::*;
use crate::cred::Cred;
use crate::effect::{AttrDelta, BlockState, Effect, Effects};
use crate::record::{InodeRec, Time};
use proptest::prelude::*;
use smallvec::{SmallVec, smallvec};
use weldfs_ciscops::{
    At, ChecksumKind, ChecksumState, Command, Errno, Handle, InodeNo, Op, OpenFlags, Outcome, PoolRange, Registers,
    Written,
};
use weldfs_journal::BlockNo;

const FILE: InodeNo = InodeNo(300);

fn map() -> Effect {
    let crcs = smallvec![0x0403_0201];
    Effect::Map { ino: FILE, blk: 1, addr: BlockNo(5000), count: 1, state: BlockState::Written, crcs }
}

fn append() -> Begin {
    let h = Handle { index: 1, generation: 2 };
    let op = Op::AppendChecksumWrite { h, kind: ChecksumKind::Crc32c, src: PoolRange::new(4096, 4096) };
    Begin {
        sqe: Command::new(7, op).encode(),
        now: Time { sec: 1, nsec: 2 },
        cred: Cred { uid: 5, gid: 6, groups: smallvec![200] },
        dir: InodeNo(0),
        name: Box::default(),
        file: FILE,
        generation: 9,
        flags: OpenFlags::READ | OpenFlags::WRITE,
        detect: None,
        inputs: smallvec![Input { micro: 1, off: 4096, len: 4096, effects: vec![map()] }],
        plan: None,
    }
}

fn create() -> Begin {
    let op = Op::OpenWriteClose {
        base: Handle::ROOT,
        path: PoolRange::new(0, 4),
        flags: OpenFlags::WRITE | OpenFlags::CREATE,
        mode: 0o644,
        at: At::Offset(0),
        src: PoolRange::new(4096, 3),
    };
    let patch = Effect::Patch { ino: FILE, off: 0, bytes: smallvec![1, 2, 3] };
    Begin {
        sqe: Command::new(8, op).encode(),
        dir: InodeNo::ROOT,
        name: Box::from(&b"name"[..]),
        detect: Some(Detect { client: [3; 16], queue: 0x0102 }),
        inputs: smallvec![Input { micro: 1, off: 0, len: 3, effects: vec![patch] }],
        ..append()
    }
}

fn regs() -> Registers {
    let first = Written { off: 4096, len: 4096 };
    Registers {
        file: 300,
        created: true,
        read: Some(0),
        first: Some(first),
        last: Written { off: 8192, len: 4 },
        sum: ChecksumState::resume(0x0403_0201, 4096),
    }
}

#[test]
fn golden_bytes_of_a_begin() {
    let begin = append();
    let mut want = vec![1];
    want.extend(zerocopy::IntoBytes::as_bytes(&begin.sqe));
    want.extend([2, 2, 0, 0, 0, 5, 6, 1, 0xc8, 0x01]); // time, owner, one group
    want.extend([0, 0, 0xac, 0x02, 9, 3, 0]); // no name; file, generation, grant; not flagged
    want.extend([1, 1, 0x80, 0x20, 0x80, 0x20, 13]); // one input: micro-op, offset, bytes, length of its effects
    want.extend([1, 8, 0xac, 0x02, 1, 0x88, 0x27, 1, 1, 1, 2, 3, 4]);
    assert_eq!(begin.encode(), want);
    assert_eq!(Begin::decode(&want).unwrap(), begin);
}

#[test]
fn golden_bytes_of_a_flagged_begin_with_a_name() {
    let begin = create();
    let mut want = vec![1];
    want.extend(zerocopy::IntoBytes::as_bytes(&begin.sqe));
    want.extend([2, 2, 0, 0, 0, 5, 6, 1, 0xc8, 0x01]);
    want.extend([1, 4, b'n', b'a', b'm', b'e', 0xac, 0x02, 9, 3, 1]);
    want.extend([3; 16]);
    want.extend([2, 1]);
    want.extend([1, 1, 0, 3, 9, 1, 9, 0xac, 0x02, 0, 3, 1, 2, 3]);
    assert_eq!(begin.encode(), want);
    assert_eq!(Begin::decode(&want).unwrap(), begin);
}

fn planned() -> Begin {
    let op = Op::Program { body: PoolRange::new(64, 128) };
    let create = vec![Effect::PutInode(Box::new(InodeRec::empty(FILE))), Effect::Orphan { ino: FILE }];
    let group = |micro, effects| Input { micro, off: 0, len: 0, effects };
    let outcome = Outcome { status: 0, micro_done: 5, micro_failed: 0, result: 7, result2: 0 };
    Begin {
        sqe: Command::new(7, op).with_mode(weldfs_ciscops::TxnMode::Micro).encode(),
        cred: Cred::new(5, 6),
        file: InodeNo(0),
        generation: 0,
        flags: OpenFlags::empty(),
        inputs: smallvec![group(0, create), group(3, vec![map()])],
        plan: Some(Box::new(Planned { steps: 5, end: End::of(&outcome) })),
        ..append()
    }
}

#[test]
fn golden_bytes_of_a_planned_begin() {
    let mut begin = planned();
    begin.inputs[0].effects.remove(0);
    let mut want = vec![2];
    want.extend(zerocopy::IntoBytes::as_bytes(&begin.sqe));
    want.extend([2, 2, 0, 0, 0, 5, 6, 0]); // time, owner; not flagged
    want.extend([5, 7, 1, 1, 5, 0, 0, 7, 0]); // micro-ops; the end record
    want.extend([2, 0, 4, 1, 13, 0xac, 0x02]); // two groups: the first
    want.extend([3, 13, 1, 8, 0xac, 0x02, 1, 0x88, 0x27, 1, 1, 1, 2, 3, 4]);
    assert_eq!(begin.encode(), want);
    assert_eq!(Begin::decode(&want).unwrap(), begin);
    let flagged = Begin { detect: Some(Detect { client: [3; 16], queue: 0x0102 }), ..planned() };
    assert_eq!(Begin::decode(&flagged.encode()).unwrap(), flagged);
    assert_eq!((flagged.steps(), flagged.files(), flagged.last_inode()), (5, vec![FILE], FILE));
    assert_eq!(flagged.identity().map(|id| (id.uid, id.queue, id.sequence)), Some((5, 0x0102, 7)));
}

#[test]
fn a_planned_begin_that_breaks_a_bound_is_refused() {
    let group = |micro, effects| Input { micro, off: 0, len: 0, effects };
    let some = |n: u64| -> Effects { (0..n).map(|off| Effect::Zero { ino: FILE, off, len: 1 }).collect() };
    let plan = |steps, end| Some(Box::new(Planned { steps, end }));
    let end = planned().plan.unwrap().end;
    let with = |inputs: SmallVec<[Input; 1]>| Begin { inputs, ..planned() };
    let failed = Outcome::failed(Errno::IO);
    for bad in [
        with(smallvec![]),
        with(smallvec![group(5, some(1))]),
        with(smallvec![group(1, some(1)), group(1, some(1))]),
        with(smallvec![group(1, some(1)), group(0, some(1))]),
        with(smallvec![group(0, vec![])]),
        with(smallvec![group(0, some(PLAN_EFFECTS_MAX as u64 + 1))]),
        with(smallvec![group(0, vec![Effect::DropInode(FILE)])]),
        with(smallvec![group(0, vec![Effect::Input { ino: FILE, input: 0 }])]),
        with(smallvec![group(0, vec![Effect::ReclaimDone { ino: FILE, cut: 0 }])]),
        Begin { plan: plan(17, end), ..planned() },
        Begin { plan: plan(5, End { verdict: Verdict::Cut, outcome: failed }), ..planned() },
        Begin { sqe: append().sqe, ..planned() },
        Begin { sqe: Command::new(7, planned().command().unwrap().op).encode(), ..planned() },
    ] {
        assert!(Begin::decode(&bad.encode()).is_err(), "{bad:?}");
    }
    let good = with(smallvec![group(4, some(PLAN_EFFECTS_MAX as u64))]);
    assert_eq!(Begin::decode(&good.encode()).unwrap(), good);
}

#[test]
fn golden_bytes_of_a_commit() {
    let commit = Commit { regs: regs(), effects: vec![Effect::Input { ino: FILE, input: 0 }] };
    let want = [
        1, 0xac, 0x02, 3, 1, 0x80, 0x20, 0x80, 0x20, 0x80, 0x40, 4, 1, 2, 3, 4, 0x80, 0x20, // registers
        1, 17, 0xac, 0x02, 0, // adopt
    ];
    assert_eq!(commit.encode(), want);
    assert_eq!(Commit::decode(&want).unwrap(), commit);
}

#[test]
fn golden_bytes_of_an_end() {
    let outcome = Outcome { status: Errno::FBIG.0, micro_done: 1, micro_failed: 2, result: 300, result2: 1 << 63 };
    let end = End::of(&outcome);
    let want = [1, 2, 1, 2, Errno::FBIG.0 as u8, 0xac, 0x02, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 1];
    assert_eq!(end.encode(), want);
    assert_eq!(End::decode(&want).unwrap(), end);
}

#[test]
fn a_commit_expands_to_what_its_inputs_hold_and_each_is_adopted_once() {
    let inputs = append().inputs;
    let attr = Effect::SetAttr(AttrDelta::new(FILE).size(1));
    let adopt = |ino, input| Effect::Input { ino, input };
    let (effects, bits) = expand(vec![adopt(FILE, 0), attr.clone()], &inputs).unwrap();
    assert_eq!((effects, bits), (vec![map(), attr], 1));
    for bad in [vec![adopt(FILE, 1)], vec![adopt(InodeNo(1), 0)], vec![adopt(FILE, 0), adopt(FILE, 0)]] {
        assert!(expand(bad, &inputs).is_err());
    }
    assert!(expand(vec![adopt(FILE, 999)], &inputs).is_err());
}

#[test]
fn a_whole_operation_adopts_nothing() {
    assert!(crate::effect::decode(&[1, 17, 1, 0]).is_err());
    assert_eq!(crate::effect::decode_commit(&[1, 17, 1, 0]).unwrap(), [Effect::Input { ino: InodeNo(1), input: 0 }]);
}

#[test]
fn a_begin_that_breaks_a_bound_is_refused() {
    let single = Command::new(1, Op::Nop).encode();
    let whole = Command { mode: weldfs_ciscops::TxnMode::Macro, ..append().command().unwrap() };
    let patch = |ino: InodeNo, n: usize| -> Effects {
        (0..n).map(|i| Effect::Patch { ino, off: i as u64, bytes: smallvec![1] }).collect()
    };
    let with = |effects: Effects| Input { micro: 1, off: 0, len: 1, effects };
    for bad in [
        Begin { sqe: single, ..append() },
        Begin { sqe: whole.encode(), ..append() },
        Begin { file: InodeNo(0), ..append() },
        Begin { dir: InodeNo(1), ..append() },
        Begin { name: Box::from(&b"a/b"[..]), ..create() },
        Begin { cred: Cred { uid: 0, gid: 0, groups: SmallVec::from_elem(1, GROUPS_MAX + 1) }, ..append() },
        Begin { inputs: smallvec![with(patch(InodeNo(1), 1))], ..append() },
        Begin { inputs: smallvec![with(patch(FILE, INPUT_EFFECTS_MAX + 1))], ..append() },
        Begin { inputs: smallvec![with(vec![Effect::DropInode(FILE)])], ..append() },
        Begin { inputs: smallvec![with(patch(FILE, 1)), with(patch(FILE, 1))], ..append() },
    ] {
        assert!(Begin::decode(&bad.encode()).is_err(), "{bad:?}");
    }
    let good = Begin { inputs: smallvec![with(patch(FILE, INPUT_EFFECTS_MAX))], ..append() };
    assert_eq!(Begin::decode(&good.encode()).unwrap(), good);
}

#[test]
fn an_end_that_contradicts_itself_is_refused() {
    for bad in [[1, 1, 3, 0, 5, 0, 0], [1, 2, 1, 2, 0, 0, 0], [1, 4, 1, 2, 5, 0, 0], [2, 1, 3, 0, 0, 0, 0]] {
        assert!(End::decode(&bad).is_err(), "{bad:?}");
    }
}

proptest! {
    #[test]
    fn any_bytes_are_a_payload_that_encodes_the_same_or_an_error(
        bytes in proptest::collection::vec(any::<u8>(), 0..300),
    ) {
        for bytes in [bytes.clone(), [&[1][..], &bytes].concat(), [&[2][..], &bytes].concat()] {
            if let Ok(v) = Begin::decode(&bytes) {
                prop_assert_eq!(v.encode(), bytes.clone());
            }
            if let Ok(v) = Commit::decode(&bytes) {
                prop_assert_eq!(v.encode(), bytes.clone());
            }
            if let Ok(v) = End::decode(&bytes) {
                prop_assert_eq!(v.encode(), bytes);
            }
        }
    }

    #[test]
    fn damaged_payloads_are_errors_or_others_that_encode_the_same(
        flips in proptest::collection::vec((any::<proptest::sample::Index>(), 1u8..), 1..4),
        cut in any::<proptest::sample::Index>(),
    ) {
        let commit = Commit { regs: regs(), effects: vec![Effect::Input { ino: FILE, input: 0 }, map()] };
        for original in [append().encode(), create().encode(), planned().encode(), commit.encode()] {
            let mut bytes = original.clone();
            for (at, bits) in &flips {
                bytes[at.index(original.len())] ^= bits;
            }
            if let Ok(v) = Begin::decode(&bytes) {
                prop_assert_eq!(v.encode(), bytes.clone());
            }
            if let Ok(v) = Commit::decode(&bytes) {
                prop_assert_eq!(v.encode(), bytes);
            }
            let short = &original[..cut.index(original.len())];
            prop_assert!(Begin::decode(short).is_err());
        }
    }

    #[test]
    fn registers_come_back_as_they_were(
        file in any::<u64>(), created in any::<bool>(), read in proptest::option::of(0u64..1 << 63),
        first in proptest::option::of((0u64..1 << 62, 0u64..1 << 20)), last in (0u64..1 << 62, 0u64..1 << 20),
        sum in any::<u32>(), len in 0u64..1 << 63,
    ) {
        let last = if first.is_some() { Written { off: last.0, len: last.1 } } else { Written::default() };
        let first = first.map(|(off, len)| Written { off, len });
        let regs = Registers { file, created, read, first, last, sum: ChecksumState::resume(sum, len) };
        let commit = Commit { regs, effects: vec![] };
        prop_assert_eq!(Commit::decode(&commit.encode()).unwrap(), commit);
    }
}
