//! Built-in compute functions, in a crate of their own so that the client side stays light.
//!
//! What lives here: streaming functions over bytes, each `new -> update(chunk) -> finish`: checksums; with the feature
//! `codecs` compression (lz4, zstd, snappy), with `ciphers` AES in XTS and GCM.
//! What may be touched: nothing outside; no I/O, no threads. Checksums allocate nothing; the rest is bounded by the
//! limits that it is given.
//! What flows through: the bytes of a payload, chunk by chunk, in file order; a checksum, a frame, a record comes out.
#![forbid(unsafe_code)]

pub mod checksum;
#[cfg(feature = "ciphers")]
pub mod cipher;
#[cfg(feature = "codecs")]
pub mod codec;
mod error;

pub use checksum::Checksum;
use crc_fast::{CrcAlgorithm, Digest};
pub use error::Error;

/// CRC-32C (Castagnoli) of `bytes`, as iSCSI, ext4 and Btrfs use it.
#[inline]
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

/// Bytes from which on a digest is worth its state, a copy of the algorithm's constants: it sums up 32 or 64 bytes at a
/// time, and the other way eight.
const DIGEST_FROM: usize = 512;

/// CRC-32C of `a ++ bytes`, from that of `a`.
#[inline]
pub fn crc32c_append(a: u32, bytes: &[u8]) -> u32 {
    if a == 0 {
        return crc32c(bytes);
    }
    if bytes.len() < DIGEST_FROM {
        return crc32c::crc32c_append(a, bytes);
    }
    let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, u64::from(!a));
    digest.update(bytes);
    digest.finalize() as u32
}

/// Lengths that encryption has, for those who know of it and do not do it.
pub mod lengths {
    /// Bytes of a record's nonce.
    pub const NONCE_BYTES: usize = 12;
    /// Bytes of a record's tag.
    pub(crate) const TAG_BYTES: usize = 16;
    /// Bytes by which a record is longer than its plaintext.
    pub const RECORD_OVERHEAD: usize = NONCE_BYTES + TAG_BYTES;
    /// Bytes of the shortest data unit: one block of AES.
    pub const UNIT_TAIL_MIN: usize = 16;
}

/// Bytes of memory that one run of a codec may take beside input and output: tables, windows, blocks in the making.
pub mod working {
    /// LZ4 frames: a block of 4 MiB as it comes in, two as they go out, and a window.
    pub const LZ4_BYTES: usize = 13 << 20;
    /// Zstandard: a window of 8 MiB.
    pub const ZSTD_BYTES: usize = 10 << 20;
    /// Snappy framing: chunks of 64 KiB.
    pub const SNAPPY_BYTES: usize = 1 << 20;
}

/// CRC-32C of `a ++ b` from the two checksums and the length of `b`, without the bytes. For a `b` of 4096 bytes a few
/// look-ups; for other lengths thousands of steps.
#[inline]
pub fn crc32c_combine(a: u32, b: u32, b_len: usize) -> u32 {
    if b_len == BLOCK {
        let [t0, t1, t2, t3] = &PAST_BLOCK;
        let byte = |shift: u32| (a >> shift) as usize & 0xff;
        return t0[byte(0)] ^ t1[byte(8)] ^ t2[byte(16)] ^ t3[byte(24)] ^ b;
    }
    crc_fast::checksum_combine(CrcAlgorithm::Crc32Iscsi, a.into(), b.into(), b_len as u64) as u32
}

const BLOCK: usize = 4096;
/// A checksum's contribution past 4096 more bytes, by the checksum's four bytes: the operator is linear.
static PAST_BLOCK: [[u32; 256]; 4] = past_block();

/// A linear operator on checksums: the images of the 32 bits.
type Operator = [u32; 32];

const fn apply(op: &Operator, mut x: u32) -> u32 {
    let (mut sum, mut i) = (0, 0);
    while x != 0 {
        if x & 1 == 1 {
            sum ^= op[i];
        }
        (x, i) = (x >> 1, i + 1);
    }
    sum
}

