//! Feature selection (Relief): learns from hits and misses which features tell classes apart, and passes only those of
//! the rows that follow. Offloaded whole.

use super::{App, Count, Digest, Work, random, u32_at};
use rand::Rng;

const FEATURES: usize = 256;
const ROW: usize = FEATURES * 4;
const THRESHOLD: i32 = 1;
/// Features in which misses differ from the query, one of so many.
const TELLING: usize = 16;

pub(super) const APP: App = App {
    name: "relief",
    kernel: "relief",
    paper: "Feature selection",
    expand: None,
    unit: ROW,
    data: "rows of 256 numbers of 4 bytes: a quarter hits, a quarter misses, half to filter; one feature of 16 tells",
    generate,
    params: |bytes| {
        let rows = rows(bytes) as u32;
        let query = query();
        [THRESHOLD as u32, rows / 4, rows / 4, FEATURES as u32].into_iter().chain(query.map(|v| v as u32)).collect()
    },
    host: |bytes| Box::new(Host::new(rows(bytes) / 4)),
    rest: |_| Count::of(4, "numbers"),
    host_items: &["struct Host", "for Host", "impl Host", "type Nearest"],
    rest_items: &["Count"],
    source: include_str!("relief.rs"),
    kernel_source: include_str!("../../../../fpga/kernels/src/relief.rs"),
    built: "hls",
    built_source: include_str!("../../../../fpga/hls/relief.cpp"),
};

fn rows(bytes: usize) -> usize {
    (bytes / ROW).max(16)
}

fn query() -> [i32; FEATURES] {
    let mut rng = random(60);
    std::array::from_fn(|_| rng.random_range(-1000..1000))
}

fn generate(bytes: usize) -> Vec<u8> {
    let (mut rng, query, rows) = (random(6), query(), rows(bytes));
    let mut data = Vec::with_capacity(rows * ROW);
    for row in 0..rows {
        let miss = (rows / 4..rows / 4 * 2).contains(&row);
        for (at, value) in query.iter().enumerate() {
            // A row differs from the query in few features of its own, a miss in those that tell, too.
            let differs = (miss && at % TELLING == 0) || rng.random_ratio(1, 300) && at % TELLING != 0;
            let value = if differs { value + rng.random_range(1..100) } else { *value };
            data.extend(value.to_le_bytes());
        }
    }
    data
}

/// The nearest row of a class so far.
type Nearest = Option<(u128, Vec<i32>)>;

struct Host {
    query: [i32; FEATURES],
    /// Rows of each class.
    each: usize,
    seen: usize,
    nearest: [Nearest; 2],
    chosen: Vec<usize>,
    out: Digest,
}

impl Host {
    fn new(each: usize) -> Host {
        let (nearest, chosen, out) = ([None, None], Vec::new(), Digest::default());
        Host { query: query(), each, seen: 0, nearest, chosen, out }
    }

    fn train(&mut self, row: &[u8]) {
        let of = |at: usize| u32_at(row, at * 4) as i32;
        let far = |at: usize| u128::from(of(at).abs_diff(self.query[at])).pow(2);
        let distance: u128 = (0..FEATURES).map(far).sum();
        let class = &mut self.nearest[usize::from(self.seen >= self.each)];
        if class.as_ref().is_none_or(|(least, _)| distance < *least) {
            *class = Some((distance, (0..FEATURES).map(of).collect()));
        }
    }

    fn learn(&mut self) {
        let [Some((_, hit)), Some((_, miss))] = &self.nearest else { return };
        let differ = |row: &[i32], at: usize| i32::from(row[at] != self.query[at]);
        self.chosen = (0..FEATURES).filter(|at| differ(miss, *at) - differ(hit, *at) >= THRESHOLD).collect();
    }
}

impl Work for Host {
    fn piece(&mut self, data: &[u8]) {
        for row in data.chunks_exact(ROW) {
            if self.seen < 2 * self.each {
                self.train(row);
            } else {
                self.chosen.iter().for_each(|at| self.out.add(&row[at * 4..at * 4 + 4]));
            }
            self.seen += 1;
            if self.seen == 2 * self.each {
                self.learn();
            }
        }
    }

    fn end(&mut self) -> String {
        self.out.say("numbers")
    }
}
