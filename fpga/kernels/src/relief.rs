//! relief: feature selection: learns from the first rows of a packet which features tell two classes apart, and passes
//! only those of the rows that follow.
//!
//! Parameters: word 0 is the threshold, a signed number; word 1 the number of rows h of the query's class (hits), word 2
//! the number of rows m of the other class (misses), both at least 1; word 3 is the number of features f, 1 to 256; then
//! f words with the query, signed numbers. Anything else is [`Fault::Params`].
//!
//! Input: rows of f signed numbers of 32 bits, little-endian: h hits, then m misses, then the rows to filter.
//!
//! * Training. The distance of a row to the query is the exact sum of the squared differences, up to 72 bits. The nearest
//!   hit and the nearest miss are kept; of equal ones the first. Nothing is put out.
//! * Weights, after the last miss: W\[i\] = diff(miss\[i\], query\[i\]) - diff(hit\[i\], query\[i\]), where diff is 1 if
//!   the two numbers differ and 0 if they are equal. So a weight is -1, 0 or 1.
//! * Filtering: of each further row the features with W\[i\] >= threshold, in order, 4 bytes each, packed without gaps.
//!   A threshold above 1 passes nothing, one below 0 everything.
//!
//! Tail: a trailing part of a row is dropped, also in training. A packet that ends in training gives nothing, an empty
//! one too. Each packet trains anew. The stream has no errors.
//!
//! Peek: port 0 is the number of whole rows of this packet, modulo 2^32; port 1 the number of features that pass, 0
//! before the end of training. Both stay until the next packet's first row is complete.
//!
//! Cycles: 1 for a flit. 16 lanes of 32 bits square and add up the differences of one flit; the nearest row is kept by
//! swapping two row buffers. Filtering moves one flit a cycle through a compacting network. Output begins only after
//! h + m rows, which is a wait at the start of a packet and no lower rate. Rows that do not fill their last flit cost a
//! cycle for it, which the constant does not count.
//!
//! Source: INSIDER (USENIX ATC 2019), tables 2 and 6, with f = 256. The weights are those of the Relief paper (K. Kira,
//! L. Rendell, "A practical approach to feature selection", ICML 1992) for nominal features and one sample: the nearest
//! miss adds diff, the nearest hit subtracts it, and **diff compares for inequality**, as in the paper. The kernel that was
//! published with INSIDER compares for equality, which turns the sign around. Distances are Euclidean, as there.

use weldfs_fpga::kernel::{Fault, Stream};

use crate::records::Records;

const FEATURES_MAX: usize = 256;

/// The nearest row of a class so far.
#[derive(Default)]
struct Nearest {
    distance: Option<u128>,
    row: Vec<u8>,
}

impl Nearest {
    fn offer(&mut self, row: &[u8], query: &[i32]) {
        let distance = distance(row, query);
        if self.distance.is_none_or(|d| distance < d) {
            self.distance = Some(distance);
            self.row.clear();
            self.row.extend_from_slice(row);
        }
    }
}

#[derive(Default)]
pub struct Relief {
    threshold: i32,
    hits: u64,
    misses: u64,
    query: Vec<i32>,
    records: Records,
    /// What a packet has come to.
    rows: u64,
    hit: Nearest,
    miss: Nearest,
    /// Bytes of a row that pass, as ranges that do not touch.
    passing: Vec<(usize, usize)>,
    ended: bool,
}

fn numbers(row: &[u8]) -> impl Iterator<Item = i32> {
    row.as_chunks::<4>().0.iter().map(|b| i32::from_le_bytes(*b))
}

/// Sums of the halves of the squares, so that no sum leaves 64 bits.
fn distance(row: &[u8], query: &[i32]) -> u128 {
    let (mut low, mut high) = (0u64, 0u64);
    for (number, query) in numbers(row).zip(query) {
        let difference = u64::from(number.abs_diff(*query));
        let square = difference * difference;
        low += square & u64::from(u32::MAX);
        high += square >> 32;
    }
    (u128::from(high) << 32) + u128::from(low)
}

impl Relief {
    fn row(&mut self, row: &[u8], out: &mut Vec<u8>) {
        if std::mem::take(&mut self.ended) {
            (self.rows, self.hit.distance, self.miss.distance) = (0, None, None);
            self.passing.clear();
        }
        self.rows += 1;
        if self.rows <= self.hits {
            self.hit.offer(row, &self.query);
        } else if self.rows <= self.hits + self.misses {
            self.miss.offer(row, &self.query);
            if self.rows == self.hits + self.misses {
                self.weigh();
            }
        } else {
            self.passing.iter().for_each(|&(from, to)| out.extend_from_slice(&row[from..to]));
        }
    }

    fn weigh(&mut self) {
        let pairs = numbers(&self.hit.row).zip(numbers(&self.miss.row)).zip(&self.query);
        for (i, ((hit, miss), query)) in pairs.enumerate() {
            let weight = i32::from(miss != *query) - i32::from(hit != *query);
            if weight < self.threshold {
                continue;
            }
            let (from, to) = (4 * i, 4 * i + 4);
            match self.passing.last_mut() {
                Some(last) if last.1 == from => last.1 = to,
                _ => self.passing.push((from, to)),
            }
        }
    }
}

impl Stream for Relief {
    fn reset(&mut self, params: &[u32]) -> Result<(), Fault> {
        let fault = |what: &str| Err(Fault::Params(format!("relief takes {what}")));
        let &[threshold, hits, misses, features, ref query @ ..] = params else {
            return fault("threshold, hits, misses, features, query");
        };
        if hits == 0 || misses == 0 {
            return fault("at least one hit and one miss");
        }
        let f = features as usize;
        if !(1..=FEATURES_MAX).contains(&f) || query.len() != f {
            return fault("1 to 256 features and a query of as many words");
        }
        *self = Relief {
            threshold: threshold as i32,
            hits: u64::from(hits),
            misses: u64::from(misses),
            query: query.iter().map(|w| *w as i32).collect(),
            records: Records::new(4 * f),
            ..Relief::default()
        };
        Ok(())
    }

    fn chunk(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<(), Fault> {
        let mut records = std::mem::take(&mut self.records);
        let size = (4 * self.query.len()).max(4);
        records.feed(input, |rows| rows.chunks_exact(size).for_each(|row| self.row(row, out)));
        self.records = records;
        Ok(())
    }

    fn finish(&mut self, _: &mut Vec<u8>) -> Result<(), Fault> {
        self.records.end();
        self.ended = true;
        Ok(())
    }

    fn peek(&mut self, port: u32) -> Option<u32> {
        match port {
            0 => Some(self.rows as u32),
            1 => Some((self.passing.iter().map(|(from, to)| to - from).sum::<usize>() / 4) as u32),
            _ => None,
        }
    }
}
