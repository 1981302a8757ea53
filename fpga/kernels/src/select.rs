//! select: chosen columns of the records for which all predicates hold.
//!
//! Of this project: what `select columns ... where ...` of a table of fixed records comes to in the drive.
//!
//! * **Parameters.** Word 0: bytes r of a record, 1 to 4096. Word 1: number of predicates, 0 to 4. For each, four
//!   words: the field's offset in bits 0 to 15, its width (1, 2, 4 or 8 bytes) in bits 16 to 23, the comparison in bits
//!   24 to 30 (0 ==, 1 !=, 2 <, 3 <=, 4 >, 5 >=), signed numbers in bit 31; the value's low word; its high word; 0.
//!   Then the number of columns, 1 to 16, and a word for each: its offset in bits 0 to 15, its length, at least 1, in
//!   bits 16 to 31. Fields and columns lie within the record; columns may overlap, and come in any order. Anything else
//!   is `Fault::Params`.
//! * **Input.** Records of r bytes. Fields are little-endian, at any offset, and are compared as numbers of 64 bits, as
//!   the value is: `signed` extends their sign.
//! * **Output.** The columns of the records for which all predicates hold, back to back, in the order of the records.
//! * **Tails.** A last part of a record is dropped.
//! * **Errors.** None in the data.
//! * **Peek.** 0: whole records that have come; 1: those put out (both modulo 2^32).
//! * **Cycles.** 1 per flit: fields and columns are shifted out of the passing flits. No RTL comes with it.

use weldfs_fpga::kernel::{Fault, Stream};

const RECORD_MAX: usize = 4096;
const PREDICATES_MAX: usize = 4;
const COLUMNS_MAX: usize = 16;
/// Records that go through one predicate before the next.
const BATCH: usize = 256;

#[derive(Default)]
pub struct Select {
    record: usize,
    predicates: Vec<Predicate>,
    /// Offset and length; those that follow on each other made one.
    columns: Vec<(usize, usize)>,
    /// The record that the last cut went through.
    part: Vec<u8>,
    seen: u32,
    kept: u32,
    /// The packet has ended: the next byte is of another one.
    ended: bool,
}

/// Every comparison as one: whether a number lies in a range, or not.
#[derive(Clone, Copy)]
struct Predicate {
    offset: usize,
    width: u32,
    signed: bool,
    /// First number of the range, and how many follow; signed numbers are moved up by 2^63, which keeps their order.
    first: u64,
    span: u64,
    within: bool,
}

const SIGN: u64 = 1 << 63;

impl Predicate {
    fn new([field, low, high, reserved]: [u32; 4], record: usize) -> Result<Predicate, Fault> {
        let (offset, width, op) = (field as usize & 0xffff, field >> 16 & 0xff, field >> 24 & 0x7f);
        let signed = field >> 31 == 1;
        if ![1, 2, 4, 8].contains(&width) || offset + width as usize > record || op > 5 || reserved != 0 {
            return Err(Fault::Params(format!("a predicate that cannot be: {field:#010x}, last word {reserved}")));
        }
        let value = (u64::from(low) | u64::from(high) << 32) ^ if signed { SIGN } else { 0 };
        // (first, last, within), where each comparison and its opposite share a range.
        let (first, last, within) = match op {
            0 => (value, value, true),
            1 => (value, value, false),
            2 => (value, u64::MAX, false),
            3 => (0, value, true),
            4 => (0, value, false),
            _ => (value, u64::MAX, true),
        };
        Ok(Predicate { offset, width, signed, first, span: last - first, within })
    }

    /// Clears the entries of records for which it does not hold.
    fn apply(&self, records: &[u8], record: usize, stays: &mut [bool]) {
        match (self.width, self.signed) {
            (1, false) => self.each(records, record, stays, |b: [u8; 1]| u64::from(b[0])),
            (2, false) => self.each(records, record, stays, |b| u64::from(u16::from_le_bytes(b))),
            (4, false) => self.each(records, record, stays, |b| u64::from(u32::from_le_bytes(b))),
            (1, true) => self.each(records, record, stays, |b| i64::from(i8::from_le_bytes(b)) as u64 ^ SIGN),
            (2, true) => self.each(records, record, stays, |b| i64::from(i16::from_le_bytes(b)) as u64 ^ SIGN),
            (4, true) => self.each(records, record, stays, |b| i64::from(i32::from_le_bytes(b)) as u64 ^ SIGN),
            (_, false) => self.each(records, record, stays, u64::from_le_bytes),
            (_, true) => self.each(records, record, stays, |b| u64::from_le_bytes(b) ^ SIGN),
        }
    }

