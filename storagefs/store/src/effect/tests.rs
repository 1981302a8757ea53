//! The bytes of effects: golden, reversible, and never trusted.

use super::*;
use crate::codec::Writer;
use crate::outcomes::Identity;
use crate::record::InodeRec;
use proptest::prelude::*;
use weldfs_ciscops::Outcome;

fn time() -> impl Strategy<Value = Time> {
    (any::<i64>(), 0u32..1_000_000_000).prop_map(|(sec, nsec)| Time { sec, nsec })
}

fn ino() -> impl Strategy<Value = InodeNo> {
    (1..crate::limits::COUNTER_MAX).prop_map(InodeNo)
}

fn name() -> impl Strategy<Value = Arc<[u8]>> {
    proptest::collection::vec(1u8.., 1..255).prop_map(Arc::from)
}

fn cookie() -> impl Strategy<Value = u64> {
    3u64..1 << 63
}

fn inode() -> impl Strategy<Value = Effect> {
    let numbers = proptest::array::uniform8(any::<u32>());
    let words = proptest::array::uniform4(any::<u64>());
    let target = proptest::option::of(proptest::collection::vec(any::<u8>(), 1..300));
    (ino(), numbers, words, proptest::array::uniform4(time()), target).prop_map(|(ino, n, w, t, target)| {
        let [generation, mode, uid, gid, nlink, project, tenant, flags] = n;
        Effect::PutInode(Box::new(InodeRec {
            ino,
            generation,
            mode,
            uid,
            gid,
            nlink: nlink >> 1,
            project,
            tenant,
            flags,
            size: w[0] >> 1,
            blocks: w[1] >> 16,
            rdev: w[2],
            parent: InodeNo(w[3]),
            birth: weldfs_journal::Lsn(w[0] ^ w[1]),
            atime: t[0],
            mtime: t[1],
            ctime: t[2],
            btime: t[3],
            target: target.map(Arc::from),
        }))
    })
}

fn attrs() -> impl Strategy<Value = Effect> {
    let numbers = proptest::array::uniform5(any::<u32>());
    (ino(), 0..=attr::ALL, any::<u64>(), numbers, any::<u64>(), proptest::array::uniform3(time())).prop_map(
        |(ino, mask, size, n, parent, t)| {
            let has = |bit: u16| mask & bit != 0;
            let mut d = AttrDelta::new(ino);
            type Set<'a> = (u16, &'a dyn Fn(AttrDelta) -> AttrDelta);
            let sets: [Set<'_>; 10] = [
                (attr::SIZE, &|d| d.size(size >> 1)),
                (attr::MODE, &|d| d.mode(n[0])),
                (attr::UID, &|d| d.uid(n[1])),
                (attr::GID, &|d| d.gid(n[2])),
                (attr::NLINK, &|d| d.nlink(n[3] >> 1)),
                (attr::FLAGS, &|d| d.flags(n[4])),
                (attr::PARENT, &|d| d.parent(InodeNo(parent))),
                (attr::ATIME, &|d| d.atime(t[0])),
                (attr::MTIME, &|d| d.mtime(t[1])),
                (attr::CTIME, &|d| d.ctime(t[2])),
            ];
            sets.iter().filter(|(bit, _)| has(*bit)).for_each(|(_, set)| d = set(d));
            Effect::SetAttr(d)
        },
    )
}

fn effect() -> impl Strategy<Value = Effect> {
    let blk = || 0u64..FILE_BLOCKS_MAX - 40_000;
    let map = (ino(), blk(), 1u64..1 << 40, proptest::collection::vec(any::<u32>(), 1..20), any::<bool>());
    let patch = (ino(), blk(), 0u64..4000, proptest::collection::vec(any::<u8>(), 1..90));
    prop_oneof![
        inode(),
        attrs(),
        ino().prop_map(Effect::DropInode),
        (ino(), cookie(), ino(), any::<u8>(), any::<u16>(), name()).prop_map(
            |(dir, cookie, ino, ftype, mark, name)| Effect::PutDirent { dir, cookie, ino, ftype, mark, name }
        ),
        (ino(), cookie()).prop_map(|(dir, cookie)| Effect::DelDirent { dir, cookie }),
        (ino(), cookie(), name(), proptest::collection::vec(any::<u8>(), 0..500))
            .prop_map(|(ino, slot, name, value)| Effect::PutXattr { ino, slot, name, value: value.into() }),
        (ino(), cookie()).prop_map(|(ino, slot)| Effect::DelXattr { ino, slot }),
        map.prop_map(|(ino, blk, addr, crcs, written)| {
            let (count, addr) = (crcs.len() as u32, BlockNo(addr));
            let state = if written { BlockState::Written } else { BlockState::Unwritten };
            let crcs = if written { crcs.into() } else { SmallVec::new() };
            Effect::Map { ino, blk, addr, count, state, crcs }
        }),
        patch.prop_map(|(ino, blk, at, bytes)| Effect::Patch { ino, off: blk * 4096 + at, bytes: bytes.into() }),
        (ino(), blk(), 1u32..=4096).prop_map(|(ino, blk, len)| Effect::Zero { ino, off: blk * 4096, len }),
        (ino(), blk(), 1u32..3800).prop_map(|(ino, blk, count)| Effect::Unmap { ino, blk, count }),
        (ino(), blk(), 1u64..30_000).prop_map(|(ino, blk, n)| Effect::Cut { ino, blk, end: blk + n }),
        ino().prop_map(|ino| Effect::Orphan { ino }),
        ino().prop_map(|ino| Effect::Adopt { ino }),
        (ino(), any::<u64>(), blk(), 1u32..3800).prop_map(|(ino, cut, blk, count)| Effect::ReclaimStep {
            ino,
            cut,
            blk,
            count
        }),
        (ino(), any::<u64>()).prop_map(|(ino, cut)| Effect::ReclaimDone { ino, cut }),
        (any::<[u8; 16]>(), any::<(u32, u16, u64)>(), 0..i32::MAX, any::<(u16, u16, u64, u64)>()).prop_map(
            |(client, (uid, queue, sequence), status, (micro_done, micro_failed, result, result2))| {
                let outcome = Outcome { status, micro_done, micro_failed, result, result2 };
                Effect::Outcome(Box::new(OutcomeRec { id: Identity { client, uid, queue, sequence }, outcome }))
            }
        ),
    ]
}

