//! stencil: a 3x3 filter over an image of 8-bit pixels, padded with zeros.
//!
//! Parameters: 11 words. Word 0 is the width of the image in pixels, 1 to 8,192 (1,920 in the paper); word 1 a shift, 0
//! to 15; words 2 to 10 the nine coefficients as signed numbers, row by row from the top left. The sum of their absolute
//! values is at most 128, so that a sum fits 16 bits. Anything else is [`Fault::Params`].
//!
//! Input: pixels without a sign, row by row. Output: as many pixels: the sum of the coefficients times the 3x3 pixels
//! around the pixel (a correlation: the first coefficient meets the pixel above and to the left), shifted right by the
//! shift (rounding down), clamped to 0..=255. Outside of the image everything is 0. Tail: pixels that a short last row
//! lacks are outside, too; the output always has the length of the input. An empty packet gives nothing. Each packet is an
//! image. The stream has no errors. Peek: no port.
//!
//! Cycles: 1 for a flit: 64 lanes of nine multipliers each, two rows in block RAM; the output is one row and one flit
//! behind the input. Where the width is no multiple of 64, a row's last flit is not full and costs a cycle, which the
//! constant does not count. Input and output are equally long.
//!
//! Source: EISC (ICCAD 2019), tables II and IV: 3x3 image stencil. The paper names neither the coefficients nor the
//! edge; here they are parameters, and zeros. The method of line buffers is that of the textbooks (D. Bailey, "Design for
//! Embedded Image Processing on FPGAs", section 8.1).

use weldfs_fpga::kernel::{Fault, Stream};

const WIDTH_MAX: u32 = 8192;

/// A row with a pixel of padding at both sides.
type Line = Vec<i16>;

#[derive(Default)]
pub struct Stencil {
    width: usize,
    shift: u32,
    coefficients: [i16; 9],
    /// The row that comes, the one before, and the one before that.
    lines: [Line; 3],
    /// Pixels of the row that comes.
    filled: usize,
    /// Whether there is a row before.
    second: bool,
}

/// Appends the first `pixels` of the row in the middle. No sum or part of a sum leaves 16 bits.
fn filter(lines: &[Line; 3], coefficients: &[i16; 9], shift: u32, pixels: usize, out: &mut Vec<u8>) {
    let start = out.len();
    out.resize(start + pixels, 0);
    let out = &mut out[start..];
    let [a, b, c] = lines.each_ref().map(|l| [&l[..pixels], &l[1..pixels + 1], &l[2..pixels + 2]]);
    let k = coefficients;
    for x in 0..pixels {
        let above = a[0][x] * k[0] + a[1][x] * k[1] + a[2][x] * k[2];
        let beside = b[0][x] * k[3] + b[1][x] * k[4] + b[2][x] * k[5];
        let below = c[0][x] * k[6] + c[1][x] * k[7] + c[2][x] * k[8];
        out[x] = ((above + beside + below) >> shift).clamp(0, 255) as u8;
    }
}

impl Stencil {
    /// The row that comes is complete, and becomes the one before.
    fn next_row(&mut self, out: &mut Vec<u8>) {
        if self.second {
            filter(&self.lines, &self.coefficients, self.shift, self.width, out);
        }
        self.lines.rotate_left(1);
        (self.second, self.filled) = (true, 0);
    }
}

impl Stream for Stencil {
    fn reset(&mut self, params: &[u32]) -> Result<(), Fault> {
        let fault = |what: &str| Err(Fault::Params(format!("stencil takes {what}")));
        let &[width @ 1..=WIDTH_MAX, shift @ 0..=15, ref words @ ..] = params else {
            return fault("a width of 1 to 8192, a shift of 0 to 15, nine coefficients");
        };
        let Ok(words) = <[u32; 9]>::try_from(words) else { return fault("nine coefficients") };
        if words.iter().map(|w| u64::from((*w as i32).unsigned_abs())).sum::<u64>() > 128 {
            return fault("coefficients whose absolute values add up to 128 at most");
        }
        let width = width as usize;
        let lines = std::array::from_fn(|_| vec![0; width + 2]);
        *self = Stencil { width, shift, coefficients: words.map(|w| w as i32 as i16), lines, filled: 0, second: false };
        Ok(())
    }

    fn chunk(&mut self, mut input: &[u8], out: &mut Vec<u8>) -> Result<(), Fault> {
        while !input.is_empty() {
            let n = input.len().min(self.width - self.filled);
            let (now, rest) = input.split_at(n);
            let line = &mut self.lines[2][1 + self.filled..][..n];
            line.iter_mut().zip(now).for_each(|(to, from)| *to = i16::from(*from));
            (self.filled, input) = (self.filled + n, rest);
            if self.filled == self.width {
                self.next_row(out);
            }
        }
        Ok(())
    }

    fn finish(&mut self, out: &mut Vec<u8>) -> Result<(), Fault> {
        let mut last = self.width;
        self.lines[2][1 + self.filled..].fill(0);
        if self.filled > 0 {
            last = self.filled;
            self.next_row(out);
            self.lines[2].fill(0);
        }
        if self.second {
            filter(&self.lines, &self.coefficients, self.shift, last, out);
        }
        self.lines.iter_mut().for_each(|line| line.fill(0));
        (self.filled, self.second) = (0, false);
        Ok(())
    }
}
