//! K nearest neighbours: the distance in the drive, the K smallest on the host.

use super::{App, Work, random, u32_at, words};
use rand::Rng;
use std::collections::BinaryHeap;

const LABEL: usize = 64;
const DIMENSIONS: usize = 4096;
const RECORD: usize = LABEL + DIMENSIONS;
const K: usize = 32;

pub(super) const APP: App = App {
    name: "knn",
    kernel: "knn",
    paper: "KNN",
    expand: None,
    unit: RECORD,
    data: "records of a label of 64 bytes and 4,096 digits, all random; K = 32",
    generate,
    params: |_| [DIMENSIONS as u32].into_iter().chain(words(&query())).collect(),
    host: |_| Box::new(Host { query: query(), best: Best::default() }),
    rest: |_| Box::new(Rest::default()),
    host_items: &["struct Host", "for Host", "Best"],
    rest_items: &["Rest", "Best"],
    source: include_str!("knn.rs"),
    kernel_source: include_str!("../../../../fpga/kernels/src/knn.rs"),
    built: "hls",
    built_source: include_str!("../../../../fpga/hls/knn.cpp"),
};

fn query() -> Vec<u8> {
    let mut query = vec![0; DIMENSIONS];
    random(20).fill(&mut query[..]);
    query.iter_mut().for_each(|d| *d %= 10);
    query
}

fn generate(bytes: usize) -> Vec<u8> {
    let (mut rng, mut data) = (random(2), vec![0; (bytes / RECORD).max(2 * K) * RECORD]);
    rng.fill(&mut data[..]);
    for record in data.chunks_mut(RECORD) {
        record[LABEL..].iter_mut().for_each(|d| *d %= 10);
    }
    data
}

/// The K smallest distances with their labels.
#[derive(Default)]
struct Best(BinaryHeap<(u32, [u8; LABEL])>);

impl Best {
    fn offer(&mut self, distance: u32, label: &[u8]) {
        let full = self.0.len() == K;
        if full && self.0.peek().is_some_and(|worst| (distance, label) >= (worst.0, &worst.1[..])) {
            return;
        }
        if full {
            self.0.pop();
        }
        let mut own = [0; LABEL];
        own.copy_from_slice(label);
        self.0.push((distance, own));
    }

    fn say(&mut self) -> String {
        let best = std::mem::take(&mut self.0).into_sorted_vec();
        let crc = best.iter().fold(0, |crc, (_, label)| weldfs_functions::crc32c_append(crc, label));
        let ends = best.first().zip(best.last()).map_or((0, 0), |(a, b)| (a.0, b.0));
        format!("{} nearest, {} to {} away, labels' CRC-32C {crc:08x}", best.len(), ends.0, ends.1)
    }
}

struct Host {
    query: Vec<u8>,
    best: Best,
}

impl Work for Host {
    fn piece(&mut self, data: &[u8]) {
        for record in data.chunks(RECORD) {
            let (label, digits) = record.split_at(LABEL);
            let pairs = digits.iter().zip(&self.query);
            let distance: i32 = pairs.map(|(a, b)| (i32::from(*a) - i32::from(*b)).pow(2)).sum();
            self.best.offer(distance as u32, label);
        }
    }

    fn end(&mut self) -> String {
        self.best.say()
    }
}

#[derive(Default)]
struct Rest(Best);

impl Work for Rest {
    fn piece(&mut self, data: &[u8]) {
        data.chunks_exact(4 + LABEL).for_each(|case| self.0.offer(u32_at(case, 0), &case[4..]));
    }

    fn end(&mut self) -> String {
        self.0.say()
    }
}
