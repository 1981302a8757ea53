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

struct Rule {
    /// What a byte of the record adds: equal bytes of the query, and `NEAR` if the query's prefix has it.
    adds: [u32; 256],
    prefix: usize,
    /// Equal pairs that a record must have.
    least: u32,
}

/// Above every count of pairs.
const NEAR: u32 = 1 << 16;

impl Rule {
    fn new(query: &[u8], prefix: usize, least: u32) -> Rule {
        let mut adds = [0; 256];
        for (i, byte) in query.iter().enumerate() {
            let near = if i < prefix { NEAR } else { 0 };
            let entry = &mut adds[usize::from(*byte)];
            *entry = (*entry | near) + 1;
        }
        Rule { adds, prefix, least }
    }

    /// What a record's bytes come to: whether it passes the first stage, and both.
    #[inline(always)]
    fn passes(&self, record: &[u8; QUERY]) -> (bool, bool) {
        let (prefix, rest) = record.split_at(self.prefix);
        let sum = |bytes: &[u8]| bytes.iter().map(|b| self.adds[usize::from(*b)]).sum::<u32>();
        let (of_prefix, of_rest) = (sum(prefix), sum(rest));
        let (near, pairs) = (of_prefix >= NEAR, (of_prefix % NEAR) + (of_rest % NEAR));
        (near, near & (pairs >= self.least))
    }

    /// Appends the records that stay to `out`; how many passed the first stage, and both.
    fn filter(&self, records: &[[u8; RECORD]], out: &mut Vec<u8>) -> (u32, u32) {
        let mut kept = [0; BATCH * RECORD];
        let (mut first, mut both) = (0, 0);
        for batch in records.chunks(BATCH) {
            let mut n = 0;
            for record in batch {
                let Some(compared) = record.first_chunk::<QUERY>() else { continue };
                let (near, stays) = self.passes(compared);
                // Every record is written, and the next one over it unless it stays: no branch to mispredict.
                kept[n..n + RECORD].copy_from_slice(record);
                first += u32::from(near);
                n += usize::from(stays) * RECORD;
            }
            out.extend_from_slice(&kept[..n]);
            both += (n / RECORD) as u32;
        }
        (first, both)
    }
}

impl Default for Rule {
    fn default() -> Rule {
        Rule { adds: [0; 256], prefix: 1, least: u32::MAX }
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
        let query: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        self.rule = Rule::new(&query, *prefix as usize, 33 - q);
        Ok(())
    }

    fn chunk(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<(), Fault> {
        self.begin();
        let (rule, counts) = (&self.rule, &mut self.counts);
        self.records.each(input, |records| {
            let (first, both) = rule.filter(records, out);
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
