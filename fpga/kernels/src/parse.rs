//! parse: delimited text made binary columns.
//!
//! Of this project: what reading a table of text comes to in the drive. The fast path of decimal fractions is Clinger's
//! (How to read floating point numbers accurately, PLDI 1990).
//!
//! * **Parameters.** Word 0: the delimiter, a byte that is neither a newline nor one that numbers are made of (digits,
//!   `+ - . e E`). Word 1: number of columns, 1 to 64. Then a word for the type of each: 0 skip, 1 u32, 2 i64, 3 f64, 4
//!   bytes16. Anything else is `Fault::Params`.
//! * **Input.** Rows, each ended by `\n`; the last may lack it. One `\r` at the end of a row is dropped. Between
//!   columns is the delimiter; quotes have no meaning. Columns that a row has beyond the last one named are not looked
//!   at.
//! * **Output.** For each row the columns in order, without padding, little-endian: nothing for skip, 4, 8, 8 and 16
//!   bytes for the others. bytes16 is the text, cut at 16 bytes or filled with zeros.
//! * **Numbers.** u32: decimal digits, up to 2^32 - 1. i64: the same with an optional sign. f64: an optional sign,
//!   digits with at most one point among or around them, an optional exponent (`e` or `E`, an optional sign, digits);
//!   the nearest number, ties to even, infinity when it is too large. No blanks, no names such as `nan`, no
//!   hexadecimal.
//! * **Tails.** Bytes without `\n` at the end are a row. An empty packet has none; an empty row has one empty column.
//! * **Errors.** None: a row that lacks a column, has a bad number, or is longer than 64 KiB is dropped and counted.
//! * **Peek.** 0: rows of the packet; 1: those of them that were dropped (both modulo 2^32).
//! * **Cycles.** 4 per flit: 16 bytes in a cycle. No RTL comes with it.

use memchr::memchr;
use weldfs_fpga::kernel::{Fault, Stream};

const COLUMNS_MAX: usize = 64;
/// The longest row that is kept, without its newline.
const ROW_MAX: usize = 64 << 10;

#[derive(Clone, Copy)]
enum Type {
    Skip,
    U32,
    I64,
    F64,
    Bytes16,
}

impl Type {
    fn of(word: u32) -> Result<Type, Fault> {
        let types = [Type::Skip, Type::U32, Type::I64, Type::F64, Type::Bytes16];
        types.get(word as usize).copied().ok_or_else(|| Fault::Params(format!("there is no type {word}")))
    }
}

#[derive(Default)]
pub struct Parse {
    table: Table,
    /// What has come of a row without its end; `long`: it was too long, and is not kept.
    row: Vec<u8>,
    long: bool,
    rows: u32,
    dropped: u32,
    /// The packet has ended: the next byte is of another one.
    ended: bool,
}

struct Table {
    delimiter: u8,
    columns: Vec<Type>,
    /// The columns of the present row.
    made: [u8; COLUMNS_MAX * 16],
}

impl Default for Table {
    fn default() -> Table {
        Table { delimiter: 0, columns: Vec::new(), made: [0; COLUMNS_MAX * 16] }
    }
}

impl Table {
    /// Appends the columns of a row, or says that it is to be dropped.
    fn row(&mut self, row: &[u8], out: &mut Vec<u8>) -> Option<()> {
        let row = row.strip_suffix(b"\r").unwrap_or(row);
        let (mut at, mut n) = (0, 0);
        for (i, column) in self.columns.iter().enumerate() {
            if i > 0 {
                // Past the delimiter, which a column that is there has before it.
                at = if *row.get(at)? == self.delimiter { at + 1 } else { return None };
            }
            let rest = &row[at..];
            let text = || &rest[..memchr(self.delimiter, rest).unwrap_or(rest.len())];
            let used = match column {
                Type::Skip => text().len(),
                Type::U32 => {
                    let (number, used) = number::unsigned(rest)?;
                    self.made[n..n + 4].copy_from_slice(&u32::try_from(number).ok()?.to_le_bytes());
                    n += 4;
                    used
                }
                Type::I64 => {
                    let (number, used) = number::signed(rest)?;
                    self.made[n..n + 8].copy_from_slice(&number.to_le_bytes());
                    n += 8;
                    used
                }
                Type::F64 => {
                    let (number, used) = number::fraction(rest)?;
                    self.made[n..n + 8].copy_from_slice(&number.to_le_bytes());
                    n += 8;
                    used
                }
                Type::Bytes16 => {
                    let text = text();
                    let kept = text.len().min(16);
                    self.made[n..n + 16].fill(0);
                    self.made[n..n + kept].copy_from_slice(&text[..kept]);
                    n += 16;
                    text.len()
                }
            };
            at += used;
        }
        if row.get(at).is_some_and(|b| *b != self.delimiter) {
            return None;
        }
        out.extend_from_slice(&self.made[..n]);
        Some(())
    }
}

impl Parse {
    fn begin(&mut self) {
        if std::mem::take(&mut self.ended) {
            (self.rows, self.dropped) = (0, 0);
        }
    }

    /// The row in `self.row` has come to its end.
    fn end_row(&mut self, out: &mut Vec<u8>) {
        let good = !self.long && self.table.row(&self.row, out).is_some();
        self.count(good);
        self.row.clear();
        self.long = false;
    }

