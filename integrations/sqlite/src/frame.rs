//! Frames of a write-ahead log on their way to the device.
//!
//! SQLite writes each frame's head and page by a call of its own, at the end of the log, and nothing reads a frame
//! before the index says that it is there, which is after the frame that ends its transaction was written. So frames
//! are held back until that one, which its head tells, and go to the device as one write. If the last commits were
//! synced, that write is durable, and the sync has nothing left to do: see [`Guess`].
//!
//! Frames belong to whichever connection holds SQLite's write lock. What is held back when it is given up is of a
//! transaction that was rolled back; the next writer's frames go to the same place, so it must never be sent after
//! that. A connection that took no such lock (`locking_mode=exclusive`) has only heads held back.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use weldfs::{Durability, File};
use weldfs_ciscops::limits::ATOMIC_WRITE_MAX;
use weldfs_locks::Mutex;

/// Bytes of a frame's head.
const HEAD: usize = 24;
/// Where a head says how many pages the database has after the commit that the frame ends; 0: it ends none.
const SIZE_AFTER: std::ops::Range<usize> = 4..8;
/// Bytes of the smallest page, and of the largest.
const PAGE_MIN: usize = 512;
const PAGE_MAX: usize = 65536;
/// Held back at most, bytes: one write.
const MOST: usize = ATOMIC_WRITE_MAX as usize;
/// Memory that is kept for the next transaction, bytes.
const KEPT: usize = 256 << 10;

/// A database's path and inode number: what locks and index go by is the latter.
type Database = (Vec<u8>, u64);

/// The logs of a device's databases that this process has open.
#[derive(Default)]
pub struct Logs(Mutex<HashMap<Database, Weak<Log>>>);

/// One log, for all connections of this process.
#[derive(Default)]
pub struct Log {
    /// A connection of this process holds the write lock.
    written: AtomicBool,
    held: Mutex<Vec<Weak<Mutex<Held>>>>,
}

/// What one connection has written and the device has not.
#[derive(Default)]
struct Held {
    start: u64,
    bytes: Vec<u8>,
    /// Nothing was written since the write lock was taken: what comes first, and is a head, goes to the log's end.
    is_fresh: bool,
    /// A commit was written since then: what comes behind it only fills a sector, and is there at once.
    is_over: bool,
    /// All that was written under this lock is durable.
    settled: bool,
}

/// A connection's way into a log.
pub struct Frames {
    log: Arc<Log>,
    held: Arc<Mutex<Held>>,
    /// Where the last write ended.
    end: u64,
    /// It was a head; it was a part of a page, whose rest may have the length of one; and whether the last head was
    /// that of a frame that ends a commit.
    page_next: bool,
    is_cut: bool,
    ends_commit: bool,
    guess: Guess,
}

impl Logs {
    /// That of a database.
    pub fn of(&self, database: &[u8], ino: u64) -> Arc<Log> {
        let (mut all, key) = (self.0.lock(), (database.to_vec(), ino));
        if let Some(log) = all.get(&key).and_then(Weak::upgrade) {
            return log;
        }
        all.retain(|_, log| log.strong_count() > 0);
        let log = Arc::new(Log::default());
        all.insert(key, Arc::downgrade(&log));
        log
    }
}

impl Log {
    /// The write lock was taken, or is about to be given back. What is held back is of a transaction that is over, and
    /// others may write, or have written, what is not durable.
    pub fn written(&self, written: bool) {
        self.written.store(written, Ordering::Release);
        let begin = |held: Arc<Mutex<Held>>| {
            let mut held = held.lock();
            held.clear();
            (held.is_fresh, held.is_over, held.settled) = (written, false, false);
        };
        self.held.lock().retain(|held| held.upgrade().map(begin).is_some());
    }
}

impl Held {
    fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(KEPT);
    }

    fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }

    /// Sends it. A failure leaves it held back.
    fn send(&mut self, file: &File, durability: Durability) -> io::Result<()> {
        if !self.bytes.is_empty() {
            file.write_all_with(&self.bytes, self.start, durability)?;
            self.clear();
        }
        Ok(())
    }

    /// The same out of a write. SQLite gives up the transaction whose write failed, so that nothing of it may come
    /// later, and its commit least of all.
    fn send_or_forget(&mut self, file: &File, durability: Durability) -> io::Result<()> {
        let sent = self.send(file, durability);
        self.clear();
        sent
    }
}

