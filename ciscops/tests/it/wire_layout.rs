//! The bytes of the wire: sizes and offsets of every struct, and golden bytes of a few. A change here is a change of
//! the protocol, and needs a new version or a feature bit.

use core::mem::{align_of, offset_of, size_of};
use weldfs_ciscops::attach::*;
use weldfs_ciscops::dirent::{DIRENT_HEAD, DirentHead, DirentPlusHead, DirentWriter, Dirents};
use weldfs_ciscops::ring::word;
use weldfs_ciscops::*;
use zerocopy::IntoBytes;

macro_rules! layout {
    ($ty:ty = $size:literal { $($field:ident @ $off:literal),* $(,)? }) => {
        assert_eq!(size_of::<$ty>(), $size, concat!("size of ", stringify!($ty)));
        $(assert_eq!(offset_of!($ty, $field), $off, concat!(stringify!($ty), ".", stringify!($field)));)*
    };
}

#[test]
fn queue_entries_have_their_layout() {
    layout!(Sqe = 64 { opcode @ 0, flags @ 2, aux @ 4, sequence @ 8, handle @ 16, offset @ 24, length @ 32,
        pool_off @ 36, pool_off2 @ 40, length2 @ 44, imm @ 48 });
    layout!(Cqe = 32 { sequence @ 0, status @ 8, micro_done @ 12, micro_failed @ 14, result @ 16, result2 @ 24 });
    assert_eq!(align_of::<Sqe>(), 8);
}

#[test]
fn bodies_have_their_layout() {
    layout!(WireTime = 16 { sec @ 0, nsec @ 8, reserved @ 12 });
    layout!(StatBody = 256 { ino @ 0, generation @ 8, dev @ 16, rdev @ 24, size @ 32, blocks512 @ 40, mode @ 48,
        nlink @ 52, uid @ 56, gid @ 60, blksize @ 64, flags @ 68, project @ 72, tenant @ 76, atime @ 80, mtime @ 96,
        ctime @ 112, btime @ 128, version @ 144, reserved @ 152 });
    layout!(SetAttrBody = 64 { mask @ 0, mode @ 4, uid @ 8, gid @ 12, size @ 16, atime @ 24, mtime @ 40,
        reserved @ 56 });
    layout!(StatfsBody = 128 { bsize @ 0, blocks @ 8, bfree @ 16, bavail @ 24, files @ 32, ffree @ 40, fsid @ 48,
        name_max @ 56, flags @ 60, uuid @ 64, reserved @ 80 });
    layout!(LockBody = 32 { start @ 0, len @ 8, owner @ 16, kind @ 24, reserved @ 25 });
    layout!(OutcomeBody = 64 { state @ 0, status @ 4, micro_done @ 8, micro_failed @ 10, micro_ops @ 12, result @ 16,
        result2 @ 24, reserved3 @ 32 });
    layout!(DirentPlusHead = 24 { ino @ 0, next_cookie @ 8, reclen @ 16, dtype @ 18, namelen @ 19, status @ 20 });
    layout!(DirentHead = 20 { ino @ 0, next_cookie @ 8, reclen @ 16, dtype @ 18, namelen @ 19 });
    assert_eq!(DIRENT_HEAD, 20);
}

#[test]
fn attach_messages_have_their_layout() {
    layout!(Header = 16 { magic @ 0, version @ 4, kind @ 6, length @ 8, errno @ 12 });
    layout!(Hello = 48 { version_min @ 0, version_max @ 2, prefix_len @ 4, features_required @ 8,
        features_wanted @ 16, client_id @ 24, reserved @ 40 });
    layout!(attach::Limits = 48 { queue_depth_max @ 0, pool_bytes_max @ 4, queues_max @ 8, handles_max @ 12,
        atomic_write_max @ 16, inline_max @ 20, modify_max @ 24, placeholders_max @ 28, reserved @ 32 });
    layout!(Welcome = 256 { session @ 0, features @ 8, credential @ 16, uuid @ 32, limits @ 48, label @ 96,
        profile @ 160, version @ 192, medium @ 194, power_safe @ 195, durability @ 196, read_only @ 197,
        reserved @ 198 });
    layout!(NewQueue = 8 { depth @ 0, pool_bytes @ 4 });
    layout!(QueueReply = 40 { index @ 0, reserved @ 4, layout @ 8 });
    layout!(Placeholders = 8 { count @ 0, reserved @ 4 });
    layout!(PlaceholdersReply = 72 { count @ 0, reserved @ 4, ids @ 8 });
    layout!(Trace = 8 { start @ 0, limit @ 4 });
    layout!(Share = 136 { count @ 0, reserved @ 4, handles @ 8 });
    layout!(Claim = 8 { anew @ 0, reserved @ 4 });
    layout!(Claimed = 24 { handle @ 0, flags @ 8, mode @ 12, placeholder @ 16, reserved @ 20 });
}