proptest! {
    #[test]
    fn effects_read_back_and_fit_their_bound(effects in proptest::collection::vec(effect(), 0..8)) {
        let bytes = encode(&effects);
        prop_assert!(bytes.len() <= encoded_len_max(&effects), "{} > {}", bytes.len(), encoded_len_max(&effects));
        prop_assert_eq!(&decode(&bytes).unwrap()[..], &effects[..]);
    }

    #[test]
    fn damaged_effects_are_errors_or_other_effects_that_encode_the_same(
        effects in proptest::collection::vec(effect(), 1..5),
        flips in proptest::collection::vec((any::<proptest::sample::Index>(), 1u8..), 1..4),
    ) {
        let mut bytes = encode(&effects);
        for (at, bits) in flips {
            let at = at.index(bytes.len());
            bytes[at] ^= bits;
        }
        // One value has one encoding: what is accepted is exactly what a writer would have written.
        if let Ok(read) = decode(&bytes) {
            prop_assert_eq!(encode(&read), bytes);
        }
    }

    #[test]
    fn any_bytes_decode_to_something_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = decode(&bytes);
        let _ = crate::record::InodeRec::from_value(InodeNo(1), &bytes);
        let _ = crate::record::Dirent::from_value(InodeNo(1), 4096, &bytes);
        let _ = crate::record::Xattr::from_value(InodeNo(1), 4096, &bytes);
        let _ = crate::record::ReclaimRec::from_value(&bytes);
        let _ = crate::overlay::window::unpack(&bytes);
    }
}

#[test]
fn golden_bytes_of_an_append() {
    let t = Time { sec: 1, nsec: 2 };
    let effects = [
        Effect::SetAttr(AttrDelta::new(InodeNo(300)).size(8192).mtime(t).ctime(t)),
        Effect::Map {
            ino: InodeNo(300),
            blk: 1,
            addr: BlockNo(5000),
            count: 1,
            state: BlockState::Written,
            crcs: smallvec::smallvec![0x0403_0201],
        },
    ];
    let want = [
        1, // version
        2, 0xac, 0x02, 0xc1, 0x01, 0x80, 0x40, 2, 2, 0, 0, 0, 2, 2, 0, 0, 0, // SetAttr
        8, 0xac, 0x02, 1, 0x88, 0x27, 1, 1, 1, 2, 3, 4, // Map
    ];
    assert_eq!(encode(&effects), want);
}

#[test]
fn golden_bytes_of_an_outcome() {
    let id = Identity { client: [0xab; 16], uid: 1000, queue: 3, sequence: 300 };
    let outcome = Outcome { status: 28, micro_done: 0, micro_failed: 2, result: 5, result2: 200 };
    let mut want = vec![1, 18, 1];
    want.extend([0xab; 16]);
    want.extend([3, 0xac, 0x02, 0xe8, 0x07, 28, 0, 2, 5, 0xc8, 0x01]);
    let effects = [Effect::Outcome(Box::new(OutcomeRec { id, outcome }))];
    assert_eq!(encode(&effects), want);
    want[2] = 2;
    assert!(decode(&want).is_err(), "an outcome belongs to no file");
}

#[test]
fn golden_bytes_of_names_and_small_payload() {
    let effects = [
        Effect::PutDirent {
            dir: InodeNo(1),
            cookie: 4096,
            ino: InodeNo(2),
            ftype: 8,
            mark: 0,
            name: Arc::from(&b"ab"[..]),
        },
        Effect::DelDirent { dir: InodeNo(1), cookie: 4096 },
        Effect::Patch { ino: InodeNo(2), off: 4097, bytes: smallvec::smallvec![9, 8] },
        Effect::Cut { ino: InodeNo(2), blk: 1, end: 3 },
        Effect::ReclaimDone { ino: InodeNo(2), cut: 0 },
    ];
    let want = [
        1, 4, 1, 0x80, 0x20, 2, 0, 8, 2, b'a', b'b', 5, 1, 0x80, 0x20, 9, 2, 0x81, 0x20, 2, 9, 8, 12, 2, 1, 3, 16, 2, 0,
    ];
    assert_eq!(encode(&effects), want);
}

#[test]
fn times_of_any_length_are_written_as_the_format_says() {
    for sec in [0, 1, -1, 63, 64, (1 << 27) - 1, 1 << 27, 1_790_000_000, (1 << 34) - 1, 1 << 34, i64::MAX, i64::MIN] {
        let mut w = Writer::with_capacity(16);
        w.time(Time { sec, nsec: 0x0102_0304 });
        let (mut z, mut expected) = (((sec << 1) ^ (sec >> 63)) as u64, Vec::new());
        while z >= 0x80 {
            expected.push(z as u8 | 0x80);
            z >>= 7;
        }
        expected.extend([z as u8, 4, 3, 2, 1]);
        assert_eq!(w.into_vec(), expected, "{sec}");
    }
}