impl Frames {
    /// Nothing written yet.
    pub fn new(log: Arc<Log>) -> Frames {
        let held = Arc::new(Mutex::new(Held::default()));
        log.held.lock().push(Arc::downgrade(&held));
        Frames { log, held, end: 0, page_next: false, is_cut: false, ends_commit: false, guess: Guess::default() }
    }

    /// Writes, now or with what follows. Only what goes to the log's end may be held back: one that is written anew in
    /// place (checksums of earlier frames, a log begun anew) is an end in itself.
    pub fn write(&mut self, file: &File, data: &[u8], at: u64) -> io::Result<()> {
        let mut held = self.held.lock();
        let is_head = data.len() == HEAD;
        let is_fresh = std::mem::take(&mut held.is_fresh);
        let follows = at == self.end || is_fresh && is_head;
        self.page_next &= !is_fresh;
        let page = follows && self.page_next;
        self.page_next = follows && is_head && !page && !held.is_over && !self.is_cut;
        self.is_cut = page && !(data.len().is_power_of_two() && data.len() >= PAGE_MIN);
        self.end = at + data.len() as u64;
        held.settled = false;
        if self.page_next {
            self.ends_commit = data[SIZE_AFTER] != [0; 4];
            if held.bytes.len() + HEAD + PAGE_MAX > MOST {
                held.send_or_forget(file, Durability::Volatile)?;
            }
            if held.bytes.is_empty() {
                held.start = at;
            }
            held.bytes.extend_from_slice(data);
            return Ok(());
        }
        if !page || held.bytes.is_empty() || held.end() != at || data.len() > PAGE_MAX {
            held.send_or_forget(file, Durability::Volatile)?;
            return file.write_all_at(data, at);
        }
        held.bytes.extend_from_slice(data);
        let is_locked = self.log.written.load(Ordering::Acquire);
        if !self.ends_commit && is_locked {
            return Ok(());
        }
        let durable = self.ends_commit && self.guess.at_commit();
        held.send_or_forget(file, if durable { Durability::Durable } else { Durability::Volatile })?;
        held.is_over = self.ends_commit && is_locked;
        held.settled = durable;
        Ok(())
    }

    /// Everything written is in the device. A failure leaves held back what is: SQLite may go on with the transaction.
    pub fn send(&mut self, file: &File) -> io::Result<()> {
        self.held.lock().send(file, Durability::Volatile)
    }

    /// The same, if any of it is in a range that is read.
    pub fn send_for(&mut self, file: &File, at: u64, len: usize) -> io::Result<()> {
        let mut held = self.held.lock();
        let meets = at < held.end() && held.start < at + len as u64;
        if meets { held.send(file, Durability::Volatile) } else { Ok(()) }
    }

    /// The same before the log is cut, which is to be synced then.
    pub fn cut(&mut self, file: &File) -> io::Result<()> {
        let mut held = self.held.lock();
        held.settled = false;
        held.send(file, Durability::Volatile)
    }

    /// SQLite syncs the log: whether all is durable already.
    pub fn sync(&mut self) -> bool {
        self.guess.at_sync();
        self.held.lock().settled
    }
}

/// Whether a commit will be synced, because those before it were. A wrong guess makes durable what need not be, and
/// costs a flush; each one doubles the number of synced commits in a row that the next guess needs.
struct Guess {
    /// The last commit was not synced yet, and whether it was guessed that it would be.
    open: bool,
    guessed: bool,
    /// Commits in a row that were synced.
    synced: u32,
    needed: u32,
}

/// Synced commits in a row that are needed at first: the one sync of a checkpoint is no reason.
const NEEDED: u32 = 2;
/// And at most.
const NEEDED_MAX: u32 = 64;

impl Default for Guess {
    fn default() -> Guess {
        Guess { open: false, guessed: false, synced: 0, needed: NEEDED }
    }
}

impl Guess {
    fn at_commit(&mut self) -> bool {
        if self.open {
            self.synced = 0;
            if self.guessed {
                self.needed = (self.needed * 2).min(NEEDED_MAX);
            }
        }
        (self.open, self.guessed) = (true, self.synced >= self.needed);
        self.guessed
    }

