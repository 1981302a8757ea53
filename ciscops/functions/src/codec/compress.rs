//! Compressing, chunk by chunk.

use super::Codec;
use super::frame::Frame;
use crate::Error;
use std::io::{self, Write};

/// Compression being done: chunks go in, one frame comes out at the end.
pub struct Compressor {
    run: Run,
    /// Bytes of content that are still to come.
    left: usize,
}

/// How a snappy framed stream begins.
const SNAPPY_STREAM: &[u8] = b"\xff\x06\x00\x00sNaPpY";

enum Run {
    Lz4(Box<lz4_flex::frame::FrameEncoder<Bounded>>),
    Zstd(Frame),
    Snappy(Box<snap::write::FrameEncoder<Bounded>>),
}

/// Output with an upper bound.
struct Bounded {
    out: Vec<u8>,
    limit: usize,
}

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.len() > self.limit - self.out.len() {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.out.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The sink fails for one reason only, and nothing else can.
fn too_big(_: impl std::fmt::Debug) -> Error {
    Error::TooBig
}

impl Compressor {
    /// Begins a frame of exactly `len` bytes of content and at most `limit` bytes of output.
    pub fn new(codec: Codec, len: usize, limit: usize) -> Result<Compressor, Error> {
        let sink = || Bounded { out: Vec::with_capacity(limit.min(codec.bound(len))), limit };
        let run = match codec {
            Codec::Lz4 => {
                let info = lz4_flex::frame::FrameInfo::new()
                    .block_size(lz4_flex::frame::BlockSize::Max64KB)
                    .block_mode(lz4_flex::frame::BlockMode::Independent)
                    .content_size(Some(len as u64))
                    .content_checksum(true);
                Run::Lz4(Box::new(lz4_flex::frame::FrameEncoder::with_frame_info(info, sink())))
            }
            Codec::Zstd => Run::Zstd(Frame::new(len, limit)?),
            Codec::Snappy => Run::Snappy(Box::new(snap::write::FrameEncoder::new(sink()))),
        };
        Ok(Compressor { run, left: len })
    }

    /// The next bytes of the content; more than were announced are [`Error::Invalid`].
    pub fn update(&mut self, chunk: &[u8]) -> Result<(), Error> {
        self.left = self.left.checked_sub(chunk.len()).ok_or(Error::Invalid)?;
        match &mut self.run {
            Run::Lz4(run) => run.write_all(chunk).map_err(too_big),
            Run::Zstd(run) => run.update(chunk),
            Run::Snappy(run) => run.write_all(chunk).map_err(too_big),
        }
    }

    /// Ends the frame and gives it. Less content than was announced is [`Error::Invalid`].
    pub fn finish(self) -> Result<Vec<u8>, Error> {
        if self.left > 0 {
            return Err(Error::Invalid);
        }
        let mut sink = match self.run {
            Run::Lz4(run) => run.finish().map_err(too_big)?,
            Run::Zstd(run) => return run.finish(),
            Run::Snappy(run) => run.into_inner().map_err(too_big)?,
        };
        if sink.out.is_empty() {
            // Of no content the encoder makes no stream at all; it is one of no chunks.
            sink.write_all(SNAPPY_STREAM).map_err(too_big)?;
        }
        Ok(sink.out)
    }
}
