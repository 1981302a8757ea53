use rand::Rng;
use rand::rngs::SmallRng;

use super::{Subject, bytes, noise};

pub const SUBJECT: Subject = Subject {
    name: "convolve",
    params,
    unit: |_| 64,
    input: |_, len, rng| extreme(len, rng),
    oracle,
    bad: || vec![vec![], vec![0], vec![17; 513], vec![0; 512], vec![0; 514]],
};

/// Noise, or bytes at the end of their range, whose sums saturate.
fn extreme(len: usize, rng: &mut SmallRng) -> Vec<u8> {
    let mut bytes = noise(&[], len, rng);
    if rng.random() {
        let most = [0x7f, 0x80, 0x81][rng.random_range(0..3)];
        bytes.iter_mut().filter(|_| rng.random_ratio(7, 8)).for_each(|b| *b = most);
    }
    bytes
}

fn params(kind: usize, rng: &mut SmallRng) -> Vec<u32> {
    let weights = extreme(2048, rng);
    let words = weights.chunks(4).map(|b| u32::from_le_bytes(b.try_into().unwrap()));
    [[0, 5, 16, 1][kind % 4]].into_iter().chain(words).collect()
}

fn oracle(params: &[u32], input: &[u8]) -> Vec<u8> {
    let weights = bytes(&params[1..]);
    let mut out = Vec::new();
    for vector in input.chunks_exact(64) {
        for kernel in weights.chunks_exact(64) {
            let mut sum = 0i64;
            for i in 0..64 {
                sum += i64::from(vector[i] as i8) * i64::from(kernel[i] as i8);
            }
            let shifted = sum.div_euclid(1 << params[0]).clamp(-32_768, 32_767);
            out.extend((shifted as i16).to_le_bytes());
        }
    }
    out
}
