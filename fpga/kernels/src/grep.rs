//! grep: in which rows a needle occurs, and where first.
//!
//! From INSIDER (ATC'19, section 5): there the host reads positions instead of the text.
//!
//! * **Parameters.** Word 0: length n of the needle, 1 to 32 bytes. Then ceil(n / 4) words of its bytes, packed
//!   little-endian, the surplus bytes of the last word 0. A needle with a newline (no row can hold it), surplus bytes
//!   that are not 0, and a wrong count are `Fault::Params`.
//! * **Input.** Rows of bytes, each ended by `\n`; the last may lack it.
//! * **Output.** For each row that has the needle, 8 bytes: the row's number u32 and the offset in the row of the first
//!   match u32, little-endian, both from 0. Nothing for other rows. Both count modulo 2^32.
//! * **Tails.** The last bytes without `\n` are a row. An empty packet has no row; after a final `\n` none begins.
//! * **Errors.** None in the data.
//! * **Peek.** 0: rows of the packet; 1: rows that matched. The last row without `\n` counts when the packet has ended.
//! * **Cycles.** 1 per flit: 64 needle positions are compared side by side, and a row gives at most one match. Rows so
//!   short that one flit gives more than 8 matches are bound by the output.
//! * **Difference.** INSIDER's rows have a fixed stride of 64 KiB in its data set; here only the newline counts.

use memchr::memmem::Finder;
use memchr::{memchr, memchr_iter, memrchr};
use weldfs_fpga::kernel::{Fault, Stream};

const NEEDLE_MAX: usize = 32;

#[derive(Default)]
pub struct Grep {
    finder: Option<Finder<'static>>,
    /// Length of the needle.
    len: usize,
    /// Number of the row that the next byte belongs to, and that byte's offset in it.
    row: u32,
    column: u32,
    /// The row has had its match.
    matched: bool,
    /// The last bytes of the row, fewer than the needle has: a match may begin in them.
    tail: Vec<u8>,
    matches: u32,
    /// The packet has ended: the next byte is of another one.
    ended: bool,
}

impl Grep {
    fn begin(&mut self) {
        (self.row, self.column, self.matched, self.matches, self.ended) = (0, 0, false, 0, false);
        self.tail.clear();
    }

    fn found(&mut self, column: u32, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.row.to_le_bytes());
        out.extend_from_slice(&column.to_le_bytes());
        (self.matched, self.matches) = (true, self.matches.wrapping_add(1));
    }

    /// A match that begins in the bytes before `input` and ends in it.
    fn across(&mut self, finder: &Finder<'static>, input: &[u8], out: &mut Vec<u8>) {
        let mut joined = [0; 2 * NEEDLE_MAX];
        let (before, after) = (self.tail.len(), input.len().min(self.len - 1));
        joined[..before].copy_from_slice(&self.tail);
        joined[before..before + after].copy_from_slice(&input[..after]);
        if let Some(at) = finder.find(&joined[..before + after]).filter(|at| *at < before) {
            self.found(self.column.wrapping_sub((before - at) as u32), out);
        }
    }

    /// Keeps what a match may begin in: the end of `rest`, which lies in the present row. `whole`: so does all before
    /// it.
    fn keep(&mut self, rest: &[u8], whole: bool) {
        if !whole {
            self.tail.clear();
        }
        let keep = self.len - 1;
        if rest.len() >= keep {
            self.tail.clear();
            self.tail.extend_from_slice(&rest[rest.len() - keep..]);
        } else {
            let surplus = (self.tail.len() + rest.len()).saturating_sub(keep);
            self.tail.drain(..surplus);
            self.tail.extend_from_slice(rest);
        }
    }

    fn scan(&mut self, finder: &Finder<'static>, input: &[u8], out: &mut Vec<u8>) {
        // From where on nothing has been looked at, and where the present row begins; its bytes before the input are
        // counted in `column` until a newline comes.
        let (mut at, mut start) = (0, 0);
        loop {
            if self.matched {
                let Some(end) = memchr(b'\n', &input[at..]) else { break };
                at += end + 1;
                (self.row, self.column, self.matched, start) = (self.row.wrapping_add(1), 0, false, at);
            }
            let hit = finder.find(&input[at..]).map(|m| at + m);
            let passed = &input[at..hit.unwrap_or(input.len())];
            let rows = memchr_iter(b'\n', passed).count();
            if rows > 0 {
                start = at + memrchr(b'\n', passed).map_or(0, |end| end + 1);
                (self.row, self.column) = (self.row.wrapping_add(rows as u32), 0);
            }
            let Some(hit) = hit else { break };
            self.found(self.column.wrapping_add((hit - start) as u32), out);
            at = hit + self.len;
        }
        self.keep(&input[start..], start == 0);
        self.column = self.column.wrapping_add((input.len() - start) as u32);
    }
}

impl Stream for Grep {
    fn reset(&mut self, params: &[u32]) -> Result<(), Fault> {
        self.begin();
        self.finder = None;
        let len = params.first().map_or(0, |n| *n as usize);
        if !(1..=NEEDLE_MAX).contains(&len) {
            return Err(Fault::Params(format!("a needle has 1 to {NEEDLE_MAX} bytes")));
        }
        let words = &params[1..];
        if words.len() != len.div_ceil(4) {
            return Err(Fault::Params(format!("a needle of {len} bytes takes {} words", len.div_ceil(4))));
        }
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        let (needle, surplus) = bytes.split_at(len);
        if needle.contains(&b'\n') {
            return Err(Fault::Params("a needle with a newline is in no row".into()));
        }
        if surplus.iter().any(|b| *b != 0) {
            return Err(Fault::Params("bytes after the needle are not 0".into()));
        }
        (self.finder, self.len) = (Some(Finder::new(needle).into_owned()), len);
        Ok(())
    }

    fn chunk(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<(), Fault> {
        let finder = self.finder.take().ok_or_else(|| Fault::Params("no needle".into()))?;
        if self.ended {
            self.begin();
        }
        if !self.matched && !self.tail.is_empty() {
            self.across(&finder, input, out);
        }
        self.scan(&finder, input, out);
        self.finder = Some(finder);
        Ok(())
    }

    fn finish(&mut self, _: &mut Vec<u8>) -> Result<(), Fault> {
        if self.ended {
            self.begin();
        }
        if self.column > 0 {
            self.row = self.row.wrapping_add(1);
        }
        self.ended = true;
        Ok(())
    }

    fn peek(&mut self, port: u32) -> Option<u32> {
        [self.row, self.matches].get(port as usize).copied()
    }
}
