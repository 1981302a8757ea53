//! convolve: a convolution layer as a matrix product (GEMM): each 64-element vector of the input is multiplied by a
//! matrix of 32 kernels.
//!
//! Parameters: 513 words. Word 0 is a shift, 0 to 16; then 512 words with the weights, 32 kernels of 64 signed bytes, the
//! first in the lowest byte of its word. Anything else is [`Fault::Params`].
//!
//! Input: vectors of 64 signed bytes, as `im2col` lays the patches of an image out. Output: for each vector 32 signed
//! numbers of 16 bits, little-endian, one for each kernel: the exact sum of the 64 products, shifted right by the shift
//! (rounding down), saturated to -32,768..=32,767. Tail: a trailing part of a vector is dropped. An empty packet gives
//! nothing. The stream has no errors. Peek: no port.
//!
//! Cycles: 1 for a flit: a vector is a flit, and 32 * 64 multipliers of 8 bits work side by side, two to a DSP slice.
//! Input and output are equally long, so a drive that computes this saves no byte on its link.
//!
//! Source: EISC (ICCAD 2019), tables II and IV: GEMM-based convolution, unfriendly to in-storage computing. The paper
//! does not give the width of its sums; shift and saturation are ours, as quantised networks use them. The shape follows
//! S. Chetlur et al., "cuDNN", 2014, section 3.

use weldfs_fpga::kernel::{Fault, Stream};

use crate::records::Records;

const VECTOR: usize = 64;
const KERNELS: usize = 32;

#[derive(Default)]
pub struct Convolve {
    shift: u32,
    /// One after the other, in the width that they are multiplied in.
    weights: Vec<[i16; VECTOR]>,
    records: Records,
}

impl Convolve {
    fn vector(&self, vector: &[u8; VECTOR], out: &mut Vec<u8>) {
        let vector = vector.map(|b| i16::from(b as i8));
        for weights in &self.weights {
            // At most 64 * 128 * 128 = 2^20.
            let sum: i32 = vector.iter().zip(weights).map(|(a, b)| i32::from(*a) * i32::from(*b)).sum();
            let sum = (sum >> self.shift).clamp(i32::from(i16::MIN), i32::from(i16::MAX)) as i16;
            out.extend_from_slice(&sum.to_le_bytes());
        }
    }
}

impl Stream for Convolve {
    fn reset(&mut self, params: &[u32]) -> Result<(), Fault> {
        let (shift, words) = match params {
            [shift @ 0..=16, words @ ..] if words.len() == KERNELS * VECTOR / 4 => (*shift, words),
            _ => return Err(Fault::Params("convolve takes a shift of 0 to 16 and 512 words of weights".into())),
        };
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        let weights = bytes.as_chunks::<VECTOR>().0.iter().map(|k| k.map(|b| i16::from(b as i8))).collect();
        *self = Convolve { shift, weights, records: Records::new(VECTOR) };
        Ok(())
    }

    fn chunk(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<(), Fault> {
        let mut records = std::mem::take(&mut self.records);
        records.feed(input, |vectors| vectors.as_chunks().0.iter().for_each(|v| self.vector(v, out)));
        self.records = records;
        Ok(())
    }

    fn finish(&mut self, _: &mut Vec<u8>) -> Result<(), Fault> {
        self.records.end();
        Ok(())
    }
}
