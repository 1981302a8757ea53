//! Submission queue entries: 64 bytes, then what the pool holds from its start. What is accepted means one thing only.

use crate::cursor::Cursor;
use crate::{Seed, Target};
use weldfs_ciscops::{Command, OPS, Paths, RawCommand, SessionLimits, SharedRegion, Sqe, validate};
use zerocopy::{FromBytes, IntoBytes};

/// Bytes of the pool.
const POOL: usize = 64 << 10;

/// See the module.
pub const TARGET: Target = Target {
    name: "sqe",
    about: "a submission queue entry and a pool, to the decoder and to what fetches paths and programs",
    run,
    seeds,
    len_max: 64 + (16 << 10),
};

fn run(data: &[u8]) {
    let mut data = Cursor(data);
    let sqe = Sqe::read_from_bytes(&data.array::<64>()).expect("an SQE has 64 bytes");
    let limits = SessionLimits { pool_bytes: POOL as u32 };
    let Ok(cmd) = validate(&RawCommand(sqe), &limits) else { return };
    assert!(cmd.encode() == sqe, "{cmd:?} is encoded in another way than it came");
    fetch(&cmd, data.rest());
}

fn fetch(cmd: &Command, bytes: &[u8]) {
    let pool = SharedRegion::heap(POOL);
    let n = bytes.len().min(POOL);
    if let Ok(front) = pool.bytes(0, n) {
        front.copy_from(&bytes[..n]);
    }
    let _ = Paths::fetch(cmd, &pool);
}

fn seeds() -> Vec<Seed> {
    let pool: Vec<u8> = b"dir/name\0target".iter().chain(&[7; 17]).copied().collect();
    let seed = |spec: &weldfs_ciscops::OpSpec| {
        // Of each op the entry that says nothing, and one with short ranges, a handle and an offset.
        let plain = Sqe { opcode: spec.opcode as u16, sequence: 9, ..Sqe::default() };
        let mut words = [!0; 8];
        words[0] = u64::from(spec.opcode as u16);
        (words[1], words[2], words[3]) = (9, 1 | 1 << 32, 4096);
        let mut full = Sqe::from_words(std::array::from_fn(|i| words[i] & spec.used[i]));
        (full.opcode, full.sequence) = (spec.opcode as u16, 9);
        (full.pool_off, full.length, full.pool_off2, full.length2) = (0, 8, 8, 7);
        [("plain", plain), ("full", full)]
            .map(|(kind, sqe)| (format!("{}-{kind}", spec.name), [sqe.as_bytes(), &pool].concat()))
    };
    OPS.iter().copied().flat_map(seed).collect()
}
