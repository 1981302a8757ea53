//! compress_write: compress a payload in the device and write what comes out.

use super::template::{Template, place};
use crate::program::{Body, Builder, Bytes, Codec, Fault, Micro, Transform};
use crate::{Access, At, Handle};

/// Bytes that `len` bytes compress to at most, in any of the formats.
pub const fn compressed_max(len: u32) -> u64 {
    len as u64 + len as u64 / 128 + 512
}

/// Compresses the payload into one frame (lz4 frame, zstd frame, snappy framed stream) and writes that. Pool ranges:
/// the payload. Results: the offset of the frame, and its bytes.
///
/// The client keeps both numbers: the frame says neither. E2BIG when the frame might outgrow a payload (from some
/// 1,040,000 bytes on); EBADF when the handle was not opened for writing; EOPNOTSUPP by a device without the codec.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CompressWrite {
    /// The file.
    pub h: Handle,
    /// Where the frame goes: an offset or the end (`Current` is EINVAL).
    pub at: At,
    /// Which format.
    pub codec: Codec,
    /// Bytes of the payload.
    pub len: u32,
}

impl Template for CompressWrite {
    /// Where the frame went in the file, and its length, bytes.
    type Answer = (u64, u64);

    fn body(&self) -> Result<Body, Fault> {
        let place = place(self.at)?;
        let mut b = Builder::new();
        let file = b.take(self.h, Access::WRITE);
        let from = Bytes::Pool(b.pool(self.len));
        let plain = b.buffer(self.len);
        let frame = b.buffer(u32::try_from(compressed_max(self.len)).unwrap_or(u32::MAX));
        let len = b.register();
        b.push(Micro::Fill { buf: plain, from, append: false });
        b.push(Micro::Transform { buf: frame, from: plain, how: Transform::Compress(self.codec) });
        b.push(Micro::Length { buf: frame, to: len });
        let at = b.write(file, place, Bytes::Buffer(frame));
        b.results(Some(at), Some(len));
        b.finish()
    }

    fn answer(results: (u64, u64)) -> Self::Answer {
        results
    }
}
