//! append_and_sync: append a payload; it is durable when the command completes.

use super::template::Template;
use crate::program::{Body, Builder, Bytes, Fault, Micro, Place};
use crate::{Access, Handle};

/// Appends a payload durably: a write and an fdatasync. Pool ranges: the payload. Results: its offset.
///
/// The same as `write` at the end with a durability of *durable*, as a program to be extended. EBADF when the handle
/// was not opened for writing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AppendAndSync {
    /// The file.
    pub h: Handle,
    /// Bytes of the payload.
    pub len: u32,
}

impl Template for AppendAndSync {
    /// Where it went in the file, bytes.
    type Answer = u64;

    fn body(&self) -> Result<Body, Fault> {
        let mut b = Builder::new();
        let file = b.take(self.h, Access::WRITE);
        let payload = Bytes::Pool(b.pool(self.len));
        let at = b.write(file, Place::End, payload);
        b.push(Micro::Sync);
        b.results(Some(at), None);
        b.finish()
    }

    fn answer((offset, _): (u64, u64)) -> Self::Answer {
        offset
    }
}
