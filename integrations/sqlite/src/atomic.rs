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
    /// Adds a write. Where the last one that it meets has all of its range, it takes that one's place.
    pub fn push(&mut self, at: u64, data: &[u8]) {
        let end = at + data.len() as u64;
        let meets = |(start, bytes): &&mut (u64, Vec<u8>)| *start < end && at < *start + bytes.len() as u64;
        // More than these are no one command; they may be very many.
        let few = self.ranges.len() <= TXN_WRITES_MAX;
        if few
            && let Some((start, bytes)) = self.ranges.iter_mut().rev().find(meets)
            && *start <= at
            && end <= *start + bytes.len() as u64
        {
            let from = (at - *start) as usize;
            bytes[from..from + data.len()].copy_from_slice(data);
            return;
        }
        match self.ranges.last_mut() {
            Some((start, bytes)) if *start + bytes.len() as u64 == at => bytes.extend_from_slice(data),
            _ => self.ranges.push((at, data.to_vec())),
        }
    }

    /// The same, if [`Gathered::commit`] takes it with the others; whether it does.
    pub fn push_if_it_fits(&mut self, at: u64, data: &[u8]) -> bool {
        let end = at + data.len() as u64;
        let is_in = |(start, bytes): &(u64, Vec<u8>)| *start <= at && end <= *start + bytes.len() as u64;
        let is_more = || (self.bytes() + data.len()) as u64 > TXN_BYTES_MAX || self.pieces().count() >= TXN_WRITES_MAX;
        if !self.ranges.iter().any(is_in) && is_more() {
            return false;
        }
        self.push(at, data);
        true
    }

    /// Takes back what was written to a range.
    pub fn remove(&mut self, at: u64, len: usize) {
        let end = at + len as u64;
        let mut left = Vec::with_capacity(self.ranges.len());
        for (start, mut bytes) in std::mem::take(&mut self.ranges) {
            let stop = start + bytes.len() as u64;
            if end < stop && at < stop && start < end {
                left.push((end, bytes.split_off((end - start) as usize)));
            }
            if at < stop && start < end {
                bytes.truncate(at.saturating_sub(start) as usize);
            }
            if !bytes.is_empty() {
                left.push((start, bytes));
            }
        }
        self.ranges = left;
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

    /// All of it at once: one command where it fits one, else a transaction of the device. Durable when this returns,
    /// if that is asked for. TOOBIG: more than 256 pieces or 4 MiB; that, and NOSPC, DQUOT, NOMEM and MFILE, leave
    /// nothing of it done. After another error it is done or not, as a whole.
    pub fn commit(&self, file: &File, durability: Durability) -> Result<(), Errno> {
        if self.pieces().count() > COMMAND_WRITES || self.bytes() > COMMAND_BYTES {
            return transaction(file, self.pieces(), durability);
        }
        let writes: Vec<_> = self.pieces().map(|(at, data)| (file.handle(), At::Offset(at), data)).collect();
        file.raw().durability(durability).multi_write(&writes)
    }

    /// One of them goes up to here at least.
    pub fn reaches(&self, size: u64) -> bool {
        self.ranges.iter().any(|(at, bytes)| *at < size && size - *at <= bytes.len() as u64)
    }

    /// Leaves out what is behind.
    pub fn cut(&mut self, size: u64) {
        self.ranges.retain_mut(|(at, bytes)| {
            bytes.truncate(usize::try_from(size.saturating_sub(*at)).unwrap_or(usize::MAX));
            !bytes.is_empty()
        });
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
        assert_eq!(
            writes.ranges.len(),
            1,
            "what follows on the last one is one with it, and what it has takes its place"
        );
        assert_eq!(writes.end(7), 10);
        assert!(writes.reaches(10) && writes.reaches(6) && !writes.reaches(11) && !writes.reaches(4));
        let mut room = *b"01234567........";
        assert_eq!(writes.lay_over(&mut room, 0, 8), 10);
        assert_eq!(&room, b"0123aXcdef\0\0\0\0\0\0");
        writes.cut(5);
        assert_eq!((writes.ranges.len(), writes.end(0)), (1, 5));
        // Over the end of one: both are there, and the later one counts.
        let mut writes = Gathered::default();
        writes.push(0, b"aaaa");
        writes.push(8, b"bb");
        writes.push(2, b"cccc");
        writes.push(3, b"d");
        let mut room = *b"........ZZ";
        assert_eq!((writes.lay_over(&mut room, 0, 10), writes.ranges.len()), (10, 3));
        assert_eq!(&room, b"aacdcc..bb");
        writes.remove(1, 4);
        let mut room = *b"..........";
        writes.lay_over(&mut room, 0, 10);
        assert_eq!(&room, b"a....c..bb");
        writes.remove(0, 10);
        assert!(writes.is_empty());
        let mut writes = Gathered::default();
        writes.push(0, b"abcdef");
        writes.remove(2, 2);
        let mut room = *b"......";
        writes.lay_over(&mut room, 0, 6);
        assert_eq!(&room, b"ab..ef");
        // Two are there.
        assert!((2..256).all(|i| writes.push_if_it_fits(10 + i * 2, b"x")));
        assert!(!writes.push_if_it_fits(1000, b"x") && writes.push_if_it_fits(20, b"y"));
    }
}
