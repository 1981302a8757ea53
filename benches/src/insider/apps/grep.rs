//! grep: rows with a needle. Offloaded whole: positions come back.

use super::{App, Count, Digest, Work, random, text, words};
use rand::Rng;

const ROW: usize = 64 << 10;
const NEEDLE: &[u8; 32] = b"NEEDLE IN A HAYSTACK OF 64K ROWS";
/// One row in so many has it.
const ONE_IN: u32 = 10;

pub(super) const APP: App = App {
    name: "grep",
    kernel: "grep",
    paper: "Grep",
    expand: None,
    unit: ROW,
    data: "rows of 64 KiB of letters, a needle of 32 bytes in one row of ten",
    generate,
    params: |_| [NEEDLE.len() as u32].into_iter().chain(words(NEEDLE)).collect(),
    host: |_| Box::new(Host::default()),
    rest: |_| Count::of(8, "matches"),
    host_items: &["struct Host", "for Host"],
    rest_items: &["Count"],
    source: include_str!("grep.rs"),
    kernel_source: include_str!("../../../../fpga/kernels/src/grep.rs"),
};

fn generate(bytes: usize) -> Vec<u8> {
    let (mut rng, mut data) = (random(1), vec![0; (bytes / ROW).max(4) * ROW]);
    for (n, row) in data.chunks_mut(ROW).enumerate() {
        text(&mut rng, row);
        if n == 1 || rng.random_ratio(1, ONE_IN) {
            let at = rng.random_range(0..ROW - NEEDLE.len() - 1);
            row[at..at + NEEDLE.len()].copy_from_slice(NEEDLE);
        }
        row[ROW - 1] = b'\n';
    }
    data
}

struct Host {
    finder: memchr::memmem::Finder<'static>,
    row: u32,
    found: Digest,
}

impl Default for Host {
    fn default() -> Host {
        Host { finder: memchr::memmem::Finder::new(NEEDLE), row: 0, found: Digest::default() }
    }
}

impl Work for Host {
    fn piece(&mut self, data: &[u8]) {
        for row in data.chunks(ROW) {
            if let Some(column) = self.finder.find(row) {
                let mut found = [0; 8];
                found[..4].copy_from_slice(&self.row.to_le_bytes());
                found[4..].copy_from_slice(&(column as u32).to_le_bytes());
                self.found.add(&found);
            }
            self.row += 1;
        }
    }

    fn end(&mut self) -> String {
        self.found.say("matches")
    }
}
