//! The seven applications: their data, what the host does in each form, and what a kernel does.
//!
//! Shapes are those of INSIDER's table 3 (rows, records, dimensions), in fewer rows. What is found in the data is
//! planted there at rates that the paper does not give: they are stated with each application, since the bytes over the
//! link follow from them.

mod bitmap;
pub mod grep;
mod integrate;
mod knn;
mod relief;
mod sql;
mod statistics;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// Work on a stream that comes in pieces.
pub trait Work {
    /// The next piece: whole units.
    fn piece(&mut self, data: &[u8]);
    /// What it comes to: the same text for the same answer, whichever form found it.
    fn end(&mut self) -> String;
}

/// Expands whole units; what they come to is appended.
pub type Expand = fn(&[u8], &mut Vec<u8>);

/// One application.
pub struct App {
    /// As in tables and JSON.
    pub name: &'static str,
    /// The kernel's name.
    pub kernel: &'static str,
    /// As the paper's tables call it.
    pub paper: &'static str,
    /// Data goes into the drive, and this is the host's work on it (a write kernel's); `None`: it comes from there.
    pub expand: Option<Expand>,
    /// Bytes of one unit of its data, which is not divided between pieces.
    pub unit: usize,
    /// What its data is, and how much of it is planted.
    pub data: &'static str,
    /// The data, of about so many bytes: whole units. Of a write kernel: what the kernel takes.
    pub generate: fn(usize) -> Vec<u8>,
    /// Parameters of the kernel, for so many bytes of data.
    pub params: fn(usize) -> Vec<u32>,
    /// All of the work on the host; of a write kernel, what looks at the stored file.
    pub host: fn(usize) -> Box<dyn Work>,
    /// What the host does with the kernel's output.
    pub rest: fn(usize) -> Box<dyn Work>,
    /// Items of the file, or of this one, that are the host's program when it does all, and when a kernel helps.
    pub host_items: &'static [&'static str],
    /// The latter.
    pub rest_items: &'static [&'static str],
    /// Text of the application's file, for counting lines.
    pub source: &'static str,
    /// Text of the file of the kernel's model.
    pub kernel_source: &'static str,
    /// The kernel's back-end beside the model: `rtl` or `hls`.
    pub built: &'static str,
    /// Text of the kernel's file there.
    pub built_source: &'static str,
}

/// Text of this file: what several applications share.
pub const SHARED: &str = include_str!("mod.rs");

/// All of them, in the order of the paper's tables.
pub const APPS: [App; 7] = [grep::APP, knn::APP, statistics::APP, sql::APP, integrate::APP, relief::APP, bitmap::APP];

/// The same data in every run.
fn random(seed: u64) -> SmallRng {
    SmallRng::seed_from_u64(seed)
}

/// Bytes packed into words, the first lowest.
fn words(bytes: &[u8]) -> impl Iterator<Item = u32> + '_ {
    bytes.chunks(4).map(|c| c.iter().rev().fold(0, |word, byte| word << 8 | u32::from(*byte)))
}

/// A u32 of a stream, little-endian.
fn u32_at(data: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([data[at], data[at + 1], data[at + 2], data[at + 3]])
}

/// A count and a checksum: the answer of those that give a long list.
#[derive(Default)]
struct Digest {
    count: u64,
    crc: u32,
}

impl Digest {
    fn add(&mut self, bytes: &[u8]) {
        self.count += 1;
        self.crc = weldfs_functions::crc32c_append(self.crc, bytes);
    }

    fn say(&self, what: &str) -> String {
        format!("{} {what}, CRC-32C {:08x}", self.count, self.crc)
    }
}

/// Work whose input is the answer, in units of a length: nothing is left for the host but to look at it.
struct Count {
    unit: u64,
    what: &'static str,
    bytes: u64,
    crc: u32,
}

impl Count {
    fn of(unit: usize, what: &'static str) -> Box<dyn Work> {
        Box::new(Count { unit: unit as u64, what, bytes: 0, crc: 0 })
    }
}

impl Work for Count {
    fn piece(&mut self, data: &[u8]) {
        (self.bytes, self.crc) = (self.bytes + data.len() as u64, weldfs_functions::crc32c_append(self.crc, data));
    }

    fn end(&mut self) -> String {
        let digest = Digest { count: self.bytes.div_ceil(self.unit), crc: self.crc };
        digest.say(self.what)
    }
}

/// Letters and spaces.
fn text(rng: &mut SmallRng, into: &mut [u8]) {
    const LETTERS: &[u8; 32] = b"etaoin shrdlu cmfwyp vbgkjqxz .,";
    rng.fill(into);
    into.iter_mut().for_each(|b| *b = LETTERS[usize::from(*b & 31)]);
}