const fn past_block() -> [[u32; 256]; 4] {
    // One bit further, then doubled: 8 * 4096 = 2^15 bits.
    let mut op = [0; 32];
    op[0] = 0x82f6_3b78;
    let mut i = 1;
    while i < 32 {
        op[i] = 1 << (i - 1);
        i += 1;
    }
    let mut doublings = 0;
    while 1usize << doublings < 8 * BLOCK {
        let once = op;
        i = 0;
        while i < 32 {
            op[i] = apply(&once, once[i]);
            i += 1;
        }
        doublings += 1;
    }
    let mut tables = [[0; 256]; 4];
    let mut byte = 0;
    while byte < 4 {
        let mut value = 0;
        while value < 256 {
            tables[byte][value] = apply(&op, (value as u32) << (8 * byte));
            value += 1;
        }
        byte += 1;
    }
    tables
}

/// A checksum being computed over a stream of chunks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChecksumState {
    crc: u32,
    len: u64,
}

impl ChecksumState {
    /// Of no bytes yet.
    pub const fn new() -> ChecksumState {
        ChecksumState { crc: 0, len: 0 }
    }

    /// As it stood after `len` bytes with the checksum `crc`.
    pub const fn resume(crc: u32, len: u64) -> ChecksumState {
        ChecksumState { crc, len }
    }

    /// Folds in the next bytes.
    #[inline]
    pub fn update(&mut self, chunk: &[u8]) {
        self.crc = crc32c_append(self.crc, chunk);
        self.len += chunk.len() as u64;
    }

    /// Folds in a run of `len` bytes of which only the CRC-32C is known (a copy kernel computed it in passing).
    #[inline]
    pub fn update_crc(&mut self, crc: u32, len: usize) {
        self.crc = if self.len == 0 { crc } else { crc32c_combine(self.crc, crc, len) };
        self.len += len as u64;
    }

    /// Folds in `len` zero bytes (a hole).
    pub fn update_zeros(&mut self, mut len: u64) {
        const ZEROS: [u8; 4096] = [0; 4096];
        while len > 0 {
            let n = len.min(4096);
            self.update(&ZEROS[..n as usize]);
            len -= n;
        }
    }

    /// Bytes folded in so far.
    pub const fn len(&self) -> u64 {
        self.len
    }

    /// Whether nothing was folded in.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The checksum.
    pub const fn value(&self) -> u32 {
        self.crc
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_castagnoli_check_value() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    }

    #[test]
    fn any_chunking_gives_the_same_checksum() {
        let data: Vec<u8> = (0..10_000u32).map(|i| (i * 7 + i / 13) as u8).collect();
        let whole = crc32c(&data);
        for cut in [0, 1, 63, 4096, 9_999, 10_000] {
            let (a, b) = data.split_at(cut);
            let mut s = ChecksumState::new();
            s.update(a);
            s.update_crc(crc32c(b), b.len());
            assert_eq!((s.value(), s.len()), (whole, 10_000));
            assert_eq!(crc32c_combine(crc32c(a), crc32c(b), b.len()), whole);
            assert_eq!(crc32c_append(crc32c(a), b), whole);
        }
    }

    /// At every length at which an implementation takes another way, and at any alignment.
    #[test]
    fn another_implementation_says_the_same() {
        let data: Vec<u8> = (0..10_000u32).map(|i| (i * 7 + i / 13) as u8).collect();
        for from in 0..9 {
            for len in (0..1_100).chain([4_096, 8_191, 9_990]) {
                let bytes = &data[from..from + len];
                assert_eq!(crc32c_append(len as u32, bytes), crc32c::crc32c_append(len as u32, bytes), "{from} {len}");
            }
        }
    }

    #[test]
    fn combining_with_a_block_is_combining() {
        let mut x = 0x1234_5678u32;
        for _ in 0..2_000 {
            let (a, b) = (x, x.rotate_left(13) ^ 0x9e37_79b9);
            assert_eq!(crc32c_combine(a, b, 4096), crc32c::crc32c_combine(a, b, 4096));
            x = x.wrapping_mul(0x9e37_79b1).wrapping_add(7);
        }
        let data: Vec<u8> = (0..40_960u32).map(|i| (i * 7 + i / 13) as u8).collect();
        let mut sum = ChecksumState::new();
        data.chunks(4096).for_each(|b| sum.update_crc(crc32c(b), b.len()));
        assert_eq!((sum.value(), sum.len()), (crc32c(&data), 40_960));
    }

    #[test]
    fn zeros_are_bytes() {
        let mut s = ChecksumState::new();
        s.update(b"x");
        s.update_zeros(5_000);
        let mut v = vec![0u8; 5_001];
        v[0] = b'x';
        assert_eq!(s.value(), crc32c(&v));
    }
}
