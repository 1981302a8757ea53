use rand::Rng;
use rand::rngs::SmallRng;

use super::{Subject, bytes};

pub const SUBJECT: Subject = Subject {
    name: "equalise",
    params: |kind, rng| vec![[1, 64, 4096, 1000, 31, 1 << 24, 7, rng.random_range(1..3000)][kind % 8]],
    unit: |params| 2 * params[0].min(9999) as usize,
    input,
    oracle,
    bad: || vec![vec![], vec![0], vec![(1 << 24) + 1], vec![u32::MAX], vec![5, 0]],
};

/// Dark or bright, wide or narrow.
fn input(_: &[u32], len: usize, rng: &mut SmallRng) -> Vec<u8> {
    let (low, wide) = (rng.random_range(0..65_000u32), rng.random_range(1..=65_535u32));
    let words: Vec<u32> = (0..len.div_ceil(2)).map(|_| (low + rng.random_range(0..wide)).min(65_535)).collect();
    let mut input: Vec<u8> = bytes(&words).chunks(4).flat_map(|b| [b[0], b[1]]).collect();
    input.truncate(len);
    input
}

fn oracle(params: &[u32], input: &[u8]) -> Vec<u8> {
    let pixels: Vec<u64> = input.chunks_exact(2).map(|b| u64::from(b[0]) + 256 * u64::from(b[1])).collect();
    let mut out = Vec::new();
    for image in pixels.chunks(params[0] as usize) {
        let mut bins = vec![0u64; 4096];
        image.iter().for_each(|p| bins[(p / 16) as usize] += 1);
        let n = image.len() as u64;
        (1..4096).for_each(|b| bins[b] += bins[b - 1]);
        for pixel in image {
            let level = (bins[(pixel / 16) as usize] * 65_535 + n / 2) / n;
            out.extend([(level % 256) as u8, (level / 256) as u8]);
        }
    }
    out
}
