//! Statistics: greatest, least and sum of each row in the drive; the mean on the host.

use super::{App, Digest, Work, random, u32_at};
use rand::Rng;

/// A row is one unit at the larger scales; the smallest data has shorter rows.
const PER_ROW: usize = 196_608;
const SHORT: usize = 4_096;

pub(super) const APP: App = App {
    name: "statistics",
    kernel: "statistics",
    paper: "Statistics",
    expand: None,
    unit: SHORT * 4,
    data: "rows of 196,608 numbers of 4 bytes (4,096 where the data is below 8 MiB), random",
    generate,
    params: |bytes| vec![per_row(bytes) as u32],
    host: |bytes| Box::new(Host { per_row: per_row(bytes), ..Host::default() }),
    rest: |bytes| Box::new(Rest { per_row: per_row(bytes), means: Digest::default() }),
    host_items: &["struct Host", "for Host", "fn add"],
    rest_items: &["Rest", "fn add"],
    source: include_str!("statistics.rs"),
    kernel_source: include_str!("../../../../fpga/kernels/src/statistics.rs"),
    built: "rtl",
    built_source: include_str!("../../../../fpga/rtl/kernels/weld_statistics.v"),
};

fn per_row(bytes: usize) -> usize {
    if bytes < 8 << 20 { SHORT } else { PER_ROW }
}

fn generate(bytes: usize) -> Vec<u8> {
    let row = per_row(bytes) * 4;
    let mut data = vec![0; (bytes / row).max(2) * row];
    random(3).fill(&mut data[..]);
    data
}

/// A row's line of the answer.
fn add(means: &mut Digest, (max, min, sum): (u32, u32, u64), numbers: usize) {
    let mean = sum as f64 / numbers as f64;
    means.add(format!("{max} {min} {mean:.3}").as_bytes());
}

#[derive(Default)]
struct Host {
    per_row: usize,
    seen: usize,
    row: Option<(u32, u32, u64)>,
    means: Digest,
}

impl Work for Host {
    fn piece(&mut self, mut data: &[u8]) {
        while !data.is_empty() {
            let (part, left) = data.split_at(data.len().min((self.per_row - self.seen) * 4));
            let numbers = || part.chunks_exact(4).map(|n| u32_at(n, 0));
            let (max, min) = numbers().fold((0, u32::MAX), |(max, min), n| (n.max(max), n.min(min)));
            let sum: u64 = numbers().map(u64::from).sum();
            let so_far = self.row.unwrap_or((0, u32::MAX, 0));
            let row = (max.max(so_far.0), min.min(so_far.1), sum + so_far.2);
            self.seen += part.len() / 4;
            self.row = Some(row);
            if self.seen == self.per_row {
                add(&mut self.means, row, self.seen);
                (self.seen, self.row) = (0, None);
            }
            data = left;
        }
    }

    fn end(&mut self) -> String {
        self.means.say("rows")
    }
}

struct Rest {
    per_row: usize,
    means: Digest,
}

impl Work for Rest {
    fn piece(&mut self, data: &[u8]) {
        for row in data.chunks_exact(16) {
            let sum = u64::from(u32_at(row, 8)) | u64::from(u32_at(row, 12)) << 32;
            add(&mut self.means, (u32_at(row, 0), u32_at(row, 4), sum), self.per_row);
        }
    }

    fn end(&mut self) -> String {
        self.means.say("rows")
    }
}
