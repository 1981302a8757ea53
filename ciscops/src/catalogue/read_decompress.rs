//! read_decompress: read a frame and hand over its content.

use super::template::Template;
use crate::program::{Body, Builder, Codec, Fault, Micro, To, Transform, Value};
use crate::{Access, Handle};

/// Reads a frame of known length and decompresses it. Pool ranges: room for the content. Results: the bytes of content.
///
/// E2BIG when the content is longer than the room, which a frame cannot pretend away; EBADMSG when the frame is damaged
/// or of another format; ENODATA when the file ends within it; EBADF when the handle was not opened for reading;
/// EOPNOTSUPP by a device without the codec.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReadDecompress {
    /// The file.
    pub h: Handle,
    /// Where the frame begins, bytes.
    pub offset: u64,
    /// Bytes of the frame.
    pub len: u32,
    /// Which format.
    pub codec: Codec,
    /// Bytes of content at most.
    pub room: u32,
}

impl Template for ReadDecompress {
    /// Bytes of content.
    type Answer = u64;

    fn body(&self) -> Result<Body, Fault> {
        let mut b = Builder::new();
        let file = b.take(self.h, Access::READ);
        let to = b.pool(self.room);
        let (frame, plain) = (b.buffer(self.len), b.buffer(self.room));
        let count = b.register();
        b.push(Micro::Read {
            file,
            off: Value::Imm(self.offset),
            len: Value::Imm(self.len.into()),
            to: To::Buffer(frame),
            whole: true,
            pad: false,
            fold: None,
            count: None,
        });
        b.push(Micro::Transform { buf: plain, from: frame, how: Transform::Decompress(self.codec) });
        b.push(Micro::Give { buf: plain, to, count: Some(count) });
        b.results(Some(count), None);
        b.finish()
    }

    fn answer((first, _): (u64, u64)) -> Self::Answer {
        first
    }
}
