//! What the checks are run on: for a kernel, parameters, input, and what must come out.

mod convolve;
mod equalise;
mod gzip;
mod knn;
mod relief;
mod smith_waterman;
mod stencil;

use rand::rngs::SmallRng;

/// A kernel under test.
pub struct Subject {
    pub name: &'static str,
    /// Good parameters; the number chooses among kinds.
    pub params: fn(usize, &mut SmallRng) -> Vec<u32>,
    /// Bytes of a record, row or batch with these parameters: lengths around it are of interest.
    pub unit: fn(&[u32]) -> usize,
    /// Input of so many bytes.
    pub input: fn(&[u32], usize, &mut SmallRng) -> Vec<u8>,
    /// What the kernel makes of it.
    pub oracle: fn(&[u32], &[u8]) -> Vec<u8>,
    /// Parameters that are refused.
    pub bad: fn() -> Vec<Vec<u32>>,
}

pub const SUBJECTS: &[Subject] = &[
    convolve::SUBJECT,
    equalise::SUBJECT,
    gzip::SUBJECT,
    knn::SUBJECT,
    relief::SUBJECT,
    smith_waterman::SUBJECT,
    stencil::SUBJECT,
];

/// Every byte alike likely.
pub fn noise(_: &[u32], len: usize, rng: &mut SmallRng) -> Vec<u8> {
    let mut bytes = vec![0; len];
    rand::RngCore::fill_bytes(rng, &mut bytes);
    bytes
}

/// Bytes of words, little-endian.
pub fn bytes(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|w| w.to_le_bytes()).collect()
}