#[test]
fn queue_layout_places_each_word_on_lines_of_its_own() {
    layout!(QueueLayout = 32 { magic @ 0, depth @ 8, pool_bytes @ 12, sq_off @ 16, cq_off @ 20, pool_off @ 24,
        total_bytes @ 28 });
    let words = [
        word::SQ_TAIL,
        word::SQ_HEAD,
        word::DEVICE_SLEEPING,
        word::CQ_TAIL,
        word::CQ_HEAD,
        word::CLIENT_SLEEPING,
        word::DEVICE_CLOSED,
    ];
    for (i, w) in words.iter().enumerate() {
        assert_eq!(*w, 128 * (i + 1));
    }
    let l = QueueLayout::new(64, 1 << 20).unwrap();
    assert_eq!((l.sq_off, l.cq_off, l.pool_off, l.total_bytes), (4096, 8192, 12288, 12288 + (1 << 20)));
    let l = QueueLayout::new(1024, 4096).unwrap();
    assert_eq!((l.sq_off, l.cq_off, l.pool_off, l.total_bytes), (4096, 69632, 102400, 106496));
}

#[test]
fn queue_layout_outside_the_limits_is_einval() {
    for (depth, pool) in [(0, 4096), (1, 4096), (3, 4096), (2048, 4096), (64, 0), (64, 4097), (64, (64 << 20) + 4096)] {
        assert_eq!(QueueLayout::new(depth, pool), Err(Errno::INVAL), "{depth} {pool}");
    }
    let mut l = QueueLayout::new(64, 4096).unwrap();
    l.cq_off += 4096;
    assert_eq!(l.validate(), Err(Errno::PROTO));
}

#[test]
fn golden_sqe_of_a_durable_write() {
    let h = Handle { index: 7, generation: 3 };
    let cmd = Command::new(0x1122, Op::Write { h, at: At::Offset(0x1000), src: PoolRange::new(0x40, 0x200) })
        .with_durability(Durability::Durable);
    let mut want = [0u8; 64];
    want[0] = 4; // opcode
    want[2] = 2; // durable
    want[8..10].copy_from_slice(&[0x22, 0x11]); // sequence
    want[16..24].copy_from_slice(&[7, 0, 0, 0, 3, 0, 0, 0]); // handle
    want[25] = 0x10; // offset
    want[33] = 0x02; // length
    want[36] = 0x40; // pool_off
    assert_eq!(cmd.encode().as_bytes(), want);
}

#[test]
fn golden_sqe_of_a_fused_read_write() {
    let op = Op::OpenReadWriteClose {
        base: Handle::ROOT,
        path: PoolRange::new(0x10, 5),
        flags: OpenFlags::READ | OpenFlags::WRITE | OpenFlags::CREATE,
        mode: 0o644,
        read_off: 0x99,
        out: PoolRange::new(0x1000, 0x100),
        at: At::End,
        src: PoolRange::new(0x2000, 0x80),
    };
    let mut want = [0u8; 64];
    want[0] = 66;
    want[4..8].copy_from_slice(&(0x7u32 | 0o644 << 16 | 2 << 28).to_le_bytes()); // flags, mode, at = end
    want[24] = 0x99; // read_off
    want[32] = 5; // path length
    want[36] = 0x10; // path offset
    want[41] = 0x10; // out offset
    want[45] = 0x01; // out length
    want[49] = 0x20; // src offset
    want[52] = 0x80; // src length
    assert_eq!(Command::new(0, op).encode().as_bytes(), want);
}

#[test]
fn golden_sqe_of_a_range_to_be_summed_up() {
    let h = Handle { index: 7, generation: 3 };
    let op = Op::ChecksumRange { h, kind: ChecksumKind::Crc32c, offset: 0x9988, len: 0x1_0000_0002 };
    let mut want = [0u8; 64];
    want[0] = 20;
    want[16..24].copy_from_slice(&[7, 0, 0, 0, 3, 0, 0, 0]); // handle
    want[24..26].copy_from_slice(&[0x88, 0x99]); // offset
    want[48..53].copy_from_slice(&[2, 0, 0, 0, 1]); // length
    assert_eq!(Command::new(0, op).encode().as_bytes(), want);
}

#[test]
fn golden_sqe_of_a_question_and_of_a_detectable_command() {
    let client = core::array::from_fn(|i| i as u8 + 0xa0);
    let op = Op::Outcome { client, queue: 0x102, sequence: 0x1122, out: PoolRange::new(0x80, 64) };
    let mut want = [0u8; 64];
    want[0] = 19;
    want[4..6].copy_from_slice(&[2, 1]); // queue
    want[24..26].copy_from_slice(&[0x22, 0x11]); // sequence
    want[32] = 64; // length
    want[36] = 0x80; // pool_off
    want[48..].copy_from_slice(&client);
    assert_eq!(Command::new(0, op).encode().as_bytes(), want);
    let cmd = Command::new(0, Op::Truncate { h: Handle::ROOT, size: 0 }).detectable();
    assert_eq!(cmd.encode().flags, 1 << 8);
}

