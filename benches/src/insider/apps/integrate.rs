//! Integration: records that resemble a query, in two stages. Offloaded whole: survivors come back.

use super::{App, Count, Digest, Work, random, words};
use rand::Rng;

const RECORD: usize = 64;
const COMPARED: usize = 32;
const PREFIX: usize = 8;
/// More than 32 - Q equal pairs.
const Q: u32 = 4;
/// One record in so many resembles the query.
const ONE_IN: u32 = 50;

pub(super) const APP: App = App {
    name: "integrate",
    kernel: "integrate",
    paper: "Integration",
    expand: None,
    unit: RECORD,
    data: "records of 64 bytes, a query of 32; one record of fifty resembles it",
    generate,
    params: |_| [Q, PREFIX as u32].into_iter().chain(words(&query())).collect(),
    host: |_| Box::new(Host { query: query(), found: Digest::default() }),
    rest: |_| Count::of(RECORD, "records"),
    host_items: &["struct Host", "for Host", "impl Host"],
    rest_items: &["Count"],
    source: include_str!("integrate.rs"),
    kernel_source: include_str!("../../../../fpga/kernels/src/integrate.rs"),
    built: "rtl",
    built_source: include_str!("../../../../fpga/rtl/kernels/weld_integrate.v"),
};

fn query() -> [u8; COMPARED] {
    let mut query = [0; COMPARED];
    random(50).fill(&mut query);
    query
}

fn generate(bytes: usize) -> Vec<u8> {
    let (mut rng, query) = (random(5), query());
    let mut data = vec![0; (bytes / RECORD).max(200) * RECORD];
    rng.fill(&mut data[..]);
    for record in data.chunks_mut(RECORD) {
        if rng.random_ratio(1, ONE_IN) {
            record[..COMPARED].copy_from_slice(&query);
            // Some bytes differ, fewer than the threshold lets pass on the whole.
            record[rng.random_range(0..COMPARED)] = rng.random();
        }
    }
    data
}

struct Host {
    query: [u8; COMPARED],
    found: Digest,
}

impl Host {
    fn resembles(&self, record: &[u8]) -> bool {
        let prefix = &record[..PREFIX];
        if !self.query[..PREFIX].iter().any(|q| prefix.contains(q)) {
            return false;
        }
        let equal = |q: &u8| record[..COMPARED].iter().filter(|r| *r == q).count();
        self.query.iter().map(equal).sum::<usize>() > COMPARED - Q as usize
    }
}

impl Work for Host {
    fn piece(&mut self, data: &[u8]) {
        for record in data.chunks_exact(RECORD) {
            if self.resembles(record) {
                self.found.add(record);
            }
        }
    }

    fn end(&mut self) -> String {
        self.found.say("records")
    }
}
