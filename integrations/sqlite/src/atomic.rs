//! The writes of one commit, kept until they are sent as one.

use weldfs::{At, Durability, Errno, File};
use weldfs_ciscops::limits::{TXN_BYTES_MAX, TXN_WRITES_MAX};

/// Writes that one command takes beside the file that they go to.
const COMMAND_WRITES: usize = weldfs_ciscops::limits::MICRO_OPS_MAX - 1;
/// Bytes that one command takes here: they and the command must fit the pool that a thread gets for large calls.
const COMMAND_BYTES: usize = 3 << 20;
/// Bytes of one write of a command.
const PIECE: usize = weldfs_ciscops::limits::ATOMIC_WRITE_MAX as usize;

/// Writes, in the order in which they came; those that follow on each other are one.
#[derive(Default)]
pub struct Gathered {
    ranges: Vec<(u64, Vec<u8>)>,
}

impl Gathered {
    /// Adds a write.
    pub fn push(&mut self, at: u64, data: &[u8]) {
        match self.ranges.last_mut() {
            Some((start, bytes)) if *start + bytes.len() as u64 == at => bytes.extend_from_slice(data),
            _ => self.ranges.push((at, data.to_vec())),
        }
    }

    /// Where the file ends once they are done, if it ends here now.
    pub fn end(&self, size: u64) -> u64 {
        self.ranges.iter().map(|(at, bytes)| at + bytes.len() as u64).fold(size, u64::max)
    }

    /// Puts what was written over what was read from `at`, of which `n` bytes were there. How many are there with it.
    pub fn lay_over(&self, room: &mut [u8], at: u64, n: usize) -> usize {
        room[n..].fill(0);
        let (end, mut there) = (at + room.len() as u64, n);
        for (start, bytes) in &self.ranges {
            let (from, to) = ((*start).max(at), (start + bytes.len() as u64).min(end));
            if from < to {
                let data = &bytes[(from - start) as usize..(to - start) as usize];
                room[(from - at) as usize..(to - at) as usize].copy_from_slice(data);
                there = there.max((to - at) as usize);
            }
        }
        there
    }

    /// Nothing was written.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Bytes, and writes of at most [`PIECE`] bytes.
    fn pieces(&self) -> impl Iterator<Item = (u64, &[u8])> {
        self.ranges.iter().flat_map(|(start, bytes)| {
            let at = move |i| start + (i * PIECE) as u64;
            bytes.chunks(PIECE).enumerate().map(move |(i, piece)| (at(i), piece))
        })
    }

    fn bytes(&self) -> usize {
        self.ranges.iter().map(|(_, bytes)| bytes.len()).sum()
    }

    /// It is more than [`Gathered::commit`] takes.
    pub fn is_too_big(&self) -> bool {
        self.bytes() as u64 > TXN_BYTES_MAX || self.pieces().count() > TXN_WRITES_MAX
    }

    /// All of it at once: one command where it fits one, else a transaction of the device. Durable when this returns,
    /// if that is asked for. An error leaves nothing of it done. TOOBIG: more than 256 pieces or 4 MiB.
    pub fn commit(&self, file: &File, durability: Durability) -> Result<(), Errno> {
        if self.pieces().count() > COMMAND_WRITES || self.bytes() > COMMAND_BYTES {
            return transaction(file, self.pieces(), durability);
        }
        let writes: Vec<_> = self.pieces().map(|(at, data)| (file.handle(), At::Offset(at), data)).collect();
        file.raw().durability(durability).multi_write(&writes)
    }

    /// One after the other, volatile. After an error some of them are done.
    pub fn write(&self, file: &File) -> std::io::Result<()> {
        self.ranges.iter().try_for_each(|(at, bytes)| file.write_all_at(bytes, *at))
    }
}

/// Collected by the device, and then one commit.
fn transaction<'d>(
    file: &File,
    pieces: impl Iterator<Item = (u64, &'d [u8])>,
    durability: Durability,
) -> Result<(), Errno> {
    let txn = file.client().transaction()?;
    for (at, data) in pieces {
        txn.write(file, At::Offset(at), data)?;
    }
    txn.commit_with(durability).map(drop)
}

#[cfg(test)]
mod tests {
    use super::Gathered;

    #[test]
    fn what_is_read_back_before_the_commit_is_what_was_written() {
        let mut writes = Gathered::default();
        writes.push(4, b"abcd");
        writes.push(8, b"ef");
        writes.push(5, b"X");
        assert_eq!(writes.ranges.len(), 2, "what follows on the last one is one with it");
        assert_eq!(writes.end(7), 10);
        let mut room = *b"01234567........";
        assert_eq!(writes.lay_over(&mut room, 0, 8), 10);
        assert_eq!(&room, b"0123aXcdef\0\0\0\0\0\0");
    }
}
