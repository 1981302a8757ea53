//! knn: the squared distance of every record to a query, for a host that keeps the K smallest.
//!
//! Parameters: word 0 is the number of dimensions d, 1 to 4,096; then ceil(d / 4) words with the d digits of the query,
//! one byte each, the first in the lowest byte. Bytes of the last word beyond d are 0. Anything else is
//! [`Fault::Params`]: another number of words, d out of its range, a surplus byte that is not 0.
//!
//! Input: records of 64 + d bytes: a label, then d digits of 8 bits without a sign. Output: 68 bytes for each record, in
//! order: the distance, which is the sum of (digit - query digit)^2, as u32 little-endian, at most 4,096 * 255^2; then
//! the label. Tail: a trailing part of a record is dropped. An empty packet gives nothing. The stream has no errors.
//!
//! Peek: port 0 is the number of whole records since `reset`, modulo 2^32.
//!
//! Cycles: 1 for a flit. 64 lanes subtract, square and add up the digits of one flit; there is no loop from one record
//! to the next. Where 64 + d is no multiple of 64, the last flit of a record is not full and a record takes
//! ceil((64 + d) / 64) cycles, which the constant does not count.
//!
//! Source: INSIDER (USENIX ATC 2019), table 2, and EISC (ICCAD 2019), table II, where d is 4,096 and K is 32. The sorting
//! is the host's there as here. Other than in the kernel published with the first, the number of records need not be a
//! multiple of anything, and no record at the end is lost.

use weldfs_fpga::kernel::{Fault, Stream};

use crate::records::Records;

const LABEL_BYTES: usize = 64;
const DIMENSIONS_MAX: usize = 4096;

#[derive(Default)]
pub struct Knn {
    /// Digits, in the width that they are subtracted in.
    query: Vec<i16>,
    records: Records,
    seen: u32,
}

/// At most 4,096 * 255^2, which fits 31 bits.
fn distance(digits: &[u8], query: &[i16]) -> u32 {
    let square = |(digit, query): (&u8, &i16)| {
        let difference = i16::from(*digit) - query;
        i32::from(difference) * i32::from(difference)
    };
    digits.iter().zip(query).map(square).sum::<i32>() as u32
}

impl Stream for Knn {
    fn reset(&mut self, params: &[u32]) -> Result<(), Fault> {
        let fault = |what: &str| Err(Fault::Params(format!("knn takes {what}")));
        let Some((&d, words)) = params.split_first() else { return fault("the number of dimensions, then the query") };
        let d = d as usize;
        if !(1..=DIMENSIONS_MAX).contains(&d) {
            return fault("1 to 4096 dimensions");
        }
        if words.len() != d.div_ceil(4) {
            return fault("a query of ceil(dimensions / 4) words");
        }
        let mut query: Vec<i16> = words.iter().flat_map(|w| w.to_le_bytes()).map(i16::from).collect();
        if query[d..].iter().any(|b| *b != 0) {
            return fault("zeros after the query");
        }
        query.truncate(d);
        *self = Knn { query, records: Records::new(LABEL_BYTES + d), seen: 0 };
        Ok(())
    }

    fn chunk(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<(), Fault> {
        let (query, seen) = (&self.query, &mut self.seen);
        self.records.feed(input, |records| {
            for record in records.chunks_exact(LABEL_BYTES + query.len()) {
                let (label, digits) = record.split_at(LABEL_BYTES);
                out.extend_from_slice(&distance(digits, query).to_le_bytes());
                out.extend_from_slice(label);
                *seen = seen.wrapping_add(1);
            }
        });
        Ok(())
    }

    fn finish(&mut self, _: &mut Vec<u8>) -> Result<(), Fault> {
        self.records.end();
        Ok(())
    }

    fn peek(&mut self, port: u32) -> Option<u32> {
        (port == 0).then_some(self.seen)
    }
}
