//! equalise: spreads the histogram of each image over the whole range of its pixels.
//!
//! Parameters: word 0 is the number n of pixels of an image, 1 to 16,777,216. Anything else is [`Fault::Params`].
//!
//! Input: images of n pixels, back to back; a pixel is 16 bits without a sign, little-endian. Output: as many pixels. The
//! histogram has 4,096 bins, of the upper 12 bits of a pixel; where c\[b\] pixels of the image lie in bin b or below, a
//! pixel of bin b becomes (c\[b\] * 65,535 + floor(N / 2)) / N, rounded down, N being the number of pixels of the image:
//! 65,535 * c\[b\] / N, rounded to the nearest. Tail: a last image that is short is equalised over the pixels that it has;
//! an odd last byte is dropped. An empty packet gives nothing. The stream has no errors.
//!
//! Peek: port 0 is the number of images put out since `reset`, modulo 2^32.
//!
//! How two passes stream: the first counts an image while it goes into the device's DRAM, which is why an image is bounded
//! (32 MiB, `dram_bytes` in the manifest); the second reads it from there. Output begins when an image is complete.
//!
//! Cycles: 2 for a flit: one in the first pass, with 32 lanes that each count in a histogram of their own, one in the
//! second, with as many copies of the table; there is one image buffer, so the passes alternate. Adding the histograms
//! up takes 4,096 cycles more for an image, which the constant does not count.
//!
//! Source: EISC (ICCAD 2019), tables II and IV and section V-D (whose optimised form overlaps the passes); the mapping is
//! that of R. Gonzalez, R. Woods, "Digital Image Processing", section 3.3. The paper does not say how its pixels map.

use weldfs_fpga::kernel::{Fault, Stream};

use crate::records::Records;

const PIXELS_MAX: u32 = 1 << 24;
const BINS: usize = 1 << 12;
/// Lanes that count on their own: pixels of the same bin that follow each other do not wait for one counter.
const LANES: usize = 4;

#[derive(Default)]
pub struct Equalise {
    image: Records,
    images: u32,
}

fn bin(pixel: &[u8; 2]) -> usize {
    usize::from(u16::from_le_bytes(*pixel) >> 4)
}

/// What a pixel of each bin becomes.
fn table(pixels: &[[u8; 2]]) -> Vec<[u8; 2]> {
    let mut counts = vec![[0u32; LANES]; BINS];
    let (fours, rest) = pixels.as_chunks::<LANES>();
    for four in fours {
        for lane in 0..LANES {
            counts[bin(&four[lane])][lane] += 1;
        }
    }
    rest.iter().for_each(|pixel| counts[bin(pixel)][0] += 1);
    let n = pixels.len() as u64;
    let mut below = 0u64;
    let level = |count: &[u32; LANES]| {
        below += u64::from(count.iter().sum::<u32>());
        (((below * 65_535 + n / 2) / n) as u16).to_le_bytes()
    };
    counts.iter().map(level).collect()
}

fn equalise(image: &[u8], out: &mut Vec<u8>) {
    let pixels = image.as_chunks::<2>().0;
    if pixels.is_empty() {
        return;
    }
    let table: Box<[[u8; 2]; BINS]> = table(pixels).into_boxed_slice().try_into().expect("a level for each bin");
    let start = out.len();
    out.resize(start + 2 * pixels.len(), 0);
    let made = out[start..].as_chunks_mut::<2>().0;
    made.iter_mut().zip(pixels).for_each(|(to, from)| *to = table[bin(from)]);
}

impl Stream for Equalise {
    fn reset(&mut self, params: &[u32]) -> Result<(), Fault> {
        let &[pixels @ 1..=PIXELS_MAX] = params else {
            return Err(Fault::Params("equalise takes the number of pixels of an image, 1 to 16777216".into()));
        };
        *self = Equalise { image: Records::new(2 * pixels as usize), images: 0 };
        Ok(())
    }

    fn chunk(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<(), Fault> {
        let (images, size) = (&mut self.images, self.image.size());
        self.image.feed(input, |whole| {
            for image in whole.chunks_exact(size) {
                equalise(image, out);
                *images = images.wrapping_add(1);
            }
        });
        Ok(())
    }

    fn finish(&mut self, out: &mut Vec<u8>) -> Result<(), Fault> {
        if self.image.part().len() >= 2 {
            equalise(self.image.part(), out);
            self.images = self.images.wrapping_add(1);
        }
        self.image.end();
        Ok(())
    }

    fn peek(&mut self, port: u32) -> Option<u32> {
        (port == 0).then_some(self.images)
    }
}
