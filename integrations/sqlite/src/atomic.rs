//! The writes of one commit, kept until they are sent as one.

use crate::code;
use crate::fault::{Done, Fault};
use weldfs::{At, Durability, Errno, File};

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

    /// All of it at once, durable when this returns: one command where it fits one, else a transaction of the device.
    /// What fits neither is COMMIT_ATOMIC, upon which SQLite takes a journal.
    pub fn commit(&self, file: &File) -> Done {
        let bytes: usize = self.ranges.iter().map(|(_, bytes)| bytes.len()).sum();
        let pieces = || {
            let piece = |(start, bytes): &'_ (u64, Vec<u8>)| {
                let start = *start;
                let (n, len) = (bytes.len().div_ceil(PIECE), bytes.len());
                (0..n).map(move |i| (start + (i * PIECE) as u64, i * PIECE..len.min((i + 1) * PIECE)))
            };
            self.ranges.iter().flat_map(move |range| piece(range).map(|(at, part)| (at, &range.1[part])))
        };
        let sent = if pieces().count() <= COMMAND_WRITES && bytes <= COMMAND_BYTES {
            let writes: Vec<_> = pieces().map(|(at, data)| (file.handle(), At::Offset(at), data)).collect();
            file.raw().durability(Durability::Durable).multi_write(&writes)
        } else {
            transaction(file, pieces())
        };
        sent.map_err(|e| match e {
            Errno::TOOBIG => Fault::quiet(code::IOERR_COMMIT_ATOMIC),
            Errno::NOSPC | Errno::DQUOT => Fault::of(code::FULL, e, || "commit".into()),
            e => Fault::of(code::IOERR_COMMIT_ATOMIC, e, || "commit".into()),
        })
    }
}

/// Collected by the device, and then one commit.
fn transaction<'d>(file: &File, pieces: impl Iterator<Item = (u64, &'d [u8])>) -> Result<(), Errno> {
    let txn = file.client().transaction()?;
    for (at, data) in pieces {
        txn.write(file, At::Offset(at), data)?;
    }
    txn.commit_with(Durability::Durable).map(drop)
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
