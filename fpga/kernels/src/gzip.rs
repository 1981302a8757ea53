//! gzip: compresses a packet to one gzip member that every gunzip reads.
//!
//! Parameters: one word, 0: the only method so far, fixed codes. Anything else is [`Fault::Params`].
//!
//! Output: the header 1f 8b 08 00, time 0, flags 0, system 255 (10 bytes); one final deflate block with fixed Huffman
//! codes; CRC-32 and length modulo 2^32 of the packet, u32 little-endian. An empty packet gives a member of nothing, 20
//! bytes. There are no tails: any length goes. What does not compress grows by an eighth at most, and 20 bytes. The stream
//! has no errors.
//!
//! The bytes are fixed, so that every back-end makes the same:
//! * Position c of a packet is *hashed* if four bytes of the packet begin there. Its hash is the upper 15 bits of the 32-bit
//!   product of these bytes (u32 little-endian) and 2,654,435,761. A table keeps for each hash a position modulo 2^32, at
//!   first 2^31.
//! * The packet is worked on in batches of 8 positions, from multiples of 8 (the last one may be shorter). First the table
//!   gives a *candidate* for each hashed position of the batch, then all of these are written to it, in order. So a
//!   candidate is the last position before the batch with the same hash.
//! * Then the batch is gone through from its first position that is not covered by a match. Where position c is hashed,
//!   its distance to the candidate is 1 to 32,752 (modulo 2^32) and the four bytes at both are equal, a match of that
//!   distance begins, which is as long as the bytes stay equal, the packet lasts, and 258 at most; it may run through later
//!   batches. Otherwise the byte at c is a literal. There is no lazy matching.
//!
//! Peek: port 0 is the number of matches put out since `reset`, modulo 2^32.
//!
//! Cycles: 16 for a flit. The eight lanes of a batch hash, compare and select side by side; each reads a copy of the table
//! in one cycle, and writing eight positions through two ports at twice the clock takes two, so a batch of 8 bytes takes
//! two: 1 GB/s at 250 MHz (EISC's kernel stays below 4 GB/s). Between packets the table is emptied while the next one's
//! first bytes wait, which the constant does not count. 32,752 leaves room in a 32 KiB window for the batch under way.
//!
//! Source: RFC 1952 (gzip), RFC 1951 section 3.2.6 (fixed codes); EISC (ICCAD 2019), table II (LZ77 and fixed Huffman, the
//! paper gives no more); eight lanes as in J. Fowers et al., "A scalable high-bandwidth architecture for lossless
//! compression on FPGAs", FCCM 2015, which cuts a match at the end of its batch, where here it runs on.

use weldfs_fpga::kernel::{Fault, Stream};

const BATCH: usize = 8;
const HASH_BITS: u32 = 15;
const WINDOW: usize = 32_752;
const MATCH_MAX: usize = 258;
/// Bytes after a batch that are looked at before it is worked on.
const AHEAD: usize = 3;
const NOWHERE: u32 = 1 << 31;
/// What is kept before it is moved to the front of its buffer, bytes.
const KEPT_MAX: usize = 256 << 10;

/// A code, its first bit lowest, with the extra bits that follow it, and how many these are.
#[derive(Clone, Copy)]
struct Code(u32, u32);

/// The fixed code of a literal or length symbol.
const fn symbol(symbol: u32) -> Code {
    let (code, bits) = match symbol {
        0..144 => (0x30 + symbol, 8),
        144..256 => (0x190 + symbol - 144, 9),
        256..280 => (symbol - 256, 7),
        _ => (0xC0 + symbol - 280, 8),
    };
    Code(code.reverse_bits() >> (32 - bits), bits)
}

const LITERALS: [Code; 256] = {
    let mut codes = [Code(0, 0); 256];
    let mut i = 0;
    while i < 256 {
        codes[i] = symbol(i as u32);
        i += 1;
    }
    codes
};

/// By the length minus 3.
const LENGTHS: [Code; MATCH_MAX - 2] = {
    let mut codes = [Code(0, 0); MATCH_MAX - 2];
    let mut i = 0;
    while i < codes.len() {
        let l = i as u32;
        codes[i] = if l == 255 {
            symbol(285)
        } else if l < 8 {
            symbol(257 + l)
        } else {
            let extra = l.ilog2() - 2;
            let Code(code, bits) = symbol(261 + 4 * extra + (l >> extra & 3));
            Code(code | (l & ((1 << extra) - 1)) << bits, bits + extra)
        };
        i += 1;
    }
    codes
};

fn distance_code(distance: u32) -> Code {
    let d = distance - 1;
    if d < 4 {
        return Code(d.reverse_bits() >> 27, 5);
    }
    let extra = d.ilog2() - 1;
    let symbol = 2 * extra + 2 + (d >> extra & 1);
    Code(symbol.reverse_bits() >> 27 | (d & ((1 << extra) - 1)) << 5, 5 + extra)
}

/// Bits on their way out.
#[derive(Default)]
struct Bits {
    held: u64,
    count: u32,
}

impl Bits {
    /// At most 32 bits.
    #[inline]
    fn put(&mut self, Code(code, bits): Code, out: &mut Vec<u8>) {
        self.held |= u64::from(code) << self.count;
        self.count += bits;
        if self.count >= 32 {
            out.extend_from_slice(&(self.held as u32).to_le_bytes());
            (self.held, self.count) = (self.held >> 32, self.count - 32);
        }
    }

    fn end(&mut self, out: &mut Vec<u8>) {
        let bytes = self.held.to_le_bytes();
        out.extend_from_slice(&bytes[..self.count.div_ceil(8) as usize]);
        *self = Bits::default();
    }
}

