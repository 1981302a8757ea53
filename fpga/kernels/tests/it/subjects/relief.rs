use rand::Rng;
use rand::rngs::SmallRng;

use super::{Subject, bytes};

pub const SUBJECT: Subject = Subject {
    name: "relief",
    params,
    unit: |params| 4 * params[3] as usize,
    input,
    oracle,
    bad: || {
        let long = |f: u32, words: usize| [&[0, 1, 1, f][..], &vec![0; words]].concat();
        vec![
            vec![],
            vec![0, 1, 1],
            vec![0, 1, 1, 0],
            vec![0, 0, 1, 1, 0],
            vec![0, 1, 0, 1, 0],
            long(2, 1),
            long(2, 3),
            long(257, 257),
        ]
    },
};

fn params(kind: usize, rng: &mut SmallRng) -> Vec<u32> {
    let f = [1, 16, 256, 3, 17, 255, 31, 40][kind % 8];
    let (threshold, hits, misses) = (rng.random_range(-2..=2i32), rng.random_range(1..4), rng.random_range(1..4));
    let mut words = vec![threshold as u32, hits, misses, f];
    words.extend((0..f).map(|_| number(rng) as u32));
    words
}

/// Often one of few, so that rows and features are equal; sometimes at the end of the range.
fn number(rng: &mut SmallRng) -> i32 {
    match rng.random_range(0..8) {
        0 => i32::MIN,
        1 => i32::MAX,
        2 => rng.random(),
        _ => rng.random_range(-1..=1),
    }
}

fn input(_: &[u32], len: usize, rng: &mut SmallRng) -> Vec<u8> {
    let numbers: Vec<u32> = (0..len.div_ceil(4)).map(|_| number(rng) as u32).collect();
    let mut input = bytes(&numbers);
    input.truncate(len);
    input
}

fn oracle(params: &[u32], input: &[u8]) -> Vec<u8> {
    let threshold = params[0] as i32;
    let (hits, misses, f) = (params[1] as usize, params[2] as usize, params[3] as usize);
    let query: Vec<i128> = params[4..].iter().map(|w| i128::from(*w as i32)).collect();
    let number = |b: &[u8]| i128::from(i32::from_le_bytes(b.try_into().unwrap()));
    let rows: Vec<Vec<i128>> =
        input.chunks(4 * f).filter(|r| r.len() == 4 * f).map(|r| r.chunks(4).map(number).collect()).collect();
    if rows.len() < hits + misses {
        return Vec::new();
    }
    // Of equal ones, `min_by_key` gives the first.
    let nearest = |rows: &[Vec<i128>]| {
        let distance = |row: &&Vec<i128>| -> i128 { row.iter().zip(&query).map(|(a, b)| (a - b) * (a - b)).sum() };
        rows.iter().min_by_key(distance).unwrap().clone()
    };
    let (hit, miss) = (nearest(&rows[..hits]), nearest(&rows[hits..hits + misses]));
    let mut out = Vec::new();
    for row in &rows[hits + misses..] {
        for i in 0..f {
            let weight = i32::from(miss[i] != query[i]) - i32::from(hit[i] != query[i]);
            if weight >= threshold {
                out.extend((row[i] as i32).to_le_bytes());
            }
        }
    }
    out
}
