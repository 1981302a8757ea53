//! integrate: the records that resemble a query.
//!
//! From INSIDER and EISC ("integration": records of several sources that may mean the same thing are found by
//! similarity, in two stages, of which the first is cheap).
//!
//! * **Parameters.** Word 0: q, 0 to 32. Word 1: length p of the prefix, 1 to 32. Words 2 to 9: the query's 32 bytes,
//!   packed little-endian. Anything else is `Fault::Params`.
//! * **Input.** Records of 64 bytes, of which the first 32 are compared.
//! * **Output.** The whole records that pass both stages, in their order. Stage 1: some byte of the query's first p
//!   bytes occurs among the record's first p bytes. Stage 2: of the 32 x 32 pairs of a byte of the query and one of the
//!   record, more than 32 - q are equal.
//! * **Tails.** A last part of a record is dropped.
//! * **Errors.** None in the data.
//! * **Peek.** 0: whole records that have come; 1: those that passed stage 1; 2: those put out (all modulo 2^32).
//! * **Cycles.** 1 per flit, which is a record: 1,024 comparators and a tree that counts.
//! * **Difference.** The papers learn the threshold on the host; here it is a parameter like the query.

use crate::blocks::Blocks;
use crate::lanes;
use weldfs_fpga::kernel::{Fault, Stream};

const RECORD: usize = 64;
const QUERY: usize = 32;
/// Records filtered before those that stay are handed on.
const BATCH: usize = 64;

#[derive(Default)]
pub struct Integrate {
    rule: Rule,
    records: Blocks<RECORD>,
    counts: [u32; 3],
    /// The packet has ended: the next byte is of another one.
    ended: bool,
}

#[derive(Clone, Copy, Default)]
struct Rule {
    query: [u8; QUERY],
    prefix: usize,
    /// Equal pairs that a record must have.
    least: u32,
}

impl Rule {
    /// Counts, for each byte of the record, how many of these bytes of the query it equals.
    #[inline(always)]
    fn count(query: &[u8], record: &[u8; QUERY], equal: &mut [u8; QUERY]) {
        for wanted in query {
            for (n, byte) in equal.iter_mut().zip(record) {
                *n += u8::from(byte == wanted);
            }
        }
    }

    /// Appends the records that stay to `out`; how many passed the first stage, and both.
    #[inline(always)]
    fn filter(&self, records: &[[u8; RECORD]], out: &mut Vec<u8>) -> (u32, u32) {
        let (prefix, rest) = self.query.split_at(self.prefix);
        let mut kept = [0; BATCH * RECORD];
        let (mut first, mut both) = (0, 0);
        for batch in records.chunks(BATCH) {
            let mut n = 0;
            for record in batch {
                let mut equal = [0; QUERY];
                let Some(compared) = record.first_chunk::<QUERY>() else { continue };
                Rule::count(prefix, compared, &mut equal);
                if equal[..self.prefix].iter().fold(0, |any, n| any | n) == 0 {
                    continue;
                }
                first += 1;
                Rule::count(rest, compared, &mut equal);
                let pairs: u32 = equal.iter().map(|n| u32::from(*n)).sum();
                kept[n..n + RECORD].copy_from_slice(record);
                n += usize::from(pairs >= self.least) * RECORD;
            }
            out.extend_from_slice(&kept[..n]);
            both += (n / RECORD) as u32;
        }
        (first, both)
    }
}

impl Integrate {
    fn begin(&mut self) {
        if std::mem::take(&mut self.ended) {
            self.counts = [0; 3];
        }
    }
}

impl Stream for Integrate {
    fn reset(&mut self, params: &[u32]) -> Result<(), Fault> {
        *self = Integrate::default();
        let [q @ 0..=32, prefix @ 1..=32, words @ ..] = params else {
            return Err(Fault::Params("the first two are 0 to 32, and 1 to 32".into()));
        };
        if words.len() != QUERY / 4 {
            return Err(Fault::Params("a query has eight words".into()));
        }
        (self.rule.prefix, self.rule.least) = (*prefix as usize, 33 - q);
        for (bytes, word) in self.rule.query.as_chunks_mut::<4>().0.iter_mut().zip(words) {
            *bytes = word.to_le_bytes();
        }
        Ok(())
    }

    fn chunk(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<(), Fault> {
        self.begin();
        let (rule, counts) = (self.rule, &mut self.counts);
        self.records.each(input, |records| {
            let (first, both) = lanes::wide(
                #[inline(always)]
                || rule.filter(records, out),
            );
            for (count, more) in counts.iter_mut().zip([records.len() as u32, first, both]) {
                *count = count.wrapping_add(more);
            }
        });
        Ok(())
    }

    fn finish(&mut self, _: &mut Vec<u8>) -> Result<(), Fault> {
        self.begin();
        self.records.clear();
        self.ended = true;
        Ok(())
    }

    fn peek(&mut self, port: u32) -> Option<u32> {
        self.counts.get(port as usize).copied()
    }
}
