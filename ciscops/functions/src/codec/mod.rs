//! Compression. Output is in the formats of the command-line tools: an lz4 frame, a zstd frame, a snappy framed stream.
//!
//! Both directions work in pieces, so that whoever runs them can make way in between, and both have a bound on their
//! output: what would exceed it is [`Error::TooBig`], after at most one piece more of work. Memory beside input and
//! output is bounded by [`Codec::working_bytes`], whatever the input says.

mod compress;
mod decompress;
mod frame;

pub use compress::Compressor;
pub use decompress::Decompressor;
pub use frame::give_back;

use crate::{Error, working};

/// log2 of the largest window that a zstd frame may ask for: 8 MiB, what `zstd -19` uses at most.
const ZSTD_WINDOW_LOG_MAX: u32 = 23;

/// Which format.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Codec {
    /// LZ4 frame format, independent 64 KiB blocks, with the checksum of the content; read are blocks of up to 4 MiB
    /// that may depend on each other, but not the legacy format with its blocks of 8 MiB.
    Lz4,
    /// Zstandard frame (RFC 8878), level 3, blocks of at most 16 KiB, with the checksum of the content.
    Zstd,
    /// Snappy framing format: chunks of at most 64 KiB with a masked CRC-32C each. The format has no end mark: a stream
    /// cut between two chunks reads as a shorter one.
    Snappy,
}

impl Codec {
    /// Every codec.
    pub const ALL: [Codec; 3] = [Codec::Lz4, Codec::Zstd, Codec::Snappy];

    /// Bytes that `len` bytes compress to at most.
    pub fn bound(self, len: usize) -> usize {
        let blocks = len.div_ceil(64 << 10).max(1);
        match self {
            // Frame header 19, per block its size, then the end mark and the checksum; a block that does not shrink is
            // stored as it is.
            Codec::Lz4 => len + 19 + 4 * blocks + 8,
            Codec::Zstd => zstd::zstd_safe::compress_bound(len) + 32,
            // Stream identifier; per chunk its type, length and checksum.
            Codec::Snappy => len + 10 + 8 * blocks,
        }
    }

    /// Bytes of memory that one run may take beside input and output: tables and windows.
    pub const fn working_bytes(self) -> usize {
        match self {
            Codec::Lz4 => working::LZ4_BYTES,
            Codec::Zstd => working::ZSTD_BYTES,
            Codec::Snappy => working::SNAPPY_BYTES,
        }
    }

    /// Compresses all of `input` at once.
    pub fn compress(self, input: &[u8], limit: usize) -> Result<Vec<u8>, Error> {
        let mut run = Compressor::new(self, input.len(), limit)?;
        run.update(input)?;
        run.finish()
    }

    /// Decompresses all of `input` at once.
    pub fn decompress(self, input: &[u8], limit: usize) -> Result<Vec<u8>, Error> {
        let (mut run, mut out) = (Decompressor::new(self, input, limit)?, Vec::new());
        while run.step(&mut out, limit.max(1))? {}
        Ok(out)
    }
}
