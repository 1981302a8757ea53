//! How an open file is read: what of it is brought and kept, under which watch, and whether that pays.

use crate::chunks::{self, CHUNK};
use crate::config;
use crate::place::{Found, Place};
use weldfs::{Kept, Watched};

/// Bytes that are brought for a program that reads in order.
const AHEAD: u64 = 64 << 10;
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
    /// Bytes of the file, as far as they were known.
    size: Option<u64>,
    /// Reads that were answered here, and those that brought something, since the watch began.
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
            size: None,
            answered: 0,
            brought: 0,
            without: 0,
            penalty: 0,
        }
    }

    /// Of the open file that has this place.
    pub fn of(place: &Place, size: Option<u64>) -> Reader {
        Reader { of: Some(place.find()), size, ..Reader::new() }
    }

    /// Whether it is of that file.
    pub fn is_of(&self, place: &Place) -> bool {
        self.of.is_some_and(|of| place.is_of(of))
    }

    /// Whether nothing is brought for this read.
    pub fn goes_without(&mut self) -> bool {
        let without = self.without > 0;
        self.without = self.without.saturating_sub(1);
        without
    }

    /// Notes a read that begins here.
    pub fn begin(&mut self, at: u64) {
        self.row = if self.begun && at == self.next { self.row.saturating_add(1) } else { 0 };
    }

    /// And where it ended.
    pub fn end(&mut self, next: u64) {
        (self.begun, self.next) = (true, next);
    }

    /// Which bytes are to be brought for a read, if any beside its own: of the first one, none.
    pub fn span(&self, at: u64, n: usize) -> Option<(u64, u32)> {
        let room = config::get().map_or(0, |config| config.cache) as u64;
        let fits = self.begun && self.size.is_some_and(|size| size <= room / 2);
        let start = at - at % CHUNK as u64;
        let end = (at + n as u64).next_multiple_of(CHUNK as u64);
        let ahead = if self.row > 0 { end.max(start + AHEAD) } else { end };
        (room > 0 && (self.row > 0 || fits)).then_some((start, (ahead - start) as u32))
    }

    /// A read brought bytes that are current for as long as that is said, or not: then under which name they are kept.
    pub fn note(&mut self, kept: Kept) -> Option<u64> {
        if kept == Kept::GoesOn {
            self.brought += 1;
            // All of it twice, and little of that was read again.
            let twice = 2 * self.size.unwrap_or(0) / CHUNK as u64 + 16;
            if self.row > 0 || u64::from(self.brought) < twice || self.answered >= self.brought {
                return Some(self.epoch);
            }
        }
        let paid = kept == Kept::Anew && (self.answered > 0 || self.epoch == 0);
        (self.answered, self.brought) = (0, 0);
        self.penalty = if paid { 0 } else { (2 * self.penalty + 1).min(WITHOUT_MAX) };
        self.without = self.penalty;
        match kept {
            Kept::GoesOn => {}
            // What was brought before is of no use any more.
            Kept::Anew => self.epoch = chunks::new_epoch(),
            Kept::No => self.epoch = 0,
        }
        (self.epoch != 0).then_some(self.epoch)
    }

    /// What is kept from an offset on, if all that is asked for is, or the file ends before.
    pub fn find(&mut self, at: u64, room: &mut [u8]) -> Option<usize> {
        if !self.watched.as_ref().is_some_and(Watched::is_current) {
            return None;
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
