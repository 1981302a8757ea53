//! smith-waterman: the best local alignment score of pairs of short sequences.
//!
//! Parameters: three words, signed numbers: the score of a match, 1 to 127; of a mismatch, -128 to 0; of a gap, for each
//! base of it, -128 to -1. The papers use 2, -1, -1. Anything else is [`Fault::Params`].
//!
//! Input: pairs of 96 bytes: a query of 128 bases (32 bytes), then a target of 256 bases (64 bytes). A base is 2 bits; the
//! first of a byte lies in its lowest bits. Output: for each pair, in order, its score as u32 little-endian: the largest
//! H\[i\]\[j\], where H is 0 at the edges and else the largest of 0, H\[i-1\]\[j-1\] + (match or mismatch),
//! H\[i-1\]\[j\] + gap and H\[i\]\[j-1\] + gap; at most 128 * 127. Tail: a trailing part of a pair is dropped. An empty
//! packet gives nothing. The stream has no errors.
//!
//! Peek: port 0 is the number of pairs whose scores were put out since `reset`, modulo 2^32; between
//! packets it is exact.
//!
//! Cycles: 22 for a flit. A systolic array has one element for each base of the query and takes one base of the target a
//! cycle: 256 cycles for a pair, which is a flit and a half. Eight arrays work on eight pairs: 21 1/3, rounded up. That is
//! 0.7 GB/s at 250 MHz: computing is the bottleneck, as in the paper, whose kernel stays below 4 GB/s.
//!
//! Source: T. Smith, M. Waterman, "Identification of common molecular subsequences", J. Mol. Biol. 147, 1981, with linear
//! gaps; the sizes from EISC (ICCAD 2019), table II, which leaves the layout of a pair open. Pairs lie in the lanes of
//! vectors, one pair a lane (T. Rognes, "Faster Smith-Waterman database searches", BMC Bioinformatics 12, 2011).

use weldfs_fpga::kernel::{Fault, Stream};

use crate::records::Records;

const QUERY_BYTES: usize = 32;
const TARGET_BYTES: usize = 64;
const PAIR_BYTES: usize = QUERY_BYTES + TARGET_BYTES;
/// Pairs that are computed at the same time.
const LANES: usize = 16;

type Lanes = [i16; LANES];

/// Pairs whose scores are due, in the layout of the computation: for each base its value in every pair.
struct Batch {
    query: [Lanes; 4 * QUERY_BYTES],
    target: [Lanes; 4 * TARGET_BYTES],
    pairs: usize,
}

#[derive(Default)]
pub struct SmithWaterman {
    scores: [i16; 3],
    records: Records,
    batch: Option<Box<Batch>>,
    seen: u32,
}

impl Batch {
    fn new() -> Box<Batch> {
        Box::new(Batch { query: [[0; LANES]; 4 * QUERY_BYTES], target: [[0; LANES]; 4 * TARGET_BYTES], pairs: 0 })
    }

    fn add(&mut self, pair: &[u8]) {
        let lane = self.pairs;
        self.pairs += 1;
        let bases = self.query.iter_mut().chain(&mut self.target).map(|lanes| &mut lanes[lane]);
        let values = pair.iter().flat_map(|b| [b & 3, b >> 2 & 3, b >> 4 & 3, b >> 6]);
        bases.zip(values).for_each(|(base, value)| *base = i16::from(value));
    }

    /// The scores of all lanes. H\[i\]\[j-1\] lies in `column\[i\]` until H\[i\]\[j\] replaces it.
    fn best(&self, [equal, differ, gap]: [i16; 3]) -> Lanes {
        let mut column = [[0; LANES]; 4 * QUERY_BYTES];
        let mut best = [0; LANES];
        for target in &self.target {
            let (mut diagonal, mut above) = ([0; LANES], [0; LANES]);
            for (query, left) in self.query.iter().zip(&mut column) {
                let mut score = [0i16; LANES];
                for l in 0..LANES {
                    let pair = if query[l] == target[l] { equal } else { differ };
                    let gapped = above[l].max(left[l]) + gap;
                    score[l] = (diagonal[l] + pair).max(gapped).max(0);
                    best[l] = best[l].max(score[l]);
                }
                diagonal = std::mem::replace(left, score);
                above = score;
            }
        }
        best
    }
}

impl SmithWaterman {
    fn put_out(&mut self, batch: &mut Batch, out: &mut Vec<u8>) {
        let best = batch.best(self.scores);
        best[..batch.pairs].iter().for_each(|score| out.extend_from_slice(&(*score as u32).to_le_bytes()));
        self.seen = self.seen.wrapping_add(batch.pairs as u32);
        batch.pairs = 0;
    }
}

impl Stream for SmithWaterman {
    fn reset(&mut self, params: &[u32]) -> Result<(), Fault> {
        let fault = || Fault::Params("smith-waterman takes match 1..=127, mismatch -128..=0, gap -128..=-1".into());
        let params = <[u32; 3]>::try_from(params).map_err(|_| fault())?.map(|w| w as i32);
        let [equal, differ, gap] = params;
        if !(1..=127).contains(&equal) || !(-128..=0).contains(&differ) || !(-128..=-1).contains(&gap) {
            return Err(fault());
        }
        let (records, batch) = (Records::new(PAIR_BYTES), Some(Batch::new()));
        *self = SmithWaterman { scores: params.map(|n| n as i16), records, batch, seen: 0 };
        Ok(())
    }

    fn chunk(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<(), Fault> {
        let mut records = std::mem::take(&mut self.records);
        let mut batch = self.batch.take().unwrap_or_else(Batch::new);
        records.feed(input, |pairs| {
            for pair in pairs.chunks_exact(PAIR_BYTES) {
                batch.add(pair);
                if batch.pairs == LANES {
                    self.put_out(&mut batch, out);
                }
            }
        });
        (self.records, self.batch) = (records, Some(batch));
        Ok(())
    }

    fn finish(&mut self, out: &mut Vec<u8>) -> Result<(), Fault> {
        self.records.end();
        if let Some(mut batch) = self.batch.take_if(|batch| batch.pairs > 0) {
            self.put_out(&mut batch, out);
            self.batch = Some(batch);
        }
        Ok(())
    }

    fn peek(&mut self, port: u32) -> Option<u32> {
        (port == 0).then_some(self.seen)
    }
}
