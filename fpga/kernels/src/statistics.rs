//! statistics: greatest, least and sum of every row of numbers.
//!
//! From INSIDER (ATC'19, section 5): the host divides the sum for the mean.
//!
//! * **Parameters.** Word 0: numbers in a row, at least 1. Anything else is `Fault::Params`.
//! * **Input.** u32, little-endian, row after row.
//! * **Output.** For each row 16 bytes, little-endian: greatest u32, least u32, sum u64.
//! * **Tails.** A last row that is short gives the figures of the numbers that it has. 1 to 3 last bytes that make no
//!   number are dropped. A packet without a number gives nothing.
//! * **Errors.** None in the data.
//! * **Peek.** 0: rows put out (modulo 2^32); 1: bytes at the end of the last packet that made no number, 0 to 3.
//! * **Cycles.** 1 per flit: 16 numbers through a tree of comparators and adders. Rows of fewer than 4 numbers are
//!   bound by the output.
//! * **Difference.** INSIDER's public kernel loses what does not fill a flit, and the end of the packet with it.

use crate::lanes;
use weldfs_fpga::kernel::{Fault, Stream};

pub struct Statistics {
    per_row: usize,
    /// What the present row has come to.
    numbers: usize,
    max: u32,
    min: u32,
    sum: u64,
    /// The beginning of a number.
    part: [u8; 4],
    filled: usize,
    rows: u32,
    dropped: u32,
    /// The packet has ended: the next byte is of another one.
    ended: bool,
}

impl Default for Statistics {
    fn default() -> Statistics {
        Statistics {
            per_row: 1,
            numbers: 0,
            max: 0,
            min: u32::MAX,
            sum: 0,
            part: [0; 4],
            filled: 0,
            rows: 0,
            dropped: 0,
            ended: false,
        }
    }
}

/// Numbers summed before their sum is widened: the sum of 16 bits of each of so many fits in 32.
const BLOCK: usize = 1 << 14;

impl Statistics {
    fn begin(&mut self) {
        if std::mem::take(&mut self.ended) {
            (self.rows, self.dropped) = (0, 0);
        }
    }

    fn put_row(&mut self, out: &mut Vec<u8>) {
        let mut row = [0; 16];
        row[..4].copy_from_slice(&self.max.to_le_bytes());
        row[4..8].copy_from_slice(&self.min.to_le_bytes());
        row[8..].copy_from_slice(&self.sum.to_le_bytes());
        out.extend_from_slice(&row);
        (self.numbers, self.max, self.min, self.sum) = (0, 0, u32::MAX, 0);
        self.rows = self.rows.wrapping_add(1);
    }

    /// Whole numbers, of as many rows as they come from.
    #[inline(always)]
    fn take(&mut self, mut numbers: &[[u8; 4]], out: &mut Vec<u8>) {
        while !numbers.is_empty() {
            let n = numbers.len().min(self.per_row - self.numbers);
            let (of_row, rest) = numbers.split_at(n);
            for block in of_row.chunks(BLOCK) {
                let (mut max, mut min, mut low, mut high) = (self.max, self.min, 0u32, 0u32);
                for number in block {
                    let number = u32::from_le_bytes(*number);
                    (max, min) = (max.max(number), min.min(number));
                    (low, high) = (low + (number & 0xffff), high + (number >> 16));
                }
                (self.max, self.min) = (max, min);
                self.sum = self.sum.wrapping_add(u64::from(low)).wrapping_add(u64::from(high) << 16);
            }
            self.numbers += n;
            if self.numbers == self.per_row {
                self.put_row(out);
            }
            numbers = rest;
        }
    }
}

impl Stream for Statistics {
    fn reset(&mut self, params: &[u32]) -> Result<(), Fault> {
        *self = Statistics::default();
        match params {
            [per_row] if *per_row > 0 => self.per_row = *per_row as usize,
            _ => return Err(Fault::Params("statistics takes one, the numbers in a row, at least 1".into())),
        }
        Ok(())
    }

    fn chunk(&mut self, mut input: &[u8], out: &mut Vec<u8>) -> Result<(), Fault> {
        self.begin();
        if self.filled > 0 {
            let n = input.len().min(4 - self.filled);
            self.part[self.filled..self.filled + n].copy_from_slice(&input[..n]);
            (self.filled, input) = (self.filled + n, &input[n..]);
            if self.filled < 4 {
                return Ok(());
            }
            self.filled = 0;
            self.take(&[self.part], out);
        }
        let (numbers, part) = input.as_chunks::<4>();
        lanes::wide(
            #[inline(always)]
            || self.take(numbers, out),
        );
        self.part[..part.len()].copy_from_slice(part);
        self.filled = part.len();
        Ok(())
    }

    fn finish(&mut self, out: &mut Vec<u8>) -> Result<(), Fault> {
        self.begin();
        if self.numbers > 0 {
            self.put_row(out);
        }
        (self.dropped, self.filled, self.ended) = (self.filled as u32, 0, true);
        Ok(())
    }

    fn peek(&mut self, port: u32) -> Option<u32> {
        [self.rows, self.dropped].get(port as usize).copied()
    }
}
