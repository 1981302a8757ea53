//! rle: run lengths expanded, for bitmaps: a kernel for what is written.
//!
//! From INSIDER (ATC'19, section 5): the host sends pairs, the drive stores pixels; about 7 times fewer bytes cross the
//! link.
//!
//! * **Parameters.** None; any word is `Fault::Params`.
//! * **Input.** Pairs of bytes: count, value.
//! * **Output.** Each value, as many times as its count says; 0 to 255, 0 is nothing. Packed, without padding.
//! * **Tails.** An empty packet gives nothing.
//! * **Errors.** An odd last byte, which has no value, is `Fault::Data` at the end of the packet; what the whole pairs
//!   before it make has been put out.
//! * **Peek.** 0: pairs that have come (modulo 2^32).
//! * **Cycles.** 4 per flit of input, which is eight pairs a cycle, or 1 per flit of output, whichever are more: with
//!   runs longer than 8 bytes the output is what counts.

use weldfs_fpga::kernel::{Fault, Stream};

/// Bytes that every run is written as at first: most are no longer, and need no loop.
const SPLAT: usize = 32;
const BUFFER: usize = 8 << 10;
/// The longest run, and the last splat past its end.
const SLACK: usize = 256 + SPLAT;

#[derive(Default)]
pub struct Rle {
    /// A count whose value is yet to come.
    count: Option<u8>,
    pairs: u32,
    /// The packet has ended: the next byte is of another one.
    ended: bool,
}

impl Rle {
    fn begin(&mut self) {
        if std::mem::take(&mut self.ended) {
            self.pairs = 0;
        }
    }
}

/// Appends what the pairs make to `out`.
fn expand(pairs: &[[u8; 2]], out: &mut Vec<u8>) {
    let mut made = [0; BUFFER + SLACK];
    let mut n = 0;
    for [count, value] in pairs {
        let count = usize::from(*count);
        made[n..n + SPLAT].fill(*value);
        if count > SPLAT {
            made[n + SPLAT..n + count].fill(*value);
        }
        n += count;
        if n >= BUFFER {
            out.extend_from_slice(&made[..n]);
            n = 0;
        }
    }
    out.extend_from_slice(&made[..n]);
}

impl Stream for Rle {
    fn reset(&mut self, params: &[u32]) -> Result<(), Fault> {
        *self = Rle::default();
        if params.is_empty() { Ok(()) } else { Err(Fault::Params("rle takes none".into())) }
    }

    fn chunk(&mut self, mut input: &[u8], out: &mut Vec<u8>) -> Result<(), Fault> {
        self.begin();
        if let (Some(count), [value, rest @ ..]) = (self.count, input) {
            (self.count, input) = (None, rest);
            self.pairs = self.pairs.wrapping_add(1);
            expand(&[[count, *value]], out);
        }
        let (pairs, rest) = input.as_chunks::<2>();
        self.pairs = self.pairs.wrapping_add(pairs.len() as u32);
        expand(pairs, out);
        self.count = rest.first().copied().or(self.count);
        Ok(())
    }

    fn finish(&mut self, _: &mut Vec<u8>) -> Result<(), Fault> {
        self.begin();
        self.ended = true;
        match self.count.take() {
            None => Ok(()),
            Some(_) => Err(Fault::Data("the last count has no value".into())),
        }
    }

    fn peek(&mut self, port: u32) -> Option<u32> {
        (port == 0).then_some(self.pairs)
    }
}
