//! How an open file is read: what of it is brought and kept, under which watch, and whether that pays.

use crate::chunks::{self, CHUNK};
use crate::place::Found;
use weldfs::{Kept, Watched};

/// Bytes that are brought for a program that reads in order, from the beginning of a read on. With what is before it in
/// its chunk they are no more than a device gives at once.
const AHEAD: u64 = 48 << 10;
/// Pieces that are brought for such a program until it is seen whether that pays.
const ROW: u32 = 4;
/// Reads that go without, at most, after one that did not pay.
const WITHOUT_MAX: u32 = 255;

/// An open file as it is read. In the table, where it is used again for the next one.
pub struct Reader {
    /// Of which open file all of this is.
    of: Option<Found>,
    /// By what it is known that its chunks are as they were.
    pub watched: Option<Watched>,
    /// Under which name its chunks are kept.
    epoch: u64,
    /// Whether there was a read, where the last one ended, and how many in a row began where one before them ended.
    begun: bool,
    next: u64,
    row: u32,
    /// Bytes of the file when it was opened.
    size: u64,
    /// Whether anything was ever brought; reads that were answered here, and those that brought something, since it was
    /// last seen whether that pays.
    tried: bool,
    answered: u32,
    brought: u32,
    /// So many reads go without, and so many after the next one that does not pay.
    without: u32,
    penalty: u32,
}

impl Reader {
    /// Of no file.
    pub const fn new() -> Reader {
        Reader {
            of: None,
            watched: None,
            epoch: 0,
            begun: false,
            next: 0,
            row: 0,
            size: 0,
            tried: false,
            answered: 0,
            brought: 0,
            without: 0,
            penalty: 0,
        }
    }

    /// Of the open file whose place was found.
    pub fn of(file: Found, size: u64) -> Reader {
        Reader { of: Some(file), size, ..Reader::new() }
    }

    /// Whether it is of that file.
    pub fn is_of(&self, file: Found) -> bool {
        self.of.is_some_and(|of| of.is_same_file(file))
    }

    /// Whether nothing is brought for this read.
    pub fn goes_without(&mut self) -> bool {
        if self.without == 0 {
            return false;
        }
        self.without -= 1;
        // What is found meanwhile is luck, and says nothing of what is to be brought next.
        (self.answered, self.brought) = (0, 0);
        true
    }

    /// Notes a read that begins here.
    pub fn begin(&mut self, at: u64) {
        self.row = if self.begun && at == self.next { self.row.saturating_add(1) } else { 0 };
    }

    /// And where it ended.
    pub fn end(&mut self, next: u64) {
        (self.begun, self.next) = (true, next);
    }

    /// Whether all of the file may be kept.
    fn fits(&self) -> bool {
        self.size <= chunks::room() as u64 / 2
    }

    /// Which bytes are to be brought for a read, if any beside its own: of the first one, none.
    pub fn span(&self, at: u64, n: usize) -> Option<(u64, u32)> {
        let start = at - at % CHUNK as u64;
        let wanted = if self.row > 0 { AHEAD } else { n as u64 };
        let end = (at + wanted).next_multiple_of(CHUNK as u64);
        let may = self.row > 0 || (self.begun && self.fits());
        (may && chunks::are_kept()).then_some((start, (end - start) as u32))
    }

    /// A read brought bytes that are current for as long as that is said, or not: then under which name they are kept.
    pub fn note(&mut self, kept: Kept) -> Option<u64> {
        let first = !std::mem::replace(&mut self.tried, true);
        match kept {
            Kept::GoesOn => {
                self.brought += 1;
                // Of a file that fits: all of it twice.
                let enough = if self.fits() { 2 * self.size / CHUNK as u64 + 16 } else { ROW.into() };
                if u64::from(self.brought) >= enough {
                    // This one has answered nothing yet but its own read.
                    self.judge(self.answered + 1 >= self.brought);
                }
            }
            // What was brought before is of no use any more.
            Kept::Anew => {
                self.judge(first || self.answered > 0);
                self.epoch = chunks::new_epoch();
            }
            Kept::No => {
                self.judge(false);
                self.epoch = 0;
            }
        }
        (self.epoch != 0).then_some(self.epoch)
    }

    /// What was to be brought was not.
    pub fn failed(&mut self) {
        self.judge(false);
    }

    fn judge(&mut self, paid: bool) {
        (self.answered, self.brought) = (0, 0);
        self.penalty = if paid { 0 } else { (2 * self.penalty + 1).min(WITHOUT_MAX) };
        self.without = self.penalty;
    }

    /// What is kept from an offset on, if all that is asked for is, or the file ends before.
    pub fn find(&mut self, at: u64, room: &mut [u8]) -> Option<usize> {
        if !self.watched.as_ref().is_some_and(Watched::is_current) {
            return None;
        }
        // First it is seen whether all of it is here: what is not given should not be in the caller's memory either.
        for chunk in at / CHUNK as u64..(at + room.len() as u64).div_ceil(CHUNK as u64) {
            if chunks::kept(self.epoch, chunk)? < CHUNK {
                break;
            }
        }
        let mut done = 0;
        while done < room.len() {
            let from = at + done as u64;
            let (chunk, within) = (from / CHUNK as u64, (from % CHUNK as u64) as usize);
            let part = (CHUNK - within).min(room.len() - done);
            let got = chunks::find(self.epoch, chunk, within, &mut room[done..done + part])?;
            done += got;
            if got < part {
                break;
            }
        }
        self.answered = self.answered.saturating_add(1);
        Some(done)
    }
}
