//! sql: the records of some years, of a table of scores.
//!
//! From INSIDER (ATC'19, section 5): `select ... where year between lo and hi`; the host groups, sums and sorts.
//!
//! * **Parameters.** Word 0: first year, word 1: last year, numbers 0 to 9999, the first not above the last; anything
//!   else is `Fault::Params`.
//! * **Input.** Blocks of 32 bytes: round (12), player (12), score, month, day, year (2 ASCII digits each, the year in
//!   bytes 30 and 31): years are 0 to 99.
//! * **Output.** The whole records of years in the range, in their order. One whose year is not two ASCII digits is
//!   dropped.
//! * **Tails.** A last part of a record is dropped.
//! * **Errors.** None in the data.
//! * **Peek.** 0: whole records that have come; 1: those that were kept (both modulo 2^32).
//! * **Cycles.** 1 per flit: two records side by side.
//! * **Difference.** INSIDER measures 6.4 GB/s for its own kernel, which is 2.5 cycles per flit; the one in `fpga/rtl`
//!   takes a flit a cycle.

use crate::blocks::Blocks;
use weldfs_fpga::kernel::{Fault, Stream};

const RECORD: usize = 32;
/// Blocks filtered before those that stay are handed on.
const BATCH: usize = 128;

#[derive(Default)]
pub struct Sql {
    lo: u32,
    hi: u32,
    records: Blocks<RECORD>,
    seen: u32,
    kept: u32,
    /// The packet has ended: the next byte is of another one.
    ended: bool,
}

impl Sql {
    fn begin(&mut self) {
        if std::mem::take(&mut self.ended) {
            (self.seen, self.kept) = (0, 0);
        }
    }
}

/// Appends the records of the years to `out`, and says how many that were.
fn filter(lo: u32, hi: u32, records: &[[u8; RECORD]], out: &mut Vec<u8>) -> u32 {
    let mut kept = [0; BATCH * RECORD];
    let mut all = 0;
    for batch in records.chunks(BATCH) {
        let mut n = 0;
        for record in batch {
            // Every record is written, and the next one over it unless it stays: no branch to mispredict.
            kept[n..n + RECORD].copy_from_slice(record);
            let (tens, ones) = (u32::from(record[30].wrapping_sub(b'0')), u32::from(record[31].wrapping_sub(b'0')));
            let year = tens * 10 + ones;
            let stays = (tens < 10) & (ones < 10) & (lo <= year) & (year <= hi);
            n += usize::from(stays) * RECORD;
        }
        out.extend_from_slice(&kept[..n]);
        all += n / RECORD;
    }
    all as u32
}

impl Stream for Sql {
    fn reset(&mut self, params: &[u32]) -> Result<(), Fault> {
        *self = Sql::default();
        match params {
            [lo, hi] if lo <= hi && *hi <= 9999 => (self.lo, self.hi) = (*lo, *hi),
            _ => return Err(Fault::Params("sql takes two, a first and a last year, at most 9999".into())),
        }
        Ok(())
    }

    fn chunk(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<(), Fault> {
        self.begin();
        let (lo, hi, seen, kept) = (self.lo, self.hi, &mut self.seen, &mut self.kept);
        self.records.each(input, |records| {
            *seen = seen.wrapping_add(records.len() as u32);
            *kept = kept.wrapping_add(filter(lo, hi, records, out));
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
        [self.seen, self.kept].get(port as usize).copied()
    }
}