#[test]
fn golden_cqe() {
    let cqe = Cqe { sequence: 5, status: 2, micro_done: 3, micro_failed: 4, result: 6, result2: 7 };
    let mut want = [0u8; 32];
    (want[0], want[8], want[12], want[14], want[16], want[24]) = (5, 2, 3, 4, 6, 7);
    assert_eq!(cqe.as_bytes(), want);
}

#[test]
fn golden_hello() {
    let hello = Hello { version_min: 1, version_max: 1, client_id: [0xab; 16], ..Hello::default() };
    let bytes = attach::Request::Hello { hello, prefix: b"/w".to_vec() }.encode();
    let mut want = b"WELD\x01\x00\x01\x00\x32\x00\x00\x00\x00\x00\x00\x00".to_vec();
    want.extend([1, 0, 1, 0, 2, 0, 0, 0]);
    want.extend([0; 16]);
    want.extend([0xab; 16]);
    want.extend([0; 8]);
    want.extend(b"/w");
    assert_eq!(bytes, want);
}

#[test]
fn golden_requests_of_the_control_plane() {
    let golden = |request: attach::Request, kind: u8, body: &[u8]| {
        let mut want = b"WELD\x01\x00".to_vec();
        want.extend([kind, 0, body.len() as u8, 0, 0, 0, 0, 0, 0, 0]);
        want.extend(body);
        assert_eq!(request.encode(), want, "{request:?}");
    };
    let token: [u8; 16] = std::array::from_fn(|i| i as u8);
    golden(attach::Request::Tune(b"a=b".to_vec()), 6, b"a=b");
    golden(attach::Request::Kernels(b"load /k".to_vec()), 13, b"load /k");
    golden(attach::Request::Join(attach::Token(token)), 8, &token);
    golden(attach::Request::Tenants, 10, b"");
    golden(attach::Request::Stop, 12, b"");
    golden(attach::Request::Token(b"web".to_vec()), 11, b"web");
    golden(attach::Request::Trace { start: Some(0x0102) }, 9, &[1, 0, 0, 0, 2, 1, 0, 0]);
    let reply = attach::Reply::Token(attach::Token(token)).encode(kind::TOKEN);
    assert_eq!(reply[..16], *b"WELD\x01\x00\x0b\x80\x10\x00\x00\x00\x00\x00\x00\x00");
    assert_eq!(reply[16..], token);
}

#[test]
fn golden_dirent_stream_reads_back() {
    let region = SharedRegion::heap(4096);
    let mut w = DirentWriter::new(region.bytes(0, 64).unwrap());
    assert!(w.push(0x11, 0x22, dirent::dtype::REG, b"name"));
    assert!(w.push(0x33, 0x44, dirent::dtype::DIR, b"d"));
    assert!(!w.push(1, 2, 3, b"this one does not fit"), "a full stream takes no more");
    assert_eq!((w.used(), w.entries()), (48, 2));
    let mut bytes = vec![0; w.used()];
    region.bytes(0, 48).unwrap().copy_to(&mut bytes);
    let mut want = [0u8; 24];
    (want[0], want[8], want[16], want[18], want[19]) = (0x11, 0x22, 24, 8, 4);
    want[20..24].copy_from_slice(b"name");
    assert_eq!(bytes[..24], want);
    let got: Vec<_> = Dirents(&bytes).map(|d| (d.ino, d.next_cookie, d.dtype, d.name.to_vec())).collect();
    assert_eq!(got, [(0x11, 0x22, 8, b"name".to_vec()), (0x33, 0x44, 4, b"d".to_vec())]);
}

#[test]
fn dirent_iteration_is_total_on_arbitrary_bytes() {
    let mut state = 1u64;
    for _ in 0..2_000 {
        let bytes: Vec<u8> = (0..100)
            .map(|_| {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                ((state >> 60) * (state >> 33 & 3)) as u8
            })
            .collect();
        assert!(Dirents(&bytes).count() <= 5);
    }
}

#[test]
fn open_flags_survive_the_trip_through_linux_bits() {
    for bits in 0..1u16 << 15 {
        let f = OpenFlags::from_bits_truncate(bits);
        // What Linux itself cannot tell apart, and access modes open(2) has no number for.
        let one_mode = f.intersects(OpenFlags::READ | OpenFlags::WRITE) != f.contains(OpenFlags::PATH);
        let canonical = !(f.contains(OpenFlags::TMPFILE) && f.contains(OpenFlags::DIRECTORY))
            && (!f.contains(OpenFlags::SYNC) || f.contains(OpenFlags::DSYNC))
            && one_mode;
        if canonical {
            assert_eq!(OpenFlags::from_linux(f.to_linux()), f);
        }
    }
}