#[derive(Clone, Copy)]
struct Match {
    distance: usize,
    len: usize,
}

#[derive(Default)]
pub struct Gzip {
    table: Vec<u32>,
    /// The window, and what is not worked on yet.
    bytes: Vec<u8>,
    /// Where the next batch begins in `bytes`, and in the packet modulo 2^32.
    at: usize,
    position: u32,
    open: Option<Match>,
    bits: Bits,
    crc: crc32fast::Hasher,
    len: u32,
    begun: bool,
    matches: u32,
}

fn four(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn eight(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// How many bytes of the `n` at `at`, at most 8, are equal to those `distance` before.
#[inline]
fn equal(bytes: &[u8], at: usize, distance: usize, n: usize) -> usize {
    if at + 8 <= bytes.len() {
        let differing = eight(bytes, at) ^ eight(bytes, at - distance);
        return n.min(differing.trailing_zeros() as usize / 8);
    }
    (0..n).position(|i| bytes[at + i] != bytes[at + i - distance]).unwrap_or(n)
}

impl Gzip {
    fn begin(&mut self, out: &mut Vec<u8>) {
        if std::mem::replace(&mut self.begun, true) {
            return;
        }
        self.table.clear();
        self.table.resize(1 << HASH_BITS, NOWHERE);
        self.bytes.clear();
        (self.at, self.position, self.len) = (0, 0, 0);
        out.extend_from_slice(&[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255]);
        // A final block with fixed codes.
        self.bits.put(Code(0b011, 3), out);
    }

    fn put_match(&mut self, found: Match, out: &mut Vec<u8>) {
        self.bits.put(LENGTHS[found.len - 3], out);
        self.bits.put(distance_code(found.distance as u32), out);
        self.matches = self.matches.wrapping_add(1);
    }

    /// Candidates of the first `hashed` positions, which are then in the table.
    #[inline]
    fn candidates(&mut self, hashed: usize) -> [u32; BATCH] {
        let table: &mut [u32; 1 << HASH_BITS] = (&mut self.table[..]).try_into().expect("its size");
        let (mut hashes, mut candidates) = ([0; BATCH], [0; BATCH]);
        for i in 0..hashed {
            let product = four(&self.bytes, self.at + i).wrapping_mul(2_654_435_761);
            hashes[i] = (product >> (32 - HASH_BITS)) as usize;
            candidates[i] = table[hashes[i]];
        }
        for i in 0..hashed {
            table[hashes[i]] = self.position.wrapping_add(i as u32);
        }
        candidates
    }

    /// A batch of `n` bytes.
    #[inline]
    fn batch(&mut self, n: usize, hashed: usize, out: &mut Vec<u8>) {
        let candidates = self.candidates(hashed);
        let mut i = 0;
        if let Some(Match { distance, len }) = self.open {
            i = equal(&self.bytes, self.at, distance, n.min(MATCH_MAX - len));
            let found = Match { distance, len: len + i };
            self.open = Some(found);
            if i == n && found.len < MATCH_MAX {
                self.advance(n);
                return;
            }
            self.open = None;
            self.put_match(found, out);
        }
        while i < n {
            let at = self.at + i;
            let distance = self.position.wrapping_add(i as u32).wrapping_sub(candidates[i]) as usize;
            let near = i < hashed && distance.wrapping_sub(1) < WINDOW;
            if !near || four(&self.bytes, at) != four(&self.bytes, at - distance) {
                self.bits.put(LITERALS[usize::from(self.bytes[at])], out);
                i += 1;
                continue;
            }
            let found = Match { distance, len: equal(&self.bytes, at, distance, n - i) };
            i += found.len;
            if i == n {
                self.open = Some(found);
            } else {
                self.put_match(found, out);
            }
        }
        self.advance(n);
    }

    fn advance(&mut self, n: usize) {
        (self.at, self.position) = (self.at + n, self.position.wrapping_add(n as u32));
    }
}

impl Stream for Gzip {
    fn reset(&mut self, params: &[u32]) -> Result<(), Fault> {
        if params != [0] {
            return Err(Fault::Params("gzip takes one word, 0".into()));
        }
        let (table, bytes) = (std::mem::take(&mut self.table), std::mem::take(&mut self.bytes));
        *self = Gzip { table, bytes, ..Gzip::default() };
        Ok(())
    }

    fn chunk(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<(), Fault> {
        self.begin(out);
        self.crc.update(input);
        self.len = self.len.wrapping_add(input.len() as u32);
        if self.at > KEPT_MAX {
            self.bytes.drain(..self.at - WINDOW - BATCH);
            self.at = WINDOW + BATCH;
        }
        self.bytes.extend_from_slice(input);
        while self.at + BATCH + AHEAD <= self.bytes.len() {
            self.batch(BATCH, BATCH, out);
        }
        Ok(())
    }

    fn finish(&mut self, out: &mut Vec<u8>) -> Result<(), Fault> {
        self.begin(out);
        while self.at < self.bytes.len() {
            let left = self.bytes.len() - self.at;
            self.batch(left.min(BATCH), left.saturating_sub(AHEAD).min(BATCH), out);
        }
        if let Some(found) = self.open.take() {
            self.put_match(found, out);
        }
        self.bits.put(symbol(256), out);
        self.bits.end(out);
        out.extend_from_slice(&std::mem::take(&mut self.crc).finalize().to_le_bytes());
        out.extend_from_slice(&self.len.to_le_bytes());
        self.begun = false;
        Ok(())
    }

    fn peek(&mut self, port: u32) -> Option<u32> {
        (port == 0).then_some(self.matches)
    }
}