    #[inline(always)]
    fn each<const W: usize>(&self, records: &[u8], record: usize, stays: &mut [bool], number: impl Fn([u8; W]) -> u64) {
        for (record, stays) in records.chunks_exact(record).zip(stays) {
            if let Some(field) = record[self.offset..].first_chunk::<W>() {
                *stays &= (number(*field).wrapping_sub(self.first) <= self.span) == self.within;
            }
        }
    }
}

impl Select {
    fn begin(&mut self) {
        if std::mem::take(&mut self.ended) {
            (self.seen, self.kept) = (0, 0);
        }
    }

    /// Whole records.
    fn take(&mut self, records: &[u8], out: &mut Vec<u8>) {
        for batch in records.chunks(BATCH * self.record) {
            let mut stays = [true; BATCH];
            for predicate in &self.predicates {
                predicate.apply(batch, self.record, &mut stays);
            }
            for (record, _) in batch.chunks_exact(self.record).zip(stays).filter(|(_, stays)| *stays) {
                for (offset, len) in &self.columns {
                    out.extend_from_slice(&record[*offset..offset + len]);
                }
                self.kept = self.kept.wrapping_add(1);
            }
        }
        self.seen = self.seen.wrapping_add((records.len() / self.record) as u32);
    }

    fn columns(words: &[u32], record: usize) -> Result<Vec<(usize, usize)>, Fault> {
        let mut columns: Vec<(usize, usize)> = Vec::new();
        for word in words {
            let (offset, len) = ((word & 0xffff) as usize, (word >> 16) as usize);
            if len == 0 || offset + len > record {
                return Err(Fault::Params(format!("a column of {len} bytes at {offset} in records of {record}")));
            }
            match columns.last_mut() {
                Some((last, n)) if *last + *n == offset => *n += len,
                _ => columns.push((offset, len)),
            }
        }
        Ok(columns)
    }
}

impl Stream for Select {
    fn reset(&mut self, params: &[u32]) -> Result<(), Fault> {
        *self = Select::default();
        let wrong = |what: &str| Err(Fault::Params(what.into()));
        let [record, predicates, rest @ ..] = params else { return wrong("no record length and predicates") };
        let (record, predicates) = (*record as usize, *predicates as usize);
        if !(1..=RECORD_MAX).contains(&record) || predicates > PREDICATES_MAX {
            return wrong("records have 1 to 4096 bytes, and at most 4 predicates");
        }
        let Some((words, [columns, rest @ ..])) = rest.split_at_checked(4 * predicates) else {
            return wrong("a predicate has four words, and the number of columns follows");
        };
        if !(1..=COLUMNS_MAX).contains(&(*columns as usize)) || rest.len() != *columns as usize {
            return wrong("1 to 16 columns, a word each");
        }
        let predicates = words.as_chunks().0.iter().map(|p| Predicate::new(*p, record)).collect::<Result<_, _>>()?;
        (self.record, self.predicates, self.columns) = (record, predicates, Select::columns(rest, record)?);
        Ok(())
    }

    fn chunk(&mut self, mut input: &[u8], out: &mut Vec<u8>) -> Result<(), Fault> {
        if self.record == 0 {
            return Err(Fault::Params("no record length".into()));
        }
        self.begin();
        if !self.part.is_empty() {
            let n = input.len().min(self.record - self.part.len());
            self.part.extend_from_slice(&input[..n]);
            input = &input[n..];
            if self.part.len() < self.record {
                return Ok(());
            }
            let mut part = std::mem::take(&mut self.part);
            self.take(&part, out);
            part.clear();
            self.part = part;
        }
        let (whole, rest) = input.split_at(input.len() - input.len() % self.record);
        self.take(whole, out);
        self.part.extend_from_slice(rest);
        Ok(())
    }

    fn finish(&mut self, _: &mut Vec<u8>) -> Result<(), Fault> {
        self.begin();
        self.part.clear();
        self.ended = true;
        Ok(())
    }

    fn peek(&mut self, port: u32) -> Option<u32> {
        [self.seen, self.kept].get(port as usize).copied()
    }
}
