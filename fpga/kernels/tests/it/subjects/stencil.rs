use rand::Rng;
use rand::rngs::SmallRng;

use super::{Subject, noise};

pub const SUBJECT: Subject = Subject {
    name: "stencil",
    params,
    unit: |params| params[0] as usize,
    input: noise,
    oracle,
    bad: || {
        let with = |at: usize, word: u32| {
            let mut params = vec![64, 4, 1, 2, 1, 2, 4, 2, 1, 2, 1];
            params[at] = word;
            params
        };
        vec![
            vec![],
            vec![64, 4],
            vec![64, 4, 1, 2, 1, 2, 4, 2, 1, 2],
            vec![64, 4, 1, 2, 1, 2, 4, 2, 1, 2, 1, 0],
            with(0, 0),
            with(0, 8193),
            with(1, 16),
            with(2, 114),
            with(10, (-114i32) as u32),
            with(6, i32::MIN as u32),
        ]
    },
};

fn params(kind: usize, rng: &mut SmallRng) -> Vec<u32> {
    let width = [1920, 64, 1, 2, 65, 63, 130, 8192][kind % 8];
    let coefficients: [i32; 9] = match kind / 8 + kind % 3 {
        0 => [1, 2, 1, 2, 4, 2, 1, 2, 1],
        1 => [0, -1, 0, -1, 5, -1, 0, -1, 0],
        2 => [-128, 0, 0, 0, 0, 0, 0, 0, 0],
        _ => std::array::from_fn(|_| rng.random_range(-14..=14)),
    };
    let shift = rng.random_range(0..=if kind.is_multiple_of(2) { 4 } else { 15 });
    [width, shift].into_iter().chain(coefficients.map(|c| c as u32)).collect()
}

fn oracle(params: &[u32], input: &[u8]) -> Vec<u8> {
    let (width, shift) = (i64::from(params[0]), params[1]);
    let pixel = |x: i64, y: i64| {
        let inside = (0..width).contains(&x) && y >= 0;
        let at = usize::try_from(y * width + x).ok().filter(|_| inside);
        at.and_then(|at| input.get(at)).map_or(0, |p| i32::from(*p))
    };
    let filtered = |at: usize| {
        let (x, y) = (at as i64 % width, at as i64 / width);
        let mut sum = 0;
        for i in 0..9 {
            sum += params[2 + i] as i32 * pixel(x + i as i64 % 3 - 1, y + i as i64 / 3 - 1);
        }
        (f64::from(sum) / f64::from(1 << shift)).floor().clamp(0.0, 255.0) as u8
    };
    (0..input.len()).map(filtered).collect()
}
