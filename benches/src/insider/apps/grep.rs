//! grep: rows with a needle. Offloaded whole: positions come back.

use super::{App, Count, Digest, Work, random, text, words};
use rand::Rng;
use rand::rngs::SmallRng;

/// Bytes of a row.
pub const ROW: usize = 64 << 10;
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
    params: |_| params(),
    host: |_| host(),
    rest: |_| rest(),
    host_items: &["struct Host", "for Host"],
    rest_items: &["Count"],
    source: include_str!("grep.rs"),
    kernel_source: include_str!("../../../../fpga/kernels/src/grep.rs"),
    built: "rtl",
    built_source: include_str!("../../../../fpga/rtl/kernels/weld_grep.v"),
};

/// Parameters of the kernel.
pub fn params() -> Vec<u32> {
    [NEEDLE.len() as u32].into_iter().chain(words(NEEDLE)).collect()
}

/// All of the work on the host.
pub fn host() -> Box<dyn Work> {
    Box::new(Host::default())
}

/// What the host does with the kernel's output.
pub fn rest() -> Box<dyn Work> {
    Count::of(8, "matches")
}

/// Makes the text, row by row, the same at each run.
pub struct Maker {
    rng: SmallRng,
    row: usize,
}

impl Maker {
    /// At the first row.
    pub fn new() -> Maker {
        Maker { rng: random(1), row: 0 }
    }

    /// The next rows.
    pub fn fill(&mut self, rows: &mut [u8]) {
        for row in rows.chunks_mut(ROW) {
            text(&mut self.rng, row);
            if self.row == 1 || self.rng.random_ratio(1, ONE_IN) {
                let at = self.rng.random_range(0..ROW - NEEDLE.len() - 1);
                row[at..at + NEEDLE.len()].copy_from_slice(NEEDLE);
            }
            row[ROW - 1] = b'\n';
            self.row += 1;
        }
    }
}

fn generate(bytes: usize) -> Vec<u8> {
    let mut data = vec![0; (bytes / ROW).max(4) * ROW];
    Maker::new().fill(&mut data);
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
