use rand::Rng;
use rand::rngs::SmallRng;

use super::{Subject, bytes, noise};

pub const SUBJECT: Subject = Subject {
    name: "knn",
    params,
    unit: |params| 64 + params[0] as usize,
    input: noise,
    oracle,
    bad: || {
        let long = |d: u32, words: usize| [&[d][..], &vec![0; words]].concat();
        vec![
            vec![],
            vec![0],
            vec![1],
            vec![1, 0, 0],
            vec![1, 0x100],
            vec![5, 0, 0x100],
            long(4097, 1025),
            long(4096, 1023),
        ]
    },
};

fn params(kind: usize, rng: &mut SmallRng) -> Vec<u32> {
    let d = [1, 64, 4096, 3, 130, 63, 65, 4095][kind % 8];
    let mut query = noise(&[], d, rng);
    if rng.random_ratio(1, 4) {
        query.fill(255 * rng.random_range(0..2));
    }
    query.resize(d.next_multiple_of(4), 0);
    let words = query.chunks(4).map(|b| u32::from_le_bytes(b.try_into().unwrap()));
    [d as u32].into_iter().chain(words).collect()
}

fn oracle(params: &[u32], input: &[u8]) -> Vec<u8> {
    let (d, query) = (params[0] as usize, bytes(&params[1..]));
    let mut out = Vec::new();
    for record in input.chunks(64 + d).filter(|r| r.len() == 64 + d) {
        let mut sum = 0;
        for i in 0..d {
            sum += (i64::from(record[64 + i]) - i64::from(query[i])).pow(2);
        }
        out.extend(u32::try_from(sum).unwrap().to_le_bytes());
        out.extend(&record[..64]);
    }
    out
}
