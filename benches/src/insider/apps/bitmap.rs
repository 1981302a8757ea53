//! Bitmap decompression: run lengths become pixels on their way into the drive. The answer is the file that lies there.

use super::{App, Work, random};
use rand::Rng;

/// Pixels per pair of bytes: 7 times as many bytes come out.
const RUN: std::ops::RangeInclusive<u8> = 8..=20;

pub(super) const APP: App = App {
    name: "bitmap",
    kernel: "rle",
    paper: "Bitmap decompression",
    expand: Some(expand),
    unit: 2,
    data: "pairs of count and value, 14 pixels a pair on average: a ratio of 7",
    generate,
    params: |_| Vec::new(),
    host: |_| Box::new(Stored::default()),
    rest: |_| Box::new(Stored::default()),
    host_items: &["fn expand"],
    rest_items: &[],
    source: include_str!("bitmap.rs"),
    kernel_source: include_str!("../../../../fpga/kernels/src/rle.rs"),
    built: "rtl",
    built_source: include_str!("../../../../fpga/rtl/kernels/weld_rle.v"),
};

/// So many bytes when they are expanded, about.
fn generate(bytes: usize) -> Vec<u8> {
    let (mut rng, mut data, mut pixels) = (random(7), Vec::new(), 0);
    while pixels < bytes.max(4096) {
        let run = rng.random_range(RUN);
        data.extend([run, rng.random()]);
        pixels += usize::from(run);
    }
    data
}

/// The pixels of whole pairs.
fn expand(pairs: &[u8], pixels: &mut Vec<u8>) {
    pairs.chunks_exact(2).for_each(|pair| pixels.resize(pixels.len() + usize::from(pair[0]), pair[1]));
}

/// Whatever lies in the file in the end.
#[derive(Default)]
struct Stored {
    bytes: u64,
    crc: u32,
}

impl Work for Stored {
    fn piece(&mut self, data: &[u8]) {
        self.bytes += data.len() as u64;
        self.crc = weldfs_functions::crc32c_append(self.crc, data);
    }

    fn end(&mut self) -> String {
        format!("{} pixels stored, CRC-32C {:08x}", self.bytes, self.crc)
    }
}
