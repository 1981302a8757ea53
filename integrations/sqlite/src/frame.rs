//! A frame of a write-ahead log: SQLite writes its head and its page one right after the other, and they go to the
//! device as one write.
//!
//! Held back is only a head that follows on what was written last, for only then its page comes next. One that is
//! written anew in place (checksums of earlier frames) is an end in itself.

use std::io::{self, IoSlice};
use weldfs::{At, File};

/// Bytes of a frame's head.
const HEAD: usize = 24;

/// What was written last through one open log.
#[derive(Default)]
pub struct Frames {
    /// A head without its page, and where it goes.
    head: Option<(u64, [u8; HEAD])>,
    /// Where the last write ended.
    end: u64,
}

impl Frames {
    /// Writes, now or with the page that follows.
    pub fn write(&mut self, file: &File, data: &[u8], at: u64) -> io::Result<()> {
        if let (true, None, Ok(head)) = (at == self.end, self.head, <[u8; HEAD]>::try_from(data)) {
            self.head = Some((at, head));
            self.end = at + HEAD as u64;
            return Ok(());
        }
        // Gone whatever comes of it: SQLite gives up what failed, and another connection may write in its place.
        match self.head.take() {
            Some((start, head)) if at == start + HEAD as u64 => {
                let parts = [IoSlice::new(&head), IoSlice::new(data)];
                // A frame is far shorter than what one command writes whole.
                file.raw().durability(weldfs::Durability::Volatile).write(
                    file.handle(),
                    At::Offset(start),
                    weldfs::Payload::Gather(&parts),
                )?;
            }
            head => {
                self.head = head;
                self.send(file)?;
                file.write_all_at(data, at)?;
            }
        }
        self.end = at + data.len() as u64;
        Ok(())
    }

    /// Everything written is in the device.
    pub fn send(&mut self, file: &File) -> io::Result<()> {
        self.head.take().map_or(Ok(()), |(at, head)| file.write_all_at(&head, at))
    }
}