    fn at_sync(&mut self) {
        self.synced += u32::from(std::mem::take(&mut self.open));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weldfs::{Client, OpenOptions};
    use weldfs_device::DeviceConfig;
    use weldfs_kernel_shim::{Embedded, Source};

    const PAGE: usize = 4096;

    struct Rig {
        client: Client,
        file: File,
        log: Arc<Log>,
    }

    impl Rig {
        fn new() -> Rig {
            let embedded = Embedded::open(&Source::Ram(64 << 20), DeviceConfig::default()).unwrap();
            let client = Client::with(Arc::new(embedded)).unwrap();
            let options = OpenOptions::new().read(true).write(true).create(true);
            let file = client.open("/a.db-wal", &options).unwrap();
            Rig { client, file, log: Logs::default().of(b"/a.db", 1) }
        }

        /// A connection that has begun the log.
        fn connection(&self) -> Frames {
            let mut frames = Frames::new(self.log.clone());
            frames.write(&self.file, &[7; 32], 0).unwrap();
            frames
        }

        /// Writes frames of one byte each, the last of which ends a commit or not; whether it was durable.
        fn add(&self, frames: &mut Frames, fills: &[u8], commits: bool) -> bool {
            self.add_at(frames, frames.end, fills, commits)
        }

        fn add_at(&self, frames: &mut Frames, mut at: u64, fills: &[u8], commits: bool) -> bool {
            for (i, fill) in fills.iter().enumerate() {
                let mut head = [*fill; HEAD];
                head[SIZE_AFTER].fill(u8::from(commits && i + 1 == fills.len()));
                frames.write(&self.file, &head, at).unwrap();
                frames.write(&self.file, &[*fill; PAGE], at + HEAD as u64).unwrap();
                at = frames.end;
            }
            frames.held.lock().settled
        }

        /// Pages in the device's file, by what fills them.
        fn there(&self) -> Vec<u8> {
            let mut all = vec![0; self.file.metadata().unwrap().len() as usize];
            self.file.read_exact_at(&mut all, 0).unwrap();
            all[32..].chunks(HEAD + PAGE).map(|frame| frame[HEAD]).collect()
        }

        fn commands(&self) -> u64 {
            let stats: serde_json::Value = serde_json::from_str(&self.client.stats_json().unwrap()).unwrap();
            stats["total"]["commands_by_opcode"]["write"].as_u64().unwrap()
        }
    }

    #[test]
    fn a_transaction_of_the_lock_holder_is_one_write() {
        let rig = Rig::new();
        let mut frames = rig.connection();
        rig.log.written(true);
        let before = rig.commands();
        rig.add(&mut frames, &[1, 2, 3], false);
        assert!(rig.there().is_empty());
        rig.add(&mut frames, &[4], true);
        assert_eq!(rig.there(), [1, 2, 3, 4]);
        assert_eq!(rig.commands() - before, 1);
        rig.add(&mut frames, &[5], false);
        frames.send(&rig.file).unwrap();
        assert_eq!(rig.there(), [1, 2, 3, 4, 5], "what is read of the log is sent before");
        rig.log.written(false);
    }

    #[test]
    fn what_was_rolled_back_is_never_sent_over_what_others_commit() {
        let rig = Rig::new();
        let (mut one, mut other) = (rig.connection(), rig.connection());
        rig.log.written(true);
        rig.add(&mut one, &[1, 2], false);
        rig.log.written(false);
        rig.log.written(true);
        rig.add(&mut other, &[3], true);
        rig.log.written(false);
        one.send(&rig.file).unwrap();
        assert_eq!(rig.there(), [3]);
        // It goes on where the other ended, which is not where its own last write did, and with one write all the same.
        rig.log.written(true);
        let before = rig.commands();
        rig.add_at(&mut one, other.end, &[4, 5], true);
        assert_eq!(rig.there(), [3, 4, 5]);
        assert_eq!(rig.commands() - before, 1);
    }

    /// A frame that fills a sector, cut as SQLite cuts it where that ends: what is behind has the length of a head.
    fn behind_a_commit(rig: &Rig, frames: &mut Frames, there: &[u8]) {
        frames.end = 32 + (there.len() as u64 - 1) * (HEAD + PAGE) as u64;
        frames.write(&rig.file, &[1; HEAD], frames.end).unwrap();
        frames.write(&rig.file, &[5; PAGE - HEAD], frames.end).unwrap();
        frames.write(&rig.file, &[5; HEAD], frames.end).unwrap();
        assert_eq!(rig.there(), there);
        assert_eq!(rig.file.metadata().unwrap().len(), 32 + (there.len() * (HEAD + PAGE)) as u64);
    }

    #[test]
    fn without_the_lock_each_frame_is_a_write() {
        let rig = Rig::new();
        let mut frames = rig.connection();
        rig.add(&mut frames, &[1, 2], false);
        assert_eq!(rig.there(), [1, 2]);
        rig.add(&mut frames, &[3], true);
        behind_a_commit(&rig, &mut frames, &[1, 2, 3, 5]);
    }

    #[test]
    fn a_read_of_what_is_there_sends_nothing() {
        let rig = Rig::new();
        let mut frames = rig.connection();
        rig.log.written(true);
        rig.add(&mut frames, &[1], true);
        rig.log.written(false);
        rig.log.written(true);
        rig.add(&mut frames, &[2], false);
        let frame = (HEAD + PAGE) as u64;
        frames.send_for(&rig.file, 0, 32 + HEAD + PAGE).unwrap();
        assert_eq!(rig.there(), [1]);
        frames.send_for(&rig.file, 32 + frame, 1).unwrap();
        assert_eq!(rig.there(), [1, 2]);
    }

    #[test]
    fn what_is_written_in_place_and_behind_a_commit_is_there_at_once() {
        let rig = Rig::new();
        let mut frames = rig.connection();
        rig.log.written(true);
        rig.add(&mut frames, &[1, 2], false);
        // A page once more in the same transaction, then new checksums, then what fills a sector behind a commit.
        frames.write(&rig.file, &[9; PAGE], 32 + HEAD as u64).unwrap();
        assert_eq!(rig.there(), [9, 2]);
        frames.end = 32 + 2 * (HEAD + PAGE) as u64;
        rig.add(&mut frames, &[3], true);
        frames.write(&rig.file, &[8; HEAD], 32).unwrap();
        let mut head = [0; HEAD];
        rig.file.read_exact_at(&mut head, 32).unwrap();
        assert_eq!(head, [8; HEAD]);
        behind_a_commit(&rig, &mut frames, &[9, 2, 3, 5]);
        rig.log.written(false);
        assert_eq!(rig.file.metadata().unwrap().len(), 32 + 4 * (HEAD + PAGE) as u64);
    }

    #[test]
    fn what_a_read_cannot_send_is_still_held_back_and_what_a_write_cannot_is_forgotten() {
        let rig = Rig::new();
        let mut frames = rig.connection();
        rig.log.written(true);
        rig.add(&mut frames, &[1, 2], false);
        let broken = rig.client.open("/a.db-wal", &OpenOptions::new().read(true)).unwrap();
        assert!(frames.send(&broken).is_err(), "it may not be written");
        rig.add(&mut frames, &[3], true);
        assert_eq!(rig.there(), [1, 2, 3], "no hole");
        rig.log.written(false);
        rig.log.written(true);
        rig.add(&mut frames, &[4], false);
        let mut head = [5; HEAD];
        head[SIZE_AFTER].fill(1);
        frames.write(&broken, &head, frames.end).unwrap();
        assert!(frames.write(&broken, &[5; PAGE], frames.end).is_err());
        frames.send(&rig.file).unwrap();
        assert_eq!(rig.there(), [1, 2, 3], "nothing of what failed");
    }

    #[test]
    fn logs_of_files_that_had_one_name_are_not_one() {
        let logs = Logs::default();
        let (old, new) = (logs.of(b"/a.db", 1), logs.of(b"/a.db", 2));
        assert!(!Arc::ptr_eq(&old, &new) && Arc::ptr_eq(&old, &logs.of(b"/a.db", 1)));
    }

    #[test]
    fn a_transaction_of_any_size_arrives() {
        let rig = Rig::new();
        let mut frames = rig.connection();
        rig.log.written(true);
        let fills: Vec<u8> = (0..600).map(|i| (i % 251) as u8).collect();
        let before = rig.commands();
        rig.add(&mut frames, &fills, true);
        assert_eq!(rig.there(), fills);
        assert_eq!(rig.commands() - before, 3, "2.4 MiB");
    }

    #[test]
    fn commits_are_durable_by_themselves_while_they_are_synced() {
        let rig = Rig::new();
        let mut frames = rig.connection();
        rig.log.written(true);
        let mut commit = |sync: bool| {
            let durable = rig.add(&mut frames, &[1], true);
            if sync {
                assert_eq!(frames.sync(), durable);
            }
            // The next transaction.
            rig.log.written(false);
            rig.log.written(true);
            durable
        };
        assert_eq!([true; 4].map(&mut commit), [false, false, true, true]);
        // Not synced, as is known at the next one.
        assert_eq!([false; 3].map(&mut commit), [true, false, false]);
        // As at a checkpoint, under synchronous=NORMAL.
        assert_eq!([true, false, true, false].map(&mut commit), [false; 4]);
        assert_eq!([true; 6].map(&mut commit), [false, false, false, false, true, true], "four are needed now");
    }
}