    fn count(&mut self, good: bool) {
        self.rows = self.rows.wrapping_add(1);
        self.dropped = self.dropped.wrapping_add(u32::from(!good));
    }

    /// More of a row without its end.
    fn keep(&mut self, part: &[u8]) {
        self.long |= self.row.len() + part.len() > ROW_MAX;
        if self.long {
            self.row.clear();
        } else {
            self.row.extend_from_slice(part);
        }
    }
}

impl Stream for Parse {
    fn reset(&mut self, params: &[u32]) -> Result<(), Fault> {
        *self = Parse::default();
        let [delimiter, count, types @ ..] = params else {
            return Err(Fault::Params("no delimiter and number of columns".into()));
        };
        let Some(delimiter) = u8::try_from(*delimiter).ok().filter(|b| !b"\n0123456789+-.eE".contains(b)) else {
            return Err(Fault::Params("the delimiter is a byte that is in no number, and no newline".into()));
        };
        if !(1..=COLUMNS_MAX).contains(&(*count as usize)) || types.len() != *count as usize {
            return Err(Fault::Params("1 to 64 columns, a word each".into()));
        }
        self.table.delimiter = delimiter;
        self.table.columns = types.iter().map(|word| Type::of(*word)).collect::<Result<_, _>>()?;
        Ok(())
    }

    fn chunk(&mut self, mut input: &[u8], out: &mut Vec<u8>) -> Result<(), Fault> {
        self.begin();
        if self.long || !self.row.is_empty() {
            let end = memchr(b'\n', input);
            self.keep(&input[..end.unwrap_or(input.len())]);
            let Some(end) = end else { return Ok(()) };
            self.end_row(out);
            input = &input[end + 1..];
        }
        while let Some(end) = memchr(b'\n', input) {
            let good = end <= ROW_MAX && self.table.row(&input[..end], out).is_some();
            self.count(good);
            input = &input[end + 1..];
        }
        self.keep(input);
        Ok(())
    }

    fn finish(&mut self, out: &mut Vec<u8>) -> Result<(), Fault> {
        self.begin();
        if self.long || !self.row.is_empty() {
            self.end_row(out);
        }
        self.ended = true;
        Ok(())
    }

    fn peek(&mut self, port: u32) -> Option<u32> {
        [self.rows, self.dropped].get(port as usize).copied()
    }
}

/// Numbers at the beginning of a text: the value, and the bytes that it took.
mod number {
    /// Decimal digits from `at` on go on with `value`, and where they end. What does not fit in 64 bits wraps.
    #[inline(always)]
    fn digits(text: &[u8], mut at: usize, mut value: u64) -> (u64, usize) {
        while let Some(digit) = text.get(at).map(|b| b.wrapping_sub(b'0')).filter(|d| *d < 10) {
            value = value.wrapping_mul(10).wrapping_add(u64::from(digit));
            at += 1;
        }
        (value, at)
    }

    /// Digits that always fit in 64 bits.
    const SAFE: usize = 19;

    #[inline(always)]
    pub fn unsigned(text: &[u8]) -> Option<(u64, usize)> {
        let (value, end) = digits(text, 0, 0);
        match end {
            0 => None,
            1..=SAFE => Some((value, end)),
            _ => Some((str::from_utf8(&text[..end]).ok()?.parse().ok()?, end)),
        }
    }

    #[inline(always)]
    pub fn signed(text: &[u8]) -> Option<(i64, usize)> {
        let (sign, rest) = sign(text);
        let (value, used) = unsigned(rest)?;
        let number = if sign == Some(b'-') { 0i64.checked_sub_unsigned(value) } else { i64::try_from(value).ok() };
        Some((number?, used + usize::from(sign.is_some())))
    }

    fn sign(text: &[u8]) -> (Option<u8>, &[u8]) {
        match text {
            [sign @ (b'+' | b'-'), rest @ ..] => (Some(*sign), rest),
            _ => (None, text),
        }
    }

    /// Powers of ten that are exact.
    const POWERS: [f64; 23] = [
        1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19,
        1e20, 1e21, 1e22,
    ];
    /// Whole numbers up to this are exact.
    const EXACT: u64 = 1 << 53;

    #[inline(always)]
    pub fn fraction(text: &[u8]) -> Option<(f64, usize)> {
        let (sign, rest) = sign(text);
        let (whole, point) = digits(rest, 0, 0);
        let (value, end) = if rest.get(point) == Some(&b'.') { digits(rest, point + 1, whole) } else { (whole, point) };
        let after = end.saturating_sub(point + 1);
        if point + after == 0 {
            return None;
        }
        let used = end + usize::from(sign.is_some());
        if let Some(b'e' | b'E') = rest.get(end) {
            let from = end + 1 + usize::from(matches!(rest.get(end + 1), Some(b'+' | b'-')));
            let (_, last) = digits(rest, from, 0);
            return if last == from { None } else { slow(text, used - end + last) };
        }
        if point + after > SAFE || value > EXACT || after >= POWERS.len() {
            return slow(text, used);
        }
        // Both are exact, and the quotient is rounded once.
        let number = value as f64 / POWERS[after];
        Some((if sign == Some(b'-') { -number } else { number }, used))
    }

    /// The standard library's, which is right for every length and exponent.
    #[cold]
    fn slow(text: &[u8], used: usize) -> Option<(f64, usize)> {
        Some((str::from_utf8(&text[..used]).ok()?.parse().ok()?, used))
    }
}
