use rand::Rng;
use rand::rngs::SmallRng;

use super::{Subject, noise};

pub const SUBJECT: Subject = Subject {
    name: "smith-waterman",
    params,
    unit: |_| 96,
    input,
    oracle,
    bad: || {
        let word = |n: i32| n as u32;
        let three = |a, b, c| vec![word(a), word(b), word(c)];
        vec![
            vec![],
            vec![2, word(-1)],
            vec![2, word(-1), word(-1), 0],
            three(0, -1, -1),
            three(128, -1, -1),
            three(2, 1, -1),
            three(2, -129, -1),
            three(2, -1, 0),
            three(2, -1, -129),
            three(i32::MIN, -1, -1),
        ]
    },
};

fn params(kind: usize, rng: &mut SmallRng) -> Vec<u32> {
    let all = [[2, -1, -1], [127, 0, -1], [1, -128, -128], [5, -4, -8], [127, -1, -128]];
    let random = [rng.random_range(1..=9), rng.random_range(-9..=0), rng.random_range(-9..=-1)];
    all.get(kind % 8).unwrap_or(&random).iter().map(|n: &i32| *n as u32).collect()
}

/// Pairs that have something in common: pieces of one sequence.
fn input(_: &[u32], len: usize, rng: &mut SmallRng) -> Vec<u8> {
    let mut input = noise(&[], len, rng);
    for pair in input.chunks_exact_mut(96) {
        let n = rng.random_range(0..=32);
        let (from, to) = (rng.random_range(0..=32 - n), 32 + rng.random_range(0..=64 - n));
        pair.copy_within(from..from + n, to);
        if n > 0 && rng.random() {
            pair[to + rng.random_range(0..n)] ^= rng.random::<u8>();
        }
    }
    input
}

fn oracle(params: &[u32], input: &[u8]) -> Vec<u8> {
    let [equal, differ, gap] = [0, 1, 2].map(|i| params[i] as i32);
    let mut out = Vec::new();
    for pair in input.chunks_exact(96) {
        let base = |i: usize| pair[i / 4] >> (2 * (i % 4)) & 3;
        let mut h = vec![[0i32; 257]; 129];
        let mut best = 0;
        for i in 1..=128 {
            for j in 1..=256 {
                let pair = if base(i - 1) == base(128 + j - 1) { equal } else { differ };
                let all = [0, h[i - 1][j - 1] + pair, h[i - 1][j] + gap, h[i][j - 1] + gap];
                h[i][j] = all.into_iter().max().unwrap();
                best = best.max(h[i][j]);
            }
        }
        out.extend((best as u32).to_le_bytes());
    }
    out
}
