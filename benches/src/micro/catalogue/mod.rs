//! The operations that travel as programs or as batches of many, and what the host does for them: on what files they
//! work, how each way does them, and how it is known afterwards that they were done.
//!
//! The host does what a program does today with the fewest calls that it has: copy_file_range for copies, one pread
//! for a whole log, the same codec and cipher on the caller's processor before one pwrite.
//!
//! * `layout` the files, before and after; `weld` fused and single commands; `posix` plain calls; `uring` linked ones.

pub(super) mod layout;
pub(super) mod posix;
pub(super) mod uring;
pub(super) mod weld;

use super::cell::MicroOp;
use super::files::{FILES, NAME, name_of, pick};
use weldfs_ciscops::functions::cipher::Key;
use weldfs_ciscops::functions::codec::Codec;
use weldfs_ciscops::{Errno, KeyKind};

/// Files that a set is made of: one of them is written with each multi-write, four are put together by a concat.
pub(super) const PARTS: u64 = 4;
/// Bytes that grow a record.
pub(super) const GROWTH: u32 = 64;
/// Bytes of the length in front of a record's content, and of the head of a record of a log.
pub(super) const LENGTH: u64 = 4;
pub(super) const HEAD: usize = 8;
/// Nodes of an index, bytes of one, and reads of a walk: pointers, and what the last one points to.
pub(super) const NODES: u64 = 1024;
pub(super) const NODE: u64 = 4096;
pub(super) const WALK: u64 = 8;
/// Bytes of a log that is recovered.
pub(super) const LOG: u64 = 1 << 20;
/// Bytes of a data unit: the smallest, so that every payload has one.
pub(super) const UNIT: u32 = 512;
/// What compresses, everywhere.
pub(super) const CODEC: Codec = Codec::Lz4;
/// Logs that are appended to in turn, by name: more than operations in flight, as each belongs to one of them.
pub(super) const LOGS: u64 = 128;
/// Payloads that fit into one of them before it is put aside.
pub(super) const FULL: u64 = 4;
/// Names that are looked up by one command.
pub(super) const NAMES: u64 = 64;
/// Entries of a directory that is listed.
pub(super) const ENTRIES: u64 = FILES;

/// The key of an encrypted file: two halves, which must differ.
pub(super) fn key_bytes() -> [u8; 64] {
    std::array::from_fn(|i| i as u8)
}

/// What the device calls the kind of key.
pub(super) const KEY: KeyKind = KeyKind::Xts256;

/// The same key on the caller's processor.
pub(super) fn own_key() -> Result<Key, Errno> {
    Key::new(weldfs_ciscops::functions::cipher::KeyKind::Xts256, &key_bytes()).map_err(|_| Errno::INVAL)
}

/// Encrypts what goes to an offset, on the caller's processor.
pub(super) fn encrypt(key: &Key, offset: u64, data: &mut [u8]) -> Result<(), Errno> {
    key.encrypt_units(offset / u64::from(UNIT), UNIT, data).map_err(|_| Errno::INVAL)
}

/// A payload that compresses to about half: every other piece of it is noise.
pub(super) fn mixed(size: u32, number: u64, run: u64) -> Vec<u8> {
    let mut data = super::files::payload(size, number, run);
    let mut noise = 0x9e37_79b9_7f4a_7c15_u64;
    for piece in data[16..].chunks_mut(64).step_by(2) {
        for byte in piece {
            noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            *byte = (noise >> 56) as u8;
        }
    }
    data
}

/// A frame of a payload, as the device writes it.
pub(super) fn compressed(data: &[u8]) -> Result<Vec<u8>, Errno> {
    CODEC.compress(data, CODEC.bound(data.len())).map_err(|_| Errno::TOOBIG)
}

/// The node that a node points to: a cycle through all of them.
pub(super) fn next_node(node: u64) -> u64 {
    (node * 5 + 1) % NODES
}

/// Where the `i`th walk begins.
pub(super) fn first_node(i: u64) -> u64 {
    pick(i, NODES)
}

/// The node whose record the `i`th walk ends with.
pub(super) fn last_node(i: u64) -> u64 {
    (1..WALK).fold(first_node(i), |node, _| next_node(node))
}

/// Records of a log of records with `size` bytes of payload.
pub(super) fn log_records(size: u32) -> u64 {
    LOG / (u64::from(size) + HEAD as u64)
}

/// The name of a new file that becomes another one, or of a log that was put aside; as long as a name.
pub(super) fn temporary(i: u64, into: &mut [u8; NAME]) {
    name_of(i, into);
    into[0] = b't';
}

/// Payloads in a log at the start: a quarter of them is full, so that a quarter of the appends finds a full one, from
/// the first on.
pub(super) fn filled(log: u64) -> u64 {
    log % FULL + 1
}

/// Names of what a new tree holds, behind the name of its directory.
pub(super) const LEAVES: [&[u8; 2]; PARTS as usize] = [b"/a", b"/b", b"/c", b"/d"];

/// The path of a leaf.
pub(super) fn leaf(i: u64, which: usize) -> [u8; NAME + 2] {
    let (mut path, mut name) = ([0; NAME + 2], [0; NAME]);
    name_of(i, &mut name);
    path[..NAME].copy_from_slice(&name);
    path[NAME..].copy_from_slice(LEAVES[which]);
    path
}

/// Whether an operation is one of these.
pub(super) fn is_one(op: MicroOp) -> bool {
    use MicroOp::*;
    matches!(
        op,
        AtomicReplace
            | CopyRange
            | Concat
            | CompressWrite
            | EncryptWrite
            | CreateTree
            | StatMany
            | ReaddirPlus
            | LogRecover
            | AppendToRecord
            | AppendAndRotate
            | IndexWalk
            | MultiWrite
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_walk_of_an_index_reaches_every_node() {
        let mut seen = vec![false; NODES as usize];
        (0..NODES).for_each(|i| seen[last_node(i) as usize] = true);
        assert!(seen.iter().all(|s| *s), "each walk ends elsewhere");
        assert_ne!(first_node(3), last_node(3));
    }

    #[test]
    fn payloads_that_compress_do_so_by_about_half_and_differ_by_run() {
        for size in [256, 4096, 65_536] {
            let frame = compressed(&mixed(size, 1, 2)).expect("it compresses");
            assert!(frame.len() < size as usize, "{size}: {}", frame.len());
            assert_ne!(frame, compressed(&mixed(size, 1, 3)).expect("it compresses"));
        }
        let frame = compressed(&mixed(65_536, 1, 2)).expect("it compresses").len();
        assert!((28_000..45_000).contains(&frame), "{frame}");
    }
}
